"""
Dead letters: events that a receiver does not take, published to a topic with the reason.
"""

from __future__ import annotations

from typing import Final

from ...broker import Publication
from ...model import MAX_EXTENSIONS_SIZE, TAG, Event

MAX_REASON: Final = 256
"""The longest reason, in characters."""


def makeDeadLetter(
    event: Event, group: str, topic: str, subscriptionId: str, attempts: int, reason: str
) -> Publication:
    """
    The dead letter of an event: the same content and extensions, and more extensions that say
    where it is from. Where there is no room for all, the extensions of the event but its tag are
    left out: the event is in the log, by its id.

    @param topic: where it is published.
    @param attempts: how often the event was sent.
    @param reason: what came of the last attempt.
    """
    why = {
        "svc-reason": reason[:MAX_REASON],
        "svc-attempts": str(attempts),
        "svc-original-id": str(event.eventId),
        "svc-original-topic": event.topic,
        "svc-subscription-id": subscriptionId,
    }
    extensions = {**event.extensions, **why}
    if _size(extensions) > MAX_EXTENSIONS_SIZE:
        tag = {TAG: event.extensions[TAG]} if TAG in event.extensions else {}
        extensions = {**tag, **why}
        if _size(extensions) > MAX_EXTENSIONS_SIZE:
            extensions = why
    return Publication(groupId=group, topic=topic, content=event.content, extensions=extensions)


def _size(extensions: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in extensions.items())
