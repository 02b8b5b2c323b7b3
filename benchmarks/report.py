"""
From measurements to a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from attrs import asdict, frozen

from .cases import AT_ONCE, DEFAULT, Case
from .load import Measured

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


def percentile(ordered: Sequence[float], share: int) -> float:
    """
    The least value that C{share} per cent of the values do not exceed.

    @param ordered: one value or more, in rising order.
    """
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def middle(rounds: Sequence[Round]) -> Round:
    """The median of each number."""
    each = [asdict(one) for one in rounds]
    return Round(**{name: median(one[name] for one in each) for name in each[0]})


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


def factors(results: Sequence[tuple[Case, Round]]) -> str:
    """How many times as fast the bare Klein route is, as Markdown."""
    rates = {(case.server, case.name, case.connections): one.requests for case, one in results}
    post = {clients: rates[AT_ONCE, "REST publish, POST", clients] for clients in (1, 32, 256)}
    get = rates[AT_ONCE, "REST publish, GET", 32]
    bare = "GET without parameters"
    rows = [
        ("POST, 1 connection", rates[0, "the same POST", 1] / post[1]),
        ("POST, 32 connections", rates[0, "the same POST", 32] / post[32]),
        ("POST, 256 connections", rates[0, "the same POST", 256] / post[256]),
        ("GET, 32 connections", rates[0, "the same GET", 32] / get),
        ("GET against a GET without parameters, 32 connections", rates[0, bare, 32] / get),
        ("the same without an access log", rates[1, bare, 32] / get),
    ]
    return "\n".join(
        [
            "| durable publish at interval=0 against a bare Klein route | factor |",
            "|---|--:|",
            *(f"| {name} | {factor:.2f} |" for name, factor in rows),
        ]
    )


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")
