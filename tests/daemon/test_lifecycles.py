"""
Tests for L{svcbroker.daemon.lifecycles}: carriers start, drain and stop together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.config import ConfigError
from svcbroker.daemon.lifecycles import Carriers, Lifecycle


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

    def reload(self) -> Deferred[None]:
        self.story.append(f"reload {self.name}")
        return succeed(None)


class CarriersTests(SynchronousTestCase):
    """
    All carriers.
    """

    def setUp(self) -> None:
        self.story: list[str] = []

    def make(self, *lifecycles: Lifecycle) -> Carriers:
        """Carriers over fakes."""
        fakes: Any = {
            name: Fake(self.story, name)
            for name in ("broker", "subscriptions", "metadata", "access")
        }
        return Carriers(
            factories={},
            lifecycles=lifecycles,
            readFiles=self.readSecrets,
            release=lambda: self.story.append("release"),
            **fakes,
        )

    def readSecrets(self) -> Callable[[], None]:
        self.story.append("read secrets")
        return lambda: self.story.append("use secrets")

    def test_secretsAreUsedOnceAccountsAreRead(self) -> None:
        self.successResultOf(self.make().reload())
        self.assertEqual(self.story, ["read secrets", "reload access", "use secrets"])

    def test_secretsThatCannotBeReadChangeNothing(self) -> None:
        def fail() -> Callable[[], None]:
            raise ConfigError("webhook-secret-file: x")

        carriers = evolve(self.make(), readFiles=fail)
        self.failureResultOf(carriers.reload(), ConfigError)
        self.assertEqual(self.story, [])

    def tell(self, what: str, answer: Deferred[Any]) -> Callable[[], Deferred[Any]]:
        """Something that a part does."""

        def do() -> Deferred[Any]:
            self.story.append(what)
            return answer

        return do

    def test_reloadsAreRecordedWithTheirOutcome(self) -> None:
        audit: Any = Fake(self.story, "audit")
        audit.reloaded = lambda isGood: self.story.append(f"recorded {isGood}")
        carriers = evolve(self.make(), audit=audit)
        self.successResultOf(carriers.reload())
        self.assertEqual(self.story[-1], "recorded True")
        failing: Any = lambda: fail(ConfigError("accounts"))  # noqa: E731
        self.patch(carriers.access, "reload", failing)
        self.failureResultOf(carriers.reload(), ConfigError)
        self.assertEqual(self.story[-1], "recorded False")
        self.successResultOf(carriers.drain())
        self.assertEqual(self.story[-3:], ["stop subscriptions", "stop audit", "stop metadata"])

    def test_startOneByOneAndDrainAtOnce(self) -> None:
        """Carriers start one after the other and drain together; the metadata store stops last."""
        starting: Deferred[None] = Deferred()
        draining: Deferred[None] = Deferred()
        carriers = self.make(
            Lifecycle(start=self.tell("start a", starting), drain=self.tell("drain a", draining)),
            Lifecycle(
                start=self.tell("start b", succeed(None)), drain=self.tell("drain b", succeed(0))
            ),
        )
        started = carriers.start()
        self.assertNoResult(started)
        self.assertEqual(self.story, ["start subscriptions", "start a"])
        starting.callback(None)
        self.successResultOf(started)
        self.assertEqual(self.story.pop(), "start b")
        self.story.clear()
        drained = carriers.drain()
        self.assertEqual(self.story, ["drain a", "drain b"])
        draining.callback(None)
        self.successResultOf(drained)
        carriers.stop()
        self.assertEqual(
            self.story[2:], ["stop subscriptions", "stop metadata", "stop broker", "release"]
        )

    def test_failedStartDrainsAll(self) -> None:
        """Where one cannot start, everything is drained and let go, and the reason is told."""
        carriers = self.make(
            Lifecycle(start=self.tell("start a", fail(ZeroDivisionError()))),
            Lifecycle(
                start=self.tell("start b", succeed(None)), drain=self.tell("drain b", succeed(0))
            ),
        )
        self.failureResultOf(carriers.start(), ZeroDivisionError)
        self.assertEqual(
            self.story[2:],
            ["drain b", "stop subscriptions", "stop metadata", "stop broker", "release"],
        )

    def test_failedDrainIsLoggedAndDelaysNone(self) -> None:
        """One that does not close in order keeps no other from it, and is in the log."""
        carriers = self.make(
            Lifecycle(drain=self.tell("drain a", fail(ZeroDivisionError()))),
            Lifecycle(drain=self.tell("drain b", succeed(None))),
        )
        self.successResultOf(carriers.drain())
        self.assertEqual(self.story[1:], ["drain b", "stop subscriptions", "stop metadata"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_cancelledDrainStillStoresMetadata(self) -> None:
        """Clients that take too long are abandoned; the metadata store is still written."""
        carriers = self.make(Lifecycle(drain=self.tell("drain a", Deferred())))
        drained = carriers.drain()
        drained.cancel()
        self.successResultOf(drained)
        self.assertEqual(self.story[1:], ["stop subscriptions", "stop metadata"])
        self.assertEqual(len(self.flushLoggedErrors()), 1)
