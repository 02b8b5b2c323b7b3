"""
Tests of L{svcbroker.net.processes}, beside those of the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from twisted.internet.protocol import ProcessProtocol
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.processes import ProcessEnd, ProcessLimits, Supervisor

from .processes import FakeProcess, FakeReactor


class SupervisorTests(SynchronousTestCase):
    """
    A process in memory.
    """

    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.output: list[tuple[bytes, bool]] = []
        self.ended: list[str] = []
        self.supervisor = Supervisor(
            "the child",
            ["/bin/child", "argument"],
            clock=self.reactor,
            limits=ProcessLimits(firstDelay=1, maxDelay=8, endTimeout=10),
            launch=self.launch,
            output=lambda data, isError: self.output.append((data, isError)),
            ended=lambda end: self.ended.append(f"{end}, {self.supervisor.isWanted}"),
        )

    def launch(self, child: ProcessProtocol, program: str, arguments: Sequence[str]) -> None:
        self.reactor.spawnProcess(child, program, arguments)

    @property
    def process(self) -> FakeProcess:
        """The process that was started last."""
        return self.reactor.processes[-1]

    def test_childIsStartedThroughAlone(self) -> None:
        """It has a session of its own, and ends with this process."""
        self.supervisor.start()
        program, *flags, alone, command, argument = self.process.arguments
        self.assertEqual((program, flags), (sys.executable, ["-I", "-S"]))
        self.assertTrue(alone.endswith("_childwrapper.py"))
        self.assertEqual([command, argument], ["/bin/child", "argument"])

    def test_outputIsPassedOn(self) -> None:
        """With the stream that it came on."""
        self.supervisor.start()
        self.process.child.outReceived(b"a")
        self.process.child.errReceived(b"b")
        self.assertEqual(self.output, [(b"a", False), (b"b", True)])

    def test_endIsToldBeforeRestart(self) -> None:
        """Also an end that was asked for."""
        self.supervisor.start()
        self.process.end(status=3)
        self.assertEqual(self.supervisor.startsIn, 1)
        self.reactor.advance(1)
        self.process.end(signal=9)
        self.reactor.advance(2)
        stopped = self.supervisor.stop()
        self.process.end(status=0)
        self.successResultOf(stopped)
        self.assertEqual(
            self.ended, ["with status 3, True", "by signal 9, True", "with status 0, False"]
        )
        self.assertEqual(self.supervisor.lastEnd, ProcessEnd(status=0))
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_settledProcessIsRestartedAfterFirstDelay(self) -> None:
        """Earlier ends do not count any more."""
        self.supervisor.start()
        for _ in range(3):
            self.process.end()
            self.reactor.advance(8)
        self.supervisor.settle()
        self.process.end()
        self.assertEqual((self.supervisor.ends, self.supervisor.startsIn), (1, 1))

    def test_failedLaunchCountsAsEnd(self) -> None:
        """It is told why, and tried again."""
        self.reactor.error = FileNotFoundError(2, "No such file")
        self.supervisor.start()
        self.assertEqual(self.ended, ["before it started ([Errno 2] No such file), True"])
        self.assertFalse(self.supervisor.isRunning)
        self.reactor.error = None
        self.reactor.advance(1)
        self.assertTrue(self.supervisor.isRunning)

    def test_endedProcessIsRestartedAndKilledAtTimeout(self) -> None:
        """L{Supervisor.end} is not L{Supervisor.stop}."""
        self.supervisor.start()
        self.supervisor.end()
        self.supervisor.end()
        self.assertTrue(self.supervisor.isEnding)
        self.reactor.advance(10)
        self.assertEqual(self.process.signals, ["TERM", "KILL"])
        self.process.end(signal=9)
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 2)
