"""
Tests for L{svcbroker.daemon.memory}: the table of all bounds.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from twisted.logger import capturedLogs, formatEvent
from twisted.python.reflect import namedModule
from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.carriers.http.feature import largestBody
from svcbroker.daemon.config import Config, makeConfig
from svcbroker.daemon.memory import BudgetSizes, MemoryTable, boundsOf
from svcbroker.ledgers import measures
from svcbroker.net.budgets import (
    MAX_INPUT,
    MAX_NAMES,
    MAX_OUTPUT,
    MAX_RETAINED,
    MAX_SESSION_BYTES,
    MAX_WINDOWS,
)

GIB: Final = 1 << 30
FILES: Final = 65_536
LEDGERS: Final = ("cometbft:home=/x", r"copy:url=http\://a", "memory", "pbft")
CHILD_SECONDS: Final = 300.0

OF_ONE: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "of one connection, which is bounded itself": {
        "svcbroker.carriers.http.fastpath.FastChannel": ("requests",),
        "svcbroker.carriers.mqtt.connection.MqttConnection": ("_backlog",),
        "svcbroker.carriers.mqtt.delivery.Delivery": ("_pending",),
        "svcbroker.carriers.mqtt.receiving.Receiving": ("_open", "_order"),
        "svcbroker.carriers.stomp.carrier.StompProtocol": ("_subscriptions",),
        "svcbroker.carriers.stomp.session.StompTransactions": ("_open",),
    },
    "of one frame, the last one with shared headers": {
        "svcbroker.carriers.stomp.requests.PublicationReader": ("_headers",),
    },
    "of one request, of which a connection has one": {
        "svcbroker.carriers.http.connection.BrokerRequest": (
            *("_adapterCache", "notifications", "prepath", "postpath"),
        ),
        "svcbroker.model._subscriptions.SubscribeRequest": ("filters",),
    },
    "of one MQTT session, with at most 1,000 filters and 65,535 messages under way": {
        "svcbroker.carriers.mqtt.mqttsession.Incoming": ("published", "submitted", "keys"),
        "svcbroker.carriers.mqtt.kept.KeptPacketIds": ("_kept", "_touched"),
        "svcbroker.carriers.mqtt.subscription.LogReader": ("_remembered", "members"),
        "svcbroker.carriers.mqtt.mqttsession.Session": (
            *("_changed", "_completed", "_orphans", "_reserved", "_sent", "_settled", "_sources"),
            *("_unacknowledged", "readers", "released", "subscriptions"),
        ),
        "svcbroker.carriers.mqtt.subscription.ShareGroup": ("_members", "_reserved", "_waiting"),
    },
    "of one subscription that reads the past, a bounded number at a time": {
        "svcbroker.broker.subscriptions._follower.LogHistory": ("_heights",),
    },
    "of one account, read from a file": {
        "svcbroker.interfaces._identity.Identity": ("credentials",)
    },
}
"""Containers that grow in number alone, by the reason why each of them does not grow."""


def table(usable: int = 64 * GIB, files: int = FILES, **settings: Any) -> MemoryTable:
    """The table of a configuration."""
    config = makeConfig({name.replace("_", "-"): value for name, value in settings.items()})
    return boundsOf(config, (), (), usable, files)


def holders() -> Iterator[str]:
    """All containers that the table has, of every ledger."""
    for ledger in LEDGERS:
        for bound in table(ledger=ledger).bounds:
            yield from bound.holders


@cache
def sourceOf(kind: type) -> str:
    """The source of a class, for which its whole module is parsed."""
    return inspect.getsource(kind)


class TableTests(SynchronousTestCase):
    """
    The table, and its sum.
    """

    def test_sumIsThatOfBounds(self) -> None:
        """The sum has each bound once, and nothing of what is told for one of many."""
        bounds = table().bounds
        whole = [each.bytes for each in bounds if not each.each]
        self.assertEqual(table().total, sum(whole))
        self.assertGreater(len(whole), 15)
        ofOne = {each.name for each in bounds if each.each}
        self.assertTrue({"a hold", "a topic", "a webhook"} <= ofOne)

    def test_sumFollowsSettings(self) -> None:
        """Each setting that bounds memory changes the sum."""
        total = table().total
        for change, more in [
            ({"max_unsent": MAX_OUTPUT + 5}, 5),
            ({"group": ["1", "2=memory"]}, None),
            ({"ledger": "pbft:mempool=134217728"}, 8 * 64 * 1024 * 1024),
            ({"files": FILES + 1}, 10 * 1024),
            ({"max_content": 32 * 1024 * 1024}, None),
        ]:
            grown = table(**change).total - total  # type: ignore[arg-type]
            self.assertGreater(grown, 0, change)
            self.assertEqual(grown, grown if more is None else more, change)

    def test_rowsOfOneNameAreOne(self) -> None:
        """Features that share a budget add to its row; each row says how it comes about."""
        bounds = table(group=["1", "2"]).bounds
        names = [each.name for each in bounds]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(each.how for each in bounds))
        [row] = [each for each in bounds if each.name == "log-ins"]
        self.assertIn(" accounts; 1", row.how)
        self.assertIn("svcbroker.carriers.http.logins.LogIns._sessions", row.holders)

    def test_everyLedgerOfOursTells(self) -> None:
        """Only ledgers of others may be told as not told."""
        for ledger in LEDGERS:
            self.assertFalse(
                [each for each in table(ledger=ledger).bounds if "not told" in each.how]
            )

    def test_ledgerOfOthersNeedNotTell(self) -> None:
        """It is told that nothing is known, and the sum has nothing of it."""

        class Silent:
            name = "silent"

        self.patch(measures, "findLedgerFactories", lambda: [Silent()])
        told = table(ledger="silent").bounds
        [row] = [each for each in told if each.name == "the ledger of group 1"]
        self.assertEqual((row.bytes, row.how), (0, "not told by silent"))

    def test_startTellsWhereItIsOver(self) -> None:
        """In one line of the log; else there is none."""
        for amount, count in ((64 * GIB, 0), (GIB // 4, 1)):
            with capturedLogs() as events:
                table(usable=amount).announce()
            self.assertEqual(len(events), count)
            for event in events:
                self.assertIn("may use 256 MiB; the largest bound is ", formatEvent(event))

    def test_moreThanMemoryIsOver(self) -> None:
        """Where the sum is more than the memory, the advice names the largest bound."""
        self.assertFalse(table().isOver)
        small = table(usable=GIB, ledger="pbft:mempool=1073741824")
        self.assertTrue(small.isOver)
        self.assertIn("the largest bound is pending transactions, 8.0 GiB", small.advice)
        self.assertIn("mempool", small.advice)

    def test_holdersExist(self) -> None:
        """What the table names is there: it does not outlive the code."""
        for name in {*holders(), *(each for each, _ in listed())}:
            module = self.moduleOf(name)
            path = name.removeprefix(f"{module.__name__}.").split(".")
            if "<locals>" in path:
                path = path[: path.index("<locals>")]
            elif len(path) == 2:
                owner, attribute = getattr(module, path[0]), path[1]
                sources = [
                    sourceOf(each)
                    for each in owner.__mro__
                    if each.__module__ not in ("builtins", "typing", "zope.interface")
                ]
                self.assertTrue(any(attribute in source for source in sources), name)
                continue
            reduce(getattr, path, module)

    def moduleOf(self, name: str) -> ModuleType:
        """The module that a full name begins with."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            try:
                return namedModule(".".join(parts[:end]))  # type: ignore[no-any-return]
            except (ImportError, AttributeError):
                continue
        raise AssertionError(name)


