"""
What is to be reached, in one run on one core, and whether it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from attrs import frozen

from ..found import Found
from ._cases import CASES, Case, Subject, Table
from ._run import Comparison

LATENCY = 0.5
"""Milliseconds."""
TAIL = 3.0
"""How many times the median the 99th percentile of a latency may be."""


@frozen(kw_only=True)
class Verdict:
    """
    A target.

    @ivar name: what is to be reached.
    @ivar measured: what was found, in words.
    @ivar score: how much of the target it is: 1 and above is met; C{None} where something was not
        measured.
    """

    name: str
    measured: str
    score: float | None

    @property
    def outcome(self) -> str:
        """Met or missed, and by how much."""
        if self.score is None:
            return "not measured"
        if self.score >= 1:
            return f"met, {self.score:.2f} of it"
        return f"missed by {1 - self.score:.0%}"


def judge(comparison: Comparison) -> Sequence[Verdict]:
    """All targets."""
    rest = find(Subject.SVCBROKER, Table.MANY, "REST publish, POST")
    redis = find(Subject.REDIS, Table.MANY, "XADD")
    many = "REST at 32 connections, events a CPU second"
    fan = "MQTT, 1 to 100, QoS 1"
    return [
        _times(comparison, f"{many}: half of Redis'", rest, redis, 0.5, _perCpu),
        _times(
            comparison,
            f"{many}: twice RabbitMQ's quorum queue over AMQP",
            rest,
            find(Subject.RABBIT, Table.MANY, "AMQP, confirms"),
            2,
            _perCpu,
        ),
        _times(
            comparison,
            "REST at 32 connections: six times NATS with sync before ack",
            rest,
            find(Subject.NATS, Table.MANY, "PUB"),
            6,
        ),
        _tail(comparison, rest),
        _latency(comparison, find(Subject.SVCBROKER, Table.ONE, "REST publish, POST")),
        _times(
            comparison,
            "JSON-RPC batches of 100: two and a half times Redis at 32 connections",
            _fastest(comparison, "JSON-RPC publish, batches of 100"),
            redis,
            2.5,
        ),
        _times(
            comparison,
            "MQTT QoS 1, 32 connections with 32 under way: 1.2 times mosquitto",
            find(Subject.SVCBROKER, Table.FULL, "MQTT QoS 1"),
            find(Subject.MOSQUITTO, Table.FULL, "MQTT QoS 1"),
            1.2,
        ),
        _times(
            comparison,
            "Fan-out 1 to 100, QoS 1: three times mosquitto",
            find(Subject.SVCBROKER, Table.FAN_OUT, fan),
            find(Subject.MOSQUITTO, Table.FAN_OUT, fan),
            3,
        ),
    ]


def find(who: Subject, table: Table, load: str) -> Case:
    """The row of the table."""
    (case,) = (case for case in CASES if (case.who, case.table, case.load) == (who, table, load))
    return case


def _perSecond(found: Found) -> float:
    return found.events


def _perCpu(found: Found) -> float:
    return found.eventsOfCpu


def _times(
    comparison: Comparison,
    name: str,
    ours: Case,
    theirs: Case,
    factor: float,
    number: Callable[[Found], float] = _perSecond,
) -> Verdict:
    """
    So many times as much as another: the median of the rounds' ratios, each of measurements that
    were made one soon after the other.

    @param number: what is compared.
    """
    pairs = list(zip(*(comparison.rounds.get(case, ()) for case in (ours, theirs)), strict=False))
    if not pairs:
        return Verdict(name=name, measured="-", score=None)
    ratios = sorted(number(one) / number(other) for one, other in pairs)
    ratio = median(ratios)
    # A broker may be faster than a load that was as busy as it can be.
    bound = " (1)" if any(each.isBounded for pair in pairs for each in pair) else ""
    return Verdict(
        name=name,
        measured=f"{ratio:.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f}){bound}",
        score=ratio / factor,
    )


def _fastest(comparison: Comparison, load: str) -> Case:
    """Of several rows with the same load, the one with the most events a second."""
    return max(
        (case for case in CASES if case.who is Subject.SVCBROKER and case.load == load),
        key=lambda case: found.events if (found := comparison.median(case)) else 0.0,
    )


def _latency(comparison: Comparison, case: Case) -> Verdict:
    name = "Median latency at 1 connection: under 0.5 ms"
    found = comparison.median(case)
    if found is None:
        return Verdict(name=name, measured="-", score=None)
    return Verdict(name=name, measured=f"{found.p50:.2f} ms", score=LATENCY / found.p50)


def _tail(comparison: Comparison, case: Case) -> Verdict:
    name = "REST at 32 connections, p99: under three times the median"
    rounds = comparison.rounds.get(case)
    if not rounds:
        return Verdict(name=name, measured="-", score=None)
    ratio = median(each.p99 / each.p50 for each in rounds)
    return Verdict(name=name, measured=f"{ratio:.2f} times", score=TAIL / ratio)
