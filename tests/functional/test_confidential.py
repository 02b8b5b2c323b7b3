"""
Confidential events with the commands, on the real daemon.
"""

from __future__ import annotations

import contextlib
import json
import stat
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.threads import deferToThread
from twisted.protocols.portforward import ProxyClient, ProxyClientFactory, ProxyFactory, ProxyServer

from svcbroker.client import Client
from svcbroker.client._confidential import closed
from tests.carriers.mqtt.conformance.packets import V5, connect, publish, subscribe
from tests.needed import needPackage
from tests.proofs.test_age import FOREIGN, OURS, RECIPIENT
from tests.proofs.test_age import SECRET as KEY

from .daemon import LOCAL, Daemon, reactor
from .test_proofs import CommandTestCase
from .test_subscribing import STOMP, exchange
from .test_webhooks import SECRET as WEBHOOK_SECRET
from .test_webhooks import Receiver

SECRET = "price 12.50"


class ConfidentialTests(CommandTestCase):
    async def test_eventsAreClosedProvedAndOpened(self) -> None:
        """An author closes an event to a partner, who opens it; all others can prove it."""
        needPackage("pyrage", "encryption")
        daemon = await self.run_(
            [f"--http={LOCAL}", "--ledger=pbft", f"--data-dir={self.dataDir}"]
        ).serves()
        self.environment.update(
            SVCBROKER_URL=daemon.base, XDG_CONFIG_HOME=str(self.root / "config")
        )
        mine, others = self.root / "bank.id", self.root / "other.id"
        recipient = (await self.done("keygen", "--encryption", mine)).strip()
        self.assertEqual(stat.S_IMODE(mine.stat().st_mode), 0o600)
        await self.done("keygen", "--encryption", others)
        partners = self.root / "partners.txt"
        partners.write_text(f"# ours\nbank  {recipient}\n")
        await self.done("topic", "open", "a")
        eventId = await self.done(
            *("pub", "a", SECRET, "--to", "bank", "--recipients", partners, "--ext", "tag=x")
        )
        eventId = eventId.strip()
        await self.done("pub", "a", "open to all")

        read = ("sub", "a", "--until-end")
        closed = (await self.done(*read)).splitlines()
        self.assertIn("closed, ", closed[0])
        self.assertIn("no identity is given", closed[0])
        self.assertIn("open to all", closed[1])
        self.assertIn("no identity here opens it", await self.done(*read, "--identity", others))
        for command in (read, ("events", "a"), ("get", eventId)):
            self.assertIn(SECRET, await self.done(*command, "--identity", mine))
            self.assertNotIn(SECRET, await self.done(*command))
        [line, _] = (await self.done(*read, "--json")).splitlines()
        self.assertEqual(json.loads(line)["closed"], "no identity is given")
        self.assertEqual(await self.done("get", eventId, "--content", "--identity", mine), SECRET)
        await self.prove(eventId, mine, others)
        await self.reveal(eventId, mine, others)
        await self.useDirectory(mine, recipient)
        await self.useContext(daemon.base, mine, partners)

    async def prove(self, eventId: str, mine: object, others: object) -> None:
        """A proof says what the event says to those who open it."""
        proof, genesis = self.root / "proof.json", self.root / "genesis.json"
        genesis.write_text(await self.done("genesis", self.dataDir), "utf-8")
        trusted = ("--genesis", genesis)
        for identity, shown in ((mine, SECRET), (others, "no identity here opens it")):
            text = await self.done("prove", eventId, *trusted, "--identity", identity)
            self.assertIn(shown, text)
        await self.done("prove", eventId, *trusted, "--output", proof)
        text = await self.done("verify", proof, *trusted)
        self.assertIn("content      closed, ", text)
        self.assertNotIn(SECRET, text)
        text = await self.done("verify", proof, *trusted, "--identity", mine)
        self.assertIn(f'opened       "{SECRET}"', text)
        found = await self.proved(proof, *trusted, "--identity", mine)
        self.assertEqual((found["opened"], found["closed"]), ({"content": SECRET}, None))
        found = await self.proved(proof, *trusted, "--identity", others)
        self.assertEqual(found["closed"], "no identity here opens it")

    async def reveal(self, eventId: str, mine: object, others: object) -> None:
        """Somebody without an identity opens the one event that is revealed to them."""
        trusted = ("--genesis", self.root / "genesis.json")
        reveal, changed = self.root / "reveal.json", self.root / "changed.json"
        for given, why in (
            (("--identity", others), "no identity here opens it"),
            ((), "no identity"),
        ):
            code, output, errors = await self.outcomeOf("reveal", eventId, *given)
            self.assertEqual((code, output), (1, ""))
            self.assertIn(why, errors)
        await self.done("reveal", eventId, "--identity", mine, "--output", reveal)
        self.assertIn(f'opened       "{SECRET}"', await self.done("verify", reveal, *trusted))
        found = await self.proved(reveal, *trusted)
        self.assertEqual(found["opened"], {"content": SECRET})
        document = json.loads(reveal.read_text())
        changed.write_text(json.dumps({**document, "fileKey": "00" * 16}))
        code, output, _ = await self.outcomeOf("verify", changed, *trusted)
        self.assertEqual(code, 1)
        self.assertIn("the key of the reveal does not open the event", output)

        # In a bundle, of which the other event was closed to somebody else.
        recipient = (await self.done("keygen", "--encryption", self.root / "third.id")).strip()
        third = (await self.done("pub", "a", "price 99", "--to", recipient)).strip()
        case = self.root / "case.zip"
        making = ("bundle", eventId, third, "--reveal", "--output", case)
        code, _, errors = await self.outcomeOf(*making)
        self.assertEqual(code, 2)
        self.assertIn("--reveal needs --identity", errors)
        code, _, _ = await self.outcomeOf(*making, "--identity", mine)
        self.assertEqual(code, 0)
        for identity, isOpened in (((), False), (("--identity", self.root / "third.id"), True)):
            code, output, _ = await self.outcomeOf("verify", case, *identity)
            self.assertEqual(code, 0)
            self.assertIn(f'opened       "{SECRET}"', output)
            self.assertIs("price 99" in output, isOpened)

        # An open event: shown to be there today, and what it says later.
        eventId = (await self.done("pub", "a", "said in 2026")).strip()
        bare = self.root / "bare.json"
        text = await self.done("prove", eventId, "--without-content", "--output", bare)
        self.assertIn("left out of this proof", text)
        self.assertNotIn("said in 2026", text + bare.read_text())
        await self.proved(bare, *trusted)
        later = json.loads(await self.done("reveal", eventId))
        reveal.write_text(json.dumps(later))
        found = await self.proved(reveal, *trusted)
        self.assertEqual((found["eventId"], found["content"]), (eventId, "said in 2026"))

    async def useDirectory(self, mine: Path, recipient: str) -> None:
        """An organisation publishes its recipient on the log, and rotates it."""
        topic = "$svc/recipients/acme"
        key = self.root / "acme.pem"
        author = (await self.done("keygen", key)).strip()
        await self.done("topic", "open", topic, "--author", author)
        await self.done("pub", topic, recipient, "--sign", key)
        code, output, errors = await self.outcomeOf("pub", "a", SECRET, "--to", "org:acme")
        self.assertEqual(code, 0)
        self.assertIn(author, errors)
        first = output.strip()
        new = self.root / "new.id"
        renewed = (await self.done("keygen", "--encryption", new)).strip()
        await self.done("pub", topic, f"# since today\n{renewed}", "--sign", key)
        second = (await self.done("pub", "a", SECRET, "--to", "org:acme")).strip()
        for eventId, opens, others in ((first, mine, new), (second, new, mine)):
            self.assertIn(SECRET, await self.done("get", eventId, "--identity", opens))
            self.assertNotIn(SECRET, await self.done("get", eventId, "--identity", others))
        both = self.root / "both.id"
        both.write_bytes(mine.read_bytes() + new.read_bytes())
        for eventId in (first, second):
            self.assertIn(SECRET, await self.done("get", eventId, "--identity", both))

    async def useContext(self, url: str, identity: object, partners: object) -> None:
        """A context names both files."""
        del self.environment["SVCBROKER_URL"]
        files = ("--identity", identity, "--recipients", partners)
        code, _, _ = await self.outcomeOf("admin", "context", "add", "x", "--url", url, *files)
        self.assertEqual(code, 0)
        eventId = (await self.done("pub", "a", SECRET, "--to", "bank")).strip()
        self.assertIn(SECRET, await self.done("get", eventId))
        self.assertIn(SECRET, await self.done("prove", eventId))
        for wrong in ("nobody", "age1x"):
            code, _, errors = await self.outcomeOf("pub", "a", SECRET, "--to", wrong)
            self.assertEqual(code, 2)
            self.assertIn(f"--to: '{wrong}' is no recipient (age1...), no name in", errors)


