"""
Tests for the descriptions by which ledgers are chosen, and for the plugins behind them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

from attrs import field, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

import svcbroker
from svcbroker.interfaces import ILedger, ILedgerFactory, InvalidDescription, LedgerContext
from svcbroker.ledgers import (
    LedgerPlugin,
    describeLedgers,
    findLedgerFactories,
    parseDescription,
    readDescription,
)
from svcbroker.net.descriptions import Description
from tests.waiting import TIMEOUT


@implementer(ILedgerFactory)
@frozen
class FakeFactory:
    """A kind of ledger that only remembers how it was configured."""

    name: str
    summary: str = "A fake."
    settings: Mapping[str, str] = field(factory=lambda: {"x": "how much", "long": "how long"})
    configured: list[Mapping[str, str]] = field(factory=list)

    def configure(self, settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
        for key in settings:
            if key not in self.settings:
                raise InvalidDescription(f"{key}: no such setting")
        self.configured.append(settings)

        def make(context: LedgerContext) -> ILedger:
            raise AssertionError("nobody asked for a ledger")

        return make


class ReadTests(SynchronousTestCase):
    """
    The form of a description.
    """

    def test_nameAndSettingsAreRead(self) -> None:
        """A name, and settings behind colons."""
        for text, name, found in [
            ("memory", "memory", {}),
            ("pbft:nodes=7", "pbft", {"nodes": "7"}),
            ("pbft:nodes=7:interval=0.5", "pbft", {"nodes": "7", "interval": "0.5"}),
            ("a:k=", "a", {"k": ""}),
            ("a:k=x=y", "a", {"k": "x=y"}),
            (r"a:k=http\://h\:1/", "a", {"k": "http://h:1/"}),
            (r"a:k=\\", "a", {"k": "\\"}),
            (r"a:k\=l=v", "a", {"k=l": "v"}),
            (r"a\:b", "a:b", {}),
        ]:
            self.assertEqual(readDescription(text), Description(name=name, settings=found), text)

    def test_malformedDescriptionsAreRefused(self) -> None:
        """Texts without the form are refused."""
        for text in [
            "",
            ":",
            ":a=b",
            "=x",
            "a=b",
            "a:b",
            "a:",
            "a:=v",
            "a::b=c",
            "a:b=c:b=c",
            "a\\",
        ]:
            self.assertRaises(InvalidDescription, readDescription, text)
        self.assertRaises(InvalidDescription, readDescription, "a" * 4097)

    def test_namesTheSetting(self) -> None:
        """The words name the setting that is at fault."""
        error = self.assertRaises(InvalidDescription, readDescription, "a:nodes=1:nodes=2")
        self.assertEqual(str(error), "a: nodes is given twice")

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.text(min_size=1, max_size=20),
        st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=20), max_size=5),
    )
    def test_backslashesEscapeAnyCharacter(self, name: str, values: dict[str, str]) -> None:
        """Anything can be written with backslashes in front of every character."""

        def quoted(text: str) -> str:
            return "".join("\\" + character for character in text)

        parts = [f"{quoted(key)}={quoted(value)}" for key, value in values.items()]
        self.assertEqual(
            readDescription(":".join([quoted(name), *parts])),
            Description(name=name, settings=values),
        )


class ParseTests(SynchronousTestCase):
    """
    Choosing a ledger.
    """

    def test_factoryGetsItsSettings(self) -> None:
        """The kind of that name is given the settings as written."""
        first, second = FakeFactory("first"), FakeFactory("second")
        parseDescription("second:x=07", [first, second])
        self.assertEqual((first.configured, second.configured), ([], [{"x": "07"}]))

    def test_unknownNameListsTheKnownOnes(self) -> None:
        """A name that nobody has is refused with the names there are."""
        error = self.assertRaises(
            InvalidDescription, parseDescription, "c", [FakeFactory("b"), FakeFactory("a")]
        )
        self.assertEqual(str(error), "there is no ledger called 'c'; there are: a, b")

    def test_nameOfTwoPluginsIsRefused(self) -> None:
        """A name that two plugins have is refused."""
        error = self.assertRaises(
            InvalidDescription, parseDescription, "a", [FakeFactory("a"), FakeFactory("a")]
        )
        self.assertEqual(str(error), "2 plugins are called 'a'")

    def test_settingErrorsNameTheLedger(self) -> None:
        """The error of a kind for a setting is told with the kind's name."""
        error = self.assertRaises(InvalidDescription, parseDescription, "a:y=1", [FakeFactory("a")])
        self.assertEqual(str(error), "a: y: no such setting")

    def test_factoriesAreSortedByName(self) -> None:
        """Kinds come in the order of their names, from the plugins of the interface."""
        asked = []

        def plugins(interface: type) -> list[FakeFactory]:
            asked.append(interface)
            return [FakeFactory("b"), FakeFactory("a")]

        self.assertEqual([each.name for each in findLedgerFactories(plugins)], ["a", "b"])
        self.assertEqual(asked, [ILedgerFactory])

    def test_helpListsEveryLedger(self) -> None:
        """The help has each kind's name, summary and settings, one below the other."""
        text = describeLedgers([FakeFactory("a"), FakeFactory("b")])
        self.assertEqual(
            text.split("\n\n")[1:],
            [
                "a\n    A fake.\n      x     how much\n      long  how long",
                "b\n    A fake.\n      x     how much\n      long  how long\n",
            ],
        )


