"""
The transactions, keys and blocks that the test vectors of the chain are made of.
L{tools.vectors.chain} writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import (
    Certificate,
    Genesis,
    Header,
    Kind,
    Phase,
    Transaction,
    accountAddress,
    encodeBody,
    votePayload,
)
from svcbroker.model import TopicRule

CREATED = 1_700_000_000_000
SEEDS = [bytes([number]) * 32 for number in range(1, 5)]
KEYS = [Ed25519PrivateKey.from_private_bytes(seed) for seed in SEEDS]
VALIDATORS = tuple(key.public_key().public_bytes_raw() for key in KEYS)
GENESIS = Genesis(group="1", created=CREATED, validators=VALIDATORS)
ALONE = Genesis(group="g\u00e4ste \U0001f600", created=0, validators=VALIDATORS[:1])
UTF8 = Genesis(group="1", created=CREATED, validators=VALIDATORS, topics=TopicRule.UTF8)
"""As L{GENESIS}, with names of topics in UTF-8."""
CHAIN = GENESIS.chain
ALICE = accountAddress(CHAIN, "alice")
BOB = accountAddress(CHAIN, "bob")
TWINS = ("twin/45695", "twin/72377")
BIGGEST = 2**64 - 1


def publish(
    sender: bytes,
    nonce: int,
    topic: str,
    content: bytes,
    extensions: Mapping[str, str] | None = None,
    timestamp: int = CREATED,
) -> Transaction:
    """A publish."""
    return Transaction.create(Kind.PUBLISH, sender, nonce, timestamp, topic, content, extensions)


def manage(kind: Kind, sender: bytes, nonce: int, topic: str) -> Transaction:
    """An open or a close."""
    return Transaction.create(kind, sender, nonce, CREATED, topic)


TRANSACTIONS: Mapping[str, Transaction] = {
    "open": manage(Kind.OPEN, ALICE, 1, "com/example/test"),
    "close": manage(Kind.CLOSE, ALICE, 2, "com/example/test"),
    "publish": publish(ALICE, 3, "com/example/test", b"hello"),
    "publish nothing": publish(ALICE, 4, "com/example/test", b""),
    "publish every byte": publish(BOB, 5, "bytes", bytes(range(256))),
    "one extension": publish(BOB, 6, "x", b"\x00", {"svc-tag": "red"}),
    "extensions by bytes, not by code units": publish(
        BOB,
        7,
        "x",
        b"\xff",
        {"svc-\U00010000": "", "svc-\uffff": "\u00e9", "svc-b": "2", "svc-": "0", "svc-a": "1"},
    ),
    "a change of the set, in name only": Transaction.create(
        Kind.VALIDATORS, BOB, 9, CREATED, "", b"no change"
    ),
    "widest name": manage(Kind.OPEN, ALICE, 8, "\x80" * 256),
    "every number at its largest": publish(
        b"\xff" * 20, BIGGEST, " ~\x7f\x80", b"!", timestamp=BIGGEST
    ),
}


def badTransactions() -> Mapping[str, bytes]:
    """Bytes that are no transaction, though nearly."""
    good = TRANSACTIONS["one extension"]
    entry = good.head + good.content
    name, pairs = 72, 75
    assert entry[name - 2 : name + 1] == b"\x00\x01x"
    closed = Transaction.create(Kind.CLOSE, BOB, 1, CREATED, "x", b"x")
    opened = Transaction.create(Kind.OPEN, BOB, 1, CREATED, "x", b"", {"svc-tag": "red"})
    change = Transaction.create(Kind.VALIDATORS, BOB, 1, CREATED, "x", b"x")
    marked = Transaction.create(Kind.VALIDATORS, BOB, 1, CREATED, "", b"x", {"svc-tag": "red"})

    def pair(key: bytes, value: bytes) -> bytes:
        return len(key).to_bytes(2, "big") + len(value).to_bytes(2, "big") + key + value

    def withPairs(*encoded: bytes) -> bytes:
        count = len(encoded).to_bytes(2, "big")
        return entry[: pairs - 2] + count + b"".join(encoded) + good.content

    def withName(encoded: bytes) -> bytes:
        return entry[: name - 2] + len(encoded).to_bytes(2, "big") + encoded + entry[name + 1 :]

    a, b = pair(b"svc-a", b"1"), pair(b"svc-b", b"2")
    return {
        "nothing": b"",
        "ends in the fixed part": entry[:71],
        "ends in the name": entry[:72],
        "ends in the extensions": good.head[:-1],
        "version 0": b"\x00" + entry[1:],
        "version 2": b"\x02" + entry[1:],
        "kind 0": entry[:1] + b"\x00" + entry[2:],
        "kind 5": entry[:1] + b"\x05" + entry[2:],
        "a topic on a change of the set": change.head + change.content,
        "extensions on a change of the set": marked.head + marked.content,
        "other content": entry[:-1] + b"\x01",
        "content cut off": entry[:-1],
        "content on a close": closed.head + closed.content,
        "extensions on an open": opened.head,
        "no name": withName(b""),
        "a name of spaces": withName(b"   "),
        "a name with a wildcard": withName(b"a/#"),
        "a name with a character over 128": withName("\x81".encode()),
        "a name of 257 characters": withName(b"n" * 257),
        "a name that is not UTF-8": withName(b"\x80"),
        "a name in overlong UTF-8": withName(b"\xc1\xa1"),
        "extensions out of order": withPairs(b, a),
        "an extension twice": withPairs(a, a),
        "an extension key without its prefix": withPairs(pair(b"tag", b"red")),
        "extensions too large": withPairs(pair(b"svc-a", b"1" * 8188)),
        "an extension that is a lone surrogate": withPairs(pair(b"svc-a", b"\xed\xa0\x80")),
    }


def badBodies() -> Mapping[str, bytes]:
    """Bytes that are no body."""
    body = encodeBody([TRANSACTIONS["open"], TRANSACTIONS["publish"]])[0]
    return {
        "nothing": b"",
        "ends in the count": b"\x00\x00\x00",
        "ends in the table": b"\x00\x00\x00\x02\x00\x00\x00\x01",
        "a count that no body can have": b"\xff\xff\xff\xff" + body[4:],
        "more after the end": body + b"\x00",
        "ends early": body[:-1],
        "more in an empty body": b"\x00\x00\x00\x00\x00",
        "an empty entry": b"\x00\x00\x00\x01\x00\x00\x00\x00",
    }


def oddHeader() -> Header:
    """A header that no chain has, with every field told from every other."""
    return Header(
        chain=b"\x01" * 32,
        height=2**63 + 2,
        parent=b"\x03" * 32,
        history=b"\x0d" * 32,
        view=BIGGEST,
        proposer=2**16 - 1,
        timestamp=2**56 + 6,
        transactionRoot=b"\x07" * 32,
        receiptRoot=b"\x08" * 32,
        stateRoot=b"\x09" * 32,
        validators=b"\x0a" * 32,
        nextValidators=b"\x0e" * 32,
        transactionCount=2**32 - 1,
        transactionTotal=2**48 + 12,
    )


def sign(
    index: int,
    phase: Phase,
    height: int,
    round: int,
    digest: bytes,
    keys: Sequence[Ed25519PrivateKey] = KEYS,
) -> bytes:
    """A node's vote."""
    return keys[index].sign(votePayload(phase, CHAIN, height, round, digest))


