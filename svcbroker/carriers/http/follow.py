"""
C{follow}: the events of a topic as they are published, as Server-Sent Events (WHATWG HTML, section
9.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from ...access import Principal
from ...broker import Calls
from ...broker.features import Feature, RunningFeature, Services
from ...broker.subscriptions import Places, Subscriptions
from ...errors import BrokerError, LedgerUnavailable, NodeBehind, Overloaded
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import EventFormat, SubscribeRequest
from ...net.addresses import peerText
from ...net.bounds import CONNECTIONS, Bound, Sizing
from ...net.budgets import Unsent
from ...net.deferreds import asDeferred
from ...net.settings import NoSettings
from ...net.turns import LazyTimer
from ...operations import FOLLOW, EventWriter, bindText, eventWriter
from .connection import BrokerRequest
from .plain import parseFields
from .rest import addAfter, checkNames
from .routes import (
    Route,
    connectionOf,
    encode,
    encodeError,
    explain,
    principalOf,
    publishHeadersOf,
    respond,
)

BEAT: Final = 15.0
"""Seconds without an event after which a comment is sent: proxies close idle connections."""
RETRY: Final = 1000
"""The time from a stream's end until a browser connects again, in milliseconds."""
MAX_STREAMS: Final = 10_000
"""The most streams at the same time; one account or address has a share."""

_TRANSIENT: Final = (Overloaded, NodeBehind, LedgerUnavailable)
"""Errors after which it is worth connecting again."""

_COMMENT: Final = b":\n"
"""Without an empty line, at which some clients hand out an event though there is no data."""
_HEADERS: Final = (
    (b"Content-Type", b"text/event-stream;charset=UTF-8"),
    (b"Cache-Control", b"no-cache"),
    # For nginx, which would collect events otherwise.
    (b"X-Accel-Buffering", b"no"),
)


class Following:
    """
    The route C{follow}, and the streams of its clients.
    """

    def __init__(
        self,
        calls: Calls,
        subscriptions: Subscriptions,
        basePath: str,
        timeout: float = 60.0,
    ) -> None:
        """
        @param timeout: how long a client may read nothing while there is something to read, in
            seconds.
        """
        self._clock = calls.broker.clock
        self._subscriptions = subscriptions
        self._timeout = timeout
        self._makeAll = calls.broker.budgets.work.makeAll
        self._source = calls.broker.source
        self._read = bindText(FOLLOW, calls)
        self._streams: dict[_Stream, None] = {}
        self._places = Places(MAX_STREAMS, "streams")
        self._isDrained = False
        self.route = Route(
            path=f"{basePath}/rest/{FOLLOW.name}",
            methods=("GET",),
            handler=self._handle,
            isEndless=True,
        )

    def drain(self) -> Deferred[None]:
        """End all streams, and begin no more. Clients resume when the broker is there again."""
        self._isDrained = True
        return self._makeAll(stream.end for stream in tuple(self._streams))

    @asDeferred
    async def _handle(self, request: BrokerRequest) -> bytes:
        principal = principalOf(request)
        remote = peerText(request.getClientAddress())
        try:
            place = self._places.take(principal, remote)
        except BrokerError as error:
            return _refuse(request, error, principal)
        try:
            return await self._follow(request, principal, remote)
        finally:
            # Also where the client has left, which cancels this.
            self._places.release(place)

    async def _follow(self, request: BrokerRequest, principal: Principal, remote: str) -> bytes:
        try:
            if self._isDrained:
                raise Overloaded("the broker is stopping")
            fields = _fieldsOf(request)
            asked: SubscribeRequest
            format: EventFormat
            asked, format = await self._read(principal, fields, connectionOf(request))
            asked = evolve(asked, remote=remote)
            stream = _Stream(
                request,
                self._clock,
                self._timeout,
                format,
                eventWriter(format, self._source, asked.group),
            )
            subscription = await self._subscriptions.subscribe(principal, asked, stream)
        except BrokerError as error:
            return _refuse(request, error, principal)
        self._streams[stream] = None
        try:
            last = request.getHeader(b"last-event-id") or b""
            return await stream.run(subscription, fields.get(b"from", b""), last)
        finally:
            del self._streams[stream]
            stream.close()


def _fieldsOf(request: BrokerRequest) -> Mapping[bytes, bytes]:
    """The parameters of a request. What a client has got counts more than where it began."""
    _, _, query = request.uri.partition(b"?")
    fields = dict(parseFields(query))
    checkNames(fields)
    last = request.getHeader(b"last-event-id")
    if last:
        fields[b"from"] = last
    headers = publishHeadersOf(request)
    return fields if headers is None else addAfter(fields, headers)


def _refuse(request: BrokerRequest, error: BrokerError, principal: Principal) -> bytes:
    """
    The answer where there are no events. An C{EventSource} never connects again after anything but
    a stream, so it gets one that ends at once where that would be wrong.
    """
    accepted = request.getHeader(b"accept") or b""
    if not (isinstance(error, _TRANSIENT) and accepted.startswith(b"text/event-stream")):
        return respond(request, explain(error, principal, encodeError))
    for name, value in _HEADERS:
        request.setHeader(name, value)
    delay = max(RETRY, int(1000 * getattr(error, "retryAfter", 0.0)))
    stream = b"retry: %d\n\n%b" % (delay, _ending(error))
    request.setHeader(b"Content-Length", b"%d" % len(stream))
    return stream


