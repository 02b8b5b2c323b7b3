"""
Tests for the documentation: its tables cover the declarations, its command lines and files are
valid, and its examples of plugins work.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from pygments.lexers.shell import BashSessionLexer
from pygments.token import Token
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svcbroker.access import parseAccounts
from svcbroker.broker import Publication
from svcbroker.commands.commandline import allCommands, commandOptions
from svcbroker.daemon.config import SETTINGS, makeConfig
from svcbroker.errors import TABLE
from svcbroker.interfaces import ILedgerFactory, InvalidDescription, submit
from svcbroker.model import PublishEvent
from svcbroker.operations import OPERATIONS, OPERATOR_CALLS
from svcbroker.operations._adminqueries import QUERIES
from svcbroker.tap import Options
from svcbroker.testing import ClockFixture, LedgerFixture, makeLedgerTests
from tests.broker.witnesses import KEYS
from tests.certificates import makeCertificate
from tests.directories import shortDirectory
from tests.needed import neededProgram
from tests.waiting import TIMEOUT

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"

_RUN = re.compile(r"twistd (?:-\S+ )*svcbroker\b(.*)")
_TOML = re.compile(
    r"^```toml\n(.*?)^```$|^\.\. code-block:: toml\n\n((?:   [^\n]*\n|\n)+)", re.S | re.M
)

_CONSOLE = re.compile(r"^\.\. code-block:: console\n\n((?: {3}[^\n]*\n|\n)+)", re.MULTILINE)


def load(path: Path) -> ModuleType:
    """A module that is not installed, under its own name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


advice: Any = load(DOCS / "_ext" / "advice.py")
tables: Any = load(DOCS / "_ext" / "tables.py")
searching: Any = load(DOCS / "_ext" / "searching.py")
journal: Any = load(EXAMPLES / "journal" / "journal_ledger.py")
appUsers: Any = load(EXAMPLES / "appusers" / "app_users.py")
appUsersTests: Any = load(EXAMPLES / "appusers" / "test_app_users.py")
lineCarrier: Any = load(EXAMPLES / "linecarrier" / "line_carrier.py")
lineCarrierTests: Any = load(EXAMPLES / "linecarrier" / "test_line_carrier.py")


def pages() -> Iterator[tuple[str, str]]:
    """README and every page, by their paths from the root."""
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.rst"))):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")


