"""
Tests for C{svcbroker net nodes}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_proofs}.
"""

from __future__ import annotations

import json
from typing import Any

from svcbroker.commands.nodes import describe
from tests.commands import support
from tests.commands.support import OperatorTestCase


class DaemonDouble(support.DaemonDouble):
    """A daemon with three nodes."""

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        del given["groupId"]
        return {"changes": 1, "nodes": [{"index": each, "nodeId": "ab"} for each in range(3)]}


class CommandTests(OperatorTestCase):
    """
    The command line.
    """

    def setUp(self) -> None:
        self.daemon = DaemonDouble()

    def test_actionsCallTheirOperations(self) -> None:
        """Each action asks for what it says."""
        for words, calls in (
            ("", [{}]),
            ("show", [{}]),
            ("rotate 0 2", [{"rotate": [0, 2]}]),
            ("rotate all", [{}, {"rotate": [0, 1, 2]}]),
            ("resize 7", [{"count": 7}]),
        ):
            self.daemon = DaemonDouble()
            output = self.good("nodes", "data/", *words.split(), "--json")
            self.assertEqual(self.daemon.calls, [("validators", each) for each in calls])
            self.assertEqual(json.loads(output)["changes"], 1)
            self.assertEqual(self.word, "data/")

    def test_unknownActionsAreRefused(self) -> None:
        """Nothing else is an action."""
        for words in (
            "show 1",
            "rotate",
            "rotate all 1",
            "rotate x",
            "rotate 1000",
            "rotate \u0663",
            "resize",
            "resize 4 7",
            "resize -- -1",
            "nosuch",
        ):
            for where in ((), ("/data",)):
                self.refused("nodes", *where, *words.split())
        self.assertEqual(self.daemon.calls, [])

    def test_mistypedActionIsAnswered(self) -> None:
        """It is not taken for a data directory."""
        self.assertIn("did you mean rotate?", self.refused("nodes", "rotat", "1"))

    def test_missingDataDirectoryIsTold(self) -> None:
        refusal = self.refused("nodes", "nosuch", "show")
        self.assertIn("No command or data directory: nosuch", refusal)

    def test_setAndReplicasAreDescribed(self) -> None:
        """A line for the set, and one for each node."""
        nodes = [{"index": 0, "nodeId": "ab"}, {"index": 1, "nodeId": "cd"}]
        for changes, words in ((1, "2 nodes, after 1 change"), (2, "2 nodes, after 2 changes")):
            self.assertEqual(
                list(describe({"changes": changes, "nodes": nodes})),
                [words, "node 0: ab", "node 1: cd"],
            )
        self.assertEqual(list(describe({"changes": 0, "nodes": []})), ["0 nodes, after 0 changes"])
        [first, _] = describe({"changes": 0, "nodes": nodes[:1]})
        self.assertEqual(first, "1 node, after 0 changes")
