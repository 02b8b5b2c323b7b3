"""
Whether an account that floods slows others: C{python -m benchmarks.flooding [ROUNDS]}.

An account publishes by REST at a steady pace, alone and while another account publishes as fast
as it can, over 32 connections of REST, one of MQTT 5, one of MQTT 3.1.1 and one of STOMP, far above
its limit. The flood has the second processor and a low priority, so that what is measured is what
the daemon takes longer. Both are measured in turns, since others may use the machine.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from attrs import define, field

from svcbroker.commands.bench import MQTT_5, MQTT_311, TIMEOUT, Broken, connectPacket, packet, text

from .children import freePorts, household, separateCores, start
from .servers import TWISTD, Server, awaitLine

ROUNDS = 5
SECONDS = 4.0
PACE = 0.01
"""Seconds from one publish to the next."""
LIMIT = 200
"""How many events a second the flood may publish."""
REST_CONNECTIONS = 32
WINDOW = 32
"""How many publishes of MQTT and STOMP are under way on a connection."""
TOKENS = {"steady": b"svct_steady", "flood": b"svct_flood"}
CONTENT = b"x" * 300


def accountsFile() -> str:
    """The accounts, as a file has them."""
    return "".join(
        f'[accounts.{name}]\nroles = ["publisher"]\n'
        f'tokens = [{{ label = "x", sha256 = "{sha256(token).hexdigest()}" }}]\n'
        + (f"limits = {{ publishes = {LIMIT} }}\n" if name == "flood" else "")
        for name, token in TOKENS.items()
    )


def request(call: str, body: bytes, account: str) -> bytes:
    """A call of REST by POST."""
    return (
        f"POST /svcbroker/rest/{call} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        + b"Authorization: Bearer %b\r\n" % TOKENS[account]
        + b"Content-Type: application/x-www-form-urlencoded\r\n"
        + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


PUBLISH = b"topic=bench&content=" + CONTENT


@define(eq=False)
class Flooder:
    """
    A connection that always has publishes under way.

    @ivar hello: what it begins with.
    @ivar one: a publish.
    @ivar window: how many are under way.
    @ivar answer: what is in each answer, once; and in the answer to C{hello}, where there is one.
    @ivar success: what is in the answer to each publish that was accepted.
    """

    name: str
    port: int
    one: bytes
    answer: re.Pattern[bytes]
    success: bytes
    hello: bytes = b""
    window: int = 1
    socket: socket.socket = field(init=False)
    unsent: bytes = b""

    def open(self, selector: selectors.BaseSelector) -> None:
        """Connect, and begin."""
        self.socket = socket.create_connection(("127.0.0.1", self.port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        selector.register(self.socket, selectors.EVENT_READ, self)
        self.socket.send(self.hello + self.one * self.window)

    def read(self, selector: selectors.BaseSelector, counts: Counter[str]) -> None:
        """Read answers, and publish as many more."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            # STOMP closes a connection that is over its limit.
            counts[f"{self.name} closed"] += 1
            selector.unregister(self.socket)
            self.socket.close()
            self.open(selector)
            return
        answers = len(self.answer.findall(data))
        accepted = data.count(self.success)
        counts[f"{self.name} accepted"] += accepted
        counts[f"{self.name} refused"] += max(0, answers - accepted)
        with suppress(BlockingIOError):
            self.socket.send(self.one * answers)


