"""
The reference of format 3, which was made from the specification alone, against the vectors.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from . import reference, reference_reading
from .reference import VECTORS, Sent, digest, isSigned
from .reference_reading import Authors, asStored, readAuthorChange, readBody, readEntry
from .reference_state import State
from .support import GENESIS
from .test_reference import raw

VECTORS3 = VECTORS["format3"]


def authorsOf(vector: Any) -> Authors:
    """The set that a vector speaks of."""
    return Authors(vector["generation"], raw(vector["authors"]), raw(vector["admins"]))


def blockOf(vector: Any) -> list[Sent]:
    """The transactions of a block."""
    return [Sent.read(transaction) for transaction in vector["transactions"]]


class EncodingTests(SynchronousTestCase):
    """
    Transactions of version 2 and what they carry.
    """

    def refused(self, name: str, read: Any, field: str = "encoded") -> None:
        """Every vector of a member is refused by a reader, but for what later formats have."""
        for vector in VECTORS3[name]:
            if vector["why"] == "version 3":
                continue
            with self.assertRaises(ValueError, msg=vector["why"]):
                read(bytes.fromhex(vector[field]))

    def test_addressesMatchReference(self) -> None:
        """Addresses of keys and of the owners of idempotency keys."""
        for vector in VECTORS3["addresses"]:
            name = bytes.fromhex(vector["key"]) if "key" in vector else vector["name"]
            made = reference.address(vector["of"], bytes.fromhex(vector["chain"]), name)
            self.assertEqual(made.hex(), vector["address"])

    def test_statementsMatchReference(self) -> None:
        """Statements, and the authors' signatures of them."""
        keys = {key["name"]: bytes.fromhex(key["publicKey"]) for key in VECTORS3["authorKeys"]}
        for vector in VECTORS3["statements"]:
            made = reference_reading.statement(
                bytes.fromhex(vector["chain"]),
                vector["topic"],
                bytes.fromhex(vector["content"]),
                vector["signedAt"],
                vector["idempotencyKey"],
                vector["extensions"],
            )
            self.assertEqual(made.decode(), vector["statement"])
            for name, signature in vector["signatures"].items():
                self.assertTrue(isSigned(keys[name], made, bytes.fromhex(signature)))
        first = VECTORS3["statements"][0]["statement"].encode()
        for vector in VECTORS3["badSignatures"]:
            key, signature = raw([vector["publicKey"], vector["signature"]])
            self.assertFalse(isSigned(key, first, signature), vector["why"])

    def test_transactionsMatchReference(self) -> None:
        """Heads, seals, hashes and entries, which are read again."""
        for vector in VECTORS3["transactions"]:
            sent = Sent.read(vector)
            self.assertEqual(sent.head.hex(), vector["head"], vector["name"])
            self.assertEqual(sent.seal.hex(), vector["seal"], vector["name"])
            self.assertEqual(sent.hash.hex(), vector["hash"], vector["name"])
            self.assertEqual(readEntry(sent.entry), sent)

    def test_oldTransactionsAreRead(self) -> None:
        """Entries of version 1 are read, and those that are malformed are refused."""
        for vector in VECTORS["transactions"]:
            sent = Sent.read(vector)
            self.assertEqual(readEntry(sent.entry), sent)
        for vector in VECTORS["malformedTransactions"]:
            with self.assertRaises(ValueError, msg=vector["why"]):
                readEntry(bytes.fromhex(vector["entry"]))

    def test_malformedTransactionsAreRefused(self) -> None:
        """Bytes that are nearly a transaction of version 2 are refused."""
        self.refused("malformedTransactions", readEntry, "entry")

    def test_erasedEntriesMatchReference(self) -> None:
        """Publishes without their content keep their hash."""
        for vector in VECTORS3["erasedEntries"]:
            entry = bytes.fromhex(vector["entry"])
            sent = readEntry(entry, isStored=True)
            self.assertRaises(ValueError, readEntry, entry)
            self.assertIsNotNone(sent.commitment, vector["was"])
            self.assertEqual(sent.hash.hex(), vector["hash"])
            self.assertEqual((sent.erased, sent.entry.hex()), (sent, vector["entry"]))

    def test_bodiesMatchReference(self) -> None:
        """Bodies with contents that are there, and that are not."""
        named = {vector["name"]: Sent.read(vector) for vector in VECTORS3["transactions"]}
        for vector in VECTORS3["bodies"]:
            block = [
                named[name].erased if name in vector["erased"] else named[name]
                for name in vector["transactions"]
            ]
            made = reference.body(block)
            self.assertEqual(made.hex(), vector["body"])
            self.assertEqual(readBody(made, isStored=True), block)
            self.assertEqual(vector["offsets"][-1], len(made))

    def test_authorSetsMatchReference(self) -> None:
        """Sets of authors."""
        for vector in VECTORS3["authorSets"]:
            made = authorsOf(vector)
            self.assertEqual(made.encoded.hex(), vector["encoded"])
            self.assertEqual(Authors.read(made.encoded), made)
        self.refused("malformedAuthorSets", Authors.read)

    def test_authorChangesMatchReference(self) -> None:
        """Changes of authors that hold for the first set, and those that are refused."""
        for vector in VECTORS3["authorChanges"]:
            state = State(GENESIS.chain)
            opening = bytes.fromhex(VECTORS3["authorSets"][0]["encoded"])
            content = bytes.fromhex(vector["encoded"])
            block = [
                Sent(kind, bytes(20), nonce, "signed", each, version=2)
                for nonce, (kind, each) in enumerate(
                    [("OPEN", opening), ("AUTHORS", content)], start=1
                )
            ]
            following, _, _ = readAuthorChange(content)
            made = reference_reading.authorsStatement(GENESIS.chain, "signed", following)
            self.assertEqual(made.decode(), vector["statement"])
            _, end = state.execute(block, 1, 1)
            expected = "REFUSED" if vector["refused"] else "DONE"
            self.assertEqual(end, (expected, 0), vector["refused"])
        self.refused("malformedAuthorChanges", readAuthorChange)

    def test_erasuresMatchReference(self) -> None:
        """The contents of erasures."""
        for vector in VECTORS3["erasures"]:
            ranges = [(first, last) for first, last in vector["ranges"]]
            made = reference_reading.erasure(vector["account"], vector["reason"], ranges)
            self.assertEqual(made.hex(), vector["encoded"])
            self.assertEqual(reference_reading.readErasure(made), ranges)
        self.refused("malformedErasures", reference_reading.readErasure)

    def test_receiptsMatchReference(self) -> None:
        """Receipts of every execution."""
        vector = VECTORS3["receipts"]
        self.assertEqual(reference.receipts(vector["receipts"]).hex(), vector["encoded"])
        root = reference.receiptRoot(raw(vector["transactionHashes"]), vector["receipts"])
        self.assertEqual(root.hex(), vector["root"])

    def test_headerMatchesReference(self) -> None:
        """A header of version 3 with all fields different."""
        encoded = reference.header(VECTORS3["header"])
        self.assertEqual(encoded.hex(), VECTORS3["header"]["encoded"])
        self.assertEqual(digest(encoded).hex(), VECTORS3["header"]["hash"])


