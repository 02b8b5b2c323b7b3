"""
The history as a feature of the daemon: measures it every five seconds, and keeps it in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from ..archive import STORE_NAME
from ..broker.features import Feature, RunningFeature, Services
from ..files import newFile
from ..histogram import quantile
from ..interfaces import IMeasuredLedger
from ..net.bounds import Bound, Sizing
from ..net.deferreds import asDeferred
from ..net.history import HistoryMalformed
from ..net.settings import NoSettings
from .directory import measureDisk

NAME: Final = ".history"
"""The name of the file in the data directory. No group can have it: ids have no dot in front."""

SERIES: Final = ("events", "refusals", "p50", "p99", "waiting", "connections", "stored", "free")
"""
The series: events and refusals a second; how long publishes took, in seconds; transactions that
wait; connections; bytes of the ledgers' files, and what the disk has left.
"""


@frozen(kw_only=True)
class _Totals:
    """
    The counts since the start.

    @ivar latency: the bounds of the time that publishes took, and how many took no longer.
    """

    at: float
    events: float
    refusals: float
    latency: Sequence[tuple[float, float]]


class HistoryFeature(RunningFeature):
    """
    Measures what becomes the history, and reads and writes its file.
    """

    _log = Logger()

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._services = services
        self._history = services.history
        self._path = services.dataDir / NAME
        self._before: dict[int, tuple[int, _Totals]] = {}
        self._call: IDelayedCall | None = None
        self._measuring: Deferred[Any] | None = None

    def start(self) -> Deferred[Any]:
        """Read the history of before, and begin to measure."""
        try:
            self._history.decode(self._path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, HistoryMalformed) as error:
            self._log.warn("The history begins anew: {error}", error=str(error))
        now, totals = self._services.now(), self._totals()
        self._before = {step: (int(now // step), totals) for step in self._history.steps}
        self._schedule()
        return succeed(None)

    def _schedule(self) -> None:
        step = self._history.steps[0]
        delay = step - self._services.now() % step
        self._call = self._services.reactor.callLater(delay, self._begin)

    def _begin(self) -> None:
        self._call = None
        measuring = self._measuring = self._measure()
        measuring.addErrback(self._failed)
        measuring.addBoth(self._measured)

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("The history was not measured", failure)

    def _measured(self, _: object) -> None:
        self._measuring = None
        self._schedule()

    @asDeferred
    async def _measure(self) -> None:
        services = self._services
        paths = [services.dataDir / group / STORE_NAME for group in services.ledgers]
        room = await services.runInThread(_measureFiles, services.dataDir, paths)
        now, totals = services.now(), self._totals()
        measures = self._measures()
        values = {
            **room,
            "waiting": sum(each.waiting for each in measures),
            "connections": sum(count() for count in self._history.connected),
        }
        for step, (slot, before) in tuple(self._before.items()):
            if slot != int(now // step):
                self._history.put(step, {**values, **_since(before, totals)})
                self._before[step] = (int(now // step), totals)
                isMinute = step == self._history.steps[-1]
                if isMinute:
                    await services.runInThread(_write, self._path, self._history.encode())

    def _measures(self) -> Sequence[Any]:
        ledgers = self._services.ledgers.values()
        return [each.measure() for each in ledgers if IMeasuredLedger.providedBy(each)]

    def _totals(self) -> _Totals:
        services, counts = self._services, dict[tuple[float, ...], list[int]]()
        meter, access = services.broker.meter, services.access
        for each in self._measures():
            if each.latency is not None:
                bounds = each.latency.bounds
                known = counts.get(bounds, [0] * (len(bounds) + 1))
                counts[bounds] = [a + b for a, b in zip(known, each.latency.counts, strict=True)]
        # Ledgers of plugins may count by other bounds: most publishes decide.
        bounds = max(counts, key=lambda each: sum(counts[each]), default=())
        buckets = zip((*bounds, float("inf")), accumulate(counts.get(bounds, ())), strict=False)
        failed = sum(count for (_, outcome), count in access.logins.items() if outcome == "failed")
        return _Totals(
            at=services.reactor.seconds(),
            events=meter.successes.total(),
            refusals=(
                meter.others.total() + access.refusals.total() + access.exceeded.total() + failed
            ),
            latency=tuple(buckets),
        )

    @asDeferred
    async def drain(self) -> None:
        """Write the history, and measure no more."""
        if self._measuring is not None:
            await self._measuring
        if self._call is not None:
            self._call.cancel()
            self._call = None
            try:
                await self._services.runInThread(_write, self._path, self._history.encode())
            except OSError as error:
                self._log.warn("The history was not written: {error}", error=str(error))


def _since(before: _Totals, now: _Totals) -> Mapping[str, float]:
    """The rates between two counts, and how long publishes took; what nobody did is missing."""
    seconds = max(now.at - before.at, 1e-3)
    values = {
        "events": (now.events - before.events) / seconds,
        "refusals": (now.refusals - before.refusals) / seconds,
    }
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = quantile(before.latency, now.latency, share)
        if value is not None:
            values[name] = value
    return values


def _measureFiles(directory: Path, paths: Sequence[Path]) -> Mapping[str, float]:
    """The bytes of ledgers' files, and what the disk has left. This blocks."""
    sizes = [path.stat().st_size for path in paths if path.exists()]
    return {"stored": float(sum(sizes)), "free": float(measureDisk(directory).free)}


def _write(path: Path, data: bytes) -> None:
    """Put a file in the place of the one before. This blocks."""
    made = path.with_name(f"{NAME}.new")
    made.unlink(missing_ok=True)
    with newFile(made) as file:
        file.write(data)
    made.replace(path)


def historyBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of the rings, and of the bytes that are written."""
    yield Bound(name="history", bytes=256 * 1024, how="what was measured in the last day")


FEATURE: Final = Feature(name="history", make=HistoryFeature, bounds=historyBounds)
