"""
Grants: what their lines say.
"""

from __future__ import annotations

import re
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.access import BUILT_IN_ROLES, Grants, fitsPlaceholder
from svcbroker.access._grants import EVERYTHING
from svcbroker.interfaces import TOPIC_ACTIONS, Action, IGroupGrants
from svcbroker.model import filterCovers, filterExpression, filterMatches, filtersOverlap
from tests import examples

_TOPICS = [
    "/".join(levels) for n in (1, 2, 3) for levels in product(["a", "b", "$x", ""], repeat=n)
]
_PATTERNS = st.lists(st.sampled_from(["a", "b", "+", "$x", ""]), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]).map("/".join)
)


class FilterTests(SynchronousTestCase):
    @given(_PATTERNS)
    @settings(max_examples=examples(500), deadline=None)
    def test_expressionMatchesWhatTheFilterMatches(self, filter: str) -> None:
        expression = re.compile(filterExpression(filter), re.S)
        for topic in [*_TOPICS, "a.b", "a\n", "\n"]:
            isMatched = expression.fullmatch(topic) is not None
            self.assertEqual(isMatched, filterMatches(filter, topic), (filter, topic))

    @given(_PATTERNS, _PATTERNS)
    @settings(max_examples=examples(500), deadline=None)
    def test_filtersOverlapWhereATopicMatchesBoth(self, one: str, other: str) -> None:
        both = any(filterMatches(one, each) and filterMatches(other, each) for each in _TOPICS)
        if both:
            self.assertTrue(filtersOverlap(one, other))
        self.assertEqual(filtersOverlap(one, other), filtersOverlap(other, one))
        if not both and one.count("/") < 2 and other.count("/") < 2:
            self.assertFalse(filtersOverlap(one, other), (one, other))

    @given(_PATTERNS, _PATTERNS)
    @settings(max_examples=examples(500), deadline=None)
    def test_aCoveredFilterMatchesNothingElse(self, wide: str, narrow: str) -> None:
        if filterCovers(wide, narrow):
            for topic in _TOPICS:
                if filterMatches(narrow, topic):
                    self.assertTrue(filterMatches(wide, topic), topic)
        self.assertTrue(filterCovers(wide, wide))