class ChainTests(SynchronousTestCase):
    """
    The small chain that goes from format 2 to format 3.
    """

    def setUp(self) -> None:
        self.state = State(GENESIS.chain, reference.Nodes(0, GENESIS.validators))

    def check(self, vector: Any) -> None:
        """The state is the one after a block."""
        expected = vector["state"]
        self.assertEqual(self.state.root.hex(), expected["stateRoot"])
        topics = list(self.state.topics.values())
        self.assertEqual(
            [topic.leaf.hex() for topic in topics], [topic["leaf"] for topic in expected["topics"]]
        )
        self.assertEqual(
            [topic.authors for topic in topics],
            [each["authors"] and authorsOf(each["authors"]) for each in expected["topics"]],
        )

    def test_blocksMatchReference(self) -> None:
        """Bodies, receipts, headers, uses of keys, erased events, the state after each block."""
        parent = VECTORS["genesis"][0]["header"]
        hashes = [bytes.fromhex(parent["hash"])]
        isNew = False
        for vector in VECTORS3["blocks"]:
            header, block, nodes = vector["header"], blockOf(vector), self.state.nodes
            self.assertEqual(reference.body(block).hex(), vector["body"])
            before, erased = dict(self.state.uses), set(self.state.erased)
            ends = self.state.execute(block, header["height"], header["timestamp"])
            self.assertEqual([list(end) for end in ends], vector["receipts"])
            self.assertEqual(reference.receipts(ends).hex(), vector["encodedReceipts"])
            isNew = isNew or any(sent.version == 2 for sent in block)
            expected = {
                **header,
                "version": 3 if isNew else 2,
                "height": parent["height"] + 1,
                "parent": hashes[-1].hex(),
                "history": reference.history(hashes).hex(),
                "transactionRoot": reference.root([sent.hash for sent in block]).hex(),
                "receiptRoot": reference.receiptRoot([sent.hash for sent in block], ends).hex(),
                "stateRoot": self.state.root.hex(),
                "validators": nodes.hash.hex(),
                "nextValidators": self.state.nodes.hash.hex(),
                "transactionCount": len(block),
                "transactionTotal": parent["transactionTotal"] + len(block),
            }
            self.assertEqual(reference.header(expected).hex(), header["encoded"])
            self.check(vector)
            self.assertEqual(
                [
                    {
                        "owner": owner.hex(),
                        "key": key,
                        "number": use.number,
                        "topic": use.topic,
                        "sequence": use.sequence,
                        "height": use.height,
                        "hash": (use.digest or b"").hex(),
                    }
                    for (owner, key), use in self.state.uses.items()
                    if before.get((owner, key)) != use
                ],
                vector["uses"],
            )
            named = {
                (each["topic"], number)
                for each in vector["erased"]
                for number in range(each["first"], each["last"] + 1)
            }
            self.assertEqual(self.state.erased, erased | named)
            stored = reference.body(asStored(block, ends))
            self.assertEqual(stored.hex(), vector["storedBody"])
            parent = header
            hashes.append(digest(bytes.fromhex(header["encoded"])))

    def test_erasedBodiesGiveSameStates(self) -> None:
        """
        Executed again from bodies whose contents are gone, with the receipts of before, the chain
        has the same states.
        """
        missing = 0
        for name in ("storedBody", "lastBody"):
            self.setUp()
            for vector in VECTORS3["blocks"]:
                block, header = readBody(bytes.fromhex(vector[name]), True), vector["header"]
                missing += sum(sent.commitment is not None for sent in block)
                known = [(end, number) for end, number in vector["receipts"]]
                ends = self.state.execute(block, header["height"], header["timestamp"], known)
                self.assertEqual(ends, known)
                self.check(vector)
        self.assertGreater(missing, 50)

    def test_erasedEventsAreNotInLastBodies(self) -> None:
        """The last bodies have the contents of all events but the erased ones."""
        erased = set()
        for vector in VECTORS3["blocks"]:
            for each in vector["erased"]:
                numbers = range(each["first"], each["last"] + 1)
                erased |= {(each["topic"], number) for number in numbers}
        for vector in VECTORS3["blocks"]:
            block = readBody(bytes.fromhex(vector["lastBody"]), True)
            for sent, (end, number) in zip(block, vector["receipts"], strict=True):
                if sent.kind == "PUBLISH":
                    isGone = (sent.topic, number) in erased if end == "DONE" else sent.version == 2
                    self.assertEqual(sent.commitment is not None, isGone)

    def test_usesEndWithWindow(self) -> None:
        """A key is free again when its owner has used so many others."""
        self.state.inForce = 3
        opening = Sent("OPEN", bytes(20), 1, "t", version=2)
        block = [opening]
        for nonce, key in enumerate("abcaAdaa", start=2):
            block.append(
                Sent(
                    "PUBLISH",
                    bytes(20),
                    nonce,
                    "t",
                    b"%d" % (nonce // 7),
                    version=2,
                    salt=bytes(32),
                    owner=bytes(20),
                    key=key,
                )
            )
        ends = self.state.execute(block, 1, 1)
        self.assertEqual(
            [end for end, _ in ends[1:]],
            [
                "DONE",
                "DONE",
                "DONE",
                "PUBLISHED_BEFORE",
                "DONE",
                "DONE",
                "DONE",
                "PUBLISHED_BEFORE",
            ],
        )
