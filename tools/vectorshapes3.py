"""
The form in which the test vectors of format 3 are written.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from svcbroker.chain import (
    Erasure,
    Header,
    Transaction,
    TransactionReceipt,
    accountAddress,
    authorsStatement,
    encodeAuthorChange,
    encodeAuthors,
    encodeBody,
    encodeReceipts,
    keyAddress,
)
from svcbroker.chain._body import receiptRoot
from svcbroker.model import AuthorSet, Execution
from tools.vectorauthors import (
    AUTHOR_KEYS,
    ERASURES,
    PEMS,
    PUBLIC,
    STATEMENTS,
    Statement,
    authorChanges,
    authorSets,
    badAuthorChanges,
    badAuthorSets,
    badErasures,
    badSignatures,
)
from tools.vectorcases import ALONE, BIGGEST, CHAIN, oddHeader
from tools.vectorcases3 import TRANSACTIONS, badTransactions, erased, erasedEntries
from tools.vectorchain3 import Block, lastBodies, makeChain, nextBlocks
from tools.vectorshapes import (
    Json,
    blockVector,
    headerVector,
    hexes,
    topicVector,
    transactionVector,
)


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
        *(TransactionReceipt(execution, 0) for execution in Execution),
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
