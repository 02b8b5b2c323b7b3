"""
Tests for the client for Twisted, with an agent in memory.
"""

from __future__ import annotations

import gc
import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectingCancelledError, ConnectionLost, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent
from zope.interface import implementer

from svcbroker.client import Event, Unreachable
from svcbroker.client._core import TIMEOUT
from svcbroker.client.twisted import MAX_BUFFER, TwistedClient

from .network import record

URL = "http://broker.example/svcbroker"


class Response:
    """
    An answer whose body a test delivers.

    @ivar transport: that of the body.
    @ivar protocol: receives the body.
    """

    version = (b"HTTP", 1, 1)
    phrase = b"OK"
    length = 0
    previousResponse = None

    def __init__(self, code: int, kind: bytes) -> None:
        self.code = code
        self.headers = Headers({b"content-type": [kind]})
        self.transport = StringTransport()

    def deliverBody(self, protocol: Any) -> None:
        """See C{IResponse}."""
        self.protocol = protocol
        protocol.makeConnection(self.transport)

    def finish(self, body: bytes) -> None:
        """Deliver all of the body."""
        self.protocol.dataReceived(body)
        self.protocol.connectionLost(Failure(ResponseDone()))


@implementer(IAgent)
class MemoryAgent:
    """
    An agent.

    @ivar requests: the requests that wait for their answers.
    @ivar isConnected: whether connections are made at once, or never.
    """

    def __init__(self) -> None:
        self.requests: list[Deferred[Any]] = []
        self.isConnected = True
        self.isCancelled = False

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        """See C{IAgent}."""

        def cancel(asking: Deferred[Any]) -> None:
            self.isCancelled = True
            # As twisted.web does it.
            if self.isConnected:
                asking.errback(ResponseNeverReceived([Failure(CancelledError())]))
            else:
                asking.errback(ConnectingCancelledError(IPv4Address("TCP", "127.0.0.1", 1)))

        made: Deferred[Any] = Deferred(cancel)
        self.requests.append(made)
        return made


