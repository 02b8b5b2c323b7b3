"""
Tests of L{svcbroker.net.deferreds}.
"""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import Interface, implementer
from zope.interface.verify import verifyObject

from svcbroker.net.deferreds import asDeferred


class IAdder(Interface):
    """
    Something with a method that answers a Deferred.
    """

    def add(number: int, *, times: int = 1) -> Deferred[int]:  # noqa: N805
        """Add a number, some times."""


@implementer(IAdder)
class Adder:
    """
    Adds when it is told to.
    """

    def __init__(self) -> None:
        self.isCancelled = False
        self.waiting: Deferred[int] = Deferred(self.cancel)

    def cancel(self, waiting: Deferred[int]) -> None:
        self.isCancelled = True

    @asDeferred
    async def add(self, number: int, *, times: int = 1) -> int:
        """See L{IAdder.add}."""
        return await self.waiting + number * times


class AsDeferredTests(SynchronousTestCase):
    """
    L{asDeferred}.
    """

    def setUp(self) -> None:
        self.adder = Adder()

    def test_methodImplementsInterface(self) -> None:
        """It has the signature and the docstring of what is decorated."""
        verifyObject(IAdder, self.adder)
        self.assertEqual(Adder.add.__name__, "add")
        self.assertEqual(Adder.add.__doc__, "See L{IAdder.add}.")

    def test_coroutineStartsAtOnce(self) -> None:
        """The coroutine runs although its Deferred is not waited for."""
        adding = self.adder.add(2, times=3)
        self.assertNoResult(adding)
        self.adder.waiting.callback(1)
        self.assertEqual(self.successResultOf(adding), 7)

    def test_errorFailsDeferred(self) -> None:
        """An error of the coroutine is the Deferred's failure."""
        self.adder.waiting.errback(ZeroDivisionError())
        self.failureResultOf(self.adder.add(1), ZeroDivisionError)

    def test_cancellingReachesCoroutine(self) -> None:
        """The Deferred that the coroutine waits for is cancelled."""
        adding = self.adder.add(1)
        adding.cancel()
        self.failureResultOf(adding, CancelledError)
        self.assertTrue(self.adder.isCancelled)
