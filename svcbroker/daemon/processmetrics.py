"""
Metrics of the process, of its reactor and of the disk.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen
from prometheus_client.core import Metric
from twisted.internet.interfaces import IDelayedCall, IReactorTime

import twisted

from ..histogram import Histogram
from ..net.metrics import counter, gauge, histogram, only
from ..version import VersionRecord

LAG_PERIOD: Final = 0.25
"""The time between two measurements of the reactor's lag, in seconds."""

LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The ranges of the lag, in seconds."""

_DESCRIPTORS: Final = Path("/proc/self/fd")
_MAX_LISTED: Final = 60.0
"""The time for which a count of open files by listing them is used, in seconds."""


class ReactorLag:
    """
    Measures how late the reactor calls a timer: for so long something has held it.

    @ivar lags: the lags, in seconds.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.lags = Histogram(LAG_BOUNDS)
        self._clock = clock
        self._due = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Measure every L{LAG_PERIOD} seconds."""
        self._due = self._clock.seconds() + LAG_PERIOD
        self._call = self._clock.callLater(LAG_PERIOD, self._measure)

    def stop(self) -> None:
        """Measure no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _measure(self) -> None:
        self.lags.observe(self._clock.seconds() - self._due)
        self.start()

    def collect(self) -> Iterable[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        return [
            histogram(
                "svcbroker_reactor_lag_seconds",
                "How late the reactor has called a timer: for so long something has held it.",
                values=[((), self.lags)],
            )
        ]


class ProcessMetrics:
    """
    The operating system's metrics of this process, by the names that all Prometheus clients use.
    """

    def __init__(self, version: VersionRecord, now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._version = version
        self._now = now
        self._startedAt = now() - time.clock_gettime(time.CLOCK_MONOTONIC) + _startOfProcess()
        self._listed = 0
        self._listedAt = -_MAX_LISTED

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        yield gauge(
            "svcbroker_build_info",
            "Which svcbroker this is; always 1.",
            ["version", "commit", "python", "twisted"],
            [
                (
                    (
                        self._version.version,
                        self._version.commitHash,
                        sys.version.partition(" ")[0],
                        twisted.__version__,
                    ),
                    1,
                )
            ],
        )
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield counter(
            "process_cpu_seconds",
            "The user and system CPU time of the process.",
            values=only(usage.ru_utime + usage.ru_stime),
        )
        yield gauge(
            "process_resident_memory_bytes",
            "The memory of the process that is not swapped out.",
            values=only(_residentBytes()),
        )
        yield gauge(
            "process_start_time_seconds",
            "When the process began, since the epoch.",
            values=only(self._startedAt),
        )
        yield gauge(
            "process_open_fds", "The open file descriptors.", values=only(self._openFiles())
        )
        yield gauge(
            "process_max_fds",
            "The most file descriptors that may be open.",
            values=only(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )

    def _openFiles(self) -> int:
        # Linux tells the number since 6.2. Listing 10,000 takes 40 ms.
        size = _DESCRIPTORS.stat().st_size
        if size:
            return size
        now = self._now()
        if not 0 <= now - self._listedAt < _MAX_LISTED:
            self._listed, self._listedAt = len(os.listdir(_DESCRIPTORS)), now
        return self._listed


def _residentBytes() -> int:
    pages = Path("/proc/self/statm").read_bytes().split()[1]
    return int(pages) * resource.getpagesize()


def _startOfProcess() -> float:
    """The start of this process, in seconds after the boot of the machine."""
    _, _, rest = Path("/proc/self/stat").read_bytes().rpartition(b")")
    return float(rest.split()[19]) / os.sysconf("SC_CLK_TCK")


@frozen
class DiskMetrics:
    """
    The room on the disk, and the size of files. What it does blocks.

    @ivar directory: the data directory.
    @ivar files: the files, by the labels C{group} and C{file}.
    """

    directory: Path
    files: Mapping[tuple[str, str], Path]

    def collect(self) -> list[Metric]:
        """The families."""
        disk = os.statvfs(self.directory)
        return [
            gauge(
                "svcbroker_disk_free_bytes",
                "What the file system of the data directory has left for the broker.",
                values=only(disk.f_bavail * disk.f_frsize),
            ),
            gauge(
                "svcbroker_disk_size_bytes",
                "The size of the file system of the data directory.",
                values=only(disk.f_blocks * disk.f_frsize),
            ),
            gauge(
                "svcbroker_file_bytes",
                "The size of a file in the data directory.",
                ["group", "file"],
                list(self._sizes()),
            ),
        ]

    def _sizes(self) -> Iterator[tuple[tuple[str, str], int]]:
        for labels, path in self.files.items():
            try:
                yield labels, path.stat().st_size
            except FileNotFoundError:
                continue
