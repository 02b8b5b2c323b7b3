"""
What is to be reached, in one run on one core, and whether it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from attrs import frozen

from ._cases import CASES, Case, Subject, Table
from ._run import Comparison

JSON_RPC_BATCHES = 150_000.0
"""Events a second in batches of 100; on a slower machine, twice Redis."""
LATENCY = 1.0
"""Milliseconds."""


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
    batches = [
        case
        for case in CASES
        if case.who is Subject.SVCBROKER and case.load == "JSON-RPC publish, batches of 100"
    ]
    fan = "MQTT, 1 to 100, QoS 1"
    return [
        _times(
            comparison,
            "REST at 32 connections: twice RabbitMQ's quorum queue over AMQP",
            rest,
            find(Subject.RABBIT, Table.MANY, "AMQP, confirms"),
            2,
        ),
        _times(
            comparison,
            "REST at 32 connections: six times NATS with sync before ack",
            rest,
            find(Subject.NATS, Table.MANY, "PUB"),
            6,
        ),
        _times(comparison, "REST at 32 connections, aim: Redis", rest, redis, 1),
        _batches(comparison, batches, redis),
        _latency(comparison, find(Subject.SVCBROKER, Table.ONE, "REST publish, POST")),
        _times(
            comparison,
            "MQTT QoS 1, 32 connections with 32 under way: ahead of mosquitto",
            find(Subject.SVCBROKER, Table.FULL, "MQTT QoS 1"),
            find(Subject.MOSQUITTO, Table.FULL, "MQTT QoS 1"),
            1,
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


def _times(comparison: Comparison, name: str, ours: Case, theirs: Case, factor: float) -> Verdict:
    """
    So many times as much as another: the median of the rounds' ratios, each of measurements that
    were made one soon after the other.
    """
    pairs = list(zip(*(comparison.rounds.get(case, ()) for case in (ours, theirs)), strict=False))
    if not pairs:
        return Verdict(name=name, measured="-", score=None)
    ratios = sorted(one.events / other.events for one, other in pairs)
    ratio = median(ratios)
    # A broker may be faster than a load that was as busy as it can be.
    bound = " (1)" if any(each.isBounded for pair in pairs for each in pair) else ""
    return Verdict(
        name=name,
        measured=f"{ratio:.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f}){bound}",
        score=ratio / factor,
    )


def _batches(comparison: Comparison, ours: Sequence[Case], redis: Case) -> Verdict:
    name = (
        f"JSON-RPC batches of 100: {JSON_RPC_BATCHES:,.0f} events/s, or twice Redis at "
        "32 connections"
    ).replace(",", " ", 1)
    found = [each for case in ours if (each := comparison.median(case))]
    if not found:
        return Verdict(name=name, measured="-", score=None)
    best = max(found, key=lambda each: each.events)
    score = best.events / JSON_RPC_BATCHES
    measured = f"{best.events:,.0f} events/s".replace(",", " ")
    if other := comparison.median(redis):
        times = best.events / other.events
        measured += f", {times:.2f} times Redis"
        score = max(score, times / 2)
    return Verdict(name=name, measured=measured, score=score)


def _latency(comparison: Comparison, case: Case) -> Verdict:
    name = "Median latency at 1 connection: under 1 ms"
    found = comparison.median(case)
    if found is None:
        return Verdict(name=name, measured="-", score=None)
    return Verdict(name=name, measured=f"{found.p50:.2f} ms", score=LATENCY / found.p50)
