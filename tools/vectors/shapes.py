"""
The form in which the test vectors of the chain are written, in all formats; of format 4 also the
parts that are specified and not executed yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Erasure,
    Genesis,
    Header,
    Kind,
    Nonces,
    Transaction,
    TransactionReceipt,
    ValidatorSet,
    accountAddress,
    authorsStatement,
    encodeAuthorChange,
    encodeAuthors,
    encodeBody,
    encodeReceipts,
    keyAddress,
    merkleRoot,
    topicAddress,
)
from svcbroker.chain._body import receiptRoot
from svcbroker.chain._state import senderLeaf, topicLeaf
from svcbroker.model import AuthorSet, Execution, Topic, TopicRule, topicPrefix
from tools.vectors.authors import (
    AUTHOR_KEYS,
    ERASURES,
    FIRST_AUTHORS,
    PEMS,
    PUBLIC,
    SECOND_AUTHORS,
    STATEMENTS,
    Statement,
    authorChanges,
    authorSets,
    badAuthorChanges,
    badAuthorSets,
    badErasures,
    badSignatures,
)
from tools.vectors.blocks3 import Block, lastBodies, makeChain, nextBlocks
from tools.vectors.blocks4 import BLOCKS4, BLOCKS_UTF8, nextBlocks4
from tools.vectors.cases import ALICE, ALONE, BIGGEST, BOB, CHAIN, CREATED, GENESIS, UTF8, oddHeader
from tools.vectors.cases3 import TRANSACTIONS, badTransactions, erased, erasedEntries, salt
from tools.vectors.cases4 import STATEMENTS2, TRANSACTIONS4, badTransactions4
from tools.vectors.holds4 import BLOCKS_HELD, HELD
from tools.vectors.sets import FIRST

_PLAIN, _SIGNED = (topicAddress(CHAIN, name) for name in ("plain", "signed"))
_EVENTS = sorted([(_PLAIN, 1), (_PLAIN, 2**32), (_SIGNED, 7)])
_ANYBODY = bytes(32)
Recipients = tuple[int, Sequence[tuple[str, bytes]]]
"""The generation, and names with keys."""

_SOME: Recipients = (0, [("carrier", PUBLIC["bert"]), ("port of Basel", _ANYBODY)])


def sized(text: str | bytes, size: int) -> bytes:
    """A text with its length before it."""
    data = text if isinstance(text, bytes) else text.encode()
    return len(data).to_bytes(size, "big") + data


def releaseOf(case: str, account: str = "ops", reason: str = "case closed") -> bytes:
    """The content of a release."""
    return sized(case, 1) + sized(account, 1) + sized(reason, 2)


def holdOf(
    case: str,
    patterns: Sequence[str] = (),
    events: Sequence[tuple[bytes, int]] = (),
    reason: str = "court order",
) -> bytes:
    """The content of a hold."""
    return b"".join(
        (
            releaseOf(case, "ops", reason),
            bytes([len(patterns)]),
            *(sized(pattern, 2) for pattern in patterns),
            len(events).to_bytes(2, "big"),
            *(address + number.to_bytes(8, "big") for address, number in events),
        )
    )


def recipientsOf(recipients: Recipients) -> bytes:
    """Recipients, encoded."""
    generation, some = recipients
    return b"".join(
        (
            generation.to_bytes(8, "big"),
            bytes([len(some)]),
            *(sized(name, 1) + key for name, key in some),
        )
    )


def termsOf(
    authors: AuthorSet | None = None, recipients: Recipients | None = None, profile: int = 0
) -> bytes:
    """The terms of a topic."""
    parts = (authors is not None) + 2 * (recipients is not None) + 4 * bool(profile)
    encoded = bytes([parts])
    encoded += b"" if authors is None else encodeAuthors(authors)
    encoded += b"" if recipients is None else recipientsOf(recipients)
    return encoded + (bytes([profile]) if profile else b"")


def recipientsStatement(recipients: Recipients) -> bytes:
    """The statement that an admin of the topic signs."""
    generation, some = recipients
    lines = [
        "svcbroker/recipients/1",
        f"chain={CHAIN.hex()}",
        "topic=signed",
        f"generation={generation}",
        *(f"recipient={name.encode().hex()}:{key.hex()}" for name, key in some),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def recipientChange(recipients: Recipients) -> bytes:
    """A change of recipients, by carol."""
    signature = AUTHOR_KEYS["carol"].sign(recipientsStatement(recipients))
    return recipientsOf(recipients) + PUBLIC["carol"] + signature


def head4(kind: int, commitment: bytes, topic: str = "", rest: bytes = b"\0\0\0") -> bytes:
    """The head of a transaction of version 3."""
    sender = ALICE if kind == Kind.PUBLISH else BOB
    head = bytes([3, kind]) + sender + (1).to_bytes(8, "big") + CREATED.to_bytes(8, "big")
    return head + commitment + sized(topic, 2) + rest


def entry4(kind: int, content: bytes, topic: str = "") -> bytes:
    """An entry that is no publish."""
    return head4(kind, sha256(content).digest(), topic) + content


def registeredOf(
    statement: bytes, content: bytes = b"", *, size: int | None = None, hash: bytes | None = None
) -> tuple[bytes, bytes]:
    """
    The entry of a publish with a registered statement, whole and erased.

    @param size: another length of the statement in the head.
    @param hash: another hash of it there.
    """
    commitment = sha256(b"svcbroker/content" + salt(1) + content).digest()
    length = len(statement) if size is None else size
    rest = b"\x20" + length.to_bytes(4, "big") + (hash or sha256(statement).digest()) + b"\0\0"
    head = head4(Kind.PUBLISH, commitment, "signed", rest)
    return head + statement + salt(1) + content, head + statement


NAMES: Mapping[str, bool] = {
    "plain": True,
    "a\x80b": True,
    "a\x7fb": True,
    "Zürich/Bestellungen": True,
    "注文/2026": True,
    "e\u0301": True,
    "\U0001f600" * 64: True,
    "x" + "\u00e9" * 128: False,
    "x\x80" * 128: True,
    "x" * 256: True,
    " \u3000": True,
    "a\u00a0b": True,
    "x" * 257: False,
    "": False,
    "   ": False,
    "é+": False,
    "é#": False,
    "é\n": False,
    "é\x1f": False,
    "é\x7f": False,
    "é\x80": False,
    "é\x9f": False,
    "a\u200bb": False,
    "a\u200fb": False,
    "a\u2028b": False,
    "a\u202eb": False,
    "a\u2060b": False,
    "a\u206fb": False,
    "\ufeffa": False,
    "a\ufff9": False,
    "a\ufffd": True,
    "a\ufdd0": False,
    "a\uffff": False,
    "a\U0010fffe": False,
}
"""Names of topics, and whether version 3 has them."""

_GOOD = holdOf("case-1", ["invoices/#"])
_ROOM = releaseOf("case-1", "ops", "court order")

BAD_HOLDS: Mapping[str, bytes] = {
    "nothing": b"",
    "a release": _ROOM,
    "neither patterns nor events": holdOf("case-1"),
    "patterns and events": holdOf("case-1", ["a"], _EVENTS),
    "no case": holdOf("", ["a"]),
    "a space in the case": holdOf("case 1", ["a"]),
    "a case of 65 characters": holdOf("c" * 65, ["a"]),
    "17 patterns": holdOf("c", [chr(97 + n) for n in range(17)]),
    "1001 events": holdOf("c", (), [(_PLAIN, n) for n in range(1, 1002)]),
    "patterns that fall": holdOf("c", ["b", "a"]),
    "a pattern twice": holdOf("c", ["a", "a"]),
    "events that fall": holdOf("c", (), _EVENTS[::-1]),
    "event 0": holdOf("c", (), [(_PLAIN, 0)]),
    "a level after the last": holdOf("c", ["#/a"]),
    "a wildcard in a level": holdOf("c", ["a+/b"]),
    "a control character in a pattern": holdOf("c", ["a\n/+"]),
    "an empty pattern": holdOf("c", [""]),
    "a pattern of 257 characters": holdOf("c", ["x" * 255 + "/#"]),
    "a reason of 1025 bytes": holdOf("c", ["a"], reason="r" * 1025),
    "ends in the patterns": _GOOD[:-3],
    "ends in the events": holdOf("c", (), _EVENTS)[:-1],
    "more after the end": _GOOD + b"\0",
}
BAD_RELEASES: Mapping[str, bytes] = {
    "nothing": b"",
    "a hold": _GOOD,
    "no case": releaseOf(""),
    "a reason of 1025 bytes": releaseOf("c", reason="r" * 1025),
    "ends in the reason": releaseOf("c")[:-1],
}
BAD_TERMS: Mapping[str, bytes] = {
    "no parts": b"\0",
    "an unknown part": b"\x08",
    "authors of a later generation": termsOf(SECOND_AUTHORS),
    "recipients of a later generation": termsOf(recipients=(1, _SOME[1])),
    "no recipients": termsOf(recipients=(0, [])),
    "65 recipients": termsOf(recipients=(0, [(f"{number:02}", _ANYBODY) for number in range(65)])),
    "recipients that fall": termsOf(recipients=(0, _SOME[1][::-1])),
    "a recipient twice": termsOf(recipients=(0, [_SOME[1][0], _SOME[1][0]])),
    "a recipient without a name": termsOf(recipients=(0, [("", _ANYBODY)])),
    "a slash in a recipient's name": termsOf(recipients=(0, [("a/b", _ANYBODY)])),
    "a recipient's name of 65 characters": termsOf(recipients=(0, [("r" * 65, _ANYBODY)])),
    "an unknown profile": termsOf(profile=2),
    "no profile": b"\x04",
    "a set of authors alone": encodeAuthors(FIRST_AUTHORS),
    "ends in the recipients": termsOf(recipients=_SOME)[:-1],
    "more after the end": termsOf(FIRST_AUTHORS, _SOME, 1) + b"\0",
}
BAD_RECIPIENT_CHANGES: Mapping[str, bytes] = {
    "nothing": b"",
    "recipients alone": recipientsOf(_SOME),
    "ends in the signature": recipientChange(_SOME)[:-1],
    "65 recipients": recipientChange((1, [(f"{number:02}", _ANYBODY) for number in range(65)])),
    "more after the end": recipientChange(_SOME) + b"\0",
}
_STATEMENT = b"\xd2\x84\x43\xa1\x01\x27\xa0\x41x\x40"
BAD_REGISTERED: Mapping[str, bytes] = {
    "no statement": registeredOf(b"")[0],
    "another statement": registeredOf(_STATEMENT, hash=bytes(32))[0],
    "a statement that ends early": registeredOf(_STATEMENT, size=2**31)[0],
    "a statement that goes on": registeredOf(_STATEMENT, size=3)[0],
    "it does not begin with d2": registeredOf(b"\x84")[0],
    "ends in the statement": registeredOf(_STATEMENT)[1][:-1],
}


def partVectors() -> Json:
    """The members of C{format4} for these parts."""
    changes: Sequence[Recipients] = [(1, []), (1, _SOME[1]), (BIGGEST, _SOME[1][:1])]
    terms: Sequence[tuple[AuthorSet | None, Recipients | None, int]] = [
        (FIRST_AUTHORS, None, 0),
        (None, _SOME, 0),
        (None, None, 1),
        (FIRST_AUTHORS, (0, [("r" * 64, PUBLIC["ada"]), ("Ärztin", _ANYBODY)]), 1),
    ]
    holds: Sequence[tuple[str, Sequence[str], Sequence[tuple[bytes, int]]]] = [
        ("case-1", ["invoices/#"], ()),
        ("!~", ["#", "+/a", "/", "Zürich/+/x", "x" * 256], ()),
        ("c" * 64, (), _EVENTS),
        ("all", (), [(_PLAIN, number) for number in range(1, 1001)]),
    ]
    registered = [(_STATEMENT, b""), (_STATEMENT, b"the private part"), (b"\xd2", b"")]
    whole, _ = registeredOf(_STATEMENT)
    return {
        "names": [{"name": name, "isGood": isGood} for name, isGood in NAMES.items()],
        "holds": [
            {
                "case": case,
                "account": "ops",
                "reason": "court order",
                "patterns": list(patterns),
                "events": [[address.hex(), number] for address, number in events],
                "encoded": holdOf(case, patterns, events).hex(),
            }
            for case, patterns, events in holds
        ],
        "releases": [
            {
                "case": "case-1",
                "account": "ops",
                "reason": "case closed",
                "encoded": releaseOf("case-1").hex(),
            }
        ],
        "terms": [
            {
                "authors": None if authors is None else encodeAuthors(authors).hex(),
                "recipients": None
                if recipients is None
                else [[name, key.hex()] for name, key in recipients[1]],
                "profile": profile,
                "encoded": termsOf(authors, recipients, profile).hex(),
            }
            for authors, recipients, profile in terms
        ],
        "recipientChanges": [
            {
                "generation": generation,
                "recipients": [[name, key.hex()] for name, key in some],
                "statement": recipientsStatement((generation, some)).decode(),
                "encoded": recipientChange((generation, some)).hex(),
            }
            for generation, some in changes
        ],
        "registered": [
            {
                "statement": statement.hex(),
                "content": content.hex(),
                "entry": registeredOf(statement, content)[0].hex(),
                "erased": registeredOf(statement, content)[1].hex(),
            }
            for statement, content in registered
        ],
        **{
            name: [{"why": why, "encoded": encoded.hex()} for why, encoded in bad.items()]
            for name, bad in (
                ("malformedHolds", BAD_HOLDS),
                ("malformedReleases", BAD_RELEASES),
                ("malformedTerms", BAD_TERMS),
                ("malformedRecipientChanges", BAD_RECIPIENT_CHANGES),
                ("malformedRegistered", BAD_REGISTERED),
            )
        },
        "notExecuted": [
            {"part": part, "entry": entry.hex()}
            for part, entry in (
                ("hold", entry4(7, _GOOD)),
                ("release", entry4(8, releaseOf("case-1"))),
                ("recipients", entry4(9, recipientChange(changes[0]), "signed")),
                ("terms", entry4(Kind.OPEN, termsOf(None, _SOME), "signed")),
                ("registered", whole),
            )
        ],
    }


Json = dict[str, Any]


def hexes(values: Sequence[bytes]) -> list[str]:
    """Some bytes as text."""
    return [value.hex() for value in values]


def transactionVector(name: str, transaction: Transaction) -> Json:
    """A transaction: what it says, and its bytes."""
    return {
        "name": name,
        "kind": transaction.kind.name,
        "sender": transaction.sender.hex(),
        "nonce": transaction.nonce,
        "timestamp": transaction.timestamp,
        "topic": transaction.topic,
        "content": transaction.content.hex(),
        "extensions": dict(transaction.extensions),
        "head": transaction.head.hex(),
        "hash": transaction.hash.hex(),
    }


def setVector(validators: ValidatorSet) -> Json:
    """A validator set."""
    return {
        "generation": validators.generation,
        "keys": hexes(validators.keys),
        "encoded": validators.encoded.hex(),
        "hash": validators.hash.hex(),
    }


def topicVector(topic: Topic) -> Json:
    """A topic in the state."""
    return {
        "name": topic.name,
        "address": topic.address.hex(),
        "sender": topic.sender.hex(),
        "created": topic.created,
        "isOpen": topic.isOpen,
        "sequence": topic.sequence,
        "height": topic.height,
        "leaf": topicLeaf(topic).hex(),
    }


def stateVector(topics: Sequence[Topic], accounts: Sequence[tuple[bytes, Nonces]]) -> Json:
    """A whole state and its root."""
    return {
        "topics": [topicVector(topic) for topic in topics],
        "topicRoot": merkleRoot([topicLeaf(topic) for topic in topics]).hex(),
        "accounts": [
            {
                "address": address.hex(),
                "encoded": account.encode().hex(),
                "leaf": senderLeaf(address, account).hex(),
            }
            for address, account in accounts
        ],
        "accountRoot": merkleRoot([senderLeaf(*entry) for entry in accounts]).hex(),
        "stateRoot": ChainState(CHAIN, FIRST, GENESIS.state().history, topics, accounts).root.hex(),
    }


def headerVector(header: Header) -> Json:
    """A header: its fields, its bytes, its hash."""
    return {
        "chain": header.chain.hex(),
        "height": header.height,
        "parent": header.parent.hex(),
        "history": header.history.hex(),
        "view": header.view,
        "proposer": header.proposer,
        "timestamp": header.timestamp,
        "transactionRoot": header.transactionRoot.hex(),
        "receiptRoot": header.receiptRoot.hex(),
        "stateRoot": header.stateRoot.hex(),
        "validators": header.validators.hex(),
        "nextValidators": header.nextValidators.hex(),
        "transactionCount": header.transactionCount,
        "transactionTotal": header.transactionTotal,
        "encoded": header.encoded.hex(),
        "hash": header.hash.hex(),
    }


def blockVector(candidate: Candidate, certificate: Certificate, state: ChainState) -> Json:
    """A block of the small chain, and the state after it."""
    header, receipts = candidate.header, candidate.outcome.receipts
    topics = [state.topicAt(index) for index in range(len(state._topics))]
    return {
        "header": headerVector(header),
        "transactions": [
            transactionVector("", transaction) for transaction in candidate.transactions
        ],
        "body": candidate.body.hex(),
        "receipts": [[receipt.execution.name, receipt.sequence] for receipt in receipts],
        "encodedReceipts": encodeReceipts(receipts).hex(),
        "round": certificate.round,
        "certificate": certificate.encode().hex(),
        "validators": setVector(candidate.outcome.validators),
        "eventIds": [
            f"{topicPrefix(transaction.topic)}-{receipt.sequence}-{header.height}"
            for transaction, receipt in zip(candidate.transactions, receipts, strict=True)
            if transaction.kind is Kind.PUBLISH and receipt.execution is Execution.DONE
        ],
        "state": stateVector(topics, state._senders),
    }


def addressVectors() -> list[Json]:
    """Addresses of keys, and of accounts that own idempotency keys."""
    return [
        {
            "of": "key",
            "chain": chain.hex(),
            "key": key.hex(),
            "address": keyAddress(chain, key).hex(),
        }
        for chain in (CHAIN, ALONE.chain)
        for key in PUBLIC.values()
    ] + [
        {
            "of": "account",
            "chain": CHAIN.hex(),
            "name": name,
            "address": accountAddress(CHAIN, name).hex(),
        }
        for name in ("publisher:", "publisher:mary")
    ]


def statementVectors(statements: Mapping[str, Statement] = STATEMENTS) -> list[Json]:
    """Statements and their signatures by each author."""
    return [
        {
            "name": name,
            **(
                {}
                if meant.version == 1
                else {"version": meant.version, "expectedSequence": meant.expected}
            ),
            "chain": meant.chain.hex(),
            "topic": meant.topic,
            "content": meant.content.hex(),
            "signedAt": meant.signedAt,
            "idempotencyKey": meant.key,
            "extensions": dict(meant.extensions),
            "statement": meant.text.decode("utf-8"),
            "signatures": {author: meant.by(author).signature.hex() for author in AUTHOR_KEYS},
        }
        for name, meant in statements.items()
    ]


def transaction2Vector(name: str, transaction: Transaction) -> Json:
    """A transaction of any version: what it says, and its bytes."""
    claims = transaction.claims
    author = None if claims is None else claims.author
    owner = None if claims is None else claims.owner
    return {
        **transactionVector(name, transaction),
        "version": transaction.version,
        "salt": transaction.seal[:32].hex(),
        "author": None
        if author is None
        else {
            "key": author.key.hex(),
            "signedAt": author.signedAt,
            "signature": author.signature.hex(),
            **({} if transaction.version == 2 else {"statement": author.statement}),
        },
        "owner": "" if owner is None else owner.hex(),
        "idempotencyKey": None if claims is None else claims.key,
        "expectedSequence": None if claims is None else claims.expected,
        "seal": transaction.seal.hex(),
    }


def bodyVectors() -> list[Json]:
    """Bodies with contents that are there, and that are not."""
    vectors = []
    for names, gone in (
        (["publish", "everything", "open with authors"], []),
        (["publish", "everything", "open with authors"], ["publish"]),
        (["everything", "erasure", "publish"], ["publish", "everything"]),
    ):
        body, offsets = encodeBody(
            [erased(TRANSACTIONS[name]) if name in gone else TRANSACTIONS[name] for name in names]
        )
        vectors.append(
            {"transactions": names, "erased": gone, "body": body.hex(), "offsets": list(offsets)}
        )
    return vectors


def authorSetVector(authors: AuthorSet) -> Json:
    """A set of authors."""
    return {
        "generation": authors.generation,
        "authors": hexes(authors.authors),
        "admins": hexes(authors.admins),
        "encoded": encodeAuthors(authors).hex(),
    }


def erasureVector(erasure: Erasure) -> Json:
    """An erasure."""
    return {
        "account": erasure.account,
        "reason": erasure.reason,
        "ranges": [list(each) for each in erasure.ranges],
        "encoded": erasure.encode().hex(),
    }


def receiptVector() -> Json:
    """Receipts of every execution, and their root."""
    some = [
        *(
            TransactionReceipt(execution, 0)
            for execution in Execution
            if execution is not Execution.HELD
        ),
        TransactionReceipt(Execution.PUBLISHED_BEFORE, 7),
        TransactionReceipt(Execution.OTHER_SEQUENCE, BIGGEST),
    ]
    hashes = [transaction.hash for transaction in TRANSACTIONS.values()][: len(some)]
    encoded = encodeReceipts(some)
    return {
        "receipts": [[receipt.execution.name, receipt.sequence] for receipt in some],
        "transactionHashes": hexes(hashes),
        "encoded": encoded.hex(),
        "root": receiptRoot(hashes, encoded).hex(),
    }


def block3Vector(block: Block, lastBody: bytes) -> Json:
    """A block of the small chain, and the state after it."""
    candidate, outcome = block.candidate, block.candidate.outcome
    vector = blockVector(candidate, block.certificate, block.state)
    names = [topic.name for topic in block.state._topics]
    vector["header"]["version"] = candidate.header.version
    vector["transactions"] = [transaction2Vector("", each) for each in candidate.transactions]
    vector["state"]["topics"] = [
        {
            **topicVector(topic),
            "authors": None if topic.authors is None else authorSetVector(topic.authors),
        }
        for topic in block.state._topics
    ]
    return vector | {
        "uses": [
            {
                "owner": use.owner.hex(),
                "key": use.key,
                "number": use.number,
                "topic": names[use.topic],
                "sequence": use.sequence,
                "height": use.height,
                "hash": "" if use.digest is None else use.digest.hex(),
            }
            for use in outcome.uses
        ],
        "erased": [
            {
                "topic": names[each.topic],
                "first": each.first,
                "last": each.last,
                "transaction": each.position,
            }
            for each in outcome.erased
        ],
        "storedBody": encodeBody(block.stored)[0].hex(),
        "lastBody": lastBody.hex(),
    }


def format3() -> Json:
    """All of them."""
    made = makeChain()
    return {
        "authorKeys": [
            {"name": name, "pem": pem, "publicKey": PUBLIC[name].hex()}
            for name, pem in PEMS.items()
        ],
        "addresses": addressVectors(),
        "statements": statementVectors(),
        "badSignatures": [
            {"why": why, "publicKey": key.hex(), "signature": signature.hex()}
            for why, key, signature in badSignatures()
        ],
        "transactions": [transaction2Vector(*item) for item in TRANSACTIONS.items()],
        "malformedTransactions": [
            {"why": why, "entry": entry.hex()} for why, entry in badTransactions().items()
        ],
        "erasedEntries": [
            {"was": was, "entry": entry.head.hex(), "hash": entry.hash.hex()}
            for was, entry in erasedEntries().items()
        ],
        "bodies": bodyVectors(),
        "authorSets": [authorSetVector(authors) for authors in authorSets()],
        "malformedAuthorSets": [
            {"why": why, "encoded": encoded.hex()} for why, encoded in badAuthorSets().items()
        ],
        "authorChanges": [
            {
                "refused": why,
                "statement": authorsStatement(CHAIN, "signed", change.following).decode("ascii"),
                "encoded": encodeAuthorChange(change).hex(),
            }
            for why, change in authorChanges()
        ],
        "malformedAuthorChanges": [
            {"why": why, "encoded": encoded.hex()} for why, encoded in badAuthorChanges().items()
        ],
        "erasures": [erasureVector(erasure) for erasure in ERASURES],
        "malformedErasures": [
            {"why": why, "encoded": encoded.hex()} for why, encoded in badErasures().items()
        ],
        "receipts": receiptVector(),
        "header": {"version": 3, **headerVector(replace(oddHeader(), version=3))},
        "blocks": [
            block3Vector(block, body) for block, body in zip(made, lastBodies(made), strict=True)
        ],
        "nextBlocks": nextVectors(nextBlocks(made)),
    }


def nextVectors(blocks: Mapping[str, tuple[Header, bytes]]) -> list[Json]:
    """Blocks that may follow a small chain, or may not."""
    return [
        {
            "after": header.height - 1,
            "refused": "" if why[:1] in ("", " ") else why,
            "header": header.encoded.hex(),
            "body": body.hex(),
        }
        for why, (header, body) in blocks.items()
    ]


def genesisVector(genesis: Genesis) -> Json:
    """A genesis and the header that it gives."""
    return {
        "group": genesis.group,
        "created": genesis.created,
        "validators": hexes(genesis.validators),
        **({"topics": "utf8"} if genesis.topics is TopicRule.UTF8 else {}),
        "validatorsHash": genesis.validatorSet.hash.hex(),
        "encoded": genesis.encoded.hex(),
        "chain": genesis.chain.hex(),
        "header": headerVector(genesis.header()),
    }


def utf8Vectors() -> Json:
    """A chain with names of topics in UTF-8."""
    made, encoded = makeChain(BLOCKS_UTF8, UTF8), UTF8.encoded
    return {
        "genesis": genesisVector(UTF8),
        "malformedGenesis": [
            {"why": why, "encoded": bad.hex()}
            for why, bad in (
                ("no rule", encoded[:-1]),
                ("rule 0", encoded[:-1] + b"\0"),
                ("rule 2", encoded[:-1] + b"\2"),
                ("more after the end", encoded + b"\0"),
                ("of version 1", encoded.replace(b"genesis\2", b"genesis\1")),
                ("of version 3", encoded.replace(b"genesis\2", b"genesis\3")),
            )
        ],
        "blocks": [
            block3Vector(block, body) for block, body in zip(made, lastBodies(made), strict=True)
        ],
    }


def heldVectors() -> Json:
    """Transactions of holds and releases, and a chain with them."""
    made = makeChain(BLOCKS_HELD)
    return {
        "transactions": [transaction2Vector(name, each) for name, each in HELD.items()],
        "malformedTransactions": [
            {"why": why, "entry": entry.hex()}
            for why, entry in (
                ("a hold with a name", entry4(Kind.HOLD, _GOOD, "invoices")),
                ("a release with a name", entry4(Kind.RELEASE, releaseOf("case-1"), "invoices")),
                ("a hold with the content of a release", entry4(Kind.HOLD, releaseOf("case-1"))),
                ("a release with the content of a hold", entry4(Kind.RELEASE, _GOOD)),
                ("a hold of version 2", b"\2" + entry4(Kind.HOLD, _GOOD)[1:]),
            )
        ],
        "blocks": [
            block3Vector(block, body) for block, body in zip(made, lastBodies(made), strict=True)
        ],
    }


def format4() -> Json:
    """All of them."""
    made = makeChain(BLOCKS4)
    return {
        "statements": statementVectors(STATEMENTS2),
        "transactions": [transaction2Vector(name, each) for name, each in TRANSACTIONS4.items()],
        "malformedTransactions": [
            {"why": why, "entry": entry.hex()} for why, entry in badTransactions4().items()
        ],
        "header": {"version": 4, **headerVector(replace(oddHeader(), version=4))},
        "blocks": [
            block3Vector(block, body) for block, body in zip(made, lastBodies(made), strict=True)
        ],
        "nextBlocks": nextVectors(nextBlocks4(made)),
        "utf8": utf8Vectors(),
        **partVectors(),
        "held": heldVectors(),
    }
