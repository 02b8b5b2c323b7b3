"""
Sites with accounts.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from twisted.cred.credentials import IUsernamePassword, UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.access import Access
from svcbroker.carriers.http import Route
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.interfaces import IAuthenticator, IBearerToken, IClientCertificate
from tests.access.support import MANY, FakeAuthenticator, account
from tests.broker.support import makeFixture

from .support import BASE, Answer, Client
from .twosites import FastClient, KleinClient

TOKEN = "t" * 40
"""The token of C{ann}."""


def basic(name: str, password: str | None = None) -> dict[str, str]:
    """The header of an account, whose password is its name."""
    pair = f"{name}:{name if password is None else password}".encode()
    return {"Authorization": "Basic " + b64encode(pair).decode()}


@implementer(IAuthenticator)
class Accounts(FakeAuthenticator):
    """
    Accounts whose passwords are checked when a test says so, and whose tokens and certificates
    are known at once.

    @ivar waiting: the checks under way; C{None} where they end at once.
    @ivar checked: how many passwords were checked.
    @ivar isLocked: whether no credentials are valid.
    """

    credentialInterfaces: Any = (IUsernamePassword, IBearerToken, IClientCertificate)

    def __init__(self, *identities: Any) -> None:
        super().__init__(*identities)
        self.waiting: list[Deferred[None]] | None = None
        self.checked = 0
        self.isLocked = False

    def requestAvatarId(self, credentials: Any) -> Deferred[Any]:
        if IBearerToken.providedBy(credentials):
            name = "ann" if credentials.token == TOKEN else ""
        elif IClientCertificate.providedBy(credentials):
            name = credentials.commonName
        else:
            return self._check(credentials)
        if name not in self.identities or self.isLocked:
            return fail(UnauthorizedLogin())
        return succeed(self.identities[name])

    def _check(self, credentials: UsernamePassword) -> Deferred[Any]:
        self.checked += 1
        if self.isLocked:
            return fail(UnauthorizedLogin())
        waiting: Deferred[None] = Deferred()
        if self.waiting is None:
            waiting.callback(None)
        else:
            self.waiting.append(waiting)
        return waiting.addCallback(lambda _: FakeAuthenticator.requestAvatarId(self, credentials))

    def finish(self) -> None:
        """End the checks under way."""
        waiting, self.waiting = self.waiting or [], None
        for each in waiting:
            each.callback(None)


class AuthenticationTestCase(SynchronousTestCase):
    """
    A site with the accounts C{ann}, who may publish to and read the topic C{t}, and C{bob}, who
    may do nothing.
    """

    hasFastPath = True

    def setUp(self) -> None:
        self.make()
        self.topic("t")
        self.topic("secret")

    def make(
        self,
        anonymous: tuple[str, ...] | None = None,
        settings: HttpSettings | None = None,
        routes: tuple[Route, ...] = (),
        **ann: Any,
    ) -> None:
        """Begin with a new site."""
        self.fixture = makeFixture()
        self.clock = self.fixture.clock
        self.accounts = Accounts(
            account("ann", "publish 1 t", "subscribe 1 t", **ann),
            account("bob"),
            account("root", "* * #", "* * $svc/#"),
        )
        self.access = Access(
            [self.accounts],
            self.clock,
            self.clock.seconds,
            anonymous=None if anonymous is None else account("", *anonymous),
            limits=MANY,
        )
        self.addCleanup(self.access.stop)
        kind = FastClient if self.hasFastPath else KleinClient
        self.client: Client = kind(settings, routes, self.fixture, self.access)

    def topic(self, name: str) -> None:
        """Open a topic."""
        self.assertEqual(self.ask(f"open?topic={name}", basic("root")).body, b"true")

    def ask(self, call: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask REST by GET."""
        return self.client.ask("GET", f"{BASE}/rest/{call}", headers=headers)

    def rpc(self, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Ask JSON-RPC."""
        return self.client.ask("POST", f"{BASE}/jsonrpc", json.dumps(body).encode(), headers)

    def assertRefused(self, answer: Answer, status: int, code: int) -> None:
        """A refusal has this status and code."""
        self.assertEqual((answer.status, answer.json()["code"]), (status, code), answer)
        self.assertEqual(set(answer.json()), {"code", "message"})
        self.assertEqual(answer.headers["content-type"], "application/json;charset=UTF-8")

    def assertPublished(self, answer: Answer) -> None:
        """An event was published."""
        self.assertEqual((answer.status, answer.json()["status"]), (200, "SUCCESS"), answer)
