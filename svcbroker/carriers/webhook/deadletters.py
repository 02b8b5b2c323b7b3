"""
Dead letters: events that a receiver does not take, published to a topic with the reason.
"""

from __future__ import annotations

from typing import Final

from ...broker import Publication
from ...model import MAX_EXTENSIONS_SIZE, RESERVED_NAMES, TAG, Event

MAX_REASON: Final = 256
"""The longest reason, in characters."""
MAX_WEBHOOKS: Final = 16
"""How many webhooks may give up an event, one the dead letter of the other."""
GIVEN_UP_BY: Final = "svc-given-up-by"
"""The extension with the webhooks that have given up an event, with commas between them."""

_ID_LENGTH = 36


def _webhooksOf(event: Event) -> list[str]:
    ids = event.extensions.get(GIVEN_UP_BY, "").split(",")
    return [each for each in ids if len(each) == _ID_LENGTH]


def isGivenUpForGood(event: Event, subscriptionId: str) -> bool:
    """
    Whether an event has no further dead letter: it is one that comes back to the webhook which has
    given it up before, or of too many webhooks. So webhooks that are sent the dead letters of each
    other come to an end.
    """
    webhooks = _webhooksOf(event)
    return subscriptionId in webhooks or len(webhooks) >= MAX_WEBHOOKS


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
        GIVEN_UP_BY: ",".join([*_webhooksOf(event), subscriptionId]),
    }
    # An earlier release has let names in that are reserved now.
    kept = {key: text for key, text in event.extensions.items() if key not in RESERVED_NAMES}
    extensions = {**kept, **why}
    if _size(extensions) > MAX_EXTENSIONS_SIZE:
        tag = {TAG: event.extensions[TAG]} if TAG in event.extensions else {}
        extensions = {**tag, **why}
        if _size(extensions) > MAX_EXTENSIONS_SIZE:
            extensions = why
    return Publication(groupId=group, topic=topic, content=event.content, extensions=extensions)


def _size(extensions: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in extensions.items())
