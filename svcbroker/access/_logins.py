"""
The checks of log-ins: how many at a time, and how fast an address may guess; passwords as accounts
keep them (argon2id, in the PHC string format); and log-ins by the C{Authorization} of HTTP
requests,
remembered for a short time.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar

from attrs import define, frozen
from nacl.exceptions import InvalidkeyError
from nacl.pwhash import argon2id
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import ICredentials, UsernamePassword
from twisted.cred.error import LoginFailed, UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from ..errors import NotAuthenticated, Overloaded
from ..interfaces import BearerToken, IAuthenticator
from ..net.addresses import networkOf
from ..net.turns import FairTurns, Slots
from ._principal import Principal

T = TypeVar("T")

LOGIN_THREADS: Final = 2
"""The number of passwords that are verified at a time. One address has one of them at most."""


_OPERATIONS: Final = argon2id.OPSLIMIT_INTERACTIVE
_MEMORY: Final = argon2id.MEMLIMIT_INTERACTIVE
_PHC = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,8}),t=[1-9][0-9]{0,2},p=([1-9][0-9]?)"
    r"\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}"
)
_MAX_MEMORY: Final = 1024 * 1024
"""The most memory that verifying a password may take, in KiB."""
_MAX_LENGTH: Final = 127
"""The most characters of a hash that libsodium verifies."""

DEFAULT_COST: Final = f"m={_MEMORY // 1024},t={_OPERATIONS},p=1"

REMEMBERED_FOR: Final = 60.0
"""Seconds."""

MAX_REMEMBERED: Final = 10_000
"""The number of log-ins that are remembered; the oldest are forgotten first."""

Login = Callable[[ICredentials, str], Deferred[Principal]]


@frozen(kw_only=True)
class LoginLimits:
    """
    Limits of the log-ins of one address, and of all together.

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


def hashPassword(password: bytes) -> str:
    """The hash of a new password. Takes some 100 ms and 64 MiB."""
    return argon2id.str(password, _OPERATIONS, _MEMORY).decode("ascii")


def verifyPassword(hash: str, password: bytes) -> bool:
    """Whether a password has a hash. Blocks; may be called in any thread."""
    try:
        return bool(argon2id.verify(hash.encode("ascii"), password))
    except InvalidkeyError:
        return False


def checkHash(text: str) -> str:
    """
    Check that a text is a hash that can be verified.

    @raise ValueError: it is none.
    """
    found = _PHC.fullmatch(text)
    isUsable = (
        found is not None
        and 8 * int(found[2]) <= int(found[1]) <= _MAX_MEMORY
        and len(text) <= _MAX_LENGTH
    )
    if not isUsable:
        raise ValueError(
            "must be an argon2id hash, $argon2id$v=19$m=...,t=...,p=...$SALT$HASH, of at most "
            f"{_MAX_LENGTH} characters, with at most 1 GiB of memory: svcbroker admin account "
            "passwd "
            "makes it"
        )
    return text


def costOf(hash: str) -> str:
    """The cost of verifying a password: the parameters of its hash."""
    return hash.split("$")[3]


class PasswordVerifier:
    """
    Verifies passwords against hashes of several costs. A wrong password is verified against one
    hash of each cost, so the time tells neither whether there is such an account nor what its hash
    costs.
    """

    def __init__(self, costs: Iterable[str], entropy: Callable[[int], bytes]) -> None:
        """
        @param costs: those of all hashes, see L{costOf}.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        """
        self._unknown = {cost: unknownHash(cost, entropy) for cost in costs}

    def verify(self, hash: str, password: bytes) -> bool:
        """
        Whether a password has a hash. Blocks; may be called in any thread.

        @param hash: empty where there is no such account, or it has no password.
        """
        if hash and verifyPassword(hash, password):
            return True
        cost = costOf(hash) if hash else ""
        for other, unknown in self._unknown.items():
            if other != cost:
                verifyPassword(unknown, password)
        return False


