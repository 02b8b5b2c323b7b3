"""
Grants, as the lines of roles say them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from attrs import field, frozen
from zope.interface import implementer

from ..errors import BrokerError
from ..interfaces import TOPIC_ACTIONS, Action, Decision, GrantLine, IGroupGrants
from ..model import (
    TopicRule,
    checkFilter,
    filterCovers,
    filterExpression,
    filterMatches,
    filtersOverlap,
)

_DENY: Final = "deny"
_EVERYTHING_ROLE: Final = "everything"
_ALL: Final = "*"
_ALL_TOPICS: Final = "#"
_USER: Final = "%u"
_CLIENT: Final = "%c"
_NOT_IN_NAMES: Final = frozenset("+#/")

_UNFIT: Final = "begins with $ or has + or # or / or a control character"
_NOTHING: Final = Decision(False, "no grant names it")


@frozen
class Grant:
    """
    One line: C{[deny] ACTION GROUP [TOPIC-PATTERN]}.

    @ivar line: the line, as it was written.
    @ivar actions: what it grants or denies.
    @ivar group: the id of a group; C{*} for all.
    @ivar pattern: which topics: a topic or an MQTT pattern, in which C{%u} stands for the
        account's name, and C{%c} for the MQTT client id.
    @ivar role: the role that has the line; empty where it is of no role.
    """

    line: str
    isDenied: bool
    actions: frozenset[Action]
    group: str
    pattern: str
    role: str = ""

    @classmethod
    def parse(cls, line: str, role: str = "") -> Grant:
        """
        Read a line of a role.

        @raise ValueError: it is no grant. The text says why and names the line.
        """
        words = line.split(None, 3 if line.split(None, 1)[:1] == [_DENY] else 2)
        isDenied = words[:1] == [_DENY]
        if isDenied:
            words = words[1:]
        if len(words) < 2:
            raise ValueError(f"{line!r} is no grant: it must be [deny] ACTION GROUP TOPIC-PATTERN")
        name, group = words[:2]
        try:
            actions = frozenset(Action) if name == _ALL else frozenset([Action(name)])
            if Action.OPERATE in actions:
                actions |= {Action.METRICS}
        except ValueError:
            known = ", ".join([*(each.value for each in Action), _ALL])
            raise ValueError(f"{line!r}: the action must be one of {known}") from None
        isForTopics = bool(actions & set(TOPIC_ACTIONS))
        if len(words) < 3 and isForTopics:
            raise ValueError(f"{line!r}: {name} needs a topic or pattern after the group")
        pattern = words[2].rstrip() if len(words) > 2 else _ALL_TOPICS
        if not isForTopics and pattern != _ALL_TOPICS:
            raise ValueError(f"{line!r}: {name} is granted for whole groups: leave the topic out")
        try:
            checkFilter(pattern.replace(_USER, "u").replace(_CLIENT, "c"), TopicRule.UTF8)
        except BrokerError as error:
            raise ValueError(f"{line!r}: {error.message}") from None
        return cls(line, isDenied, actions, group, pattern, role)

    def isFor(self, action: Action, group: str | None) -> bool:
        """Whether it is about an action in a group; C{None} for any group."""
        if action not in self.actions or (group is not None and self.group not in (_ALL, group)):
            return False
        return action in TOPIC_ACTIONS or self.pattern == _ALL_TOPICS


@implementer(IGroupGrants)
@frozen
class Grants:
    """
    The grants of an account: the lines of its roles. A line that denies wins over all that grant.

    Where a name does not fit C{%u} or C{%c}, see L{fitsPlaceholder}, an account whose grants use it
    is granted nothing: left out of a line that denies, it would be granted more.

    @ivar grants: the lines.
    @ivar name: the account's name.
    """

    grants: tuple[Grant, ...]
    name: str = ""
    isEverything: bool = False
    dependsOnClient: bool = field(init=False)
    _namesUser: bool = field(init=False)

    @dependsOnClient.default
    def _dependsOnClient(self) -> bool:
        return any(_CLIENT in grant.pattern for grant in self.grants)

    @_namesUser.default
    def _hasUserPattern(self) -> bool:
        return any(_USER in grant.pattern for grant in self.grants)

    @classmethod
    def parse(cls, lines: Iterable[str], name: str = "") -> Grants:
        """
        Read the lines of an account's roles.

        @raise ValueError: one of them is no grant.
        """
        return cls(tuple(Grant.parse(line) for line in lines), name)

    def decide(self, action: Action, group: str, topic: str, clientId: str) -> Decision:
        """See L{IGrants}."""
        if self.isEverything:
            return Decision(True, "everything is granted", _EVERYTHING_ROLE)
        reason = self._unusableName(clientId)
        if reason:
            return Decision(False, reason)
        granted: Grant | None = None
        for grant in self.grants:
            if grant.isFor(action, group) and (
                action not in TOPIC_ACTIONS
                or filterMatches(self._fill(grant.pattern, clientId), topic)
            ):
                if grant.isDenied:
                    return Decision(False, grant.line, grant.role)
                granted = granted or grant
        return _NOTHING if granted is None else Decision(True, granted.line, granted.role)

    def mayAny(self, action: Action, group: str | None, filter: str, clientId: str) -> bool:
        """See L{IGrants}."""
        if self.isEverything:
            return True
        if self._unusableName(clientId):
            return False
        isGranted = False
        for grant in self.grants:
            if not grant.isFor(action, group):
                continue
            pattern = self._fill(grant.pattern, clientId)
            if grant.isDenied:
                isForAll = group is not None or grant.group == _ALL
                if isForAll and filterCovers(pattern, filter):
                    return False
            elif filtersOverlap(pattern, filter):
                isGranted = True
        return isGranted

    def describe(self, group: str | None) -> Sequence[GrantLine]:
        """See L{IGrants}."""
        if self.isEverything:
            return [GrantLine(line, _EVERYTHING_ROLE) for line in BUILT_IN_ROLES[_EVERYTHING_ROLE]]
        return [
            GrantLine(each.line, each.role)
            for each in self.grants
            if group is None or each.group in (_ALL, group)
        ]

    def seesGroup(self, group: str, clientId: str) -> bool:
        """See L{IGroupGrants}."""
        return self.isEverything or any(
            self.mayAny(action, group, self._fill(grant.pattern, clientId), clientId)
            for grant in self.grants
            if not grant.isDenied
            for action in grant.actions
        )

    def visibility(self, group: str, clientId: str) -> Callable[[str], bool]:
        """
        Make a function that tells whether some action is granted for a topic. It is for many
        topics: most of those for which nothing is granted cost one search.
        """
        if self.isEverything:
            return lambda topic: True
        if self._unusableName(clientId):
            return lambda topic: False
        grants = [grant for grant in self.grants if grant.actions & set(TOPIC_ACTIONS)]
        grants = [grant for grant in grants if grant.group in (_ALL, group)]
        granted = [self._fill(each.pattern, clientId) for each in grants if not each.isDenied]
        matches = re.compile("|".join(map(filterExpression, granted)) or "(?!)", re.S).fullmatch
        if len(granted) == len(grants):
            return lambda topic: matches(topic) is not None
        return lambda topic: (
            matches(topic) is not None
            and any(
                self.decide(action, group, topic, clientId).isGranted for action in TOPIC_ACTIONS
            )
        )

    def _fill(self, pattern: str, clientId: str) -> str:
        if "%" in pattern:
            # Not one after the other: a name may hold the other's sign.
            parts = (part.replace(_CLIENT, clientId) for part in pattern.split(_USER))
            return self.name.join(parts)
        return pattern

    def _unusableName(self, clientId: str) -> str:
        if self._namesUser and not fitsPlaceholder(self.name):
            return f"the account's name {_UNFIT}, and its grants use %u"
        if self.dependsOnClient and not fitsPlaceholder(clientId):
            return f"the client id is empty or {_UNFIT}, and the account's grants use %c"
        return ""


def fitsPlaceholder(name: str) -> bool:
    """
    Whether a name may stand for C{%u} or C{%c} in a pattern. Clients choose their ids, and others
    than the operator some names: one that begins with C{$} would reach the broker's own topics, and
    one with a character of patterns would change what the pattern means.
    """
    return (
        name[:1] not in ("", "$")
        and _NOT_IN_NAMES.isdisjoint(name)
        and not any(unicodedata.category(each) == "Cc" for each in name)
    )


EVERYTHING: Final = Grants((), isEverything=True)
"""The grants of the role C{everything}, and of everybody where there are no accounts."""

BUILT_IN_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "publisher": ("publish * #", "open * #"),
    "subscriber": ("subscribe * #",),
    "metrics": ("metrics *",),
    # Not all of $svc/: dead letters have the contents of other topics' events.
    "operator": ("admin *", "operate *", "subscribe * $svc/audit"),
    "everything": ("* * #", "* * $svc/#"),
}
"""The roles that need not be declared, and their grants. An account with the role C{everything},
and nothing that denies, has L{EVERYTHING}."""
