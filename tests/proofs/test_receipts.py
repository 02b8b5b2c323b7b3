"""
Tests for L{svcbroker.proofs._receipts}: what is believed of receipts.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import (
    SILENCE,
    AcceptedReceipt,
    Checkpoint,
    ProofInvalid,
    ProvedReceipt,
    ReceiptReader,
    RecipientReceipt,
    encodeReceipt,
    isReceipt,
    readReceipt,
    sideTexts,
)
from svcbroker.proofs.bundle import decodeArchive
from svcbroker.proofs.tlog import Policy
from tools.vectors.signedchain import publicKeyOf

from .bundle.support import receiptBundle

CHAIN = bytes(range(32))
HASH = bytes(32)
OWN = "receipts/ann"
ANN, EVE = "aa" * 32, "ee" * 32


def makeReceipt(number: int = 5, height: int = 7, **more: Any) -> RecipientReceipt:
    """A receipt for the topic C{t}."""
    topic = more.pop("topic", "t")
    given: dict[str, Any] = {
        "topic": topic,
        "last": EventId(topicPrefix("t"), number, height),
        "checkpoint": Checkpoint(height, HASH),
        "means": "processed",
        **more,
    }
    return RecipientReceipt(**given)


class ReadingTests(SynchronousTestCase):
    """
    Reading the content of one receipt.
    """

    def refused(self, content: bytes, words: str) -> None:
        """It is refused, in one line."""
        error = self.assertRaises(ProofInvalid, readReceipt, content, CHAIN)
        self.assertIn(words, str(error))
        self.assertNotIn("\n", str(error))

    def test_writtenReceiptIsReadAgain(self) -> None:
        for each in (
            makeReceipt(),
            makeReceipt(topic="t/#", means="received", previous="0123abcd-1-2"),
        ):
            content = encodeReceipt(CHAIN, each)
            self.assertTrue(isReceipt(content))
            self.assertEqual(readReceipt(content, CHAIN), each)

    def test_contentIsPinned(self) -> None:
        """Programs in other languages write it."""
        content = encodeReceipt(CHAIN, makeReceipt(previous="0123abcd-1-2"))
        self.assertEqual(
            content.decode(),
            f'{{"format":"svcbroker/receipt/1","chain":"{CHAIN.hex()}","topic":"t","number":5,'
            f'"eventId":"e3b98a4d-5-7","checkpoint":"7:{"00" * 32}","means":"processed",'
            '"previous":"0123abcd-1-2"}',
        )

    def test_otherContentsAreNoReceipts(self) -> None:
        for content in (b"", b"x", b"{}", b"[" * 4000, b'{"format":1}', b"{" + b" " * 5000):
            self.assertFalse(isReceipt(content))
            self.refused(content, "not a receipt")
        self.assertFalse(isReceipt(None))

    def test_impossibleReceiptsAreRefused(self) -> None:
        good = json.loads(encodeReceipt(CHAIN, makeReceipt()))
        for change, words in (
            ({"chain": "00" * 32}, "another chain"),
            ({"number": 6}, "a number that is not that of its event"),
            ({"topic": "u"}, "an event of another topic"),
            ({"checkpoint": f"6:{HASH.hex()}"}, "not yet there at its checkpoint"),
            ({"checkpoint": "x"}, "a checkpoint is"),
            ({"eventId": "x"}, "not a receipt"),
            ({"previous": "x"}, "not a receipt"),
            ({"topic": "a/#/b"}, "not a receipt"),
            ({"means": "agreed"}, "not a receipt"),
            ({"number": "5"}, "not a receipt"),
            ({"more": 1}, "not a receipt"),
        ):
            self.refused(json.dumps({**good, **change}).encode(), words)
        for name in good:
            missing = {each: value for each, value in good.items() if each != name}
            self.refused(json.dumps(missing).encode(), "not a receipt")

    def test_doubledMemberIsRefused(self) -> None:
        """Two readers could believe different ones."""
        content = encodeReceipt(CHAIN, makeReceipt())
        self.refused(content.replace(b'"number":5', b'"number":9,"number":5'), "")

    def test_patternCoversWhatCameBefore(self) -> None:
        """Of another topic's events in the same block it says nothing."""
        every = makeReceipt(topic="#")
        self.assertTrue(every.covers("t", EventId(topicPrefix("t"), 5, 7)))
        self.assertFalse(every.covers("t", EventId(topicPrefix("t"), 6, 7)))
        self.assertTrue(every.covers("u", EventId(topicPrefix("u"), 9, 6)))
        self.assertFalse(every.covers("u", EventId(topicPrefix("u"), 9, 7)))
        self.assertFalse(makeReceipt().covers("u", EventId(topicPrefix("u"), 1, 1)))


