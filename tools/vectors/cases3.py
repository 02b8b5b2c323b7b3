"""
Transactions of version 2: more of what the test vectors are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from svcbroker.chain import (
    Claims,
    Erasure,
    Kind,
    Transaction,
    accountAddress,
    encodeAuthorChange,
    encodeAuthors,
)
from svcbroker.model import AuthorChange, AuthorSet, Authorship
from tools.vectors.authors import (
    FIRST_AUTHORS,
    SECOND_AUTHORS,
    STATEMENTS,
    Statement,
    authorChange,
    badAuthorChanges,
    badAuthorSets,
    badErasures,
)
from tools.vectors.cases import ALICE, BIGGEST, BOB, CHAIN, CREATED, publish
from tools.vectors.sets import GOOD

BROKER = accountAddress(CHAIN, "publisher:")
"""The owner of idempotency keys where there are no accounts."""
MARY = accountAddress(CHAIN, "publisher:mary")


def salt(nonce: int) -> bytes:
    """A salt, which is random elsewhere."""
    return sha256(b"salt %d" % nonce).digest()


def send(
    nonce: int,
    topic: str,
    content: bytes,
    extensions: Mapping[str, str] | None = None,
    *,
    author: Authorship | str | None = None,
    key: str | None = None,
    owner: bytes = BROKER,
    expected: int | None = None,
    sender: bytes = ALICE,
    timestamp: int = CREATED,
    version: int = 2,
) -> Transaction:
    """
    A publish of version 2, or of a later one.

    @param author: the name of the author that signs it, or an authorship.
    """
    if isinstance(author, str):
        meant = Statement(topic=topic, content=content, key=key, extensions=extensions or {})
        author = meant.by(author)
    claims = None
    if author is not None or key is not None or expected is not None:
        claims = Claims(
            author=author,
            key=key,
            owner=owner if key is not None and author is None else None,
            expected=expected,
        )
    return Transaction.publish(
        sender, nonce, timestamp, topic, content, extensions, salt(nonce), claims, version
    )


def manage2(kind: Kind, nonce: int, topic: str, content: bytes = b"") -> Transaction:
    """A transaction of version 2 that is not a publish."""
    return Transaction.make(kind, BOB, nonce, CREATED, topic, content)


def openFor(nonce: int, topic: str, authors: AuthorSet) -> Transaction:
    """An open with authors."""
    return manage2(Kind.OPEN, nonce, topic, encodeAuthors(authors))


def change(nonce: int, topic: str, made: AuthorChange) -> Transaction:
    """A change of authors."""
    return manage2(Kind.AUTHORS, nonce, topic, encodeAuthorChange(made))


def erase(nonce: int, topic: str, *ranges: tuple[int, int]) -> Transaction:
    """An erasure."""
    content = Erasure(account="operator", reason="asked for", ranges=ranges).encode()
    return manage2(Kind.ERASE, nonce, topic, content)


def _signed(name: str, nonce: int) -> Transaction:
    """The publish of a statement."""
    meant = STATEMENTS[name]
    return send(
        nonce, meant.topic, meant.content, meant.extensions, author=meant.by("ada"), key=meant.key
    )


TRANSACTIONS: Mapping[str, Transaction] = {
    "open": manage2(Kind.OPEN, 1, "com/example/test"),
    "open with authors": openFor(2, "signed", FIRST_AUTHORS),
    "close": manage2(Kind.CLOSE, 3, "com/example/test"),
    "change of validators": manage2(Kind.VALIDATORS, 4, "", GOOD.encode()),
    "change of validators, in name only": manage2(Kind.VALIDATORS, 5, "", b"no change"),
    "change of authors": change(6, "signed", authorChange(SECOND_AUTHORS)),
    "erasure": erase(7, "plain", (1, 1), (3, 4)),
    "publish": send(1, "com/example/test", b"hello"),
    "publish nothing": send(2, "com/example/test", b""),
    "public extensions": send(3, "x", b"\x00", {"svc-tag": "red", "svc-a": ""}),
    "private extensions": send(4, "x", b"\x00", {"svc-private-b": "2", "svc-private-a": ""}),
    "public and private extensions": send(
        5, "x", b"\x00", {"svc-private-": "\u00e9", "svc-privat": "public", "svc-tag": "red"}
    ),
    "idempotency key": send(6, "x", b"k", key="order-1"),
    "idempotency key of an account": send(7, "x", b"k", key="k" * 64, owner=MARY),
    "expected sequence": send(8, "x", b"e", expected=7),
    "expected sequence 0": send(9, "x", b"e", expected=0),
    **{f"signed: {name}": _signed(name, 10 + n) for n, name in enumerate(STATEMENTS)},
    "everything": send(
        30,
        "x",
        b"all",
        {"svc-tag": "red", "svc-private-name": "Ada"},
        author="bert",
        key="!",
        expected=BIGGEST,
        sender=b"\xff" * 20,
        timestamp=BIGGEST,
    ),
    "a signature that does not hold": send(
        31, "x", b"forged", author=Statement(topic="y").by("ada")
    ),
}

VERSION_1 = publish(BOB, 8, "x", b"old", {"svc-private-name": "not private in version 1"})


def _entry(transaction: Transaction) -> bytes:
    return transaction.head + transaction.seal + transaction.content


def committed(head: bytes, seal: bytes, content: bytes) -> bytes:
    """An entry of a publish whose commitment is right."""
    commitment = sha256(b"svcbroker/content" + seal + content).digest()
    return head[:38] + commitment + head[70:] + seal + content


def badTransactions() -> Mapping[str, bytes]:
    """Bytes that are no transaction of version 2, though nearly."""
    plain = send(1, "x", b"c")
    keyed = send(2, "x", b"c", key="k")
    private = send(3, "x", b"c", {"svc-private-a": "1"})
    signed = send(5, "x", b"c", author="ada")
    options = 73
    assert plain.head[options:] == b"\x00\x00\x00"

    def pair(key: bytes, value: bytes) -> bytes:
        return len(key).to_bytes(2, "big") + len(value).to_bytes(2, "big") + key + value

    def withKey(key: bytes) -> bytes:
        head = keyed.head[: options + 21] + bytes([len(key)]) + key + b"\x00\x00"
        return committed(head, keyed.seal, b"c")

    def withPrivate(*pairs: bytes, head: bytes = private.head) -> bytes:
        seal = salt(3) + len(pairs).to_bytes(2, "big") + b"".join(pairs)
        return committed(head, seal, b"c")

    def withOptions(transaction: Transaction, number: int) -> bytes:
        head = transaction.head[:options] + bytes([number]) + transaction.head[options + 1 :]
        return committed(head, transaction.seal, transaction.content)

    def of(kind: Kind, content: bytes, topic: str = "x") -> bytes:
        return _entry(manage2(kind, 1, topic, content))

    a, b = pair(b"svc-private-a", b"1"), pair(b"svc-private-b", b"2")
    closing = manage2(Kind.CLOSE, 1, "x").head
    half = pair(b"svc-a", b"1" * 4100)
    return {
        "version 3": b"\x03" + _entry(plain)[1:],
        "kind 0": b"\x02\x00" + _entry(plain)[2:],
        "kind 7": b"\x02\x07" + _entry(plain)[2:],
        "kind 5 in version 1": b"\x01" + TRANSACTIONS["change of authors"].head[1:],
        "ends before the options": plain.head[:options],
        "ends in the author": signed.head[: options + 32],
        "ends in the time": signed.head[: options + 40],
        "ends in the owner": keyed.head[: options + 20],
        "ends in the key": keyed.head[: options + 22],
        "ends before the extensions": plain.head[:-1],
        "ends in the salt": committed(plain.head, plain.seal[:-1], b""),
        "ends in the signature": committed(signed.head, signed.seal[:-1], b""),
        "ends in the private extensions": committed(private.head, private.seal[:-1], b""),
        "an unknown option": withOptions(plain, 16),
        "an author that is not there": withOptions(plain, 1),
        "an expected sequence that is not there": withOptions(plain, 4),
        "options on a close": closing[:options] + b"\x04" + bytes(8) + closing[options + 1 :],
        "extensions on a close": closing[:-2] + b"\x00\x01" + pair(b"svc-a", b"1"),
        "private extensions on a close": closing[:options] + b"\x08" + closing[options + 1 :],
        "private extensions, and none": withPrivate(),
        "a public extension in the seal": withPrivate(pair(b"svc-b", b"2")),
        "no extension in the seal": withPrivate(pair(b"private", b"2")),
        "private extensions out of order": withPrivate(b, a),
        "a private extension twice": withPrivate(a, a),
        "a private extension in the head": committed(
            plain.head[:-2] + b"\x00\x01" + a, plain.seal, b"c"
        ),
        "extensions too large together": withPrivate(
            pair(b"svc-private-a", b"1" * 4100),
            head=private.head[:-2] + b"\x00\x01" + half,
        ),
        "extensions out of order": committed(
            plain.head[:-2] + b"\x00\x02" + pair(b"svc-b", b"2") + pair(b"svc-a", b"1"),
            plain.seal,
            b"c",
        ),
        "no idempotency key": withKey(b""),
        "an idempotency key of 65 characters": withKey(b"k" * 65),
        "a space in an idempotency key": withKey(b"a b"),
        "a line feed in an idempotency key": withKey(b"a\n"),
        "an idempotency key that is not ASCII": withKey("\u00e9".encode()),
        "other content": _entry(plain)[:-1] + b"d",
        "content cut off": _entry(plain)[:-1],
        "another salt": plain.head + salt(2) + b"c",
        "the hash of version 1": plain.head[:38] + sha256(b"c").digest() + plain.head[70:] + b"c",
        "the content's hash without the tag": plain.head[:38]
        + sha256(plain.seal + b"c").digest()
        + plain.head[70:]
        + plain.seal
        + b"c",
        "another signature": signed.head + salt(5) + bytes(64) + b"c",
        "content on a close": of(Kind.CLOSE, b"c"),
        "a topic on a change of validators": of(Kind.VALIDATORS, b"c"),
        "no topic on an erasure": of(Kind.ERASE, TRANSACTIONS["erasure"].content, ""),
        "no topic on a change of authors": of(
            Kind.AUTHORS, TRANSACTIONS["change of authors"].content, ""
        ),
        "an open with a later set": of(Kind.OPEN, encodeAuthors(SECOND_AUTHORS)),
        "an open with no set of authors": of(Kind.OPEN, badAuthorSets()["no authors"]),
        "a change of authors that ends early": of(
            Kind.AUTHORS, badAuthorChanges()["ends in the signature"]
        ),
        "an erasure of no events": of(Kind.ERASE, badErasures()["no ranges"]),
    }


def erasedEntries() -> Mapping[str, Transaction]:
    """Publishes that stand in a body without their content, by what they were."""
    return {
        **{
            name: erased(TRANSACTIONS[name])
            for name in ("publish", "publish nothing", "public and private extensions")
        },
        "everything": erased(TRANSACTIONS["everything"]),
        "of version 1": erased(VERSION_1),
    }


def erased(transaction: Transaction) -> Transaction:
    """A publish, as it stands in a body without its content."""
    return Transaction.decode(transaction.head, mayBeErased=True)