class DamagedTests(CommandTestCase):
    """
    Closed events that nobody opens, among others that are opened.
    """

    def hostile(self) -> dict[str, tuple[bytes, dict[str, str]]]:
        """Closed contents, by the reason why they are not opened, with their extensions."""
        data = closed(SECRET.encode(), [RECIPIENT])
        mac = data.index(b"--- ") + 4
        wrong = b"B" if data[mac : mac + 1] == b"A" else b"A"
        line = b64encode(bytes(range(32))).rstrip(b"=")
        stanza = b"-> X25519 " + line + b"\n" + line + b"\n"
        start, end = b"age-encryption.org/v1\n", b"--- " + line + b"\n" + bytes(40)
        scrypt = start + b"-> scrypt " + line + b" 60\n" + line + b"\n" + end
        terabyte = {"svc-encrypted": "age", "svc-padding": str(2**40)}
        return {
            "its header is cut": (data[: mac - 20], OURS),
            "more than 256 recipients": (start + stanza * 10_000 + end, OURS),
            "its padding is of an unknown kind: '1099511627776'": (data, terabyte),
            "the MAC of its header does not hold": (data[:mac] + wrong + data[mac + 1 :], OURS),
            "age has another version there": (data.replace(b"/v1", b"/v2"), OURS),
            "with a passphrase": (scrypt, OURS),
            "no identity here opens it": (start + stanza * 256 + end, OURS),
            "its content was changed, or is cut": (data[:-1], OURS),
        }

    async def test_readersGoOn(self) -> None:
        """Each has its line with its reason, in each command, and the others are opened."""
        needPackage("pyrage", "encryption")
        daemon = await self.start(ledger="pbft")
        self.environment["SVCBROKER_URL"] = daemon.base
        identity = self.root / "mine.id"
        identity.write_text(KEY + "\n")
        own = ("--identity", identity)
        await self.done("topic", "open", "a")
        good = closed(SECRET.encode(), [RECIPIENT])
        client = Client(daemon.base)
        ids = []
        with client:
            for content, extensions in [*self.hostile().values(), (good, FOREIGN)]:
                sent = await deferToThread(client.publish, "a", content, extensions)
                ids.append(sent.eventId)
        reasons = [*self.hostile(), SECRET]
        for command in (("sub", "a", "--until-end"), ("events", "a")):
            lines = (await self.done(*command, *own)).splitlines()
            self.assertEqual(len(lines), len(reasons))
            for line, eventId, reason in zip(lines, ids, reasons, strict=True):
                self.assertIn(eventId, line)
                self.assertIn(reason, line)
        for name, place in (("get", 0), ("prove", 1)):
            self.assertIn(reasons[place], await self.done(name, ids[place], *own))

    async def test_wrongFilesAreNamed(self) -> None:
        """A wrong line of a file of recipients or identities is named, and nothing is sent."""
        needPackage("pyrage", "encryption")
        self.environment["SVCBROKER_URL"] = "http://127.0.0.1:9/svcbroker"
        path = self.root / "partners.txt"
        path.write_text(f"bank {RECIPIENT}\nbroken age1xyz\n")
        identity = self.root / "bad.id"
        identity.write_text("nonsense\n")
        for arguments, why in (
            (
                ("pub", "a", "x", "--to", "bank", "--recipients", path),
                "partners.txt, line 2: it is",
            ),
            (("pub", "a", "x", "--to", "bank"), "no name, without --recipients"),
            (("sub", "a", "--identity", identity), "bad.id: line 1 is no identity"),
            (("sub", "a", "--identity", self.root / "none.id"), "none.id"),
        ):
            code, output, errors = await self.outcomeOf(*arguments)
            self.assertEqual((code, output, errors.count("\n")), (2, "", 1), errors)
            self.assertIn(why, errors)


