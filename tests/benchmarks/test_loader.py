"""
Tests for L{benchmarks.loader}: what the load program sends, counts and refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from socket import socket, socketpair
from threading import Thread

from attrs import evolve
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks.building import buildLoader
from benchmarks.children import Missing
from benchmarks.loader import Load, Protocol, driveOn
from benchmarks.wires import amqp, http, mqtt, nats, resp, stomp
from benchmarks.wires.amqp import method
from benchmarks.wires.talk import CONTENT, readExactly
from svcbroker.commands.bench import Broken, Measured, httpRequest, publishPacket
from tests.waiting import TIMEOUT

_HEAD = b"HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: %d\r\n\r\n%b"
GOOD = b'{"status":"SUCCESS"}'


def httpAnswer(body: bytes) -> bytes:
    """An answer."""
    return _HEAD % (len(body), body)


class LoaderTestCase(SynchronousTestCase):
    """
    The test is the server.
    """

    def setUp(self) -> None:
        """Build the program, which needs a compiler."""
        try:
            buildLoader()
        except Missing as reason:
            raise SkipTest(str(reason)) from None

    def drive(
        self,
        load: Load,
        serve: Callable[[Sequence[socket]], None],
        requests: int,
        connections: int = 1,
    ) -> Measured:
        """
        Load what C{serve} does with its ends of the connections.

        @raise Broken: the program has refused something.
        """
        failures: list[BaseException] = []

        def run(ends: Sequence[socket]) -> None:
            try:
                serve(ends)
            except (OSError, AssertionError, Broken) as error:
                failures.append(error)
                for end in ends:
                    end.close()

        with ExitStack() as stack:
            pairs = [socketpair() for _ in range(connections)]
            for pair in pairs:
                for each in pair:
                    stack.enter_context(each)
                pair[1].settimeout(TIMEOUT)
            server = Thread(target=run, args=([theirs for _, theirs in pairs],))
            server.start()
            try:
                found = driveOn([ours for ours, _ in pairs], load, TIMEOUT, requests)
            finally:
                server.join(TIMEOUT)
        self.assertEqual(failures, [])
        return found

    def refused(self, load: Load, answer: bytes) -> str:
        """The program's error after one wrong answer."""

        def serve(ends: Sequence[socket]) -> None:
            ends[0].recv(1)
            ends[0].sendall(answer)

        return str(self.assertRaises(Broken, self.drive, load, serve, 1))


def take(end: socket, expected: bytes) -> None:
    """Read what must come."""
    received = readExactly(end, len(expected))
    assert received == expected, received[:1000]