class TableTests(SynchronousTestCase):
    """
    Tables that are made from declarations.
    """

    def test_everyCallIsDocumented(self) -> None:
        """Every call has a section with its parameters and errors."""
        for text, prefix, calls in (
            (tables.operationsText(), "/rest", OPERATIONS),
            (tables.queriesText(), "/admin", QUERIES),
            (tables.operatorText(), "/admin/operator", OPERATOR_CALLS),
        ):
            sections = text.split(".. _call-")[1:]
            self.assertEqual(len(sections), len(calls))
            for section, call in zip(sections, calls, strict=True):
                self.assertIn(f"``{prefix}/{call.name}``", section)
                self.assertIn(call.summary, section)
                for parameter in call.parameters:
                    self.assertIn(f"``{parameter.name}``", section)
                    self.assertIn(parameter.description, section)
                for error in call.errors:
                    self.assertIn(f"<error-{error.code}>` {error.__name__}", section)

    def test_everyReferencedRecordIsDocumented(self) -> None:
        """Every record that a call refers to has a section."""
        defined = set(re.findall(r"\.\. _record-(\w+):", tables.recordsText()))
        texts = tables.operationsText() + tables.queriesText() + tables.operatorText()
        texts += tables.recordsText()
        self.assertEqual(set(re.findall(r"<record-(\w+)>", texts)) - defined, set())
        self.assertIn("SendResult", defined)

    def test_everyErrorIsDocumented(self) -> None:
        """Every error is in the table, with both its codes."""
        rows = tables.errorsText().split("   * - ")[2:]
        self.assertEqual(len(rows), len(TABLE))
        for row, error in zip(rows, TABLE, strict=True):
            for words in (f"``{error.code}``", f"``{error.rpcCode}``", error.__name__):
                self.assertIn(words, row)
            self.assertNotIn("{", row)

    def test_everyErrorHasAdvice(self) -> None:
        """Every error has a section with its codes, its status and what to do, and no other has."""
        sections = tables.errorsByNameText().split(".. _error-of-")[1:]
        self.assertEqual(len(sections), len(TABLE))
        self.assertEqual(set(advice.ADVICE), set(TABLE))
        names = [section.partition(":")[0] for section in sections]
        self.assertEqual(names, sorted(names))
        for error in TABLE:
            section = sections[names.index(error.__name__)]
            for words in (f"<error-{error.code}>`", f"``{error.rpcCode}``", "HTTP status of REST"):
                self.assertIn(words, section)
            self.assertIn(tables.prose(advice.ADVICE[error]), section)

    def test_statusOfErrorsIsThatOfTheCarrier(self) -> None:
        """Failures of log-ins and of nodes that are behind are not answered with 200."""
        text = tables.errorsByNameText()
        found = dict(re.findall(r"_error-of-(\w+):.*?HTTP status of REST: (\d+)", text, re.S))
        self.assertEqual(found.pop("NotAuthenticated"), "401")
        self.assertEqual(found.pop("NotAuthorized"), "403")
        self.assertEqual(found.pop("NodeBehind"), "503")
        self.assertEqual(set(found.values()), {"200"})

    def test_everySettingAndPluginIsDocumented(self) -> None:
        """Every setting is in the table, and every ledger and authenticator in the lists."""
        text = tables.settingsText()
        for setting in SETTINGS:
            self.assertIn(f"``--{setting.name}", text)
        self.assertIn("``nodes``", tables.ledgersText())
        self.assertIn("``memory``", tables.ledgersText())
        self.assertIn("``home``", tables.cometbftText())
        self.assertNotIn("``nodes``", tables.cometbftText())
        for name in ("jwt", "audience", "mosquitto", "acl"):
            self.assertIn(f"``{name}``", tables.authenticatorsText())

    def test_everyCommandIsListed(self) -> None:
        """Each by its name, beside what it does."""
        text = tables.commandListText()
        for command, context in allCommands():
            isListed = f"``{context.command_path}``" in text
            self.assertEqual(isListed, not isinstance(command, click.Group), context.command_path)

    def test_sessionsOfEveryNightAreListedEverywhere(self) -> None:
        """In the first words of C{noxfile.py}, for contributors, and on the page of tests."""
        source = (ROOT / "noxfile.py").read_text("utf-8")
        functions = re.findall(
            r'^def (\w+)\([^)]*\) -> None:\n    """(.*?)"""', source, re.M | re.S
        )
        nightly = {name for name, text in functions if "every night" in text}
        self.assertGreaterEqual(nightly, {"pythons", "seeds", "kills", "consistency"})
        listed = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
        rows = re.findall(r"^\| `.venv/bin/nox -s (\w+)` \| every night: ", listed, re.M)
        self.assertEqual({*rows}, nightly)
        first = re.findall(r"C\{(\w+)\}", source.partition('"""\n\nfrom')[0])
        self.assertEqual({*first}, nightly)
        page = re.split(r"\n\n", (DOCS / "testing.rst").read_text("utf-8"))
        told = {
            name
            for name in nightly
            if any(f"nox -s {name}``" in each and "every night" in each for each in page)
        }
        self.assertEqual(told, nightly)

    def test_everyOptionOfCommandsIsDocumented(self) -> None:
        """Each in the section of its command; those of connections and settings once for all."""
        text, _, common = tables.commandsText().partition(".. _connection-options:")
        parts = re.split(r"^(svcbroker [a-z ]+)\n-+\n", text, flags=re.M)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        for command, context in allCommands():
            if context.parent is None:
                continue
            section = sections[context.command_path]
            for title, options in commandOptions(command, context).items():
                for name in options:
                    if title == "Connection":
                        self.assertEqual(common.count(f"``{name}``"), 1, name)
                    elif title.startswith("Settings"):
                        self.assertIn("settings of the daemon", section)
                    elif name != "-h, --help":
                        self.assertEqual(section.count(f"``{name}``"), 1, name)