class TwistedClientTests(SynchronousTestCase):
    """
    L{TwistedClient}.
    """

    def setUp(self) -> None:
        self.clock, self.agent = Clock(), MemoryAgent()
        self.client = TwistedClient(self.clock, URL, agent=self.agent)

    def stream(self) -> Response:
        """Answer a request with a stream."""
        response = Response(200, b"text/event-stream;charset=UTF-8")
        self.agent.requests.pop().callback(response)
        return response

    def next(self, events: Any) -> Deferred[Any]:
        """The next event of an iterator."""

        async def following() -> Any:
            return await anext(events)

        return Deferred.fromCoroutine(following())

    def message(self, number: int) -> bytes:
        """A message with an event."""
        eventId = f"00000000-{number}-1"
        event = Event(topic="a", content=b"x" * 1000, extensions={}, eventId=eventId)
        return b"id: %b\nevent: event\ndata: %b\n\n" % (
            eventId.encode(),
            json.dumps(record(event)).encode(),
        )

    def test_answerIsTheResult(self) -> None:
        """A call fires with its result, when the whole answer was received."""
        calling = self.client.exist("a")
        response = Response(200, b"application/json")
        self.agent.requests.pop().callback(response)
        self.assertNoResult(calling)
        response.finish(b"true")
        self.assertIs(self.successResultOf(calling), True)

    def test_unreadStreamIsPaused(self) -> None:
        """The connection is paused while much is not read, and goes on when it is."""
        events = self.client.follow("a")
        first = self.next(events)
        response = self.stream()
        response.protocol.dataReceived(self.message(1))
        self.assertEqual(self.successResultOf(first).sequence, 1)
        number = 1
        while response.transport.producerState == "producing":
            number += 1
            response.protocol.dataReceived(self.message(number))
        self.assertGreater(number, MAX_BUFFER // 2000)
        for wanted in range(2, number + 1):
            self.assertEqual(self.successResultOf(self.next(events)).sequence, wanted)
        self.assertEqual(response.transport.producerState, "producing")

    def test_abandonedIteratorClosesItsConnection(self) -> None:
        """When an iterator is collected, its connection is closed."""
        events = self.client.follow("a")
        first = self.next(events)
        response = self.stream()
        response.protocol.dataReceived(self.message(1))
        self.successResultOf(first)
        self.assertFalse(response.transport.disconnecting)
        del events, first
        gc.collect()
        self.assertTrue(response.transport.disconnecting)

    def test_lostStreamIsResumed(self) -> None:
        """A connection that is lost is replaced after a delay."""
        events = self.client.follow("a")
        first = self.next(events)
        response = self.stream()
        response.protocol.dataReceived(self.message(1))
        self.successResultOf(first)
        second = self.next(events)
        response.protocol.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.agent.requests, [])
        self.clock.advance(0.2)
        self.stream().protocol.dataReceived(self.message(2))
        self.assertEqual(self.successResultOf(second).sequence, 2)

    def test_silentStreamIsReplaced(self) -> None:
        """A stream without even a comment for 45 seconds counts as lost."""
        following = self.next(self.client.follow("a"))
        response = self.stream()
        self.clock.advance(44)
        response.protocol.dataReceived(b":\n\n")
        self.clock.advance(44)
        self.assertEqual(self.agent.requests, [])
        self.clock.advance(2)
        self.clock.advance(0.2)
        self.assertTrue(response.transport.disconnecting)
        self.stream().protocol.dataReceived(self.message(1))
        self.assertEqual(self.successResultOf(following).sequence, 1)

    def test_cancelledCallIsNotRepeated(self) -> None:
        """Cancelling a call cancels its request, and fails as cancelled."""
        calling = self.client.exist("a")
        calling.cancel()
        self.failureResultOf(calling, CancelledError)
        self.assertTrue(self.agent.isCancelled)
        self.clock.advance(100)
        self.assertEqual(len(self.agent.requests), 1)

    def test_cancelledConnectingIsNotRepeated(self) -> None:
        """Cancelling a call that waits for its connection fails as cancelled."""
        self.agent.isConnected = False
        calling = self.client.exist("a")
        calling.cancel()
        self.failureResultOf(calling, CancelledError)
        self.clock.advance(100)
        self.assertEqual(len(self.agent.requests), 1)

    def test_cancelledBodyClosesItsConnection(self) -> None:
        """Cancelling a call whose answer is being received closes the connection."""
        calling = self.client.exist("a")
        response = Response(200, b"application/json")
        self.agent.requests.pop().callback(response)
        calling.cancel()
        self.failureResultOf(calling, CancelledError)
        self.assertTrue(response.transport.disconnecting)

    def test_silentBrokerIsUnreachable(self) -> None:
        """Requests without an answer are repeated until the time of the call is over."""
        calling = self.client.exist("a")
        while not calling.called:
            self.clock.advance(1)
        error = self.failureResultOf(calling, Unreachable).value
        self.assertTrue(error.isSent)
        self.assertLessEqual(self.clock.seconds(), TIMEOUT + 1)
        self.assertGreater(len(self.agent.requests), 1)

    def test_slowConnectingIsNotSent(self) -> None:
        """A call whose time ended while it was connecting says that nothing was sent."""
        self.agent.isConnected = False
        calling = self.client.exist("a")
        while not calling.called:
            self.clock.advance(1)
        self.assertFalse(self.failureResultOf(calling, Unreachable).value.isSent)
        following = self.next(self.client.follow("a", timeout=1.0))
        while not following.called:
            self.clock.advance(1)
        self.assertFalse(self.failureResultOf(following, Unreachable).value.isSent)

    def test_refusedConnectionIsNotSent(self) -> None:
        """A request that could not be sent says so."""
        calling = self.client.exist("a")
        while not calling.called:
            for each in self.agent.requests:
                each.errback(ConnectionRefusedError())
            self.agent.requests.clear()
            self.clock.advance(1)
        self.assertFalse(self.failureResultOf(calling, Unreachable).value.isSent)

    def test_otherFailuresAreNotHidden(self) -> None:
        """A failure that is not one of the network is not repeated."""
        calling = self.client.exist("a")
        self.agent.requests.pop().errback(ZeroDivisionError())
        self.failureResultOf(calling, ZeroDivisionError)
