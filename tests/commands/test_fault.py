"""
Tests for C{svcbroker fault}: what its arguments mean, and what it shows.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import fault, main

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


class ArgumentTests(SynchronousTestCase):
    """
    From arguments to calls.
    """

    def call(self, *arguments: str) -> Any:
        """The call that arguments mean."""
        options = fault.Options()
        options.parseOptions(["somewhere", *arguments])
        self.assertEqual(options["data-dir"], Path("somewhere"))
        return options["call"]

    def test_eachActionIsOneCall(self) -> None:
        """Each action is one operator call."""
        for arguments, call in [
            ("show", ("faults/show", {})),
            ("stop 3", ("faults/stop", {"node": 3})),
            ("start 0", ("faults/start", {"node": 0})),
            ("cut 0,1 2,3", ("faults/network", {"islands": [[0, 1], [2, 3]], "links": []})),
            ("cut 0 1:2 2:1", ("faults/network", {"islands": [[0]], "links": [[1, 2], [2, 1]]})),
            ("slow 0.5", ("faults/network", {"delay": [0.0, 0.5]})),
            ("slow 0.1-0.5", ("faults/network", {"delay": [0.1, 0.5]})),
            ("lose 0.25", ("faults/network", {"loss": 0.25})),
            ("duplicate 1", ("faults/network", {"duplication": 1.0})),
            ("heal", ("faults/heal", {})),
        ]:
            self.assertEqual(self.call(*arguments.split()), call)

    def test_optionsMayStandAnywhere(self) -> None:
        """Options may stand anywhere."""
        options = fault.Options()
        options.parseOptions(["x", "--group", "7", "stop", "1", "--timeout=2.5", "--json"])
        self.assertEqual((options["group"], options["timeout"], options["json"]), ("7", 2.5, 1))

    def test_wrongUsageIsRefused(self) -> None:
        """What means nothing is told."""
        for arguments in (
            *("", "dance", "show 1", "stop", "stop x", "stop 1 2", "start 1000", "cut", "cut x"),
            *("cut 0-1", "cut 0,", "cut 0:1:2", "slow", "slow x", "slow 1-x", "slow inf"),
            *("lose", "lose nan", "lose 1 2", "duplicate x", "heal 1", "show --timeout=0"),
            *("show --timeout=x", "show --nosuch"),
        ):
            self.assertRaises(UsageError, self.call, *arguments.split())


class RunTests(SynchronousTestCase):
    """
    With a daemon of the test's own.
    """

    def run_(self, *arguments: str, error: Exception | None = None) -> tuple[int, str, str]:
        """The exit code, and what is written."""
        self.calls: list[Any] = []

        class Daemon:
            async def call(daemon, name: str, **parameters: Any) -> Any:  # noqa: N805
                self.calls.append((name, parameters))
                if error is not None:
                    raise error
                return REPORT

        def askDaemon(options: Any, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
            self.assertEqual((options["data-dir"], options["timeout"]), (Path("d"), 30.0))
            return self.successResultOf(Deferred.fromCoroutine(ask(Daemon())))

        output, errors = io.StringIO(), io.StringIO()
        self.patch(fault, "askDaemon", askDaemon)
        self.patch(sys, "stdout", output)
        self.patch(sys, "stderr", errors)
        code = main(["fault", "d", *arguments])
        return code, output.getvalue(), errors.getvalue()

    def test_actionsShowTheOutcome(self) -> None:
        """Every action shows how things are then."""
        self.assertEqual(self.run_("stop", "1", "--group=g"), (0, SHOWN, ""))
        self.assertEqual(self.calls, [("faults/stop", {"groupId": "g", "node": 1})])

    def test_answerAsJson(self) -> None:
        """Or the answer as it is."""
        code, output, _ = self.run_("show", "--json")
        self.assertEqual((code, json.loads(output)), (0, REPORT))
        self.assertEqual(self.calls, [("faults/show", {"groupId": None})])