def unknownHash(cost: str, entropy: Callable[[int], bytes]) -> str:
    """A hash that no password has, and that costs as much to verify as others."""
    salt, digest = (b64encode(entropy(size)).decode("ascii").rstrip("=") for size in (16, 32))
    return f"$argon2id$v=19${cost}${salt}${digest}"


class HttpLogins:
    """
    HTTP sends the credentials with each request. Those that were valid are valid for a minute
    without another check, and requests that come during a check share it.

    Values of C{Authorization} are kept only as hashes with a key of this process.
    """

    def __init__(self, login: Login, turns: FairTurns, clock: IReactorTime, key: bytes) -> None:
        """
        @param login: logs in by credentials and an IP address.
        @param turns: when requests are answered that have waited for the check of another.
        @param key: unguessable, at most 64 bytes.
        """
        self._login = login
        self._turns = turns
        self._seconds = clock.seconds
        self._key = key
        # When each is forgotten, the first of them first.
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._checks: dict[bytes, list[tuple[str, Deferred[Principal]]]] = {}

    def recall(self, authorization: bytes) -> Principal | None:
        """
        The principal of a value that was valid a short time ago. Called for each request.

        @return: C{None} where it has to be checked.
        """
        known = self._known.get(self._hash(authorization))
        if known is None or known[1].isRevoked:
            return None
        # A clock that was set back does not make it a long time.
        return known[1] if 0 < known[0] - self._seconds() <= REMEMBERED_FOR else None

    def login(self, authorization: bytes, address: str) -> Deferred[Principal]:
        """
        Log in by a value, and remember it.

        @param authorization: the value of the header: C{Basic} or C{Bearer}.
        @param address: the client's IP address; empty where it has none.
        @raise NotAuthenticated: it is not valid.
        @raise Overloaded: too many log-ins are being checked.
        """
        principal = self.recall(authorization)
        if principal is not None:
            return succeed(principal)
        try:
            credentials = _parse(authorization)
        except NotAuthenticated as error:
            return fail(error.with_traceback(None))
        key = self._hash(authorization)
        waiter: Deferred[Principal] = Deferred()
        if key in self._checks:
            self._checks[key].append((networkOf(address), waiter))
        else:
            self._checks[key] = [(networkOf(address), waiter)]
            checking = self._login(credentials, address)
            checking.addCallback(self._remember, key).addBoth(self._answer, key)
        return waiter

    def forget(self) -> None:
        """Have every value checked again."""
        self._known.clear()

    def _hash(self, authorization: bytes) -> bytes:
        return blake2b(authorization, digest_size=32, key=self._key).digest()

    def _remember(self, principal: Principal, key: bytes) -> Principal:
        self._known[key] = (self._seconds() + REMEMBERED_FOR, principal)
        self._known.move_to_end(key)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return principal

    def _answer(self, result: Principal | Failure, key: bytes) -> None:
        for lane, waiter in self._checks.pop(key):
            if self._turns.take(lane):
                waiter.callback(result)
            else:
                self._turns.wait(lane).addCallback(partial(_answer, waiter, result))


def _answer(waiter: Deferred[Principal], result: Principal | Failure, _: None) -> None:
    waiter.callback(result)


def _parse(authorization: bytes) -> ICredentials:
    """
    Read the value of an C{Authorization} header.

    @raise NotAuthenticated: it is neither C{Basic} nor C{Bearer}, or is malformed.
    """
    scheme, _, value = authorization.strip().partition(b" ")
    value = value.strip()
    credentials: ICredentials
    try:
        if scheme.lower() == b"bearer":
            credentials = BearerToken(value.decode("ascii"))
        elif scheme.lower() == b"basic":
            name, colon, password = b64decode(value, validate=True).partition(b":")
            if not colon:
                raise ValueError("there is no colon")
            # Names are UTF-8, as the challenge says (RFC 7617, section 2.1).
            name.decode("utf-8")
            credentials = UsernamePassword(name, password)
        else:
            raise NotAuthenticated("the Authorization must be Basic or Bearer")
    except ValueError:
        raise NotAuthenticated("the Authorization is malformed") from None
    return credentials
