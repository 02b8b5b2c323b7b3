"""
Evidence of a group's log: proofs of what it holds, its chain for brokers that keep copies of it,
and the certification of the broker's own keys by the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from ..access import Principal
from ..errors import (
    BrokerError,
    EventErased,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
    ParameterInvalid,
    TopicNotFound,
)
from ..interfaces import (
    Action,
    IBlockObserver,
    IExportableLedger,
    ILedger,
    IProvableLedger,
    topicOfEvent,
)
from ..model import Block, ChainPart, EventId, Execution, OpenTopic, PublishEvent, Receipt, Request
from ..net.deferreds import asDeferred
from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields, TopicProof
from ._groups import Groups, TimeoutQueue, checkTopic


@frozen(kw_only=True)
class CheckpointAnswer:
    """
    A block that somebody may want to keep.

    @ivar group: the id of the group whose log it is of.
    @ivar chain: the id of its chain, in hexadecimal digits.
    @ivar checkpoint: the block.
    @ivar timestamp: its time, in milliseconds since the epoch.
    """

    group: str
    chain: str
    checkpoint: Checkpoint
    timestamp: int


class Proving:
    """
    The operations that prove something. To prove an event needs the right to read it; everything
    else tells hashes alone, and is for all who may do something in the group.

    All of it fails with L{ParameterInvalid<svcbroker.errors.ParameterInvalid>} where the group's
    ledger is no L{IProvableLedger<svcbroker.interfaces.IProvableLedger>}.
    """

    def __init__(self, groups: Groups, timeouts: TimeoutQueue) -> None:
        self._groups = groups
        self._timeouts = timeouts

    @asDeferred
    async def prove(
        self,
        principal: Principal,
        groupId: str | None,
        eventId: EventId,
        checkpoint: int | None,
        trusted: int | None,
    ) -> EventProof:
        """
        Prove an event.

        @param checkpoint: the height of a later block that is to vouch for it too.
        @param trusted: the height of a checkpoint that the verifier trusts, instead; the proof then
            has no certificates.
        @raise EventNotFound: there is no such event.
        @raise HeightUnknown: its block, or the checkpoint, is above the chain's height.
        @raise ParameterInvalid: the checkpoint does not come after the event's block.
        """
        ledger = self._ledger(principal, groupId)
        if not principal.isEverything:
            topic = await self._timeouts.wait(topicOfEvent(ledger, eventId))
            group = self._groups.resolve(principal, groupId)
            if not principal.may(Action.SUBSCRIBE, group, topic):
                raise EventNotFound()
        return await self._timeouts.wait(ledger.prove(eventId, checkpoint, trusted=trusted))

    @asDeferred
    async def proveTopic(self, principal: Principal, groupId: str | None, topic: str) -> TopicProof:
        """
        Prove how many events a topic has, in the state after the latest block.

        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise TopicNotFound: the topic was never opened, or the principal may not know of it.
        """
        ledger = self._ledger(principal, groupId)
        checkTopic(ledger, topic)
        if not principal.sees(self._groups.resolve(principal, groupId), topic):
            raise TopicNotFound()
        return await self._timeouts.wait(ledger.proveTopic(topic))

    @asDeferred
    async def getCheckpoint(
        self, principal: Principal, groupId: str | None, height: int | None
    ) -> CheckpointAnswer:
        """
        A block to keep.

        @param height: its height, from 0; C{None} for the latest one.
        @raise HeightUnknown: there is no such block yet.
        """
        ledger = self._ledger(principal, groupId)
        genesis = await self._timeouts.wait(ledger.getGenesis())
        checkpoint = await self._timeouts.wait(ledger.getCheckpoint(height))
        timestamp = genesis.created
        if checkpoint.height:
            page = await self._timeouts.wait(ledger.listBlocks(0, 1, height=checkpoint.height))
            timestamp = page.items[0].timestamp
        return CheckpointAnswer(
            group=genesis.group, chain=genesis.chain, checkpoint=checkpoint, timestamp=timestamp
        )

    @asDeferred
    async def proveConsistency(
        self, principal: Principal, groupId: str | None, older: int, newer: int
    ) -> ConsistencyProof:
        """
        Prove that the log up to one block is the beginning of the log up to another.

        @raise HeightUnknown: the newer block is above the chain's height.
        @raise ParameterInvalid: the heights are not in that order.
        """
        return await self._timeouts.wait(
            self._ledger(principal, groupId).proveConsistency(older, newer)
        )

    @asDeferred
    async def getGenesis(self, principal: Principal, groupId: str | None) -> GenesisFields:
        """The beginning of the log's chain, from which every proof starts."""
        return await self._timeouts.wait(self._ledger(principal, groupId).getGenesis())

    def _ledger(self, principal: Principal, groupId: str | None) -> IProvableLedger:
        _, ledger = self._groups.find(principal, groupId)
        provable: IProvableLedger | None = IProvableLedger(ledger, None)
        if provable is None:
            raise ParameterInvalid("groupId: the ledger of this group proves nothing")
        return provable


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
        self._waiting: dict[Deferred[None], None] = {}
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
        self._waiting[arrived] = None
        try:
            await arrived
        finally:
            del self._waiting[arrived]
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


class KeyCertification:
    """
    The records of one kind of keys in the chain of a group, in a topic that clients cannot publish
    to. The proof of a record proves the key to everybody who trusts the chain.

    @ivar group: the id of the group.
    @ivar topic: the topic of the records.
    """

    def __init__(self, ledger: ILedger, topic: str) -> None:
        self._ledger = ledger
        self.group = ledger.group
        self.topic = topic

    async def isRecord(self, eventId: EventId, content: bytes) -> bool:
        """Whether the chain has this event, and it is this record."""
        try:
            event = await self._ledger.getEvent(eventId)
        except (EventNotFound, HeightUnknown, EventErased):
            return False
        return event.topic == self.topic and event.content == content

    async def findLast(self, content: bytes) -> EventId | None:
        """The last event of the topic, where it is this record."""
        topic = self._ledger.topicState(self.topic)
        if topic is None or not topic.sequence:
            return None
        block = await self._ledger.readBlock(topic.height)
        last = [event.eventId for event in block.events if event.topic == self.topic][-1]
        return last if await self.isRecord(last, content) else None

    async def publish(self, content: bytes) -> EventId:
        """
        Publish a record.

        @raise BrokerError: the ledger did not take it.
        """
        requests: list[Request] = [PublishEvent(topic=self.topic, content=content, extensions={})]
        topic = self._ledger.topicState(self.topic)
        if topic is None or not topic.isOpen:
            requests.insert(0, OpenTopic(topic=self.topic))
        submission = await self._ledger.submitMany(requests).done
        outcome = submission.outcomes[-1]
        if isinstance(outcome, BrokerError):
            raise outcome
        if (
            not isinstance(outcome, Receipt)
            or outcome.execution is not Execution.DONE
            or outcome.eventId is None
        ):
            raise LedgerUnavailable("the chain did not certify the key")
        return outcome.eventId
