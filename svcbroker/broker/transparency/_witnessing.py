"""
Witnessing: the checkpoints of a log are cosigned by witnesses, from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ...errors import BrokerError
from ...net.deferreds import asDeferred
from ...tlog import Policy
from .._metadata import MetadataStore
from ._checkpoint import LogCheckpoint
from ._cosigned import CosignedCheckpoints
from ._log import TransparencyLog
from ._witness import IWitnessClient, LogWitness

POLL: Final = 1.0
"""Every how many seconds is looked whether the log has grown."""
RETRY: Final = 30.0
"""After how many seconds a log that cannot be read or signed is tried again."""


@frozen(kw_only=True)
class WitnessingRule:
    """
    How often witnesses are asked.

    @ivar interval: after how many seconds a log that has grown is cosigned again.
    @ivar blocks: after how many blocks it is cosigned even before that.
    """

    interval: float = 60.0
    blocks: int = 1000


class Witnessing:
    """
    Has witnesses cosign the log of a group. Each witness is asked by a job of its own, so one that
    hangs or is away holds up no other; and nothing else in the broker waits for any.

    @ivar log: the log.
    @ivar witnesses: the witnesses.
    @ivar cosigned: the checkpoints that a quorum has cosigned.
    @ivar newest: the checkpoint that witnesses are asked to cosign; C{None} before the first one.
    """

    _log = Logger()

    def __init__(
        self,
        log: TransparencyLog,
        cosigned: CosignedCheckpoints,
        client: IWitnessClient,
        store: MetadataStore,
        reactor: IReactorTime,
        now: Callable[[], float],
        random: Callable[[], float],
        rule: WitnessingRule,
    ) -> None:
        """
        @param client: makes the requests.
        @param now: the wall clock: seconds since the epoch.
        @param random: gives a number of [0, 1).
        """
        self.log = log
        self.cosigned = cosigned
        self.newest: LogCheckpoint | None = None
        self.witnesses: Sequence[LogWitness] = [
            LogWitness(party, log, client, store, reactor.seconds)
            for party in cosigned.policy.witnesses.values()
        ]
        self._reactor = reactor
        self._now = now
        self._random = random
        self._rule = rule
        self._waiting: list[Deferred[None]] = []
        self._running: list[Deferred[None]] = []

    def start(self) -> Deferred[None]:
        """Begin. The ledger has started. The start of the broker does not wait for it."""
        self._running = [self._propose(), *map(self._ask, self.witnesses)]
        return succeed(None)

    def stop(self) -> Deferred[None]:
        """End. Requests under way are given up."""
        for each in self._running:
            each.addErrback(lambda failure: failure.trap(CancelledError))
            each.cancel()
        return succeed(None)

    @asDeferred
    async def _propose(self) -> None:
        """Sign checkpoints for the witnesses when it is time."""
        proposedAt, hasFailed = float("-inf"), False
        while True:
            delay = POLL
            try:
                if await self._isDue(proposedAt):
                    checkpoint = await self.log.sign()
                    proposedAt = self._reactor.seconds()
                    self.newest = checkpoint
                    self.cosigned.propose(checkpoint)
                    waiting, self._waiting = self._waiting, []
                    for each in waiting:
                        each.callback(None)
                hasFailed = False
            except CancelledError:
                raise
            except BrokerError as error:
                if not hasFailed:
                    self._log.error(
                        "the log of group {group} cannot be signed, it is tried again: {reason}",
                        group=self.log.group,
                        reason=error.message,
                    )
                hasFailed, delay = True, RETRY
            except Exception:
                self._log.failure("the log of group {group}", group=self.log.group)
                delay = RETRY
            await deferLater(self._reactor, delay)

    async def _isDue(self, proposedAt: float) -> bool:
        """Whether the log has grown, and it is time to have that cosigned."""
        newest = self.newest
        if newest is None:
            await self._checkKept()
            newest = self.cosigned.newest
            return newest is None or await self.log.size() > newest.head.size
        grown = await self.log.size() - newest.head.size
        isLate = self._reactor.seconds() - proposedAt >= self._rule.interval
        return grown >= self._rule.blocks or (grown > 0 and isLate)

    async def _checkKept(self) -> None:
        """Check that what was cosigned before is still of the chain."""
        size, newest = await self.log.size(), self.cosigned.newest
        while newest is not None:
            head = newest.head
            if head.size <= size and await self.log.head(head.origin, head.size) == head:
                return
            self._log.error(
                "THE CHAIN of group {group} IS NOT the one that witnesses have cosigned at size "
                "{cosigned}: it was restored from an older backup, or changed. It has size {size} "
                "now. The cosigned checkpoint is kept as evidence, and not served",
                group=self.log.group,
                cosigned=head.size,
                size=size,
            )
            self.cosigned.setAside(head.size)
            newest = self.cosigned.newest

    @asDeferred
    async def _ask(self, witness: LogWitness) -> None:
        """Ask one witness for what it has not cosigned yet."""
        asked: LogCheckpoint | None = None
        while True:
            checkpoint = self.newest
            if checkpoint is None or checkpoint is asked:
                changed: Deferred[None] = Deferred()
                self._waiting.append(changed)
                await changed
                continue
            try:
                cosignature = await witness.ask(checkpoint)
            except CancelledError:
                raise
            except BrokerError:
                # That is logged by what signs the log.
                await deferLater(self._reactor, RETRY)
                continue
            except Exception:
                self._log.failure("witness {name}", name=witness.party.name)
                await deferLater(self._reactor, RETRY)
                continue
            if cosignature is None:
                await deferLater(self._reactor, witness.delay(self._random))
            else:
                asked = checkpoint
                self.cosigned.add(checkpoint.head.size, cosignature, self._now())


def checkWitnesses(policy: Policy) -> None:
    """
    Check that the witnesses of a policy can be asked.

    @raise ValueError: they cannot.
    """
    if not policy.witnesses:
        raise ValueError("names no witness")
    for each in policy.witnesses.values():
        if not each.url.startswith(("http://", "https://")) or not each.url.isascii():
            raise ValueError(f"has no URL for the witness {each.name}")
