"""
Dialects of the interface: for clients of another product of the family.

An event is stored in one form. A dialect changes names, limits and some calls for its own clients
only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from attrs import evolve, frozen
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred

from ..access import Principal
from ..broker import Calls
from ..errors import ContentTooLarge, TopicNotFound, TopicTooLong
from ..model import EXTENSION_PREFIX, WEEVENT_PREFIX
from ..net.deferreds import asDeferred
from ..version import VersionRecord
from ._adminqueries import QUERIES
from ._calls import OPERATIONS
from ._declarations import FRAME_HEADERS, FrameHeaders, Operation, Result, weeventHeaders
from ._results import EVENT, EVENT_PAGE, EventPageResult, EventResult, LoggedEvent, envelope
from ._types import ContentType, ExtensionsType, ParameterType, TopicType


@frozen(kw_only=True)
class Dialect:
    """
    The particulars of one dialect.

    @ivar name: its name in the configuration.
    @ivar basePath: the context path of its clients.
    @ivar prefix: how keys of extensions begin on its wire.
    @ivar maxTopic: the longest topic, in characters.
    @ivar maxContent: the largest content of an event, in bytes.
    """

    name: str
    basePath: str
    prefix: str
    maxTopic: int
    maxContent: int

    def storedKey(self, key: str) -> str:
        """The stored key of an extension that a client has sent. Other keys stay as they are."""
        return EXTENSION_PREFIX + key[len(self.prefix) :] if key.startswith(self.prefix) else key

    def shownKey(self, key: str) -> str:
        """The key by which a client is shown a stored extension. Other keys stay as they are."""
        isStored = key.startswith(EXTENSION_PREFIX)
        return self.prefix + key[len(EXTENSION_PREFIX) :] if isStored else key

    def checkTopic(self, topic: str) -> None:
        """
        @raise TopicTooLong: its clients cannot have such a topic.
        """
        if len(topic) > self.maxTopic:
            raise TopicTooLong(f"topic name is longer than {self.maxTopic} characters")

    def checkContent(self, content: bytes) -> None:
        """
        @raise ContentTooLarge: its clients cannot have such content.
        """
        if len(content) > self.maxContent:
            raise ContentTooLarge(f"content is larger than {self.maxContent} bytes")


WEEVENT: Final = Dialect(
    name="weevent-1.1",
    basePath="/weevent",
    prefix=WEEVENT_PREFIX,
    maxTopic=64,
    maxContent=10 * 1024,
)
"""The dialect of WeEvent 1.1."""


@frozen(kw_only=True)
class Interface:
    """
    The calls under one context path.

    @ivar operations: those by REST and by JSON-RPC.
    @ivar queries: the admin queries, by REST.
    @ivar exceptionName: the type name that every JSON-RPC error has; C{None} for the error's own.
    @ivar isStrict: whether REST refuses parameters that only a dialect knows.
    @ivar frames: the headers of its frames of STOMP, over WebSocket.
    @ivar dialect: the dialect that it is in; C{None} for the published interface.
    """

    operations: tuple[Operation, ...] = OPERATIONS
    queries: tuple[Operation, ...] = QUERIES
    exceptionName: str | None = None
    isStrict: bool = True
    frames: FrameHeaders = FRAME_HEADERS
    dialect: Dialect | None = None


class _TopicType(TopicType):
    """A topic of the dialect."""

    schema = {**TopicType.schema, "maxLength": WEEVENT.maxTopic}

    def fromText(self, raw: bytes) -> str:
        return self._checked(super().fromText(raw))

    def fromJSON(self, value: object) -> str:
        return self._checked(super().fromJSON(value))

    def _checked(self, topic: str) -> str:
        WEEVENT.checkTopic(topic)
        return topic


class _ContentType(ContentType):
    """Content of the dialect."""

    # Base64 has four characters for three bytes.
    schema = {**ContentType.schema, "maxLength": (WEEVENT.maxContent + 2) // 3 * 4}
    textSchema = {"type": "string", "minLength": 1, "maxLength": WEEVENT.maxContent}

    def fromText(self, raw: bytes) -> bytes:
        return self._checked(raw)

    def fromTyped(self, value: bytes) -> bytes:
        return self._checked(value)

    def fromJSON(self, value: object) -> bytes:
        return self._checked(super().fromJSON(value))

    def _checked(self, content: bytes) -> bytes:
        WEEVENT.checkContent(content)
        return content


class _ExtensionsType(ExtensionsType):
    """Extensions of the dialect. They are read into their stored form."""

    schema = {
        **ExtensionsType.schema,
        "propertyNames": {"pattern": f"^({WEEVENT_PREFIX}|{EXTENSION_PREFIX})"},
    }

    def fromFields(self, fields: Mapping[bytes, bytes]) -> Mapping[str, str]:
        return self._stored(super().fromFields(fields))

    def fromJSON(self, value: object) -> Mapping[str, str]:
        return self._stored(super().fromJSON(value))

    def fromTyped(self, value: dict[str, str]) -> Mapping[str, str]:
        return self._stored(value)

    def _stored(self, extensions: Mapping[str, str]) -> Mapping[str, str]:
        return {WEEVENT.storedKey(key): value for key, value in extensions.items()}


class WeEventVersion(Struct, frozen=True):
    """The version of this broker. The time is UTC, and empty where the build does not know it."""

    weEventVersion: str
    gitCommitTimeStamp: str
    gitBranch: str
    gitCommitHash: str


_Record = TypeVar("_Record", EventResult, LoggedEvent)


def _shown(event: _Record) -> _Record:
    extensions = {WEEVENT.shownKey(key): text for key, text in event.extensions.items()}
    return replace(event, extensions=extensions)


def _page(answer: Any) -> EventPageResult:
    rendered: EventPageResult = EVENT_PAGE.render(answer)
    # The extensions of a CloudEvent are those that are stored.
    events = [
        _shown(event) if isinstance(event, LoggedEvent) else event for event in rendered.events
    ]
    return replace(rendered, events=events)


def _version(version: VersionRecord) -> WeEventVersion:
    return WeEventVersion(
        version.version, version.commitTimestamp, version.branch, version.commitHash
    )


def _closing(calls: Calls) -> Callable[..., Deferred[bool]]:
    """Closing a topic there only tells whether it exists, and may be done twice."""

    @asDeferred
    async def close(principal: Principal, groupId: str | None, topic: str) -> bool:
        if not await calls.broker.exist(principal, groupId, topic):
            raise TopicNotFound()
        return True

    return close


_TYPES: Final[Mapping[type[ParameterType], ParameterType]] = {
    TopicType: _TopicType(),
    ContentType: _ContentType(),
    ExtensionsType: _ExtensionsType(),
}
_CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "close": {"summary": "Tell that an open topic exists.", "method": _closing},
    "events": {"result": Result(type=EventPageResult, render=_page)},
    "getEvent": {
        "result": Result(type=EventResult, render=lambda event: _shown(EVENT.render(event)))
    },
    "getVersion": {"result": envelope(WeEventVersion, _version)},
}


_WORDS: Final = {
    EXTENSION_PREFIX: WEEVENT_PREFIX,
    "256 characters": f"{WEEVENT.maxTopic} characters",
}
"""The differences in descriptions of parameters."""


def _described(description: str) -> str:
    for ours, theirs in _WORDS.items():
        description = description.replace(ours, theirs)
    return description


def _adapted(operation: Operation) -> Operation:
    parameters = tuple(
        evolve(
            each,
            type=_TYPES.get(type(each.type), each.type),
            description=_described(each.description),
        )
        for each in operation.parameters
    )
    return evolve(operation, parameters=parameters, **_CHANGES.get(operation.name, {}))


WEEVENT_INTERFACE: Final = Interface(
    operations=(
        *map(_adapted, OPERATIONS),
        Operation(
            name="listGroup",
            summary="List the groups.",
            result=Result(type=list[str]),
            method=lambda calls: calls.admin.listGroups,
        ),
    ),
    queries=tuple(map(_adapted, QUERIES)),
    exceptionName="com.webank.weevent.sdk.BrokerException",
    isStrict=False,
    frames=weeventHeaders(WEEVENT.shownKey),
    dialect=WEEVENT,
)
"""
The calls of clients of WeEvent 1.1. Its Java client raises the exception that an error names.
"""
