"""
The checker of histories, which is porcupine with the model of topics.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

BUILD = Path(__file__).parents[2] / "tools" / "engines" / "build"

OPEN = {"kind": "open"}
CLOSE = {"kind": "close"}
FIRST = {"kind": "publish", "sequence": 1}
SECOND = {"kind": "publish", "sequence": 2}


class LinearizableTests(SynchronousTestCase):
    """
    Histories of one topic, whose operations come one after the other where nothing else is said.
    """

    def setUp(self) -> None:
        if shutil.which("go") is None:
            raise SkipTest("go is not installed")
        built = subprocess.run(
            [BUILD, "linearizable"], check=True, stdout=subprocess.PIPE, text=True
        )
        self.checker = built.stdout.split()[-1]

    def isLinear(self, *operations: dict[str, Any], times: Sequence[tuple[int, int]] = ()) -> bool:
        """What the checker says of a history."""
        lines = []
        for number, operation in enumerate(operations):
            call, end = times[number] if times else (2 * number, 2 * number + 1)
            made = {"client": number, "topic": "t", "key": "", "expected": None, "sequence": 0}
            lines.append({**made, "call": call, "end": end, "result": "done", **operation})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        checked = subprocess.run([self.checker], input=text, capture_output=True, text=True)
        self.assertIn(checked.returncode, (0, 1), checked.stderr)
        return checked.returncode == 0

    def test_publishesAreNumberedInOrder(self) -> None:
        """Of two publishes the one that ended before the other was called has the lower number."""
        self.assertTrue(self.isLinear(OPEN, FIRST, SECOND))
        self.assertFalse(self.isLinear(OPEN, SECOND, FIRST))
        self.assertTrue(self.isLinear(OPEN, SECOND, FIRST, times=[(0, 1), (2, 5), (3, 4)]))

    def test_topicMustBeOpen(self) -> None:
        """Only an open topic is published to, and only one that is not is refused."""
        refused = {"kind": "publish", "result": "absent"}
        self.assertFalse(self.isLinear(FIRST))
        self.assertTrue(self.isLinear(OPEN, FIRST, CLOSE, refused, OPEN, SECOND))
        self.assertFalse(self.isLinear(OPEN, FIRST, CLOSE, SECOND))
        self.assertFalse(self.isLinear(OPEN, refused))

    def test_expectedNumberIsCompared(self) -> None:
        """A publish is made if its number is expected, and otherwise refused with the true one."""
        self.assertTrue(self.isLinear(OPEN, {**FIRST, "expected": 0}))
        self.assertFalse(self.isLinear(OPEN, {**FIRST, "expected": 1}))
        conflict = {"kind": "publish", "result": "conflict", "expected": 0, "sequence": 1}
        self.assertTrue(self.isLinear(OPEN, FIRST, conflict))
        self.assertFalse(self.isLinear(OPEN, FIRST, SECOND, conflict))

    def test_keyIsExecutedOnce(self) -> None:
        """Publishes with one key have one event."""
        keyed = {**FIRST, "key": "k"}
        self.assertTrue(self.isLinear(OPEN, keyed, keyed, SECOND))
        self.assertFalse(self.isLinear(OPEN, keyed, {**keyed, "sequence": 2}))

    def test_unknownOutcomeMayComeLate(self) -> None:
        """A write whose outcome nobody has told happens at any time after its call, or never."""
        late = {**SECOND, "end": None}
        self.assertTrue(self.isLinear(OPEN, late, FIRST))
        unknown = {**CLOSE, "result": "unknown", "end": None}
        self.assertTrue(self.isLinear(OPEN, unknown, FIRST))
        self.assertTrue(self.isLinear(OPEN, unknown, {"kind": "publish", "result": "absent"}))
