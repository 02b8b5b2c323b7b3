"""
All authenticators keep the contract, and the contract's tests see those that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import TestResult

from attrs import evolve
from twisted.cred.credentials import UsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Accounts, readAccounts
from svcbroker.access.authenticators import jwt, mosquitto
from svcbroker.interfaces import (
    AccountToken,
    AuthenticatorContext,
    BearerToken,
    IAuthenticator,
    Identity,
)
from svcbroker.testing import AuthenticatorFixture, makeAuthenticatorTests
from tests.access.support import FakeAuthenticator, account
from tests.access.test_accounts import FILE, TOKEN

from .test_mosquitto import ACL, PASSWORDS, PBKDF2
from .tokens import AUDIENCE, keySet, someKey

PASSWORD_OF_ANN = UsernamePassword(b"ann", b"secret")
OTHERS = [UsernamePassword(name, b"other") for name in (b"ann", b"nosuch", b"", b"\xff")]


def mosquittoFixture(test: SynchronousTestCase) -> AuthenticatorFixture:
    passwords, acl = Path(test.mktemp()), Path(test.mktemp())
    passwords.write_text(PASSWORDS)
    acl.write_text(ACL)
    return AuthenticatorFixture(
        make=mosquitto.configure({"passwords": str(passwords), "acl": str(acl)}),
        name="ann",
        valid=PASSWORD_OF_ANN,
        invalid=OTHERS,
        remove=lambda: passwords.write_text(f"bob:{PBKDF2}"),
        damage=lambda: passwords.write_text("ann:secret"),
    )


def accountsFixture(test: SynchronousTestCase) -> AuthenticatorFixture:
    file = Path(test.mktemp())
    file.write_text(FILE)
    return AuthenticatorFixture(
        make=lambda context: Accounts(file, readAccounts(file), context),
        name="ann",
        valid=PASSWORD_OF_ANN,
        invalid=OTHERS,
        remove=lambda: file.write_text(""),
        damage=lambda: file.write_text("[nosuch]"),
    )


def accountTokenFixture(test: SynchronousTestCase) -> AuthenticatorFixture:
    return evolve(
        accountsFixture(test),
        valid=BearerToken(TOKEN),
        invalid=[AccountToken("ann", "other"), AccountToken("nosuch", TOKEN), BearerToken("")],
    )


def jwtFixture(test: SynchronousTestCase) -> AuthenticatorFixture:
    key, file = someKey("e", "ES256"), Path(test.mktemp())
    file.write_bytes(keySet(key))
    return AuthenticatorFixture(
        make=jwt.configure({"jwks": str(file), "audience": AUDIENCE}),
        name="ann",
        valid=BearerToken(key.sign(svcbroker_grants=["publish * a/#", "subscriber"])),
        invalid=[
            AccountToken("ann", key.sign(aud="other")),
            AccountToken("nosuch", key.sign()),
            BearerToken("other"),
        ],
        hasAccounts=False,
        remove=lambda: file.write_bytes(keySet(someKey("r", "RS256"))),
        damage=lambda: file.write_bytes(b"{}"),
    )


class MosquittoContractTests(makeAuthenticatorTests(mosquittoFixture)):  # type: ignore[misc]
    """Users of mosquitto's files."""


class AccountsContractTests(makeAuthenticatorTests(accountsFixture)):  # type: ignore[misc]
    """The file of the accounts, and passwords."""


class AccountTokenContractTests(makeAuthenticatorTests(accountTokenFixture)):  # type: ignore[misc]
    """The file of the accounts, and tokens."""


class JwtContractTests(makeAuthenticatorTests(jwtFixture)):  # type: ignore[misc]
    """Bearers of tokens."""


class SlowAuthenticator(FakeAuthenticator):
    """Uses a thread for names that it knows."""

    context: AuthenticatorContext

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[Any]:
        checking = super().requestAvatarId
        if credentials.username.decode("utf-8", "replace") in self.identities:
            thread = self.context.runInThread(lambda: None)
            return thread.addCallback(lambda _: checking(credentials))
        return fail(UnauthorizedLogin())


class RaisingAuthenticator(FakeAuthenticator):
    """Fails for unknown names with an error of its own."""

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[Any]:
        if credentials.username.decode("utf-8", "replace") not in self.identities:
            return fail(KeyError())
        return super().requestAvatarId(credentials)


class HastyAuthenticator(FakeAuthenticator):
    """Uses at once what it reads again."""

    def reload(self) -> Deferred[Any]:
        self.identities.pop("ann", None)
        return succeed(lambda: None)


class ForgetfulAuthenticator(FakeAuthenticator):
    """Does not know its accounts by their names."""

    def identify(self, name: str) -> Identity | None:
        return None


class ExpiringAuthenticator(FakeAuthenticator):
    """Has each log-in end some time after it."""

    logins = 0

    def requestAvatarId(self, credentials: UsernamePassword) -> Deferred[Any]:
        self.logins += 1
        ends = 3600.0 + self.logins
        checking = super().requestAvatarId(credentials)
        return checking.addCallback(lambda identity: evolve(identity, expiresAt=ends))


class KitTests(SynchronousTestCase):
    def failures(self, kind: Callable[..., Any]) -> set[str]:
        """The tests that an authenticator does not pass."""

        def make(context: AuthenticatorContext) -> IAuthenticator:
            made: Any = kind(account("ann", "publish 1 a/#"))
            made.context = context
            return made  # type: ignore[no-any-return]

        def fixture(test: SynchronousTestCase) -> AuthenticatorFixture:
            return AuthenticatorFixture(
                make=make,
                name="ann",
                valid=UsernamePassword(b"ann", b"ann"),
                invalid=[UsernamePassword(b"ann", b"x"), UsernamePassword(b"nosuch", b"x")],
                remove=lambda: None,
            )

        tests: Any = makeAuthenticatorTests(fixture)
        failed = set()
        for name in dir(tests):
            if name.startswith("test_"):
                result = TestResult()
                tests(name).run(result)
                if result.failures or result.errors:
                    failed.add(name)
        return failed

    def test_everyFaultIsFound(self) -> None:
        # None of these removes an account by an applied reload.
        always = {"test_removedAccountEndsWhenTheReloadIsApplied"}
        for kind, expected in (
            (FakeAuthenticator, set()),
            (ExpiringAuthenticator, set()),
            (SlowAuthenticator, {"test_unknownNamesCostAsMuchAsKnownOnes"}),
            (
                RaisingAuthenticator,
                {
                    "test_otherCredentialsAreUnauthorized",
                    "test_unknownNamesCostAsMuchAsKnownOnes",
                },
            ),
            (HastyAuthenticator, {"test_reloadOfTheSameChangesNothing"}),
            (
                ForgetfulAuthenticator,
                {"test_identifyAnswersFromMemory", "test_namesAreThoseThatAreIdentified"},
            ),
        ):
            self.assertEqual(self.failures(kind), always | expected, kind)
