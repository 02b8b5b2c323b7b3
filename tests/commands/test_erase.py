"""
Tests for C{svcbroker admin erase} and C{retain}: what is asked of the daemon, and what is shown. A
real one is asked in L{tests.functional.test_erasing}.
"""

from __future__ import annotations

import json
from typing import Any, Final

from svcbroker.commands.erasure import ageText
from tests.commands.support import OperatorTestCase


class DaemonDouble:
    """A daemon that erases everything."""

    group: str | None

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert name == "erase"
        assert given.pop("reason") == "why"
        assert given.pop("groupId") is None
        self.calls.append(given)
        return len(given.get("events", "123"))


class PreviewingDaemon:
    """A daemon that tells what is held."""

    group: str | None

    def __init__(self, held: int) -> None:
        self.held = held
        self.calls: list[dict[str, Any]] = []

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert name == "erase/preview"
        assert given.pop("groupId") is None
        self.calls.append(given)
        holds = [{"case": "c\x1b", "topicName": "t", "first": 2, "last": 1 + self.held}]
        return {"erasable": 3, "held": self.held, "holds": holds if self.held else []}


class RetainingDaemon:
    """A daemon that answers how far its rules are carried out."""

    group: str | None

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.rules = list(rules)

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert (name, given) == ("retention/list", {"groupId": self.group})
        return self.rules


class RetainCommandTests(OperatorTestCase):
    RULE: Final = {
        "patterns": ["logs/#", "telemetry/#"],
        "seconds": 90 * 86400,
        "blockNumber": 1234,
        "erasedCount": 56789,
        "problem": "",
    }

    def test_rulesAreShownWithWhatTheyErased(self) -> None:
        self.daemon = RetainingDaemon(self.RULE)
        self.assertEqual(
            self.good("admin", "retain"),
            "logs/# telemetry/#  kept 90d; searched up to block 1,234; "
            "56,789 erased since the start\n",
        )
        self.assertEqual(json.loads(self.good("admin", "retain", "--json")), [self.RULE])

    def test_failedSearchIsTold(self) -> None:
        """With exit code 1, and without control characters of a topic."""
        problem = {**self.RULE, "patterns": ["a\x1b"], "seconds": 90, "problem": "disk full"}
        self.daemon = RetainingDaemon(problem)
        code, output, _ = self.run_("admin", "retain")
        self.assertEqual(code, 1)
        self.assertIn("kept 90s;", output)
        self.assertIn("; FAILED: disk full\n", output)
        self.assertNotIn("\x1b", output)

    def test_daemonWithoutRulesKeepsContents(self) -> None:
        self.daemon = RetainingDaemon()
        self.assertIn("kept for ever", self.good("admin", "retain"))

    def test_agesAreInTheirLargestUnit(self) -> None:
        for seconds, text in ((86400, "1d"), (7200, "2h"), (5400, "90m"), (61, "61s")):
            self.assertEqual(ageText(seconds), text)


class EraseCommandTests(OperatorTestCase):
    def ask(self, *words: str) -> tuple[str, list[dict[str, Any]]]:
        """The output, and the calls of a command line."""
        self.daemon = DaemonDouble()
        return self.good("erase", "--reason", "why", *words), self.daemon.calls

    def test_eventsAreErased(self) -> None:
        """The daemon may be named before them."""
        expected = ("2 events erased\n", [{"events": ["0000000a-1-2", "0000000b-3-4"]}])
        for words, daemon in ((), None), (("/data",), "/data"), (("http://x/b",), "http://x/b"):
            self.assertEqual(self.ask(*words, "0000000a-1-2", "0000000b-3-4"), expected)
            self.assertEqual(self.word, daemon)

    def test_countIsToldAsJson(self) -> None:
        self.assertEqual(self.ask("--json", "0000000a-1-2", "0000000b-3-4")[0], '{"erased": 2}\n')

    def test_manyEventsNeedMoreCalls(self) -> None:
        output, calls = self.ask(*(f"0000000a-{number}-1" for number in range(1, 1202)))
        self.assertEqual(output, "1201 events erased\n")
        self.assertEqual([len(call["events"]) for call in calls], [500, 500, 201])

    def test_partOfATopicIsErased(self) -> None:
        self.assertEqual(
            self.ask("--topic", "t", "--first", "2", "--last", "4"),
            ("3 events erased\n", [{"topic": "t", "first": 2, "last": 4}]),
        )

    def test_heldEventsMayBeLeftOut(self) -> None:
        _, calls = self.ask("--topic", "t", "--last", "4", "--except-held")
        self.assertEqual(calls, [{"topic": "t", "last": 4, "exceptHeld": True}])

    def test_dryRunTellsWhatIsHeld(self) -> None:
        """Without a reason, by as many calls as an erasure; held events make the exit code 1."""
        self.daemon = PreviewingDaemon(2)
        code, said, _ = self.run_("erase", "--dry-run", "--topic", "t", "--last", "5")
        self.assertEqual(code, 1)
        self.assertEqual(self.daemon.calls, [{"topic": "t", "last": 5}])
        self.assertIn("3 events would be erased\n2 events held:\n  case ", said)
        self.assertIn(": t 2 to 3\n", said)
        self.assertNotIn("\x1b", said)
        self.daemon = PreviewingDaemon(0)
        ids = [f"0000000a-{number}-1" for number in range(1, 702)]
        found = json.loads(self.good("erase", "--dry-run", "--json", *ids))
        self.assertEqual(found, {"erasable": 6, "held": 0, "holds": []})
        self.assertEqual([len(call["events"]) for call in self.daemon.calls], [500, 201])

    def test_placesAreEventsOrTimes(self) -> None:
        for text, place in (
            ("0123abcd-1-2", "0123abcd-1-2"),
            ("2026-11-22T08:00:00Z", "OFFSET_TIME:2026-11-22T08:00:00Z"),
            ("OFFSET_TIME:5", "OFFSET_TIME:5"),
        ):
            _, [call] = self.ask("--topic", "t", "--before", text)
            self.assertEqual(call, {"topic": "t", "before": place})

    def test_wrongUsageIsRefused(self) -> None:
        for words in (
            (),
            ("--topic", "t"),
            ("--last", "3"),
            ("--topic", "t", "--last", "3", "0000000a-1-2"),
            ("--topic", "t", "--last", "3", "--before", "0000000a-1-2"),
            ("--topic", "t", "--last", "x"),
            ("--topic", "t", "--first", "5", "--last", "2"),
            ("0000000a-1-2", "nodir"),
            ("--topic", "t", "--before", "yesterday"),
            ("0000000a-1-2", "--reason", " "),
        ):
            self.daemon = DaemonDouble()
            self.refused("erase", "--reason", "why", *words)
            self.assertEqual(self.daemon.calls, [])
