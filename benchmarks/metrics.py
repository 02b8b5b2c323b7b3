"""
What it costs to scrape the metrics of a daemon with many durable subscriptions every second.

Half of the clients are connected, the others are away, and events wait for them. Run it with
C{python -m benchmarks.metrics}.
"""

from __future__ import annotations

import argparse
import re
import socket
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from uuid import UUID

from .children import cpuOf, separateCores
from .servers import Server, startDaemon

TOPICS = 1000
EACH = 100
"""How many subscriptions a connection has; every tenth has a pattern."""

_LAG = re.compile(r'svcbroker_reactor_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')


def frame(command: str, **headers: str) -> bytes:
    """A STOMP frame without a body."""
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
    return ("\n".join(lines) + "\n\n\0").encode()


def subscribe(port: int, first: int, count: int) -> socket.socket:
    """A connection with some durable subscriptions."""
    frames = [frame("CONNECT", accept_version="1.2", host="x", heart_beat="0,0")]
    for number in range(first, first + count):
        topic = f"t/{number % TOPICS}" + ("/#" if number % 10 == 0 else "")
        frames.append(
            f"SUBSCRIBE\nid:{number}\ndestination:{topic}\nack:client\nreceipt:{number}\n"
            f"svc-subscriptionId:{UUID(int=number + 1)}\n\n\0".encode()
        )
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"".join(frames))
    receipts, data = 0, b""
    while receipts < count:
        data = data[-20:] + client.recv(65536)
        if b"ERROR\n" in data:
            raise SystemExit(data.decode())
        receipts += data.count(b"receipt-id:", 20 if receipts else 0)
    return client


def scrape(connection: HTTPConnection) -> tuple[float, str]:
    """How long a scrape takes, in seconds, and what it gives."""
    began = time.perf_counter()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return time.perf_counter() - began, text


def measure(daemon: Server, seconds: int, *, isScraped: bool) -> tuple[float, list[float], str]:
    """
    Wait, and scrape each second or not.

    @return: the share of a core that the daemon used, how long the scrapes took, and the last one.
    """
    connection = HTTPConnection("127.0.0.1", daemon.ports[0], timeout=60)
    times, text = [], ""
    used, began = cpuOf(daemon.process.pid), time.monotonic()
    for number in range(1, seconds + 1):
        if isScraped:
            took, text = scrape(connection)
            times.append(took)
        time.sleep(max(0.0, began + number - time.monotonic()))
    share = (cpuOf(daemon.process.pid) - used) / (time.monotonic() - began)
    connection.close()
    return share, times, text


def timers(daemon: Server) -> dict[float, float]:
    """How many timers were no later than each bound of the reactor's lag."""
    _, text = scrape(HTTPConnection("127.0.0.1", daemon.ports[0], timeout=60))
    return {float(bound): float(count) for bound, count in _LAG.findall(text)}


def worst(before: dict[float, float], after: dict[float, float]) -> float:
    """The longest lag between two looks at the timers, in seconds."""
    late = {bound: count - before[bound] for bound, count in after.items()}
    return next(bound for bound, count in late.items() if count == late[float("inf")])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics", description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30, help="how long each half is measured")
    options = parser.parse_args()
    cores, _ = separateCores()
    with TemporaryDirectory(prefix="svcbroker-metrics-") as home, ExitStack() as stack:
        directory = Path(home)
        daemon = startDaemon(
            directory,
            cores,
            options=("--stomp", "tcp:0:interface=127.0.0.1", "--max-positions", "100000"),
        )
        stack.callback(daemon.stop)
        log = (directory / "log").read_text()
        stomp = int(re.search(r"STOMP on \S+:(\d+)", log)[1])  # type: ignore[index]
        for number in range(TOPICS):
            daemon.call("/rest/open", topic=f"t/{number}")
        clients = [subscribe(stomp, first, EACH) for first in range(0, options.subscriptions, EACH)]
        for client in clients[::2]:
            client.close()
        for client in clients[1::2]:
            stack.callback(client.close)
        for number in range(TOPICS):
            daemon.call("/rest/publish", topic=f"t/{number}", content="x")
        time.sleep(3)
        began = timers(daemon)
        idle, _, _ = measure(daemon, options.seconds, isScraped=False)
        between = timers(daemon)
        scraped, times, text = measure(daemon, options.seconds, isScraped=True)
        ended = timers(daemon)
        print(f"{options.subscriptions} durable subscriptions, {options.seconds} seconds each way")
        print(f"share of a core without scrapes: {idle:.2%}")
        print(f"share of a core with a scrape a second: {scraped:.2%} (+{scraped - idle:.2%})")
        print(f"a scrape: median {median(times) * 1000:.1f} ms, longest {max(times) * 1000:.1f} ms")
        print(f"its size: {len(text)} bytes, {text.count(chr(10))} lines")
        for what, lag in (("without", worst(began, between)), ("with", worst(between, ended))):
            print(f"the reactor was at most {lag * 1000:g} ms late {what} scrapes")
        print(*re.findall(r"^svcbroker_(?:backlog|subscriptions).*", text, re.MULTILINE), sep="\n")


if __name__ == "__main__":
    main()
