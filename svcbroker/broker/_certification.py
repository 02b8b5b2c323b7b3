"""
The certification of the broker's public keys by a chain: a record in a topic that clients cannot
publish to. Its proof proves the key to everybody who trusts the chain.
"""

from __future__ import annotations

from ..errors import (
    BrokerError,
    EventErased,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
)
from ..interfaces import ILedger
from ..model import EventId, Execution, OpenTopic, PublishEvent, Receipt, Request


class KeyCertification:
    """
    The records of one kind of keys in the chain of a group.

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