class RecordedClient(ProxyClient):
    """The broker's side of a relayed connection."""

    peer: Any

    def dataReceived(self, data: bytes) -> None:
        """See C{Protocol}."""
        self.peer.factory.seen.append(data)
        super().dataReceived(data)


class RecordedClientFactory(ProxyClientFactory):
    """Makes the broker's sides."""

    protocol = RecordedClient


class RecordedServer(ProxyServer):
    """The client's side of a relayed connection."""

    factory: Any
    clientProtocolFactory = RecordedClientFactory

    def dataReceived(self, data: bytes) -> None:
        """See C{Protocol}."""
        self.factory.seen.append(data)
        super().dataReceived(data)


class Relay(ProxyFactory):
    """
    Passes connections on to a broker.

    @ivar seen: all bytes that passed, in both directions.
    """

    protocol = RecordedServer

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.seen: list[bytes] = []


def isIn(secret: bytes, data: bytes) -> bool:
    """Whether bytes have a secret, in plain, in hexadecimal digits, or in Base64 at any offset."""
    encoded = [b64encode(bytes(lead) + secret)[4:-4] for lead in range(3)]
    return any(each in data for each in (secret, secret.hex().encode(), *encoded))


def memoryOf(process: int) -> bytes:
    """The memory of a process; nothing where the system does not let it be read."""
    pieces = []
    try:
        with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
            for line in maps:
                place, rights, *_ = line.split()
                if rights.startswith("rw"):
                    first, last = (int(each, 16) for each in place.split("-"))
                    memory.seek(first)
                    with contextlib.suppress(OSError):
                        pieces.append(memory.read(last - first))
    except OSError:
        return b""
    return b"".join(pieces)


