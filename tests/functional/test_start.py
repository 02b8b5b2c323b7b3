"""
How the daemon starts and stops, and how it says that it cannot.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

import treq
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from .daemon import LOCAL, OFF, RUN, TIMEOUT, DaemonTestCase, until

LATE_PLUGIN = """
from zope.interface import implementer

from twisted.internet.defer import Deferred
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import ILedgerFactory
from svcbroker.ledgers.memory import MemoryLedger


class Late(MemoryLedger):
    def __init__(self, context):
        super().__init__(context)
        self.context = context

    def start(self):
        started = Deferred()
        self.context.reactor.callLater(
            0, started.errback, LedgerUnavailable("the chain is not there")
        )
        return started


@implementer(ILedgerFactory)
class LateFactory:
    name = "late"
    summary = "Finds out late that it cannot start."
    settings = {}

    def configure(self, settings):
        return Late


late = LateFactory()
"""


def portOf(base: str) -> int:
    """The port of a base address."""
    port = urlsplit(base).port
    assert port is not None
    return port


class StopTests(DaemonTestCase):
    """
    Signals.
    """

    isForked = False

    async def test_signalsStopDaemonWithStatusZero(self) -> None:
        """SIGTERM and SIGINT end the daemon in order, with status 0."""
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = await self.start()
            self.assertEqual(await daemon.stop(number), 0)
            self.assertIn("Stopped", daemon.protocol.output)
            self.assertEqual(daemon.protocol.errors, "")

    async def test_closedTerminalStopsDaemon(self) -> None:
        """And SIGHUP alone does not; nor does a closed terminal under nohup."""
        options = [f"--http={LOCAL}", "--ledger=memory", f"--data-dir={self.dataDir}", *OFF]
        twistd = [sys.executable, "-c", RUN, "-n", "--pidfile=", "svcbroker"]
        daemon = self.spawn(*twistd, *options, hasTerminal=True)
        await daemon.serves()
        daemon.process.signalProcess(signal.SIGHUP)
        self.assertIs(await daemon.call("/rest/exist", topic="t"), False)
        daemon.process.loseConnection()
        self.assertEqual(await daemon.exits(), 0)
        # As nohup does it, which also puts the output into a file.
        ignoring = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
        daemon = self.spawn(*ignoring, *twistd, *options, hasTerminal=True)
        await daemon.serves()
        daemon.process.loseConnection()
        self.assertIs(await daemon.call("/rest/exist", topic="t"), False)
        self.assertEqual(await daemon.stop(), 0)

    async def test_daemonizedBrokerServesAndStops(self) -> None:
        """In the background: the starter ends with 0, the daemon serves, and stops in order."""
        pidFile, logFile = self.root / "x.pid", self.root / "x.log"
        starter = self.run_(
            [f"--http={LOCAL}", "--ledger=memory", f"--data-dir={self.dataDir}"],
            twistd=[f"--pidfile={pidFile}", f"--logfile={logFile}"],
        )
        self.assertEqual(await starter.exits(), 0)
        pid = int(pidFile.read_text())
        descriptor = os.pidfd_open(pid)
        self.addCleanup(os.close, descriptor)
        os.kill(pid, signal.SIGTERM)
        ready, _, _ = await deferToThread(select.select, [descriptor], [], [], TIMEOUT)
        self.assertEqual(ready, [descriptor])
        self.assertIn("Stopped", logFile.read_text())
        self.assertFalse(pidFile.exists())


class PrivacyTests(DaemonTestCase):
    """
    The modes of what is in the data directory.
    """

    async def test_dataIsReadableByItsOwnerOnly(self) -> None:
        """All files are private while a daemon runs, whatever the umask and their modes were."""
        (self.dataDir / "1").mkdir(parents=True)
        for name in ("1/left.txt", "left.txt"):
            (self.dataDir / name).write_text("of an older version")
            (self.dataDir / name).chmod(0o664)
        for directory in (self.dataDir / "1", self.dataDir):
            directory.chmod(0o777)
        elsewhere = self.root / "elsewhere"
        elsewhere.write_text("not ours")
        elsewhere.chmod(0o644)
        (self.dataDir / "link").symlink_to(elsewhere)
        before = os.umask(0)
        try:
            # A daemon inherits it.
            daemon = await self.start(ledger="pbft:nodes=4")
        finally:
            os.umask(before)
        await daemon.call("/rest/open", topic="t")
        found = [self.dataDir, *self.dataDir.rglob("*")]
        self.assertIn(self.dataDir / "1" / "ledger.sqlite-wal", found)
        self.assertIn(self.dataDir / "notes.sqlite", found)
        shared = [path for path in found if not path.is_symlink() and path.stat().st_mode & 0o077]
        self.assertEqual(shared, [])
        self.assertEqual(elsewhere.stat().st_mode & 0o777, 0o644)


class AnnouncementTests(DaemonTestCase):
    """
    The log of a start.
    """

    async def test_sixLinesNameTheConsoleAndTheData(self) -> None:
        daemon = await self.start(f"--stomp={LOCAL}", f"--mqtt={LOCAL}")
        url = (await daemon.protocol.waitFor(r"The console is at (\S+)"))[1]
        self.assertEqual(url, f"{daemon.base}/console")
        lines = daemon.protocol.output.splitlines()
        self.assertLessEqual(len(lines), 6, lines)
        self.assertIn(f"data in {self.dataDir}", daemon.protocol.output)


class RefusalTests(DaemonTestCase):
    """
    A refused start: one line on standard error, and exit status 1.
    """

    async def test_busyPortIsRefused(self) -> None:
        """A port that is in use."""
        first = await self.start()
        http = f"tcp:{portOf(first.base)}:interface=127.0.0.1"
        line = await self.refused(
            f"--http={http}", "--ledger=memory", f"--data-dir={self.root / 'other'}"
        )
        self.assertIn(f"svcbroker: http: cannot listen on {http}: Address already in use: ", line)

    async def test_usedDataDirectoryIsRefused(self) -> None:
        """A data directory in use by another daemon; it is free after that one ends."""
        first = await self.start()
        arguments = (f"--http={LOCAL}", "--ledger=memory", f"--data-dir={self.dataDir}")
        line = await self.refused(*arguments)
        self.assertEqual(line, f"svcbroker: data-dir: another svcbroker is using {self.dataDir}")
        await first.stop(signal.SIGKILL)
        await self.start()

    async def test_dataDirectoryBelowFileIsRefused(self) -> None:
        """A data directory whose parent is a file."""
        (self.root / "file").write_text("")
        path = self.root / "file" / "data"
        line = await self.refused(f"--http={LOCAL}", "--ledger=memory", f"--data-dir={path}")
        self.assertIn(f"svcbroker: data-dir: cannot make {path}: {path.parent} is not a", line)

    async def test_unwritableDataDirectoryIsRefused(self) -> None:
        """A data directory without write permission."""
        if os.geteuid() == 0:
            raise SkipTest("root may write anywhere")
        self.dataDir.mkdir(mode=0o500)
        line = await self.refused(
            f"--http={LOCAL}", "--ledger=memory", f"--data-dir={self.dataDir}"
        )
        self.assertIn("Permission denied", line)

    async def test_damagedLedgerIsRefused(self) -> None:
        """A ledger file that is no database."""
        for path in (self.dataDir, self.dataDir / "1"):
            path.mkdir()
        (self.dataDir / "1" / "ledger.sqlite").write_bytes(b"not a database" * 1000)
        line = await self.refused(
            f"--http={LOCAL}", "--ledger=pbft:nodes=4", f"--data-dir={self.dataDir}"
        )
        self.assertTrue(line.startswith("svcbroker: group 1: "), line)
        self.assertIn("ledger.sqlite", line)

    async def test_damagedSecondLedgerIsRefused(self) -> None:
        """A damaged second ledger, reported before twistd daemonizes."""
        (self.dataDir / "b").mkdir(parents=True)
        (self.dataDir / "b" / "ledger.sqlite").write_bytes(b"not a database" * 1000)
        pidFile, logFile = self.root / "x.pid", self.root / "x.log"
        starter = self.run_(
            [f"--http={LOCAL}", f"--data-dir={self.dataDir}", "--group=a", "--group=b"],
            twistd=[f"--pidfile={pidFile}", f"--logfile={logFile}"],
        )
        self.assertEqual(await starter.exits(), 1)
        self.assertIn("group b: ", starter.protocol.errors)
        await until(lambda: not pidFile.exists())

    async def test_ledgerFailingLateStopsStart(self) -> None:
        """A ledger that fails after the reactor has started."""
        self.pluginPath = self.root / "elsewhere"
        plugins = self.pluginPath / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "late_ledger.py").write_text(LATE_PLUGIN)
        line = await self.refused(f"--http={LOCAL}", "--ledger=late", f"--data-dir={self.dataDir}")
        self.assertEqual(line, "svcbroker: group 1: the chain is not there")

    async def test_daemonizedRefusalReachesStarter(self) -> None:
        """The starter reports a refusal in the background, and no pid file stays."""
        await self.start()
        pidFile, logFile = self.root / "x.pid", self.root / "x.log"
        starter = self.run_(
            [f"--http={LOCAL}", "--ledger=memory", f"--data-dir={self.dataDir}"],
            twistd=[f"--pidfile={pidFile}", f"--logfile={logFile}"],
        )
        self.assertEqual(await starter.exits(), 1)
        self.assertIn("another svcbroker", starter.protocol.errors)
        self.assertNotIn("Traceback", starter.protocol.errors + logFile.read_text())
        self.assertIn("another svcbroker", logFile.read_text())
        # What runs in the background ends after it has told its starter.
        await until(lambda: not pidFile.exists())


class AccessTests(DaemonTestCase):
    """
    What the daemon listens on, and who may use it.
    """

    async def test_withoutAccountsOnlyLoopbackIsServed(self) -> None:
        """The refusal is one line, with status 1, and nothing is written."""
        for where in ("tcp:0", f"haproxy:{LOCAL}"):
            daemon = self.run_([f"--http={where}", *OFF, f"--data-dir={self.dataDir}"])
            self.assertEqual(await daemon.exits(), 1)
            [line] = daemon.protocol.errors.strip().splitlines()
            self.assertTrue(line.startswith(f"svcbroker: http: {where} is not known"), line)
            self.assertIn("--accounts FILE", line)
            self.assertIn("--anonymous GRANTS", line)
        self.assertFalse(self.dataDir.exists())

    async def test_anonymousGrantsAreWarnedOf(self) -> None:
        daemon = await self.run_(
            [
                *(f"--http=haproxy:{LOCAL}", *OFF, f"--data-dir={self.dataDir}"),
                *("--ledger=memory", "--anonymous=subscriber, publish * a"),
            ]
        ).serves()
        self.assertIn(
            "Clients without credentials are granted: subscriber; publish * a",
            daemon.protocol.output,
        )

    async def test_anOpenBrokerSaysSo(self) -> None:
        daemon = await self.run_(
            [f"--http={LOCAL}", *OFF, f"--data-dir={self.dataDir}", "--ledger=memory"]
        ).serves()
        self.assertEqual(daemon.protocol.output.count("There are no accounts"), 1)


class OptionTests(DaemonTestCase):
    """
    Options on the command line and in the file.
    """

    async def usageError(self, *arguments: str) -> str:
        """The one line that twistd writes for options that cannot be, without its usage."""
        daemon = self.run_(arguments)
        self.assertEqual(await daemon.exits(), 2)
        [line] = (daemon.protocol.output + daemon.protocol.errors).splitlines()
        self.assertTrue(line.startswith("twistd svcbroker: "), line)
        return line

    async def test_badValuesAreRefusedByName(self) -> None:
        """Bad values are refused with the setting's name, before any file is changed."""
        for argument, words in [
            ("--max-content=0", "max-content: is not between"),
            ("--chain-timeout=never", "chain-timeout: is not a number"),
            ("--ledger=nosuch", "ledger: there is no ledger called 'nosuch'"),
            ("--group=1=memory:x=1", "group 1: memory: x"),
            ("--group=../up", "group: has an id"),
            ("--accounts=nosuch", "accounts: cannot read"),
            ("--nosuch", "option --nosuch not recognized"),
            ("--http=nosuch:1", "http: cannot use 'nosuch:1'"),
            ("--stomp=nosuch:1", "stomp: cannot use 'nosuch:1'"),
        ]:
            line = await self.usageError(argument, f"--data-dir={self.dataDir}")
            self.assertIn(words, line)
        self.assertFalse(self.dataDir.exists())

    async def test_commandLineWinsOverFile(self) -> None:
        """A TOML file gives the settings; the command line wins."""
        path = self.root / "svcbroker.toml"
        path.write_text(
            f'http = "{LOCAL}"\nledger = "memory"\ngroup = ["1", "b"]\n'
            f'data-dir = "{self.dataDir}"\nbase-path = "/from-file"\nmax-content = 5\n'
        )
        daemon = await self.run_([f"--config={path}", "--base-path=/from-option"]).serves()
        self.assertTrue(daemon.base.endswith("/from-option"), daemon.base)
        self.assertEqual((await daemon.call("/admin/listGroup"))["data"], ["1", "b"])
        await daemon.call("/rest/open", topic="t")
        self.assertEqual(
            (await daemon.call("/rest/publish", topic="t", content="123456"))["code"], 100201
        )

    async def test_badFileIsRefusedByLineAndKey(self) -> None:
        """Errors in the file name the file, the line and the key."""
        path = self.root / "svcbroker.toml"
        path.write_text("max-content = 5\nmax-contend = 6\n")
        line = await self.usageError(f"--config={path}")
        self.assertIn(f"{path}, line 2: max-contend: there is no such setting", line)

    async def test_helpLedgerShowsLedgersAndSettings(self) -> None:
        """The ledgers and their settings are shown."""
        daemon = self.run_(["--help-ledger"])
        self.assertEqual(await daemon.exits(), 0)
        for words in ("memory\n", "pbft\n", "nodes "):
            self.assertIn(words, daemon.protocol.output)

    async def test_helpShowsOptionsWithDefaults(self) -> None:
        """Every option is shown with its default."""
        daemon = self.run_(["--help"])
        self.assertEqual(await daemon.exits(), 0)
        for words in ("--max-content=", "default: 1048576", "--help-ledger", "--no-access-log"):
            self.assertIn(words, " ".join(daemon.protocol.output.split()))


