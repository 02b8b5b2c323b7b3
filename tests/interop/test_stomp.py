"""
Clients of others: stomp.py over TCP, @stomp/stompjs on Node over WebSocket.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue

from tests.functional.daemon import LOCAL, Daemon, DaemonTestCase, reactor
from tests.needed import neededProgram, needPackage
from tests.waiting import TIMEOUT as TIMEOUT

from .node import nodeModules

with contextlib.suppress(ImportError):
    import stomp

HERE = Path(__file__).parent
PACKAGES = ("@stomp/stompjs", "ws")
"""From npm; ws is Node's WebSocket before version 22."""

OWN = "12345678-1234-4234-8234-123456789abc"
STOMP_AT = re.compile(r"STOMP on (\S+):(\d+)")


class Frames:
    """
    A listener of stomp.py that keeps everything; its methods are called in a thread of its own.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, dict[str, str], Any]] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        """A MESSAGE has come."""
        self._queue.put(("MESSAGE", frame.headers, frame.body))

    def on_receipt(self, frame: Any) -> None:
        """A RECEIPT has come."""
        self._queue.put(("RECEIPT", frame.headers, frame.body))

    def on_error(self, frame: Any) -> None:
        """An ERROR has come."""
        self._queue.put(("ERROR", frame.headers, frame.body))

    def on_disconnected(self) -> None:
        """The connection has ended."""
        self._queue.put(("", {}, None))

    def next(self, command: str) -> tuple[dict[str, str], Any]:
        """The headers and the body of the next frame, which must be of this command."""
        found, headers, body = self._queue.get(timeout=TIMEOUT)
        assert found == command, (found, headers, body)
        return headers, body

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args: None
        raise AttributeError(name)


def sendToItself(connection: Any, topic: str, content: bytes, *login: str) -> Any:
    """
    Have a connection of stomp.py subscribe to a topic, and send to it. Waits: call it in a thread.

    @param login: a name and a password.
    @return: the content of the message that comes.
    """
    frames = Frames()
    connection.set_listener("", frames)
    connection.connect(*login, wait=True, with_connect_command=True)
    connection.subscribe(topic, id="1", headers={"receipt": "subscribed"})
    frames.next("RECEIPT")
    connection.send(topic, content)
    _, body = frames.next("MESSAGE")
    connection.disconnect()
    return body


def sendOverTLS(address: tuple[str, int], topic: str, content: bytes, **tls: Any) -> Any:
    """
    Do so over TLS.

    @param tls: what C{set_ssl} takes.
    """
    connection = stomp.StompConnection12([address], auto_decode=False)
    connection.set_ssl([address], **tls)
    return sendToItself(connection, topic, content)


class InteropTestCase(DaemonTestCase):
    """A daemon with STOMP."""

    ledger = "pbft:nodes=4"

    async def serve(self, *topics: str) -> tuple[Daemon, str, int]:
        """A daemon with some topics, and where it speaks STOMP."""
        daemon = await self.start(f"--stomp={LOCAL}", ledger=self.ledger)
        found = STOMP_AT.search(daemon.protocol.output)
        assert found is not None, daemon.protocol.output
        for topic in topics:
            self.assertIs(await daemon.call("/rest/open", topic=topic), True)
        return daemon, found[1], int(found[2])


class StompPyTests(InteropTestCase):
    """stomp.py, in each version that it speaks."""

    def setUp(self) -> None:
        needPackage("stomp", "interop")
        super().setUp()

    def connect(self, kind: Any, host: str, port: int, **more: Any) -> tuple[Any, Frames]:
        """A connection of stomp.py, and what it gets. Called in a thread."""
        connection = kind([(host, port)], auto_decode=False, **more)
        frames = Frames()
        connection.set_listener("", frames)
        connection.connect(wait=True, with_connect_command=False)
        return connection, frames

    def test_version10Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("StompConnection10"))

    def test_version11Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("StompConnection11", heartbeats=(1000, 1000)))

    def test_version12Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("StompConnection12", heartbeats=(1000, 1000)))

    async def tour(self, name: str, **more: Any) -> None:
        """Subscribe, send, get, acknowledge, roll back, be refused."""
        daemon, host, port = await self.serve("py/one", "py/two")
        await deferToThread(self.inThread, getattr(stomp, name), host, port, more)
        self.assertEqual(await daemon.stop(), 0)
        self.assertNotIn("Traceback", daemon.protocol.output)

    def inThread(self, kind: Any, host: str, port: int, more: dict[str, Any]) -> None:
        """The tour, which stomp.py takes in threads."""
        connection, frames = self.connect(kind, host, port, **more)
        connection.subscribe(
            "py/one,py/two", id="1", ack="client", headers={"receipt": "subscribed"}
        )
        headers, _ = frames.next("RECEIPT")
        subscriptionId = headers["subscription-id"]
        body = b"\0h\xc3\xa4llo\xff\n\0"
        connection.send("py/one", body, headers={"svc-tag": "red", "receipt": "sent"})
        got = dict(sorted((frames._queue.get(timeout=TIMEOUT)[:2]) for _ in range(2)))
        self.assertEqual(got["RECEIPT"]["receipt-id"], "sent")
        message = got["MESSAGE"]
        self.assertEqual(message["eventId"], got["RECEIPT"]["eventId"])
        self.assertEqual((message["destination"], message["svc-tag"]), ("py/one", "red"))
        self.assertEqual(message["subscription-id"], subscriptionId)
        self.acknowledge(connection, message)
        connection.begin(transaction="t")
        connection.send("py/two", "1", transaction="t")
        connection.abort("t")
        connection.begin(transaction="t")
        connection.send("py/two", "2", transaction="t")
        connection.send("py/one", "3", transaction="t")
        connection.commit("t")
        for expected in (b"2", b"3"):
            headers, content = frames.next("MESSAGE")
            self.assertEqual(content, expected)
            self.acknowledge(connection, headers)
        connection.unsubscribe(id="1")
        connection.send("py/none", "x", headers={"receipt": "bad"})
        headers, _ = frames.next("ERROR")
        self.assertEqual((headers["code"], headers["receipt-id"]), ("100101", "bad"))
        frames.next("")

    def acknowledge(self, connection: Any, headers: dict[str, str]) -> None:
        """Acknowledge, as each version does."""
        if isinstance(connection, stomp.StompConnection12):
            connection.ack(headers["ack"])
        elif isinstance(connection, stomp.StompConnection11):
            connection.ack(headers["message-id"], headers["subscription"])
        else:
            connection.ack(headers["message-id"])

    def test_subscriptionResumes(self) -> Deferred[None]:
        """What was not acknowledged comes again, also from a daemon that was started again."""
        return Deferred.fromCoroutine(self.resume())

    async def resume(self) -> None:
        """The test."""
        daemon, host, port = await self.serve("py/one")

        def first() -> None:
            connection, frames = self.connect(stomp.StompConnection12, host, port)
            self.durable(connection)
            frames.next("RECEIPT")
            for number in range(5):
                connection.send("py/one", str(number))
            acks = [frames.next("MESSAGE")[0]["ack"] for _ in range(5)]
            connection.ack(acks[0])
            connection.ack(acks[1])
            connection.disconnect(receipt="bye")
            # stomp.py tells of the end before it tells of the receipt that made it end.
            frames.next("")
            self.assertEqual(frames.next("RECEIPT")[0]["receipt-id"], "bye")

        await deferToThread(first)
        self.assertEqual(await daemon.stop(), 0)
        daemon, host, port = await self.serve()

        def second() -> None:
            connection, frames = self.connect(stomp.StompConnection12, host, port)
            self.durable(connection)
            frames.next("RECEIPT")
            bodies = [frames.next("MESSAGE")[1] for _ in range(3)]
            self.assertEqual(bodies, [b"2", b"3", b"4"])
            connection.disconnect()

        await deferToThread(second)

    def durable(self, connection: Any) -> None:
        """Subscribe under an id of one's own."""
        connection.subscribe(
            "py/one",
            id="1",
            ack="client-individual",
            headers={"svc-subscriptionId": OWN, "receipt": "s"},
        )