class BytesReceiver(Receiver):
    """A receiver of contents that are no text."""

    def contentsOf(self, told: Any) -> list[str]:
        """See L{Receiver.contentsOf}."""
        return []


class CanaryTests(CommandTestCase):
    """
    A secret that is closed never comes to the broker: not over its connections, by whatever
    protocol, not into its memory, and not onto its disk, into its journal, or into what is made of
    its data.
    """

    secret, shown = b"canary-q7f3a91c2-closed", b"canary-q7f3a91c2-shown!"

    def setUp(self) -> None:
        super().setUp()
        needPackage("pyrage", "encryption")
        self.relays: dict[str, Relay] = {}
        self.ports: dict[str, int] = {}

    async def startRelayed(self) -> Daemon:
        """Start a broker, to which all clients come through relays."""
        path = self.root / "secret"
        path.write_text(WEBHOOK_SECRET)
        arguments = ["--ledger=pbft", f"--data-dir={self.dataDir}"]
        arguments += ["--webhook-allow=127.0.0.0/8", f"--webhook-secret-file={path}"]
        ports = [f"--{each}={LOCAL}" for each in ("http", "mqtt", "stomp")]
        daemon = await self.run_([*arguments, *ports]).serves()
        at = urlsplit(daemon.base)
        for name in ("http", "mqtt", "stomp"):
            port = at.port
            if name != "http":
                found = await daemon.protocol.waitFor(rf"{name.upper()} on 127\.0\.0\.1:(\d+)")
                port = int(found[1])
            relay = self.relays[name] = Relay("127.0.0.1", port or 0)
            listening = reactor.listenTCP(0, relay, interface="127.0.0.1")
            self.addCleanup(listening.stopListening)
            self.ports[name] = listening.getHost().port
        self.environment["SVCBROKER_URL"] = at._replace(
            netloc=f"127.0.0.1:{self.ports['http']}"
        ).geturl()
        return daemon

    async def exchange(self, name: str, data: bytes, end: bytes) -> bytes:
        """Write to a port, and read up to some bytes."""
        return await deferToThread(exchange, ("127.0.0.1", self.ports[name]), data, end)

    async def publishByAll(self, contents: Sequence[bytes]) -> None:
        """Publish to C{a} by JSON-RPC, by MQTT as a retained message, and by STOMP."""
        for content in contents:
            call = {
                "jsonrpc": "2.0",
                "id": "1",
                "method": "publish",
                "params": {
                    "topic": "a",
                    "content": b64encode(content).decode(),
                    "extensions": {"svc-encrypted": "age"},
                },
            }
            body = json.dumps(call).encode()
            head = (
                "POST /svcbroker/jsonrpc HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            await self.exchange("http", head.encode() + body, b"SUCCESS")
            own = [("userProperty", ("svc-encrypted", "age"))]
            sent = publish(V5, "a", content, qos=1, packetId=1, retain=True, properties_=own)
            await self.exchange("mqtt", connect(V5, "c") + sent, b"\x40\x02\x00\x01")
            lines = (
                f"SEND\ndestination:a\nsvc-encrypted:age\nreceipt:r\ncontent-length:{len(content)}"
            )
            frame = STOMP + f"{lines}\n\n".encode() + content + b"\0"
            await self.exchange("stomp", frame, b"receipt-id:r")

    async def readByAll(self, end: bytes) -> None:
        """Read C{a} by all protocols, up to the last content."""
        offset = [("userProperty", ("svc-offset", "OFFSET_FIRST"))]
        asked = subscribe(V5, 1, [("a", 1)], properties_=offset)
        await self.exchange("mqtt", connect(V5, "d") + asked, end)
        await self.exchange("mqtt", connect(V5, "e") + subscribe(V5, 1, [("a", 0)]), end)
        asked = b"SUBSCRIBE\nid:1\ndestination:a\neventId:OFFSET_FIRST\n\n\0"
        await self.exchange("stomp", STOMP + asked, end)
        host = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        asked = b"GET /svcbroker/rest/follow?topic=a&from=OFFSET_FIRST" + host
        await self.exchange("http", asked, b64encode(end))
        await self.exchange("http", b"GET /svcbroker/console" + host, b"</html>")

    async def test_brokerNeverSeesAClosedContent(self) -> None:
        """Another content, which is open, is found everywhere by the same search."""
        daemon = await self.startRelayed()
        secret, shown = self.secret, self.shown
        identity = self.root / "mine.id"
        recipient = (await self.done("keygen", "--encryption", identity)).strip()
        to, own = ("--to", recipient), ("--identity", identity)
        await self.done("topic", "open", "a")
        receiver = BytesReceiver(self)
        receiver.answer = lambda number: 500 if number == 1 else 200
        hook: dict[str, Any] = {
            "topic": "a",
            "url": f"http://127.0.0.1:{receiver.port}/",
            "maxAttempts": 1,
        }
        await daemon.call("/rest/subscribe", **hook)
        eventId = (await self.done("pub", "a", secret.decode(), *to)).strip()
        other = (await self.done("pub", "a", shown.decode())).strip()
        code, _, errors = await self.outcomeOf(
            "pub", "a", "--lines", *to, stdin=b"\n".join([secret] * 3)
        )
        self.assertEqual((code, errors), (0, ""))
        content = closed(secret, [recipient])
        await self.publishByAll([content, shown])
        await self.readByAll(shown)
        await receiver.until(lambda: len(receiver.seen) >= 10)
        dead = await self.done("sub", "$svc/dead/#", "--from", "OFFSET_FIRST", "--limit", "1")
        self.assertIn("closed, ", dead)
        read = ("sub", "a", "--from", "OFFSET_FIRST", "--limit", "11", *own)
        self.assertEqual((await self.done(*read)).count(secret.decode()), 7)
        self.assertIn(secret.decode(), await self.done("events", "a", *own))
        self.assertIn(secret.decode(), await self.done("prove", eventId, *own))
        self.assertIn("fileKey", await self.done("reveal", eventId, *own))
        told = [json.dumps(each).encode() for each in receiver.seen]
        self.assertEqual((isIn(shown, b"".join(told)), isIn(secret, b"".join(told))), (True, False))
        await self.search(daemon, eventId, other)

    async def search(self, daemon: Daemon, eventId: str, other: str) -> None:
        """Look for both contents in all that the broker has seen, kept and made."""
        secret, shown = self.secret, self.shown
        made = [self.root / name for name in ("proof", "bundle", "export", "backup", "copy")]
        await self.done("prove", eventId, "--output", made[0])
        for command in (
            ("bundle", eventId, other, "--output", made[1]),
            ("export", self.dataDir, made[2]),
            ("backup", self.dataDir, made[3]),
            ("replicate", self.environment["SVCBROKER_URL"], made[4], "--once"),
        ):
            code, _, errors = await self.outcomeOf(*command)
            self.assertEqual(code, 0, errors)
        for name, relay in self.relays.items():
            passed = b"".join(relay.seen)
            self.assertTrue(isIn(shown, passed), name)
            self.assertFalse(isIn(secret, passed), name)
        memory = memoryOf(daemon.process.pid)
        self.assertTrue(not memory or isIn(shown, memory))
        self.assertFalse(isIn(secret, memory))
        self.assertEqual(await daemon.stop(), 0)
        for path in (self.dataDir, *made[1:]):
            files = (
                [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
            )
            data = b"".join(each.read_bytes() for each in files)
            self.assertTrue(isIn(shown, data), path)
            self.assertFalse(isIn(secret, data), path)
        self.assertFalse(isIn(secret, made[0].read_bytes()))
        journal = daemon.protocol.output + daemon.protocol.errors
        self.assertFalse(isIn(secret, journal.encode()))
