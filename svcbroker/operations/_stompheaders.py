"""
The headers of STOMP frames, declared once: the carrier goes by their names, the AsyncAPI document
describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve, frozen

from ..model import EXTENSION_PREFIX, TAG
from ._parameters import ERASED
from ._publishing import PUBLISH_HEADERS


@frozen
class Header:
    """
    A header of a frame.

    @ivar description: what it means, in a sentence.
    @ivar isRequired: whether it is always there, or has to be.
    """

    name: str
    description: str
    isRequired: bool = False


@frozen(kw_only=True)
class StompHeaders:
    """
    The headers of the frames that carry events, in one dialect. Other headers that begin as keys of
    extensions do are extensions.

    @ivar send: those of SEND. Others are the user's.
    @ivar subscribe: those of SUBSCRIBE.
    @ivar message: those that the broker sets on MESSAGE. A user's headers never take their place.
    @ivar receipt: those of RECEIPT.
    @ivar error: those of ERROR.
    @ivar keepsOthers: whether MESSAGE has the user's headers of SEND.
    @ivar isText: whether the body of MESSAGE is made text.
    """

    send: tuple[Header, ...]
    subscribe: tuple[Header, ...]
    message: tuple[Header, ...]
    receipt: tuple[Header, ...]
    error: tuple[Header, ...]
    keepsOthers: bool = True
    isText: bool = False


_GROUP: Final = Header("groupId", "The group; absent means 1.")
_OWN_ID: Final = f"{EXTENSION_PREFIX}subscriptionId"
_RECEIPT: Final = Header("receipt", "Asks for a RECEIPT.")

EVENT_HEADERS: Final = (
    Header("svc-author", "The public key of the author who has signed the event: 64 hex digits."),
    Header("svc-signature", "The author's signature: 128 hex digits."),
    Header("svc-signed-at", "The author's own time, in milliseconds since the epoch."),
    Header("svc-erased", "true where the content was erased."),
)
"""Who has signed an event, and whether it was erased: of MESSAGE, and of PUBLISH of MQTT 5."""
SEND_HEADERS: Final = tuple(
    Header(name, each.description) for name, each in PUBLISH_HEADERS.items()
)
"""The parameters of a publish that are headers of SEND, and user properties of MQTT 5."""
ERASED_HEADER: Final = Header(f"{EXTENSION_PREFIX}{ERASED.name}", ERASED.description)
"""What becomes of erased events: of SUBSCRIBE of STOMP and MQTT 5."""

STOMP: Final = StompHeaders(
    send=(
        Header("destination", "The topic. It must be open.", isRequired=True),
        _GROUP,
        Header("receipt", "Asks for a RECEIPT, which has the event's id."),
        Header("transaction", "The transaction whose COMMIT the frame waits for."),
        Header(
            "content-length", "The size of the body. Without it the body ends at the first NUL."
        ),
        *SEND_HEADERS,
    ),
    subscribe=(
        Header("id", "What the client calls the subscription. STOMP 1.0 can do without."),
        Header(
            "destination",
            "A topic, a pattern, or up to 100 of them with commas between.",
            isRequired=True,
        ),
        _GROUP,
        Header(
            "eventId",
            "Where it begins: OFFSET_FIRST, OFFSET_LAST, after an event's id, at a height, or at "
            "OFFSET_TIME: with a time; by default with the next event.",
        ),
        Header(TAG, "Only events whose extension of this name has this value."),
        Header(
            _OWN_ID,
            "A UUID to know the subscription by; absent has one made. With acknowledgement it "
            "resumes where it stopped.",
        ),
        ERASED_HEADER,
        Header("ack", "auto, client or client-individual; by default auto."),
        Header(
            "prefetch-count",
            "How many events are sent ahead of acknowledgements: by default 1000, 0 for 10,000.",
        ),
        _RECEIPT,
    ),
    message=(
        Header("subscription", "The id of SUBSCRIBE, where it had one."),
        Header("subscription-id", "The subscription's UUID.", isRequired=True),
        Header(
            "message-id",
            "Unique in the connection for each event and subscription.",
            isRequired=True,
        ),
        Header(
            "destination",
            "The event's topic, also where a pattern was subscribed to.",
            isRequired=True,
        ),
        Header("eventId", "The event's id.", isRequired=True),
        Header("content-length", "The size of the body in bytes.", isRequired=True),
        Header(
            "ack",
            "The id for ACK and NACK of STOMP 1.2, where the subscription has acknowledgement.",
        ),
        Header("redelivered", "true where the event was sent before."),
        *EVENT_HEADERS,
    ),
    receipt=(
        Header("receipt-id", "The receipt that was asked for.", isRequired=True),
        Header("eventId", "For SEND the event's id, for COMMIT the ids with commas between."),
        Header("subscription-id", "For SUBSCRIBE the subscription's UUID."),
    ),
    error=(
        Header("message", "What is wrong.", isRequired=True),
        Header("code", "The code of the error.", isRequired=True),
        Header("receipt-id", "The receipt that the refused frame asked for."),
        Header("version", "The versions that the broker speaks, before one was agreed on."),
        Header("content-type", "text/plain.", isRequired=True),
        Header("content-length", "The size of the body in bytes.", isRequired=True),
    ),
)
"""STOMP of the published interface."""


def weeventHeaders(shownKey: Callable[[str], str]) -> StompHeaders:
    """
    The headers in the dialect of WeEvent 1.1.

    @param shownKey: makes the name that it has for an extension.
    """
    changed = {
        "message-id": "The id of SUBSCRIBE.",
        "subscription": "The id of SUBSCRIBE.",
        "id": "What the client calls the subscription. RECEIPT has it where there is no receipt.",
        "ack": "auto, which is the default.",
        _OWN_ID: "A UUID to know the subscription by; absent has one made.",
        "receipt-id": "The receipt that was asked for, or the id of SUBSCRIBE or UNSUBSCRIBE; 0 "
        "for CONNECT.",
    }

    def adapted(headers: tuple[Header, ...], *absent: str) -> tuple[Header, ...]:
        return tuple(
            evolve(
                each,
                name=shownKey(each.name),
                description=changed.get(each.name, each.description),
                isRequired=each.isRequired or each.name == "id",
            )
            for each in headers
            if each.name not in absent
        )

    return StompHeaders(
        send=adapted(STOMP.send),
        subscribe=adapted(STOMP.subscribe, "prefetch-count"),
        message=adapted(STOMP.message, "ack", "redelivered"),
        receipt=adapted(STOMP.receipt),
        error=adapted(STOMP.error),
        keepsOthers=False,
        isText=True,
    )
