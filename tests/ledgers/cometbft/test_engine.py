"""
The engine as a child: on a clock, with a process that is not there.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft._engine import CONNECTIONS, SETTLED, Engine, EngineState
from svcbroker.net.processes import ProcessLimits
from tests.directories import shortDirectory
from tests.net.processes import FakeProcess, FakeReactor

LIMITS = ProcessLimits(firstDelay=1, maxDelay=8, jitter=0.5, steady=60, endTimeout=10)


class EngineTestCase(SynchronousTestCase):
    """
    An engine, and what it says.
    """

    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.socket = shortDirectory(self) / "socket"
        self.chance = 0.0
        self.changes: list[EngineState] = []
        self.engine = Engine(
            ["/bin/cometbft", "start"],
            reactor=self.reactor,
            entropy=lambda: self.chance,
            limits=LIMITS,
            environment={"GOMAXPROCS": "2"},
            directory=Path("/data"),
            sockets=[self.socket],
            changed=self.changes.append,
        )

    @property
    def process(self) -> FakeProcess:
        """The process that was started last."""
        return self.reactor.processes[-1]

    def connect(self) -> None:
        """The engine connects to the application."""
        for count in range(1, CONNECTIONS + 1):
            self.engine.connectionsChanged(count)


class LifeTests(EngineTestCase):
    """
    It starts, and starts again.
    """

    def test_engineRunsOnceConnected(self) -> None:
        """It is started with its arguments, and is running when it has its connections."""
        self.assertIs(self.engine.state, EngineState.STOPPED)
        self.assertEqual(self.engine.reason, "the engine is stopped")
        self.assertIsNone(self.engine.pid)
        self.engine.start()
        self.assertEqual(self.process.arguments[0], sys.executable)
        self.assertEqual(self.process.arguments[-2:], ["/bin/cometbft", "start"])
        self.assertEqual(
            self.reactor.options,
            [{"env": {"GOMAXPROCS": "2"}, "path": "/data", "executable": sys.executable}],
        )
        self.assertFalse(self.process.isStdinOpen)
        self.assertEqual(self.engine.pid, 4711)
        self.assertIs(self.engine.state, EngineState.STARTING)
        self.assertEqual(self.engine.reason, "the engine is starting")
        self.connect()
        self.assertIs(self.engine.state, EngineState.RUNNING)
        self.assertEqual(self.engine.reason, "")

    def test_stateChangesAreReportedOnce(self) -> None:
        """Whoever wants to know is told of each state once."""
        self.engine.start()
        self.connect()
        self.engine.connectionsChanged(CONNECTIONS)
        self.engine.connectionsChanged(0)
        self.process.end()
        self.reactor.advance(1)
        self.engine.stop()
        self.engine.stop()
        self.process.end()
        self.engine.start()
        self.process.end()
        self.engine.stop()
        starting, ending = EngineState.STARTING, EngineState.ENDING
        waiting, stopped = EngineState.WAITING, EngineState.STOPPED
        self.assertEqual(
            self.changes,
            [
                *(starting, EngineState.RUNNING, starting, waiting),
                *(starting, ending, stopped),
                *(starting, waiting, stopped),
            ],
        )

    def test_secondStartMakesNoProcess(self) -> None:
        """There is one process at most."""
        self.engine.start()
        self.engine.start()
        self.assertEqual(len(self.reactor.processes), 1)

    def test_restartDelayGrows(self) -> None:
        """An engine that ends is started again, later each time, up to a bound."""
        self.engine.start()
        delays = []
        for _ in range(6):
            self.process.end(status=3)
            self.assertIs(self.engine.state, EngineState.WAITING)
            (call,) = self.reactor.getDelayedCalls()
            delays.append(call.getTime() - self.reactor.seconds())
            started = len(self.reactor.processes)
            self.reactor.advance(delays[-1] - 0.01)
            self.assertEqual(len(self.reactor.processes), started)
            self.reactor.advance(0.01)
            self.assertEqual(len(self.reactor.processes), started + 1)
        self.assertEqual(delays, [1, 2, 4, 8, 8, 8])

    def test_delayStaysBounded(self) -> None:
        """However often it ends, the delay can be computed."""
        self.engine.start()
        for _ in range(2000):
            self.process.end()
            self.reactor.advance(8)
        self.assertEqual(len(self.reactor.processes), 2001)

    def test_jitterIsBounded(self) -> None:
        """Chance adds to the delay, within a bound."""
        self.chance = 1.0
        self.engine.start()
        self.process.end()
        (call,) = self.reactor.getDelayedCalls()
        self.assertEqual(call.getTime(), 1.5)

    def test_reasonTellsEndsAndNextStart(self) -> None:
        """It says how often it has ended, how, and when it will be started."""
        self.engine.start()
        self.process.end(status=3)
        self.assertEqual(
            self.engine.reason,
            "the engine has ended once, at last with status 3; next start in 1.0 s",
        )
        self.reactor.advance(0.25)
        self.assertIn("next start in 0.8 s", self.engine.reason)
        self.reactor.advance(0.75)
        self.assertEqual(
            self.engine.reason, "the engine has ended once, at last with status 3; it is starting"
        )
        self.process.end(signal=9)
        self.assertEqual(
            self.engine.reason,
            "the engine has ended 2 times, at last by signal 9; next start in 2.0 s",
        )
        self.reactor.advance(2)
        self.process.end(status=0)
        self.assertIn("3 times, at last with status 0", self.engine.reason)

    def test_errorAndAdviceAreReported(self) -> None:
        """The reason has the engine's own error, and after three ends what to do about it."""
        self.engine.start()
        error = "ERROR: error on replay: app block height (6) is higher than core (0)"
        for ends in (1, 2, 3):
            self.process.child.outReceived(b"E[2026-11-20|16:30:09.277] Stopped accept routine\n")
            self.process.child.errReceived(f"{error}\n".encode())
            self.process.end(status=1)
            self.assertIn(f"with status 1 ({error}); next start", self.engine.reason)
            self.assertEqual(bool(self.engine.failure), ends == 3)
            self.reactor.advance(30)
        self.assertIn("move the group's ledger.sqlite away", self.engine.failure)
        self.engine.connectionsChanged(CONNECTIONS)
        self.assertNotEqual(self.engine.failure, "")
        self.reactor.advance(SETTLED)
        self.assertEqual(self.engine.failure, "")
        self.reactor.advance(-3600)
        self.assertEqual(self.engine.failure, "")

    def test_fullDiskIsNamed(self) -> None:
        """A full disk is said as that, whatever else the engine says before or after."""
        full = (
            "panic: write /engine/data/blockstore.db/000001.log: no space left on device",
            'E[2026-11-20|16:30:09.3] CONSENSUS FAILURE!!! module=consensus err="write cs.wal: no '
            'space left on device"',
        )
        for line in full:
            self.engine.start()
            self.process.child.outReceived(b"ERROR: failed to stop\n" + line.encode() + b"\n")
            self.process.child.outReceived(b"panic: the database is closed\n")
            self.process.end(status=1)
            self.assertIn("(the disk is full: ", self.engine.reason)
            self.assertIn("no space left on device", self.engine.reason)
            self.successResultOf(self.engine.stop())

    def test_longErrorEndsWithWord(self) -> None:
        """An error that is too long for a reason is cut between two words."""
        self.engine.start()
        error = f"ERROR: {'database ' * 200}"
        self.process.child.errReceived(error.encode() + b"\n")
        self.process.end(status=1)
        self.assertIn("database database ...); next start", self.engine.reason)

    def test_longLifeResetsDelay(self) -> None:
        """After a long life an end counts as the first."""
        self.engine.start()
        self.process.end()
        self.reactor.advance(1)
        self.process.end()
        self.reactor.advance(2)
        self.reactor.advance(LIMITS.steady)
        self.process.end()
        self.assertIn("has ended once", self.engine.reason)
        self.assertIn("next start in 1.0 s", self.engine.reason)

    def test_failedSpawnIsRetried(self) -> None:
        """A process that cannot be started is tried again."""
        self.reactor.error = BlockingIOError(11, "Resource temporarily unavailable")
        self.engine.start()
        self.assertIs(self.engine.state, EngineState.WAITING)
        self.assertIn("before it started", self.engine.reason)
        self.reactor.error = None
        self.reactor.advance(1)
        self.assertIs(self.engine.state, EngineState.STARTING)

    def test_leftoverSocketIsRemoved(self) -> None:
        """A socket that it left when it was killed is removed before it is started."""
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.socket))
        self.engine.start()
        self.assertFalse(self.socket.exists())

    def test_nonSocketPreventsStart(self) -> None:
        """A file that is no socket stays, and the engine is not started."""
        self.socket.write_text("precious")
        self.engine.start()
        self.assertEqual(self.socket.read_text(), "precious")
        self.assertEqual(self.reactor.processes, [])
        self.assertIs(self.engine.state, EngineState.WAITING)


