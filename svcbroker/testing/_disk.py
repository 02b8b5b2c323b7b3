"""
The contract of a ledger, as tests: what it promises of its disk.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from ..errors import LedgerUnavailable, Overloaded
from ..interfaces import ILedger
from ..model import OpenTopic, PublishEvent, Receipt
from ._kit import LedgerKit, RecordingObserver

_CONTENT = b"x" * 1000
_A_WHILE = 50
"""How often time passes while a test looks that nothing happens."""


class DiskTests(LedgerKit):
    """
    Receipts, a disk that fails, crashes, and bounds. Only for fixtures whose disk a test can hold.
    """

    async def passAWhile(self) -> None:
        """Let time pass."""
        for _ in range(_A_WHILE):
            await self.fixture.pass_()

    async def test_receiptsComeAfterTheWrite(self) -> None:
        """While the disk has not written, there is no receipt, and no reader sees the events."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        observer = RecordingObserver()
        ledger.addObserver(observer)
        height = await self.height()
        disk.isHeld = True
        requests = [PublishEvent(topic="t", content=b"%d" % number) for number in range(3)]
        submission = ledger.submitMany(requests)
        await self.passAWhile()
        self.assertEqual(submission.outcomes, [None] * 3)
        self.assertEqual((self.topic("t").sequence, observer.blocks), (0, []))
        self.assertEqual(await self.height(), height)
        disk.release()
        await self.settle(submission.done)
        ids = [outcome.eventId for outcome in submission.outcomes if isinstance(outcome, Receipt)]
        self.assertEqual([eventId.sequence for eventId in ids if eventId], [1, 2, 3])
        self.assertEqual(self.topic("t").sequence, 3)

    async def test_failingDiskExecutesNothing(self) -> None:
        """While the disk fails there is no receipt, and reads go on. Afterwards the log has the
        events with a receipt, and no others, also after another start."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        [first] = await self.publish("t", b"first")
        disk.error = OSError(errno.ENOSPC, "no space left on device")
        requests = [PublishEvent(topic="t", content=b"%d" % number) for number in range(3)]
        submission = ledger.submitMany(requests)
        await self.passAWhile()
        for outcome in submission.outcomes:
            self.assertIsInstance(outcome, LedgerUnavailable | None)
        event = await self.settle(ledger.getEvent(first))
        self.assertEqual(event.content, b"first")
        disk.error = None
        last = await self.publishWhenPossible(ledger)
        await self.settle(submission.done)
        expected = [b"first"]
        for request, outcome in zip(requests, submission.outcomes, strict=True):
            if isinstance(outcome, Receipt):
                expected.append(request.content)
        expected.append(b"last")
        self.assertEqual([event.content for event in await self.allEvents()], expected)
        self.assertEqual(last.sequence, len(expected))
        self.flushLoggedErrors(OSError)
        await self.end()
        await self.startAgain()
        self.assertEqual([event.content for event in await self.allEvents()], expected)

    async def publishWhenPossible(self, ledger: ILedger) -> Any:
        """Publish as soon as the ledger goes on; the event's id."""
        request = PublishEvent(topic="t", content=b"last")
        for _ in range(100):
            [outcome] = (await self.settle(ledger.submitMany([request]).done)).outcomes
            if isinstance(outcome, Receipt):
                return outcome.eventId
            self.assertIsInstance(outcome, LedgerUnavailable)
            await self.passAWhile()
        return self.fail("the ledger does not go on after its disk failed")

    async def test_crashLosesNoReceipt(self) -> None:
        """What has a receipt is there after a crash. What has none may be there or not."""
        ledger, disk = await self.begin(), self.fixture.disk
        if disk is None:
            return
        await self.submit(OpenTopic(topic="t"))
        contents = [b"%d" % number for number in range(5)]
        ids = list(await self.publish("t", *contents))
        disk.isHeld = True
        ledger.submitMany([PublishEvent(topic="t", content=b"pending")])
        await self.passAWhile()
        # The files as they are now, while the process still has them open.
        copy = Path(self.mktemp())
        shutil.copytree(self.directory, copy)
        disk.crash()
        self.directory = copy
        ledger = await self.startAgain()
        for eventId, content in zip(ids, contents, strict=True):
            event = await self.settle(ledger.getEvent(eventId))
            self.assertEqual(event.content, content)
        found = [event.content for event in await self.allEvents()]
        self.assertIn(found[5:], ([], [b"pending"]))
        [following] = await self.publish("t", b"following")
        self.assertEqual(following.sequence, len(found) + 1)

    async def test_tooMuchIsOverloadedAtOnce(self) -> None:
        """Above the bound requests are refused at once; those before are executed, and then
        there is room again."""
        ledger, disk, bound = await self.begin(), self.fixture.disk, self.fixture.bound
        if disk is None or bound is None:
            return
        await self.submit(OpenTopic(topic="t"))
        disk.isHeld = True
        count = bound // len(_CONTENT) + 1
        submission = ledger.submitMany([PublishEvent(topic="t", content=_CONTENT)] * count)
        accepted = submission.outcomes.count(None)
        self.assertGreater(accepted, 0, "the ledger has accepted none of the first requests")
        text = f"{count} requests of {len(_CONTENT)} bytes wait, of which some are above the bound "
        self.assertLess(accepted, count, f"{text}of {bound} bytes; these are Overloaded at once")
        for number, outcome in enumerate(submission.outcomes):
            self.assertIsInstance(outcome, type(None) if number < accepted else Overloaded)
        [late] = ledger.submitMany([PublishEvent(topic="t", content=_CONTENT)]).outcomes
        self.assertIsInstance(late, Overloaded)
        disk.release()
        await self.settle(submission.done)
        for outcome in submission.outcomes[:accepted]:
            self.assertIsInstance(outcome, Receipt)
        self.assertEqual(self.topic("t").sequence, accepted)
        [following] = await self.publish("t", _CONTENT)
        self.assertEqual(following.sequence, accepted + 1)
