"""
Log-ins by the Authorization of requests.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from unittest import mock

from twisted.cred.credentials import UsernamePassword
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access, _logins
from svcbroker.errors import NotAuthenticated

from .support import FakeAuthenticator, account


def basic(name: str, password: str) -> bytes:
    return b"Basic " + b64encode(f"{name}:{password}".encode())


class WaitingAuthenticator(FakeAuthenticator):
    """Answers when a test says so."""

    def __init__(self, *identities: Any) -> None:
        super().__init__(*identities)
        self.waiting: list[Deferred[None]] = []

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.waiting.append(answer)
        known = super().requestAvatarId
        return answer.addCallback(lambda _: known(credentials))


class HttpTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.authenticator = WaitingAuthenticator(account("ann"), account("Jürg:x"))
        self.access = Access([self.authenticator], self.clock, self.clock.seconds)

    def login(self, value: bytes) -> Any:
        return self.access.loginHttp(value, "127.0.0.1")

    def open(self) -> None:
        for answer in self.authenticator.waiting:
            answer.callback(None)
        self.authenticator.waiting.clear()

    def loggedIn(self, value: bytes) -> Any:
        answer = self.login(value)
        self.open()
        return self.successResultOf(answer)

    def test_validCredentialsAreRemembered(self) -> None:
        value = basic("ann", "ann")
        self.assertIsNone(self.access.recall(value))
        principal = self.loggedIn(value)
        self.assertIs(self.access.recall(value), principal)
        self.assertIs(self.successResultOf(self.login(value)), principal)
        self.assertIsNone(self.access.recall(basic("ann", "x")))

    def test_theyAreForgottenAfterAMinute(self) -> None:
        value = basic("ann", "ann")
        self.loggedIn(value)
        self.clock.advance(59.9)
        self.assertIsNotNone(self.access.recall(value))
        self.clock.advance(0.1)
        self.assertIsNone(self.access.recall(value))
        self.loggedIn(value)
        self.assertIsNotNone(self.access.recall(value))

    def test_theyAreForgottenWhenTheClockIsSetBack(self) -> None:
        value = basic("ann", "ann")
        self.loggedIn(value)
        self.clock.advance(-3600)
        self.assertIsNone(self.access.recall(value))
        self.loggedIn(value)
        self.assertIsNotNone(self.access.recall(value))

    def test_theyAreForgottenAtAReload(self) -> None:
        value = basic("ann", "ann")
        self.loggedIn(value)
        self.successResultOf(self.access.reload())
        self.assertIsNone(self.access.recall(value))

    def test_thoseOfRemovedAccountsAreForgotten(self) -> None:
        value = basic("ann", "ann")
        self.loggedIn(value).revoke()
        self.assertIsNone(self.access.recall(value))

    def test_theOldestAreForgottenFirst(self) -> None:
        one, other = basic("ann", "ann"), basic("ann", "ann") + b" "
        with mock.patch.object(_logins, "MAX_REMEMBERED", 1):
            self.loggedIn(one)
            self.loggedIn(other)
        self.assertIsNone(self.access.recall(one))
        self.assertIsNotNone(self.access.recall(other))

    def test_requestsDuringACheckShareIt(self) -> None:
        value = basic("ann", "ann")
        answers = [self.login(value) for _ in range(300)]
        self.assertEqual(len(self.authenticator.waiting), 1)
        answers[0].cancel()
        self.failureResultOf(answers[0])
        self.open()
        # In a few turns of the reactor, not in one.
        self.assertNoResult(answers[-1])
        self.clock.advance(0)
        self.assertEqual({self.successResultOf(each).name for each in answers[1:]}, {"ann"})

    def test_refusedRequestsDuringACheckCountOnce(self) -> None:
        answers = [self.login(basic("ann", "x")) for _ in range(10)]
        self.open()
        self.clock.advance(0)
        for answer in answers:
            self.failureResultOf(answer, NotAuthenticated)
        self.loggedIn(basic("ann", "ann"))

    def test_namesAreUTF8(self) -> None:
        self.authenticator.identities["Jürg"] = account("Jürg")
        self.assertEqual(self.loggedIn(basic("Jürg", "Jürg")).name, "Jürg")
        latin = b"Basic " + b64encode("Jürg:Jürg".encode("latin-1"))
        self.failureResultOf(self.login(latin), NotAuthenticated)

    def test_schemesAreReadInAnyCase(self) -> None:
        value = b"bASIC  " + basic("ann", "ann")[6:]
        self.assertEqual(self.loggedIn(value).name, "ann")

    def test_otherValuesAreRefused(self) -> None:
        for value in (
            *(b"", b"Basic", b"Basic ", b"Basic !", b"Basic " + b64encode(b"ann")),
            *(b"Digest x", b"Bearer \xff", b"Bearer", b"Bearer abc", b"Bearer a b"),
        ):
            self.failureResultOf(self.login(value), NotAuthenticated)
            self.clock.advance(1000)
        self.assertEqual(self.authenticator.waiting, [])