class HttpTests(LoaderTestCase):
    """
    HTTP.
    """

    def test_everyAnswerIsEventAndLatency(self) -> None:
        """Requests are sent in turn on each connection; every answer is an event and a latency."""
        frames = [httpRequest(b"GET", b"/%d" % number) for number in range(3)]
        load = evolve(http.postForm(), frames=lambda number: frames)

        def serve(ends: Sequence[socket]) -> None:
            for number in range(4):
                for end in ends:
                    take(end, frames[number % 3])
                for end in ends:
                    end.sendall(httpAnswer(GOOD))

        found = self.drive(load, serve, 8, connections=2)
        self.assertEqual((found.events, len(found.latencies)), (8, 8))
        self.assertTrue(all(0 < each <= found.seconds for each in found.latencies))

    def test_batchAnswerCountsAllEvents(self) -> None:
        """An answer to a batch is as many events as the batch has, in whatever pieces it comes."""
        load = http.rpc(3)
        answer = httpAnswer(b"[%b]" % b",".join([GOOD] * 3))

        def serve(ends: Sequence[socket]) -> None:
            take(ends[0], load.frames(0)[0])
            for place in range(len(answer)):
                ends[0].sendall(answer[place : place + 1])

        self.assertEqual(self.drive(load, serve, 1).events, 3)

    def test_requestsAndAnswersMayExceedOneRead(self) -> None:
        """An answer may be larger than one read, and so may a request."""
        big = httpRequest(b"POST", b"/", b"text/plain", b"x" * 3_000_000)
        load = evolve(http.postForm(), frames=lambda number: [big])

        def serve(ends: Sequence[socket]) -> None:
            for _ in range(2):
                take(ends[0], big)
                ends[0].sendall(httpAnswer(GOOD + b"y" * 5_000_000))

        self.assertEqual(self.drive(load, serve, 2).events, 2)

    def test_windowKeepsRequestsUnderWay(self) -> None:
        """With a window several requests are under way."""
        one = http.postForm().frames(0)[0]
        load = evolve(http.postForm(), window=4, frames=lambda number: [one] * 4)

        def serve(ends: Sequence[socket]) -> None:
            for _ in range(3):
                take(ends[0], one * 4)
                ends[0].sendall(httpAnswer(GOOD) * 4)

        self.assertEqual(self.drive(load, serve, 12).events, 12)

    def test_wrongAnswerEndsMeasurement(self) -> None:
        """A wrong answer ends the measurement, and the error shows it."""
        load = http.postForm()
        for answer, words in (
            (httpAnswer(b'{"status":"TIMEOUT"}'), "TIMEOUT"),
            (httpAnswer(GOOD + b'"error"'), "a wrong answer"),
            (httpAnswer(GOOD * 2), "a wrong answer"),
            (b"HTTP/1.1 503 No\r\n", "another status"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "no length"),
            (httpAnswer(GOOD) + b"H", "more than the answers"),
            (httpAnswer(GOOD) * 2, "for nothing"),
        ):
            self.assertIn(words, self.refused(load, answer))

    def test_closedConnectionIsAnError(self) -> None:
        """A connection that ends is an error."""

        def serve(ends: Sequence[socket]) -> None:
            ends[0].recv(1)
            ends[0].close()

        self.assertRaises(Broken, self.drive, http.postForm(), serve, 1)


class NumberedTests(LoaderTestCase):
    """
    Protocols whose acknowledgements identify the request.
    """

    def check(self, load: Load, answer: Callable[[int], bytes]) -> None:
        """Acknowledge eight publishes in another order, two of them at once."""
        frames = load.frames(0)

        def serve(ends: Sequence[socket]) -> None:
            take(ends[0], b"".join(frames[:4]))
            ends[0].sendall(answer(1) + answer(0))
            take(ends[0], frames[4 % len(frames)] + frames[5 % len(frames)])
            ends[0].sendall(b"".join(answer(number) for number in (5, 4, 3, 2)))
            take(ends[0], frames[6 % len(frames)] + frames[7 % len(frames)])
            ends[0].sendall(answer(6) + answer(7))

        found = self.drive(load, serve, 8)
        self.assertEqual((found.events, len(found.latencies)), (8, 8))
        self.assertIn("nothing that is under way", self.refused(load, answer(5)))

    def test_pubackMatchesByPacketId(self) -> None:
        """PUBACKs have packet identifiers."""
        load = mqtt.publishes("t", 4)
        self.check(load, lambda number: b"\x40\2" + (number + 1).to_bytes(2, "big"))
        self.assertIn("not PUBACK", self.refused(load, b"\x50\2\0\1"))

    def test_receiptMatchesById(self) -> None:
        """Receipts have ids; there may be line feeds between them."""
        load = stomp.publishes("t", 4)
        self.check(load, lambda number: b"RECEIPT\nreceipt-id:%06d\nx:y\n\n\0\n\n" % number)
        self.assertIn("ERROR.message", self.refused(load, b"ERROR\nmessage:no\n\n\0"))

    def test_natsAcknowledgementMatchesByInbox(self) -> None:
        """Acknowledgements come to inboxes, with pings between them."""
        load = nats.publishes("s", 4)
        body = b'{"stream":"s", "seq":5}'

        def answer(number: int) -> bytes:
            subject = load.frames(0)[number % 4].split(b" ")[2]
            return b"MSG %b 1 %d\r\n%b\r\nPING\r\n" % (subject, len(body), body)

        self.check(load, answer)
        wrong = answer(0).replace(b"stream", b"_error").replace(b'"_error"', b'"error" ')
        self.assertIn("wrong acknowledgement", self.refused(load, wrong))
        self.assertIn("-ERR", self.refused(load, b"-ERR 'no'\r\n"))

    def test_natsConnectionsHaveOwnInboxes(self) -> None:
        """Each NATS connection has inboxes of its own."""
        load = nats.publishes("s", 1)

        def serve(ends: Sequence[socket]) -> None:
            for number, end in enumerate(ends):
                take(end, load.frames(number)[0])
                subject = load.frames(number)[0].split(b" ")[2]
                end.sendall(b'MSG %b 1 8\r\n{"seq":1\r\n' % subject)

        self.assertEqual(self.drive(load, serve, 3, connections=3).events, 3)

    def test_amqpConfirmMatchesByTag(self) -> None:
        """Confirms have tags that rise for ever, and may be for several."""

        def ack(tag: int, isForAll: bool = False) -> bytes:
            return method(1, (60, 80), tag.to_bytes(8, "big") + bytes((isForAll,)))

        load = amqp.publishes("q", 4)
        self.check(load, lambda number: ack(number + 1))
        frame = load.frames(0)[0]

        def serve(ends: Sequence[socket]) -> None:
            take(ends[0], frame * 4)
            ends[0].sendall(ack(2) + ack(3, isForAll=True))
            take(ends[0], frame * 3)
            ends[0].sendall(ack(7, isForAll=True))

        self.assertEqual(self.drive(load, serve, 7).events, 7)
        nack = method(1, (60, 120), (1).to_bytes(8, "big") + b"\0")
        self.assertIn("not basic.ack", self.refused(load, nack))


