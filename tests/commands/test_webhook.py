"""
Tests for C{svcbroker webhook}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_webhooks}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import webhook
from svcbroker.commands.webhook import Options, describe

RECORD = {
    "subscriptionId": "id",
    "topics": ["a", "b/#"],
    "receiver": "a.example:443",
    "owner": "",
    "paused": False,
    "failures": 0,
    "lastError": "",
    "lastErrorTimestamp": None,
    "oldestEventId": None,
    "oldestEventAge": None,
}


class DaemonDouble:
    """A daemon with a few webhooks, two a page."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        self.calls.append((name, given))
        if name != "webhooks/list":
            return True
        only = given["subscriptionId"]
        ids = [id for id in "12345" if id > given["after"] and only in (None, id)]
        return {
            "webhooks": [{**RECORD, "subscriptionId": id} for id in ids[:2]],
            "next": ids[1] if len(ids) > 2 else None,
        }


def options(*words: str) -> Options:
    """A command line."""
    parsed = Options()
    parsed.parseOptions(["data", *words])
    return parsed


class WebhookCommandTests(SynchronousTestCase):
    """
    The command line, the calls and the answers.
    """

    def setUp(self) -> None:
        self.daemon: Any = DaemonDouble()

    def test_otherArgumentsAreRefused(self) -> None:
        for words in ("nosuch", "pause", "skip x", "skip x y z", "delete"):
            self.assertRaises(UsageError, options, *words.split())
        self.assertRaises(UsageError, Options().parseOptions, [])

    def test_listGoesThroughPages(self) -> None:
        listing = Deferred.fromCoroutine(webhook._list(self.daemon, options("--group", "2")))
        found = self.successResultOf(listing)
        self.assertEqual([each["subscriptionId"] for each in found], list("12345"))
        self.assertEqual({given["groupId"] for _, given in self.daemon.calls}, {"2"})
        some = webhook._list(self.daemon, options("list", "2", "4"))
        found = self.successResultOf(Deferred.fromCoroutine(some))
        self.assertEqual([each["subscriptionId"] for each in found], ["2", "4"])

    def test_eachIdIsOneCall(self) -> None:
        for action in (*webhook.ACTIONS, "skip"):
            self.daemon.calls.clear()
            chosen = options(action, "x", "y")
            done = Deferred.fromCoroutine(webhook._change(self.daemon, chosen))
            ids, event = (["x"], "y") if action == "skip" else (["x", "y"], None)
            self.assertEqual(list(self.successResultOf(done)), ids)
            self.assertEqual(
                self.daemon.calls,
                [(f"webhooks/{action}", {"subscriptionId": id, "eventId": event}) for id in ids],
            )
            self.assertEqual(len(describe(action, ids)), len(ids))

    def test_answersAreLinesForPeople(self) -> None:
        self.assertEqual(describe("list", []), ["no webhooks"])
        self.assertEqual(describe("list", [RECORD]), ["id: a,b/# to a.example:443"])
        failing = {
            **RECORD,
            "owner": "ann\x1b",
            "paused": True,
            "failures": 3,
            "lastError": "HTTP status 500",
            "lastErrorTimestamp": 1700000000000,
            "oldestEventId": "0123abcd-1-7",
            "oldestEventAge": 61,
        }
        self.assertEqual(
            describe("list", [failing]),
            [
                "id: a,b/# to a.example:443, of ann\\x1b; paused; 3 failures, the last at "
                "2023-11-14 22:13:20.000 UTC: HTTP status 500; "
                "event 0123abcd-1-7 waits for 61 seconds"
            ],
        )
