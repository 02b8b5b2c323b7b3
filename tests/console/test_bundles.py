"""
Bundles for the page of the console.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.console import _bundles
from svcbroker.console._bundles import MAX_EVENTS, BundleMaker, _readIds
from svcbroker.errors import EventIdInvalid, EventNotFound, Overloaded, ParameterInvalid
from svcbroker.model import EventId

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
        broker = SimpleNamespace(getEvent=lambda *given: succeed(None))
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

    def test_largeProofsAreRefused(self) -> None:
        """With what makes larger bundles."""
        self.patch(_bundles, "MAX_PROOFS", 10)
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