class GroupTests(DaemonTestCase):
    """
    Several groups.
    """

    async def test_groupsHaveSeparateLedgers(self) -> None:
        """Each group has a log of its own, on a ledger of its own."""
        daemon = await self.start("--group=1", "--group=2=memory", ledger="pbft:nodes=4")
        for group, nodes in (("1", "4"), ("2", "1")):
            general = (await daemon.call("/admin/group/general", groupId=group))["data"]
            self.assertEqual(general["nodeCount"], nodes)
        await daemon.call("/rest/open", topic="t", groupId="2")
        self.assertIs(await daemon.call("/rest/exist", topic="t", groupId="2"), True)
        self.assertIs(await daemon.call("/rest/exist", topic="t"), False)
        unknown = await daemon.call("/rest/exist", topic="t", groupId="3")
        self.assertEqual(unknown["code"], 200211)


class LogTests(DaemonTestCase):
    """
    Logs.
    """

    CONTENT = "a-content-nobody-else-has"

    async def work(self, *arguments: str, ledger: str = "memory") -> str:
        """What a daemon logs that was published to and stopped."""
        daemon = await self.start(*arguments, ledger=ledger)
        await daemon.call("/rest/open", topic="t")
        await daemon.call("/rest/publish", topic="t", content=self.CONTENT)
        await daemon.call(
            "/rest/publish",
            "POST",
            f"topic=t&content={self.CONTENT}".encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        await daemon.rpc("publish", topic="t", content=b64encode(self.CONTENT.encode()).decode())
        await daemon.call("/jsonrpc", "POST", f'{{"broken": "{self.CONTENT}'.encode())
        await daemon.call("/rest/nosuch", content=self.CONTENT)
        response = await treq.get(
            daemon.base.removesuffix("/svcbroker") + "/readyz", pool=daemon.pool
        )
        await response.content()
        self.assertEqual(response.code, 200)
        self.assertEqual(await daemon.stop(), 0)
        return daemon.protocol.output

    def checkPrivate(self, output: str) -> None:
        """No content is in a log, in no encoding that is used."""
        self.assertNotIn(self.CONTENT, output)
        self.assertNotIn(b64encode(self.CONTENT.encode()).decode(), output)

    async def test_jsonLogHasNoContent(self) -> None:
        """Each line is JSON, with a time, a level and a message; content is in none."""
        output = await self.work("--log-format=json", "--access-log", ledger="pbft:nodes=4")
        lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
        for line in lines:
            self.assertLessEqual({"time", "level", "logger", "message"}, line.keys())
        self.assertEqual(len([line for line in lines if line.get("path", "").endswith("/open")]), 1)
        self.checkPrivate(output)
        for key in self.dataDir.rglob("*key*"):
            if key.is_file():
                self.assertNotIn(key.read_bytes().hex(), output)

    async def test_textLogHasNoRequests(self) -> None:
        """Without an access log, requests leave no line."""
        output = await self.work()
        self.assertNotIn("/rest/", output)
        self.checkPrivate(output)

    async def test_jsonLogGoesToFile(self) -> None:
        """In a file too, when twistd is told one."""
        path = self.root / "x.log"
        daemon = self.run_(
            [
                f"--http={LOCAL}",
                "--ledger=memory",
                f"--data-dir={self.dataDir}",
                "--log-format=json",
            ],
            twistd=[f"--pidfile={self.root / 'x.pid'}", f"--logfile={path}"],
        )
        self.assertEqual(await daemon.exits(), 0)
        pid = int((self.root / "x.pid").read_text())
        descriptor = os.pidfd_open(pid)
        self.addCleanup(os.close, descriptor)
        os.kill(pid, signal.SIGTERM)
        await deferToThread(select.select, [descriptor], [], [], TIMEOUT)
        messages = [json.loads(line)["message"] for line in path.read_text().splitlines()]
        self.assertIn("Stopped", messages)
