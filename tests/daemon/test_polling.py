"""
Tests for L{svcbroker.daemon.process}, which uses private attributes of Twisted's epoll reactor.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.task import Clock
from twisted.python import context
from twisted.python.failure import Failure
from twisted.python.log import ILogContext
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon import process
from svcbroker.daemon.process import EVENTS_AT_ONCE, READING, READING_LONG, pollWithoutContext


class Reader(FileDescriptor):
    """
    One end of a connection, which does what a test says with what it reads.

    @ivar received: what it has read.
    @ivar system: what the old log's context said then.
    @ivar reason: why the connection was lost.
    """

    def __init__(self, reactor: EPollReactor, end: socket.socket) -> None:
        super().__init__(reactor)
        self.received: list[bytes] = []
        self.system: object = None
        self.reason: Failure | None = None
        self.error: Exception | None = None
        self._end = end
        self.startReading()

    def fileno(self) -> int:
        return self._end.fileno()

    def doRead(self) -> Any:
        data = self._end.recv(100)
        self.received.append(data)
        self.system = context.get(ILogContext)["system"]
        return None if data else CONNECTION_DONE

    def connectionLost(self, reason: Failure) -> None:
        self.stopReading()
        self.reason = reason
        self._end.close()
        if self.error is not None:
            raise self.error


class PollingTests(SynchronousTestCase):
    """
    The reactor reads, and finds out that connections end, as it does without.
    """

    def setUp(self) -> None:
        self.reactor = EPollReactor()
        self.addCleanup(self.reactor._poller.close)
        for waker in self.reactor.getReaders():
            self.addCleanup(waker.connectionLost, None)
        # The processor time of the thread, which alone uses the processor here.
        self.worked: Callable[[], float] = lambda: self.reactor.seconds()
        pollWithoutContext(self.reactor, lambda: self.worked())

    def connect(self) -> tuple[Reader, socket.socket]:
        own, other = socket.socketpair()
        self.addCleanup(own.close)
        self.addCleanup(other.close)
        return Reader(self.reactor, own), other

    def test_dataIsReadOutsideOfALoggingContext(self) -> None:
        reader, other = self.connect()
        self.reactor.doIteration(0)
        self.assertEqual(reader.received, [])
        other.send(b"data")
        self.reactor.doIteration(None)
        self.assertEqual((reader.received, reader.system), ([b"data"], "-"))

    def test_endOfAConnectionIsTold(self) -> None:
        reader, other = self.connect()
        other.close()
        self.reactor.doIteration(0)
        assert reader.reason is not None
        reader.reason.trap(type(CONNECTION_DONE))
        self.assertNotIn(reader, self.reactor.getReaders())

    def test_failureAtTheEndOfAConnectionIsLogged(self) -> None:
        """Other connections are read in the same turn."""
        self.patch(self.reactor, "seconds", lambda: 0.0)
        readers = []
        for _ in range(3):
            reader, other = self.connect()
            reader.error = ZeroDivisionError()
            other.close()
            readers.append(reader)
        self.reactor.doIteration(0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 3)
        self.assertNotIn(None, [reader.reason for reader in readers])

    def test_connectionClosedInTheSameTurnIsNotRead(self) -> None:
        ends = [self.connect() for _ in range(2)]
        for reader, other in ends:
            reader.connectionLost = lambda _: [each.stopReading() for each, _ in ends]  # type: ignore
            other.close()
        self.reactor.doIteration(0)
        self.assertEqual(sorted(len(reader.received) for reader, _ in ends), [0, 1])

    def test_aTurnReadsForABoundedTime(self) -> None:
        """The connections that are left are read in the next turns, all of them about as often."""
        ends = [self.connect() for _ in range(3 * EVENTS_AT_ONCE)]
        self.readFrom(ends, 100, difference=3)

    def test_fewConnectionsThatTakeLongAreReadInTurns(self) -> None:
        """A turn ends among those that the kernel has told of together, too."""
        self.readFrom([self.connect() for _ in range(EVENTS_AT_ONCE // 2)], 10, 2)

    def readFrom(
        self, ends: Sequence[tuple[Reader, socket.socket]], atOnce: int, difference: int
    ) -> None:
        """Read from connections, where a turn has time for C{atOnce} of them."""
        times = count(0)
        self.patch(self.reactor, "seconds", lambda: next(times) * READING / atOnce)
        for _, other in ends:
            other.send(b"x" * 1000)
        for turn in range(1, 8):
            self.reactor.doIteration(0)
            found = [len(reader.received) for reader, _ in ends]
            self.assertLessEqual(sum(found), turn * atOnce)
            self.assertGreaterEqual(sum(found), turn * (atOnce - 1))
            self.assertLessEqual(max(found) - min(found), difference)

    def test_timeOfOtherProcessesEndsNoTurn(self) -> None:
        """The processor is used by others most of the time: a turn would read from few clients."""
        ends = [self.connect() for _ in range(EVENTS_AT_ONCE)]
        for _, other in ends:
            other.send(b"x" * 1000)
        times, works = count(0), count(0)
        self.patch(self.reactor, "seconds", lambda: next(times) * READING)
        self.worked = lambda: next(works) * READING / 49.5
        for found in (50, 64 + 36):
            self.reactor.doIteration(0)
            self.assertEqual(sum(len(reader.received) for reader, _ in ends), found)

    def test_connectionsThatTakeLongArePassedOverBesidePublishes(self) -> None:
        """They are read from in turns, and all others in each; while nobody publishes, all are."""
        now = [0.0]
        self.patch(self.reactor, "seconds", lambda: now[0])
        ends = [self.connect() for _ in range(2 * EVENTS_AT_ONCE)]
        for number, (reader, other) in enumerate(ends):
            seconds = 0.9 * READING_LONG if number % 8 == 0 and number < 40 else 5e-5

            def doRead(reader: Reader = reader, seconds: float = seconds) -> Any:
                now[0] += seconds
                return Reader.doRead(reader)

            reader.doRead = doRead  # type: ignore[method-assign]
            other.send(b"x" * 10_000)

        def read() -> tuple[list[int], list[int]]:
            before = [len(reader.received) for reader, _ in ends]
            self.reactor.doIteration(0)
            found = [len(reader.received) for reader, _ in ends]
            times = [one - other for one, other in zip(found, before, strict=True)]
            long = [each for number, each in enumerate(times) if number % 8 == 0 and number < 40]
            return long, times[40:]

        isShared = [False]
        self.reactor.isShared = lambda: isShared[0]  # type: ignore[attr-defined]
        self.patch(process, "READING", 0.02)
        self.assertTrue(all(read()[0]))
        isShared[0] = True
        total = [0] * 5
        for _ in range(10):
            long, others = read()
            self.assertTrue(all(others))
            self.assertLessEqual(sum(long), 2)
            total = [one + each for one, each in zip(total, long, strict=True)]
        self.assertGreaterEqual(min(total), 1)
        self.assertLessEqual(max(total) - min(total), 1)

    def test_whatClientsSendIsReadBeforeAnswersAreSentOn(self) -> None:
        """While others publish a few. But in each turn, the rest of one answer is sent."""
        now, done = [0.0], list[object]()
        self.patch(self.reactor, "seconds", lambda: now[0])
        self.patch(process, "READING", 4 * READING_LONG)
        self.reactor.isShared = lambda: True  # type: ignore[attr-defined]

        def work(what: object) -> None:
            now[0] += READING_LONG / 7
            done.append(what)

        for number in range(8):
            reader, other = self.connect()
            other.send(b"x")
            reader.doRead = partial(work, "read")  # type: ignore[method-assign]
            writer, _ = self.connect()
            writer.doWrite = partial(work, number)  # type: ignore[method-assign]
            writer.startWriting()
        written = []
        for _ in range(8):
            self.reactor.doIteration(0)
            self.assertEqual(done[:8], ["read"] * 8)
            written += done[8:]
            done.clear()
        self.assertEqual(sorted(written), list(range(8)))

    def test_reactorTellsWhetherItIsBehind(self) -> None:
        """Until all that could be read when it began has been read."""
        reactor: Any = self.reactor
        during: list[bool] = []

        class Behind(Reader):
            def doRead(self) -> Any:
                during.append(reactor.isBehind)
                return super().doRead()

        for _ in range(10):
            own, other = socket.socketpair()
            self.addCleanup(own.close)
            self.addCleanup(other.close)
            Behind(reactor, own)
            other.send(b"x")
        times = count(0)
        self.patch(reactor, "seconds", lambda: next(times) * READING / 6)
        behind = []
        for _ in range(3):
            reactor.doIteration(0)
            behind.append(reactor.isBehind)
        self.assertEqual((len(during), behind), (10, [True, True, False]))
        self.assertEqual(during, sorted(during))
        self.assertEqual(sum(during), 5)

    def test_manyShortReadsAreOfOneTurn(self) -> None:
        ends = [self.connect() for _ in range(3 * EVENTS_AT_ONCE + 1)]
        for _, other in ends:
            other.send(b"x")
        self.patch(self.reactor, "seconds", lambda: 0.0)
        self.reactor.doIteration(0)
        self.assertEqual({len(reader.received) for reader, _ in ends}, {1})

    def test_callsAreMadeAfterAllReads(self) -> None:
        """They do not wait for anything to be read. What they add is made in the next turn."""
        self.patch(self.reactor, "seconds", lambda: 0.0)
        done: list[object] = []
        call: Callable[[Callable[[], object]], None] = self.reactor.callAfterReads  # type: ignore

        def read(reader: Reader) -> None:
            done.append(reader._end.recv(100))
            if len(done) == 1:
                call(lambda: call(lambda: done.append("next")))
                call(lambda: done.append("end"))

        for reader, other in [self.connect() for _ in range(2)]:
            reader.doRead = partial(read, reader)  # type: ignore[method-assign]
            other.send(b"data")
        self.reactor.doIteration(None)
        self.assertEqual(done, [b"data", b"data", "end"])
        self.reactor.doIteration(0)
        self.assertEqual(done[3:], ["next"])

    def test_callsAddedBetweenTurnsAreMadeBeforeReads(self) -> None:
        """Answers of timed calls are sent before their clients are looked at."""
        done: list[object] = []
        call: Callable[[Callable[[], object]], None] = self.reactor.callAfterReads  # type: ignore
        reader, other = self.connect()
        reader.received = done  # type: ignore[assignment]
        call(lambda: call(lambda: done.append("end")))
        call(lambda: other.send(b"answered"))
        self.reactor.doIteration(None)
        self.assertEqual(done, [b"answered", "end"])

    def test_callAddedByReadIsMadeInTheSameTurn(self) -> None:
        done: list[object] = []
        reader, other = self.connect()
        reader.doRead = lambda: self.reactor.callAfterReads(  # type: ignore
            partial(done.append, "end")
        )
        other.send(b"data")
        self.reactor.doIteration(None)
        self.assertEqual(done, ["end"])

    def test_failureOfACallAfterReadsIsLogged(self) -> None:
        done: list[str] = []
        call: Callable[[Callable[[], object]], None] = self.reactor.callAfterReads  # type: ignore
        call(lambda: 1 / 0)
        call(lambda: done.append("other"))
        self.reactor.doIteration(None)
        self.assertEqual(done, ["other"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_otherVersionOfTheReactorStaysAsItIs(self) -> None:
        reactor = EPollReactor()
        for waker in reactor.getReaders():
            self.addCleanup(waker.connectionLost, None)
        self.addCleanup(reactor._poller.close)
        poll = reactor.doIteration
        del reactor._selectables
        pollWithoutContext(reactor)
        self.assertEqual(reactor.doIteration, poll)

    def test_otherReactorsStayAsTheyAre(self) -> None:
        clock = Clock()
        pollWithoutContext(clock)
        self.assertFalse(hasattr(clock, "doIteration"))
