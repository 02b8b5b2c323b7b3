"""
Tests for C{svcbroker subscription}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_positions}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import subscription
from svcbroker.commands.subscription import Options, describe

RECORD = {
    "id": "x",
    "interfaceType": "STOMP",
    "groupId": "1",
    "owner": "10.0.0.1",
    "live": False,
    "usedTimeStamp": "2026-11-22 00:00:00",
    "subscriptions": 1,
    "blockNumber": 7,
}


class DaemonDouble:
    """A daemon with a few durable subscriptions, two a page."""

    def __init__(self) -> None:
        self.deleted: list[list[str]] = []
        self.kept = {
            "STOMP": [
                {**RECORD, "id": f"{number:03}", "owner": "ab"[number % 2], "live": number == 4}
                for number in range(130)
            ],
            "MQTT": [{**RECORD, "id": "c", "interfaceType": "MQTT", "owner": "a"}],
        }

    async def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert given["groupId"] == "2"
        if name == "subscriptions/delete":
            self.deleted.append(given["ids"])
            return len(given["ids"])
        after = [each for each in self.kept[given["interfaceType"]] if each["id"] > given["after"]]
        return {
            "subscriptions": after[:2],
            "next": after[1]["id"] if len(after) > 2 else None,
        }


class OptionsTests(SynchronousTestCase):
    """
    The command line.
    """

    def test_argumentsChooseTheAction(self) -> None:
        for words, action, type, ids, offset in (
            ("", "list", "", (), None),
            ("list", "list", "", (), None),
            ("list --owner a", "list", "", (), None),
            ("reset STOMP x 7", "reset", "STOMP", ("x",), "7"),
            ("delete mqtt x y", "delete", "MQTT", ("x", "y"), None),
            ("delete --owner a", "delete", "", (), None),
            ("delete MQTT --owner a", "delete", "MQTT", (), None),
        ):
            options = Options()
            options.parseOptions(["data", *words.split()])
            found = [options[name] for name in ("action", "type", "ids", "offset")]
            self.assertEqual(found, [action, type, ids, offset])

    def test_otherArgumentsAreRefused(self) -> None:
        for words in (
            "",
            "data nosuch",
            "data list STOMP",
            "data reset",
            "data reset STOMP x",
            "data reset STOMP x 7 8",
            "data reset webhook x 7",
            "data reset STOMP x 7 --owner a",
            "data delete",
            "data delete STOMP",
            "data delete STOMP x --owner a",
            "data delete webhook x",
        ):
            self.assertRaises(UsageError, Options().parseOptions, words.split())


class CallTests(SynchronousTestCase):
    """
    The calls that are made.
    """

    def make(self, words: str) -> tuple[DaemonDouble, Any]:
        """Carry out an action; return what was asked and what came of it."""
        options, daemon = Options(), DaemonDouble()
        options.parseOptions(["data", "--group", "2", *words.split()])
        action = getattr(subscription, f"_{options['action']}")
        answer = Deferred.fromCoroutine(action(daemon, options))
        return daemon, self.successResultOf(answer)

    def test_listReadsAllPages(self) -> None:
        _, answer = self.make("list")
        self.assertEqual(len(answer), 131)
        _, answer = self.make("list --owner a")
        self.assertEqual(len(answer), 66)

    def test_ownersSubscriptionsAreDeletedInParts(self) -> None:
        """Those of both protocols that no client uses."""
        daemon, answer = self.make("delete --owner a")
        self.assertEqual(answer, 65)
        self.assertEqual([len(each) for each in daemon.deleted], [50, 14, 1])
        self.assertNotIn("004", daemon.deleted[0])
        daemon, answer = self.make("delete MQTT --owner a")
        self.assertEqual(daemon.deleted, [["c"]])


class DescribeTests(SynchronousTestCase):
    """
    What people read.
    """

    def test_recordsAreLines(self) -> None:
        session = {**RECORD, "interfaceType": "MQTT", "live": True, "owner": "", "id": "c\x1b"}
        session["blockNumber"] = None
        self.assertEqual(
            describe("list", [RECORD, session]),
            [
                "STOMP x: last used 2026-11-22 00:00:00 UTC, resumes in block 7, of 10.0.0.1",
                "MQTT c\\x1b: live, 1 subscription",
            ],
        )
        self.assertEqual(describe("list", []), ["no durable subscriptions"])
        self.assertEqual(describe("reset", True), ["reset"])
        self.assertEqual(describe("delete", 3), ["deleted: 3"])
