"""
Tests for C{svcbroker erase}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_erasing}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import erase
from svcbroker.commands.erase import Options


class DaemonDouble:
    """A daemon that erases everything."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert name == "erase"
        assert given.pop("reason") == "why"
        assert given.pop("groupId") is None
        self.calls.append(given)
        return len(given.get("events", "123"))


def options(*words: str) -> Options:
    """A command line."""
    parsed = Options()
    parsed.parseOptions(["data", "--reason", "why", *words])
    return parsed


class EraseCommandTests(SynchronousTestCase):
    def ask(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """The count, and the calls of a command line."""
        daemon: Any = DaemonDouble()
        asking = Deferred.fromCoroutine(erase._erase(daemon, options(*words)))
        return self.successResultOf(asking), daemon.calls

    def test_eventsAreErased(self) -> None:
        self.assertEqual(self.ask("a-1-2", "b-3-4"), (2, [{"events": ["a-1-2", "b-3-4"]}]))

    def test_manyEventsNeedMoreCalls(self) -> None:
        count, calls = self.ask(*(f"a-{number}-1" for number in range(1201)))
        self.assertEqual(count, 1201)
        self.assertEqual([len(call["events"]) for call in calls], [500, 500, 201])

    def test_partOfATopicIsErased(self) -> None:
        self.assertEqual(
            self.ask("--topic", "t", "--first", "2", "--last", "4"),
            (3, [{"topic": "t", "first": 2, "last": 4}]),
        )

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
            ("--topic", "t", "--last", "3", "a-1-2"),
            ("--topic", "t", "--last", "3", "--before", "a-1-2"),
            ("--topic", "t", "--last", "x"),
            ("--topic", "t", "--before", "yesterday"),
            ("a-1-2", "--reason", " "),
        ):
            with self.assertRaises(UsageError, msg=words):
                options(*words)
