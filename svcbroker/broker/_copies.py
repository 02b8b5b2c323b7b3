"""
Reading chains for brokers that keep copies of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from ..access import Principal
from ..errors import LedgerUnavailable, ParameterInvalid
from ..interfaces import Action, IBlockObserver, IExportableLedger, ILedger
from ..model import Block, ChainPart
from ..net.deferreds import asDeferred
from ._groups import Groups

MAX_COPY_WAIT: Final = 60.0
"""The longest time that a copy may wait for the next block, in seconds."""

CERTIFICATE_WAIT: Final = 1.0
"""
Seconds after which it is looked again for the certificate of a block: an engine's comes later than
the block.
"""


class Copies:
    """
    The use case of copies: reading blocks with their certificates, for principals that may copy or
    operate the group, since blocks have all events of all topics.

    Blocks are read from the disk in threads of its own, so a copy that is far behind does not slow
    down the ledger.
    """

    def __init__(
        self, groups: Groups, clock: IReactorTime, runInThread: Callable[..., Deferred[Any]]
    ) -> None:
        """
        @param runInThread: runs blocking reads.
        """
        self._groups = groups
        self._clock = clock
        self._runInThread = runInThread
        self._waiting: set[Deferred[None]] = set()
        self._isStopped = False

    @asDeferred
    async def read(
        self, principal: Principal, groupId: str | None, first: int, wait: float
    ) -> ChainPart:
        """
        Read the next blocks of a group's chain, or wait for the next one.

        @param first: the height of the first one.
        @param wait: how long to wait where there is none yet, in seconds.
        @return: fires with the blocks; with none after the wait; without a stream where the chain
            ends more than one block before C{first}.
        @raise NotAuthorized: the principal may neither copy nor operate the group.
        @raise ParameterInvalid: the group's ledger cannot be copied.
        """
        group, ledger = self._groups.find(principal, groupId)
        if not principal.may(Action.OPERATE, group):
            principal.require(Action.COPY, group)
        exportable: IExportableLedger | None = IExportableLedger(ledger, None)
        if exportable is None:
            raise ParameterInvalid("groupId: the ledger of this group cannot be copied")
        deadline = self._clock.seconds() + min(wait, MAX_COPY_WAIT)
        while True:
            news = _News(ledger)
            try:
                part: ChainPart = await self._runInThread(exportable.exportBlocks, first)
                left = deadline - self._clock.seconds()
                if part.last >= first or left <= 0 or not part.stream:
                    return part
                if self._isStopped:
                    raise LedgerUnavailable("the broker is stopping")
                # Blocks that there are already wait for a certificate.
                isPending = part.tip >= first
                await self._wait(news.arrived, min(left, CERTIFICATE_WAIT) if isPending else left)
            finally:
                news.close()

    async def _wait(self, arrived: Deferred[None], seconds: float) -> None:
        call = self._clock.callLater(seconds, _fire, arrived)
        self._waiting.add(arrived)
        try:
            await arrived
        finally:
            self._waiting.discard(arrived)
            if call.active():
                call.cancel()

    def stop(self) -> None:
        """Let no copy wait any more."""
        self._isStopped = True
        for each in tuple(self._waiting):
            _fire(each)


@implementer(IBlockObserver)
class _News:
    """
    Tells of the next block of a ledger.

    @ivar arrived: fires with it.
    """

    def __init__(self, ledger: ILedger) -> None:
        self.arrived: Deferred[None] = Deferred()
        self._ledger = ledger
        ledger.addObserver(self)

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        _fire(self.arrived)

    def close(self) -> None:
        """Listen no more."""
        self._ledger.removeObserver(self)


def _fire(deferred: Deferred[None]) -> None:
    if not deferred.called:
        deferred.callback(None)