class EndTests(EngineTestCase):
    """
    It ends, and is ended.
    """

    def test_stopEndsProcess(self) -> None:
        """It is asked to end, and not started again."""
        self.engine.start()
        self.connect()
        stopped = self.engine.stop()
        self.assertEqual(self.process.signals, ["TERM"])
        self.assertIs(self.engine.state, EngineState.ENDING)
        self.assertEqual(self.engine.reason, "the engine is ending")
        self.assertNoResult(stopped)
        again = self.engine.stop()
        self.process.end(status=0)
        self.successResultOf(stopped)
        self.successResultOf(again)
        self.assertIs(self.engine.state, EngineState.STOPPED)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(self.process.signals, ["TERM"])

    def test_slowEndIsKilled(self) -> None:
        """It is killed when it takes too long."""
        self.engine.start()
        stopped = self.engine.stop()
        self.reactor.advance(LIMITS.endTimeout)
        self.assertEqual(self.process.signals, ["TERM", "KILL"])
        self.assertIs(self.engine.state, EngineState.ENDING)
        self.process.end(signal=9)
        self.successResultOf(stopped)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stopCancelsRestart(self) -> None:
        """It is not started again when it is stopped in between."""
        self.engine.start()
        self.process.end()
        self.successResultOf(self.engine.stop())
        self.assertIs(self.engine.state, EngineState.STOPPED)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_stopWithoutProcessFiresAtOnce(self) -> None:
        """There is nothing to wait for where it was not started."""
        self.successResultOf(self.engine.stop())

    def test_restartCountsAnew(self) -> None:
        """It can be started again, and its ends are counted anew."""
        self.engine.start()
        self.process.end()
        self.engine.stop()
        self.engine.start()
        self.assertEqual(self.engine.reason, "the engine is starting")
        self.assertEqual(len(self.reactor.processes), 2)

    def test_exitedProcessNeedsNoSignal(self) -> None:
        """It may have ended already when it is asked to."""
        self.engine.start()
        self.process.hasExited = True
        stopped = self.engine.stop()
        self.process.end(status=0)
        self.successResultOf(stopped)

    def test_lostConnectionsAreTolerated(self) -> None:
        """An engine that has lost the application has some time to end by itself."""
        self.engine.start()
        self.connect()
        self.engine.connectionsChanged(CONNECTIONS - 1)
        self.engine.connectionsChanged(0)
        self.assertIs(self.engine.state, EngineState.STARTING)
        self.assertEqual(self.engine.reason, "the engine has lost the application")
        self.process.end(status=1)
        self.assertIs(self.engine.state, EngineState.WAITING)
        self.assertEqual(len(self.reactor.getDelayedCalls()), 1)
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 2)

    def test_lingeringEngineIsEnded(self) -> None:
        """An engine that does not end by itself is ended, and started again."""
        self.engine.start()
        self.connect()
        self.engine.connectionsChanged(0)
        self.reactor.advance(LIMITS.endTimeout)
        self.assertEqual(self.process.signals, ["TERM"])
        self.reactor.advance(LIMITS.endTimeout)
        self.assertEqual(self.process.signals, ["TERM", "KILL"])
        self.process.end(signal=9)
        self.assertIs(self.engine.state, EngineState.WAITING)
        self.reactor.advance(1)
        self.assertEqual(len(self.reactor.processes), 2)
        self.assertEqual(self.process.signals, [])

    def test_returningConnectionsKeepEngine(self) -> None:
        """Connections that come back change nothing."""
        self.engine.start()
        self.connect()
        self.engine.connectionsChanged(3)
        self.engine.connectionsChanged(4)
        self.reactor.advance(LIMITS.endTimeout)
        self.assertEqual(self.process.signals, [])
        self.assertIs(self.engine.state, EngineState.RUNNING)

    def test_slowStartIsTolerated(self) -> None:
        """An engine that has not connected yet may take its time."""
        self.engine.start()
        self.engine.connectionsChanged(1)
        self.engine.connectionsChanged(0)
        self.reactor.advance(100 * LIMITS.endTimeout)
        self.assertEqual(self.process.signals, [])
