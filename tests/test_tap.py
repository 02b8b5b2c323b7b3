"""
Tests for L{svcbroker.tap}: the options, and what becomes of them.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.application.service import Application, IService, IServiceMaker, MultiService
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.error import ReactorNotRunning
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogLevel, capturedLogs, formatEvent
from twisted.plugin import getPlugins
from twisted.python.usage import Options as BaseOptions
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase
from wsproto.connection import Connection as WebSocket
from wsproto.connection import ConnectionType
from wsproto.events import TextMessage

from svcbroker import tap
from svcbroker.access import ANYBODY
from svcbroker.carriers.http.feature import HttpOptions, largestBody
from svcbroker.daemon.config import SETTINGS, GroupSetting
from svcbroker.daemon.dependencies import StartError
from svcbroker.daemon.directory import METADATA
from svcbroker.daemon.operating import OPERATOR_NAME, OperatorFileError, readOperatorFile
from svcbroker.daemon.process import TwistdProcess
from svcbroker.daemon.service import BrokerService
from svcbroker.daemon.systemd import JournalObserver
from svcbroker.errors import NotAuthorized, ParameterInvalid
from svcbroker.interfaces import Action, ILedger
from svcbroker.net import budgets
from svcbroker.net.settings import ConfigError
from svcbroker.tap import Options, makeService
from svcbroker.testing._fixtures import memoryLedger
from svcbroker.version import readVersion
from tests.carriers.http.support import Connection, requestBytes
from tests.carriers.test_websocket import UPGRADE


def noReload() -> Deferred[Sequence[str]]:
    """Read nothing again."""
    return succeed([])


def parse(*arguments: str) -> Options:
    """The options of a command line."""
    options = Options()
    options.parseOptions(list(arguments))
    return options


class OptionsTests(SynchronousTestCase):
    """
    The command line.
    """

    def test_defaultsListenOnLoopback(self) -> None:
        """Without options all ports are on loopback, and there is one group on pbft."""
        plan = parse()["plan"]
        self.assertEqual([port.name for port in plan.ports], ["http", "stomp", "mqtt"])
        for port in plan.ports:
            self.assertIsInstance(port.endpoint, TCP4ServerEndpoint)
            self.assertIn("interface=127.0.0.1", port.text)
        self.assertEqual([(group.id, group.kind) for group in plan.groups], [("1", "pbft")])

    def test_everySetting(self) -> None:
        """Each setting is an option of its name."""
        usage = Options().getUsage()
        for setting in SETTINGS:
            self.assertIn(f"--{setting.name}", usage)

    def test_valuesAreParsed(self) -> None:
        """Values are read as their settings say; what may be repeated is gathered."""
        config = parse(
            "--http=",
            "--group=1",
            "--group",
            "2=memory",
            "--ledger=memory",
            "--max-content=7",
            "--chain-timeout=0.5",
            "--cors-origin=https://a.example",
            "--cors-origin=*",
            "--access-log",
            "--data-dir=/x",
        )["config"]
        self.assertEqual(
            config.groups, (GroupSetting(id="1"), GroupSetting(id="2", ledger="memory"))
        )
        self.assertEqual((config.maxContent, config.chainTimeout), (7, 0.5))
        self.assertEqual(config.of(HttpOptions).corsOrigins, ("https://a.example", "*"))
        self.assertEqual((config.of(HttpOptions).accessLog, config.dataDir), (True, Path("/x")))

    def test_emptyEndpointSwitchesPortOff(self) -> None:
        """An empty endpoint switches a port off."""
        for name in ("http", "stomp", "mqtt"):
            ports = parse(f"--{name}=")["plan"].ports
            self.assertNotIn(name, [port.name for port in ports])

    def test_groupDescriptionWinsOverLedger(self) -> None:
        """A group's own description wins over the common one."""
        plan = parse("--group=1", "--group=2=memory", "--ledger=pbft:nodes=7")["plan"]
        self.assertEqual([group.kind for group in plan.groups], ["pbft", "memory"])

    def test_badValueIsOneLineUsageError(self) -> None:
        """What cannot be is a usage error that names the setting, in one line."""
        for argument, words in [
            ("--max-content=x", "max-content: is not a whole number: 'x'"),
            ("--max-content=-1", "max-content: is not a whole number: '-1'"),
            ("--chain-timeout=inf", "chain-timeout: is not more than 0 and at most 3600"),
            ("--log-format=xml", "log-format: is none of auto, text, json, journal: 'xml'"),
            ("--http=tcp", "http: cannot use 'tcp': "),
            ("--http=nosuch:1", "http: cannot use 'nosuch:1': Unknown endpoint type: 'nosuch'"),
            ("--stomp=nosuch:1", "stomp: cannot use 'nosuch:1': "),
            ("--mqtt=nosuch:1", "mqtt: cannot use 'nosuch:1': "),
            ("--ledger=nosuch:1", "ledger: nosuch: '1' is not a setting"),
            ("--group=2=nosuch", "group 2: there is no ledger called 'nosuch'"),
            ("--config=/nosuch", "config: cannot read /nosuch: "),
            ("--webhook-secret-file=/nosuch", "webhook-secret-file: cannot read /nosuch: "),
            ("--advertise=here", "advertise: is not host:port such as "),
            ("--webhook-allow=127.1", "webhook-allow: is neither a network such as "),
        ]:
            text = str(self.assertRaises(UsageError, parse, argument))
            self.assertTrue(text.startswith(words), text)
            self.assertNotIn("\n", text)
        for argument in ("--stomp=x", "--mqtt=x", "--nosuch", "argument"):
            self.assertRaises(UsageError, parse, argument)

    def test_optionWinsOverFile(self) -> None:
        """Options win over the file wherever they stand; a switch can be turned off."""
        path = Path(self.mktemp())
        path.write_text('max-content = 5\naccess-log = true\ngroup = ["a"]\nledger = "memory"\n')
        config = parse("--max-content=6", f"--config={path}")["config"]
        self.assertEqual((config.maxContent, config.of(HttpOptions).accessLog), (6, True))
        config = parse(f"--config={path}", "--no-access-log", "--group=b", "--group=c")["config"]
        self.assertEqual((config.maxContent, config.of(HttpOptions).accessLog), (5, False))
        self.assertEqual([group.id for group in config.groups], ["b", "c"])

    def test_helpLedgerAndVersionPrintAndExit(self) -> None:
        """C{--help-ledger} and C{--version} print, and that is all."""
        for option, words in [
            ("--help-ledger", "\npbft\n"),
            ("--version", f"svcbroker {readVersion().version}\n"),
        ]:
            printed = io.StringIO()
            self.patch(sys, "stdout", printed)
            ended = self.assertRaises(SystemExit, parse, option)
            self.assertEqual(ended.code, 0)
            self.assertIn(words, printed.getvalue())


