"""
Receipts that a client signs for the events that it has received.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from attrs import field, frozen

from ..errors import ParameterInvalid, TopicNotFound
from ..model import EventId
from ._confidential import AuthorKey
from ._effects import Procedure
from ._records import CheckpointRecord, Event, EventPageRecord, Published

_LOOKED_AT = 100
"""The number of receipts of a topic that are searched for the last one of a recipient."""


def _key(key: AuthorKey | str | Path) -> AuthorKey:
    return key if isinstance(key, AuthorKey) else AuthorKey.read(key)


@frozen(kw_only=True)
class Receipts:
    """
    The receipts that a client signs while it follows a topic.

    @ivar key: the recipient's key, or its PEM file.
    @ivar topic: the topic of the receipts; by default C{receipts/} and the beginning of the public
        key. It is opened with the key as its only author where it is not there.
    @ivar every: after how many events there is a receipt at the latest, while more come.
    @ivar seconds: after how many seconds.
    @ivar isProcessed: whether a receipt says that the program had answered: it is signed after the
        program has asked for a further event. Otherwise it says that the events have arrived.
    """

    key: AuthorKey = field(converter=_key)
    topic: str = ""
    every: int = 100
    seconds: float = 10.0
    isProcessed: bool = True

    @property
    def where(self) -> str:
        """The topic of the receipts."""
        return self.topic or f"receipts/{self.key.public.hex()[:16]}"


class ReceiptCalls(Protocol):
    """The calls of a client that receipts need: L{Core<svcbroker.client._core.Core>}."""

    def checkpoint(self, height: int | None = None) -> Procedure[CheckpointRecord]: ...

    def open(self, topic: str, *, authors: Sequence[bytes] = ()) -> Procedure[bool]: ...

    def publish(
        self,
        topic: str,
        content: bytes | str,
        *,
        author: AuthorKey | None = None,
        recipients: Sequence[str] | None = None,
    ) -> Procedure[Published]: ...

    def readPage(self, topic: str, limit: int) -> Procedure[EventPageRecord]: ...


class ReceiptWriter:
    """
    Signs the receipts of one topic or pattern: at most one in so many events or seconds.
    """

    def __init__(
        self,
        calls: ReceiptCalls,
        topic: str,
        receipts: Receipts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param topic: the topic or pattern whose events are received.
        @param now: the time in seconds, of a clock that never goes back.
        """
        self._calls = calls
        self._topic = topic
        self.receipts = receipts
        self._now = now
        self._previous = ""
        self._last: EventId | None = None
        self._isFound = False
        self._waiting: Event | None = None
        self._count = 0
        self._since = 0.0

    def begin(self) -> Procedure[str | None]:
        """
        Find the last receipt, and open the topic of receipts where it is not there.

        @return: the id of the last event that has one; C{None} where none has.
        """
        from ..proofs import ProofInvalid, readReceipt

        receipts = self.receipts
        try:
            page = yield from self._calls.readPage(receipts.where, _LOOKED_AT)
        except TopicNotFound:
            yield from self._calls.open(receipts.where, authors=[receipts.key.public])
            self._isFound = True
            return None
        chain = bytes.fromhex((yield from self._calls.checkpoint()).chain)
        for event in page.events:
            if event.author != receipts.key.public.hex():
                continue
            try:
                found = readReceipt(event.content, chain)
            except ProofInvalid:
                continue
            if found.topic == self._topic:
                self._previous, self._last = event.eventId, found.last
                break
        self._isFound = True
        return None if self._last is None else str(self._last)

    def took(self, events: Sequence[Event]) -> Procedure[None]:
        """Count events that were received, and sign a receipt where it is time."""
        # A receipt of receipts would have a receipt of its own, without an end.
        events = [each for each in events if each.topic != self.receipts.where]
        if not events:
            return
        if self._waiting is None:
            self._since = self._now()
        self._waiting = events[-1]
        self._count += len(events)
        yield from self.due()

    def due(self) -> Procedure[None]:
        """Sign a receipt where it is time."""
        if self._waiting is not None and (
            self._count >= self.receipts.every or self._now() - self._since >= self.receipts.seconds
        ):
            yield from self.write()

    def sign(self, event: Event) -> Procedure[Published | None]:
        """Sign a receipt for an event and all before it, as L{write} does."""
        self._waiting = event
        return (yield from self.write())

    def write(self) -> Procedure[Published | None]:
        """
        Sign a receipt for what was received, whatever the time.

        @return: C{None} where there is nothing new to say.
        """
        from ..proofs import Checkpoint, RecipientReceipt, encodeReceipt

        if self._waiting is None:
            return None
        if not self._isFound:
            yield from self.begin()
        last = EventId.parse(self._waiting.eventId)
        before = self._last
        if before is not None and (
            last.sequence <= before.sequence
            if last.prefix == before.prefix
            else last.height < before.height
        ):
            self._forget()
            return None
        record = yield from self._calls.checkpoint()
        content = encodeReceipt(
            bytes.fromhex(record.chain),
            RecipientReceipt(
                topic=self._topic,
                last=last,
                checkpoint=Checkpoint.parse(record.checkpoint),
                means="processed" if self.receipts.isProcessed else "received",
                previous=self._previous,
            ),
        )
        published = yield from self._calls.publish(
            self.receipts.where, content, author=self.receipts.key, recipients=()
        )
        self._previous, self._last = published.eventId, last
        self._forget()
        return published

    def _forget(self) -> None:
        self._waiting, self._count = None, 0


def checkReceipts(receipts: Receipts | None, tag: str | None) -> None:
    """
    Check that receipts can be true.

    @raise ParameterInvalid: they cannot: of events with one tag, others are not received.
    """
    if receipts is not None and tag is not None:
        raise ParameterInvalid("receipts: a receipt is for all events, and not for those of a tag")
