"""
Tests for C{svcbroker admin subscription}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_positions}.
"""

from __future__ import annotations

import json
from typing import Any

from svcbroker.commands.subscription import describe
from tests.commands import support
from tests.commands.support import OperatorTestCase

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


class DaemonDouble(support.DaemonDouble):
    """A daemon with a few durable subscriptions, two a page."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[list[str]] = []
        self.kept = {
            "STOMP": [
                {**RECORD, "id": f"{number:03}", "owner": "ab"[number % 2], "live": number == 4}
                for number in range(130)
            ],
            "MQTT": [{**RECORD, "id": "c", "interfaceType": "MQTT", "owner": "a"}],
        }

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name == "subscriptions/reset":
            return True
        if name == "subscriptions/delete":
            self.deleted.append(given["ids"])
            return len(given["ids"])
        after = [each for each in self.kept[given["interfaceType"]] if each["id"] > given["after"]]
        return {
            "subscriptions": after[:2],
            "next": after[1]["id"] if len(after) > 2 else None,
        }


class CommandTests(OperatorTestCase):
    """
    The command line, and the calls that are made.
    """

    def setUp(self) -> None:
        self.daemon = DaemonDouble()

    def make(self, words: str) -> Any:
        """Carry out an action; return what came of it."""
        words = f"subscription data/ {words} --group 2 --json"
        answer = json.loads(self.good(*words.split()))
        self.assertEqual(self.word, "data/")
        self.assertEqual({given["groupId"] for _, given in self.daemon.calls}, {"2"})
        return answer

    def test_positionIsReset(self) -> None:
        self.assertEqual(self.make("reset stomp x 7"), True)
        expected = {"groupId": "2", "interfaceType": "STOMP", "id": "x", "offset": "7"}
        self.assertEqual(self.daemon.calls, [("subscriptions/reset", expected)])
        self.assertEqual(self.good(*["subscription", "reset", "MQTT", "x", "7"]), "reset\n")

    def test_idsAreDeleted(self) -> None:
        self.assertEqual(self.make("delete mqtt x y"), 2)
        [(name, given)] = self.daemon.calls
        self.assertEqual((name, given["interfaceType"]), ("subscriptions/delete", "MQTT"))
        self.assertEqual(given["ids"], ["x", "y"])
        output = self.good(*["subscription", "delete", "MQTT", "z"])
        self.assertEqual(output, "deleted: 1\n")

    def test_otherArgumentsAreRefused(self) -> None:
        for words in (
            "nosuch",
            "list STOMP",
            "reset",
            "reset STOMP x",
            "reset STOMP x 7 8",
            "reset webhook x 7",
            "reset STOMP x 7 --owner a",
            "delete",
            "delete STOMP",
            "delete STOMP x --owner a",
            "delete webhook x",
        ):
            for where in ("", "/data "):
                self.refused("subscription", *f"{where}{words}".split())
        self.assertEqual(self.daemon.calls, [])

    def test_listReadsAllPages(self) -> None:
        self.assertEqual(len(self.make("")), 131)
        self.assertEqual(len(self.make("list")), 131)
        self.assertEqual(len(self.make("list --owner a")), 66)

    def test_ownersSubscriptionsAreDeletedInParts(self) -> None:
        """Those of both protocols that no client uses."""
        self.assertEqual(self.make("delete --owner a"), 65)
        self.assertEqual([len(each) for each in self.daemon.deleted], [50, 14, 1])
        self.assertNotIn("004", self.daemon.deleted[0])
        self.daemon.deleted.clear()
        self.make("delete MQTT --owner a")
        self.assertEqual(self.daemon.deleted, [["c"]])


class DescribeTests(OperatorTestCase):
    """
    What people read.
    """

    def test_recordsAreLines(self) -> None:
        session = {**RECORD, "interfaceType": "MQTT", "live": True, "owner": "", "id": "c\x1b"}
        session["blockNumber"] = None
        self.assertEqual(
            [describe(RECORD), describe(session)],
            [
                "STOMP x: last used 2026-11-22 00:00:00 UTC, resumes in block 7, of 10.0.0.1",
                "MQTT c\\x1b: live, 1 subscription",
            ],
        )
        self.daemon: Any = DaemonDouble()
        self.daemon.kept = {"STOMP": [], "MQTT": []}
        self.assertEqual(self.good("subscription"), "no durable subscriptions\n")
