"""
What a measurement has found.
"""

from __future__ import annotations

from attrs import frozen

from svcbroker.commands.bench import Measured, percentile

WARM_UP = 0.3
"""Seconds of load before each measurement, at most a quarter of it."""

MARKS = """(1) The load program was as busy as it can be: the server may be faster.
(2) Others used more than a tenth of a processor meanwhile: the machine was not quiet."""


@frozen(kw_only=True)
class Found:
    """
    One measurement, or the median of several.

    @ivar events: acknowledged, read or delivered events a second.
    @ivar p50: the median latency in milliseconds; the others in the same way. Of a request, which
        may be a batch; of a delivery, from its publish.
    @ivar cpu: microseconds of processor time for an event, of all the server's processes.
    @ivar clientShare: the share of a processor that the load program used: near 1 it is the load
        that was measured.
    @ivar others: the share of a processor that was used by neither the server nor the load program,
        but by other processes, on the processors of both: the machine was not quiet where it is
        not near 0.
    """

    events: float
    p50: float
    p90: float
    p99: float
    p999: float
    cpu: float
    clientShare: float
    others: float

    @classmethod
    def of(cls, measured: Measured, cpu: float, busy: float) -> Found:
        """
        @param cpu: seconds of processor time that the server used for it.
        @param busy: seconds for which the processors of the server and of the load were busy.
        """
        ordered = sorted(measured.latencies)
        return cls(
            events=measured.events / measured.seconds,
            p50=percentile(ordered, 50) * 1000,
            p90=percentile(ordered, 90) * 1000,
            p99=percentile(ordered, 99) * 1000,
            p999=percentile(ordered, 99.9) * 1000,
            cpu=cpu / measured.events * 1e6,
            clientShare=measured.clientShare,
            others=max(0.0, (busy - cpu) / measured.seconds - measured.clientShare),
        )

    @property
    def isBounded(self) -> bool:
        """Whether it is the load program that was measured, and not the server."""
        return self.clientShare > 0.9

    @property
    def isDisturbed(self) -> bool:
        """Whether others were at work meanwhile."""
        return self.others > 0.1

    @property
    def eventsOfCpu(self) -> float:
        """Events for each second of the server's processor time."""
        return 1e6 / self.cpu if self.cpu else 0.0


def marks(found: Found) -> str:
    """What is to be said of a number."""
    return (" (1)" if found.isBounded else "") + (" (2)" if found.isDisturbed else "")
