"""
The key of a log, and the event by which the chain certifies it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.logger import Logger

from ...errors import BrokerError, EventErased, EventNotFound, HeightUnknown, LedgerUnavailable
from ...interfaces import IProvableLedger
from ...model import EventId, Execution, OpenTopic, PublishEvent, Receipt, Request
from ...net.deferreds import asDeferred
from ...net.turns import Lock
from ...tlog import LogKey
from .._metadata import MetadataStore

LOG: Final = "log"
"""The kind of what is kept of a log. Its names are C{GROUP/WHAT}."""

LOG_TOPIC: Final = "$svc/log"
"""The topic of the records that certify keys. Clients cannot publish to it."""

_PURPOSE: Final = "log key"


class LogKeyRecord(Struct, frozen=True):
    """
    The content of an event that certifies a key, as JSON.

    @ivar origin: the origin of the log.
    @ivar key: the public key: a vkey of C{c2sp.org/signed-note}.
    """

    origin: str
    key: str


class _KeptKey(Struct, frozen=True):
    """What is kept of a certification: the vkey, and the id of the event."""

    key: str
    eventId: str


@frozen
class Certification:
    """
    A key that the chain certifies.

    @ivar eventId: the event whose content is the L{LogKeyRecord}.
    """

    key: LogKey
    eventId: EventId


class LogCertification:
    """
    Finds the key of a log, and has the chain certify it before it is used.

    The key follows from the ledger's private key. When that has changed, the next caller gets a new
    key, for which another record is published.
    """

    _log = Logger()

    def __init__(self, ledger: IProvableLedger, store: MetadataStore, origin: str) -> None:
        """
        @param origin: the origin of the log; empty for C{svcbroker/} and the chain's id.
        """
        self._ledger = ledger
        self._store = store
        self._origin = origin
        self._seed = b""
        self._current: Certification | None = None
        self._lock = Lock()

    @property
    def origin(self) -> str:
        """
        The origin of the log.

        @raise LedgerUnavailable: the ledger has no chain yet.
        """
        if self._origin:
            return self._origin
        if not self._ledger.chain:
            raise LedgerUnavailable("the chain has not begun")
        return f"svcbroker/{self._ledger.chain.hex()}"

    @asDeferred
    async def certified(self) -> Certification:
        """
        The current key, once the chain certifies it. A caller that stops waiting does so by
        L{TimeoutQueue<svcbroker.broker.TimeoutQueue>}, which does not cancel this.

        @raise LedgerUnavailable: the ledger has no key now, or did not take the record. The next
            call tries again.
        """
        async with self._lock:
            return await self._certify()

    async def _certify(self) -> Certification:
        seed = self._ledger.deriveKey(_PURPOSE)
        if self._current is None or seed != self._seed:
            key = LogKey(self.origin, seed)
            record = LogKeyRecord(origin=self.origin, key=key.verifier.text)
            eventId = await self._find(record)
            if eventId is None:
                eventId = await self._publish(record)
            self._seed, self._current = seed, Certification(key, eventId)
        return self._current

    async def _find(self, record: LogKeyRecord) -> EventId | None:
        """The event that has certified a key before, as far as it is kept or is the last one."""
        name = f"{self._ledger.group}/key"
        kept = self._store.get(LOG, name)
        if kept is not None:
            known = msgspec.json.decode(kept, type=_KeptKey)
            eventId = EventId.parse(known.eventId)
            if known.key == record.key and await self._isRecord(eventId, record):
                return eventId
        topic = self._ledger.topicState(LOG_TOPIC)
        if topic is None or not topic.sequence:
            return None
        block = await self._ledger.readBlock(topic.height)
        last = [event.eventId for event in block.events if event.topic == LOG_TOPIC][-1]
        if not await self._isRecord(last, record):
            return None
        self._keep(record, last)
        return last

    async def _isRecord(self, eventId: EventId, record: LogKeyRecord) -> bool:
        """Whether the chain has this event, and it is this record."""
        try:
            event = await self._ledger.getEvent(eventId)
        except (EventNotFound, HeightUnknown, EventErased):
            return False
        return event.topic == LOG_TOPIC and event.content == msgspec.json.encode(record)

    async def _publish(self, record: LogKeyRecord) -> EventId:
        """
        Publish a record.

        @raise BrokerError: the ledger did not take it.
        """
        requests: list[Request] = [
            PublishEvent(topic=LOG_TOPIC, content=msgspec.json.encode(record), extensions={})
        ]
        topic = self._ledger.topicState(LOG_TOPIC)
        if topic is None or not topic.isOpen:
            requests.insert(0, OpenTopic(topic=LOG_TOPIC))
        submission = await self._ledger.submitMany(requests).done
        outcome = submission.outcomes[-1]
        if isinstance(outcome, BrokerError):
            raise outcome
        if (
            not isinstance(outcome, Receipt)
            or outcome.execution is not Execution.DONE
            or outcome.eventId is None
        ):
            raise LedgerUnavailable("the chain did not certify the log's key")
        self._log.info(
            "group {group}: the chain certifies the key of its transparency log: {key}, event "
            "{eventId}",
            group=self._ledger.group,
            key=record.key,
            eventId=outcome.eventId,
        )
        self._keep(record, outcome.eventId)
        return outcome.eventId

    def _keep(self, record: LogKeyRecord, eventId: EventId) -> None:
        kept = msgspec.json.encode(_KeptKey(key=record.key, eventId=str(eventId)))
        self._store.put(LOG, f"{self._ledger.group}/key", kept)
