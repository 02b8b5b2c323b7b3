"""
The history of a broker: what was measured in the last day, in two rings of fixed size.

The fine ring has a row for each 5 seconds of the last hour, the coarse one a row for each minute of
the last day: some 70 kB together, in memory and in the file that keeps them through restarts. What
was not measured, as the broker did not run, is told as a gap.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from zlib import crc32

from attrs import frozen

MAGIC: Final = b"svcbroker/history/1\n"
"""The first line of the file. The bytes after it are frozen: a header, the rings, a checksum."""

MAX_POINTS: Final = 360
"""The most values of a series that are told: neighbours are told as one."""

DAY: Final = 86400
"""The seconds that are kept."""

_CHECKSUM: Final = 4
_NAN: Final = float("nan")


class HistoryMalformed(ValueError):
    """The file of a history cannot be used."""


class _Ring:
    """
    Rows of the same number of values, one for each step of time.

    @ivar step: seconds of a row.
    @ivar slot: the number of the latest step since the epoch, which a row ends; 0 for none.
    """

    def __init__(self, step: int, size: int, width: int) -> None:
        self.step, self.size, self.width = step, size, width
        self.slot = 0
        self.values = array("f", [_NAN]) * (size * width)

    def put(self, now: float, row: Sequence[float]) -> None:
        """Keep a row. A second one of the same step, or of a clock set back a little, is not."""
        slot = int(now // self.step)
        if self.slot - self.size < slot <= self.slot:
            return
        if slot < self.slot:
            # The clock was wrong for long: what it has dated cannot be told in its place.
            self.__init__(self.step, self.size, self.width)  # type: ignore[misc]
        for each in range(max(self.slot + 1, slot - self.size + 1), slot):
            self._set(each, [_NAN] * self.width)
        self._set(slot, row)
        self.slot = slot

    def _set(self, slot: int, row: Sequence[float]) -> None:
        place = slot % self.size * self.width
        self.values[place : place + self.width] = array("f", row)

    def row(self, slot: int) -> Sequence[float]:
        """The row of a step; values that are not known are not a number."""
        if not self.slot - self.size < slot <= self.slot:
            return [_NAN] * self.width
        place = slot % self.size * self.width
        return self.values[place : place + self.width]


@frozen(kw_only=True)
class HistoryPart:
    """
    A part of the history.

    @ivar end: the end of the last step, in seconds since the epoch.
    @ivar step: the seconds of a value.
    @ivar series: the values by the name of their series, from the oldest on; C{None} where nothing
        was measured.
    """

    end: float
    step: int
    series: Mapping[str, Sequence[float | None]]


class MeasureHistory:
    """
    The measures of the last day.

    @ivar names: the names of the series, in the order of a row.
    @ivar connected: the functions that count connections: each feature has one.
    """

    def __init__(self, names: Sequence[str], now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self.names = names
        self.connected: list[Callable[[], int]] = []
        self._now = now
        self._rings = (_Ring(5, 720, len(names)), _Ring(60, 1440, len(names)))

    @property
    def steps(self) -> Sequence[int]:
        """The seconds of a row of each ring: the fine one first."""
        return [each.step for each in self._rings]

    def put(self, step: int, values: Mapping[str, float]) -> None:
        """
        Keep what was measured in the step that ends now.

        @param values: by the names of series; one that is missing is not known.
        """
        row = [values.get(name, _NAN) for name in self.names]
        for ring in self._rings:
            if ring.step == step:
                ring.put(self._now(), row)

    def part(self, seconds: int) -> HistoryPart:
        """
        The measures of the last seconds.

        @param seconds: at most L{DAY}.
        """
        fine, coarse = self._rings
        ring = fine if seconds <= fine.step * fine.size else coarse
        joined = max(1, math.ceil(seconds / ring.step / MAX_POINTS))
        # Steps that are told as one keep their bounds as time goes on.
        last = int(self._now() // ring.step) // joined * joined
        count = math.ceil(seconds / ring.step / joined)
        columns: list[list[float | None]] = [[] for _ in self.names]
        for begin in range(last - count * joined, last, joined):
            rows = [ring.row(slot) for slot in range(begin + 1, begin + joined + 1)]
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column.append(_mean(values))
        return HistoryPart(
            end=float(last * ring.step),
            step=ring.step * joined,
            series=dict(zip(self.names, columns, strict=True)),
        )

    def oldest(self, name: str) -> tuple[float, float] | None:
        """The first measure of a series in the last day: its age in seconds, and its value."""
        if name not in self.names:
            return None
        ring, place = self._rings[-1], self.names.index(name)
        for slot in range(ring.slot - ring.size + 1, ring.slot + 1):
            value = ring.row(slot)[place]
            if not math.isnan(value):
                return self._now() - slot * ring.step, value
        return None

    def encode(self) -> bytes:
        """All that is kept, as a file has it."""
        rings = [{"step": r.step, "size": r.size, "slot": r.slot} for r in self._rings]
        header = json.dumps({"series": list(self.names), "rings": rings}).encode("ascii")
        content = MAGIC + header + b"\n" + b"".join(_little(r.values) for r in self._rings)
        return content + crc32(content).to_bytes(_CHECKSUM, "big")

    def decode(self, data: bytes) -> None:
        """
        Take what a file has. Series and rings that are no longer there are left out.

        @raise HistoryMalformed: it is damaged.
        """
        content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if not data.startswith(MAGIC) or crc32(content).to_bytes(_CHECKSUM, "big") != checksum:
            raise HistoryMalformed("it is not what a broker has written")
        header, _, rest = content[len(MAGIC) :].partition(b"\n")
        told = json.loads(header)  # it is as it was written, says the checksum
        places = [told["series"].index(n) if n in told["series"] else None for n in self.names]
        width = len(told["series"])
        for each in told["rings"]:
            length = each["size"] * width * 4
            old = _Ring(each["step"], each["size"], width)
            old.values, old.slot = _read(rest[:length]), each["slot"]
            rest = rest[length:]
            for ring in self._rings:
                if ring.step == old.step and old.slot * old.step <= self._now() + ring.step:
                    for slot in range(max(1, old.slot - old.size + 1), old.slot + 1):
                        row = old.row(slot)
                        ring.put(
                            slot * ring.step,
                            [_NAN if place is None else row[place] for place in places],
                        )


def _mean(values: Sequence[float]) -> float | None:
    known = [each for each in values if not math.isnan(each)]
    return sum(known) / len(known) if known else None


def _little(values: array[float]) -> bytes:
    """The bytes of a ring, those of a number the lowest first."""
    copied = array("f", values)
    if sys.byteorder == "big":
        copied.byteswap()
    return copied.tobytes()


def _read(data: bytes) -> array[float]:
    read = array("f", data)
    if sys.byteorder == "big":
        read.byteswap()
    return read
