"""
Tests of L{svcbroker.broker.AccountQueries}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Access, Principal, grantsOf
from svcbroker.errors import NotAuthorized, ParameterInvalid, TopicBlank, TopicInvalid
from svcbroker.interfaces import Action, Identity, Quotas
from tests.access.support import FakeAuthenticator, account

from .support import makeFixture

ROLES = {"orders": ("publish 1 orders/#", "deny publish 1 orders/secret", "subscribe 2 #")}


class AccountQueryTests(SynchronousTestCase):
    """
    The accounts C{alice}, with a role; C{dave}, with grants in group 2; C{idle}, without grants;
    C{one}, who operates group 1; and C{root}, who operates all groups.
    """

    def setUp(self) -> None:
        alice = Identity(
            name="alice", grants=grantsOf(["orders"], ROLES, "alice"), quotas=Quotas(connections=3)
        )
        identities = [
            alice,
            account("dave", "publish 2 x"),
            account("idle"),
            account("one", "operate 1"),
            account("root", "operate *"),
        ]

        def makeAccess(clock: Clock) -> Access:
            anonymous = account("", "subscribe 1 news/#")
            self.access = Access(
                [FakeAuthenticator(*identities)], clock, clock.seconds, anonymous=anonymous
            )
            return self.access

        fixture = makeFixture(access=makeAccess, reservedTopics=["$svc/audit"])
        self.addCleanup(self.access.stop)
        self.queries = fixture.calls.accounts

    def principal(self, name: str) -> Principal:
        found = self.access.find(name)
        assert found is not None
        return found

    def names(self, name: str, **given: Any) -> list[str]:
        """The accounts that an account sees."""
        page = self.successResultOf(self.queries.listAccounts(self.principal(name), "1", **given))
        return [status.name for status, _ in page.items]

    def explain(self, name: str, action: Action, topic: str, **given: Any) -> tuple[Any, ...]:
        """The decision of group 1: whether, why, and by which role."""
        asked = self.queries.explainAccess(self.principal(name), "1", action, topic, **given)
        decision = self.successResultOf(asked).decision
        return decision.isGranted, decision.reason, decision.role

    def refusal(self, name: str, *arguments: Any, **given: Any) -> Any:
        """Why the call fails."""
        asked = self.queries.explainAccess(self.principal(name), "1", *arguments, **given)
        return self.failureResultOf(asked).value

    def test_operatorOfAllGroupsSeesAllAccounts(self) -> None:
        """Those without grants, and clients without credentials, too."""
        self.assertEqual(self.names("root"), ["", "alice", "dave", "idle", "one", "root"])

    def test_operatorOfAGroupSeesThoseWithGrantsInIt(self) -> None:
        self.assertEqual(self.names("one"), ["", "alice", "one", "root"])

    def test_operatorOfAGroupSeesLinesAboutIt(self) -> None:
        """An operator of all groups sees all lines."""
        lines = {}
        for name in ("one", "root"):
            listing = self.queries.listAccounts(self.principal(name), "1", after="", limit=1)
            [(status, found)] = self.successResultOf(listing).items
            self.assertEqual(status.name, "alice")
            lines[name] = [(each.text, each.role) for each in found]
        every = [(line, "orders") for line in ROLES["orders"]]
        self.assertEqual(lines, {"one": every[:2], "root": every})

    def test_otherAccountsSeeThemselves(self) -> None:
        self.assertEqual(self.names("alice"), ["alice"])
        self.assertEqual(self.names(""), [""])

    def test_pagesContinueAfterAName(self) -> None:
        listing = self.queries.listAccounts(self.principal("root"), "1", limit=2)
        self.assertEqual(self.successResultOf(listing).next, "alice")
        self.assertEqual(self.names("root", after="alice"), ["dave", "idle", "one", "root"])
        listing = self.queries.listAccounts(self.principal("root"), "1", after="idle", limit=2)
        self.assertIsNone(self.successResultOf(listing).next)

    def test_listHasQuotasAndWhatIsUsed(self) -> None:
        alice = self.principal("alice")
        alice.usage.take("connections", 2)
        [(status, _)] = self.successResultOf(self.queries.listAccounts(alice, "1")).items
        self.assertEqual(status.quotas.connections, 3)
        self.assertEqual(status.used, {"connections": 2, "subscriptions": 0, "inflight": 0})

    def test_tokenBearersAreListedWhileLoggedIn(self) -> None:
        """Their grants are in their tokens."""
        [authenticator] = self.access._authenticators
        assert isinstance(authenticator, FakeAuthenticator)
        bearer = account("token", "publish 1 t", expiresAt=1_800_000_000.0)
        authenticator.identities["token"] = bearer
        self.assertNotIn("token", self.names("root"))
        principal = self.access._principal(bearer, "")
        self.assertIn("token", self.names("root"))
        given = {"account": "token"}
        expected = (True, "publish 1 t", "")
        self.assertEqual(self.explain("root", Action.PUBLISH, "t", **given), expected)
        principal.revoke()
        self.assertNotIn("token", self.names("root"))

    def test_explanationNamesTheLineAndItsRole(self) -> None:
        for topic, answer in (
            ("orders/x", (True, "publish 1 orders/#", "orders")),
            ("orders/secret", (False, "deny publish 1 orders/secret", "orders")),
            ("other", (False, "no grant names it", "")),
        ):
            for name, given in (("alice", {}), ("one", {"account": "alice"})):
                self.assertEqual(self.explain(name, Action.PUBLISH, topic, **given), answer)
        answer = (True, "operate *", "")
        self.assertEqual(self.explain("root", Action.OPERATE, "ignored"), answer)

    def test_explanationNeedsATopicForActionsOnTopics(self) -> None:
        self.assertIsInstance(self.refusal("alice", Action.PUBLISH), TopicBlank)
        self.assertIsInstance(self.refusal("alice", Action.SUBSCRIBE, "orders/#"), TopicInvalid)

    def test_clientsCannotWriteToTheBrokersTopics(self) -> None:
        """Whatever is granted; they may read them."""
        reserved = "$svc/audit"
        [authenticator] = self.access._authenticators
        assert isinstance(authenticator, FakeAuthenticator)
        authenticator.identities["all"] = account("all", "* 1 $svc/#")
        self.assertEqual(
            self.explain("all", Action.PUBLISH, reserved),
            (False, "the topic is the broker's own", ""),
        )
        self.assertEqual(self.explain("all", Action.SUBSCRIBE, reserved), (True, "* 1 $svc/#", ""))

    def test_otherAccountsAreExplainedToOperatorsOnly(self) -> None:
        error = self.refusal("alice", Action.PUBLISH, "t", account="dave")
        self.assertIsInstance(error, NotAuthorized)

    def test_operatorOfAGroupCannotProbeForAccounts(self) -> None:
        """One without grants in the group looks as one that there is not."""
        messages = [
            self.refusal("one", Action.PUBLISH, "t", account=name).message
            for name in ("idle", "nobody")
        ]
        self.assertEqual(
            messages, [f"account: there is no such account: {name}" for name in ("idle", "nobody")]
        )
        nothing = (False, "no grant names it", "")
        self.assertEqual(self.explain("root", Action.PUBLISH, "t", account="idle"), nothing)


class OpenTests(SynchronousTestCase):
    """
    A broker without accounts.
    """

    def setUp(self) -> None:
        self.queries = makeFixture().calls.accounts

    def test_listHasNoAccounts(self) -> None:
        self.assertEqual(self.successResultOf(self.queries.listAccounts(ANYBODY, None)).items, [])

    def test_everythingIsGranted(self) -> None:
        asked = self.queries.explainAccess(ANYBODY, None, Action.PUBLISH, "t")
        decision = self.successResultOf(asked).decision
        self.assertTrue(decision.isGranted)
        self.assertIn("there are no accounts", decision.reason)
        asked = self.queries.explainAccess(ANYBODY, None, Action.PUBLISH, "t", account="ann")
        self.failureResultOf(asked, ParameterInvalid)
