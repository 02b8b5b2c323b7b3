"""
What the daemon is asked, and how long it takes.
"""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from socket import socket

import msgspec
from attrs import frozen

from svcbroker.commands.bench import Broken, Shape, ask, httpRequest, percentile
from svcbroker.commands.bench import drive as driveHere
from svcbroker.model import topicPrefix

from ..loader import Load, Protocol, connected, drive, driveOn
from ._daemon import Daemon

WARM_UP = 0.2
"""Seconds of load before anything is measured."""
PAGE = 10
"""How many rows a page of a list has."""
CLIENTS = 8
"""By how many clients at once things are read."""
BATCH = 100
"""How many publishes a batch has."""
OPENERS = 32
"""By how many clients at once topics are opened."""
_OPENED_AT_ONCE = 50
_KNOWN_PER_CLIENT = 200
_LONGEST = 3600.0


@frozen(kw_only=True)
class Speed:
    """
    What came of a load.

    @ivar rate: events, or answers where none are published, a second.
    @ivar cpu: microseconds of the daemon's processor time for each of these.
    @ivar p50: the median time that an answer took, in milliseconds; C{p99} in the same way.
    """

    rate: float
    cpu: float
    p50: float
    p99: float


def measure(
    daemon: Daemon, load: Load, connections: int, seconds: float, *, warmUp: float = WARM_UP
) -> Speed:
    """
    Load the daemon. The connections stand before anything is measured.

    @raise Broken: an answer was wrong.
    """
    if warmUp:
        drive(daemon.port, load, connections, warmUp)
    with connected(daemon.port, load, connections) as opened:
        before = daemon.cpu()
        found = driveOn(opened, load, seconds)
        return speedOf(found.events, found.seconds, found.latencies, daemon.cpu() - before)


def _greet(opened: socket, number: int) -> None:
    """A connection that has made a request is none of those that the daemon may close."""
    ask(opened, httpRequest(b"HEAD", b"/readyz"), b"HTTP/1.1 200", b"\r\n\r\n")


def _get(path: str) -> bytes:
    return httpRequest(b"GET", f"/svcbroker{path}".encode("ascii"))


def _rpc(method: str, calls: Sequence[dict[str, str]]) -> bytes:
    text = msgspec.json.encode(
        [
            {"jsonrpc": "2.0", "id": str(number), "method": method, "params": params}
            for number, params in enumerate(calls)
        ]
    )
    return httpRequest(b"POST", b"/svcbroker/jsonrpc", b"application/json", text)


def _contentOf(size: int) -> str:
    return b64encode(b"x" * size).decode("ascii")


def publishOne(topics: Sequence[str], size: int) -> Load:
    """One publish a request, by POST with a form, to one topic after the other."""
    form = b"application/x-www-form-urlencoded"
    requests = [
        httpRequest(
            *(b"POST", b"/svcbroker/rest/publish", form),
            f"topic={topic}&content={'x' * size}".encode("ascii"),
        )
        for topic in topics
    ]
    return Load(
        protocol=Protocol.HTTP,
        greet=_greet,
        frames=lambda number: requests,
        wanted=b'"status":"SUCCESS"',
        wantedTimes=1,
    )


