"""
Tests for L{svcbroker.commands.commandline}: exit codes, completion of words in shells, and the page
of all commands.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from twisted.trial.unittest import SkipTest, SynchronousTestCase

import svcbroker
from svcbroker import __version__
from svcbroker.commands import main
from svcbroker.commands.arguments import PROGRESS, makeCommand, options
from svcbroker.commands.commandline import COMPLETE, OLD_NAMES, SHELLS, Command, makeGroup
from svcbroker.commands.terminal import (
    CommandError,
    Console,
    Exit,
    progressBar,
    reported,
    showTable,
)
from tests.commands.support import CommandTestCase

LOADED = (
    "from svcbroker.commands.commandline import COMMANDS;"
    "[each.load() for each in COMMANDS if each.name in {}]"
)
"""Code that imports what some commands do."""


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that are no groups, with the words by which they are called."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield (*path, name), command


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class MainTests(SynchronousTestCase):
    """
    One command of the test's own.
    """

    def setUp(self) -> None:
        self.output, self.errors = io.StringIO(), io.StringIO()
        self.patch(sys, "stdout", self.output)
        self.patch(sys, "stderr", self.errors)

    def main(self, run: Callable[[Any, Console], int], *argv: str) -> int:
        """The exit code of a command that does C{run}."""

        @makeCommand("Do it.")
        @options(
            click.option("--number", type=int, default=1, help="A number."),
            PROGRESS,
        )
        def command(console: Console, **given: Any) -> int:
            return run(given, console)

        return main(argv, [Command("do", "Do it.", command=command)])

    def fails(self, error: BaseException, *argv: str) -> tuple[int, str]:
        """The exit code of a command that raises, and what it says."""

        def run(options: Any, console: Console) -> int:
            raise error

        code = self.main(run, *argv, "do")
        self.assertEqual(self.output.getvalue(), "")
        return code, self.errors.getvalue()

    def test_exitCodeOfCommand(self) -> None:
        """A command's code is that of the process; it is given its options and writes results."""

        def run(options: Any, console: Console) -> int:
            console.say(f"number {options['number']}")
            return Exit.BAD

        self.assertEqual(self.main(run, "do", "--number=7"), 1)
        self.assertEqual((self.output.getvalue(), self.errors.getvalue()), ("number 7\n", ""))

    def test_wrongUsageHasCodeTwo(self) -> None:
        """Wrong usage is told in a line, with code 2."""
        for argv, line in [
            ([], "svcbroker: a command is needed; see: svcbroker --help\n"),
            (["nosuch"], "svcbroker: Unknown command: nosuch\n"),
            (["--nosuch"], "svcbroker: option --nosuch not recognized\n"),
            (
                ["--tracebak", "do"],
                "svcbroker: option --tracebak not recognized; did you mean --traceback?\n",
            ),
            (["d"], "svcbroker: Unknown command: d; did you mean do?\n"),
            (["do", "--nosuch"], "svcbroker do: option --nosuch not recognized\n"),
        ]:
            self.errors.truncate(self.errors.seek(0))
            self.assertEqual(self.main(lambda options, console: 0, *argv), 2)
            self.assertEqual(self.errors.getvalue(), line)

    def test_failuresHaveLinesAndCodes(self) -> None:
        """Each way to fail is one line and a code of its own."""
        for error, code, line in [
            (CommandError("no\ndaemon"), 2, "svcbroker do: no daemon\n"),
            (CommandError("refused", Exit.BAD), 1, "svcbroker do: refused\n"),
            (click.UsageError("Odd."), 2, "svcbroker do: odd\n"),
            (FileNotFoundError(2, "No such file", "x"), 2, "svcbroker do: x: No such file\n"),
            (
                ValueError("y"),
                70,
                "svcbroker do: unforeseen error (see --traceback): ValueError: y\n",
            ),
            (KeyboardInterrupt(), 130, ""),
        ]:
            self.errors.truncate(self.errors.seek(0))
            self.assertEqual(self.fails(error), (code, line))

    def test_tracebackOnRequest(self) -> None:
        """Whoever wants to see where a bug is can."""
        code, text = self.fails(ValueError("y"), "--traceback")
        self.assertEqual(code, 70)
        self.assertIn("Traceback", text)

    def test_helpAndVersionAreResults(self) -> None:
        """Help and version are results."""
        for argv, words in [
            (["--help"], "Do it."),
            (["--version"], f"svcbroker {__version__}\n"),
            (["do", "--help"], "--number INTEGER"),
        ]:
            self.output.truncate(self.output.seek(0))
            self.assertEqual(self.main(lambda options, console: 1, *argv), 0)
            self.assertIn(words, self.output.getvalue())

    def progress(self, errors: io.StringIO, *argv: str) -> str:
        """What a command of three steps shows of its progress."""
        self.output.truncate(self.output.seek(0))
        self.patch(sys, "stderr", errors)

        def run(options: Any, console: Console) -> int:
            isWanted = options["isProgressShown"]
            with progressBar(console, "doing", "steps", isWanted=isWanted) as report:
                console.say(str(list(reported("abc", report, 3))))
            return 0

        self.assertEqual(self.main(run, "do", *argv), 0)
        self.assertEqual(self.output.getvalue(), "['a', 'b', 'c']\n")
        return errors.getvalue()

    def test_progressOnTerminal(self) -> None:
        """A terminal is shown a bar."""
        self.assertIn("3/3", self.progress(Terminal()))

    def test_progressWanted(self) -> None:
        """A file that is to have the progress has lines, without a movement of the cursor."""
        self.assertEqual(self.progress(io.StringIO(), "--progress"), "doing: 3/3 steps\n")

    def test_noColorHasNoCursorCodes(self) -> None:
        self.patch(os, "environ", {**os.environ, "NO_COLOR": "1"})
        self.assertEqual(self.progress(Terminal()), "")
        self.assertEqual(self.progress(Terminal(), "--progress"), "doing: 3/3 steps\n")
        console = Console(output=Terminal())
        showTable(console, ("a", "b"), [("1", "2")], [])
        self.assertIn("2", console.output.getvalue())  # type: ignore[attr-defined]
        self.assertNotIn("\x1b", console.output.getvalue())  # type: ignore[attr-defined]

    def test_noProgress(self) -> None:
        """A file is not."""
        self.assertEqual(self.progress(io.StringIO()), "")