class MakerTests(SynchronousTestCase):
    """
    From the plugin to the service.
    """

    def make(self, *arguments: str, **twistd: Any) -> Any:
        """A service, made as twistd makes it."""
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == "svcbroker"]
        options = maker.options()
        options.parent = BaseOptions()
        options.parent.update(twistd)
        options.parseOptions(["--ledger=memory", "--http=", *arguments])
        return maker.makeService(options)

    def test_twistdFindsOneMaker(self) -> None:
        """twistd finds one maker, which makes the service."""
        service = self.make()
        self.assertIsInstance(service, BrokerService)
        self.assertTrue(IService.providedBy(service))

    def test_optionsNeedNoParent(self) -> None:
        """Options without a parent do too."""
        self.assertIsInstance(makeService(parse("--ledger=memory")), BrokerService)

    def test_budgetsFollowSettingsAndMemory(self) -> None:
        """Output is what was set; input has room for some of the largest requests there may be."""
        service: Any = makeService(parse("--max-unsent=12345", "--max-content=67108864"))
        budgets = service._dependencies.budgets
        self.assertEqual(budgets.output.total, 12345)
        self.assertEqual(budgets.input.total, 4 * largestBody(67108864))

    def test_makeServiceRaisesFileLimit(self) -> None:
        """Making the service raises the limit of open files."""
        asked: list[None] = []
        self.patch(tap, "raiseFileLimit", lambda: asked.append(None))
        self.make()
        self.assertEqual(asked, [None])

    def observer(self, *arguments: str, **twistd: Any) -> Any:
        """The log observer that the service brings to its application."""
        application = Application("test")
        self.make(*arguments, **twistd).setServiceParent(application)
        return application.getComponent(ILogObserver, None)

    def test_logGoesToTwistdsLogFile(self) -> None:
        """The log goes where twistd would have written its own, in each format."""
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        event = {
            "log_time": 0.0,
            "log_format": "hello {x}",
            "x": 1,
            "log_level": LogLevel.info,
            "log_namespace": "n",
        }
        for format, line in (("json", '"message":"hello 1","x":1'), ("text", "] hello 1\n")):
            option = f"--log-format={format}"
            printed = io.StringIO()
            self.patch(sys, "stdout", printed)
            self.observer(option, logfile=None, nodaemon=True)(event)
            self.assertIn(line, printed.getvalue())
            path = Path(self.mktemp())
            self.observer(option, logfile=str(path), nodaemon=False)(event)
            self.assertIn(line, path.read_text())

    def test_logGoesToJournalWhereOutputDoes(self) -> None:
        """Unless it goes to a file, or the operator wants another format."""
        with open(self.mktemp(), "w") as printed:
            status = os.fstat(printed.fileno())
            self.patch(sys, "stdout", printed)
            environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
            self.patch(os, "environ", {**os.environ, **environment})
            self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
            for options, logfile, isJournal in (
                ([], None, True),
                (["--log-format=journal"], None, True),
                (["--log-format=text"], None, False),
                ([], self.mktemp(), False),
            ):
                observer = self.observer(*options, logfile=logfile, nodaemon=True)
                self.assertEqual(isinstance(observer._observer, JournalObserver), isJournal)

    def test_levelIsReadAgain(self) -> None:
        """From the configuration file as it is then; one with a mistake changes nothing."""
        file = Path(self.mktemp())
        printed = io.StringIO()
        self.patch(sys, "stdout", printed)
        file.write_text('log-level = "warn"')
        dataDir = Path(self.mktemp())
        dataDir.mkdir()
        arguments = (f"--config={file}", f"--data-dir={dataDir}")
        service = self.make(*arguments, logfile=None, nodaemon=True)
        application = Application("test")
        service.setServiceParent(application)
        observer: Any = application.getComponent(ILogObserver)

        def shows(level: Any) -> bool:
            printed.truncate(0)
            observer({"log_time": 0.0, "log_format": "x", "log_level": level, "log_namespace": "n"})
            return bool(printed.getvalue())

        self.assertEqual((shows(LogLevel.info), shows(LogLevel.warn)), (False, True))
        carriers = service._makeFeatures({}, "127.0.0.1:1", noReload)
        file.write_text('log-level = "loud"')
        self.failureResultOf(carriers.reload(), ConfigError)
        self.assertTrue(shows(LogLevel.warn))
        file.write_text('log-level = "error"')
        self.successResultOf(carriers.reload())
        self.assertEqual((shows(LogLevel.warn), shows(LogLevel.error)), (False, True))
        self.successResultOf(carriers.drain())
        carriers.stop()

    def test_anonymousGrantsAreReadAgain(self) -> None:
        """Those of a broker that is open to every client are not: it would start in another way."""
        file = Path(self.mktemp())
        for before, changes in (
            (["subscriber"], {"publisher": True, "": False}),
            ([], {"": True, "publisher": False}),
        ):
            dataDir = Path(self.mktemp())
            dataDir.mkdir()
            file.write_text(f"anonymous = {before}")
            carriers = self.make(f"--config={file}", f"--data-dir={dataDir}")._makeFeatures(
                {}, "", noReload
            )
            anonymous = carriers.access.anonymous
            for after, isUsed in changes.items():
                file.write_text(f"anonymous = {[after] if after else []}")
                if isUsed:
                    self.successResultOf(carriers.reload())
                else:
                    error = self.failureResultOf(carriers.reload(), ConfigError).value
                    self.assertIn("anonymous: ", str(error))
                self.assertIs(carriers.access.anonymous, anonymous)
                self.assertTrue(anonymous.may(Action.PUBLISH, "1", "t"))
            self.assertIs(anonymous.may(Action.SUBSCRIBE, "1", "t"), not before)
            self.successResultOf(carriers.drain())
            carriers.stop()

    def test_syslogKeepsItsOwnFormat(self) -> None:
        """The system's log has its own form."""
        self.assertIsNone(self.observer("--log-format=json", syslog=True))

    def test_parentNeedNotBeAnApplication(self) -> None:
        """A parent that is no application is no hindrance."""
        parent = MultiService()
        self.make("--log-format=json").setServiceParent(parent)
        self.assertEqual(len(list(parent)), 1)

    def test_siteServesLedgersAtBoundAddress(self) -> None:
        """The carrier is the broker's site over the ledgers, at the address that was bound."""
        dataDir = Path(self.mktemp())
        dataDir.mkdir()
        service = self.make(
            "--base-path=/there", "--max-content=9", "--access-log", f"--data-dir={dataDir}"
        )
        ledgers: dict[str, ILedger] = {}
        carrier = service._makeFeatures(ledgers, "127.0.0.1:1", noReload)
        self.assertEqual(carrier.calls.broker.limits.maxContent, 9)
        self.assertIsNone(self.successResultOf(carrier.start()))
        self.assertIsNone(self.successResultOf(carrier.drain()))
        carrier.stop()

    def test_dialectHasAPathOfItsOwn(self) -> None:
        """Beside the base path, or in its place: one that speaks the dialect's STOMP, too."""
        # There is no later turn, whatever a busy machine takes for this one.
        for name in ("READS_A_TURN", "READS_AT_ONCE", "WRITES_A_TURN"):
            self.patch(budgets, name, 60.0)
        for basePath, isBeside in (("/svcbroker", True), ("/weevent", False)):
            dataDir = Path(self.mktemp())
            dataDir.mkdir()
            service = self.make(
                "--dialect=weevent-1.1", f"--base-path={basePath}", f"--data-dir={dataDir}"
            )
            carrier = service._makeFeatures({"1": memoryLedger(Clock())}, "127.0.0.1:1", noReload)
            self.successResultOf(carrier.start())
            site = carrier.factories["http"]
            self.assertIn(b"GET /weevent/rest/listGroup", site.routes.endpoints)
            self.assertIs(b"GET /svcbroker/rest/open" in site.routes.endpoints, isBeside)
            client = Connection(site)
            client.send(requestBytes("GET", "/weevent/stomp", headers=UPGRADE))
            self.assertTrue(client.transport.value().startswith(b"HTTP/1.1 101 "))
            # Only the dialect answers CONNECT under a receipt.
            refused = TextMessage("CONNECT\naccept-version:9\n\n\0")
            client.send(WebSocket(ConnectionType.CLIENT).send(refused))
            self.assertIn(b"\nreceipt-id:0\n", client.transport.value())
            client.disconnect()
            self.successResultOf(carrier.drain())
            carrier.stop()

    def test_operatorFileExistsWhileServing(self) -> None:
        """While the carrier runs, operators can find it; whether faults are on is the option's."""
        for arguments in ((), ("--faults",)):
            dataDir = Path(self.mktemp())
            dataDir.mkdir()
            service = self.make(f"--data-dir={dataDir}", *arguments)
            self.assertEqual(service._plan.hasFaults, bool(arguments))
            carrier = service._makeFeatures({"1": memoryLedger(Clock())}, "127.0.0.1:1", noReload)
            self.successResultOf(carrier.start())
            self.assertEqual(readOperatorFile(dataDir).url, "http://127.0.0.1:1/svcbroker")
            error = self.failureResultOf(carrier.calls.operator.showFaults(ANYBODY, "1")).value
            self.assertIsInstance(error, ParameterInvalid if arguments else NotAuthorized)
            self.successResultOf(carrier.drain())
            self.assertFalse((dataDir / OPERATOR_NAME).exists())
            carrier.stop()

    def test_unwritableOperatorFileFailsStart(self) -> None:
        """Where operators cannot be told, the start fails with a line for them."""
        dataDir = Path(self.mktemp())
        (dataDir / OPERATOR_NAME).mkdir(parents=True)
        carrier = self.make(f"--data-dir={dataDir}")._makeFeatures({}, "127.0.0.1:1", noReload)
        error = self.failureResultOf(carrier.start(), OperatorFileError).value
        self.assertTrue(str(error).startswith("data-dir: cannot write "))

    def test_unreadableMetadataStoreFailsStart(self) -> None:
        """A metadata store that cannot be read fails the start with one line."""
        dataDir = Path(self.mktemp())
        dataDir.mkdir()
        (dataDir / METADATA).write_bytes(b"no database" * 100)
        service = self.make(f"--data-dir={dataDir}")
        error = self.assertRaises(StartError, service._makeFeatures, {}, "", noReload)
        self.assertIn(METADATA, str(error))

    def test_outdatedSettingsAreToldAtStart(self) -> None:
        """Options of earlier releases start the daemon, with a warning each."""
        dataDir = Path(self.mktemp())
        dataDir.mkdir()
        service = self.make(f"--data-dir={dataDir}", "--peer=b:1=http://b", "--max-levels=7")
        with capturedLogs() as events:
            service._makeFeatures({}, "", noReload).stop()
        told = [formatEvent(each) for each in events if each["log_level"] is LogLevel.warn]
        self.assertEqual(
            [each.partition(" is no setting any more")[0] for each in told], ["peer", "max-levels"]
        )

    def test_webhooksHaveSettingsAndSecrets(self) -> None:
        """Web hooks have the operator's settings, and the secrets of the file."""
        path = Path(self.mktemp())
        path.write_text("first secret of ours\nsecond secret of ours\n")
        plan = parse(
            *("--webhook-allow=10.0.0.0/8", "--webhook-allow=h", "--webhook-timeout=2"),
            *("--webhook-max-delay=3", f"--webhook-secret-file={path}"),
        )["plan"]
        settings = plan.read["webhooks"].settings
        self.assertTrue(settings.policy.permits("x", "10.1.1.1", 443))
        self.assertTrue(settings.policy.permits("h", "127.0.0.1", 443))
        self.assertEqual((settings.timeout, settings.maxDelay), (2, 3))
        [(name, value), _] = settings.signer.sign("", b"id", b"1", b"")
        self.assertEqual((name, value.count(b"v1,")), (b"webhook-signature", 2))
        self.assertEqual(
            parse()["plan"].read["webhooks"].settings.signer.sign("", b"id", b"1", b""), ()
        )
        path.write_text("short")
        text = str(self.assertRaises(UsageError, parse, f"--webhook-secret-file={path}"))
        self.assertIn("has a secret of less than 16 bytes", text)


