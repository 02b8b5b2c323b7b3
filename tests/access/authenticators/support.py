"""
Authenticators under test.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.access import Access, Principal
from svcbroker.interfaces import AuthenticatorContext, IAuthenticator, IAuthenticatorFactory
from svcbroker.net.descriptions import configureDescribed, findFactories
from tests.access.support import MANY


class AuthenticatorTestCase(SynchronousTestCase):
    """
    A test of an authenticator on a clock, with log-ins by L{Access}.

    @ivar calls: what ran in the thread.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.calls: list[Any] = []
        self.context = AuthenticatorContext(
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=lambda size: bytes(range(size)),
            runInThread=self.runInThread,
        )

    def runInThread(self, f: Any, *args: Any) -> Deferred[Any]:
        self.calls.append(f)
        return maybeDeferred(f, *args)

    def configure(self, description: str) -> Any:
        """The function that makes the authenticator of a description."""
        factories = findFactories(IAuthenticatorFactory)
        return configureDescribed("authenticator", description, factories)

    def use(self, authenticator: IAuthenticator) -> None:
        """Start an authenticator, for L{login}."""
        self.assertTrue(verifyObject(IAuthenticator, authenticator))
        self.authenticator = authenticator
        self.access = Access([authenticator], self.clock, self.clock.seconds, limits=MANY)
        self.successResultOf(self.access.start())

    def login(self, credentials: Any, clientId: str = "") -> Principal:
        """Log in, from an address that has not failed."""
        return self.successResultOf(self.access.login(credentials, "good", clientId))