class SearchTests(SynchronousTestCase):
    """
    The look at the search index of a build.
    """

    INDEX = {
        "docnames": ["decisions/x", "tutorial", "install"],
        "indexentries": {
            "quick start": [[1, "a", True], [2, "b", False]],
            "both": [[1, "", True], [2, "", True]],
        },
        "terms": {"broker": [1, 2], "start": 1},
    }

    def complain(self, finds: dict[str, str], **changes: Any) -> list[str]:
        """The complaints about an index."""
        return list(searching.complaints({**self.INDEX, **changes}, finds, ["decisions/"]))

    def test_mainEntryOfThePageIsEnough(self) -> None:
        """Other entries of the same words are ranked behind everything else."""
        self.assertEqual(self.complain({"quick start": "tutorial"}), [])

    def test_wordsThatLeadElsewhereAreNamed(self) -> None:
        """So are words that lead nowhere, or to two pages."""
        for words, page in (("quick start", "install"), ("docker", "install"), ("both", "install")):
            [found] = self.complain({words: page})
            self.assertIn(repr(words), found)

    def test_pageThatIsIndexedAllTheSameIsNamed(self) -> None:
        """A page that is to be left out."""
        found = self.complain({}, terms={"broker": [0, 1]})
        self.assertEqual(found, ["decisions/x is in the search index"])

    def test_indexIsReadFromItsScript(self) -> None:
        """The file of a build is a call of JavaScript."""
        path = Path(self.mktemp())
        path.write_text('Search.setIndex({"docnames":["a"]})')
        self.assertEqual(searching.readIndex(path), {"docnames": ["a"]})