def publishMany(topics: Sequence[str], size: int, batch: int = BATCH, clients: int = 1) -> Load:
    """
    Batches of publishes by JSON-RPC to one topic after the other.

    @param clients: how many clients take turns: each begins with topics of its own.
    """
    content = _contentOf(size)
    bodies = -(-len(topics) // batch)

    def frames(number: int) -> Sequence[bytes]:
        first = number * bodies // clients
        return [
            _rpc(
                "publish",
                [
                    {
                        "topic": topics[((first + body) * batch + i) % len(topics)],
                        "content": content,
                    }
                    for i in range(batch)
                ],
            )
            for body in range(bodies)
        ]

    return Load(
        protocol=Protocol.HTTP,
        greet=_greet,
        frames=frames,
        isOwn=bodies > 1,
        events=batch,
        wanted=b'"status":"SUCCESS"',
        wantedTimes=batch,
        unwanted=b'"error"',
    )


def _countTopics(daemon: Daemon) -> int:
    total: int = daemon.call("/rest/list", pageIndex="0", pageSize="1")["total"]
    return total


def openTopics(daemon: Daemon, topics: Sequence[str]) -> Speed:
    """
    Open topics that are not open yet, some hundreds at once.

    @raise Broken: not all are open then.
    """
    requests = [
        _rpc("open", [{"topic": topic} for topic in topics[start : start + _OPENED_AT_ONCE]])
        for start in range(0, len(topics), _OPENED_AT_ONCE)
    ]

    def check(body: bytes) -> int:
        if b'"error"' in body:
            raise Broken(f"a topic cannot be opened: {body[:1000]!r}")
        return body.count(b'"result"')

    opened = len(topics) + _countTopics(daemon)
    before = daemon.cpu()
    unasked = iter(requests)
    shape = Shape(requests=lambda number: unasked, check=check)
    found = driveHere(daemon.port, shape, OPENERS, _LONGEST, len(requests))
    cpu = daemon.cpu() - before
    if (total := _countTopics(daemon)) != opened:
        raise Broken(f"{total} topics are open instead of {opened}")
    return speedOf(found.events, found.seconds, found.latencies, cpu)


def speedOf(events: int, seconds: float, latencies: Iterable[float], cpu: float) -> Speed:
    """
    What came of a load.

    @param latencies: seconds from each request to its answer.
    @param cpu: seconds of processor time that the daemon has used.
    """
    ordered = sorted(latencies)
    return Speed(
        rate=events / seconds,
        cpu=cpu / events * 1e6,
        p50=percentile(ordered, 50) * 1000,
        p99=percentile(ordered, 99) * 1000,
    )


def _reads(paths: Sequence[Sequence[str]], wanted: bytes) -> Load:
    """Each client asks for its own, in turn."""
    return Load(
        protocol=Protocol.HTTP,
        greet=_greet,
        frames=lambda number: [_get(path) for path in paths[number]],
        isOwn=True,
        wanted=wanted,
        wantedTimes=1,
        unwanted=b'"errorCode"',
    )


def _each(make: Callable[[], str], clients: int) -> Sequence[Sequence[str]]:
    return [[make() for _ in range(_KNOWN_PER_CLIENT)] for _ in range(clients)]


def getEvents(chain: Path, random: Random, size: int, clients: int = CLIENTS) -> Load:
    """
    Events from anywhere in the chain.

    @param chain: the chain's file; the daemon may be running.
    @param size: the size of their contents.
    """
    with closing(sqlite3.connect(f"{chain.absolute().as_uri()}?mode=ro", uri=True)) as opened:
        topics = opened.execute("SELECT idx, name FROM topic WHERE sequence > 0").fetchall()
        [(last,)] = opened.execute("SELECT max(height) FROM head").fetchall()

        def one() -> str:
            while True:
                index, name = random.choice(topics)
                row = opened.execute(
                    "SELECT height, first_sequence, length(positions) / 8 FROM topic_block "
                    "WHERE topic = ? AND height >= ? ORDER BY height LIMIT 1",
                    (index, random.randint(1, last)),
                ).fetchone()
                if row is not None:
                    height, first, count = row
                    sequence = first + random.randrange(count)
                    return f"/rest/getEvent?eventId={topicPrefix(name)}-{sequence}-{height}"

        paths = _each(one, clients)
    return _reads(paths, b'"content":"%b"' % _contentOf(size).encode("ascii"))


def stateOf(topic: str) -> Load:
    """The state of one topic, by any number of clients."""
    one = _get(f"/rest/state?topic={topic}")
    return Load(
        protocol=Protocol.HTTP,
        greet=_greet,
        frames=lambda number: [one],
        wanted=b'"sequenceNumber"',
        wantedTimes=1,
    )


def states(topics: Sequence[str], random: Random) -> Load:
    """The states of any topics."""
    return _reads(
        _each(lambda: f"/rest/state?topic={random.choice(topics)}", CLIENTS), b'"sequenceNumber"'
    )


def topicLists(topics: int, random: Random) -> Load:
    """Any pages of the list of topics."""
    pages = -(-topics // PAGE)
    paths = _each(
        lambda: f"/rest/list?pageIndex={random.randrange(pages)}&pageSize={PAGE}", CLIENTS
    )
    return _reads(paths, b'"topicInfoList":[{')


def blockLists(blocks: int, random: Random) -> Load:
    """Any pages of the list of blocks."""
    return _pages("/admin/block/blockList", blocks, random)


def transactionLists(transactions: int, random: Random) -> Load:
    """Any pages of the list of transactions."""
    return _pages("/admin/transaction/transList", transactions, random)


def _pages(path: str, rows: int, random: Random) -> Load:
    pages = -(-rows // PAGE)

    def one() -> str:
        return f"{path}?groupId=1&pageNumber={random.randint(1, pages)}&pageSize={PAGE}"

    return _reads(_each(one, CLIENTS), b'"pageData":[{')