class BuiltInTests(SynchronousTestCase):
    """
    The kinds that come with svcbroker.
    """

    def test_builtInLedgersArePlugins(self) -> None:
        """They are found as plugins."""
        found = {factory.name: factory for factory in findLedgerFactories()}
        for name in ("memory", "pbft"):
            self.assertEqual(found[name], LedgerPlugin(name, f"svcbroker.ledgers.{name}"))

    def test_pluginStandInsProvideTheInterface(self) -> None:
        """The stand-in provides what it says."""
        self.assertTrue(
            verifyObject(ILedgerFactory, LedgerPlugin("memory", "svcbroker.ledgers.memory"))
        )

    def test_memoryStandInLoadsItsModule(self) -> None:
        """The stand-in hands on to its module."""
        self.assertTrue(callable(parseDescription("memory")))
        error = self.assertRaises(InvalidDescription, parseDescription, "memory:x=1")
        self.assertIn("x", str(error))

    def test_pbftStandInLoadsItsModule(self) -> None:
        """So does the one for pbft."""
        self.assertTrue(callable(parseDescription("pbft:nodes=4")))
        error = self.assertRaises(InvalidDescription, parseDescription, "pbft:node=4")
        self.assertIn("node", str(error))
        self.assertIn("nodes", describeLedgers(findLedgerFactories()))


PLUGIN = '''
"""A ledger from elsewhere."""

from zope.interface import implementer

from svcbroker.interfaces import ILedgerFactory, InvalidDescription
from svcbroker.ledgers.memory import MemoryLedger


@implementer(ILedgerFactory)
class Elsewhere:
    name = "elsewhere"
    summary = "A list in memory, from another package."
    settings = {"colour": "which colour; any word"}

    def configure(self, settings):
        if set(settings) - {"colour"}:
            raise InvalidDescription("only colour can be set")
        return MemoryLedger


elsewhere = Elsewhere()
'''

USE = """
import json, sys
from pathlib import Path

from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from svcbroker.interfaces import LedgerContext, submit
from svcbroker.ledgers import findLedgerFactories, parseDescription
from svcbroker.model import OpenTopic, PublishEvent

results = []
ledger = parseDescription("elsewhere:colour=red")(
    LedgerContext(
        group="1",
        directory=Path("nowhere"),
        reactor=Clock(),
        now=lambda: 1.0,
        entropy=bytes,
        runInThread=lambda f, *args: succeed(f(*args)),
        maxContent=100,
    )
)
ledger.start()
submit(ledger, OpenTopic(topic="t"))
submit(ledger, PublishEvent(topic="t", content=b"hello")).addCallback(
    lambda receipt: ledger.getEvent(receipt.eventId)
).addCallback(lambda event: results.append(event.content.decode()))
print(json.dumps({"names": [each.name for each in findLedgerFactories()], "results": results}))
"""

LAZY = """
import json, sys
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from svcbroker.ledgers import findLedgerFactories

names = [maker.tapname for maker in getPlugins(IServiceMaker)]
ledgers = [factory.name for factory in findLedgerFactories()]
print(json.dumps([names, ledgers, sorted(sys.modules)]))
"""


class OtherProcessTests(SynchronousTestCase):
    """
    Plugins as a fresh process finds them.
    """

    def run_(self, program: str, *paths: Path) -> str:
        """The output of a program, with directories on its path before ours."""
        ours = Path(svcbroker.__file__).parent.parent
        path = os.pathsep.join(map(str, [*paths, ours]))
        done = subprocess.run(
            [sys.executable, "-c", dedent(program)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_pluginFromAnotherDirectoryWorks(self) -> None:
        """A ledger plugin from another directory is found, chosen, and works."""
        root = Path(self.mktemp())
        plugins = root / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "elsewhere_ledger.py").write_text(PLUGIN, encoding="utf-8")
        printed = json.loads(self.run_(USE, root.absolute()))
        self.assertEqual(printed["results"], ["hello"])
        self.assertLessEqual({"elsewhere", "memory", "pbft"}, {*printed["names"]})

    def test_listingPluginsImportsNoLedger(self) -> None:
        """Listing the plugins imports neither the daemon nor a ledger nor a reactor."""
        names, ledgers, modules = json.loads(self.run_(LAZY))
        self.assertEqual(names.count("svcbroker"), 1)
        self.assertEqual((ledgers.count("memory"), ledgers.count("pbft")), (1, 1))
        for module in modules:
            self.assertNotIn(
                module,
                {
                    "svcbroker.tap",
                    "svcbroker.chain",
                    "svcbroker.storage",
                    "svcbroker.ledgers.memory",
                    "svcbroker.ledgers.pbft",
                    "twisted.internet.reactor",
                },
            )
