"""
HTTP servers without a broker behind them, which give an answer as long as svcbroker's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

from klein import __version__ as kleinVersion

from twisted import __version__ as twistedVersion

from ..building import HERE, buildGo
from ..children import START_SECONDS, Missing, start, stop
from ._broker import Broker, versionOf


def startNode(directory: Path, cores: set[int]) -> Broker:
    """
    Node's http.

    @raise Missing: there is none, or it does not start.
    """
    program = shutil.which("node")
    if program is None:
        raise Missing("not installed: apt-get install nodejs")
    process = start([program, HERE / "foreign" / "hello.js"], directory, cores)
    (port,) = _portsOf(process, directory)
    return Broker(
        name="Node http, hello",
        version=versionOf([program, "--version"]),
        processes=[process],
        ports={"http": port},
    )


def startGo(directory: Path, cores: set[int]) -> Broker:
    """
    Go's net/http.

    @raise Missing: it cannot be built, or does not start.
    """
    program = buildGo(HERE / "foreign" / "gohello", ".")
    process = start([program], directory, cores, {"GOMAXPROCS": str(len(cores))})
    (port,) = _portsOf(process, directory)
    version = (directory / "log").read_text("utf-8").partition("\n")[0].rpartition(" ")[2]
    return Broker(
        name="Go net/http, hello", version=version, processes=[process], ports={"http": port}
    )


def startBare(directory: Path, cores: set[int]) -> Sequence[Broker]:
    """A Klein route and a twisted.web resource, one process: see L{benchmarks.bare}."""
    process = start([sys.executable, "-m", "benchmarks.bare"], directory, cores)
    klein, resource = _portsOf(process, directory)
    return [
        Broker(name=name, version=version, processes=[process], ports={"http": port})
        for name, version, port in (
            ("Klein route, hello", kleinVersion, klein),
            ("twisted.web resource, hello", twistedVersion, resource),
        )
    ]


def _portsOf(process: subprocess.Popen[str], directory: Path) -> Sequence[int]:
    """Wait until it says where it serves."""
    deadline = perf_counter() + START_SECONDS
    while perf_counter() < deadline:
        log = (directory / "log").read_text("utf-8", "replace")
        if found := re.search(r"serves ([\d ]+)\n", log):
            return [int(port) for port in found[1].split()]
        if process.poll() is not None:
            break
        sleep(0.05)
    stop([process])
    raise Missing(f"it does not start: {log[-500:]}")