class BudgetTests(SynchronousTestCase):
    """
    The budgets that are made of the memory.
    """

    def test_largeMachineHasWholeBudgets(self) -> None:
        sizes = BudgetSizes.of(Config(), 64 * GIB)
        expected = BudgetSizes(
            output=MAX_OUTPUT,
            input=MAX_INPUT,
            windows=MAX_WINDOWS,
            retained=MAX_RETAINED,
            subscriptions=MAX_SESSION_BYTES,
            names=MAX_NAMES,
        )
        self.assertEqual(sizes, expected)

    def test_smallMachineHasShares(self) -> None:
        """An eighth of the memory each; C{max-unsent} wins."""
        sizes = BudgetSizes.of(Config(), GIB // 2)
        share = GIB // 16
        expected = BudgetSizes(
            output=share,
            input=share,
            windows=share,
            retained=share,
            subscriptions=share,
            names=share,
        )
        self.assertEqual(sizes, expected)
        self.assertEqual(BudgetSizes.of(Config(maxUnsent=7), GIB).output, 7)

    def test_largestRequestsHaveRoom(self) -> None:
        """However little memory there is, four of the largest requests fit into the input."""
        content = 64 * 1024 * 1024
        sizes = BudgetSizes.of(Config(maxContent=content), GIB // 4)
        self.assertEqual(sizes.input, 4 * largestBody(content))


def listed() -> Iterator[tuple[str, str]]:
    """The containers of L{OF_ONE}, with their reasons."""
    for reason, owners in OF_ONE.items():
        for owner, names in owners.items():
            for name in names:
                yield f"{owner}.{name}", reason


class GrowthTests(SynchronousTestCase):
    """
    What grows with input in a running daemon.
    """

    def grown(self) -> set[str]:
        """The containers that have grown in a run of the daemon."""
        root = Path(svcbroker.__file__).parents[1]
        command = (sys.executable, "-m", "tests.daemon.growth", str(Path(self.mktemp()).absolute()))
        run = subprocess.run(
            command, capture_output=True, cwd=root, timeout=CHILD_SECONDS, check=False, text=True
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        grown = {line.partition(" ")[0] for line in run.stdout.splitlines()}
        # It has looked where there is something to be seen.
        self.assertIn("svcbroker.chain._state.ChainState._topics", grown)
        self.assertIn("svcbroker.carriers.mqtt.sessions.Sessions._sessions", grown)
        return grown

    def test_whatGrowsIsInTable(self) -> None:
        """
        Every container that grows with what clients send is in the table, or is of one of
        something that is. See L{tests.daemon.growth}.
        """
        known = {*holders(), *(name for name, _ in listed())}
        unknown = self.grown() - known
        for _ in range(2):
            # What is under way when it looks, on a busy machine, is not there each time.
            if unknown:
                unknown &= self.grown()
        self.assertEqual(
            sorted(unknown),
            [],
            "these grow with what clients send: bound them, and name them in the bounds of their "
            "feature",
        )
