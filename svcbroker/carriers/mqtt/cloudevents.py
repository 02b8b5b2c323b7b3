"""
CloudEvents by the MQTT protocol binding 1.0: what is published as one, and how subscribers that ask
for them get events.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import msgspec
from msgspec import Struct

from ...errors import ParameterInvalid
from ...model import Event, EventFormat
from ...operations import (
    BROKER_ATTRIBUTES,
    CLOUD_EVENT_TYPE,
    CloudEvent,
    binaryAttributes,
    cloudEvent,
    isAttributeName,
    isStructured,
    publishedCloudEvent,
    readBinary,
    readStructured,
)
from .packets import Publish, Will

_SPECVERSION: Final = "specversion"
_UTF_8: Final = 1


class ReceivedCloudEvent(Struct, frozen=True):
    """
    A message that is a CloudEvent.

    @ivar names: the names of the user properties that are attributes; C{None} in structured mode.
    """

    event: CloudEvent
    names: Container[str] | None


def findCloudEvent(message: Publish | Will) -> ReceivedCloudEvent | None:
    """
    Read a message as a CloudEvent, in structured or in binary mode. In binary mode the attributes
    are those user properties that have the name of one.

    @return: C{None} where it is none, or no valid one: it is a message like others.
    """
    properties, payload = message.properties, message.payload
    contentType = properties.contentType or ""
    isBinary = bool(properties.userProperties) and _SPECVERSION in dict(properties.userProperties)
    if not isBinary and "cloudevents" not in contentType.lower():
        # Most messages: nothing else is looked at.
        return None
    try:
        if isStructured(contentType):
            event = readStructured(contentType, payload)
            # A retained message without content would remove the one before it.
            return ReceivedCloudEvent(event, None) if event.content or not message.retain else None
        named = [each for each in properties.userProperties if isAttributeName(each[0])]
        attributes = dict(named)
        if not isBinary or len(attributes) < len(named):
            return None
        event = readBinary(attributes, contentType, payload)
        return ReceivedCloudEvent(event, attributes.keys() - BROKER_ATTRIBUTES)
    except ParameterInvalid:
        return None


def structuredPayload(event: Event) -> bytes | None:
    """The payload of an event as its publisher sent it in structured mode."""
    published = publishedCloudEvent(event)
    return None if published is None else msgspec.json.encode(published)


class CloudEventForm(Struct, frozen=True):
    """
    How a subscriber gets events as CloudEvents.

    @ivar isBinary: in binary mode; otherwise structured.
    @ivar source: what C{source} begins with: the base path and the group.
    """

    isBinary: bool
    source: str

    def write(self, event: Event, timestamp: int | None) -> CloudEventContent:
        """
        Write an event.

        @param timestamp: the time of its block; C{None} where it is not known.
        """
        if self.isBinary:
            contentType, attributes = binaryAttributes(event, self.source, timestamp)
            return CloudEventContent(event.content, contentType, tuple(attributes.items()))
        payload = msgspec.json.encode(cloudEvent(event, self.source, timestamp))
        return CloudEventContent(payload, CLOUD_EVENT_TYPE, (), _UTF_8)


class CloudEventContent(Struct, frozen=True):
    """
    What an event as a CloudEvent has of a PUBLISH.

    @ivar indicator: the payload format indicator.
    """

    payload: bytes
    contentType: str | None
    userProperties: tuple[tuple[str, str], ...]
    indicator: int | None = None


_FORMS: Final = {EventFormat.CLOUD_EVENTS.value: False, EventFormat.BINARY_CLOUD_EVENTS.value: True}


def formOf(format: str, source: str) -> CloudEventForm | None:
    """The form with the name of an L{EventFormat}; C{None} where its events are no CloudEvents."""
    isBinary = _FORMS.get(format)
    return None if isBinary is None else CloudEventForm(isBinary, source)
