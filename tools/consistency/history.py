"""
The history of a round, and what must hold of it.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import Struct


class Result(Enum):
    """
    The outcome of a write.

    @cvar DONE: it was executed.
    @cvar ABSENT: refused, since there is no such open topic.
    @cvar CONFLICT: refused, since the topic has another sequence number than expected.
    @cvar UNKNOWN: nobody has told.
    """

    DONE = "done"
    ABSENT = "absent"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class Operation(Struct, kw_only=True):
    """
    A write of a client.

    @ivar kind: open, close or publish.
    @ivar content: that of the event, which no other publish has but one with the same key.
    @ivar key: the idempotency key; empty for none.
    @ivar expected: the sequence number that the topic was expected to have.
    @ivar call: when it was called, in nanoseconds of a monotonic clock.
    @ivar end: when its outcome was known; C{None} for never.
    @ivar sequence: the number that the event has; of a conflict, the one that the topic has.
    """

    client: int
    topic: str
    kind: str
    call: int
    content: str = ""
    key: str = ""
    expected: int | None = None
    end: int | None = None
    result: Result = Result.UNKNOWN
    sequence: int = 0
    eventId: str = ""


class Logged(Struct, frozen=True):
    """
    An event as a log has it.
    """

    eventId: str
    topic: str
    content: str

    @property
    def sequence(self) -> int:
        """Its number in its topic."""
        return int(self.eventId.split("-")[1])


class Round(Struct, kw_only=True):
    """
    A round.

    @ivar name: the fault.
    @ivar writes: what clients wrote.
    @ivar logs: the log of each node, after all are level again.
    @ivar followed: what each follower got, until the last event.
    @ivar broken: what clients saw that must not be, in words.
    @ivar counts: what else is told.
    """

    name: str
    writes: list[Operation] = msgspec.field(default_factory=list)
    logs: Mapping[str, Sequence[Logged]] = msgspec.field(default_factory=dict)
    followed: dict[str, list[str]] = msgspec.field(default_factory=dict)
    broken: list[str] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)


def findings(round: Round) -> Iterator[str]:
    """Say what must not be, but for what porcupine finds."""
    yield from round.broken
    names = list(round.logs)
    log = round.logs[names[0]]
    ids = [each.eventId for each in log]
    for name in names[1:]:
        if round.logs[name] != log:
            yield f"{names[0]} and {name} have different logs"
    for name, followed in round.followed.items():
        if followed != ids:
            yield f"follower {name} got {_difference(followed, ids)}"
    yield from _unnumbered(log)
    yield from _unacknowledged(round.writes, log)


def _difference(one: Sequence[str], other: Sequence[str]) -> str:
    missing, extra = set(other) - set(one), Counter(one) - Counter(other)
    return (
        f"{len(one)} events of {len(other)}, {len(missing)} missing ({sorted(missing)[:3]}), "
        f"{extra.total()} too many ({sorted(extra)[:3]})"
    )


def _unnumbered(log: Sequence[Logged]) -> Iterator[str]:
    """Say which topics' events are not numbered one after the other."""
    counts: Counter[str] = Counter()
    for each in log:
        counts[each.topic] += 1
        if each.sequence != counts[each.topic]:
            yield f"{each.eventId} of {each.topic} stands where {counts[each.topic]} is due"


def _unacknowledged(writes: Sequence[Operation], log: Sequence[Logged]) -> Iterator[str]:
    """Say what the log lacks, has twice, or has under another id than clients were told."""
    found = {each.eventId: each for each in log}
    times = Counter(each.content for each in log)
    for content, count in times.items():
        if count > 1:
            yield f"the event {content!r} is there {count} times"
    for write in writes:
        if write.kind != "publish":
            continue
        if write.result is Result.DONE:
            logged = found.get(write.eventId)
            if logged is None:
                yield f"{write.eventId} ({write.content}) was acknowledged, and is not there"
            elif (logged.topic, logged.content) != (write.topic, write.content):
                yield f"{write.eventId} was acknowledged as {write.content}, and is another event"
        elif write.result is not Result.UNKNOWN and not write.key and times[write.content]:
            yield f"{write.content} was refused ({write.result.value}), and is there"


def settled(round: Round) -> Iterator[Operation]:
    """
    The writes as the checker takes them. A publish of which nobody has told was executed if the log
    has it, some time after it was called; otherwise it was not, and it is left out.
    """
    (log, *_) = round.logs.values()
    there = {each.content: each for each in log}
    for write in round.writes:
        if write.kind != "publish" or write.result is not Result.UNKNOWN:
            yield write
        elif (logged := there.get(write.content)) is not None:
            yield msgspec.structs.replace(write, result=Result.DONE, sequence=logged.sequence)


def judge(round: Round, checker: Path, file: Path) -> list[str]:
    """
    Say what must not be.

    @param checker: the program of C{linearizable}.
    @param file: where the history is written for it.
    """
    encoder = msgspec.json.Encoder()
    file.write_bytes(b"".join(encoder.encode(each) + b"\n" for each in settled(round)))
    found = list(findings(round))
    with file.open("rb") as lines:
        checked = subprocess.run([checker], stdin=lines, capture_output=True, text=True)
    for line in checked.stdout.splitlines():
        if not line.endswith(": Ok"):
            found.append(f"not linear: {line}; its history is in {file}")
    if checked.returncode not in (0, 1, 3):
        found.append(f"the checker ended with {checked.returncode}: {checked.stderr.strip()}")
    return found
