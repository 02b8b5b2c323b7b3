"""
Bundles for the page of the console.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import console
from svcbroker.access import ANYBODY
from svcbroker.console import MAX_EVENTS, BundleMaker, _readIds
from svcbroker.errors import EventIdInvalid, EventNotFound, Overloaded, ParameterInvalid
from svcbroker.model import EventId
from svcbroker.net.budgets import WorkBudget

_FIRST = EventId.parse("00000000-1-1")


class BundleTests(SynchronousTestCase):
    """
    A maker of bundles of proofs that are too large, or are not there yet.
    """

    def setUp(self) -> None:
        self.proving: Deferred[Any] = Deferred()
        transparency = SimpleNamespace(
            key=lambda *given: succeed(SimpleNamespace(key="a key")),
            prove=lambda *given: self.proving,
        )
        self.clock = Clock()
        self.work = WorkBudget(self.clock)
        budgets = SimpleNamespace(work=self.work)
        broker = SimpleNamespace(getEvent=lambda *given: succeed(None), budgets=budgets)
        calls: Any = SimpleNamespace(transparency=transparency, broker=broker)
        run: Callable[..., Deferred[bytes]] = lambda f: succeed(b"")  # noqa: E731
        self.maker = BundleMaker(calls, run)

    def make(self) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self.maker.make(ANYBODY, "1", [_FIRST]))

    def test_oneBundleIsMadeAtATime(self) -> None:
        """Another one is refused at once, also after one that has failed."""
        first = self.make()
        self.failureResultOf(self.make(), Overloaded)
        self.proving.errback(EventNotFound())
        self.failureResultOf(first, EventNotFound)
        self.proving = Deferred()
        self.assertNoResult(self.make())

    def test_proofsAreMadeInTurns(self) -> None:
        """Each waits where the turn has no time left."""
        made: list[object] = []

        def prove(*given: object) -> Deferred[Any]:
            made.append(given)
            self.work.used = [1.0, 1.0]
            return succeed(SimpleNamespace(encode=lambda: b""))

        self.maker._calls.transparency.prove = prove  # type: ignore[method-assign]
        ids = [EventId("00000000", number, 1) for number in (1, 2, 3)]
        making = Deferred.fromCoroutine(self.maker.make(ANYBODY, "1", ids))
        for count in (1, 2):
            self.assertEqual(len(made), count)
            self.assertNoResult(making)
            turn: Any
            [turn] = self.clock.getDelayedCalls()
            serve = turn.func
            turn.cancel()
            serve()
        self.assertEqual(len(made), len(ids))
        self.assertEqual(self.successResultOf(making), b"")

    def test_largeProofsAreRefused(self) -> None:
        """With what makes larger bundles."""
        self.patch(console, "MAX_PROOFS", 10)
        self.proving = succeed(SimpleNamespace(encode=lambda: b"x" * 11))
        failure = self.failureResultOf(self.make(), ParameterInvalid)
        self.assertIn("svcbroker proof bundle", failure.value.message)

    def test_idsAreBounded(self) -> None:
        """Each is read once; too many, none and malformed ones are refused."""
        self.assertEqual(_readIds(b"00000000-1-1,,00000000-1-1"), [_FIRST])
        many = b",".join(b"00000000-%d-1" % number for number in range(1, MAX_EVENTS + 2))
        for text in (b"", b",", many):
            self.assertRaises(ParameterInvalid, _readIds, text)
        self.assertRaises(EventIdInvalid, _readIds, b"00000000-1-1,\xff")
