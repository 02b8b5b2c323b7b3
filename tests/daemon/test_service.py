"""
Tests for L{svcbroker.daemon.service}: the order of start and stop, and what goes wrong on the way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IListeningPort,
    ILoggingContext,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import ILogObserver, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.daemon.dependencies import Dependencies, StartError
from svcbroker.daemon.directory import DataDirectoryError, lockDataDirectory
from svcbroker.daemon.plan import GroupPlan, Plan
from svcbroker.daemon.ports import GatedFactory, PortPlan
from svcbroker.daemon.service import CLOSE_SHARE, BrokerService
from svcbroker.daemon.systemd import ServiceManager
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import InvalidDescription, LedgerContext
from svcbroker.net.settings import ConfigError
from svcbroker.net.tls import INTERVAL


@implementer(IListeningPort)
@define
class FakePort:
    """A port that tells when it is closed."""

    story: list[str]
    closed: Deferred[None] | None = None

    def startListening(self) -> None:
        raise AssertionError("the endpoint does that")

    def stopListening(self) -> Deferred[None] | None:
        self.story.append("stop listening")
        return self.closed

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 8123)


@implementer(IStreamServerEndpoint)
@define
class FakeEndpoint:
    """An endpoint that has its answer ready."""

    story: list[str]
    answer: Deferred[Any]
    factory: Any = None
    certificates: Any = None

    def listen(self, protocolFactory: Any) -> Deferred[Any]:
        self.story.append("listen")
        self.factory = protocolFactory
        return self.answer


@define
class FakeLedger:
    """A ledger that only starts and stops, when it is told to."""

    context: LedgerContext
    story: list[str]
    started: Deferred[None] = field(factory=lambda: succeed(None))
    stopped: Deferred[None] = field(factory=lambda: succeed(None))

    def start(self) -> Deferred[None]:
        self.story.append(f"start {self.context.group}")
        return self.started

    def stop(self) -> Deferred[None]:
        self.story.append(f"stop {self.context.group}")
        return self.stopped


@define
class FakeThread:
    """A thread that only ends."""

    story: list[str]
    name: str

    def run(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        return maybeDeferred(f, *args)

    runBriefly = run

    def stop(self) -> None:
        self.story.append(f"end {self.name}")


@define
class FakeProcess:
    """A process that remembers what was done to it."""

    story: list[str]

    def handleSignals(self, reload: Callable[[], object]) -> None:
        self.story.append("signals")

    def started(self, announce: Callable[[], None]) -> None:
        self.story.append("started")
        announce()

    def refuse(self, message: str) -> None:
        self.story.append(f"refuse: {message}")

    def fail(self, message: str) -> None:
        self.story.append(f"fail: {message}")


class FakeFactory(Factory):
    """Makes protocols, and tells when it starts and stops."""

    protocol = Protocol

    def __init__(self, story: list[str]) -> None:
        self.story = story

    def startFactory(self) -> None:
        self.story.append("open")

    def stopFactory(self) -> None:
        self.story.append("close")


@define
class FakeCarrier:
    """A carrier that is drained when it is told so."""

    story: list[str]
    factories: dict[str, FakeFactory]
    drained: Deferred[None] = field(factory=lambda: succeed(None))
    started: Deferred[None] = field(factory=lambda: succeed(None))
    reloaded: Deferred[None] = field(factory=lambda: succeed(None))
    reloadAll: Any = None

    def reload(self) -> Deferred[None]:
        self.story.append("reload")
        return self.reloaded

    def start(self) -> Deferred[None]:
        self.story.append("begin")
        return self.started

    def drain(self) -> Deferred[None]:
        self.story.append("drain")
        return self.drained

    def stop(self) -> None:
        self.story.append("let go")


class ServiceTests(SynchronousTestCase):
    """
    A service among fakes.
    """

    def setUp(self) -> None:
        self.story: list[str] = []
        self.clock = Clock()
        self.dataDir = Path(self.mktemp()) / "deep" / "data"
        self.port = FakePort(self.story)
        self.endpoint = FakeEndpoint(self.story, succeed(self.port))
        self.other = FakeEndpoint(self.story, succeed(FakePort(self.story)))
        self.carrier = FakeCarrier(
            self.story, {name: FakeFactory(self.story) for name in ("http", "other")}
        )
        self.ledgers: dict[str, FakeLedger] = {}
        self.starts: dict[str, Deferred[None]] = {}
        self.addresses: list[str] = []
        self.reopenLog: Callable[[], object] = bool
        self.messages: list[dict[str, Any]] = []
        observer = cast(ILogObserver, self.messages.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def makeLedger(self, context: LedgerContext) -> Any:
        """A fake ledger that starts as C{self.starts} says."""
        ledger = FakeLedger(context, self.story, self.starts.get(context.group) or succeed(None))
        self.ledgers[context.group] = ledger
        return ledger

    def makeService(self, withHttp: bool = True, withOther: bool = False) -> BrokerService:
        """The service under test."""
        names = {"http"} if withHttp else set()
        if withOther:
            names.add("other")
        groups = [GroupPlan(id=id, kind="fake", makeLedger=self.makeLedger) for id in ("1", "two")]
        plan = Plan(
            dataDir=self.dataDir,
            ports=[
                PortPlan(name=name, endpoint=endpoint, text=f"tcp:{text}")
                for name, endpoint, text in (
                    ("http", self.endpoint, 8123),
                    ("other", self.other, 8124),
                )
                if name in names
            ],
            basePath="/base",
            groups=groups,
            maxContent=77,
            shutdownTimeout=10.0,
            version="1.2",
        )
        dependencies = Dependencies(
            reactor=self.clock,
            now=lambda: 5.0,
            steady=lambda: 5.0,
            entropy=bytes,
            random=lambda: 0.5,
            process=FakeProcess(self.story),
            manager=ServiceManager(self.clock),
            makeThread=lambda reactor, name: FakeThread(self.story, name),  # type: ignore
        )

        def makeCarrier(ledgers: Any, address: str, reload: Any) -> Any:
            self.carrier.reloadAll = reload
            self.story.append("serve " + ",".join(ledgers))
            self.addresses.append(address)
            return self.carrier

        return BrokerService(plan, dependencies, makeCarrier, reopenLog=lambda: self.reopenLog())

    def start(self, service: BrokerService) -> None:
        """Start a service as an application does."""
        service.privilegedStartService()
        service.startService()

    STARTED = (
        "listen",
        "start 1",
        "start two",
        "serve 1,two",
        "begin",
        "open",
        "started",
        "signals",
    )

    def test_startOrder(self) -> None:
        """Bind, lock, start the ledgers one after the other, then let clients in."""
        self.start(self.makeService())
        self.assertEqual(tuple(self.story), self.STARTED)
        self.assertEqual(self.addresses, ["127.0.0.1:8123"])
        self.assertRaises(DataDirectoryError, lockDataDirectory, self.dataDir)

    def test_ledgerContextIsComplete(self) -> None:
        """A ledger is given its group, its own directory and the daemon's dependencies."""
        self.start(self.makeService())
        context = self.ledgers["two"].context
        self.assertEqual(context.group, "two")
        self.assertEqual(context.directory, self.dataDir / "two")
        self.assertTrue(self.dataDir.is_dir())
        self.assertIs(context.reactor, self.clock)
        self.assertEqual((context.now(), context.entropy(2)), (5.0, b"\0\0"))
        self.assertEqual(context.maxContent, 77)

    def test_announcedInOneLine(self) -> None:
        """One line says what is served, where, from which directory, on which ledgers."""
        self.start(self.makeService())
        (event,) = [each for each in self.messages if "served" in each]
        self.assertEqual(event["served"], "127.0.0.1:8123/base")
        self.assertEqual(event["dataDir"], str(self.dataDir.absolute()))
        self.assertEqual(event["groups"], "1 on fake, two on fake")
        self.assertEqual(event["version"], "1.2")

    def test_failedCarrierStopsLedgers(self) -> None:
        """Where the carriers cannot start, no client is accepted and the ledgers stop."""
        self.carrier.started = fail(StartError("no"))
        self.assertRaises(StartError, self.start, self.makeService())
        self.assertEqual(
            self.story[4:],
            [
                *("begin", "stop 1", "stop two", "end ledger-1", "end ledger-two"),
                *("stop listening", "refuse: no"),
            ],
        )

    def test_noClientBeforeLedgersStarted(self) -> None:
        """While a ledger starts, no client is accepted."""
        self.starts["two"] = Deferred()
        self.start(self.makeService())
        self.assertNotIn("open", self.story)
        self.assertIsNone(self.endpoint.factory.buildProtocol(None))
        self.starts["two"].callback(None)
        self.assertEqual(self.story[3:], ["signals", "serve 1,two", "begin", "open", "started"])
        self.assertIsInstance(self.endpoint.factory.buildProtocol(None), Protocol)

    def test_stopIsStartReversed(self) -> None:
        """The stop is the start backwards, each step after the one before."""
        service = self.makeService()
        self.start(service)
        del self.story[:]
        self.port.closed = Deferred()
        self.carrier.drained = Deferred()
        self.ledgers["1"].stopped = Deferred()
        stopping = service.stopService()
        self.assertEqual(self.story, ["stop listening"])
        self.port.closed.callback(None)
        self.assertEqual(self.story, ["stop listening", "drain"])
        self.carrier.drained.callback(None)
        self.assertEqual(self.story[2:], ["stop 1", "stop two"])
        self.assertNoResult(stopping)
        self.ledgers["1"].stopped.callback(None)
        self.assertEqual(self.story[4:], ["end ledger-1", "end ledger-two", "close", "let go"])
        self.assertIsNone(self.successResultOf(stopping))
        lockDataDirectory(self.dataDir).release()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_certificatesAreReadInAThread(self) -> None:
        """From the start of a port that serves some until its stop, and on a reload."""
        readings: list[bool] = []

        class Certificates:
            def read(self, isForced: bool) -> None:
                readings.append(isForced)

        self.endpoint.certificates = Certificates()
        service = self.makeService()
        self.start(service)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.successResultOf(service.reload()), [])
        self.assertEqual(readings, [False, True])
        del self.story[:]
        self.successResultOf(service.stopService())
        self.assertEqual(self.story[:3], ["end certificates", "stop listening", "drain"])
        self.assertEqual(self.successResultOf(service.reload()), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reloadsAreMadeOneAfterTheOther(self) -> None:
        """By signals and operator calls, while the daemon runs."""
        service = self.makeService()
        self.start(service)
        del self.story[:]
        self.carrier.reloaded = Deferred()
        first, second = service.reload(), self.carrier.reloadAll()
        self.assertEqual(self.story, ["reload"])
        self.carrier.reloaded.callback(None)
        self.assertEqual(self.successResultOf(first), [])
        self.assertEqual(self.successResultOf(second), [])
        self.assertEqual(self.story, ["reload", "reload"])
        self.successResultOf(service.stopService())
        del self.story[:]
        self.assertEqual(self.successResultOf(service.reload()), [])
        self.assertEqual(self.story, [])

    def test_reloadOpensTheLogAgain(self) -> None:
        """Also beside a file with a mistake, which tells why it stays as it was."""
        service = self.makeService()
        self.start(service)
        opened: list[bool] = []
        self.reopenLog = lambda: opened.append(True)
        self.carrier.reloaded = fail(ConfigError("x"))
        self.assertEqual(len(self.successResultOf(service.reload())), 1)
        self.assertEqual(opened, [True])

        def refuse() -> None:
            raise FileNotFoundError(2, "No such file", "log")

        self.reopenLog, self.carrier.reloaded = refuse, succeed(None)
        [line] = self.successResultOf(service.reload())
        self.assertIn("The log stays in the file that it had: ", line)
        self.successResultOf(service.stopService())

    def test_filesThatCannotBeUsedAreTold(self) -> None:
        service = self.makeService()
        self.start(service)
        for error in (ConfigError("x: is bad"), InvalidDescription("x: is bad")):
            self.carrier.reloaded = fail(error)
            [line] = self.successResultOf(service.reload())
            self.assertEqual(line, "Accounts and settings stay as they were: x: is bad")
        self.carrier.reloaded = fail(RuntimeError())
        [line] = self.successResultOf(service.reload())
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertIn("see the log", line)
        self.successResultOf(service.stopService())

    def test_hangingCertificatesDoNotStopTheStop(self) -> None:
        class Certificates:
            def read(self, isForced: bool) -> Deferred[None]:
                return Deferred()

        self.endpoint.certificates = Certificates()
        service = self.makeService()
        self.start(service)
        self.clock.advance(INTERVAL)
        stopping = service.stopService()
        self.assertNotIn("stop listening", self.story)
        self.clock.advance(10.0 * CLOSE_SHARE)
        self.successResultOf(stopping)
        self.assertNotIn("end certificates", self.story)

    def test_startsWithoutHttp(self) -> None:
        """A service without HTTP starts and stops its ledgers."""
        service = self.makeService(withHttp=False)
        self.start(service)
        self.assertEqual(self.addresses, [""])
        del self.story[:]
        self.successResultOf(service.stopService())
        self.assertEqual(self.story[:3], ["drain", "stop 1", "stop two"])

    def test_busyPortFailsStart(self) -> None:
        """A port that cannot be had ends the start in a line."""
        busy = CannotListenError("127.0.0.1", 8123, OSError(98, os.strerror(98)))
        self.endpoint.answer = fail(busy)
        service = self.makeService()
        error = self.assertRaises(StartError, service.privilegedStartService)
        self.assertIn("http: cannot listen on tcp:8123: Address already in use: give", str(error))
        self.assertEqual(self.story, ["listen", f"refuse: {error}"])

    def test_unusableDataDirectoryFailsStart(self) -> None:
        """A data directory that cannot be made ends the start in a line; the port is closed."""
        self.dataDir.parent.parent.mkdir()
        self.dataDir.parent.write_text("a file")
        error = self.assertRaises(StartError, self.start, self.makeService())
        self.assertEqual(
            str(error),
            f"data-dir: cannot make {self.dataDir}: {self.dataDir.parent} is not a directory: give "
            "a directory",
        )
        self.assertEqual(self.story, ["listen", "stop listening", f"refuse: {error}"])

    def test_lockedDataDirectoryFailsStart(self) -> None:
        """A data directory that another daemon has ends the start in a line."""
        self.addCleanup(lockDataDirectory(self.dataDir).release)
        error = self.assertRaises(StartError, self.start, self.makeService())
        self.assertEqual(str(error), f"data-dir: another svcbroker is using {self.dataDir}")

    def test_refusingLedgerFailsStart(self) -> None:
        """A ledger that cannot be opened ends the start; those that stand are stopped."""
        self.starts["two"] = fail(LedgerUnavailable("the file is damaged"))
        error = self.assertRaises(StartError, self.start, self.makeService())
        self.assertEqual(str(error), "group two: the file is damaged")
        self.assertEqual(
            self.story[1:],
            [
                "start 1",
                "start two",
                "end ledger-two",
                "stop 1",
                "end ledger-1",
                "stop listening",
                f"refuse: {error}",
            ],
        )
        lockDataDirectory(self.dataDir).release()

    def test_lateLedgerFailureEndsProcess(self) -> None:
        """So does one that finds out when the reactor runs; then the process is ended."""
        self.starts["two"] = Deferred()
        service = self.makeService()
        self.start(service)
        self.starts["two"].errback(LedgerUnavailable("nobody answers"))
        self.assertEqual(self.story[-1], "fail: group two: nobody answers")
        self.assertIn("stop 1", self.story)
        self.successResultOf(service.stopService())
        lockDataDirectory(self.dataDir).release()

    def test_unexpectedErrorIsRaisedOrLogged(self) -> None:
        """What nobody foresaw is raised as it is, or logged with its traceback."""
        self.starts["1"] = fail(ZeroDivisionError("oh"))
        self.assertRaises(ZeroDivisionError, self.start, self.makeService())
        self.starts["1"] = Deferred()
        self.endpoint.answer = succeed(self.port)
        self.start(self.makeService())
        self.starts["1"].errback(ZeroDivisionError("oh"))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(
            self.story[-1], "fail: the start failed for an unforeseen reason; see the log"
        )

    def test_stopWhileStarting(self) -> None:
        """A stop during the start stops what stands, and is no failure."""
        self.starts["two"] = Deferred()
        service = self.makeService()
        self.start(service)
        self.successResultOf(service.stopService())
        self.assertEqual(self.story[4:], ["stop 1", "end ledger-1", "stop listening"])
        lockDataDirectory(self.dataDir).release()

    def test_slowClientsGetHalfTheTime(self) -> None:
        """Clients have half of the time to take their answers; then the ledgers stop."""
        service = self.makeService()
        self.start(service)
        self.carrier.drained = Deferred()
        stopping = service.stopService()
        self.clock.advance(4.9)
        self.assertNotIn("stop 1", self.story)
        self.clock.advance(0.2)
        self.successResultOf(stopping)
        self.assertIn("stop 1", self.story)
        self.assertFalse([each for each in self.story if each.startswith("fail")])

    def test_hangingLedgerIsGivenUp(self) -> None:
        """A ledger that does not stop in time is given up, and the process says so."""
        service = self.makeService()
        self.start(service)
        self.ledgers["two"].stopped = Deferred()
        stopping = service.stopService()
        self.clock.advance(9.9)
        self.assertNoResult(stopping)
        self.clock.advance(0.2)
        self.successResultOf(stopping)
        self.assertIn("fail: group two did not stop in time; answers may be lost", self.story)
        self.assertNotIn("end ledger-1", self.story)
        lockDataDirectory(self.dataDir).release()

    def test_hangingPortDelaysNone(self) -> None:
        """A port that does not close does not keep the rest from stopping."""
        service = self.makeService()
        self.start(service)
        self.port.closed = Deferred()
        stopping = service.stopService()
        self.clock.advance(10)
        self.successResultOf(stopping)
        self.assertIn("stop 1", self.story)

    def test_failingLedgerIsReported(self) -> None:
        """A ledger that fails to stop is told of, and the rest stops."""
        service = self.makeService()
        self.start(service)
        self.ledgers["1"].stopped = fail(ZeroDivisionError())
        self.successResultOf(service.stopService())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("fail: group 1 did not stop in order; see the log", self.story)
        self.assertEqual(self.story[-1], "let go")
        lockDataDirectory(self.dataDir).release()

    def test_gatedFactoryHasLogPrefix(self) -> None:
        """A gated factory is what a port wants: a factory with a name for the log."""
        self.assertTrue(verifyObject(IProtocolFactory, GatedFactory("http")))
        self.assertTrue(verifyObject(ILoggingContext, GatedFactory("http")))
        self.assertEqual(GatedFactory("http").logPrefix(), "HTTP")

    def test_portsBindFirstAndOpenLast(self) -> None:
        """All ports are bound first, opened last and closed together; each has its own factory."""
        service = self.makeService(withOther=True)
        self.start(service)
        self.assertEqual(self.story[:3], ["listen", "listen", "start 1"])
        self.assertEqual(self.story.count("open"), 2)
        self.assertEqual(service.address, "127.0.0.1:8123")
        protocol = self.other.factory.buildProtocol(None)
        protocol.makeConnection(StringTransport())
        self.assertIs(protocol.factory, self.carrier.factories["other"])
        self.assertEqual(self.other.factory.logPrefix(), "OTHER")
        self.successResultOf(service.stopService())
        self.assertEqual(self.story.count("stop listening"), 2)

    def test_busyPortNamesSetting(self) -> None:
        """The refusal names the setting of the port."""
        self.other.answer = fail(CannotListenError("", 8124, OSError(98, "Address in use")))
        service = self.makeService(withOther=True)
        error = self.assertRaises(StartError, service.privilegedStartService)
        self.assertIn("other: cannot listen on tcp:8124: Address in use: give", str(error))

    def test_withoutHttpNoAddress(self) -> None:
        """Without HTTP there is no address."""
        service = self.makeService(withHttp=False, withOther=True)
        self.start(service)
        self.assertEqual((service.address, self.addresses), ("", [""]))
        self.assertIsNotNone(self.other.factory.buildProtocol(None))

    def test_openFactoryBuildsProtocols(self) -> None:
        """An open factory makes the carrier's protocols."""
        self.start(self.makeService())
        protocol = self.endpoint.factory.buildProtocol(None)
        protocol.makeConnection(StringTransport())
        self.assertIs(protocol.factory, self.carrier.factories["http"])
