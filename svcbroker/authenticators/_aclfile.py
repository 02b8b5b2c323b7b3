"""
mosquitto's ACL files, and what they grant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import field, frozen
from zope.interface import implementer

from ..access import fitsPlaceholder
from ..interfaces import Action, Decision, GrantLine, IGroupGrants
from ..model import filterCovers, filterMatches, filtersOverlap
from ._lines import BLANKS, LineError, readLines

_USER: Final = "%u"
_CLIENT: Final = "%c"
_PLACEHOLDER = re.compile("%[uc]")
_WILDCARDS: Final = "+#"

_WRITE: Final = frozenset({Action.PUBLISH, Action.OPEN})
_READ: Final = frozenset({Action.SUBSCRIBE})
_ACCESS: Final[Mapping[str, frozenset[Action]]] = {
    "read": _READ,
    "write": _WRITE,
    "readwrite": _READ | _WRITE,
    "deny": frozenset(),
}

_NOTHING: Final = Decision(False, "no line of the ACL file allows it")
_UNUSABLE: Final = Decision(
    False,
    "no line allows it, and those whose %u or %c stands for a name that begins with $ or has + or "
    "# or / or a control character do not count",
)


@frozen
class AclLine:
    """
    A line C{topic} or C{pattern}.

    @ivar text: the line, as it was written.
    @ivar actions: what it grants; nothing where it denies.
    @ivar filter: which topics: an MQTT filter, in which C{%u} and C{%c} stand for the user's name
        and the MQTT client id where the line is a pattern.
    """

    text: str
    actions: frozenset[Action]
    filter: str

    @property
    def isDenied(self) -> bool:
        """Whether it denies."""
        return not self.actions


@implementer(IGroupGrants)
@frozen
class AclGrants:
    """
    What an ACL file grants to a user: what mosquitto 2.0 does. C{write} is to publish and to open
    topics, C{read} is to subscribe and to read; nothing else is ever granted.

    The first line that matches and is about the action decides: the user's own lines are tried
    before the patterns, and of each those that deny come first.

    mosquitto lets clients choose what a pattern means by their id: C{$svc}, or C{a/b}. A pattern
    with a name that does not fit, see L{fitsPlaceholder<svcbroker.access.fitsPlaceholder>}, grants
    nothing here; one that denies does.

    @ivar lines: the user's own lines.
    @ivar patterns: the patterns of all users.
    @ivar name: the user's name; empty for clients without one.
    """

    lines: tuple[AclLine, ...]
    patterns: tuple[AclLine, ...]
    name: str = ""
    isEverything: bool = field(default=False, init=False)
    dependsOnClient: bool = field(init=False)

    @dependsOnClient.default
    def _dependsOnClient(self) -> bool:
        # Also where none has %c: see _filled.
        return bool(self.patterns)

    def decide(self, action: Action, group: str, topic: str, clientId: str) -> Decision:
        """See L{IGrants}."""
        for line, filter in self._filled(clientId):
            if (line.isDenied or action in line.actions) and filterMatches(filter, topic):
                return Decision(not line.isDenied, line.text)
        names = (self.name, clientId)
        isUnusable = any(name and not fitsPlaceholder(name) for name in names)
        return _UNUSABLE if self.patterns and isUnusable else _NOTHING

    def mayAny(self, action: Action, group: str | None, filter: str, clientId: str) -> bool:
        """See L{IGrants}."""
        for line, lineFilter in self._filled(clientId):
            if line.isDenied:
                if filterCovers(lineFilter, filter):
                    return False
            elif action in line.actions and filtersOverlap(lineFilter, filter):
                return True
        return False

    def seesGroup(self, group: str, clientId: str) -> bool:
        """See L{IGroupGrants}: all groups have the same lines."""
        denied: list[str] = []
        for line, filter in self._filled(clientId):
            if line.isDenied:
                denied.append(filter)
            elif not any(filterCovers(each, filter) for each in denied):
                return True
        return False

    def describe(self, group: str | None) -> Sequence[GrantLine]:
        """See L{IGrants}: all groups have the same lines."""
        return [GrantLine(line.text) for line in (*self.lines, *self.patterns)]

    def _filled(self, clientId: str) -> Iterator[tuple[AclLine, str]]:
        """The lines that count, in the order in which they are tried, with their filters."""
        for line in self.lines:
            yield line, line.filter
        names = {_USER: self.name, _CLIENT: clientId}
        if any(sign in name for name in names.values() for sign in _WILDCARDS):
            # Not even those without a placeholder, as in mosquitto.
            return
        unfit = {sign for sign, name in names.items() if not fitsPlaceholder(name)}
        for line in self.patterns:
            wanted = _PLACEHOLDER.findall(line.filter)
            isUsable = line.isDenied or unfit.isdisjoint(wanted)
            if isUsable and all(names[each] for each in wanted):
                yield line, _PLACEHOLDER.sub(lambda found: names[found[0]], line.filter)


@frozen
class AclFile:
    """
    What an ACL file holds.

    @ivar users: the lines of each user; by an empty name, those for clients without one.
    @ivar patterns: the patterns of all users.
    """

    users: Mapping[str, tuple[AclLine, ...]]
    patterns: tuple[AclLine, ...]

    def grants(self, name: str) -> AclGrants:
        """What is granted to a user."""
        return AclGrants(self.users.get(name, ()), self.patterns, name)


def parseAcl(raw: bytes) -> AclFile:
    """
    Read an ACL file.

    @raise LineError: mosquitto refuses a line.
    """
    users: dict[str, list[AclLine]] = {}
    patterns: list[AclLine] = []
    user = ""
    for number, line in readLines(raw):
        text = line.rstrip(BLANKS)
        word, _, rest = text.lstrip(" ").partition(" ")
        if word == "user":
            user = rest.strip(BLANKS)
            if not user:
                raise LineError(number, "there is no name after user")
        elif word in ("topic", "pattern"):
            kept = patterns if word == "pattern" else users.setdefault(user, [])
            kept.append(_parseLine(number, text, rest.lstrip(" ")))
        elif word:
            raise LineError(number, f"begins with {word!r}, and not with user, topic or pattern")
    return AclFile(
        {name: _deniedFirst(lines) for name, lines in users.items()}, _deniedFirst(patterns)
    )


def _parseLine(number: int, text: str, rest: str) -> AclLine:
    access, blank, filter = rest.partition(" ")
    if blank:
        filter = filter.strip(BLANKS)
        if access not in _ACCESS:
            known = ", ".join(_ACCESS)
            raise LineError(number, f"{access!r} is no access; there are {known}")
    else:
        access, filter = "readwrite", access
    if not filter:
        raise LineError(number, "there is no topic")
    levels = filter.split("/")
    for level in levels:
        if len(level) > 1 and any(sign in level for sign in _WILDCARDS):
            raise LineError(number, f"{filter!r}: + and # stand for whole levels only")
    if "#" in levels[:-1]:
        raise LineError(number, f"{filter!r}: # stands for the last level only")
    return AclLine(text, _ACCESS[access], filter)


def _deniedFirst(lines: list[AclLine]) -> tuple[AclLine, ...]:
    return tuple(sorted(lines, key=lambda line: not line.isDenied))
