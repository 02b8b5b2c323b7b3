"""
Tests for L{svcbroker.daemon.running}: features start, drain and stop together.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.features import RunningFeature
from svcbroker.daemon import running
from svcbroker.daemon.running import RunningFeatures
from svcbroker.net.settings import ConfigError


class Fake:
    """Tells what is done to it."""

    def __init__(self, story: list[str], name: str) -> None:
        self.story, self.name = story, name

    def start(self) -> Deferred[None]:
        self.story.append(f"start {self.name}")
        return succeed(None)

    def stop(self) -> Deferred[None]:
        self.story.append(f"stop {self.name}")
        return succeed(None)

    def drain(self) -> Deferred[None]:
        self.story.append(f"drain {self.name}")
        return succeed(None)

    def reload(self) -> Deferred[None]:
        self.story.append(f"reload {self.name}")
        return succeed(None)


class FakeFeature(RunningFeature):
    """Tells what is done to it, and answers what it is given."""

    def __init__(
        self,
        story: list[str],
        name: str,
        started: Deferred[Any] | None = None,
        drained: Deferred[Any] | None = None,
    ) -> None:
        self.story, self.name = story, name
        self.started = succeed(None) if started is None else started
        self.drained = succeed(None) if drained is None else drained

    def start(self) -> Deferred[Any]:
        self.story.append(f"start {self.name}")
        return self.started

    def drain(self) -> Deferred[Any]:
        self.story.append(f"drain {self.name}")
        return self.drained

    def release(self) -> None:
        self.story.append(f"release {self.name}")


class RunningTests(SynchronousTestCase):
    """
    All features.
    """

    def setUp(self) -> None:
        self.story: list[str] = []

    def make(self, *running: RunningFeature) -> RunningFeatures:
        """Features over fakes."""
        fakes: Any = {
            name: Fake(self.story, name) for name in ("subscriptions", "metadata", "access")
        }
        calls: Any = SimpleNamespace(broker=Fake(self.story, "broker"))
        operatorFile: Any = Fake(self.story, "file")
        return RunningFeatures(
            factories={},
            running=running,
            calls=calls,
            operatorFile=operatorFile,
            readFiles=self.readSecrets,
            release=lambda: self.story.append("release"),
            **fakes,
        )

    def readSecrets(self) -> Any:
        self.story.append("read secrets")
        return None, lambda: self.story.append("use secrets")

    def test_secretsAreUsedOnceAccountsAreRead(self) -> None:
        self.successResultOf(self.make().reload())
        self.assertEqual(self.story, ["read secrets", "reload access", "use secrets"])

    def test_secretsThatCannotBeReadChangeNothing(self) -> None:
        def fail() -> Any:
            raise ConfigError("webhook-secret-file: x")

        features = evolve(self.make(), readFiles=fail)
        self.failureResultOf(features.reload(), ConfigError)
        self.assertEqual(self.story, [])

    def test_reloadsAreRecordedWithTheirOutcome(self) -> None:
        audit: Any = Fake(self.story, "audit")
        audit.reloaded = lambda isGood: self.story.append(f"recorded {isGood}")
        features = evolve(self.make(), audit=audit)
        self.successResultOf(features.reload())
        self.assertEqual(self.story[-1], "recorded True")
        failing: Any = lambda: fail(ConfigError("accounts"))  # noqa: E731
        self.patch(features.access, "reload", failing)
        self.failureResultOf(features.reload(), ConfigError)
        self.assertEqual(self.story[-1], "recorded False")
        self.successResultOf(features.drain())
        self.assertEqual(self.story[-3:], ["stop subscriptions", "stop audit", "stop metadata"])

    def test_startOneByOneAndDrainAtOnce(self) -> None:
        """Carriers start one after the other and drain together; the metadata store stops last."""
        starting: Deferred[None] = Deferred()
        draining: Deferred[None] = Deferred()
        features = self.make(
            FakeFeature(self.story, "a", starting, draining), FakeFeature(self.story, "b")
        )
        started = features.start()
        self.assertNoResult(started)
        self.assertEqual(self.story, ["start access", "start a"])
        starting.callback(None)
        self.successResultOf(started)
        self.assertEqual(self.story[2:], ["start b", "start file"])
        self.story.clear()
        drained = features.drain()
        self.assertEqual(self.story, ["drain a", "drain b", "drain file"])
        draining.callback(None)
        self.successResultOf(drained)
        features.stop()
        self.assertEqual(
            self.story[3:],
            [
                *("stop subscriptions", "stop metadata", "stop broker"),
                *("release a", "release b", "release"),
            ],
        )

    def test_failedStartDrainsAll(self) -> None:
        """Where one cannot start, everything is drained and let go, and the reason is told."""
        features = self.make(
            FakeFeature(self.story, "a", fail(ZeroDivisionError())), FakeFeature(self.story, "b")
        )
        self.failureResultOf(features.start(), ZeroDivisionError)
        self.assertEqual(
            self.story[2:],
            [
                *("drain a", "drain b", "drain file"),
                *("stop subscriptions", "stop metadata", "stop broker"),
                *("release a", "release b", "release"),
            ],
        )

    def test_failedDrainIsLoggedAndDelaysNone(self) -> None:
        """One that does not close in order keeps no other from it, and is in the log."""
        features = self.make(
            FakeFeature(self.story, "a", drained=fail(ZeroDivisionError())),
            FakeFeature(self.story, "b"),
        )
        self.successResultOf(features.drain())
        self.assertEqual(
            self.story[1:], ["drain b", "drain file", "stop subscriptions", "stop metadata"]
        )
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_cancelledDrainStillStoresMetadata(self) -> None:
        """Clients that take too long are abandoned; the metadata store is still written."""
        told: list[str] = []
        self.patch(running, "_log", SimpleNamespace(warn=told.append))
        both: list[Deferred[None]] = [Deferred(), Deferred()]
        several = gatherResults(both, consumeErrors=True)
        features = self.make(
            FakeFeature(self.story, "a", drained=Deferred()),
            FakeFeature(self.story, "b", drained=several),
        )
        drained = features.drain()
        drained.cancel()
        self.successResultOf(drained)
        self.assertEqual(self.story[3:], ["stop subscriptions", "stop metadata"])
        self.assertEqual(told, ["Some clients did not take their answers in time"])