class OrderTests(SynchronousTestCase):
    """
    Reading one receipt after the other.
    """

    def setUp(self) -> None:
        self.reader = ReceiptReader(CHAIN)
        self.height = 10

    def take(
        self, receipt: RecipientReceipt, author: str | None = ANN, height: int = 0
    ) -> AcceptedReceipt:
        """Take a receipt that is on the log."""
        self.height += 1
        eventId = f"0123abcd-{self.height}-{height or self.height}"
        return self.reader.take(OWN, eventId, encodeReceipt(CHAIN, receipt), author, 1)

    def test_laterReceiptTakesThePlace(self) -> None:
        self.take(makeReceipt(5))
        second = self.take(makeReceipt(6))
        self.take(makeReceipt(1), EVE)
        self.assertEqual(self.reader.newest[OWN, ANN, "t"], second)
        self.assertEqual(len(self.reader.newest), 2)

    def test_receiptThatSaysLessIsNotBelieved(self) -> None:
        first = self.take(makeReceipt(5, 7))
        for less in (makeReceipt(4, 7), makeReceipt(4, 6)):
            error = self.assertRaises(ProofInvalid, self.take, less)
            self.assertIn("says less", str(error))
        self.assertEqual(self.reader.newest[OWN, ANN, "t"], first)

    def test_unsignedReceiptIsNotBelieved(self) -> None:
        self.assertRaises(ProofInvalid, self.take, makeReceipt(), None)

    def test_checkpointIsOlderThanItsReceipt(self) -> None:
        """It names what was there; so does the receipt before it."""
        self.assertRaises(ProofInvalid, self.take, makeReceipt(5, 7), ANN, 7)
        later = makeReceipt(previous="0123abcd-1-99")
        self.assertRaises(ProofInvalid, self.take, later)
        self.assertEqual(self.reader.newest, {})


class SideTests(SynchronousTestCase):
    """
    Both sides of what a bundle proves.
    """

    def setUp(self) -> None:
        self.bundle = receiptBundle()
        found = self.bundle.verify(Policy.parse(self.bundle.policy))
        self.events = [each.event for each in found]

    def test_bothSidesAreTold(self) -> None:
        """A receipt counts for events up to its number; one of another chain is not believed."""
        ada, bob = publicKeyOf("ada").hex(), publicKeyOf("bob").hex()
        refused, first, second, silence = sideTexts(self.events)
        self.assertIn("is no receipt that can be believed: the receipt is for another", refused)
        self.assertIn(f"-1-2: said by key {ada} at 2023-11-14 ", first)
        self.assertIn(f'number 1 of "contracts/x"; key {bob} signed at 2023-11-14 ', first)
        self.assertIn('that it had processed all events of "contracts/+" up to number 1', first)
        self.assertIn("said by nobody who has signed it, in block 2, number 2", second)
        self.assertTrue(first.endswith("; receipts/cat has signed nothing that is here"))
        self.assertTrue(
            second.endswith(
                "; receipts/bob has signed nothing that is here; receipts/cat has signed nothing "
                "that is here"
            )
        )
        self.assertEqual(silence, SILENCE)

    def test_eventsWithoutReceiptsHaveNoSides(self) -> None:
        told = [each for each in self.events if each.topic == "contracts/x"]
        self.assertEqual([*sideTexts(told)], [])
        bob = [each for each in self.events if each.topic == "receipts/bob"]
        self.assertTrue(
            sideTexts([*told, *bob])[1].endswith("; nobody has signed a receipt for it here")
        )

    def test_receiptNamesAnEarlierBlock(self) -> None:
        """One that names a block that came later was written afterwards."""
        [event] = [each for each in self.events if each.topic == "receipts/bob"]
        found = ProvedReceipt.of(event)
        assert found is not None and found.receipt is not None
        late = evolve(
            found.receipt, checkpoint=Checkpoint(event.block.height, found.receipt.checkpoint.hash)
        )
        again = ProvedReceipt.of(evolve(event, content=encodeReceipt(event.chain, late)))
        assert again is not None
        self.assertIsNone(again.receipt)
        unsigned = ProvedReceipt.of(evolve(event, author=None))
        assert unsigned is not None
        self.assertEqual(unsigned.reason, "nobody has signed it")

    def test_readmeHasBothSides(self) -> None:
        files = decodeArchive(self.bundle.encode())
        text = " ".join(files["README.txt"].decode().split())
        self.assertIn("Who said what, and who has received it", text)
        self.assertIn(SILENCE, text)
        self.assertIn("that it had processed all events of", text)