class GrantsTests(SynchronousTestCase):
    def may(self, lines: list[str], action: Action, topic: str = "", group: str = "1") -> bool:
        return Grants.parse(lines, "ann").decide(action, group, topic, "c1").isGranted

    def test_provideTheInterface(self) -> None:
        verifyObject(IGroupGrants, Grants.parse(["publish 1 a"]))
        verifyObject(IGroupGrants, EVERYTHING)

    def test_nothingIsGrantedByDefault(self) -> None:
        for action in Action:
            self.assertFalse(self.may([], action, "a"))

    def test_aLineGrantsItsActionGroupAndTopics(self) -> None:
        lines = ["publish 1 orders/+"]
        self.assertTrue(self.may(lines, Action.PUBLISH, "orders/x"))
        self.assertFalse(self.may(lines, Action.SUBSCRIBE, "orders/x"))
        self.assertFalse(self.may(lines, Action.PUBLISH, "orders/x/y"))
        self.assertFalse(self.may(lines, Action.PUBLISH, "orders/x", "2"))
        self.assertTrue(self.may(["publish * orders/+"], Action.PUBLISH, "orders/x", "2"))

    def test_starGrantsAllActions(self) -> None:
        for action in Action:
            self.assertTrue(self.may(["* 1 #"], action, "a"))

    def test_starOnSomeTopicsGrantsNothingOnTheGroup(self) -> None:
        for action in (Action.ADMIN, Action.OPERATE, Action.METRICS):
            self.assertFalse(self.may(["* 1 a/#"], action))
            self.assertTrue(self.may([f"{action.value} 1"], action))

    def test_denyWins(self) -> None:
        for lines in (["* 1 #", "deny publish 1 a/b"], ["deny publish * a/b", "* * #"]):
            self.assertFalse(self.may(lines, Action.PUBLISH, "a/b"))
            self.assertTrue(self.may(lines, Action.SUBSCRIBE, "a/b"))
            self.assertTrue(self.may(lines, Action.PUBLISH, "a/c"))

    def test_wildcardsDoNotGrantTopicsThatBeginWithDollar(self) -> None:
        self.assertFalse(self.may(["subscribe 1 #"], Action.SUBSCRIBE, "$svc/audit"))
        self.assertTrue(self.may(["subscribe 1 $svc/#"], Action.SUBSCRIBE, "$svc/audit"))

    def test_namesAreFilledIn(self) -> None:
        lines = ["publish 1 users/%u/%c"]
        self.assertTrue(self.may(lines, Action.PUBLISH, "users/ann/c1"))
        self.assertFalse(self.may(lines, Action.PUBLISH, "users/bob/c1"))

    def test_namesWithPatternsAreGrantedNothing(self) -> None:
        for name, client in (("+", "c"), ("#", "c"), ("a/b", "c"), ("ann", "+"), ("ann", "")):
            grants = Grants.parse(["publish 1 users/%u/%c", "publish 1 #"], name)
            decision = grants.decide(Action.PUBLISH, "1", f"users/{name}/{client}", client)
            self.assertFalse(decision.isGranted, (name, client))

    def test_namesThatClientsChooseReachNoTopicsOfTheBroker(self) -> None:
        """A pattern such as C{%c/#} must not become C{$svc/#}."""
        for sign, name, clientId in (
            ("%c", "ann", "$svc"),
            ("%u", "$svc", "c"),
            ("%c", "ann", "$"),
        ):
            grants = Grants.parse([f"subscribe 1 {sign}/#", "subscribe 1 a"], name)
            for topic in ("$svc/audit", "$svc/dead/x", "a"):
                self.assertFalse(grants.decide(Action.SUBSCRIBE, "1", topic, clientId).isGranted)
            self.assertFalse(grants.mayAny(Action.SUBSCRIBE, "1", "$svc/#", clientId))
            self.assertFalse(grants.seesGroup("1", clientId))
            self.assertFalse(grants.visibility("1", clientId)("$svc/audit"))

    def test_placeholdersTakeNoSignsOfPatterns(self) -> None:
        for name in ("", "$", "$svc", "a+", "#", "a/b", "a\nb", "\x00", "a\x7f", "\x85a"):
            self.assertFalse(fitsPlaceholder(name), repr(name))
        for name in ("a", "a$", "bob smith", "line-7@plant.example", "%c", "\u00e9", "*"):
            self.assertTrue(fitsPlaceholder(name), repr(name))

    def test_aNameMayHoldTheOtherSign(self) -> None:
        grants = Grants.parse(["publish 1 users/%u/x"], "%c")
        self.assertFalse(grants.decide(Action.PUBLISH, "1", "users/evil/x", "evil").isGranted)

    def test_theDecidingLineIsNamed(self) -> None:
        grants = Grants.parse(["publish 1 #", "deny publish 1 a"])
        self.assertEqual(grants.decide(Action.PUBLISH, "1", "a", "").reason, "deny publish 1 a")
        self.assertEqual(grants.decide(Action.PUBLISH, "1", "b", "").reason, "publish 1 #")
        self.assertEqual(grants.decide(Action.OPEN, "1", "b", "").reason, "no grant names it")

    def test_somethingThatAFilterMatchesMayBeGranted(self) -> None:
        grants = Grants.parse(["subscribe 1 a/#", "deny subscribe 1 a/secret/#"])
        for filter, isGranted in (
            *(("#", True), ("a/+", True), ("a", True), ("+/+", True)),
            *(("b", False), ("b/#", False), ("a/secret/#", False), ("a/secret/x", False)),
        ):
            self.assertIs(grants.mayAny(Action.SUBSCRIBE, "1", filter, ""), isGranted, filter)
        self.assertFalse(grants.mayAny(Action.SUBSCRIBE, "2", "#", ""))
        self.assertTrue(grants.mayAny(Action.SUBSCRIBE, None, "#", ""))

    def test_topicsMayHaveSpaces(self) -> None:
        self.assertTrue(self.may(["publish 1 a b/c"], Action.PUBLISH, "a b/c"))

    def test_badLinesAreNamed(self) -> None:
        for line, reason in (
            ("", "must be"),
            ("publish", "must be"),
            ("write 1 a", "action must be one of publish"),
            ("publish 1", "needs a topic"),
            ("publish 1 a/#/b", "#"),
            ("admin 1 orders/#", "whole groups"),
            ("deny", "must be"),
        ):
            error = self.assertRaises(ValueError, Grants.parse, [line])
            self.assertIn(repr(line), str(error))
            self.assertIn(reason, str(error))

    def test_operatorsReadTheAuditTrailAndNoContents(self) -> None:
        """Dead letters below C{$svc/} have the contents of other topics' events."""
        for topic, isGranted in (("$svc/audit", True), ("$svc/dead/x", False), ("a", False)):
            lines = list(BUILT_IN_ROLES["operator"])
            self.assertIs(self.may(lines, Action.SUBSCRIBE, topic), isGranted, topic)

    def test_metricsAreGrantedAlone(self) -> None:
        for lines in (["metrics *"], BUILT_IN_ROLES["metrics"]):
            for action in Action:
                isGranted = self.may(list(lines), action, "a")
                self.assertIs(isGranted, action is Action.METRICS, action)

    def test_operatingIncludesTheMetrics(self) -> None:
        self.assertTrue(self.may(["operate 1"], Action.METRICS))
        self.assertFalse(self.may(["operate 1", "deny metrics 1"], Action.METRICS))
        self.assertTrue(self.may(["operate 1", "deny metrics 1"], Action.OPERATE))
        self.assertFalse(self.may(["* 1 #", "deny operate 1"], Action.METRICS))

    def test_builtInRolesAreGrants(self) -> None:
        for lines in BUILT_IN_ROLES.values():
            Grants.parse(lines)

    def test_unusableNamesSeeNoTopics(self) -> None:
        """If a name or a client id cannot be filled in, nothing is visible, other lines too."""
        for line, name, clientId in (("* * a/%u", "a+b", "c"), ("* * a/%c", "ann", "")):
            isVisible = Grants.parse([line, "publish 1 b"], name).visibility("1", clientId)
            self.assertEqual([isVisible(topic) for topic in ("a/a+b", "a/", "b")], [False] * 3)
        self.assertTrue(EVERYTHING.visibility("1", "")("$svc/audit"))

    @given(st.lists(st.tuples(st.booleans(), st.sampled_from([*Action]), _PATTERNS), max_size=4))
    @settings(max_examples=examples(300), deadline=None)
    def test_visibilityIsThatSomeActionIsGranted(
        self, rules: list[tuple[bool, Action, str]]
    ) -> None:
        lines = [
            f"{'deny ' if isDenied else ''}{action.value} 1 {pattern}"
            for isDenied, action, pattern in rules
            if action in TOPIC_ACTIONS and pattern
        ]
        grants = Grants.parse(lines, "ann")
        isVisible = grants.visibility("1", "")
        for topic in _TOPICS:
            isGranted = any(
                grants.decide(action, "1", topic, "").isGranted for action in TOPIC_ACTIONS
            )
            self.assertEqual(isVisible(topic), isGranted, (lines, topic))
        self.assertFalse(any(map(grants.visibility("2", ""), _TOPICS)))
