"""
The vectors of format 3 in C{docs/vectors/chain.json} against the package.
L{tests.chain.test_reference3} holds the reference against them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Certificate,
    Claims,
    Erasure,
    Header,
    InvalidBlock,
    Kind,
    Malformed,
    Transaction,
    accountAddress,
    authorsStatement,
    checkBlock,
    checkCertificate,
    decodeAuthors,
    decodeBody,
    decodeReceipts,
    encodeAuthorChange,
    encodeAuthors,
    encodeBody,
    encodeReceipts,
    execute,
    keyAddress,
    statement,
    transactionHashes,
    verifySignature,
)
from svcbroker.chain._authorship import decodeAuthorChange
from svcbroker.chain._state import topicLeaf
from svcbroker.model import AuthorSet, Authorship
from tests import examples
from tests.needed import neededProgram

from . import reference
from .reference import VECTORS, Sent
from .reference_reading import readEntry
from .support import GENESIS, few, headerOf, mutated
from .test_reference import raw
from .test_vectors import isDecoded, receiptsOf

VECTORS3 = VECTORS["format3"]


def transactionOf(sent: Sent) -> Transaction:
    """The package's form of the reference's transaction of version 2 or 3."""
    kind = Kind[sent.kind]
    if kind is not Kind.PUBLISH:
        return Transaction.make(
            kind, sent.sender, sent.nonce, sent.timestamp, sent.topic, sent.content, sent.version
        )
    author = None
    if sent.author is not None:
        author = Authorship(
            key=sent.author,
            signedAt=sent.signedAt,
            signature=sent.signature,
            statement=sent.statement,
        )
    claims = None
    if sent.options & ~8:
        claims = Claims(
            author=author, key=sent.key, owner=sent.owner or None, expected=sent.expected
        )
    return Transaction.publish(
        sent.sender,
        sent.nonce,
        sent.timestamp,
        sent.topic,
        sent.content,
        sent.extensions,
        sent.salt,
        claims,
        sent.version,
    )


def authorsOf(vector: Any) -> AuthorSet:
    """The set that a vector speaks of."""
    return AuthorSet(
        generation=vector["generation"],
        authors=tuple(raw(vector["authors"])),
        admins=tuple(raw(vector["admins"])),
    )


ENTRIES = [
    *(Sent.read(vector).entry for vector in VECTORS["transactions"] + VECTORS3["transactions"]),
    *(bytes.fromhex(vector["entry"]) for vector in VECTORS3["erasedEntries"]),
]
PUBLISHES = [
    (sent.head, sent.seal + sent.content)
    for sent in map(Sent.read, VECTORS3["transactions"])
    if sent.kind == "PUBLISH"
]


def agreedEntries(
    test: SynchronousTestCase, entry: bytes, isStored: bool
) -> tuple[Transaction, Sent] | None:
    """What package and reference read alike, or nothing where both refuse an entry."""
    try:
        expected = readEntry(entry, isStored)
    except ValueError:
        test.assertRaises(Malformed, Transaction.decode, entry, isStored)
        return None
    made = Transaction.decode(entry, isStored)
    test.assertEqual((made.head, made.seal), (expected.head, expected.seal))
    return made, expected


class EncodingTests(SynchronousTestCase):
    """
    The package encodes version 2 as the vectors say, and reads it back.
    """

    def malformed(
        self, name: str, decode: Any, field: str = "encoded", later: Sequence[str] = ()
    ) -> None:
        """Every vector of a member is refused by a decoder, but for those of a later format."""
        accepted = [
            vector["why"]
            for vector in VECTORS3[name]
            if isDecoded(decode, bytes.fromhex(vector[field]))
        ]
        self.assertEqual(accepted, list(later))

    def test_addressesMatchVectors(self) -> None:
        """Addresses of keys and of the owners of idempotency keys."""
        for vector in VECTORS3["addresses"]:
            chain = bytes.fromhex(vector["chain"])
            if vector["of"] == "key":
                made = keyAddress(chain, bytes.fromhex(vector["key"]))
            else:
                made = accountAddress(chain, vector["name"])
            self.assertEqual(made.hex(), vector["address"])

    def test_statementsMatchVectors(self) -> None:
        """Statements, and their signatures by the keys in the vectors."""
        keys = {}
        for vector in VECTORS3["authorKeys"]:
            key = load_pem_private_key(vector["pem"].encode("ascii"), None)
            assert isinstance(key, Ed25519PrivateKey)
            keys[vector["name"]] = key
            self.assertEqual(key.public_key().public_bytes_raw().hex(), vector["publicKey"])
        for vector in VECTORS3["statements"]:
            made = statement(
                bytes.fromhex(vector["chain"]),
                vector["topic"],
                bytes.fromhex(vector["content"]),
                vector["signedAt"],
                vector["idempotencyKey"],
                vector["extensions"],
            )
            self.assertEqual(made.decode("utf-8"), vector["statement"])
            for name, signature in vector["signatures"].items():
                self.assertEqual(keys[name].sign(made).hex(), signature)
                public = keys[name].public_key().public_bytes_raw()
                self.assertTrue(verifySignature(public, made, bytes.fromhex(signature)))
        first = VECTORS3["statements"][0]["statement"].encode()
        for vector in VECTORS3["badSignatures"]:
            public, signed = raw([vector["publicKey"], vector["signature"]])
            self.assertFalse(verifySignature(public, first, signed), vector["why"])

    def test_opensslSignsTheSame(self) -> None:
        """openssl makes the signatures of the vectors with the keys that it has made."""
        openssl = neededProgram("openssl")
        directory = Path(self.mktemp())
        directory.mkdir()
        pem, text = directory / "key.pem", directory / "statement"
        for vector in VECTORS3["statements"]:
            text.write_text(vector["statement"], encoding="utf-8", newline="")
            for key in VECTORS3["authorKeys"]:
                pem.write_text(key["pem"], encoding="ascii")
                command = (openssl, "pkeyutl", "-sign", "-rawin", "-inkey", pem, "-in", text)
                signature = subprocess.run(command, check=True, capture_output=True).stdout
                self.assertEqual(signature.hex(), vector["signatures"][key["name"]])

    def test_transactionsMatchVectors(self) -> None:
        """Transactions of version 2 with every option."""
        for vector in VECTORS3["transactions"]:
            made = transactionOf(Sent.read(vector))
            self.assertEqual(made.head.hex(), vector["head"], vector["name"])
            self.assertEqual(made.seal.hex(), vector["seal"], vector["name"])
            self.assertEqual(made.hash.hex(), vector["hash"], vector["name"])
            self.assertEqual(Transaction.decode(made.head + made.seal + made.content), made)

    def test_malformedTransactionsAreRefused(self) -> None:
        """
        Bytes that are nearly a transaction of version 2 are refused, whether or not it may be
        erased.
        """
        later = ["version 3"]
        self.malformed("malformedTransactions", Transaction.decode, "entry", later)
        self.malformed(
            "malformedTransactions", lambda entry: Transaction.decode(entry, True), "entry", later
        )

    def test_erasedEntriesMatchVectors(self) -> None:
        """Publishes without their content are read only where they may be erased."""
        for vector in VECTORS3["erasedEntries"]:
            entry = bytes.fromhex(vector["entry"])
            made = Transaction.decode(entry, True)
            self.assertTrue(made.isErased, vector["was"])
            self.assertEqual((made.head, made.seal, made.content), (entry, b"", b""))
            self.assertEqual(made.hash.hex(), vector["hash"])
            self.assertRaises(Malformed, Transaction.decode, entry)

    def test_bodiesMatchVectors(self) -> None:
        """Bodies with contents that are there, and that are not."""
        named = {
            vector["name"]: transactionOf(Sent.read(vector)) for vector in VECTORS3["transactions"]
        }
        for vector in VECTORS3["bodies"]:
            block = [
                Transaction.decode(named[name].head, True)
                if name in vector["erased"]
                else named[name]
                for name in vector["transactions"]
            ]
            body, offsets = encodeBody(block)
            self.assertEqual((body.hex(), list(offsets)), (vector["body"], vector["offsets"]))
            self.assertEqual(decodeBody(body, True), block)
            self.assertEqual(transactionHashes(body, offsets), [each.hash for each in block])

    def test_authorSetsMatchVectors(self) -> None:
        """Sets of authors."""
        for vector in VECTORS3["authorSets"]:
            made = authorsOf(vector)
            self.assertEqual(encodeAuthors(made).hex(), vector["encoded"])
            self.assertEqual(decodeAuthors(encodeAuthors(made)), made)
        self.malformed("malformedAuthorSets", decodeAuthors)

    def test_authorChangesMatchVectors(self) -> None:
        """Changes of authors, and what their admins sign."""
        for vector in VECTORS3["authorChanges"]:
            encoded = bytes.fromhex(vector["encoded"])
            change = decodeAuthorChange(encoded)
            self.assertEqual(encodeAuthorChange(change), encoded)
            made = authorsStatement(GENESIS.chain, "signed", change.following)
            self.assertEqual(made.decode("ascii"), vector["statement"])
        self.malformed("malformedAuthorChanges", decodeAuthorChange)

    def test_erasuresMatchVectors(self) -> None:
        """The contents of erasures."""
        for vector in VECTORS3["erasures"]:
            made = Erasure(
                account=vector["account"],
                reason=vector["reason"],
                ranges=tuple((first, last) for first, last in vector["ranges"]),
            )
            self.assertEqual(made.encode().hex(), vector["encoded"])
            self.assertEqual(Erasure.decode(made.encode()), made)
        self.malformed("malformedErasures", Erasure.decode)

    def test_receiptsMatchVectors(self) -> None:
        """Receipts of every execution."""
        vector = VECTORS3["receipts"]
        receipts = receiptsOf(vector["receipts"])
        self.assertEqual(encodeReceipts(receipts).hex(), vector["encoded"])
        self.assertEqual(decodeReceipts(bytes.fromhex(vector["encoded"])), receipts)

    def test_headerMatchesVectors(self) -> None:
        """A header of version 3."""
        vector = VECTORS3["header"]
        encoded = bytes.fromhex(vector["encoded"])
        header = Header.decode(encoded)
        self.assertEqual((header.version, header.encoded), (3, encoded))
        self.assertEqual(header.hash.hex(), vector["hash"])
        self.assertNotEqual(header, headerOf(vector))

    @few
    @given(mutated(st.sampled_from(ENTRIES)), st.booleans())
    def test_readersAgreeOnMutatedEntries(self, entry: bytes, isStored: bool) -> None:
        """The package and the reference take the same bytes for transactions."""
        self.agree(entry, isStored)

    @settings(few, max_examples=examples(1000))
    @given(st.data())
    def test_readersAgreeOnCommittedEntries(self, data: st.DataObject) -> None:
        """The same where the commitment fits the changed bytes."""
        head, rest = data.draw(st.sampled_from(PUBLISHES))
        if data.draw(st.booleans()):
            rest = data.draw(mutated(st.just(rest)))
        else:
            head = head[:70] + data.draw(mutated(st.just(head[70:])))
        commitment = reference.digest(b"svcbroker/content", rest)
        self.agree(head[:38] + commitment + head[70:] + rest, False)

    def agree(self, entry: bytes, isStored: bool) -> None:
        """Package and reference refuse an entry, or read the same."""
        entries = agreedEntries(self, entry, isStored)
        if entries is not None:
            made, expected = entries
            self.assertEqual(made.isErased, expected.commitment is not None)
            self.assertEqual(dict(made.extensions), dict(expected.extensions))


class ChainTests(SynchronousTestCase):
    """
    The small chain that goes from format 2 to format 3.
    """

    def test_blocksMatchVectors(self) -> None:
        """
        Each block follows the one before, from its body when it was decided, from the one that is
        stored, and from the one that is left after all erasures.
        """
        for name in ("body", "storedBody", "lastBody"):
            state, parent = GENESIS.state(), GENESIS.header()
            for block in VECTORS3["blocks"]:
                header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
                certificate = Certificate.decode(bytes.fromhex(block["certificate"]))
                nodes = state.validators
                checkCertificate(certificate, header, len(nodes.keys), nodes.verify)
                receipts = receiptsOf(block["receipts"])
                transactions = decodeBody(bytes.fromhex(block[name]), name != "body")
                known = None if name == "body" else receipts
                candidate = checkBlock(state, parent, header, transactions, known)
                self.assertEqual(candidate.header.encoded, header.encoded)
                self.assertEqual(candidate.body.hex(), block[name])
                self.assertEqual(candidate.outcome.receipts, receipts)
                self.checkOutcome(candidate.outcome, block, isWhole=name == "body")
                state.apply(candidate.outcome, candidate.history)
                self.assertEqual(state.root.hex(), block["state"]["stateRoot"])
                for topic in block["state"]["topics"]:
                    found = state.topic(topic["name"])
                    assert found is not None
                    self.assertEqual(topicLeaf(found).hex(), topic["leaf"])
                    authors = topic["authors"]
                    self.assertEqual(found.authors, authors and authorsOf(authors))
                parent = header

    def checkOutcome(self, outcome: Any, block: Any, *, isWhole: bool) -> None:
        """Uses of keys and erased events are those of a block."""
        names = [topic["name"] for topic in block["state"]["topics"]]
        self.assertEqual(
            [
                (use.owner.hex(), use.key, use.number, names[use.topic], use.sequence, use.height)
                for use in outcome.uses
            ],
            [
                tuple(
                    use[name] for name in ("owner", "key", "number", "topic", "sequence", "height")
                )
                for use in block["uses"]
            ],
        )
        if isWhole:
            hashes = [use.digest.hex() for use in outcome.uses]
            self.assertEqual(hashes, [use["hash"] for use in block["uses"]])
        self.assertEqual(
            [(names[each.topic], each.first, each.last, each.position) for each in outcome.erased],
            [
                (each["topic"], each["first"], each["last"], each["transaction"])
                for each in block["erased"]
            ],
        )

    def test_nextBlocksFollowOrNot(self) -> None:
        """Of the blocks that might follow a block of the small chain, some may."""
        for vector in VECTORS3["nextBlocks"]:
            state, parent = GENESIS.state(), GENESIS.header()
            for block in VECTORS3["blocks"][: vector["after"]]:
                parent = Header.decode(bytes.fromhex(block["header"]["encoded"]))
                transactions = decodeBody(bytes.fromhex(block["body"]))
                outcome = execute(state, transactions, parent.height, parent.timestamp)
                state.apply(outcome, state.history.after(parent.hash))
            refused = False
            try:
                header = Header.decode(bytes.fromhex(vector["header"]))
                body = decodeBody(bytes.fromhex(vector["body"]))
                checkBlock(state, parent, header, body)
            except (InvalidBlock, Malformed):
                refused = True
            self.assertEqual(refused, bool(vector["refused"]), vector["refused"])
