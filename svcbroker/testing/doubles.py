"""
Ledgers that misbehave when a test asks for it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.components import proxyForInterface
from zope.interface import implementer

from ..errors import BrokerError
from ..interfaces import IHoldLedger, ILedger, LedgerContext, Submission
from ..ledgers.memory import MemoryLedger
from ..model import (
    Event,
    EventId,
    Health,
    HeldRange,
    HoldRecord,
    Page,
    Receipt,
    ReleasedPage,
    Request,
    Topic,
)


@implementer(IHoldLedger)
class ScriptedLedger(proxyForInterface(ILedger, "_ledger")):  # type: ignore[misc]
    """
    A ledger over another one, whose answers a test holds back or replaces.

    @ivar error: what every read and every request fails with, while it is set.
    @ivar receipt: what every request answers instead of being carried out, while it is set.
    @ivar isHolding: whether requests wait for L{release}.
    @ivar submitted: what was submitted, in order.
    """

    error: Exception | None = None
    receipt: Receipt | None = None
    isHolding = False

    def __init__(self, ledger: ILedger) -> None:
        super().__init__(ledger)
        self.submitted: list[Request] = []
        self._held: deque[tuple[Request, Submission, int]] = deque()

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        """See L{ILedger.submitMany}."""
        if isinstance(self.error, BrokerError):
            return Submission.refused(len(requests), self.error)
        if self.error is not None:
            raise self.error
        self.submitted.extend(requests)
        submission = Submission(len(requests))
        self._held.extend((request, submission, index) for index, request in enumerate(requests))
        if not self.isHolding:
            self.release()
        return submission

    @property
    def held(self) -> Sequence[Request]:
        """The submissions that are held back now, in order."""
        return [request for request, _, _ in self._held]

    def release(self) -> None:
        """Submit the requests that are held back, in order."""
        for _ in range(len(self._held)):
            request, submission, index = self._held.popleft()
            if self.receipt is not None:
                submission.settle(index, (self.receipt,))
            else:
                self._ledger.submitMany((request,)).done.addCallback(
                    lambda done, to, at: to.settle(at, done.outcomes), submission, index
                )

    @property
    def latestRelease(self) -> int:
        """See L{IHoldLedger}."""
        return IHoldLedger(self._ledger).latestRelease

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        """See L{IHoldLedger.heldRanges}."""
        return IHoldLedger(self._ledger).heldRanges(topic, ranges)

    def listHolds(
        self, offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        """See L{IHoldLedger.listHolds}."""
        return IHoldLedger(self._ledger).listHolds(offset, limit, case=case)

    def listReleased(
        self, limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        """See L{IHoldLedger.listReleased}."""
        return IHoldLedger(self._ledger).listReleased(limit, before=before, case=case)

    def topicState(self, name: str) -> Topic | None:
        """See L{ILedger.topicState}."""
        if self.error is not None:
            raise self.error
        state: Topic | None = self._ledger.topicState(name)
        return state

    def getEvent(self, eventId: EventId) -> Deferred[Event]:
        """See L{ILedger.getEvent}."""
        return fail(self.error) if self.error is not None else self._ledger.getEvent(eventId)

    def getHealth(self) -> Deferred[Health]:
        """See L{ILedger.getHealth}."""
        return fail(self.error) if self.error is not None else self._ledger.getHealth()


def memoryLedger(clock: Clock, group: str = "1", maxContent: int = 1024 * 1024) -> MemoryLedger:
    """
    A started memory ledger that lives on a test's clock. Its keys are the same each time.
    """
    numbers = itertools.count(1)

    def entropy(size: int) -> bytes:
        return next(numbers).to_bytes(size, "big")

    ledger = MemoryLedger(
        LedgerContext(
            group=group,
            directory=Path("never-made"),
            reactor=clock,
            now=clock.seconds,
            entropy=entropy,
            runInThread=maybeDeferred,
            maxContent=maxContent,
        )
    )
    ledger.start()
    return ledger
