"""
Tests for C{svcbroker net fault}: what its arguments mean, and what it shows.
"""

from __future__ import annotations

import json
from typing import Any

from tests.commands import support
from tests.commands.support import OperatorTestCase

REPORT = {
    "nodes": [
        {"index": 0, "running": False, "leader": True, "pbftView": 3, "blockNumber": 7},
        {"index": 1, "running": True, "leader": True, "pbftView": 4, "blockNumber": 8},
    ],
    "quorum": 2,
    "delay": [0.0, 0.5],
    "loss": 0.25,
    "duplication": 0.0,
    "cut": [[0, 1], [1, 0]],
    "evidence": [{"node": 1, "blockNumber": 5, "round": 2}],
}
SHOWN = """\
node 0: stopped view 3, block 7
node 1: leads   view 4, block 8
network: delay 0-0.5 s, loss 0.25, duplication 0
cut: 0:1 1:0
node 1 contradicted itself at block 5, round 2
"""


class DaemonDouble(support.DaemonDouble):
    """A daemon that knows faults."""

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        return REPORT


class FaultTests(OperatorTestCase):
    """
    From arguments to calls.
    """

    def setUp(self) -> None:
        self.daemon = DaemonDouble()

    def test_eachActionIsOneCall(self) -> None:
        """Each action is one operator call."""
        cases: list[tuple[str, str, dict[str, Any]]] = [
            ("show", "faults/show", {}),
            ("stop 3", "faults/stop", {"node": 3}),
            ("start 0", "faults/start", {"node": 0}),
            ("cut 0,1 2,3", "faults/network", {"islands": [[0, 1], [2, 3]], "links": []}),
            ("cut 0 1:2 2:1", "faults/network", {"islands": [[0]], "links": [[1, 2], [2, 1]]}),
            ("slow 0.5", "faults/network", {"delay": [0.0, 0.5]}),
            ("slow 0.1-0.5", "faults/network", {"delay": [0.1, 0.5]}),
            ("lose 0.25", "faults/network", {"loss": 0.25}),
            ("duplicate 1", "faults/network", {"duplication": 1.0}),
            ("heal", "faults/heal", {}),
        ]
        for arguments, name, parameters in cases:
            for where in ((), ("some/where",)):
                self.daemon.calls.clear()
                self.good("fault", *where, *arguments.split())
                self.assertEqual(self.daemon.calls, [(name, {"groupId": None, **parameters})])
                self.assertEqual(self.word, where[0] if where else None)

    def test_optionsMayStandAnywhere(self) -> None:
        """Options may stand anywhere behind the action."""
        self.good(*["fault", "x/", "stop", "--group", "7", "1", "--timeout=2.5", "--json"])
        self.assertEqual(self.daemon.calls, [("faults/stop", {"groupId": "7", "node": 1})])
        self.assertEqual(self.given["timeout"], 2.5)

    def test_wrongUsageIsRefused(self) -> None:
        """What means nothing is told."""
        for arguments in (
            *("", "dance", "show 1", "stop", "stop x", "stop 1 2", "start 1000", "cut", "cut x"),
            *("cut 0-1", "cut 0,", "cut 0:1:2", "slow", "slow x", "slow 1-x", "slow inf"),
            *("lose", "lose nan", "lose 1 2", "duplicate x", "heal 1", "show --timeout=-1"),
            *("show --timeout=x", "show --nosuch"),
        ):
            self.refused("fault", "data/", *arguments.split())
        self.assertEqual(self.daemon.calls, [])

    def test_actionsShowTheOutcome(self) -> None:
        """Every action shows how things are then."""
        self.assertEqual(self.good("fault", "d/", "stop", "1", "--group=g"), SHOWN)
        self.assertEqual(self.daemon.calls, [("faults/stop", {"groupId": "g", "node": 1})])

    def test_answerAsJson(self) -> None:
        """Or the answer as it is."""
        output = self.good("fault", "d/", "show", "--json")
        self.assertEqual(json.loads(output), REPORT)
        self.assertEqual(self.daemon.calls, [("faults/show", {"groupId": None})])
