"""
What grows in a daemon with what clients send, as a program of its own.

C{python -m tests.daemon.growth DIRECTORY} runs the daemon on ports of loopback, sends it every kind
of input L{COUNT} times, each time another one, and then twice as many more. It prints the
attributes of instances of classes of svcbroker, and the variables of its modules, whose containers
have at least half of L{COUNT} entries more after that, over all instances:
C{module.Class.attribute}, and how many more.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
import traceback
import types
from array import array
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import _lru_cache_wrapper
from hashlib import sha256
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from msgspec import Struct
from nacl.pwhash import argon2id
from twisted.internet import reactor as _reactor
from twisted.internet.threads import blockingCallFromThread
from wsproto.connection import Connection as WebSocket
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, TextMessage

from svcbroker import tap
from tests.authors import Author
from tests.carriers.mqtt.conformance import packets as mqtt
from tests.waiting import TIMEOUT

COUNT: Final = 16
"""How many inputs of each kind are sent before the first look at the containers."""

LOOKS: Final = 3
"""How often is looked, before and after."""

DEPTH: Final = 3
"""How deep containers are looked for in containers."""

BASE: Final = "/svcbroker"
LOCAL: Final = "127.0.0.1"
PORTS: Final = ("http", "stomp", "mqtt")

_MAPPINGS: Final = (dict, types.MappingProxyType, WeakKeyDictionary, WeakValueDictionary)
_OTHERS: Final = (list, set, frozenset, deque, WeakSet)

reactor: Any = _reactor


# The containers.


def length(value: object, depth: int = DEPTH) -> int:
    """How many entries a container has, those of containers in it included; 0 of all else."""
    if isinstance(value, _MAPPINGS):
        entries: Any = tuple(value.values())
    elif isinstance(value, _OTHERS):
        entries = tuple(value)
    elif isinstance(value, tuple):
        # A tuple does not grow: a short one is an entry with several parts.
        return len(value) if len(value) > COUNT else 0
    elif isinstance(value, bytearray | array):
        return len(value)
    elif isinstance(value, BytesIO):
        return 0 if value.closed else len(value.getbuffer())
    else:
        return 0
    if not depth:
        return len(entries)
    return len(entries) + sum(length(each, depth - 1) for each in entries)


def variables(of: object) -> Iterator[tuple[str, object]]:
    """The attributes of an instance, in its dictionary and in slots."""
    yield from tuple(getattr(of, "__dict__", {}).items())
    for kind in type(of).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{kind.__name__.lstrip('_')}{name}"
            isPrivate = name.startswith("__") and not name.endswith("__")
            yield name, getattr(of, mangled if isPrivate else name, None)


def owned(of: Any) -> Iterator[tuple[str, object]]:
    """The containers of an object, with their names."""
    kind = type(of)
    if isinstance(of, types.ModuleType):
        if of.__name__.startswith("svcbroker"):
            for name, value in tuple(vars(of).items()):
                if not name.startswith("__"):
                    yield f"{of.__name__}.{name}", value
    elif isinstance(of, _lru_cache_wrapper):
        if str(of.__module__).startswith("svcbroker"):
            yield f"{of.__module__}.{of.__qualname__}", [None] * of.cache_info().currsize
    elif isinstance(of, types.FunctionType):
        if str(of.__module__).startswith("svcbroker"):
            for name, cell in zip(of.__code__.co_freevars, of.__closure__ or (), strict=True):
                try:
                    yield f"{of.__module__}.{of.__qualname__}.{name}", cell.cell_contents
                except ValueError:
                    continue
    elif isinstance(of, type):
        if str(of.__module__).startswith("svcbroker"):
            for name, value in tuple(vars(of).items()):
                if not name.startswith("__"):
                    yield f"{of.__module__}.{of.__qualname__}.{name}", value
    elif str(kind.__module__).startswith("svcbroker") and not isinstance(of, Struct | tuple):
        for name, value in variables(of):
            yield f"{kind.__module__}.{kind.__qualname__}.{name}", value


def sizes() -> Counter[str]:
    """How many entries all containers have, by their names."""
    found: Counter[str] = Counter()
    # The daemon has the collector skip what is there at its start.
    gc.unfreeze()
    gc.collect()
    for each in gc.get_objects():
        for name, value in owned(each):
            size = length(value)
            if size:
                found[name] += size
    return found


# The clients.


class Socket:
    """A connection, with what has arrived on it."""

    def __init__(self, port: int, source: str = LOCAL) -> None:
        self._socket = socket.create_connection((LOCAL, port), TIMEOUT, (source, 0))
        self._data = b""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def until(self, end: bytes) -> bytes:
        """What arrives, up to some bytes."""
        while end not in self._data:
            piece = self._socket.recv(65536)
            if not piece:
                raise AssertionError(f"closed, not {end!r} after {self._data!r}")
            self._data += piece
        found, _, self._data = self._data.partition(end)
        return found + end

    def packet(self, kind: int) -> bytes:
        """The body of the next MQTT packet of a kind. Those before it are dropped."""
        while True:
            first = self._take(1)[0]
            size, shift = 0, 0
            while True:
                part = self._take(1)[0]
                size |= (part & 127) << shift
                shift += 7
                if part < 128:
                    break
            body = self._take(size)
            if first >> 4 == kind:
                return body

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            piece = self._socket.recv(65536)
            if not piece:
                raise AssertionError("the connection was closed")
            self._data += piece
        found, self._data = self._data[:count], self._data[count:]
        return found

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def frame(command: str, body: str = "", **headers: str) -> bytes:
    """A frame of STOMP."""
    lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
    return ("\n".join(lines) + f"\n\n{body}\0").encode()


class Clients:
    """
    Clients of a daemon with accounts, one for each number.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        # Connections that stay open.
        self._open: list[Socket] = []
        self._author = Author()
        self._http = HTTPConnection(LOCAL, ports["http"], TIMEOUT)
        self._chain = b""

    def run(self, numbers: range) -> None:
        """Send every kind of input, once for each number."""
        for number in numbers:
            topic, event = f"t/{number}", self.publish(number)
            self.read(number, topic, event)
            self.administer(number, topic)
            self.logIn(number)
            self.refused(number)
            self.waitOverHttp(number)
            self.partial(number)
            self.speakStomp(number)
            self.speakMqtt(number)
            self.overWebSocket(number)
            self.erase(number, event)

    def call(
        self,
        number: int,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        isGood: bool = True,
        **fields: object,
    ) -> Any:
        """Call over HTTP; what is answered, as JSON where it is."""
        url = f"{BASE}{path}" + (f"?{urlencode(fields)}" if fields else "")
        sent = {"Authorization": f"Bearer {token(number)}", **(headers or {})}
        if sent["Authorization"] == "-":
            del sent["Authorization"]
        data = None
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._http.request("GET" if data is None else "POST", url, data, sent)
        response = self._http.getresponse()
        text = response.read()
        if isGood and response.status != 200:
            raise AssertionError(f"{url}: {response.status} {text!r}")
        try:
            answer = json.loads(text)
        except ValueError:
            return text
        if isGood and isinstance(answer, dict) and answer.get("code", 0) not in (0, "0"):
            raise AssertionError(f"{url}: {answer}")
        return answer

    def publish(self, number: int) -> str:
        """Publish in each way of HTTP. The id of one of the events."""
        topic = f"t/{number}"
        self.call(number, "/rest/open", topic=topic)
        head = {
            "User-Agent": f"agent/{number}",
            f"X-Own-{number}": "x",
            "X-Request-Id": str(number),
        }
        key: Any = {"idempotencyKey": f"key-{number}", "svc-tag": f"tag-{number}"}
        event = self.call(
            number, "/rest/publish", headers=head, topic=topic, content=f"c{number}", **key
        )["eventId"]
        parameters = {"topic": topic, "content": b64encode(b"x").decode(), "extensions": {}}
        asked = {"jsonrpc": "2.0", "id": number, "method": "publish", "params": parameters}
        self.call(number, "/jsonrpc", [asked, {**asked, "method": f"unknown{number}"}])
        cloud = {"ce-id": f"{number}", "ce-source": f"/s/{number}", "ce-type": f"type.{number}"}
        cloud |= {"ce-specversion": "1.0", f"ce-own{number}": "x", "Content-Type": "text/plain"}
        self.call(number, "/rest/cloudevents", b"x", cloud, isGood=False, topic=topic)
        trace = {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01"}
        self.call(number, "/rest/publish", headers=trace, topic=topic, content="x")
        if not self._chain:
            self._chain = bytes.fromhex(self.call(number, "/rest/genesis")["chain"])
            self.call(number, "/rest/open", topic="signed", authors=self._author.key.hex())
        signed = self._author.sign(self._chain, "signed", f"c{number}".encode(), {})
        self.call(
            number,
            "/rest/publish",
            topic="signed",
            content=f"c{number}",
            author=signed.key.hex(),
            signature=signed.signature.hex(),
            signedAt=signed.signedAt,
        )
        return str(event)

    def read(self, number: int, topic: str, event: str) -> None:
        """Read what there is."""
        call = self.call
        last: Any = {"from": "OFFSET_LAST"}
        following: Any = {"from": number + 1}
        call(number, "/rest/getEvent", eventId=event)
        call(number, "/rest/events", topic=f"t/{number}/#", tag=f"tag-{number}")
        call(number, "/rest/events", topic=topic, reverse="true", **last)
        for name in ("exist", "state", "topicProof"):
            call(number, f"/rest/{name}", topic=topic)
        call(number, "/rest/list", pageIndex=number, isGood=False)
        call(number, "/rest/proof", eventId=event)
        call(number, "/rest/checkpoint", height=number + 1)
        call(number, "/rest/consistency", older=1, newer=number + 2)
        call(number, f"/log/1/tile/0/{number:03}", isGood=False)
        call(number, "/log/1/checkpoint", isGood=False)
        call(number, "/replication/1", isGood=False, **following)
        digest = sha256(f"c{number}".encode()).hexdigest()
        wanted: Any = ({"hash": digest}, {"author": self._author.key.hex()})
        for named in wanted:
            call(number, "/rest/find", filter=f"t/{number}", **named)
        call(number, "/console/bundle", isGood=False, events=event)

    def administer(self, number: int, topic: str) -> None:
        """Ask as operators do, and have webhooks."""
        call = self.call
        call(number, "/admin/listSubscription")
        call(number, "/admin/block/blockList", blockNumber=number + 1)
        call(number, "/admin/transaction/transList", blockNumber=number + 1)
        call(number, "/admin/node/nodeList", nodeName=f"node{number}")
        call(number, "/rest/explainAccess", action="publish", topic=topic, account=name(number))
        call(number, "/rest/listAccounts", after=name(number), isGood=False)
        call(number, "/metrics", isGood=False)
        agent = {"Authorization": "-", "User-Agent": f"agent/{number}"}
        call(number, "/rest/list", headers=agent, isGood=False)
        # Nobody listens there: it fails, and is tried again much later.
        url = f"http://127.9.0.{number % 250}:1/{number}"
        call(number, "/rest/subscribe", topic=topic, url=url)

    def erase(self, number: int, event: str) -> None:
        """Hold events, by their topic and by themselves, and erase one that is held no more."""

        def operate(name: str, **given: object) -> None:
            self.call(number, f"/admin/operator/{name}", given)

        held = {"case": f"case-{number}", "reason": f"r{number}"}
        operate("holds/add", **held, topics=[f"held/{number}/#"])
        operate("holds/add", case=f"event-{number}", reason=f"r{number}", events=[event])
        operate("holds/list", case=f"event-{number}")
        operate("erase/preview", events=[event])
        operate("holds/release", case=f"event-{number}", reason=f"r{number}")
        operate("holds/released", case=f"event-{number}")
        operate("erase", reason=f"r{number}", events=[event])
        self.call(number, "/admin/operator/jobs/start", {"name": f"k{number}"}, isGood=False)

    def logIn(self, number: int) -> None:
        """Log in by passwords, right and wrong ones, from other addresses."""
        source = f"127.0.1.{number % 250 + 1}"
        for user, password in ((name(number), "password"), (f"nobody{number}", f"{number}")):
            pair = b64encode(f"{user}:{password}".encode()).decode()
            connection = Socket(self._ports["http"], source)
            connection.send(
                f"GET {BASE}/rest/list HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Authorization: Basic {pair}\r\n\r\n".encode()
            )
            connection.until(b"\r\n\r\n")
            connection.close()
        form = {"name": name(number), "password": "password"}
        self.call(number, "/console/session", form)
        stomp = Socket(self._ports["stomp"], source)
        stomp.send(frame("CONNECT", accept_version="1.2", login=f"x{number}", passcode="wrong"))
        stomp.until(b"ERROR")
        stomp.close()

    def refused(self, number: int) -> None:
        """Ask for what there is not, or wrongly."""
        call = self.call
        call(number, f"/rest/nothing{number}", isGood=False)
        call(number, f"/nowhere/{number}", isGood=False)
        call(number, "/rest/list", groupId=f"g{number}", isGood=False)
        call(number, "/rest/state", topic=f"none/{number}", isGood=False)
        call(number, "/rest/getEvent", eventId=f"{number:08x}-1-1", isGood=False)
        call(number, "/rest/publish", topic=f"none/{number}", content="x", isGood=False)
        call(number, "/rest/list", headers={"Origin": f"https://o{number}.example"}, isGood=False)
        call(number, "/rest/list", headers={"Host": f"h{number}.example"}, isGood=False)
        call(number, "/jsonrpc", b"[" * (number + 1), isGood=False)

    def waitOverHttp(self, number: int) -> None:
        """Wait for events, and follow topics."""
        for path in (
            f"/rest/events?topic=never/{number}/%23&wait=30",
            f"/rest/follow?topic=t/{number}&from=OFFSET_FIRST",
        ):
            self._ask(path, number)
        self._open[-1].until(b"event: event")

    def _ask(self, path: str, number: int, more: str = "") -> Socket:
        connection = Socket(self._ports["http"])
        connection.send(
            f"GET {BASE}{path} HTTP/1.1\r\nHost: localhost\r\n{more}"
            f"Authorization: Bearer {token(number)}\r\n\r\n".encode()
        )
        self._open.append(connection)
        return connection

    def partial(self, number: int) -> None:
        """Open connections that say nothing, and begin what is not sent to its end."""
        beginnings = {
            "http": f"POST {BASE}/rest/publish HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token(number)}\r\nContent-Length: 5000\r\n\r\ntopic=",
            "stomp": frame("CONNECT", accept_version="1.2", **logIn(number)).decode()
            + f"SEND\ndestination:t/{number}\ncontent-length:5000\n\nbegun",
        }
        for port in PORTS:
            self._open.append(Socket(self._ports[port]))
        for port, data in beginnings.items():
            connection = Socket(self._ports[port])
            connection.send(data.encode())
            self._open.append(connection)

    def speakStomp(self, number: int) -> None:
        """Subscribe, leave events unacknowledged, and open transactions."""
        connection = Socket(self._ports["stomp"])
        connection.send(frame("CONNECT", accept_version="1.2", **logIn(number)))
        connection.until(b"CONNECTED")
        self._useStomp(connection.send, number)
        for _ in range(2):
            connection.until(b"MESSAGE")
        self._open.append(connection)
        absent = Socket(self._ports["stomp"])
        absent.send(frame("CONNECT", accept_version="1.2", **logIn(number)))
        own = {"id": "0", "ack": "client", "destination": f"t/{number}"}
        own["svc-subscriptionId"] = str(UUID(int=number + 1, version=4))
        absent.send(frame("SUBSCRIBE", **own, eventId="OFFSET_FIRST"))
        absent.until(b"MESSAGE")
        absent.close()

    def _useStomp(self, send: Any, number: int) -> None:
        topic = f"t/{number}"
        for id, ack in (("1", "client"), ("2", "client-individual")):
            send(frame("SUBSCRIBE", id=id, ack=ack, destination=topic, eventId="OFFSET_FIRST"))
        send(frame("SUBSCRIBE", id="3", destination=f"s/{number}/#,s/+/{number}"))
        send(frame("BEGIN", transaction=f"tx{number}"))
        send(frame("SEND", "held", transaction=f"tx{number}", destination=topic))

    def speakMqtt(self, number: int) -> None:
        """Have sessions, present and absent, with all that they may hold."""
        present = Socket(self._ports["mqtt"])
        self._connect(present, number, "m")
        topic = f"m/{number}"
        filters = [(topic, 1), (f"{topic}/+", 2), (f"$share/g{number}/{topic}/s", 1)]
        present.send(mqtt.subscribe(mqtt.V5, 1, filters))
        present.packet(mqtt.SUBACK)
        retained = mqtt.publish(mqtt.V5, f"r/{number}", b"x", qos=1, packetId=1, retain=True)
        present.send(retained)
        present.packet(mqtt.PUBACK)
        alias = [("topicAlias", 1)]
        present.send(
            mqtt.publish(mqtt.V5, topic, b"x", qos=2, packetId=2, properties_=alias)
            + mqtt.publish(mqtt.V5, f"{topic}/two", b"x", qos=2, packetId=3)
            + mqtt.publish(mqtt.V5, f"{topic}/s", b"x", qos=1, packetId=4)
        )
        # They are neither acknowledged nor released.
        for _ in range(2):
            present.packet(mqtt.PUBLISH)
        self._open.append(present)
        absent = Socket(self._ports["mqtt"])
        self._connect(
            absent, number, "a", mqtt.Will(topic=f"w/{number}", properties=[("willDelay", 900)])
        )
        absent.send(mqtt.subscribe(mqtt.V5, 1, [(f"t/{number}", 1), (f"r/{number}", 2)]))
        absent.packet(mqtt.PUBLISH)
        absent.send(mqtt.publish(mqtt.V5, topic, b"x", qos=2, packetId=2))
        absent.packet(mqtt.PUBREC)
        absent.close()
        gone = Socket(self._ports["mqtt"])
        user, password = name(number), token(number).encode()
        gone.send(mqtt.connect(mqtt.V4, f"g{number}", user=user, password=password))
        gone.packet(mqtt.CONNACK)
        gone.send(mqtt.disconnect(mqtt.V4))
        gone.close()

    def _connect(
        self, connection: Socket, number: int, prefix: str, will: mqtt.Will | None = None
    ) -> None:
        connection.send(
            mqtt.connect(
                mqtt.V5,
                f"{prefix}{number}",
                will=will,
                user=name(number),
                password=token(number).encode(),
                properties_=[("sessionExpiry", 3600), ("topicAliasMaximum", 10)],
            )
        )
        connection.packet(mqtt.CONNACK)

    def overWebSocket(self, number: int) -> None:
        """STOMP and MQTT over WebSocket."""
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: "
        )
        stomp = self._ask("/stomp", number, f"{upgrade}v12.stomp\r\n")
        stomp.until(b"\r\n\r\n")
        client = WebSocket(ConnectionType.CLIENT)

        def send(data: bytes) -> None:
            stomp.send(client.send(TextMessage(data.decode())))

        send(frame("CONNECT", accept_version="1.2", **logIn(number)))
        stomp.until(b"CONNECTED")
        self._useStomp(send, number)
        stomp.until(b"MESSAGE")
        other = self._ask("/mqtt", number, f"{upgrade}mqtt\r\n")
        other.until(b"\r\n\r\n")
        user, password = name(number), token(number).encode()
        packet = mqtt.connect(mqtt.V4, f"w{number}", clean=False, user=user, password=password)
        packet += mqtt.subscribe(mqtt.V4, 1, [(f"w/{number}", 1)])
        other.send(WebSocket(ConnectionType.CLIENT).send(BytesMessage(packet)))
        other.until(b"\x90\x03\0\1\1")

    def look(self, choose: Callable[[int, int], int]) -> dict[str, int]:
        """
        Look at the containers some times, when the daemon has answered later calls: what is under
        way comes and goes.

        @param choose: of the sizes of a container, the one that counts.
        """
        found: dict[str, int] = {}
        for number in range(LOOKS):
            for _ in range(LOOKS):
                self.call(0, "/rest/publish", topic="t/0", content="settled")
            seen = blockingCallFromThread(reactor, sizes)
            names = seen.keys() | found.keys()
            found = (
                {each: choose(seen[each], found.get(each, 0)) for each in names}
                if number
                else dict(seen)
            )
        return found


