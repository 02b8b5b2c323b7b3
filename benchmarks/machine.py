"""
Where the numbers come from.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter

_SYNCS = 200


def machine(directory: Path) -> Mapping[str, object]:
    """
    What may matter.

    @param directory: on the disk that is used.
    """
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": f"{os.cpu_count()} ({model[1] if model else platform.machine()})",
        "load": round(os.getloadavg()[0], 2),
        "fdatasync of 300 bytes, µs": round(syncTime(directory) * 1e6),
    }


def syncTime(directory: Path) -> float:
    """Seconds that the disk takes to keep 300 bytes more: below that no durable publish can go."""
    path = directory / "sync"
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    times = []
    try:
        for _ in range(_SYNCS):
            began = perf_counter()
            os.write(opened, b"x" * 300)
            os.fdatasync(opened)
            times.append(perf_counter() - began)
    finally:
        os.close(opened)
        path.unlink()
    return median(times)