class RespTests(LoaderTestCase):
    """
    Redis.
    """

    def test_redisIdsAreCountedInOrder(self) -> None:
        """Ids are counted, in order; errors are errors."""
        load = resp.publishes("s", 2)
        one = load.frames(0)[0]

        def serve(ends: Sequence[socket]) -> None:
            take(ends[0], one * 2)
            ends[0].sendall(b"$5\r\n1-123\r\n$3\r\n1")
            take(ends[0], one)
            ends[0].sendall(b"-2\r\n$3\r\n1-3\r\n")

        self.assertEqual(self.drive(load, serve, 3).events, 3)
        self.assertIn("-OOM", self.refused(load, b"-OOM no memory\r\n"))
        self.assertIn("not an id", self.refused(load, b"$-1\r\n"))


class FanOutTests(LoaderTestCase):
    """
    One publishes, some subscribe.
    """

    def _serve(self, qos: int, deliver: Callable[[bytes], bytes]) -> Measured:
        load = mqtt.fanOut("t", qos, window=2)

        def serve(ends: Sequence[socket]) -> None:
            publisher, *subscribers = ends
            for turn in range(2):
                frames = load.frames(0)[2 * turn : 2 * turn + 2]
                take(publisher, b"".join(frames))
                for end in subscribers:
                    data = deliver(publishPacket("t", qos, 258, CONTENT) * 2)
                    for part in (data[:5], data[5:]):
                        end.sendall(part)
                    if qos:
                        take(end, b"\x40\2\1\2" * 2)
                publisher.sendall(b"\x40\2\0\1\x40\2\0\2")

        return self.drive(load, serve, 4, connections=4)

    def test_deliveriesAreCountedAndAcknowledged(self) -> None:
        """Deliveries are counted, and acknowledged where they want it."""
        for qos in (0, 1):
            self.assertEqual(self._serve(qos, lambda data: data).events, 12)

    def test_wrongDeliveryIsAnError(self) -> None:
        """Anything but what was published is an error."""
        wrong = publishPacket("u", 1, 1, CONTENT)
        load = evolve(mqtt.fanOut("t", 1, window=1))

        def serve(ends: Sequence[socket]) -> None:
            ends[0].recv(1)
            ends[1].sendall(wrong)

        error = self.assertRaises(Broken, self.drive, load, serve, 1, 2)
        self.assertIn("not what was published", str(error))


class PlanTests(SynchronousTestCase):
    """
    What the program is told.
    """

    def test_fewerFramesThanWindowIsAnError(self) -> None:
        """There are as many frames as are under way, so that answers can tell them apart."""
        load = Load(protocol=Protocol.MQTT, frames=lambda number: [b"x"], window=2)
        self.assertRaises(ValueError, driveOn, [], load, 1.0)
