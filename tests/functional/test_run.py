"""
C{svcbroker run} as a real process.
"""

from __future__ import annotations

import signal
import sys

from .daemon import OFF, Daemon, DaemonTestCase, until


class RunTestCase(DaemonTestCase):
    """
    The console script's module, in a directory of its own.
    """

    async def ends(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code, the output and the errors of a run that ends by itself."""
        return await self.outcomeOf("run", *arguments)

    async def refusal(self, *arguments: str, code: int = 2) -> str:
        """The one line of a run that does not start."""
        status, output, errors = await self.ends(*arguments)
        self.assertEqual((status, output), (code, ""), errors)
        [line] = errors.splitlines()
        return line

    async def runs(self, *arguments: str) -> Daemon:
        """A daemon that serves, at a port of loopback."""
        words = ["-m", "svcbroker.commands", "run", "--http", "0", "--ledger=memory", *OFF]
        return await self.spawn(sys.executable, *words, *arguments).serves()


class ServingTests(RunTestCase):
    """
    A daemon that starts.
    """

    async def test_portNumberIsServedOnLoopback(self) -> None:
        """It needs no option of twistd's; Ctrl-C ends it with status 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            daemon = await self.runs()
            self.assertRegex(daemon.base, r"^http://127\.0\.0\.1:[0-9]+/svcbroker$")
            self.assertEqual((await daemon.call("/admin/listGroup"))["data"], ["1"])
            self.assertEqual(await daemon.stop(number), 0)
            self.assertIn("Stopped", daemon.protocol.output)
            self.assertEqual(daemon.protocol.errors, "")
        self.assertEqual([path.name for path in self.root.iterdir()], ["svcbroker-data"])

    async def test_filesAreWrittenWhereAsked(self) -> None:
        """The log and the process's number, which is removed at the end."""
        pidFile, logFile = self.root / "x.pid", self.root / "x.log"
        arguments = [f"--pidfile={pidFile}", f"--logfile={logFile}", "--config=x.toml"]
        (self.root / "x.toml").write_text('data-dir = "there"\nhttp = 0\nstomp = 0\n')
        words = ["-m", "svcbroker.commands", "run", "--mqtt=", "--ledger=memory", *arguments]
        daemon = self.spawn(sys.executable, *words)
        await until(lambda: logFile.exists() and " serves " in logFile.read_text())
        self.assertEqual(int(pidFile.read_text()), daemon.process.pid)
        self.assertEqual(await daemon.stop(), 0)
        self.assertEqual(daemon.protocol.output, "")
        self.assertFalse(pidFile.exists())
        self.assertTrue((self.root / "there").is_dir())


class EndingTests(RunTestCase):
    """
    Runs that serve nothing.
    """

    async def test_checkTellsWhatWouldBeServed(self) -> None:
        """Nothing is opened or made."""
        code, output, errors = await self.ends(
            *("--check", "--http=0", "--stomp=0", "--mqtt=", "--group=1", "--group=b=memory"),
            *("--base-path=/x", "--data-dir=there"),
        )
        self.assertEqual((code, errors), (0, ""))
        head, *lines = output.splitlines()
        self.assertRegex(head, r"^svcbroker \S+ would serve$")
        self.assertEqual(
            lines[:6],
            [
                "  HTTP at tcp:0:interface=127.0.0.1, under /x",
                "  STOMP at tcp:0:interface=127.0.0.1",
                "  group 1 from the ledger pbft:nodes=4",
                "  group b from the ledger memory",
                "  to every client, as there are no accounts",
                f"with its data in {self.root / 'there'}",
            ],
        )
        self.assertRegex(lines[6], r"^and with at most [\d.]+ GiB in memory, of ")
        bounds = [line.split("  ")[-1].partition(":")[0] for line in lines[7:]]
        self.assertTrue({"unread output", "pending transactions", "a topic"} <= {*bounds}, lines)
        self.assertEqual(list(self.root.iterdir()), [])

    async def test_checkWarnsOfMoreThanThereIs(self) -> None:
        """Where all bounds add up to more than the process may use, the check says what is most."""
        code, output, _ = await self.ends(
            "--check", "--http=0", "--ledger=pbft:mempool=1099511627776", *OFF
        )
        self.assertEqual(code, 0)
        last = output.splitlines()[-1]
        self.assertTrue(last.startswith("WARNING: what may be in memory adds up to 8"), last)
        self.assertIn("the largest bound is pending transactions, 8.0 TiB", last)

    async def test_checkRefusesWhatCannotBeServed(self) -> None:
        """In one line, as a start does."""
        for argument, words in (
            ("--ledger=nosuch", "svcbroker run: ledger: there is no ledger called 'nosuch'"),
            ("--http=nosuch:1", "svcbroker run: http: cannot use 'nosuch:1'"),
            ("--http=65536", "svcbroker run: http: is not a port number"),
            ("--webhook-secret-file=/nosuch", "svcbroker run: webhook-secret-file: cannot read"),
        ):
            line = await self.refusal("--check", argument)
            self.assertTrue(line.startswith(words), line)

    async def test_checkRefusesToListenWithoutAccounts(self) -> None:
        code, output, errors = await self.ends("--check", "--http=tcp:0", *OFF)
        self.assertEqual(code, 1)
        self.assertIn("HTTP at tcp:0", output)
        self.assertIn("there are no accounts", errors)

    async def test_unknownOptionNamesNearest(self) -> None:
        """On the command line and in the file; where none is near, none is named."""
        line = await self.refusal("--htp", "8080")
        self.assertEqual(line, "svcbroker run: option --htp not recognized; did you mean --http?")
        line = await self.refusal("--xyzzy")
        self.assertEqual(line, "svcbroker run: option --xyzzy not recognized")
        (self.root / "x.toml").write_text("max-contend = 5\n")
        line = await self.refusal("--config=x.toml")
        self.assertTrue(line.endswith("no such setting; did you mean max-content?"), line)

    async def test_demoRefusesWhatItHasItself(self) -> None:
        """A directory of somebody's own is not written into."""
        (self.root / "x.toml").write_text("")
        for option, name in (("--data-dir=there", "data-dir"), ("--config=x.toml", "config")):
            line = await self.refusal("--demo", option)
            self.assertEqual(line, f"svcbroker run: --demo has its own {name}")
        self.assertFalse((self.root / "there").exists())

    async def test_busyPortIsToldInOneLine(self) -> None:
        """With status 1: the usage is right."""
        daemon = await self.runs()
        port = daemon.base.split(":")[2].partition("/")[0]
        status, _, errors = await self.ends(
            f"--http={port}", "--ledger=memory", "--data-dir=other", *OFF
        )
        [line] = errors.splitlines()
        self.assertEqual(status, 1)
        self.assertIn("svcbroker run: http: cannot listen on tcp:", line)

    async def test_helpShowsOptionsWithDefaults(self) -> None:
        """The short form does, too."""
        for option in ("-h", "--help"):
            code, output, errors = await self.ends(option)
            self.assertEqual((code, errors), (0, ""))
            for words in (
                "Usage: svcbroker run [options]",
                "--check",
                "PORT|ENDPOINT",
                "--pidfile FILE",
            ):
                self.assertIn(words, " ".join(output.split()))
