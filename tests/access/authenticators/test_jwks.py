"""
The keys of tokens: key sets, and how they are fetched.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access.authenticators.jwt import (
    ALGORITHMS,
    MAX_AGE,
    MAX_SIZE,
    MAX_WAITING,
    MIN_INTERVAL,
    TIMEOUT,
    KeySet,
    KeyStore,
)
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import BearerToken, InvalidDescription

from .jwtsupport import EC, RSA, URL, JwtTestCase
from .tokens import Key, keySet


class KeySetTests(SynchronousTestCase):
    def error(self, raw: bytes) -> str:
        return str(self.assertRaises(ValueError, KeySet.parse, raw, ALGORITHMS))

    def test_keysForOtherUsesAreLeftOut(self) -> None:
        keys = KeySet.parse(
            keySet(
                RSA,
                EC.public(use="enc", kid="1"),
                EC.public(key_ops=["deriveKey"], kid="2"),
                EC.public(alg="ECDH-ES", kid="3"),
                EC.public(alg=["ES256"], kid="4"),
                {"kty": "oct", "k": "c2VjcmV0", "kid": "5"},
                {"kty": "new", "crv": ["x"], "kid": "6"},
                {"kid": "7"},
                EC.public(key_ops="verify", kid="8"),
                {**EC.public(kid="9"), "kty": ["EC"]},
            ),
            ALGORITHMS,
        ).keys
        self.assertEqual({each for some in keys.values() for each in some}, {"r"})

    def test_keySetsThatCannotBeUsedAreRefused(self) -> None:
        for raw, reason in (
            (b"", "is not JSON"),
            (b"[" * 100_000, "is not JSON"),
            (b"\xff", "is not JSON"),
            (b"[]", "is not a key set"),
            (b'{"keys": {}}', "is not a key set"),
            (b'{"keys": [7]}', "is not a key set"),
            (b'{"keys": []}', "has no key for RS256, "),
            (keySet(RSA.public(kid=7)), "whose kid is not text"),
            (keySet(RSA, RSA), "two keys for RS256 with the kid 'r'"),
            (keySet(RSA.public(d="AQAB")), "the private half of the key 'r'"),
            (keySet(RSA.public(n="?")), "the key 'r' is malformed"),
            (keySet(EC.public(x="AQAB")), "the key 'e' is malformed"),
            (keySet(EC.public(x=7)), "the key 'e' is malformed"),
            (
                b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "o", "alg": "EdDSA", "x": "AQ'
                + b"A" * 41
                + b'"}]}',
                "the key 'o' is not a usable Ed25519 key",
            ),
            (keySet(Key("s", "RS256", 1024)), "the key 's' has fewer than 2048 bits"),
        ):
            self.assertIn(reason, self.error(raw))


class FetchTests(JwtTestCase):
    """
    Keys over HTTP.
    """

    def test_newKeysAreFetchedForTokensThatNameThem(self) -> None:
        self.start(keySet(RSA))
        self.clock.advance(MIN_INTERVAL)
        self.server.body = keySet(RSA, EC)
        self.bearer(EC.sign())
        self.assertEqual(self.server.requests, 2)

    def test_unknownKeysAreNotFetchedOften(self) -> None:
        self.start(keySet(RSA))
        self.refused(EC.sign(), "there is no key 'e' for ES256")
        self.assertEqual(self.server.requests, 1)
        self.clock.advance(MIN_INTERVAL)
        for _ in range(3):
            self.refused(EC.sign())
        self.assertEqual(self.server.requests, 2)

    def test_logInsWaitForTheSameAnswer(self) -> None:
        self.start(keySet(RSA))
        self.clock.advance(MIN_INTERVAL)
        self.server.body = None
        logins = [self.access.login(BearerToken(EC.sign()), "1") for _ in range(3)]
        for login in logins:
            self.assertNoResult(login)
        logins[0].cancel()
        self.failureResultOf(logins[0])
        self.server.answer(keySet(EC))
        self.agent.agent.flush()
        for login in logins[1:]:
            self.assertEqual(self.successResultOf(login).name, "ann")
        self.assertEqual(self.server.requests, 2)

    def test_aServerThatDoesNotAnswerIsNotWaitedForLong(self) -> None:
        self.start(keySet(RSA))
        self.clock.advance(MIN_INTERVAL)
        self.server.body = None
        login = self.access.login(BearerToken(EC.sign()), "1")
        self.clock.advance(TIMEOUT)
        self.failureResultOf(login, NotAuthenticated)
        self.assertEqual(self.logged(), [f"{URL} gave no answer in time"])
        self.bearer(RSA.sign())

    def test_keysAreFetchedAgainAfterAnHour(self) -> None:
        """A key that its issuer has withdrawn is not trusted any more."""
        self.start(keySet(RSA))
        self.clock.advance(MAX_AGE - 1)
        self.server.body = keySet(EC)
        self.bearer(RSA.sign(exp=9999))
        self.clock.advance(1)
        self.refused(RSA.sign(exp=9999), "there is no key")

    def test_oldKeysStayWhereTheServerFails(self) -> None:
        self.start(keySet(RSA))
        self.clock.advance(MAX_AGE)
        for body in (500, 404, b"<html>"):
            self.server.body = body
            self.bearer(RSA.sign(exp=9999))
            self.clock.advance(MIN_INTERVAL)
        self.assertEqual(
            self.logged(),
            [
                f"{URL} answered with status 500",
                f"{URL} answered with status 404",
                f"{URL} is not JSON",
            ],
        )

    def test_aServerThatIsDownDoesNotKeepTheBrokerFromStarting(self) -> None:
        self.serve(keySet(RSA))
        self.agent.isUp = False
        self.use(self.authenticator)
        self.assertEqual(self.logged(), [f"{URL} cannot be reached"])
        self.refused(RSA.sign())
        self.agent.isUp = True
        self.clock.advance(MIN_INTERVAL)
        self.bearer(RSA.sign())

    def test_answersThatAreNoKeySetsAreRefusedAtTheStart(self) -> None:
        for body, reason in (
            (b"<html>", "is not JSON"),
            (404, "answered with status 404"),
            (302, "answered with status 302"),
            (b'{"keys": []}', "has no key for"),
        ):
            self.serve(body)
            failure = self.failureResultOf(self.authenticator.start(), InvalidDescription)
            self.assertIn(f"{URL} {reason}", str(failure.value))
        self.serve(b" " * (MAX_SIZE + 1))
        self.successResultOf(self.authenticator.start())
        self.assertEqual(self.logged(), [f"{URL} answered with more than {MAX_SIZE} bytes"])

    def test_aReloadFetchesKeys(self) -> None:
        self.start(keySet(RSA))
        ann = self.bearer(RSA.sign())
        self.server.body = keySet(EC)
        self.successResultOf(self.access.reload())
        self.refused(RSA.sign())
        self.bearer(EC.sign())
        # It lasts as long as its token.
        self.assertFalse(ann.isRevoked)

    def test_aServerThatFailsDoesNotKeepOthersFromReloading(self) -> None:
        self.start(keySet(RSA))
        for body in (500, b"<html>"):
            self.server.body = body
            self.successResultOf(self.access.reload())
            self.bearer(RSA.sign())
        self.assertEqual(len(self.logged()), 2)

    def test_theNumberOfThoseWhoWaitIsBounded(self) -> None:
        answer: Deferred[KeySet] = Deferred()
        clock = Clock()
        store = KeyStore(lambda: answer, clock)
        waiting = [store.find("r", "RS256") for _ in range(MAX_WAITING)]
        self.assertIsNone(self.successResultOf(store.find("r", "RS256")))
        answer.callback(KeySet.parse(keySet(RSA), ALGORITHMS))
        for each in waiting:
            self.assertIsNotNone(self.successResultOf(each))
