"""
Principals: the accounts in whose name clients act.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from attrs import frozen

from ..errors import NotAuthorized
from ..interfaces import TOPIC_ACTIONS, Action, Identity, IGroupGrants
from ._grants import EVERYTHING, Grants
from ._usage import UNLIMITED, Usage

_MAX_REMEMBERED: Final = 1000
"""How many answers about topics, and about groups, a principal remembers."""

_ALL_TOPICS: Final = ("#", "$svc/#")
"""No pattern matches all topics."""


_VERBS: Final = {
    Action.ADMIN: "make admin queries",
    Action.METRICS: "read the metrics",
    Action.COPY: "copy the chain",
}
"""Actions in words for clients, where their names are no verbs."""

_SHOWN: Final = 100
"""How much of the id of a group is shown, in characters."""


class Principal:
    """
    An account that acts: who it is, what it may do now, and what it uses.

    All connections of an account that have logged in by the same credential share one principal,
    and so do its webhooks; where its grants depend on the MQTT client id, those of one client id. A
    principal stays the same object when its account's grants change, so what it may do is always
    asked of it again.

    @ivar name: the account's name; empty for clients without credentials.
    @ivar clientId: the MQTT client id, where grants depend on it.
    @ivar usage: what the account uses.
    @ivar isEverything: whether it may do everything, so that nothing is kept from it.
    @ivar isRevoked: whether the account is gone. Then it may do nothing.
    @ivar generation: changes whenever what it may do changes.
    """

    def __init__(
        self,
        identity: Identity,
        usage: Usage,
        clientId: str = "",
        refused: Callable[[Principal, Action | None, str, str], object] | None = None,
    ) -> None:
        """
        @param refused: called when something was not granted, with the action, the group and the
            topic; with C{None} where nothing is granted in the group, whether there is one or not.
        """
        self.name = identity.name
        self.clientId = clientId
        self.usage = usage
        self.isRevoked = False
        self.generation = 0
        self._onRefused = refused
        self._endings: dict[Callable[[], object], None] = {}
        self._set(identity)

    def __repr__(self) -> str:
        return f"<Principal {self.name or 'anonymous'}>"

    # What it may do

    def may(self, action: Action, group: str, topic: str = "") -> bool:
        """
        Whether an action is granted.

        @param group: the id of a group.
        @param topic: the topic; empty for actions on a whole group.
        """
        if self.isEverything:
            return True
        # C{name} is a property that takes as long as all the rest.
        answers = self._answers[action._name_]
        answer = answers.get((group, topic))
        if answer is None:
            if len(answers) >= _MAX_REMEMBERED:
                answers.clear()
            decision = self._grants.decide(action, group, topic, self.clientId)
            answer = answers[(group, topic)] = decision.isGranted
        return answer

    def require(self, action: Action, group: str, topic: str = "") -> None:
        """
        Refuse what is not granted.

        @raise NotAuthorized: it is not granted.
        """
        if not self.may(action, group, topic):
            self.refuse(action, group, topic)

    def requireAny(self, action: Action, group: str | None, filter: str = "#") -> None:
        """
        Refuse what is granted for no topic that a filter may match.

        @param group: the id of a group; C{None} for any group.
        @raise NotAuthorized: it is not granted.
        """
        if not self.mayAny(action, group, filter):
            self.refuse(action, group or "", filter)

    def refuse(self, action: Action, group: str, topic: str = "") -> NoReturn:
        """
        Tell a client that something is not granted.

        @raise NotAuthorized: always.
        """
        self.recordRefusal(action, group, topic)
        what = f"{_VERBS.get(action, action.value)} {topic}".rstrip()
        where = f" in group {group}" if group else ""
        raise NotAuthorized(f"this account may not {what}{where}")

    def recordRefusal(self, action: Action, group: str, topic: str = "") -> None:
        """Record that something is not granted, where the client is not told."""
        if self._onRefused is not None:
            self._onRefused(self, action, group, topic)

    def mayAny(self, action: Action, group: str | None, filter: str = "#") -> bool:
        """
        Whether an action is granted for some topic that a filter may match.

        @param group: the id of a group; C{None} for any group.
        """
        if self.isEverything:
            return True
        return bool(self._grants.mayAny(action, group, filter, self.clientId))

    def sees(self, group: str, topic: str) -> bool:
        """Whether it may know that there is a topic: it may do something with it."""
        return self.isEverything or any(self.may(each, group, topic) for each in TOPIC_ACTIONS)

    def visibility(self, group: str) -> Callable[[str], bool]:
        """A function that answers for many topics of a group what L{sees} does, as of now."""
        grants = self._grants
        if isinstance(grants, Grants):
            return grants.visibility(group, self.clientId)
        return partial(self.sees, group)

    def seesGroup(self, group: str) -> bool:
        """Whether it may know that there is a group: it may do something in it."""
        if self.isEverything:
            return True
        answer = self._groups.get(group)
        if answer is None:
            if len(self._groups) >= _MAX_REMEMBERED:
                self._groups.clear()
            answer = self._groups[group] = self._seesGroup(group)
        return answer

    def _seesGroup(self, group: str) -> bool:
        grants = self._grants
        if IGroupGrants.providedBy(grants):
            return bool(grants.seesGroup(group, self.clientId))
        return any(self.mayAny(each, group, filter) for each in Action for filter in _ALL_TOPICS)

    def requireGroup(self, group: str) -> None:
        """
        Refuse a group in which nothing is granted, in the same way whether there is one or not.

        @raise NotAuthorized: nothing is granted in it.
        """
        if not self.seesGroup(group):
            if self._onRefused is not None:
                self._onRefused(self, None, "", "")
            raise NotAuthorized(f"this account may do nothing in group {group[:_SHOWN]}")

    # Its life

    def onEnd(self, ended: Callable[[], object]) -> Callable[[], None]:
        """
        Have something called when the account is removed or its log-in ends: a connection closes,
        a webhook stops.

        @return: takes that back.
        """
        self._endings[ended] = None
        kept = [ended]

        def forget() -> None:
            # Who has it called keeps this function: without the list they would be a cycle.
            if kept:
                self._endings.pop(kept.pop(), None)

        return forget

    def update(self, identity: Identity) -> None:
        """The account's grants have changed."""
        self._set(identity)
        self.generation += 1

    def revoke(self) -> None:
        """The account is gone: nothing is granted any more, and its connections end."""
        self.isRevoked = True
        self._set(Identity(name=self.name, grants=NO_GRANTS))
        self.generation += 1
        endings, self._endings = self._endings, {}
        for ended in endings:
            ended()

    def _set(self, identity: Identity) -> None:
        self.identity = identity
        self._grants = identity.grants
        self.isEverything: bool = identity.grants.isEverything
        self._answers: dict[str, dict[tuple[str, str], bool]] = {each.name: {} for each in Action}
        self._groups: dict[str, bool] = {}


@frozen(eq=False)
class Admission:
    """
    A connection that has logged in. It counts as a connection of its account.

    @ivar principal: in whose name it acts.
    """

    principal: Principal
    _forget: Callable[[], None]

    def release(self) -> None:
        """The connection is closed. Called once."""
        self._forget()
        self.principal.usage.free("connections")


def _frozenClock() -> float:
    return 0.0


NO_GRANTS: Final = Grants(())


class _Anybody(Principal):
    """A principal that never ends, so it keeps nothing of those who act by it."""

    def onEnd(self, ended: Callable[[], object]) -> Callable[[], None]:
        """See L{Principal.onEnd}."""
        return _keepNothing


def _keepNothing() -> None:
    pass


ANYBODY: Final[Principal] = _Anybody(
    Identity(name="", grants=EVERYTHING), Usage(UNLIMITED, _frozenClock)
)
"""Acts for every client where there are no accounts: it may do everything."""