def name(number: int) -> str:
    """The name of an account."""
    return f"a{number}"


def token(number: int) -> str:
    """The token of an account."""
    return f"token-of-{number}"


def logIn(number: int) -> dict[str, str]:
    """The headers of STOMP by which an account logs in."""
    return {"login": name(number), "passcode": token(number)}


def accounts(count: int) -> str:
    """A file of accounts, whose password is cheap to verify."""
    cheap = argon2id.str(b"password", argon2id.OPSLIMIT_MIN, argon2id.MEMLIMIT_MIN).decode()
    lines = []
    for number in range(count):
        digest = sha256(token(number).encode()).hexdigest()
        lines += [f"[accounts.{name(number)}]", f'password = "{cheap}"', 'roles = ["everything"]']
        lines += [f'tokens = [{{ label = "t", sha256 = "{digest}" }}]']
    return "\n".join(lines)


def drive(service: Any, answer: list[str]) -> None:
    """Send everything, and say what has grown. Called in a thread."""
    try:
        ports = {port.plan.name: int(port.address.rpartition(":")[2]) for port in service._ports}
        clients = Clients(ports)
        clients.run(range(COUNT))
        before = clients.look(max)
        clients.run(range(COUNT, 3 * COUNT))
        after = clients.look(min)
        for each in sorted(after):
            grown = after[each] - before.get(each, 0)
            if grown >= COUNT / 2:
                answer.append(f"{each} {grown}")
    except BaseException:
        traceback.print_exc()
    finally:
        reactor.callFromThread(reactor.stop)


def main(directory: Path) -> int:
    """Run the daemon and its clients."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "accounts.toml"
    file.write_text(accounts(3 * COUNT))
    file.chmod(0o600)
    options = tap.Options()
    endpoint = f"tcp:0:interface={LOCAL}"
    options.parseOptions(
        [
            *(f"--{port}={endpoint}" for port in PORTS),
            f"--data-dir={directory / 'data'}",
            f"--accounts={file}",
            "--webhook-allow=127.0.0.0/8",
            "--find",
        ]
    )
    service: Any = tap.makeService(options)
    answer: list[str] = []
    service.privilegedStartService()
    service.startService()
    thread = threading.Thread(target=drive, args=(service, answer), daemon=True)

    def begin(_: object) -> None:
        thread.start()

    reactor.callWhenRunning(lambda: service._starting.addCallback(begin))
    reactor.run()
    sys.stdout.write("".join(f"{line}\n" for line in answer))
    sys.stdout.flush()
    return 0 if answer else 1


if __name__ == "__main__":
    # Nothing of the daemon is needed any more: its threads are not waited for.
    os._exit(main(Path(sys.argv[1])))
