"""
Log-ins by the C{Authorization} of HTTP requests, remembered for a short time.
"""

from __future__ import annotations

from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final

from twisted.cred.credentials import ICredentials, UsernamePassword
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from ..errors import NotAuthenticated
from ..interfaces import BearerToken
from ..net.addresses import networkOf
from ..net.turns import FairTurns
from ._principal import Principal

REMEMBERED_FOR: Final = 60.0
"""Seconds."""

MAX_REMEMBERED: Final = 10_000
"""How many log-ins are remembered; the oldest are forgotten first."""

Login = Callable[[ICredentials, str], Deferred[Principal]]


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
