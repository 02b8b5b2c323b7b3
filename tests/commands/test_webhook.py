"""
Tests for C{svcbroker webhook}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_webhooks}.
"""

from __future__ import annotations

import json
from typing import Any

from svcbroker.commands.webhook import describe
from tests.commands import support
from tests.commands.support import OperatorTestCase

RECORD = {
    "subscriptionId": "id",
    "topics": ["a", "b/#"],
    "receiver": "a.example:443",
    "owner": "",
    "paused": False,
    "failures": 0,
    "lastError": "",
    "lastErrorTimestamp": None,
    "nextAttemptTimestamp": None,
    "oldestEventId": None,
    "oldestEventAge": None,
}


EVENT = "0123abcd-1-7"


class DaemonDouble(support.DaemonDouble):
    """A daemon with a few webhooks, two a page."""

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        if name != "webhooks/list":
            return True
        only = given["subscriptionId"]
        ids = [id for id in "12345" if id > given["after"] and only in (None, id)]
        return {
            "webhooks": [{**RECORD, "subscriptionId": id} for id in ids[:2]],
            "next": ids[1] if len(ids) > 2 else None,
        }


class WebhookCommandTests(OperatorTestCase):
    """
    The command line, the calls and the answers.
    """

    def setUp(self) -> None:
        self.daemon: Any = DaemonDouble()

    def test_otherArgumentsAreRefused(self) -> None:
        for words in ("nosuch", "pause", "skip x", "skip x y z", "delete"):
            for where in ((), ("/data",)):
                self.refused("webhook", *where, *words.split())
        self.assertEqual(self.daemon.calls, [])

    def listed(self, *words: str) -> list[str]:
        """The ids of the webhooks that a command shows."""
        output = self.good("webhook", *words, "--json")
        return [each["subscriptionId"] for each in json.loads(output)]

    def test_listGoesThroughPages(self) -> None:
        self.assertEqual(self.listed("data/", "--group", "2"), list("12345"))
        self.assertEqual({given["groupId"] for _, given in self.daemon.calls}, {"2"})
        self.assertEqual(self.word, "data/")
        self.assertEqual(self.listed("list", "2", "4"), ["2", "4"])

    def test_eachIdIsOneCall(self) -> None:
        for action, done in (
            ("pause", "paused"),
            ("resume", "resumed"),
            ("retry", "tried again"),
            ("delete", "deleted"),
            ("skip", "skipped"),
        ):
            self.daemon.calls.clear()
            output = self.good("webhook", action, "x", EVENT)
            ids, event = (["x"], EVENT) if action == "skip" else (["x", EVENT], None)
            self.assertEqual(
                self.daemon.calls,
                [(f"webhooks/{action}", {"subscriptionId": id, "eventId": event}) for id in ids],
            )
            self.assertEqual(output, "".join(f"{done}: {id}\n" for id in ids))

    def test_answersAreLinesForPeople(self) -> None:
        self.daemon.answer = lambda name, given: {"webhooks": [], "next": None}
        self.assertEqual(self.good("webhook"), "no webhooks\n")
        self.assertEqual(describe(RECORD), "id: a,b/# to a.example:443")
        failing = {
            **RECORD,
            "owner": "ann\x1b",
            "paused": True,
            "failures": 3,
            "lastError": "HTTP status 500",
            "lastErrorTimestamp": 1700000000000,
            "nextAttemptTimestamp": 1700000060000,
            "oldestEventId": EVENT,
            "oldestEventAge": 61,
        }
        self.assertEqual(
            describe(failing),
            "id: a,b/# to a.example:443, of ann\\x1b; paused; 3 failures, the last at "
            "2023-11-14 22:13:20.000 UTC: HTTP status 500, again at 2023-11-14 22:14:20.000 UTC; "
            "event 0123abcd-1-7 waits for 61 seconds",
        )