def _ending(error: BrokerError) -> bytes:
    """The last event of a stream that an error ends."""
    return b"event: end\ndata: %b\n\n" % encodeError(error)


@implementer(IPushProducer, ISubscriber)
class _Stream:
    """
    The events that are sent to one client, as fast as it reads.
    """

    def __init__(
        self,
        request: BrokerRequest,
        clock: IReactorTime,
        timeout: float,
        format: EventFormat,
        write: EventWriter,
    ) -> None:
        """
        @param timeout: how long a client may read nothing while there is something to read, in
            seconds.
        @param format: how events are written.
        @param write: writes them so.
        """
        self._request = request
        self._write = write
        channel: Any = request.channel
        self._unsent: Unsent = channel.unsent
        # Streams of one format share what is encoded. Texts: an Enum is hashed slowly.
        self._chunkKey, self._batchKey = f"chunk of {format.value}", f"events of {format.value}"
        self._now = clock.seconds
        self._timeout = timeout
        self._beat = LazyTimer(clock, self._sendComment)
        self._silence = LazyTimer(clock, self._abort)
        self._done: Deferred[bytes] = Deferred()
        self._subscription: ISubscription | None = None

    def run(self, subscription: ISubscription, start: bytes, last: bytes) -> Deferred[bytes]:
        """
        Send the events of a subscription.

        @param start: where the client asked to begin.
        @param last: the id that the client got last; empty if it got none.
        @return: fires at the end, with what is still to be written.
        """
        self._subscription, request = subscription, self._request
        for name, value in _HEADERS:
            request.setHeader(name, value)
        if request.method == b"HEAD":
            return succeed(b"")
        request.isEndless = True
        position = subscription.position
        # A client that leaves before the first event resumes here, too.
        place = start if position.index >= 0 else b"%d" % position.height
        request.write(b"retry: %d\n" % RETRY)
        if place != last:
            request.write(b"id: %b\n\n" % place)
        request.registerProducer(self, True)
        self._beat.start(BEAT)
        subscription.resume()
        return self._done

    def end(self, rest: bytes = b"") -> None:
        """
        End the stream.

        @param rest: what is written before.
        """
        if not self._done.called:
            self._request.unregisterProducer()
            self._done.callback(rest)

    def close(self) -> None:
        """The stream has ended, or its client has left."""
        self._beat.close()
        self._silence.close()
        if self._subscription is not None:
            self._subscription.close()
        # Klein keeps this until the garbage collector comes, which then keeps no connection.
        del self._unsent

    # ISubscriber

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        # Hot path: encoded once for all streams, and sent past twisted.web, which would take half
        # of the time.
        self._beat.deadline = self._now() + BEAT
        if self._request.chunked:
            self._unsent.send(batch.encoded(self._chunkKey, lambda _: self._encodeChunk(batch)))
        else:
            self._request.write(batch.encoded(self._batchKey, lambda _: self._encodeBatch(batch)))

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._subscription = None
        self.end(_ending(error))

    # IPushProducer

    def pauseProducing(self) -> None:
        """See C{IPushProducer}: the client does not read."""
        if self._subscription is not None:
            self._subscription.pause()
        self._beat.stop()
        self._silence.start(self._timeout)

    def resumeProducing(self) -> None:
        """See C{IPushProducer}: the client has read everything."""
        self._silence.stop()
        self._beat.start(BEAT)
        if self._subscription is not None:
            self._subscription.resume()

    def stopProducing(self) -> None:
        """See C{IPushProducer}: the connection is about to be lost."""

    def _sendComment(self) -> None:
        self._request.write(_COMMENT)
        self._beat.start(BEAT)

    def _abort(self) -> None:
        self._request.channel.forceAbortClient()

    def _encodeChunk(self, batch: Batch) -> bytes:
        data = batch.encoded(self._batchKey, lambda _: self._encodeBatch(batch))
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _encodeBatch(self, batch: Batch) -> bytes:
        return b"".join(
            [
                b"id: %b\nevent: event\ndata: %b\n\n"
                % (str(event.eventId).encode("ascii"), encode(record))
                for event, record in zip(batch.events, self._write(batch), strict=True)
            ]
        )


class FollowFeature(RunningFeature):
    """C{follow} on the site of HTTP."""

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._services = services
        self._following: Following | None = None

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        services = self._services
        self._following = Following(calls, services.subscriptions, services.basePath)
        return [self._following.route]

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return succeed(None) if self._following is None else self._following.drain()


def followBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of C{follow}: its streams are connections."""
    yield Bound(name=CONNECTIONS, holders=[f"{__name__}.Following._streams"])


FEATURE: Final = Feature(name="follow", make=FollowFeature, bounds=followBounds)
