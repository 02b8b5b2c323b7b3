"""
Parts of the embedded ledger with a fault, for L{mutations}: producers, stores and followers.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.python.failure import Failure

from svcbroker.broker.subscriptions._follower import Follower
from svcbroker.chain import Candidate, Certificate
from svcbroker.ledgers._views import blockOf, eventIdsOf
from svcbroker.ledgers.pbft._producer import BlockProducer
from svcbroker.model import Block
from svcbroker.storage import Append, StorageFailed, Store
from svcbroker.storage._store import Transactions
from svcbroker.storage._tip import Tip


class EarlyProducer(BlockProducer):
    """Tells observers of a block before it is stored."""

    def decided(self, candidate: Candidate, certificate: Certificate) -> None:
        header, transactions = candidate.header, candidate.transactions
        ids = eventIdsOf(header.height, transactions, candidate.outcome.receipts)
        self._observers.tell(lambda: blockOf(header, transactions, ids))
        super().decided(candidate, certificate)


class ForgetfulProducer(BlockProducer):
    """Has another block decided after a failure that is uncertain."""

    def _notStored(self, failure: Failure, candidate: Candidate, certificate: Certificate) -> None:
        if isinstance(failure.value, StorageFailed):
            failure.value.isUncertain = False
        super()._notStored(failure, candidate, certificate)


class RoundZeroProducer(BlockProducer):
    """Starts in the first round again after a failure."""

    def _recovered(self, round: int) -> None:
        super()._recovered(0)


class TraceLeft(Transactions):
    """Leaves what a failed commit has written in the write-ahead log, and calls it certain."""

    def _removeTrace(self) -> None:
        self._isUncertain = False


class EarlyTip(Store):
    """Writes the tip file before a block is stored."""

    def extend(self, appends: Sequence[Append]) -> None:
        if appends:
            last = appends[-1].block
            self._tipFile.write(Tip(last.height, last.hash, self._reserved))
        super().extend(appends)


class ForgetfulFollower(Follower):
    """Drops a block that comes while readers are there, each tenth time."""

    def blockCommitted(self, block: Block) -> None:
        if block.height % 10:
            super().blockCommitted(block)
        else:
            self.committed = self.height = block.height


class RepeatingFollower(Follower):
    """Hands the block before the last one over again, each tenth time."""

    def _take(self, block: Block) -> None:
        super()._take(block)
        if not block.height % 10 and self._readers:
            self.dispatcher.dispatch(block, 0)


class WrongCache(Follower):
    """Keeps a block under the height of the next one."""

    def _keep(self, block: Block, size: int) -> None:
        super()._keep(block, size)
        if block.height in self._cache:
            self._cache[block.height + 1] = self._cache.pop(block.height)
