"""
Open files, and garbage collections of all objects.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon import process
from svcbroker.daemon.process import (
    COLLECT_AFTER,
    COLLECT_AT_LATEST,
    LOOK_EVERY,
    SWITCH_EVERY,
    WANTED_FILES,
    MemoryUpkeep,
    TwistdProcess,
    raiseFileLimit,
)

NONE = resource.RLIM_INFINITY


class RaiseFileLimitTests(SynchronousTestCase):
    """
    L{raiseFileLimit}
    """

    def test_limitIsRaisedAndNeverLowered(self) -> None:
        """It goes up to the hard limit, up to what is wanted, and never down."""
        for soft, hard, expected in (
            (1024, 4096, 4096),
            (1024, 524_288, WANTED_FILES),
            (1024, NONE, WANTED_FILES),
            (4096, 4096, 4096),
            (100_000, 524_288, 100_000),
            (NONE, NONE, NONE),
        ):
            changes: list[tuple[int, tuple[int, int]]] = []

            def get(what: int, limits: tuple[int, int] = (soft, hard)) -> tuple[int, int]:
                self.assertEqual(what, resource.RLIMIT_NOFILE)
                return limits

            def put(
                what: int,
                limits: tuple[int, int],
                into: list[tuple[int, tuple[int, int]]] = changes,
            ) -> None:
                into.append((what, limits))

            self.assertEqual(raiseFileLimit(get, put), expected)
            change = (resource.RLIMIT_NOFILE, (expected, hard))
            self.assertEqual(changes, [] if expected == soft else [change])

    def test_limitCanBeRaisedTwice(self) -> None:
        """It can be called, and again."""
        limit = raiseFileLimit()
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], limit)
        self.assertEqual(raiseFileLimit(), limit)


class StartTests(SynchronousTestCase):
    """
    L{TwistdProcess.started}
    """

    def test_threadsGetPythonsLockSoon(self) -> None:
        """The one that stores blocks while a disk is slow asks for it at each statement."""
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        self.patch(process, "collectYoungOnly", lambda: None)
        reactor: Any = MemoryReactorClock()
        TwistdProcess(reactor).started(lambda: None)
        self.assertAlmostEqual(sys.getswitchinterval(), SWITCH_EVERY)


class MemoryUpkeepTests(SynchronousTestCase):
    """
    L{MemoryUpkeep}
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.worked = 0.0
        self.collected: list[float] = []
        self.trimmed: list[float] = []
        MemoryUpkeep(
            self.clock,
            worked=lambda: self.worked,
            collect=lambda: self.collected.append(self.clock.seconds()),
            trim=lambda: self.trimmed.append(self.clock.seconds()),
        ).start()

    def wait(self, seconds: float, share: float) -> None:
        """Let time pass, of which the reactor works for a share."""
        for _ in range(int(seconds / LOOK_EVERY)):
            self.worked += share * LOOK_EVERY
            self.clock.advance(LOOK_EVERY)

    def test_idleReactorCollectsNowAndThen(self) -> None:
        self.wait(2 * COLLECT_AFTER, share=0)
        self.assertEqual(self.collected, [COLLECT_AFTER, 2 * COLLECT_AFTER])

    def test_busyReactorCollectsOnceItIsIdle(self) -> None:
        self.wait(COLLECT_AFTER + 60, share=0.5)
        self.assertEqual(self.collected, [])
        self.wait(LOOK_EVERY, share=0)
        self.assertEqual(self.collected, [COLLECT_AFTER + 60 + LOOK_EVERY])

    def test_reactorThatIsNeverIdleCollectsAtLast(self) -> None:
        self.wait(COLLECT_AT_LATEST, share=0.5)
        self.assertEqual(self.collected, [COLLECT_AT_LATEST])

    def test_freeMemoryGoesBackWhileThereIsLittleToDo(self) -> None:
        """A broker that many have asked much, and a few go on to ask a little."""
        self.wait(60, share=0.9)
        self.assertEqual(self.trimmed, [])
        self.wait(10, share=0.05)
        self.assertEqual(self.trimmed, [60 + LOOK_EVERY, 60 + 3 * LOOK_EVERY])

    def test_freeMemoryGoesBackOnceAfterWork(self) -> None:
        self.wait(60, share=0)
        self.assertEqual(self.trimmed, [])
        for _ in range(2):
            self.wait(10, share=0.5)
            self.wait(60, share=0)
        self.assertEqual(self.trimmed, [70 + LOOK_EVERY, 140 + LOOK_EVERY])
