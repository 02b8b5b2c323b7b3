"""
Tests for C{svcbroker nodes}: what is asked of the daemon. A real one is asked in
L{tests.functional.test_proofs}.
"""

from __future__ import annotations

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.nodes import Options, describe


class OptionsTests(SynchronousTestCase):
    """
    The command line.
    """

    def test_actionsCallTheirOperations(self) -> None:
        """Each action asks for what it says."""
        for words, rotate, count in (
            ("", (), None),
            ("show", (), None),
            ("rotate 0 2", [0, 2], None),
            ("rotate all", "all", None),
            ("resize 7", (), 7),
        ):
            options = Options()
            options.parseOptions(["data", *words.split()])
            self.assertEqual((options["rotate"], options["count"]), (rotate, count))
            self.assertEqual(str(options["data-dir"]), "data")

    def test_unknownActionsAreRefused(self) -> None:
        """Nothing else is an action."""
        for words in (
            "",
            "data show 1",
            "data rotate",
            "data rotate all 1",
            "data rotate x",
            "data rotate 1000",
            "data rotate \u0663",
            "data resize",
            "data resize 4 7",
            "data resize -- -1",
            "data nosuch",
        ):
            self.assertRaises(UsageError, Options().parseOptions, words.split())

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
