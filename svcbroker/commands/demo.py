"""
C{svcbroker run --demo}: a day of three companies that share a cold chain, for the console.

The day is written into a new chain before the daemon starts, at the times of yesterday and today.
While the daemon runs, the companies go on in the same process: trucks report by MQTT, a sensor
publishes signed readings, a partner follows them, a webhook fails, a replica has stopped, and a
witness cosigns.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlencode

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.resource import Resource
from twisted.web.server import Site

from ..access import hashPassword
from ..archive import groupDirectory
from ..client import AuthorKey
from ..client.twisted import TwistedClient
from ..daemon.operating import OperatorFileError, readOperatorFile
from ..files import writeNew
from ..interfaces import LedgerContext
from ..ledgers.pbft import PbftLedger
from ..model import AuthorSet, Authorship, EraseEvents, OpenTopic, PublishEvent, Request
from ..net.deferreds import cancelAll
from ..net.http import basicAuthorization, makeClient, readBody
from ..proofs.tlog import VerifierKey
from ..proofs.witness import Witness, WitnessSite, makeWitness
from .terminal import CommandError, Console

_LOOPBACK: Final = "127.0.0.1"
_GROUP: Final = "1"
_HOUR: Final = 3600.0
_STEP: Final = 0.001
_MAX_CONTENT: Final = 1024 * 1024
_MAX_ANSWER: Final = 1024 * 1024
_POLL: Final = 0.2
_TIMEOUT: Final = 60.0
_SHIPMENTS: Final = tuple(f"shipment/{4711 + number}" for number in range(9))
_STOPPED: Final = 3
"""The replica that does not run."""
_ACCOUNTS: Final = {
    "frost": ["* * #", "* * $svc/#"],
    "alba": [
        "open 1 #",
        "publish 1 orders/#",
        "publish 1 shipment/#",
        "subscribe 1 orders/#",
        "subscribe 1 shipment/#",
    ],
    "corner": [
        "publish 1 orders/#",
        "publish 1 shipment/#",
        "publish 1 dead/#",
        "open 1 dead/#",
        "subscribe 1 #",
    ],
}
"""
The companies, each with the grants of its account: a carrier, who runs the broker, a producer, and
a pharmacy.
"""

_log = Logger()


@frozen
class _Moment:
    """
    Something that a company does.

    @ivar at: when, in seconds since the epoch.
    @ivar company: who signs it; empty where nobody does.
    """

    at: float
    topic: str
    company: str
    content: bytes
    extensions: Mapping[str, str] = {}


def _happenings(now: float) -> Iterator[_Moment]:
    """The events of the day before a time, in no order."""
    chance = Random(4711)

    def said(**fields: Any) -> bytes:
        return json.dumps(fields, separators=(",", ":")).encode()

    for number, topic in enumerate(_SHIPMENTS):
        start = now - (23.5 - 2.75 * number) * _HOUR
        vials = 400 + 200 * chance.randrange(1, 6)
        yield _Moment(
            start - 1500, "orders/corner", "corner", said(order=9001 + number, vials=vials)
        )
        yield _Moment(
            start - 900, "orders/corner", "alba", said(order=9001 + number, confirmed=True)
        )
        yield _Moment(start, topic, "alba", said(event="handed over", vials=vials, celsius=4.1))
        driver = said(event="driver", name="Jan Kowalski", phone="+48 601 000 000")
        yield _Moment(start + 60, topic, "frost", driver)
        yield _Moment(start + 90, topic, "alba", _label(number), {"svc-ce": _PNG})
        isSpoiled = number == 4
        for reading in range(18):
            celsius = 4.2 + chance.random() + (max(0, reading - 9) * 0.8 if isSpoiled else 0)
            at = start + 300 + 900 * reading + chance.randrange(60)
            yield _Moment(
                at,
                topic,
                "frost",
                said(event="reading", celsius=round(celsius, 1)),
                {"svc-unit": "celsius"},
            )
        end = start + 4.8 * _HOUR
        yield _Moment(end, topic, "corner", said(event="received", accepted=not isSpoiled))
    for truck in range(1, 4):
        for tick in range(48):
            at = now - 24 * _HOUR + 1800 * tick + 400 * truck
            yield _Moment(at, f"trucks/{truck}/position", "", _position(chance, truck))


def _position(chance: Random, truck: int) -> bytes:
    where = {
        "truck": truck,
        "lat": round(47 + chance.random(), 4),
        "lon": round(8 + chance.random(), 4),
    }
    return json.dumps(where).encode()


_PNG: Final = json.dumps(
    {
        "id": "label",
        "source": "/alba",
        "specversion": "1.0",
        "type": "label",
        "datacontenttype": "image/png",
    }
)


def _label(number: int) -> bytes:
    """The label of a box, as a small picture."""
    side, chance = 24, Random(number)
    rows = b"".join(
        b"\0" + bytes(255 * chance.randrange(2) for _ in range(side)) for _ in range(side)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class _DayWriter:
    """
    Writes a day into a new chain, whose clock is moved from one event to the next.
    """

    def __init__(self, dataDir: Path, keys: Mapping[str, AuthorKey], now: float) -> None:
        self._clock = Clock()
        self._clock.advance(now - 25 * _HOUR)
        self._keys = keys
        self._now = now
        directory = groupDirectory(dataDir, _GROUP)
        self._ledger = PbftLedger(
            LedgerContext(
                group=_GROUP,
                directory=directory,
                reactor=self._clock,
                now=self._clock.seconds,
                entropy=os.urandom,
                runInThread=maybeDeferred,
                maxContent=_MAX_CONTENT,
            )
        )

    def write(self) -> None:
        """Write it."""
        self._until(self._ledger.start())
        happenings = sorted(_happenings(self._now), key=lambda each: each.at)
        happenings = [each for each in happenings if each.at < self._now]
        authors = AuthorSet(authors=tuple(sorted(each.public for each in self._keys.values())))
        for topic in sorted({each.topic for each in happenings} | {"dead/corner"}):
            isSigned = topic.startswith("shipment/")
            self._do(OpenTopic(topic=topic, authors=authors if isSigned else None))
        for each in happenings:
            self._clock.advance(max(0.0, each.at - self._clock.seconds()))
            self._do(self._publish(each, self._ledger.chain))
        for number in (0, 3):
            erasing = EraseEvents(
                topic=_SHIPMENTS[number],
                ranges=[(2, 2)],
                account="frost",
                reason="request of the data subject",
            )
            self._do(erasing)
        self._until(self._ledger.stop())

    def _publish(self, moment: _Moment, chain: bytes) -> PublishEvent:
        author = None
        if moment.company:
            signed = self._keys[moment.company].sign(
                chain=chain,
                topic=moment.topic,
                content=moment.content,
                extensions=moment.extensions,
                idempotencyKey=None,
                signedAt=int(moment.at * 1000),
            )
            key, signature = (bytes.fromhex(signed[name]) for name in ("author", "signature"))
            author = Authorship(key=key, signedAt=signed["signedAt"], signature=signature)
        return PublishEvent(
            topic=moment.topic, content=moment.content, extensions=moment.extensions, author=author
        )

    def _do(self, request: Request) -> None:
        self._until(self._ledger.submitMany((request,)).only())

    def _until(self, waiting: Deferred[Any]) -> Any:
        """Let time pass until something is done."""
        found: list[Any] = []
        waiting.addBoth(found.append)
        while not found:
            self._clock.advance(_STEP)
        if isinstance(found[0], Failure):
            found[0].raiseException()
        return found[0]


class _Receiver(Resource):
    """The receivers of webhooks: one that takes everything, and one that is out of order."""

    isLeaf = True

    def render_POST(self, request: Any) -> bytes:
        """Take an event, or not."""
        isWell = request.path == b"/billing"
        request.setResponseCode(204 if isWell else 503)
        return b"" if isWell else b"the warehouse is closed for maintenance"


def _packet(kind: int, *parts: bytes, last: bytes = b"") -> bytes:
    """
    A packet of MQTT 3.1.1 that is shorter than 128 bytes.

    @param parts: fields that get their length before them, and headers, which begin with a zero.
    @param last: what has no length.
    """
    body = b"".join(
        part if part[:1] == b"\0" else len(part).to_bytes(2, "big") + part for part in parts
    )
    return bytes([kind, len(body + last)]) + body + last


class _Truck(Protocol):
    """
    The client of a truck, with a session of MQTT that outlives its connections.
    """

    transport: Any

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self._password = password

    def connectionMade(self) -> None:
        """Connect, and subscribe."""
        head = b"\0\x04MQTT\x04\xc0\0\0"
        account = (b"frost", self._password.encode())
        self.transport.write(_packet(0x10, head, self._name.encode(), *account))
        self.transport.write(_packet(0x82, b"\0\x01", b"orders/#", last=b"\x01"))

    def report(self, topic: str, content: bytes) -> None:
        """Publish, without an answer."""
        self.transport.write(_packet(0x30, topic.encode(), last=content))


class Demo:
    """
    The companies while the daemon runs.
    """

    def __init__(self, directory: Path, console: Console) -> None:
        """
        @param directory: where everything is; it is empty.
        """
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._directory = directory
        self._console = console
        self._password = token_hex(4)
        self._keys = {}
        for name in _ACCOUNTS:
            key = Ed25519PrivateKey.generate()
            self._keys[name] = AuthorKey(key.public_key().public_bytes_raw(), key)
        self._http = makeClient(reactor, maxBody=_MAX_ANSWER)
        self._tasks: list[Deferred[Any]] = []
        (directory / "alba").mkdir()
        makeWitness(directory / "alba", "alba.example/witness", os.urandom)
        self._witness = Witness.open(directory / "alba", {}, time.time)
        site = WitnessSite(self._witness, maybeDeferred).site(self._reactor)
        sites: Sequence[Any] = (site, Site(_Receiver()))
        self._ports: list[Any] = [
            self._reactor.listenTCP(0, each, interface=_LOOPBACK) for each in sites
        ]
        with socket.create_server((_LOOPBACK, 0)) as free:
            self._mqtt = free.getsockname()[1]

    def settings(self) -> Mapping[str, Any]:
        """The settings of the daemon. Writes the files that they name."""
        files = self._directory
        policy = f"witness alba {self._witness.verifier.text} {self._url(0)}\nquorum alba\n"
        writeNew(files / "policy", policy.encode("ascii"))
        hashed = hashPassword(self._password.encode())
        lines = []
        for name, grants in _ACCOUNTS.items():
            lines += [f"[accounts.{name}]", f"password = {hashed!r}", f"roles = [{name!r}]"]
            lines += [f"[roles.{name}]", f"grants = {grants!r}"]
        writeNew(files / "accounts.toml", "\n".join(lines).encode())
        return {
            "data-dir": str(files / "data"),
            "accounts": str(files / "accounts.toml"),
            "mqtt": self._mqtt,
            "stomp": "",
            "faults": True,
            "log-origin": "frost.example/svcbroker",
            "webhook-allow": ["127.0.0.0/8"],
            "witness-policy": str(files / "policy"),
            "witness-interval": 5,
        }

    def prepare(self) -> None:
        """Write the day into the chain that the daemon finds, and go on once it runs."""
        (self._directory / "data").mkdir()
        _DayWriter(self._directory / "data", self._keys, time.time()).write()
        self._reactor.callWhenRunning(self._begin, self._play)
        self._reactor.addSystemEventTrigger("before", "shutdown", self._stop)

    def _stop(self) -> None:
        cancelAll(self._tasks)
        self._witness.close()

    def _begin(self, work: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Have something go on until the end."""
        task = Deferred.fromCoroutine(work(*given))
        self._tasks.append(task)
        task.addErrback(lambda failure: _log.failure("The demo does not go on", failure))

    def _url(self, number: int, path: str = "") -> str:
        return f"http://{_LOOPBACK}:{self._ports[number].getHost().port}{path}"

    async def _play(self) -> None:
        """Start the permanent clients, and publish every second."""
        base = await self._serving()
        told = await self._ask("frost", f"{base}/log/{_GROUP}/keys")
        self._witness.useLogs({told["origin"]: [VerifierKey.parse(told["key"])]})
        stopping = json.dumps({"node": _STOPPED}).encode()
        await self._ask("frost", f"{base}/admin/operator/faults/stop", stopping)
        for path, more in (
            ("/billing", {}),
            ("/warehouse", {"maxAttempts": 3, "deadLetter": "dead/corner"}),
        ):
            fields = {"topic": "shipment/#", "url": self._url(1, path), **more}
            await self._ask("corner", f"{base}/rest/subscribe?{urlencode(fields)}")
        endpoint = HostnameEndpoint(self._reactor, _LOOPBACK, self._mqtt)
        trucks = []
        for number in range(1, 4):
            truck = _Truck(f"truck-{number}", self._password)
            trucks.append(await connectProtocol(endpoint, truck))
        await deferLater(self._reactor, 1)
        trucks.pop().transport.loseConnection()
        self._begin(self._follow, base)
        self._console.say(
            f"The demo is at {base}/console: log in as frost, who operates the broker, as alba or "
            f"as corner, with the password {self._password}. Ctrl-C ends and removes it."
        )
        self._console.output.flush()
        await self._publish(base, trucks)

    async def _serving(self) -> str:
        """The base URL of the daemon, once it serves."""
        while True:
            with suppress(OperatorFileError):
                return readOperatorFile(self._directory / "data").url.rstrip("/")
            await deferLater(self._reactor, _POLL)

    async def _ask(self, account: str, url: str, data: bytes | None = None) -> Any:
        """The answer of a call: a post where there is data."""
        headers = Headers()
        headers.addRawHeader("Authorization", basicAuthorization(account, self._password).decode())
        headers.addRawHeader("Content-Type", "application/json")
        method = "GET" if data is None else "POST"
        answer = await self._http.request(
            method, url, timeout=_TIMEOUT, maxBody=_MAX_ANSWER, headers=headers, data=data
        )
        told = json.loads(await readBody(answer))
        if isinstance(told, dict) and told.get("code"):
            raise CommandError(f"{url}: {told['message']}")
        return told

    def _client(self, base: str, account: str) -> TwistedClient:
        return TwistedClient(
            *(self._reactor, base),
            user=account,
            password=self._password,
            key=self._keys[account],
        )

    async def _follow(self, base: str) -> None:
        """Have a partner follow what happens, and look at none of it."""
        async for _ in self._client(base, "corner").follow("shipment/#"):
            pass

    async def _publish(self, base: str, trucks: Sequence[_Truck]) -> None:
        """Publish a reading and positions, every second."""
        client, chance = self._client(base, "frost"), Random(1)
        while True:
            for number, truck in enumerate(trucks, 1):
                truck.report(f"trucks/{number}/position", _position(chance, number))
            reading = {"event": "reading", "celsius": round(4.2 + chance.random(), 1)}
            await client.publish(
                _SHIPMENTS[-1], json.dumps(reading).encode(), extensions={"svc-unit": "celsius"}
            )
            await deferLater(self._reactor, 1)
