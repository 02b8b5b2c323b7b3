"""
Checking log-ins: by whom, how many at a time, and how fast an address may guess.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from attrs import define, frozen
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import LoginFailed, UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from ..errors import Overloaded
from ..interfaces import IAuthenticator
from ..net.addresses import networkOf
from ..net.turns import FairTurns, Slots

T = TypeVar("T")

LOGIN_THREADS: Final = 2
"""How many passwords are verified at a time. One address has one of them at most."""


@frozen(kw_only=True)
class LoginLimits:
    """
    How much of the log-ins one address, and all together, may have.

    @ivar perTurn: how many log-ins are begun, or refused, in one turn of the reactor. Each takes
        some 0.3 ms.
    @ivar waiting: how many log-ins wait, over all addresses.
    @ivar waitingOfOne: how many of one address wait.
    @ivar waitingOfSlow: how many of an address wait whose answers are slowed down.
    @ivar failures: how many log-ins of an address may fail before its answers slow down.
    @ivar maxDelay: the longest delay, in seconds. The first is a second, and each further failure
        doubles it.
    @ivar memory: seconds without a failure after which those of an address are forgotten.
    @ivar addresses: of how many addresses failures are remembered.
    """

    perTurn: int = 10
    waiting: int = 2000
    waitingOfOne: int = 200
    waitingOfSlow: int = 20
    failures: int = 5
    maxDelay: float = 10.0
    memory: float = 300.0
    addresses: int = 10_000


@define
class _Failures:
    count: int
    last: float


class LoginQueue:
    """
    Log-ins whose check takes time, or that have failed, in a queue that is fair between addresses.

    A password takes some 100 ms of a thread. So that thousands of attempts from some addresses hold
    up nobody else, each address waits in a lane of its own, and all that wait are bounded. After
    some failures an address waits before each check, which bounds how fast it can guess.

    @ivar turns: bounds the log-ins of a turn of the reactor, refusals included.
    """

    def __init__(self, clock: IReactorTime, limits: LoginLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or LoginLimits()
        self.turns = FairTurns(clock, self._limits.perTurn)
        self._slots = Slots(LOGIN_THREADS, 1)
        self._waiting: Counter[str] = Counter()
        self._allWaiting = 0
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    async def check(self, address: str, check: Callable[[], Deferred[T]]) -> T:
        """
        Check a log-in when it is its turn. Cancelling leaves the queue; a check that runs is
        finished, and keeps its slot until then.

        @param address: the client's IP address; empty where it has none.
        @raise Overloaded: too many log-ins wait.
        """
        lane, limits = networkOf(address), self._limits
        if not self.turns.take(lane):
            await self.turns.wait(lane)
        delay = self._delay(lane)
        most = limits.waitingOfSlow if delay else limits.waitingOfOne
        if self._waiting[lane] >= most or self._allWaiting >= limits.waiting:
            raise Overloaded("too many log-ins wait to be checked, try again")
        self._waiting[lane] += 1
        self._allWaiting += 1
        try:
            if delay:
                await deferLater(self._clock, delay)
            if not self._slots.take(lane):
                await self._slots.wait(lane)
            checking = maybeDeferred(check).addErrback(self._failed, lane)
            waiter: Deferred[T] = Deferred()
            checking.addBoth(self._release, lane).chainDeferred(waiter)
            return await waiter
        finally:
            self._allWaiting -= 1
            self._waiting[lane] -= 1
            if not self._waiting[lane]:
                del self._waiting[lane]

    def _release(self, result: Any, lane: str) -> Any:
        if self._slots.isWanted(lane):
            # Those that wait may all be refused at once: not in one turn of the reactor.
            self._clock.callLater(0, self._slots.release, lane)
        else:
            self._slots.release(lane)
        return result

    def _failed(self, failure: Failure, lane: str) -> Failure:
        """Count a failure, also where the client did not wait for the answer."""
        failure.trap(LoginFailed)
        now = self._clock.seconds()
        known = self._failures.pop(lane, None)
        count = 0 if known is None or self._isForgotten(known) else known.count
        # The address that has failed last is the last one.
        self._failures[lane] = _Failures(count + 1, now)
        if len(self._failures) > self._limits.addresses:
            self._failures.popitem(last=False)
        return failure

    def _isForgotten(self, known: _Failures) -> bool:
        # A clock that was set back does not make it a long time.
        return not 0 <= self._clock.seconds() - known.last <= self._limits.memory

    def _delay(self, lane: str) -> float:
        known = self._failures.get(lane)
        if known is None:
            return 0.0
        if self._isForgotten(known):
            del self._failures[lane]
            return 0.0
        excess = known.count - self._limits.failures
        return 0.0 if excess < 0 else min(self._limits.maxDelay, 2.0 ** min(excess, 20))


@implementer(ICredentialsChecker)
class Authenticators:
    """
    Several authenticators as one checker: the first that knows the credentials counts. Credentials
    that are not valid are checked by all, so that the time tells nothing.
    """

    def __init__(self, authenticators: Sequence[IAuthenticator]) -> None:
        self._authenticators = authenticators
        self.credentialInterfaces = tuple(
            {each for one in authenticators for each in one.credentialInterfaces}
        )

    def requestAvatarId(self, credentials: Any) -> Deferred[Any]:
        """See C{ICredentialsChecker}."""
        return self._ask(
            [
                each
                for each in self._authenticators
                if any(one.providedBy(credentials) for one in each.credentialInterfaces)
            ],
            credentials,
        )

    def _ask(self, authenticators: Sequence[IAuthenticator], credentials: Any) -> Deferred[Any]:
        # No coroutine; see asLeanDeferred.
        if not authenticators:
            return fail(UnauthorizedLogin())
        first, *others = authenticators
        asked: Deferred[Any] = maybeDeferred(first.requestAvatarId, credentials)

        def failed(failure: Failure) -> Deferred[Any]:
            failure.trap(UnauthorizedLogin)
            return self._ask(others, credentials)

        return asked.addErrback(failed)
