"""
Alarms: faults of a running broker, with the time since when, and the remedy.

A feature declares the conditions that it can find, and tells which of them hold when it is asked.
The one list of all of them answers the console, C{/readyz}, C{doctor}, metrics and commands, and
the alert rules are written from it: they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel

from .deferreds import asDeferred
from .findings import Level

LOOK_EVERY: Final = 5.0
"""The time between two looks at all sources, in seconds."""

TIMEOUT: Final = 2.0
"""The time that a source may take, in seconds. After it, what it has told last still holds."""

FRESH: Final = 1.0
"""Seconds for which a look is good: hundred consoles that ask cost one look a second."""

MAX_TEXT: Final = 1000
"""The longest text of an alarm, in letters."""


@frozen(kw_only=True)
class Condition:
    """
    Something that can be wrong. Its texts are the same wherever it is told.

    @ivar name: its name, in metrics, in calls and in files of incidents.
    @ivar level: whether it does not work (C{PROBLEM}), or may not for long (C{WARNING}).
    @ivar title: what is wrong, in some words.
    @ivar meaning: what follows from it, in a sentence.
    @ivar remedy: what to do.
    @ivar page: the page of the console that shows more.
    @ivar phrases: the sentences that tell what was found, with names of values in braces. The
        console knows them by their English in its other languages.
    """

    name: str
    level: Level
    title: str
    meaning: str
    remedy: str
    page: str = "overview"
    phrases: Sequence[str] = ()


@frozen(kw_only=True)
class Alarm:
    """
    A condition that holds.

    @ivar text: what exactly was found, in at most L{MAX_TEXT} letters once it is listed.
    @ivar group: the group that has it; empty where it concerns the whole broker.
    @ivar since: when it was found first, in seconds since the epoch.
    """

    condition: Condition
    text: str
    group: str = ""
    since: float = 0.0


@frozen(kw_only=True)
class Incident:
    """
    A file with what came before an alarm.

    @ivar file: its path in the data directory.
    @ivar name: the name of the alarm; so C{level}, C{title}, C{group} and C{text} are its own.
    @ivar at: when it began, in seconds since the epoch.
    """

    file: str
    name: str
    level: str
    title: str
    group: str
    at: float
    text: str


Source: TypeAlias = Callable[[], Iterable[Alarm] | Deferred[Iterable[Alarm]]]
"""
Gives the alarms of now. Called every L{LOOK_EVERY} seconds in the reactor thread: it answers from
memory, or later by a Deferred, within L{TIMEOUT}.
"""


class Alarms:
    """
    The alarms of a broker: asks all sources from time to time, and remembers since when.

    @ivar conditions: all conditions that there are, in the order in which they are told.
    @ivar raised: the alarms of the last look, in that order.
    @ivar onRaise: called with each alarm that was not there before.
    @ivar incidents: the files that are kept of alarms, the newest first.
    @ivar auditedAt: tells when the last audit of a group ended, in seconds since the epoch; C{None}
        where none has.
    """

    _log = Logger()

    def __init__(
        self, conditions: Sequence[Condition], clock: IReactorTime, now: Callable[[], float]
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self.conditions = conditions
        self.raised: Sequence[Alarm] = ()
        self.onRaise: Callable[[Alarm], object] = id
        self.incidents: Sequence[Incident] = ()
        self.auditedAt: Callable[[str], float | None] = lambda group: None
        self._clock = clock
        self._now = now
        self._sources: dict[str, Source] = {}
        self._told: dict[str, Sequence[Alarm]] = {}
        self._failed: set[str] = set()
        self._call: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None
        self._lookedAt = float("-inf")
        self._isStopped = False

    def add(self, name: str, source: Source) -> None:
        """
        Have a source asked at each look.

        @param name: its name, in the log.
        """
        self._sources[name] = source
        self._told.setdefault(name, ())

    def start(self) -> None:
        """Look from time to time, for the first time when all features have begun to work."""
        self._call = self._clock.callLater(LOOK_EVERY, self.look)

    def stop(self) -> None:
        """Look no more."""
        self._isStopped = True
        if self._call is not None and self._call.active():
            self._call.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def look(self) -> Deferred[Sequence[Alarm]]:
        """
        Ask all sources. Calls within L{FRESH} seconds share the answer.

        @return: fires with L{raised}. Does not fail.
        """
        answer: Deferred[Sequence[Alarm]] = Deferred()
        # The reactor's clock may be set back.
        isFresh = 0 <= self._clock.seconds() - self._lookedAt < FRESH
        if self._looking is None and not isFresh and not self._isStopped:
            if self._call is not None and self._call.active():
                self._call.cancel()
            looking = self._looking = self._look()
            looking.addBoth(self._looked)
        if self._looking is None:
            answer.callback(self.raised)
        else:
            self._looking.addCallback(lambda _: answer.callback(self.raised))
        return answer

    def _looked(self, _: object) -> None:
        self._looking = None
        self._lookedAt = self._clock.seconds()
        if not self._isStopped:
            self._call = self._clock.callLater(LOOK_EVERY, self.look)

    @asDeferred
    async def _look(self) -> None:
        for name, source in self._sources.items():
            asked: Deferred[Any] = maybeDeferred(source).addTimeout(TIMEOUT, self._clock)
            try:
                self._told[name] = _merge(await asked)
                self._failed.discard(name)
            except CancelledError:
                return
            except Exception as error:
                if name in self._failed:
                    continue
                self._failed.add(name)
                text = "The alarms of {source} were not told"
                if isinstance(error, TimeoutError):
                    # A busy machine, and no fault of the program.
                    self._log.warn(f"{text} within {TIMEOUT:g} seconds", source=name)
                else:
                    self._log.failure(text, source=name)
        self._take(_merge(alarm for told in self._told.values() for alarm in told))

    def _take(self, alarms: Iterable[Alarm]) -> None:
        """Store the answers of the sources, and log alarms that have begun or ended."""
        found = {(each.condition.name, each.group): each for each in alarms}
        known = {(each.condition.name, each.group): each for each in self.raised}
        now = self._now()
        ranks = {each.name: rank for rank, each in enumerate(self.conditions)}
        self.raised = sorted(
            (
                evolve(each, since=known[key].since if key in known else now)
                for key, each in found.items()
            ),
            key=lambda each: (ranks[each.condition.name], each.group),
        )
        for alarm in self.raised:
            if (alarm.condition.name, alarm.group) not in known:
                self._tell(alarm)
                self.onRaise(alarm)
        for key, alarm in known.items():
            if key not in found:
                self._log.info(
                    "Alarm over: {alarm}{place}", alarm=alarm.condition.name, place=_place(alarm)
                )

    def _tell(self, alarm: Alarm) -> None:
        isProblem = alarm.condition.level is Level.PROBLEM
        self._log.emit(
            LogLevel.error if isProblem else LogLevel.warn,
            "Alarm {alarm}{place}: {text}",
            alarm=alarm.condition.name,
            place=_place(alarm),
            text=alarm.text,
        )


def _merge(alarms: Iterable[Alarm]) -> Sequence[Alarm]:
    """
    Make one alarm of those of one condition and group, with their texts one after the other.

    So what is kept of a source does not grow with what clients have, such as failing webhooks.
    """
    found: dict[tuple[str, str], Alarm] = {}
    for alarm in alarms:
        key = alarm.condition.name, alarm.group
        before = found.get(key)
        if before is None:
            found[key] = evolve(alarm, text=alarm.text[:MAX_TEXT])
        elif len(before.text) < MAX_TEXT:
            found[key] = evolve(before, text=f"{before.text}; {alarm.text}"[:MAX_TEXT])
    return [*found.values()]


def _place(alarm: Alarm) -> str:
    return f" of group {alarm.group}" if alarm.group else ""


class RecentCount:
    """
    The growth of a counter in the last minutes. It began at 0 when this was made.
    """

    def __init__(self, clock: IReactorTime, period: float) -> None:
        """
        @param period: over so many seconds.
        """
        self._clock = clock
        self._period = period
        self._counts: list[tuple[float, float]] = [(clock.seconds(), 0.0)]

    def grown(self, count: float) -> float:
        """
        Tell by how much the counter has grown.

        @param count: what it says now.
        """
        now = self._clock.seconds()
        counts = self._counts
        while len(counts) > 1 and counts[1][0] <= now - self._period:
            del counts[0]
        # The latest is always there: after it the clock may jump, as where the machine sleeps.
        if len(counts) > 1 and now - counts[-2][0] < LOOK_EVERY / 2:
            del counts[-1]
        counts.append((now, count))
        return count - counts[0][1]
