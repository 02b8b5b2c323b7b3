"""
An authenticator of tokens under test, and the server of its keys.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.cred.credentials import UsernamePassword
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.logger import globalLogPublisher
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from svcbroker.access import Principal
from svcbroker.access.authenticators.jwt import JwtAuthenticator, JwtSettings
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import BearerToken
from svcbroker.net.http import HttpClient

from .support import AuthenticatorTestCase
from .tokens import AUDIENCE, someKey

URL = "https://id.example.org/keys"
RSA = someKey("r", "RS256")
EC = someKey("e", "ES256")

_addresses = count()


class Server(Resource):
    """
    Serves a key set.

    @ivar body: the key set; a status to answer with; C{None} to answer later, by L{answer}.
    """

    isLeaf = True

    def __init__(self, body: bytes | int | None) -> None:
        super().__init__()
        self.body = body
        self.requests = 0
        self._waiting: list[Any] = []

    def render_GET(self, request: Any) -> bytes | int:
        self.requests += 1
        if self.body is None:
            self._waiting.append(request)
            return NOT_DONE_YET
        if isinstance(self.body, int):
            request.setResponseCode(self.body)
            return b""
        return self.body

    def answer(self, body: bytes) -> None:
        for request in self._waiting:
            request.write(body)
            request.finish()
        self._waiting.clear()


@implementer(IAgent)
class SwitchedAgent:
    """An agent that can be made not to get anywhere."""

    def __init__(self, resource: Resource) -> None:
        self.agent: Any = RequestTraversalAgent(resource)
        self.isUp = True

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        if self.isUp:
            answer: Deferred[Any] = self.agent.request(*args, **kwargs)
            return answer
        return fail(ConnectionRefusedError())


class JwtTestCase(AuthenticatorTestCase):
    """
    A test with tokens that are valid until second 1000.
    """

    def setUp(self) -> None:
        super().setUp()
        self.events: list[Any] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)

    def serve(self, body: bytes | int | None, **settings: Any) -> None:
        """Have the authenticator use a key set over HTTP."""
        self.server = Server(body)
        self.agent = SwitchedAgent(self.server)
        made = JwtSettings(jwks=URL, audience=AUDIENCE, **settings)
        self.authenticator = JwtAuthenticator(
            made, self.context, HttpClient(self.agent, self.clock)
        )

    def start(self, body: bytes, **settings: Any) -> None:
        self.serve(body, **settings)
        self.use(self.authenticator)

    def bearer(self, token: str) -> Principal:
        return self.login(BearerToken(token))

    def refused(self, token: str, reason: str = "") -> None:
        """A token is no bearer's and no account's, for a reason that only the log has."""
        self.events.clear()
        # Each from an address of its own, so that no failure slows it down.
        address = f"client {next(_addresses)}"
        self.failureResultOf(self.access.login(BearerToken(token), address), NotAuthenticated)
        password = UsernamePassword(b"", token.encode("utf-8", "surrogatepass"))
        self.failureResultOf(self.access.login(password, address), NotAuthenticated)
        reasons = [each["reason"] for each in self.events if "reason" in each]
        self.assertEqual(len(reasons), 2)
        self.assertTrue(all(reason in each for each in reasons), (reason, reasons))

    def logged(self) -> list[str]:
        return [each["error"] for each in self.events if "error" in each]
