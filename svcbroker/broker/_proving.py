"""
Proofs of what a group's log holds.
"""

from __future__ import annotations

from attrs import frozen

from ..access import Principal
from ..errors import EventNotFound, ParameterInvalid, TopicNotFound
from ..interfaces import Action, IProvableLedger, topicOfEvent
from ..model import EventId, checkTopicName
from ..net.deferreds import asDeferred
from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields, TopicProof
from ._groups import Groups, TimeoutQueue


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
        checkTopicName(topic)
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
