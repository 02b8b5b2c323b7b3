"""
Tests for C{svcbroker admin hold}: what is asked of the daemon, and what is shown.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.commands.support import OperatorTestCase

_MADE: Final = {"transHash": "0xab", "blockNumber": 7}


class HoldingDaemon:
    """A daemon with some holds."""

    group: str | None

    def __init__(self, *holds: dict[str, Any]) -> None:
        self.holds = [each for each in holds if each["release"] is None]
        self.released = [each for each in holds if each["release"] is not None]
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        assert given.pop("groupId") is None
        self.calls.append((name, given))
        if name not in ("holds/list", "holds/released"):
            return _MADE
        if name == "holds/released":
            found = [each for each in self.released if given["case"] in (None, each["case"])]
            at = int(given["after"] or 0)
            end = at + 2
            return {"holds": found[at:end], "next": str(end) if end < len(found) else None}
        found = [each for each in self.holds if given["case"] in (None, each["case"])]
        start, limit = given["offset"], given["limit"]
        return {"total": len(found), "holds": found[start : start + limit]}


def hold(case: str, **more: Any) -> dict[str, Any]:
    """A hold as the daemon tells of it."""
    return {
        "case": case,
        "account": "cara",
        "reason": "court order",
        "topics": [],
        "eventCount": 0,
        "events": [],
        "transHash": "0xab",
        "blockNumber": 7,
        "timestamp": 1700000000000,
        "release": None,
        **more,
    }


class HoldCommandTests(OperatorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = HoldingDaemon()

    def test_holdsAreAddedAndReleased(self) -> None:
        """With their reasons, and the transaction is told."""
        said = self.good("hold", "add", "c-1", "--topic", "a/#", "--topic", "b", "--reason", "x")
        self.assertEqual(said, "held in case c-1: a/#, b; block 7, 0xab\n")
        said = self.good("hold", "add", "c-2", "0000000a-1-2", "--reason", "y", "--json")
        self.assertEqual(json.loads(said), {"case": "c-2", **_MADE})
        said = self.good("hold", "release", "c-1", "--reason", "closed")
        self.assertEqual(said, "released: case c-1; block 7, 0xab\n")
        self.assertEqual(
            self.daemon.calls,
            [
                ("holds/add", {"case": "c-1", "reason": "x", "topics": ["a/#", "b"]}),
                ("holds/add", {"case": "c-2", "reason": "y", "events": ["0000000a-1-2"]}),
                ("holds/release", {"case": "c-1", "reason": "closed"}),
            ],
        )

    def test_wrongUsageIsTold(self) -> None:
        """Before the daemon is asked."""
        for words, why in (
            (("add", "c", "--topic", "a"), "--reason is needed"),
            (("add", "c", "--topic", "a", "--reason", " "), "--reason is needed"),
            (("add", "c", "--reason", "x"), "give either EVENT... or --topic"),
            (
                ("add", "c", "0000000a-1-2", "--topic", "a", "--reason", "x"),
                "give either EVENT... or --topic",
            ),
            (("release", "c"), "--reason is needed"),
        ):
            code, _, said = self.run_("hold", *words)
            self.assertEqual(code, 2, words)
            self.assertIn(why, said)
        self.assertEqual(self.daemon.calls, [])

    def test_holdsAreListed(self) -> None:
        """All of them, page by page; of one case its events."""
        many = [hold(f"c-{number}", topics=["a"]) for number in range(130)]
        self.daemon = HoldingDaemon(
            *many,
            hold("x", eventCount=2, account="", events=[{"topicName": "t\x1b", "sequence": 4}]),
        )
        said = self.good("hold")
        self.assertEqual(len(said.splitlines()), 131)
        self.assertIn("c-0  since 2023-11-14 22:13:20.000 UTC by cara: a; court order\n", said)
        self.assertNotIn("sequence", said)
        said = self.good("hold", "list", "x")
        self.assertIn("x  since 2023-11-14 22:13:20.000 UTC: 2 events; court order\n", said)
        self.assertIn(" 4\n", said)
        self.assertNotIn("\x1b", said)
        self.assertEqual(len(json.loads(self.good("hold", "list", "--json"))), 131)
        self.assertEqual(self.run_("hold", "list", "none")[0], 1)
        self.daemon = HoldingDaemon()
        self.assertEqual(self.good("hold", "list"), "nothing is held\n")

    def test_releasedHoldsAreListedOnRequest(self) -> None:
        """With when, by whom and why they were released, after those in force."""
        release = {"account": "dora", "reason": "closed", "timestamp": 1700000060000}
        ended = [
            hold(f"c-{number}", topics=["a"], release={**release, "blockNumber": number})
            for number in range(5)
        ]
        anonymous = hold("x", eventCount=1, account="", release={**release, "account": ""})
        self.daemon = HoldingDaemon(hold("now", topics=["b"]), *ended, anonymous)
        self.assertEqual(len(self.good("hold", "list").splitlines()), 1)
        lines = self.good("hold", "list", "--released").splitlines()
        self.assertEqual(len(lines), 7)
        self.assertEqual(lines[0], "now  since 2023-11-14 22:13:20.000 UTC by cara: b; court order")
        self.assertEqual(
            lines[1],
            "c-0  since 2023-11-14 22:13:20.000 UTC by cara: a; court order; "
            "released 2023-11-14 22:14:20.000 UTC by dora: closed",
        )
        self.assertTrue(lines[6].endswith("; released 2023-11-14 22:14:20.000 UTC: closed"))
        said = json.loads(self.good("hold", "list", "c-3", "--released", "--json"))
        self.assertEqual([each["release"]["blockNumber"] for each in said], [3])
        code, said, _ = self.run_("hold", "list", "none", "--released")
        self.assertEqual((code, said), (1, "there was no hold none\n"))
        self.daemon = HoldingDaemon()
        self.assertEqual(self.good("hold", "list", "--released"), "nothing was ever held\n")
