"""
Retention: erasing events by their age.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ..errors import BrokerError, LedgerUnavailable
from ..interfaces import IHoldLedger, ILedger
from ..model import (
    MAX_ERASED,
    Block,
    EraseEvents,
    Execution,
    TopicRule,
    checkFilter,
    extendRanges,
    filterMatches,
)
from ..net.deferreds import asDeferred, cancelAll
from ..net.settings import UNITS, Table, Text, declareSetting, secondsOf
from ._collaborators import IRetention, RetentionReport
from ._eventerasure import erasuresOf
from ._metadatastore import MetadataStore
from .features import Feature, RunningFeature, Services

RETENTION: Final = "retention"
"""The kind of how far the log of a group was erased. Its name is C{GROUP/RULE}."""

LONGEST_PERIOD: Final = 3600.0
"""The longest time, in seconds, between two searches for old events."""

SHORTEST_PERIOD: Final = 1.0
"""The shortest one. In between it is a hundredth of the age."""

PAUSE: Final = 1.0
"""Seconds between two erasures of a search that finds more than one may name."""

RETRY: Final = 30.0
"""Seconds after which a search that has failed is made again."""

TURN: Final = 0.005
"""After how many seconds of reading blocks the reactor gets its turn."""

REST: Final = 2.0
"""The pause in which no block is read then, in units of the time that reading took."""

REQUESTS_AT_ONCE: Final = 100
"""The number of erasures that are submitted together."""


@frozen
class RetentionRule:
    """
    The time for which events are kept.

    @ivar pattern: the filter of their topics. Topics that begin with C{$} are matched only where it
        begins so, too.
    @ivar age: how many seconds they are kept.
    """

    pattern: str
    age: int

    def __str__(self) -> str:
        """The rule as a command line has it."""
        return f"{self.pattern}={self.age}s"


def retentionGroup(kind: str, name: str, value: bytes) -> str:
    """The group of an entry of the metadata store."""
    return name.partition("/")[0]


class Retention:
    """
    Erases the old events of a group.

    Blocks are read from the oldest one on, each once; how far that was done is kept, so that a
    restart does not begin anew. Events that are erased already are left out, whoever has erased
    them.
    """

    _log = Logger()

    def __init__(
        self,
        ledger: ILedger,
        rules: Sequence[RetentionRule],
        store: MetadataStore,
        reactor: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._ledger = ledger
        self._store = store
        self._reactor = reactor
        self._now = now
        self._searches = [
            _Search(age, sorted({rule.pattern for rule in rules if rule.age == age}))
            for age in sorted({rule.age for rule in rules})
        ]
        self._running: list[Deferred[None]] = []

    def start(self) -> Deferred[None]:
        """Begin. The ledger has started."""
        names = {self._name(search) for search in self._searches}
        for name, _ in self._store.items(RETENTION):
            isOurs = retentionGroup(RETENTION, name, b"") == self._ledger.group
            if isOurs and name not in names:
                self._store.remove(RETENTION, name)
        self._running = [self._repeat(search) for search in self._searches]
        return succeed(None)

    def stop(self) -> Deferred[None]:
        """End. Erasures that are submitted are executed."""
        cancelAll(self._running)
        return succeed(None)

    def reports(self) -> Sequence[RetentionReport]:
        """The progress by each rule, the shortest age first."""
        return [
            RetentionReport(
                patterns=tuple(search.patterns),
                age=search.age,
                height=self._reached(search).height,
                erased=search.erased,
                problem=search.problem,
            )
            for search in self._searches
        ]

    def _reached(self, search: _Search) -> _Reached:
        return _Reached.decode(self._store.get(RETENTION, self._name(search)))

    def _name(self, search: _Search) -> str:
        return f"{self._ledger.group}/{search.name}"

    @asDeferred
    async def _repeat(self, search: _Search) -> None:
        hasFailed = False
        while True:
            try:
                delay = search.period if await self._search(search) else PAUSE
                hasFailed, search.problem = False, ""
            except BrokerError as error:
                if not hasFailed:
                    self._log.error(
                        "old events of group {group} cannot be erased, it is tried again: {reason}",
                        group=self._ledger.group,
                        reason=error.message,
                    )
                hasFailed, delay = True, RETRY
                search.problem = error.message
            await self._sleep(delay)

    async def _search(self, search: _Search) -> bool:
        """
        Erase some old events, at most as many as one erasure may name.

        @return: whether there are no more for now.
        @raise BrokerError: the ledger did not do it.
        """
        name = self._name(search)
        holding: IHoldLedger | None = IHoldLedger(self._ledger, None)
        # Before any event is looked at: a later release is seen by the next search.
        released = 0 if holding is None else holding.latestRelease
        before = self._reached(search)
        height, passed = before.height, before.passed
        if passed and released != before.released:
            height, passed = passed - 1, 0
        last = (await self._ledger.getStatistics()).height
        cutoff = int(self._now() * 1000) - search.age * 1000
        found = _Found(search, holding)
        began = self._reactor.seconds()
        isDone = True
        while height < last:
            block = await self._ledger.readBlock(height + 1)
            if block.timestamp > cutoff:
                break
            if found.add(block):
                passed = passed or block.height
            height = block.height
            if found.count >= MAX_ERASED:
                isDone = False
                break
            took = self._reactor.seconds() - began
            if took > TURN:
                await self._sleep(REST * took)
                began = self._reactor.seconds()
        await self._erase(found.requests())
        search.erased += found.count
        after = _Reached(height, passed, released if passed else 0)
        if after != before:
            self._store.put(RETENTION, name, after.encode())
        return isDone

    async def _erase(self, requests: Sequence[EraseEvents]) -> None:
        for start in range(0, len(requests), REQUESTS_AT_ONCE):
            batch = requests[start : start + REQUESTS_AT_ONCE]
            submission = await self._ledger.submitMany(batch).done
            for outcome in submission.outcomes:
                if isinstance(outcome, BrokerError):
                    raise outcome
                if outcome is not None and outcome.execution is not Execution.DONE:
                    raise LedgerUnavailable(f"an erasure was refused: {outcome.execution.name}")

    async def _sleep(self, seconds: float) -> None:
        await deferLater(self._reactor, seconds)


class _Search:
    """
    The rules of one age.

    @ivar name: names it in the metadata store: other rules begin from the first block.
    @ivar period: the seconds between two searches.
    @ivar erased: how many events it has erased.
    @ivar problem: why the last search failed; empty if it did not.
    """

    def __init__(self, age: int, patterns: Sequence[str]) -> None:
        self.age = age
        self.patterns = patterns
        self.erased = 0
        self.problem = ""
        self.name = f"{age}:{' '.join(patterns)}"
        self.period = min(max(age / 100, SHORTEST_PERIOD), LONGEST_PERIOD)

        @lru_cache(maxsize=4096)
        def matches(topic: str) -> bool:
            return any(filterMatches(pattern, topic) for pattern in patterns)

        self.matches = matches


@frozen
class _Reached:
    """
    The part of the log that was searched.

    @ivar height: the height of the last block that was.
    @ivar passed: the height of the first block in which held events were passed over; 0 for none.
    @ivar released: the height of the latest release of a hold when they were: after another one
        the search goes back to them.
    """

    height: int
    passed: int = 0
    released: int = 0

    @classmethod
    def decode(cls, value: bytes | None) -> _Reached:
        """Read what L{encode} wrote."""
        return cls(*map(int, (value or b"0").split()))

    def encode(self) -> bytes:
        """As the metadata store has it: the height alone, as before there were holds, or all."""
        if not self.passed:
            return b"%d" % self.height
        return b"%d %d %d" % (self.height, self.passed, self.released)


class _Found:
    """
    Old events.

    @ivar count: how many there are.
    """

    def __init__(self, search: _Search, holding: IHoldLedger | None) -> None:
        self.count = 0
        self._search = search
        self._holding = holding
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, block: Block) -> bool:
        """
        Add the events of a block that are not held.

        @return: whether some are.
        """
        old: dict[str, list[int]] = {}
        for event in block.events:
            if not event.isErased and self._search.matches(event.topic):
                old.setdefault(event.topic, []).append(event.eventId.sequence)
        hasHeld = False
        for topic, sequences in old.items():
            held = self._heldOf(topic, sequences)
            for sequence in sequences:
                if sequence in held:
                    hasHeld = True
                    continue
                self.count += 1
                extendRanges(self._ranges.setdefault(topic, []), sequence)
        return hasHeld

    def _heldOf(self, topic: str, sequences: Sequence[int]) -> Container[int]:
        """Those of some events of a topic that are held. Each hold is asked once."""
        held: set[int] = set()
        ranges: list[tuple[int, int]] = []
        for sequence in sequences:
            extendRanges(ranges, sequence)
        for some in () if self._holding is None else self._holding.heldRanges(topic, ranges):
            for each in some:
                held.update(range(each.first, each.last + 1))
            if len(held) == len(sequences):
                break
        return held

    def requests(self) -> Sequence[EraseEvents]:
        """Return the C{EraseEvents} requests for these ranges."""
        reason = f"retain: older than {self._search.age} s"
        return [
            erasure
            for topic, ranges in self._ranges.items()
            for erasure in erasuresOf(topic, ranges, "", reason)
        ]


_MAX_AGE: Final = 100 * 365 * 86400


def retentionRule(text: str) -> RetentionRule:
    """A pattern of topics, and how long their events are kept."""
    pattern, equals, age = text.rpartition("=")
    seconds = secondsOf(age)
    if not equals or seconds is None:
        raise ValueError(f"is not PATTERN=AGE such as telemetry/#=90d ({UNITS}): {text!r}")
    if seconds > _MAX_AGE:
        raise ValueError(f"has an age of more than 100 years: {text!r}")
    try:
        checkFilter(pattern, TopicRule.UTF8)
    except BrokerError as error:
        raise ValueError(f"has a pattern that cannot be used ({error.message}): {text!r}") from None
    return RetentionRule(pattern, seconds)


def distinctRules(rules: tuple[RetentionRule, ...]) -> tuple[RetentionRule, ...]:
    """Rules of retention, each pattern once."""
    patterns = [rule.pattern for rule in rules]
    for pattern in patterns:
        if patterns.count(pattern) > 1:
            raise ValueError(f"has {pattern!r} twice")
    return rules


@frozen(kw_only=True)
class RetentionOptions:
    """The settings of retention."""

    rules: tuple[RetentionRule, ...] = declareSetting(
        "retain",
        Table(
            of=Text(metavar="PATTERN=AGE", normalise=retentionRule, type=RetentionRule),
            finish=distinctRules,
        ),
        (),
        "how long the contents of events are kept, by the pattern of their topics, such as "
        "telemetry/#=90d; older ones are erased; may be given more than once",
        shown="for ever",
    )


@implementer(IRetention)
class RetentionFeature(RunningFeature):
    """The retention of all groups."""

    def __init__(self, options: RetentionOptions, services: Services) -> None:
        self._retentions = {
            group: Retention(
                ledger, options.rules, services.metadata, services.reactor, services.now
            )
            for group, ledger in services.ledgers.items()
        }
        self.answers = {IRetention: self}

    def reports(self, group: str) -> Sequence[RetentionReport]:
        """See L{IRetention}."""
        return self._retentions[group].reports()

    @asDeferred
    async def start(self) -> None:
        """See L{RunningFeature}."""
        for each in self._retentions.values():
            await each.start()

    @asDeferred
    async def drain(self) -> None:
        """See L{RunningFeature}."""
        for each in self._retentions.values():
            await each.stop()


FEATURE: Final = Feature(
    name="retention",
    settings=RetentionOptions,
    make=RetentionFeature,
    entries={RETENTION: retentionGroup},
)
