"""
Reporting blocks to the broker, in order and without gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from ...chain import Header, Transaction, TransactionReceipt, decodeBody, decodeReceipts
from .._views import earlierOf
from ._application import ApplicationFailed, ChainApplication

SLICE: Final = 0.02
"""Seconds of reporting after which the reactor gets its turn."""

Report: TypeAlias = Callable[
    [Header, Sequence[Transaction], Sequence[TransactionReceipt], Mapping[int, int]], object
]
"""
C{report(header, transactions, receipts, earlier)} is told of a block; C{earlier} is that of
L{Outcome<svcbroker.chain.Outcome>}.
"""


class BlockReporter:
    """
    Reports each block of an application once. A block is reported when it is committed; those that
    are in the store otherwise are read from there: the one at which the application failed, or all
    that came with a snapshot.
    """

    def __init__(
        self,
        application: ChainApplication,
        clock: IReactorTime,
        report: Report,
        failed: Callable[[Failure], object],
    ) -> None:
        """
        @param failed: called where blocks cannot be read in a later turn of the reactor.
        """
        self._application = application
        self._clock = clock
        self._report = report
        self._failed = failed
        self._reported: int | None = None
        self._next: IDelayedCall | None = None

    @property
    def isBehind(self) -> bool:
        """Whether there are blocks in the store that are still to be reported."""
        return self._next is not None

    def begin(self) -> None:
        """
        The application has opened a chain. The blocks that it has at the first time are history.

        @raise svcbroker.storage.StorageError, Malformed, ApplicationFailed: a block cannot be read.
        """
        if self._reported is None:
            self._reported = self._application.height
        self.stop()
        self._catchUp(self._reported)

    def committed(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        receipts: Sequence[TransactionReceipt],
        earlier: Mapping[int, int],
    ) -> None:
        """A block was committed. For the parameters see L{Report}."""
        if self._reported == header.height - 1:
            self._reported = header.height
            self._report(header, transactions, receipts, earlier)

    def stop(self) -> None:
        """Report nothing more of what is in the store."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _catchUp(self, reported: int) -> None:
        started, store = self._clock.seconds(), self._application.store
        while store is not None and reported < self._application.height:
            row = store.block(reported + 1)
            machine = self._application.machine
            if row is None or machine is None:
                raise ApplicationFailed(f"{store.path} has no block {reported + 1}: audit it")
            transactions = decodeBody(row.body, mayBeErased=True)
            receipts = decodeReceipts(row.receipts)
            earlier = earlierOf(machine.state, transactions, receipts)
            self._reported = reported = reported + 1
            self._report(Header.decode(row.header), transactions, receipts, earlier)
            if self._clock.seconds() - started > SLICE:
                self._next = self._clock.callLater(0, self._goOn, reported)
                return

    def _goOn(self, reported: int) -> None:
        self._next = None
        try:
            self._catchUp(reported)
        except Exception:
            self._failed(Failure())