class StompJsTests(InteropTestCase):
    """@stomp/stompjs on Node."""

    def test_version12Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("1.2"))

    def test_version11Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("1.1"))

    def test_version10Works(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour("1.0"))

    async def tour(self, version: str) -> None:
        """Subscribe, publish text, bytes and a transaction, acknowledge, be refused."""
        modules = nodeModules(*PACKAGES)
        daemon, _, _ = await self.serve("js/topic")
        url = daemon.base.replace("http://", "ws://") + "/stomp"
        pending = getProcessOutputAndValue(
            neededProgram("node"),
            [str(HERE / "stompjs.js"), modules, url, version],
            env=os.environ,
            reactor=reactor,
        )
        output, errors, code = await pending.addTimeout(TIMEOUT, reactor)
        self.assertEqual(code, 0, errors.decode())
        found = json.loads(output)
        self.assertEqual(found["version"], version)
        bodies = [b64decode(each["body"]) for each in found["messages"]]
        self.assertEqual(bodies, ["häl:lo\n".encode(), b"\0\xff\n\0", b"in a transaction"])
        first = found["messages"][0]["headers"]
        # stompjs neither escapes nor unescapes in 1.1.
        self.assertEqual(first["svc-tag"], "a\\cb" if version == "1.1" else "a:b")
        self.assertEqual(first["eventId"], found["receipt"]["eventId"])
        self.assertEqual((found["error"]["code"], found["error"]["receipt-id"]), ("100101", "bad"))
        self.assertEqual(await daemon.stop(), 0)
        self.assertNotIn("Traceback", daemon.protocol.output)