class TableTests(CommandTestCase):
    """
    The real commands.
    """

    def test_everyCommandIsComplete(self) -> None:
        """Each has help, and each option of it, too; its summary is a sentence."""
        for path, command in leaves(makeGroup()):
            self.assertTrue(command.callback, path)
            names = [name for each in command.params for name in each.opts]
            self.assertEqual(len(names), len(set(names)), path)
            self.assertTrue(command.help and command.get_short_help_str(999).endswith("."), path)
            for option in command.params:
                if isinstance(option, click.Option):
                    self.assertTrue(option.help, (path, option.opts))

    def test_everyHelpHasAnExampleThatIsTaken(self) -> None:
        """Its line is one that the command's own parser takes."""
        group = makeGroup()
        for path, command in leaves(group):
            name = " ".join(("svcbroker", *path))
            text = cleandoc(command.help or "").partition("\b\n")[2]
            lines = [line for line in text.splitlines() if f"{name} " in f"{line} "]
            self.assertTrue(lines, path)
            for line in lines:
                words = shlex.split(line.partition(f"{name} ")[2].replace("$CHAIN", "0" * 64))
                end = [place for place, word in enumerate(words) if word in (">", "|")]
                words = words[: end[0]] if end else words
                command.make_context(name, words, obj=Console(), parent=click.Context(group))

    def test_firstHelpHasSixteenWords(self) -> None:
        """More than that nobody reads."""
        group = makeGroup()
        self.assertEqual(len(group.list_commands(click.Context(group))), 16)

    def test_oldNamesStandForNewOnes(self) -> None:
        """Every first word of an earlier release is that of a command, whose help is shown."""
        group = makeGroup()
        context = click.Context(group)
        for name, words in OLD_NAMES.items():
            _, command, rest = group.resolve_command(context, [name])
            self.assertEqual([*words[:1], *rest], [*words], name)
            output = self.good(name, "--help")
            isGrouped = isinstance(command, click.Group) and len(words) == 2 and words[1] == name
            shown = f"svcbroker {' '.join(words) if isGrouped else words[0]} "
            self.assertIn(f"Usage: {shown}", output)
        self.assertEqual(set(OLD_NAMES) & set(group.list_commands(context)), set())

    def test_oldOptionsAreTakenAndNotShown(self) -> None:
        for words, old in (
            (("sub", "a"), ("--count=1", "--speed=1", "--account=x")),
            (("proof", "sign"), ("--extension=a=b",)),
        ):
            output = self.good(*words, *old, "--help")
            for each in old:
                self.assertNotIn(each.partition("=")[0], output)
            line = self.refused(*words, *old, "--no-such-option")
            self.assertIn("--no-such-option not recognized", line)

    def test_helpExplainsCommands(self) -> None:
        for words, shown in (
            ((), "Usage: svcbroker [options] COMMAND"),
            (("chain", "audit"), "Usage: svcbroker chain audit [options] DATA-DIR"),
            (("audit",), "Usage: svcbroker chain audit [options] DATA-DIR"),
            (("tail",), "Usage: svcbroker sub [options] PATTERN"),
            (("connection",), "--password-file FILE"),
        ):
            self.assertIn(shown, self.good("help", *words))

    def test_unknownWordsNameTheNearestCommand(self) -> None:
        line = "svcbroker: Unknown command: audti; did you mean chain audit?"
        self.assertEqual(self.refused("audti"), line)

    def test_wrongUsageIsOneLine(self) -> None:
        """Every command tells why a command line is wrong, in one line and without the usage."""
        for path, command in leaves(makeGroup()):
            wrong = [["--no-such-option"]]
            if not any(each.nargs < 0 for each in command.params):
                wrong.append(["x"] * (1 + sum(each.nargs for each in command.params)))
            for argv in wrong:
                self.assertRegex(self.refused(*path, *argv), "^svcbroker [a-z ]+: ", path)

    def test_resultsAreJsonOnRequest(self) -> None:
        """Every command with a result has C{--json}, unless that is a document."""
        without = {
            " ".join(path)
            for path, command in leaves(makeGroup())
            if not any("--json" in parameter.opts for parameter in command.params)
        }
        hasNone = (
            *("admin account add", "admin account passwd", "admin account remove"),
            *("admin context add", "admin context remove", "admin context use"),
            *("chain export", "admin log export", "run", "net witness run", "net witness invite"),
        )
        isADocument = (
            *("admin completion", "admin log prove", "chain genesis", "net engine attest"),
            *("proof bundle", "proof contradict", "proof reveal", "proof sign", "proof stamp"),
        )
        self.assertEqual(without, {*hasNone, *isADocument})

    def process(
        self, *argv: str, env: Mapping[str, str] = {}, **keywords: Any
    ) -> subprocess.Popen[bytes]:
        """
        The script as a process.

        @param env: added to a clean environment in which our package is found.
        """
        path = os.pathsep.join(
            filter(None, [str(Path(svcbroker.__file__).parent.parent), os.getenv("PYTHONPATH")])
        )
        return subprocess.Popen(
            [sys.executable, *argv],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **env},
            **{"stderr": subprocess.PIPE, **keywords},
        )

    def test_helpImportsNoCommand(self) -> None:
        """The help text imports no command, no progress bar, no client and no Twisted."""
        base = ("commandline", "arguments", "terminal")
        code = (
            "import sys; from svcbroker.commands import main; main(['--help']);"
            "names = {each for each in sys.modules if each.startswith('svcbroker.commands.')};"
            "base = {f'svcbroker.commands.{each}' for each in sys.argv[1:]};"
            "sys.exit(bool(names - base or {'rich', 'httpx', 'twisted'} & set(sys.modules)))"
        )
        with self.process("-c", code, *base, stdout=subprocess.DEVNULL) as process:
            self.assertEqual((process.communicate()[1], process.returncode), (b"", 0))

    def importsNone(self, code: str, *absent: str) -> None:
        """Check that code of a new process imports none of some modules."""
        code = f"import sys; {code}; sys.exit(bool({set(absent)} & set(sys.modules)))"
        with self.process("-c", code) as process:
            self.assertEqual((process.communicate()[1], process.returncode), (b"", 0))

    def test_daemonImportsNoCommandLine(self) -> None:
        """C{twistd svcbroker} imports neither click nor rich, nor a client."""
        self.importsNone("import svcbroker.tap", "click", "rich", "httpx", "svcbroker.commands")

    def test_daemonImportsWebhooksAndMetricsWhenTheyAreUsed(self) -> None:
        """At its start it has no HTTP client, no prometheus_client, and packs no bundles."""
        absent = ("treq", "twisted.web.client", "prometheus_client", "svcbroker.proofs.bundle")
        self.importsNone("import svcbroker.tap", *absent)

    def test_daemonInTheForegroundImportsNoClient(self) -> None:
        """C{svcbroker run} imports neither a client nor what C{doctor} looks at."""
        self.importsNone(LOADED.format(["run"]), "httpx", "rich", "svcbroker.commands.doctor")

    def test_commandsThatAskADaemonImportNoServer(self) -> None:
        """They import neither the daemon, nor the libraries of options that sign and prove."""
        asking = ["pub", "sub", "events", "get", "topic", "webhook", "top", "nodes", "fault"]
        others = ["erase", "hold", "retain", "reload", "subscription", "log", "incidents", "find"]
        code = LOADED.format(asking + others)
        self.importsNone(code, "cryptography", "twisted", "httpx", "rich")

    def test_brokenPipeOnStandardOutputEndsQuietly(self) -> None:
        """Also for what click writes itself, and whether output is buffered or not."""
        for argv in (["--help"], ["--version"], ["verify", "--help"]):
            for buffering in ({}, {"PYTHONUNBUFFERED": "1"}):
                reader, writer = os.pipe()
                os.close(reader)
                with self.process(
                    "-m", "svcbroker.commands", *argv, stdout=writer, env=buffering
                ) as process:
                    os.close(writer)
                    self.assertEqual((process.communicate()[1], process.returncode), (b"", 141))

    def test_fullDiskUnderStandardOutputIsOneLine(self) -> None:
        """The error is reported on standard error, and the interpreter adds nothing to it."""
        with open("/dev/full", "wb") as full:
            process = self.process("-m", "svcbroker.commands", "--help", stdout=full)
        with process:
            errors = process.communicate()[1]
        self.assertEqual((errors, process.returncode), (b"svcbroker: No space left on device\n", 2))

    def test_closedStreamsAreErrors(self) -> None:
        """A closed stream is one that cannot be read or written, and takes no file's number."""
        key = self.mktemp()
        sign = ("sign", f"--key={key}", f"--chain={'0' * 64}", "--topic=a")
        for number, argv, code, errors in [
            (1, ("--version",), 2, b"svcbroker: Bad file descriptor\n"),
            (1, ("keygen", "--help"), 2, b"svcbroker proof keygen: Bad file descriptor\n"),
            (2, ("nosuch",), 2, b""),
            (0, ("keygen", key), 0, b""),
            (0, sign, 2, b"svcbroker proof sign: Bad file descriptor\n"),
        ]:
            with self.process(
                *("-m", "svcbroker.commands", *argv),
                stdout=subprocess.DEVNULL,
                preexec_fn=partial(os.close, number),
            ) as process:
                found = process.communicate()[1]
            self.assertEqual((process.returncode, found), (code, errors), argv)

    def test_outputWithoutCharacterIsEscaped(self) -> None:
        """The encoding of standard output need not have all characters of a name."""
        env = {"PYTHONIOENCODING": "ascii"}
        code = (
            "from svcbroker.commands.commandline import Command, main;"
            "from svcbroker.commands.arguments import makeCommand;"
            "say = makeCommand('Say.')(lambda console: console.say('\u2603') or 0);"
            "main(['say'], [Command('say', 'Say.', command=say)])"
        )
        with self.process("-c", code, env=env, stdout=subprocess.PIPE) as process:
            self.assertEqual(process.communicate(), (b"\\u2603\n", b""))

    def test_argumentThatIsNotUtf8IsRefused(self) -> None:
        """What is sent to a broker is text. Names of files may have any bytes."""
        with self.process("-m", "svcbroker.commands", "topic", "open", "t\udcff") as process:
            found = process.communicate()[1], process.returncode
        self.assertEqual(found, (b"svcbroker topic open: 't\\udcff' is not UTF-8\n", 2))

    def test_unwritableStandardErrorKeepsExitCode(self) -> None:
        """A broken pipe and a full disk under standard error do not change the exit code."""
        reader, writer = os.pipe()
        os.close(reader)
        for errors in (writer, os.open("/dev/full", os.O_WRONLY)):
            with self.process("-m", "svcbroker.commands", "nosuch", stderr=errors) as process:
                os.close(errors)
                process.wait()
            self.assertEqual(process.returncode, 2)


