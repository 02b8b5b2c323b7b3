"""
The vectors of format 4 in C{docs/vectors/chain.json} against the package and the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Certificate,
    Genesis,
    Header,
    Hold,
    InvalidBlock,
    Malformed,
    Release,
    Transaction,
    VersionUnknown,
    checkBlock,
    checkCertificate,
    decodeBody,
    statement,
    verifySignature,
)
from svcbroker.errors import BrokerError
from svcbroker.model import TopicRule, checkTopicName
from tests import examples

from . import reference, reference_parts, reference_reading
from .reference import VECTORS, Sent, digest
from .reference_reading import Authors, asStored, readBody, readEntry
from .reference_state import State
from .support import GENESIS, few, headerOf, mutated
from .test_vectors import isDecoded, receiptsOf
from .test_vectors3 import agreedEntries, transactionOf

VECTORS4 = VECTORS["format4"]
KEYS = {key["name"]: bytes.fromhex(key["publicKey"]) for key in VECTORS["format3"]["authorKeys"]}
ENTRIES = [
    Sent.read(vector).entry
    for vector in [*VECTORS4["transactions"], *VECTORS4["held"]["transactions"]]
]
PUBLISHES = [
    (sent.head, sent.seal + sent.content)
    for sent in map(Sent.read, VECTORS4["transactions"])
    if sent.kind == "PUBLISH"
]


class EncodingTests(SynchronousTestCase):
    """
    Transactions of version 3 that are executed.
    """

    def test_statementsMatchVectors(self) -> None:
        """Statements of version 2, and their signatures."""
        for vector in VECTORS4["statements"]:
            for make in (statement, reference_reading.statement):
                made = make(
                    bytes.fromhex(vector["chain"]),
                    vector["topic"],
                    bytes.fromhex(vector["content"]),
                    vector["signedAt"],
                    vector["idempotencyKey"],
                    vector["extensions"],
                    vector["version"],
                    vector["expectedSequence"],
                )
                self.assertEqual(made.decode("utf-8"), vector["statement"])
            for name, signature in vector["signatures"].items():
                self.assertTrue(verifySignature(KEYS[name], made, bytes.fromhex(signature)))

    def test_transactionsMatchVectors(self) -> None:
        """Transactions of version 3 that are executed, by both."""
        for vector in [*VECTORS4["transactions"], *VECTORS4["held"]["transactions"]]:
            sent = Sent.read(vector)
            made = transactionOf(sent)
            self.assertEqual((made.version, sent.version), (3, 3))
            for each in (made, sent):
                self.assertEqual(each.head.hex(), vector["head"], vector["name"])
                self.assertEqual(each.seal.hex(), vector["seal"], vector["name"])
                self.assertEqual(each.hash.hex(), vector["hash"], vector["name"])
            self.assertEqual(Transaction.decode(sent.entry), made)
            self.assertEqual(readEntry(sent.entry), sent)

    def test_malformedTransactionsAreRefused(self) -> None:
        """Bytes that are nearly a transaction of version 3 are refused by both."""
        held = VECTORS4["held"]["malformedTransactions"]
        for vector in [*VECTORS4["malformedTransactions"], *held]:
            entry = bytes.fromhex(vector["entry"])
            for isStored in (False, True):
                with self.assertRaises(Malformed, msg=vector["why"]):
                    Transaction.decode(entry, isStored)
                with self.assertRaises(ValueError, msg=vector["why"]):
                    readEntry(entry, isStored)

    def test_headerMatchesVectors(self) -> None:
        """A header of version 4."""
        vector = VECTORS4["header"]
        encoded = reference.header(vector)
        self.assertEqual(encoded.hex(), vector["encoded"])
        header = Header.decode(encoded)
        self.assertEqual((header.version, header.encoded), (4, encoded))
        self.assertEqual(header.hash.hex(), vector["hash"])
        self.assertNotEqual(header, headerOf(vector))

    @few
    @given(mutated(st.sampled_from(ENTRIES)), st.booleans())
    def test_readersAgreeOnMutatedEntries(self, entry: bytes, isStored: bool) -> None:
        """The package and the reference take the same bytes for transactions."""
        self.agree(entry, isStored)

    @settings(few, max_examples=examples(400))
    @given(st.data())
    def test_readersAgreeOnCommittedEntries(self, data: st.DataObject) -> None:
        """The same where the commitment fits the changed bytes."""
        head, rest = data.draw(st.sampled_from(PUBLISHES))
        head = head[:70] + data.draw(mutated(st.just(head[70:])))
        commitment = digest(b"svcbroker/content", rest)
        self.agree(head[:38] + commitment + head[70:] + rest, False)

    def agree(self, entry: bytes, isStored: bool) -> None:
        """Package and reference refuse an entry, or read the same."""
        entries = agreedEntries(self, entry, isStored)
        if entries is not None:
            made, expected = entries
            author = None if made.claims is None else made.claims.author
            self.assertEqual(1 if author is None else author.statement, expected.statement)


class ChainTests(SynchronousTestCase):
    """
    The small chain that goes from format 2 over format 3 to format 4.
    """

    def test_blocksMatchVectors(self) -> None:
        """
        Each block follows the one before by both, from its body when it was decided, from the one
        that is stored, and from the one that is left after all erasures.
        """
        versions = [block["header"]["version"] for block in VECTORS4["blocks"]]
        self.assertEqual(versions, [2, 3, 4, 4, 4, 4])
        self.followBlocks(VECTORS4["blocks"])

    def test_blocksWithHoldsMatchVectors(self) -> None:
        """The same with holds and releases."""
        blocks = VECTORS4["held"]["blocks"]
        self.assertEqual([block["header"]["version"] for block in blocks], [3, 4, 4, 4])
        self.followBlocks(blocks)

    def followBlocks(self, blocks: Sequence[Any]) -> None:
        """Execute a chain by both, from all forms of its bodies."""
        for name in ("body", "storedBody", "lastBody"):
            state, parent = GENESIS.state(), GENESIS.header()
            model = State(GENESIS.chain, reference.Nodes(0, GENESIS.validators))
            for block in blocks:
                header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
                certificate = Certificate.decode(bytes.fromhex(block["certificate"]))
                nodes = state.validators
                checkCertificate(certificate, header, len(nodes.keys), nodes.verify)
                receipts = receiptsOf(block["receipts"])
                known = None if name == "body" else receipts
                ends = [(end, number) for end, number in block["receipts"]]
                body = bytes.fromhex(block[name])
                candidate = checkBlock(
                    state, parent, header, decodeBody(body, name != "body"), known
                )
                self.assertEqual(candidate.body, body)
                self.assertEqual(candidate.outcome.receipts, receipts)
                state.apply(candidate.outcome, candidate.history)
                made = model.execute(
                    readBody(body, name != "body"),
                    header.height,
                    header.timestamp,
                    None if name == "body" else ends,
                    header.version,
                )
                self.assertEqual(made, ends)
                for root in (state.root, model.root):
                    self.assertEqual(root.hex(), block["state"]["stateRoot"])
                parent = header

    def test_bodiesMatchReference(self) -> None:
        """Bodies as they are decided and as they are stored."""
        for block in [*VECTORS4["blocks"], *VECTORS4["held"]["blocks"]]:
            sent = [Sent.read(vector) for vector in block["transactions"]]
            self.assertEqual(reference.body(sent).hex(), block["body"])
            stored = asStored(sent, [(end, number) for end, number in block["receipts"]])
            self.assertEqual(reference.body(stored).hex(), block["storedBody"])

    def test_blocksWithNamesInUtf8MatchVectors(self) -> None:
        """Blocks of a chain whose genesis has names of topics in UTF-8, by both."""
        made = VECTORS4["utf8"]
        vector = made["genesis"]
        keys = [bytes.fromhex(key) for key in vector["validators"]]
        encoded = reference.genesis(vector["group"], vector["created"], keys, isUtf8=True)
        self.assertEqual(encoded.hex(), vector["encoded"])
        genesis = Genesis.decode(encoded)
        self.assertEqual((genesis.encoded, genesis.topics), (encoded, TopicRule.UTF8))
        self.assertEqual(genesis.chain.hex(), vector["chain"])
        self.assertEqual(genesis.header(), headerOf(vector["header"]))
        state, parent = genesis.state(), genesis.header()
        model = State(genesis.chain, reference.Nodes(0, genesis.validators))
        for block in made["blocks"]:
            header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
            body, ends = bytes.fromhex(block["body"]), list(map(tuple, block["receipts"]))
            candidate = checkBlock(state, parent, header, decodeBody(body))
            self.assertEqual(candidate.outcome.receipts, receiptsOf(block["receipts"]))
            state.apply(candidate.outcome, candidate.history)
            found = model.execute(readBody(body), header.height, header.timestamp, None, 4)
            self.assertEqual(found, ends)
            for root in (state.root, model.root):
                self.assertEqual(root.hex(), block["state"]["stateRoot"])
            parent = header
        self.assertEqual(len(made["blocks"]), 2)

    def test_malformedGenesisIsRefused(self) -> None:
        """Bytes that are nearly a genesis with a rule of topics."""
        for vector in VECTORS4["utf8"]["malformedGenesis"]:
            with self.assertRaises(Malformed, msg=vector["why"]):
                Genesis.decode(bytes.fromhex(vector["encoded"]))

    def test_nextBlocksFollowOrNot(self) -> None:
        """Of the blocks that might follow a block of the small chain, some may."""
        for vector in VECTORS4["nextBlocks"]:
            state, parent = GENESIS.state(), GENESIS.header()
            for block in VECTORS4["blocks"][: vector["after"]]:
                header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
                transactions = decodeBody(bytes.fromhex(block["body"]))
                candidate = checkBlock(state, parent, header, transactions)
                state.apply(candidate.outcome, candidate.history)
                parent = header
            refused = False
            try:
                header = Header.decode(bytes.fromhex(vector["header"]))
                checkBlock(state, parent, header, decodeBody(bytes.fromhex(vector["body"])))
            except (InvalidBlock, Malformed):
                refused = True
            self.assertEqual(refused, bool(vector["refused"]), vector["refused"])


class PartTests(SynchronousTestCase):
    """
    The parts that are not executed yet.
    """

    def test_packageNamesWhatItDoesNotExecute(self) -> None:
        """Transactions of these parts are told from malformed ones."""
        for vector in VECTORS4["notExecuted"]:
            entry = bytes.fromhex(vector["entry"])
            if vector["part"] in ("hold", "release"):
                # They were not when the vectors were made.
                self.assertEqual(Transaction.decode(entry).kind.name, vector["part"].upper())
                continue
            with self.assertRaises(VersionUnknown, msg=vector["part"]):
                Transaction.decode(entry)
        for vector in VECTORS4["registered"]:
            for name in ("entry", "erased"):
                entry = bytes.fromhex(vector[name])
                self.assertRaises(VersionUnknown, Transaction.decode, entry, True)

    def test_namesMatchReference(self) -> None:
        """Names of topics, by both."""
        for vector in VECTORS4["names"]:
            isGood = reference_reading.isName(vector["name"])
            self.assertEqual(isGood, vector["isGood"], ascii(vector["name"]))
            isGood = True
            try:
                checkTopicName(vector["name"], TopicRule.UTF8)
            except BrokerError:
                isGood = False
            self.assertEqual(isGood, vector["isGood"], ascii(vector["name"]))

    def test_holdsMatchVectors(self) -> None:
        """The contents of holds and releases, by both."""
        for vector in VECTORS4["holds"]:
            encoded = bytes.fromhex(vector["encoded"])
            hold = Hold.decode(encoded)
            self.assertEqual(hold.encode(), encoded)
            self.assertEqual(
                [hold.case, hold.account, hold.reason, hold.patterns],
                [vector[name] for name in ("case", "account", "reason", "patterns")],
            )
            found, patterns, events = reference_reading.readHold(encoded)
            self.assertEqual(hold.events, events)
            self.assertEqual(found, (vector["case"], vector["account"], vector["reason"]))
            self.assertEqual(patterns, vector["patterns"])
            self.assertEqual([[where.hex(), number] for where, number in events], vector["events"])
        for vector in VECTORS4["releases"]:
            encoded = bytes.fromhex(vector["encoded"])
            found = reference_reading.readRelease(encoded)
            self.assertEqual(found, (vector["case"], vector["account"], vector["reason"]))
            release = Release.decode(encoded)
            self.assertEqual((release.case, release.account, release.reason), found)
            self.assertEqual(release.encode(), encoded)

    def test_termsMatchReference(self) -> None:
        """The terms of topics."""
        for vector in VECTORS4["terms"]:
            authors, recipients, profile = reference_parts.readTerms(
                bytes.fromhex(vector["encoded"])
            )
            given = vector["authors"]
            self.assertEqual(authors, given and Authors.read(bytes.fromhex(given)))
            given = vector["recipients"]
            named = given and [(name, bytes.fromhex(key)) for name, key in given]
            self.assertEqual((recipients, profile), (named, vector["profile"]))

    def test_recipientChangesMatchReference(self) -> None:
        """Changes of recipients, and what their admin signs."""
        for vector in VECTORS4["recipientChanges"]:
            generation, recipients, admin, signature = reference_parts.readRecipientChange(
                bytes.fromhex(vector["encoded"])
            )
            self.assertEqual(generation, vector["generation"])
            found = [[name, key.hex()] for name, key in recipients]
            self.assertEqual(found, vector["recipients"])
            said = reference_parts.recipientsStatement(
                GENESIS.chain, "signed", generation, recipients
            )
            self.assertEqual(said.decode(), vector["statement"])
            self.assertTrue(reference.isSigned(admin, said, signature))

    def test_registeredStatementsMatchReference(self) -> None:
        """Publishes with registered statements, whole and erased."""
        for vector in VECTORS4["registered"]:
            said, content = bytes.fromhex(vector["statement"]), bytes.fromhex(vector["content"])
            whole, erased = (bytes.fromhex(vector[name]) for name in ("entry", "erased"))
            self.assertEqual(reference_parts.readRegistered(whole), (said, content))
            self.assertEqual(reference_parts.readRegistered(erased, True), (said, None))
            self.assertRaises(ValueError, reference_parts.readRegistered, erased)

    def test_malformedPartsAreRefused(self) -> None:
        """Bytes that are nearly one of these are refused."""
        readers: dict[str, Callable[[bytes], Any]] = {
            "malformedHolds": reference_reading.readHold,
            "malformedReleases": reference_reading.readRelease,
            "malformedTerms": reference_parts.readTerms,
            "malformedRecipientChanges": reference_parts.readRecipientChange,
            "malformedRegistered": reference_parts.readRegistered,
        }
        for name, read in readers.items():
            for vector in VECTORS4[name]:
                encoded = bytes.fromhex(vector["encoded"])
                with self.assertRaises(ValueError, msg=f"{name}: {vector['why']}"):
                    read(encoded)
                if name in ("malformedHolds", "malformedReleases"):
                    decode = Hold.decode if name == "malformedHolds" else Release.decode
                    with self.assertRaises(Malformed, msg=f"{name}: {vector['why']}"):
                        decode(encoded)
                if name == "malformedRegistered":
                    self.assertFalse(isDecoded(Transaction.decode, encoded))