class PageTests(SynchronousTestCase):
    """
    Commands and files that pages show.
    """

    def test_commandLinesParse(self) -> None:
        """Every command line of the broker has existing options with valid values."""
        # Homes of engines are told from where one is, and there are sockets in them.
        here = shortDirectory(self)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(here)
        Path("accounts.toml").touch()
        witness = f"witness a {KEYS['a'].verifier.text} https://a.example"
        Path("witnesses").write_text(f"{witness}\nquorum a\n")
        Path("tls/server").mkdir(parents=True)
        makeCertificate(Path("tls/server"))
        seen = 0
        for name, text in pages():
            for found in _RUN.finditer(re.sub(r"\\\n\s*", "", text)):
                line = found[1].split("`")[0].replace("/etc/svcbroker/witnesses", "witnesses")
                arguments = shlex.split(line, comments=True)
                if any(
                    word in arguments
                    for word in ("--help", "--help-ledger", "--help-auth", "--config")
                ):
                    continue
                # What the plugins of the examples add.
                if any(word.startswith(("journal", "--line")) for word in arguments):
                    continue
                try:
                    Options().parseOptions(arguments)
                except Exception as error:
                    self.fail(f"{name}: {found[0]}: {error}")
                seen += 1
        self.assertGreater(seen, 5)

    def test_copiedCommandsHaveNoPrompts(self) -> None:
        """What a page's button copies of a console is without prompts, and not empty."""
        # conf.py leaves these two kinds of tokens out, by the names of their classes.
        self.assertIn('copybutton_exclude = ".linenos, .gp, .go"', (DOCS / "conf.py").read_text())
        seen = 0
        for name, text in pages():
            for block in _CONSOLE.findall(text):
                tokens = BashSessionLexer().get_tokens(textwrap.dedent(block))
                kinds = (Token.Generic.Prompt, Token.Generic.Output)
                copied = "".join(value for kind, value in tokens if kind not in kinds)
                self.assertNotEqual(copied.strip(), "", f"{name}: {block}")
                prompts = re.findall("^[$#] .*", copied, flags=re.MULTILINE)
                self.assertEqual(prompts, [], name)
                seen += 1
        self.assertGreater(seen, 100)

    def test_tomlFilesAreValid(self) -> None:
        """Every TOML file is a valid configuration, or has valid accounts."""
        seen = 0
        for _, text in pages():
            for found in _TOML.finditer(text):
                text = textwrap.dedent(found[1] or found[2])
                if "[accounts." in text:
                    parseAccounts(text.encode(), Path("accounts.toml"))
                else:
                    makeConfig(tomllib.loads(text))
                seen += 1
        self.assertGreater(seen, 1)

    def test_systemdUnitsAreValid(self) -> None:
        """systemd accepts the units; the programs that they start need not be installed."""
        program = neededProgram("systemd-analyze")
        target = Path(self.mktemp())
        target.mkdir()
        units = []
        for path in sorted(EXAMPLES.rglob("*.service")):
            text = re.sub("^ExecStart=\\S+", "ExecStart=/bin/true", path.read_text(), flags=re.M)
            units.append(target / path.name)
            units[-1].write_text(text)
        self.assertGreater(len(units), 2)
        done = subprocess.run(
            [program, "verify", "--man=no", *map(str, units)],
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
        own = [line for line in done.stderr.decode().splitlines() if ".service" in line]
        self.assertEqual([line for line in own if any(unit.name in line for unit in units)], [])

    def test_readmeLinksExist(self) -> None:
        """README links to files that there are."""
        text = (ROOT / "README.md").read_text("utf-8")
        links = re.findall(r"\]\((?!http)([^)#]+)", text)
        self.assertGreater(len(links), 3)
        for link in links:
            self.assertTrue((ROOT / link).exists(), link)


def journalOnClock(test: TestCase) -> LedgerFixture:
    return ClockFixture(journal.JournalFactory().configure({}), isDurable=True)


class JournalLedgerTests(makeLedgerTests(journalOnClock)):  # type: ignore[misc]
    """The example of a ledger passes the contract."""


class AppUsersTests(appUsersTests.AppUsersTests):
    """The example of an authenticator passes its tests."""


class AppUsersFactoryTests(appUsersTests.AppUsersFactoryTests):
    """So does its factory."""


class LineTests(lineCarrierTests.LineTests):
    """The example of a carrier passes the contract of features."""


class JournalTests(SynchronousTestCase):
    """
    The example, beyond the contract.
    """

    def test_journalFactoryRefusesUnknownSettings(self) -> None:
        """Its factory refuses unknown settings."""
        factory = journal.JournalFactory()
        self.assertTrue(ILedgerFactory.providedBy(factory))
        for settings in ({"nosuch": "1"}, {"file": "../up"}, {"file": ""}):
            self.assertRaises(InvalidDescription, factory.configure, settings)

    def test_journalReadsRequestsOfSubclasses(self) -> None:
        """The broker submits what carriers have parsed, which has more fields."""
        publication = Publication(topic="t", content=b"x", extensions={}, groupId="1")
        _, request = journal.decodeLine(journal.encodeLine(1.0, publication))
        self.assertEqual(request, PublishEvent(topic="t", content=b"x", extensions={}))

    def test_journalDropsLineCutByCrash(self) -> None:
        """A line cut off by a crash is dropped, and the next one starts on a new line."""
        directory = Path(self.mktemp())
        fixture = ClockFixture(journal.JournalFactory().configure({}), isDurable=True)
        for expected in (1, 2):
            ledger = fixture.makeLedger(directory)
            self.successResultOf(ledger.start())
            self.successResultOf(submit(ledger, journal.OpenTopic(topic=f"t{expected}")))
            page = self.successResultOf(ledger.listTopics(0, 9))
            self.assertEqual(page.total, expected)
            self.successResultOf(ledger.stop())
            with (directory / "journal.txt").open("ab") as file:
                file.write(b'[1,"Op')