ROOT = Path(svcbroker.__file__).parents[1]
COMMAND = (sys.executable, "-m", "svcbroker.commands")


class CompletionTests(SynchronousTestCase):
    """
    The real commands.
    """

    def complete(self, *words: str) -> list[str]:
        """What bash offers for the last of some words."""
        environment = {
            "PYTHONPATH": str(ROOT),
            "COMP_WORDS": " ".join(["svcbroker", *words]),
            "COMP_CWORD": str(len(words)),
            COMPLETE: "bash_complete",
        }
        output = subprocess.run(COMMAND, env=environment, check=True, capture_output=True).stdout
        return [line.partition(",")[2] for line in output.decode().splitlines()]

    def test_commandsAreCompleted(self) -> None:
        self.assertEqual(self.complete("ad"), ["admin"])
        self.assertEqual(self.complete("admin", "acc"), ["account"])
        self.assertEqual(self.complete("admin", "account", "pa"), ["passwd"])
        self.assertEqual(self.complete("account", "pa"), ["passwd"])

    def test_optionsAreCompleted(self) -> None:
        """Those of operators' commands, too, at any depth."""
        self.assertEqual(self.complete("verify", "--gen"), ["--genesis"])
        self.assertEqual(self.complete("engine", "init", "--p"), ["--p2p"])
        self.assertEqual(self.complete("--tr"), ["--traceback"])
        self.assertEqual(self.complete("run", "--mq"), ["--mqtt", "--mqtt-open-topics"])
        self.assertEqual(self.complete("bench", "--over", "s"), ["stomp"])

    def test_actionsBehindDaemonsAreCompleted(self) -> None:
        """A data directory or a URL may stand before them."""
        for before in ((), ("data/",), ("http://127.0.0.1:8080/svcbroker",)):
            self.assertEqual(self.complete("subscription", *before, "re"), ["reset"])
            self.assertEqual(self.complete("nodes", *before, "rotate", "--dat"), ["--data-dir"])

    def test_shellsTakeTheScripts(self) -> None:
        """Each shell that is installed can parse its script."""
        tried = 0
        for shell in SHELLS:
            script = subprocess.run(
                [*COMMAND, "completion", shell], cwd=ROOT, check=True, capture_output=True
            ).stdout
            self.assertIn(COMPLETE.encode(), script)
            program = shutil.which(shell)
            if program is not None:
                subprocess.run([program, "-n"], input=script, check=True, capture_output=True)
                tried += 1
        if not tried:
            raise SkipTest("neither bash, zsh nor fish is installed")


PAGE = Path(svcbroker.__file__).parents[1] / "docs" / "commands.rst"


class PageTests(SynchronousTestCase):
    def test_pageHasCommandsAndExitCodes(self) -> None:
        text = PAGE.read_text("utf-8")
        self.assertIn(".. svc-command-list::\n", text)
        codes = text.partition("exit codes\n")[2]
        for code in Exit:
            self.assertRegex(codes, rf"[ ,]{code.value}\b")
