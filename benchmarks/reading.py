"""
How fast pages of events are read, and whether that slows publishers: C{python -m benchmarks.reading
[ROUNDS]}.

The log has a hundred thousand events of 300 bytes, in blocks of a thousand and of one. One reader
walks through it by C{events} with a limit of 1000, forwards and backwards, by a topic and by a
pattern; then a publisher publishes by REST at a steady pace, alone and while one reader or eight
walk. The readers have the second processor and a low priority, so that what is measured is what the
daemon takes longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from urllib.parse import urlencode

from svcbroker.commands.bench import TIMEOUT, Broken

from .brokers._broker import TOPIC
from .brokers._daemon import startDaemon
from .children import household, separateCores
from .flooding import measure, steady

ROUNDS = 3
BATCHES = 100
BATCH = 1000
READERS = (1, 8)
_SECONDS = 5.0


def fill(port: int) -> None:
    """Publish the events of the log: batches of a thousand, each with ten lone ones behind it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    content = b64encode(b"x" * 300).decode()
    params = {"topic": TOPIC, "content": content}
    for _ in range(BATCHES):
        for count in (BATCH, *[1] * 10):
            calls = [
                {"jsonrpc": "2.0", "id": number, "method": "publish", "params": params}
                for number in range(count)
            ]
            connection.request("POST", "/svcbroker/jsonrpc", json.dumps(calls))
            if connection.getresponse().read().count(b'"SUCCESS"') != count:
                raise Broken("a publish has failed")


def walk(port: int, topic: str, reverse: str) -> None:
    """Walk through the log until this process is ended; print how many events each page had."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    start = {"topic": topic, "limit": 1000, "reverse": reverse}
    parameters = dict(start)
    while True:
        connection.request("GET", f"/svcbroker/rest/events?{urlencode(parameters)}")
        page = json.loads(connection.getresponse().read())
        print(len(page["events"]), flush=True)
        parameters = dict(start) if page["atEnd"] else {**start, "from": page["next"]}


class Walker:
    """A process that walks."""

    def __init__(self, port: int, topic: str, reverse: str = "false") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.reading", "walk", str(port), topic, reverse],
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.nice(19),
        )

    def stop(self) -> int:
        """End it; how many events it has read."""
        self._process.kill()
        output, _ = self._process.communicate()
        return sum(map(int, output.split()))


def readAlone(port: int) -> None:
    """Print how fast one reader reads."""
    for topic in (TOPIC, "#"):
        for reverse in ("false", "true"):
            walker, begin = Walker(port, topic, reverse), perf_counter()
            sleep(_SECONDS)
            elapsed = perf_counter() - begin
            direction = "backwards" if reverse == "true" else "forwards"
            name = f"by {'a pattern' if topic == '#' else 'a topic'}, {direction}"
            print(f"{name:24} {walker.stop() / elapsed:9,.0f} events/s", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the figures."""
    rounds = int(arguments[0]) if arguments else ROUNDS
    serving, loading = separateCores()
    os.sched_setaffinity(0, loading)
    with household(), tempfile.TemporaryDirectory() as name:
        broker = startDaemon(Path(name), serving)
        port, server = broker.ports["http"], broker.daemon
        assert server is not None
        fill(port)
        readAlone(port)
        steady(port, 1)
        ratios: dict[int, list[float]] = {count: [] for count in READERS}
        for _ in range(rounds):
            alone = measure("alone", server)
            for count, found in ratios.items():
                walkers = [Walker(port, (TOPIC, "#")[number % 2]) for number in range(count)]
                begin = perf_counter()
                sleep(1)
                found.append(measure(f"{count} readers", server) / alone)
                elapsed = perf_counter() - begin
                read = sum(walker.stop() for walker in walkers)
                print(f"  they read {read / elapsed:,.0f} events/s", flush=True)
        for count, found in ratios.items():
            print(f"with {count} readers p99 is {median(found):.2f} of what it is alone")
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["walk"]:
        walk(int(sys.argv[2]), *sys.argv[3:])
    else:
        main(sys.argv[1:])
