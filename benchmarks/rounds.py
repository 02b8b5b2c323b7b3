"""
From measurements to a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from attrs import frozen

from .cases import AT_ONCE, DEFAULT, Case
from .load import Measured
from .report import percentile

SERVERS: Mapping[str | int, str] = {
    DEFAULT: "svcbroker, default settings",
    AT_ONCE: "svcbroker, interval=0",
    0: "bare Klein route",
    1: "bare Klein route, no access log",
    2: "bare twisted.web resource",
}


@frozen(kw_only=True)
class Round:
    """
    One measurement of a case.

    @ivar requests: requests a second.
    @ivar events: events a second.
    @ivar p50: the median latency in milliseconds; C{p90}, C{p99} in the same way.
    @ivar cpu: microseconds of the server's processor time for a request.
    @ivar clientShare: see L{Measured.clientShare}.
    """

    requests: float
    events: float
    p50: float
    p90: float
    p99: float
    cpu: float
    clientShare: float

    @classmethod
    def of(cls, measured: Measured, cpu: float) -> Round:
        """
        @param cpu: seconds of processor time that the server used for it.
        """
        latencies = sorted(measured.latencies)
        count = len(latencies)
        return cls(
            requests=count / measured.seconds,
            events=measured.events / measured.seconds,
            p50=percentile(latencies, 50) * 1000,
            p90=percentile(latencies, 90) * 1000,
            p99=percentile(latencies, 99) * 1000,
            cpu=cpu / count * 1e6,
            clientShare=measured.clientShare,
        )


def table(results: Sequence[tuple[Case, Round]]) -> str:
    """The table, as Markdown."""
    lines = [
        "| server | load | connections | requests/s | events/s | p50 ms | p90 ms | p99 ms "
        "| CPU µs a request |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for case, one in results:
        mark = " (1)" if one.clientShare > 0.9 else ""
        lines.append(
            f"| {SERVERS[case.server]} | {case.name} | {case.connections} "
            f"| {_number(one.requests)}{mark} | {_number(one.events)} "
            f"| {one.p50:.2f} | {one.p90:.2f} | {one.p99:.2f} | {one.cpu:.0f} |"
        )
    if any(one.clientShare > 0.9 for _, one in results):
        lines += ["", "(1) The load program was as busy as it can be: the server may be faster."]
    return "\n".join(lines)


def factors(results: Sequence[tuple[Case, Sequence[Round]]]) -> str:
    """
    How many times as fast the bare Klein route is, as Markdown: the median of the rounds'
    factors, each of measurements that were made one soon after the other.

    @param results: each case with all its rounds.
    """
    rounds = {(case.server, case.name, case.connections): each for case, each in results}
    post, get, bare = "REST publish, POST", "REST publish, GET", "GET without parameters"
    rows = [
        ("POST, 32 connections", 0, "the same POST", post, 32),
        ("POST, 256 connections", 0, "the same POST", post, 256),
        ("GET, 32 connections", 0, "the same GET", get, 32),
        ("GET against a GET without parameters, 32 connections", 0, bare, get, 32),
        ("the same without an access log", 1, bare, get, 32),
    ]
    lines = [
        "| durable publish at interval=0 against a bare Klein route | requests/s | CPU |",
        "|---|--:|--:|",
    ]
    for title, port, asked, published, clients in rows:
        pairs = list(
            zip(
                rounds[port, asked, clients],
                rounds[AT_ONCE, published, clients],
                strict=True,
            )
        )
        speed = median(klein.requests / broker.requests for klein, broker in pairs)
        cpu = median(broker.cpu / klein.cpu for klein, broker in pairs)
        lines.append(f"| {title} | {speed:.2f} | {cpu:.2f} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")
