"""
Accounts for tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svcbroker.access import UNLIMITED, Access, Grants, Principal, Usage
from svcbroker.access._logins import LoginLimits
from svcbroker.interfaces import IAuthenticator, Identity


@implementer(IAuthenticator)
class FakeAuthenticator:
    """Knows identities; the password of each is its name."""

    credentialInterfaces = (IUsernamePassword,)

    def __init__(self, *identities: Identity) -> None:
        self.identities = {each.name: each for each in identities}

    def start(self) -> Deferred[None]:
        return succeed(None)

    def reload(self) -> Deferred[Any]:
        return succeed(lambda: None)

    def stop(self) -> None:
        """There is nothing to stop."""

    def identify(self, name: str) -> Identity | None:
        found = self.identities.get(name)
        return None if found is None or found.expiresAt is not None else found

    def names(self) -> Iterable[str]:
        return [name for name in self.identities if self.identify(name) is not None]

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[Any]:
        name = credentials.username.decode()
        if name in self.identities and credentials.password == credentials.username:
            return succeed(self.identities[name])
        return fail(UnauthorizedLogin())


MANY: Final = LoginLimits(perTurn=1000)
"""For tests of other things, with many log-ins in a turn of the reactor."""


def fillTurn(access: Access) -> None:
    """Have others use up what this turn of the reactor has for clients that are not logged in."""
    while access.turns.take("others"):
        pass


def account(name: str, *lines: str, **more: Any) -> Identity:
    return Identity(name=name, grants=Grants.parse(lines, name), **more)


def principalOf(*lines: str, name: str = "ann") -> Principal:
    """An account without quotas that acts."""
    return Principal(account(name, *lines), Usage(UNLIMITED, lambda: 0.0))


def openAccess(clock: IReactorTime) -> Access:
    """Access where there are no accounts."""
    return Access([], clock, clock.seconds)
