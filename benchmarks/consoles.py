"""
What open consoles cost publishers: C{python -m benchmarks.consoles [ROUNDS] [PAGE]}.

A daemon with accounts is loaded by REST over 32 connections, in turns while 100 consoles ask and
while they do not: log-ins of the console, whose requests are those of a page, at its pace. What is
compared is the processor time of an event, and the medians of the rounds' ratios are shown; a
second turn without requests tells how far equal ones differ. The share of a processor that the
consoles take of an idle daemon hardly depends on what else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from random import random
from statistics import median
from time import perf_counter, sleep

from svcbroker.access import hashPassword
from svcbroker.commands.bench import Shape, drive

from .accounts import BODY, CREDENTIALS, accountsFile, countOne, request
from .children import household, separateCores
from .servers import Server, startDaemon

ROUNDS = 60
SECONDS = 0.5
CONNECTIONS = 32
CONSOLES = 100
ACCOUNTS = 10
PASSWORD = "a password"
SETTLE_SECONDS = 0.25
IDLE_SECONDS = 20.0

GENERAL = "/admin/group/general?groupId=1"
NODES = "/admin/node/nodeList?groupId=1&pageSize=99"
LIVE = "/admin/listSubscription?groupId=1"
PAGES: Mapping[str, Sequence[tuple[float, str]]] = {
    "overview": (
        (4, GENERAL),
        (20, NODES),
        (20, "/admin/group/measures?groupId=1"),
        (20, "/rest/list?groupId=1&pageSize=1"),
        (20, LIVE),
        (20, "/rest/listWebhooks?groupId=1&limit=1000"),
    ),
    "blocks": ((5, "/admin/block/blockList?groupId=1&pageNumber=1&pageSize=25"),),
    "replicas": ((5, NODES), (5, "/admin/block/blockList?groupId=1&pageSize=1")),
    "subscriptions": (
        (10, GENERAL),
        (10, "/rest/listWebhooks?groupId=1&limit=1000"),
        (10, "/rest/listDurableSubscriptions?groupId=1&interfaceType=STOMP&limit=1000"),
        (10, "/rest/listDurableSubscriptions?groupId=1&interfaceType=MQTT&limit=1000"),
        (10, LIVE),
    ),
    "accounts": ((10, "/rest/listAccounts?groupId=1&limit=1000"),),
    "checkpoints": ((10, "/rest/genesis?groupId=1"), (10, "/rest/checkpoint?groupId=1")),
}
"""The requests that a page repeats, and every how many seconds."""


def operators() -> str:
    """The accounts of the consoles, as a file of accounts has them."""
    hash = hashPassword(PASSWORD.encode())
    return "".join(
        f'[accounts.ops{number}]\npassword = "{hash}"\nroles = ["everything"]\n'
        for number in range(ACCOUNTS)
    )


def logIn(port: int, number: int) -> str:
    """Begin a session as the console does; its cookie."""
    connection = HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{port}"}
    form = json.dumps({"name": f"ops{number % ACCOUNTS}", "password": PASSWORD})
    connection.request("POST", "/svcbroker/console/session", form, headers)
    answer = connection.getresponse()
    cookie = answer.headers["Set-Cookie"]
    connection.close()
    return str(cookie).partition(";")[0]


async def ask(port: int, cookie: str, every: float, path: str) -> None:
    """Repeat a request on a connection of its own, from any moment on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"GET /svcbroker{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n"
        f"Sec-Fetch-Site: same-origin\r\nAccept-Encoding: gzip\r\nCache-Control: no-cache\r\n\r\n"
    ).encode()
    await asyncio.sleep(every * random())
    while True:
        writer.write(head)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        assert not body.startswith(b'{"code":1'), body
        await asyncio.sleep(every)


async def browse(port: int, cookies: Sequence[str], page: str) -> None:
    """Have one console open for each cookie."""
    await asyncio.gather(
        *(ask(port, cookie, *asked) for cookie in cookies for asked in PAGES[page])
    )


def _simulate(port: int, cookies: Sequence[str], page: str) -> None:
    asyncio.run(browse(port, cookies, page))


@contextmanager
def consoles(port: int, cookies: Sequence[str], page: str) -> Iterator[Callable[[bool], None]]:
    """
    The consoles, in a process of their own.

    @return: has them ask, or stay open and ask nothing.
    """
    process = multiprocessing.Process(target=_simulate, args=(port, cookies, page), daemon=True)
    process.start()

    def turn(isAsking: bool) -> None:
        if not process.is_alive():
            raise SystemExit("the consoles have failed")
        os.kill(process.pid or 0, signal.SIGCONT if isAsking else signal.SIGSTOP)
        sleep(SETTLE_SECONDS)

    try:
        yield turn
    finally:
        process.kill()
        process.join()


def measure(server: Server) -> float:
    """Microseconds of processor time that the daemon uses for an event."""
    before = server.cpu()
    shape = Shape.same(request("publish", BODY, CREDENTIALS["token"]), countOne)
    measured = drive(server.ports[0], shape, CONNECTIONS, SECONDS)
    return 1e6 * (server.cpu() - before) / measured.events


def idleShare(server: Server) -> float:
    """The share of a processor that the daemon uses now."""
    before, began = server.cpu(), perf_counter()
    sleep(IDLE_SECONDS)
    return (server.cpu() - before) / (perf_counter() - began)


def main() -> None:
    """Measure, and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    page = sys.argv[2] if len(sys.argv) > 2 else "overview"
    servers, clients = separateCores()
    # The consoles inherit it.
    os.sched_setaffinity(0, clients)
    with household(), tempfile.TemporaryDirectory() as name:
        file = Path(name) / "accounts.toml"
        file.write_text(accountsFile() + operators())
        server = startDaemon(Path(name) / "daemon", servers, options=["--accounts", str(file)])
        port = server.ports[0]
        opening = Shape.same(request("open", b"topic=bench", CREDENTIALS["token"]), countOne)
        drive(port, opening, 1, SECONDS, requests=1)
        cookies = [logIn(port, number) for number in range(CONSOLES)]
        found: dict[str, list[float]] = {"asking": [], "quiet": [], "quiet, too": []}
        measure(server)
        with consoles(port, cookies, page) as turn:
            turn(False)
            quiet = idleShare(server)
            turn(True)
            share = idleShare(server) - quiet
            print(f"{CONSOLES} consoles at {page}: {share:.1%} of a processor of an idle daemon")
            for number in range(rounds):
                for each in sorted(found, reverse=number % 2 == 1):
                    turn(each == "asking")
                    found[each].append(measure(server))
    for each, costs in found.items():
        ratios = [one / other for one, other in zip(costs, found["quiet"], strict=True)]
        print(f"{each:12} {median(costs):7.1f} us an event, {median(ratios) - 1:+.1%}")


if __name__ == "__main__":
    main()