def certify(
    header: Header, round: int, signers: Sequence[int], keys: Sequence[Ed25519PrivateKey] = KEYS
) -> Certificate:
    """A certificate with these nodes' true signatures, in this order."""
    return Certificate(
        round=round,
        signatures=[
            (index, sign(index, Phase.COMMIT, header.height, round, header.hash, keys))
            for index in signers
        ],
    )


def certificates(header: Header, other: Header) -> Sequence[tuple[str, Certificate]]:
    """
    Certificates for a header, and things that are none.

    @return: pairs of why it is refused (empty: it is not) and the certificate.
    """
    good = certify(header, 0, (0, 1, 3))
    forged = [*good.signatures[:2], (3, bytes(64))]
    swapped = [good.signatures[0], (1, good.signatures[2][1]), (3, good.signatures[1][1])]
    prepares = [
        (index, sign(index, Phase.PREPARE, header.height, 0, header.hash)) for index in range(3)
    ]
    return [
        ("", good),
        ("", certify(header, 0, (1, 2, 3))),
        ("", certify(header, 2**40, (0, 1, 2, 3))),
        ("no signature", Certificate(round=0, signatures=())),
        ("too few", certify(header, 0, (0, 3))),
        ("one signer twice", certify(header, 0, (0, 1, 1))),
        ("not in rising order", certify(header, 0, (1, 0, 3))),
        ("a signer that is no node", Certificate(
            round=0, signatures=[*good.signatures, (4, good.signatures[0][1])]
        )),
        ("votes of another round", Certificate(round=1, signatures=good.signatures)),
        ("votes for another header", certify(other, 0, (0, 1, 3))),
        ("prepares", Certificate(round=0, signatures=prepares)),
        ("a forged signature", Certificate(round=0, signatures=forged)),
        ("signatures of each other", Certificate(round=0, signatures=swapped)),
        ("a forged one beyond a quorum", Certificate(
            round=0, signatures=[*certify(header, 0, (0, 1, 2)).signatures, (3, bytes(64))]
        )),
    ]  # fmt: skip


BLOCKS: Sequence[tuple[int, int, Sequence[Transaction]]] = [
    # The certificate's round, the time that the proposer has, and the transactions.
    (0, CREATED + 5, [manage(Kind.OPEN, ALICE, 1, "com/example/test")]),
    (
        0,
        CREATED + 10,
        [
            publish(ALICE, 2, "com/example/test", b"first"),
            publish(ALICE, 2, "com/example/test", b"a nonce for the second time"),
            publish(BOB, 1, "nobody/opened/this", b"refused"),
            manage(Kind.OPEN, BOB, 3, TWINS[0]),
            manage(Kind.OPEN, BOB, 2, TWINS[1]),
            publish(ALICE, 3, TWINS[0], b"left twin", {"svc-tag": "left"}),
            publish(ALICE, 4, "com/example/test", b""),
            publish(ALICE, 5, TWINS[0], b"left twin again"),
            manage(Kind.OPEN, ALICE, 6, "com/example/test"),
        ],
    ),
    # The leader of round 0 was silent, so the view has gone up; its time lies before the parent's.
    (1, CREATED, [publish(ALICE, 7, TWINS[1], b"right twin")]),
    (0, CREATED + 20, []),
    # A block of view 1 is decided in round 2: the round changes bound the new leader to it.
    (
        2,
        CREATED + 30,
        [
            manage(Kind.CLOSE, BOB, 4, "com/example/test"),
            publish(ALICE, 8, "com/example/test", b"after the close"),
            manage(Kind.CLOSE, BOB, 5, "com/example/test"),
            manage(Kind.OPEN, ALICE, 9, "com/example/test"),
            publish(ALICE, 1033, "com/example/test", b"goes on at three"),
            publish(ALICE, 10, "com/example/test", b"in the window"),
            publish(ALICE, 9, "com/example/test", b"behind the window"),
        ],
    ),
]
VIEWS = [0, 0, 1, 1, 1]
SIGNERS = [(0, 1, 2), (1, 2, 3), (0, 2, 3), (0, 1, 2, 3), (0, 1, 3)]