class FakeReactor(Clock):
    """A reactor that runs when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[Any] = []
        self.fromThread: list[Any] = []
        self.stops = 0

    def callWhenRunning(self, f: Any, *args: Any) -> None:
        self.running.append(partial(f, *args))

    def callFromThread(self, f: Any) -> None:
        self.fromThread.append(f)

    def stop(self) -> None:
        self.stops += 1
        if self.stops > 1:
            raise ReactorNotRunning()


class ProcessTests(SynchronousTestCase):
    """
    What is done to the process.
    """

    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.process = TwistdProcess(self.reactor)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # The test run itself may have been started with SIGINT ignored.
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_DFL))
        self.patch(sys, "excepthook", sys.excepthook)
        self.errors = io.StringIO()
        self.patch(sys, "__stderr__", self.errors)

    def test_sigtermAndSigintStopReactor(self) -> None:
        """SIGTERM and SIGINT stop the reactor from its own thread, also after reactor.run."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.process.handleSignals(lambda: None)
        signal.raise_signal(signal.SIGTERM)
        self.assertEqual(len(self.reactor.fromThread), 1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.reactor.running[0]()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        self.assertEqual(len(self.reactor.fromThread), 3)
        for f in self.reactor.fromThread:
            f()
        self.assertEqual(self.reactor.stops, 3)

    def test_ignoredSignalStaysIgnored(self) -> None:
        """A signal that is ignored when the process starts stays ignored."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.process.handleSignals(lambda: None)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.SIG_IGN)

    def test_sighupReloads(self) -> None:
        """SIGHUP reloads from the reactor's thread, also in a process that nohup has started."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reloads: list[bool] = []
        self.process.handleSignals(lambda: reloads.append(True))
        signal.raise_signal(signal.SIGHUP)
        self.assertEqual(reloads, [])
        (f,) = self.reactor.fromThread
        f()
        self.assertEqual((reloads, self.reactor.stops), ([True], 0))

    def test_startErrorIsToldInOneLine(self) -> None:
        """A refused start is told in a line; other errors as always."""
        self.process.refuse("no")
        sys.excepthook(StartError, StartError("no"), None)
        self.assertEqual(self.errors.getvalue(), "svcbroker: no\n")
        self.patch(sys, "stderr", io.StringIO())
        sys.excepthook(ValueError, ValueError("x"), None)
        self.assertEqual(self.errors.getvalue(), "svcbroker: no\n")

    def test_announcedOnceReactorRuns(self) -> None:
        """What stands is announced when the reactor runs."""
        self.addCleanup(gc.unfreeze)
        announced: list[bool] = []
        self.process.started(lambda: announced.append(True))
        self.assertEqual(announced, [])
        self.reactor.running[0]()
        self.assertEqual(announced, [])
        self.reactor.advance(0)
        self.assertEqual(announced, [True])
