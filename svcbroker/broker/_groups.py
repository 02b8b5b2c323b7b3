"""
The groups that a broker serves, their ledgers, and bounded waits for the answers of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from attrs import field, frozen
from attrs.validators import gt
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..access import Principal
from ..errors import BrokerError, GroupUnknown, TopicInvalid, TransactionTimeout
from ..interfaces import ILedger, ITopicRuleLedger
from ..model import Page, Topic, TopicRule, checkFilter, checkNormalised, checkTopicName, isPattern
from ..net.budgets import WorkBudget

DEFAULT_GROUP: Final = "1"

_SHOWN: Final = 100
"""The length of the part of an unknown group's id that is shown, in characters."""


@frozen(kw_only=True)
class Limits:
    """
    The bounds of what the broker takes, and of how long it waits.

    @ivar maxContent: the largest content of an event, in bytes.
    @ivar chainTimeout: how long a caller waits for each answer of the chain, in seconds.
    @ivar reservedTopics: topics that the broker itself writes to: clients may neither publish to
        them nor open or close them.
    """

    maxContent: int = field(default=1024 * 1024, validator=gt(0))
    chainTimeout: float = field(default=10.0, validator=gt(0))
    reservedTopics: frozenset[str] = frozenset()


class Groups:
    """
    The ledgers by the id of their group, in the operator's order.
    """

    def __init__(self, ledgers: Mapping[str, ILedger]) -> None:
        self._ledgers = dict(ledgers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledgers)

    def __len__(self) -> int:
        return len(self._ledgers)

    def resolve(self, principal: Principal, groupId: str | None) -> str:
        """
        The group that is meant.

        @param groupId: as the client says it; absent or blank means group C{1}.
        @raise NotAuthorized: nothing is granted to the principal in such a group, whether this
            broker serves it or not.
        @raise GroupUnknown: this broker does not serve it.
        """
        return self.find(principal, groupId)[0]

    def find(self, principal: Principal, groupId: str | None) -> tuple[str, ILedger]:
        """
        The id and the ledger of the group that is meant.

        @raise NotAuthorized, GroupUnknown: see L{resolve}.
        """
        if groupId is None or not groupId.strip():
            groupId = DEFAULT_GROUP
        if not principal.isEverything:
            principal.requireGroup(groupId)
        ledger = self._ledgers.get(groupId)
        if ledger is None:
            raise GroupUnknown(f"{GroupUnknown.text}: {groupId[:_SHOWN]}")
        return groupId, ledger

    def items(self) -> list[tuple[str, ILedger]]:
        """Every group's id and its ledger."""
        return list(self._ledgers.items())


def _ruleOf(ledger: ILedger) -> TopicRule:
    """The rule of topics' names on a ledger's chain."""
    if not ITopicRuleLedger.providedBy(ledger):
        return TopicRule.PUBLISHED
    return ITopicRuleLedger(ledger).topicRule


def checkTopic(ledger: ILedger, name: str) -> None:
    """
    Refuse what cannot be the name of a topic in a group. A topic that its chain has may have any
    form of Unicode, since a later version of Unicode may know more of them.

    @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name there.
    """
    if name.isascii():
        checkTopicName(name)
        return
    checkTopicName(name, _ruleOf(ledger))
    try:
        checkNormalised(name)
    except TopicInvalid:
        if ledger.topicState(name) is None:
            raise


def checkTopicFilter(ledger: ILedger, filter: str) -> None:
    """
    Refuse what cannot be subscribed to in a group.

    @raise TopicBlank, TopicTooLong, TopicInvalid, PatternInvalid: see
        L{checkFilter<svcbroker.model.checkFilter>}.
    """
    if isPattern(filter):
        checkFilter(filter, _ruleOf(ledger))
    else:
        checkTopic(ledger, filter)


T = TypeVar("T")


class TimeoutQueue:
    """
    The Deferreds of callers who wait for the chain, in the order in which they came.

    All wait equally long, so the first of them is the first whose time is over, and one timer is
    enough for all of them. Those that have fired stay in the queue until none before them waits;
    so callers whose answers come in the same order should share one, and others should not.

    A time-out, or a cancelled answer, does not cancel the call of the ledger.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, timeout: float) -> None:
        """
        @param clock: measures the time.
        @param timeout: the longest wait, in seconds.
        """
        self._clock = clock
        self._timeout = timeout
        self._queue: deque[tuple[float, Deferred[Any]]] = deque()
        self._timer: IDelayedCall | None = None

    def __len__(self) -> int:
        """The number of those that wait."""
        return sum(not waiter.called for _, waiter in self._queue)

    def wait(self, pending: Deferred[T]) -> Deferred[T]:
        """
        Wait for C{pending}, which belongs to the waiter from now on.

        @return: fires as C{pending} does, or fails with
            L{TransactionTimeout<svcbroker.errors.TransactionTimeout>} after the time-out.
        """
        if pending.called and not pending.paused:
            return pending
        waiter: Deferred[T] = Deferred(_ignoreCancel)
        self.limit(waiter)
        pending.addBoth(self._settle, waiter)
        return waiter

    def limit(self, waiter: Deferred[Any]) -> None:
        """
        Fail C{waiter} itself with C{TransactionTimeout} after the time-out. Only for a Deferred
        that its owner does not fire a second time, such as C{done} of a
        L{Submission<svcbroker.interfaces.Submission>}: this saves another Deferred.
        """
        queue = self._queue
        while queue and queue[0][1].called:
            queue.popleft()
        queue.append((self._clock.seconds() + self._timeout, waiter))
        if self._timer is None:
            self._timer = self._clock.callLater(self._timeout, self._expire)

    def stop(self) -> None:
        """
        Cancel the timer. Called once, after the ledgers have stopped: they have answered
        everything by then.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, result: Any, waiter: Deferred[Any]) -> None:
        if not waiter.called:
            waiter.callback(result)
        elif isinstance(result, Failure) and not isinstance(result.value, BrokerError):
            self._log.failure("The chain failed after its caller had left", failure=result)

    def _expire(self) -> None:
        # The spent timer stays in its place until the end, so that a wait() that begins
        # in here does not set one of its own.
        now, queue = self._clock.seconds(), self._queue
        while queue:
            deadline, waiter = queue[0]
            if waiter.called:
                queue.popleft()
            elif deadline > now:
                self._timer = self._clock.callLater(deadline - now, self._expire)
                return
            else:
                queue.popleft()
                waiter.errback(TransactionTimeout())
        self._timer = None


def _ignoreCancel(waiter: Deferred[Any]) -> None:
    """A canceller: what was waited for goes on, and is not given to the waiter."""


_STEP: Final = 500
"""The number of topics between two looks at the time."""


async def listVisible(
    principal: Principal,
    ledger: ILedger,
    offset: int,
    size: int,
    timeouts: TimeoutQueue,
    work: WorkBudget,
) -> Page[Topic]:
    """
    The page of a principal that may not know of all topics. All of them are looked at, a few at a
    time.

    @param work: says when there is time for more.
    """
    found: list[Topic] = []
    visible = position = 0
    generation = -1
    lane = work.lane()
    while True:
        part = await timeouts.wait(ledger.listTopics(position, _STEP))
        if principal.generation != generation:
            isVisible, generation = principal.visibility(ledger.group), principal.generation
        for topic in part.items:
            if isVisible(topic.name):
                if offset <= visible < offset + size:
                    found.append(topic)
                visible += 1
        position += _STEP
        if position >= part.total:
            return Page(items=found, total=visible)
        await lane.turn(isWrite=False)