def flood(http: int, mqtt: int, stomp: int) -> None:
    """Flood until this process is ended; say each second how that goes."""
    token = TOKENS["flood"]
    publish5 = packet(0x32, text("bench"), b"\0\1", b"\0", CONTENT)
    publish311 = packet(0x32, text("bench"), b"\0\1", CONTENT)
    login = ("flood", token.decode("ascii"))
    hello = {version: connectPacket("", version, login) for version in (MQTT_5, MQTT_311)}
    send = b"SEND\ndestination:bench\nreceipt:1\ncontent-length:300\n\n%b\0" % CONTENT
    flooders = [
        Flooder(
            "REST", http, request("publish", PUBLISH, "flood"), re.compile(b"HTTP/1.1"), b"SUCC"
        )
        for _ in range(REST_CONNECTIONS)
    ]
    flooders += [
        Flooder(
            *("MQTT 5", mqtt, publish5, re.compile(b"\x40[^\0]\0\1", re.DOTALL), b"\x40\2\0\1"),
            hello=hello[MQTT_5],
            window=WINDOW,
        ),
        Flooder(
            *("MQTT 3.1.1", mqtt, publish311, re.compile(b"\x40\2\0\1"), b"\x40\2\0\1"),
            hello=hello[MQTT_311],
            window=WINDOW,
        ),
        Flooder(
            *("STOMP", stomp, send, re.compile(b"RECEIPT|ERROR"), b"RECEIPT"),
            hello=b"CONNECT\naccept-version:1.2\nhost:/\nlogin:flood\npasscode:%b\n\n\0" % token,
            window=WINDOW,
        ),
    ]
    selector = selectors.DefaultSelector()
    for each in flooders:
        each.open(selector)
    counts: Counter[str] = Counter()
    begin = perf_counter()
    while True:
        for key, _ in selector.select(0.1):
            key.data.read(selector, counts)
        if perf_counter() - begin >= 1:
            begin = perf_counter()
            print(
                ", ".join(f"{name} {count}" for name, count in sorted(counts.items())), flush=True
            )
            counts.clear()


def steady(port: int, seconds: float) -> list[float]:
    """Publish at a steady pace; the time that each publish took, in milliseconds."""
    one = request("publish", PUBLISH, "steady")
    times = []
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = perf_counter()
        end = due + seconds
        while due < end:
            due += PACE
            sleep(max(0.0, due - perf_counter()))
            begin = perf_counter()
            opened.sendall(one)
            answer = opened.recv(1 << 16)
            times.append(1000 * (perf_counter() - begin))
            if b'"SUCCESS"' not in answer:
                raise Broken(f"a publish has failed: {answer!r}")
    return sorted(times)


def _line(name: str, times: Sequence[float], busy: float) -> str:
    def at(share: float) -> float:
        return times[min(len(times) - 1, int(len(times) * share))]

    return (
        f"{name:12} p50 {at(0.5):6.2f} ms, p99 {at(0.99):6.2f} ms, at most {times[-1]:6.2f} ms; "
        f"the daemon is busy {busy:4.0%}"
    )


def measure(name: str, server: Server) -> float:
    """Print how long publishes take; their 99th percentile in milliseconds."""
    before, begin = server.cpu(), perf_counter()
    times = steady(server.ports[0], SECONDS)
    print(_line(name, times, (server.cpu() - before) / (perf_counter() - begin)), flush=True)
    return times[int(len(times) * 0.99)]


def main() -> None:
    """Measure, and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    serving, loading = separateCores()
    os.sched_setaffinity(0, loading)
    with household(), tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "accounts.toml").write_text(accountsFile())
        ports = freePorts(3)
        command = [sys.executable, "-c", TWISTD, "-n", "--pidfile=", "svcbroker"]
        for option, port in zip(("--http", "--mqtt", "--stomp"), ports, strict=True):
            command += [option, str(port)]
        command += ["--accounts", "../accounts.toml"]
        process = start(command, directory / "daemon", serving)
        awaitLine(process, directory / "daemon" / "log", "serves ")
        server = Server(process, ports)
        with socket.create_connection(("127.0.0.1", ports[0]), TIMEOUT) as opened:
            opened.sendall(request("open", b"topic=bench", "steady"))
            opened.recv(1 << 16)
        steady(ports[0], 1)
        flooding = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.flooding", "flood", *map(str, ports)],
            preexec_fn=lambda: os.nice(19),
        )
        ratios = []
        try:
            for _ in range(rounds):
                sleep(1)
                flooded = measure("flooded", server)
                flooding.send_signal(signal.SIGSTOP)
                sleep(1)
                ratios.append(flooded / measure("alone", server))
                flooding.send_signal(signal.SIGCONT)
        finally:
            flooding.kill()
            flooding.wait()
        print(f"p99 is {median(ratios):.2f} of what it is alone, the median of the rounds")
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["flood"]:
        flood(*map(int, sys.argv[2:]))
    else:
        main()
