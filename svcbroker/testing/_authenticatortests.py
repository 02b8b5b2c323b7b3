"""
The contract of an authenticator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, field, frozen
from twisted.cred.credentials import ICredentials
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SkipTest, SynchronousTestCase
from zope.interface.verify import verifyObject

from ..interfaces import (
    Action,
    AuthenticatorContext,
    Decision,
    GrantLine,
    IAuthenticator,
    Identity,
    IGrants,
    InvalidDescription,
)


@frozen(kw_only=True)
class AuthenticatorFixture:
    """
    An authenticator under test, and the accounts that it knows. The context's clock starts at 0.

    @ivar make: makes it: what a factory's C{configure} gave.
    @ivar name: an account.
    @ivar valid: credentials of it.
    @ivar invalid: credentials that are not valid: first of the same account with a wrong secret,
        then of a name that there is not, then any others.
    @ivar hasAccounts: whether L{IAuthenticator.identify<svcbroker.interfaces.IAuthenticator>}
        knows the account; not where only credentials say who there is.
    @ivar remove: takes the account out of what a reload reads; C{None} where that is not possible.
    @ivar damage: makes what a reload reads invalid; C{None} where that is not possible.
    """

    make: Callable[[AuthenticatorContext], IAuthenticator]
    name: str
    valid: ICredentials = field(repr=False)
    invalid: Sequence[ICredentials] = field(repr=False)
    hasAccounts: bool = True
    remove: Callable[[], object] | None = None
    damage: Callable[[], object] | None = None


class AuthenticatorTests(SynchronousTestCase):
    """
    The tests of the contract; see L{makeAuthenticatorTests}.
    """

    def makeFixture(self) -> AuthenticatorFixture:
        raise NotImplementedError

    def setUp(self) -> None:
        self.calls: list[Any] = []
        self.clock = Clock()
        self.fixture = self.makeFixture()
        self.authenticator = self.fixture.make(
            AuthenticatorContext(
                reactor=self.clock,
                now=self.clock.seconds,
                entropy=lambda size: bytes(range(size)),
                runInThread=self._runInThread,
            )
        )
        self.assertEqual(self.calls, [], "making it does nothing")
        self.assertIsNone(self.successResultOf(self.authenticator.start()))
        self.addCleanup(self.authenticator.stop)

    def _runInThread(self, f: Any, *args: Any) -> Deferred[Any]:
        self.calls.append(f)
        return maybeDeferred(f, *args)

    def _check(self, credentials: Any) -> Deferred[Any]:
        kinds = self.authenticator.credentialInterfaces
        self.assertTrue(any(kind.providedBy(credentials) for kind in kinds), credentials)
        checking: Any = self.authenticator.requestAvatarId(credentials)
        return maybeDeferred(lambda: checking)

    def _login(self) -> Identity:
        identity: Identity = self.successResultOf(self._check(self.fixture.valid))
        self.assertIsInstance(identity, Identity)
        return identity

    def _lasting(self, identity: Identity | None) -> Identity:
        """An identity apart from the end of its log-in, which each log-in may have."""
        assert identity is not None
        return evolve(identity, expiresAt=None)

    def _reload(self) -> None:
        apply = self.successResultOf(self.authenticator.reload())
        self.assertIsNone(apply())

    def test_authenticatorProvidesTheInterface(self) -> None:
        self.assertTrue(verifyObject(IAuthenticator, self.authenticator))
        kinds = self.authenticator.credentialInterfaces
        self.assertTrue(kinds)
        self.assertTrue(all(kind.isOrExtends(ICredentials) for kind in kinds))

    def test_validCredentialsGiveTheIdentity(self) -> None:
        identity = self._login()
        self.assertEqual(identity.name, self.fixture.name)
        self.assertEqual(self._lasting(self._login()), self._lasting(identity))
        if identity.expiresAt is not None:
            self.assertGreater(identity.expiresAt, self.clock.seconds(), "the log-in has ended")

    def test_grantsAnswerForEveryAction(self) -> None:
        grants = self._login().grants
        self.assertTrue(verifyObject(IGrants, grants))
        for action in Action:
            decision = grants.decide(action, "1", "a/b", "")
            self.assertIsInstance(decision, Decision)
            for filter in ("a/b", "a/+", "#"):
                isAny = grants.mayAny(action, "1", filter, "")
                self.assertIsInstance(isAny, bool)
                self.assertTrue(isAny or not decision.isGranted, "a granted topic has no filter")
                self.assertTrue(grants.mayAny(action, None, filter, "") or not isAny)
        lines = grants.describe("1")
        self.assertTrue(all(isinstance(each, GrantLine) for each in lines))
        self.assertTrue(set(lines) <= set(grants.describe(None)))

    def test_namesAreThoseThatAreIdentified(self) -> None:
        names = list(self.authenticator.names())
        self.assertEqual(self.fixture.name in names, self.fixture.hasAccounts)
        for name in names:
            self.assertIsInstance(self.authenticator.identify(name), Identity)

    def test_otherCredentialsAreUnauthorized(self) -> None:
        for credentials in self.fixture.invalid:
            self.failureResultOf(self._check(credentials), UnauthorizedLogin)

    def test_unknownNamesCostAsMuchAsKnownOnes(self) -> None:
        """As far as calls in threads tell."""
        counts = []
        for credentials in self.fixture.invalid[:2]:
            self.calls.clear()
            self.failureResultOf(self._check(credentials), UnauthorizedLogin)
            counts.append(len(self.calls))
        self.assertEqual(counts[0], counts[1])

    def test_identifyAnswersFromMemory(self) -> None:
        identity = self._login()
        self.calls.clear()
        found = self.authenticator.identify(self.fixture.name)
        if self.fixture.hasAccounts:
            assert found is not None
            # No credential is shown.
            why = "of identify, the identity is that of the log-in without its credential"
            wanted = evolve(self._lasting(identity), credential="")
            self.assertEqual(self._lasting(found), wanted, why)
            self.assertIn(identity.credential, {"", *found.credentials})
        else:
            self.assertIsNone(found)
        self.assertIsNone(self.authenticator.identify("there is no such account"))
        self.assertEqual(self.calls, [])

    def test_reloadOfTheSameChangesNothing(self) -> None:
        """Then connections keep the answers that they know."""
        identity = self._login()
        known = self.authenticator.identify(self.fixture.name)
        self._reload()
        self.assertEqual(self.authenticator.identify(self.fixture.name), known)
        self.assertEqual(self._lasting(self._login()), self._lasting(identity))

    def test_removedAccountEndsWhenTheReloadIsApplied(self) -> None:
        if self.fixture.remove is None:
            raise SkipTest("no account can be removed")
        self.fixture.remove()
        apply = self.successResultOf(self.authenticator.reload())
        self._login()
        apply()
        self.failureResultOf(self._check(self.fixture.valid), UnauthorizedLogin)
        self.assertIsNone(self.authenticator.identify(self.fixture.name))

    def test_failedReloadChangesNothing(self) -> None:
        if self.fixture.damage is None:
            raise SkipTest("a reload cannot fail")
        self.fixture.damage()
        failure = self.failureResultOf(self.authenticator.reload(), InvalidDescription)
        self.assertEqual(len(str(failure.value).splitlines()), 1)
        self._login()


def makeAuthenticatorTests(
    makeFixture: Callable[[SynchronousTestCase], AuthenticatorFixture],
) -> type[AuthenticatorTests]:
    """
    A test case with the contract of an authenticator, to subclass.

    @param makeFixture: called by each test, with the test.
    """

    class Tests(AuthenticatorTests):
        def makeFixture(self) -> AuthenticatorFixture:
            return makeFixture(self)

    return Tests
