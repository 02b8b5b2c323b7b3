"""
What the daemon sends last to clients that it refuses, on real sockets: TCP, TLS and WebSocket.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from attrs import define
from twisted.internet.defer import DeferredList
from twisted.internet.threads import deferToThread
from wsproto.connection import Connection as WebSocket
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, TextMessage

from tests.certificates import makeCertificate

from .daemon import LOCAL, Daemon, DaemonTestCase

SOON = 1.5
"""Seconds within which a refused client has the end of what the daemon sends: the daemon gives up
later, after 2, 5 or 10."""

JUNK = b"\0" * 8_000_000
"""More than the buffers of a connection: a client that writes it does not read meanwhile."""

CONNECT = b"\x10\x0d\0\4MQTT\5\2\0\0\0\0\0"
"""CONNECT of MQTT 5, whose second one in a connection is refused with DISCONNECT 0x82."""


@define
class Ended:
    """
    What a client has read.

    @ivar data: everything, up to the end of the stream.
    @ivar seconds: from the end of the client's write until then.
    """

    data: bytes
    seconds: float


class Client:
    """A blocking client, which writes everything before it reads."""

    def __init__(self, host: str, port: int, *, isTls: bool) -> None:
        self.socket: Any = socket.create_connection((host, port), 20)
        if isTls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)

    def finish(self, data: bytes) -> Ended:
        """Write, read to the end and close. A connection that is reset raises an error."""
        with self.socket:
            self.socket.sendall(data)
            began = time.monotonic()
            return Ended(self.readAll(), time.monotonic() - began)

    def readAll(self) -> bytes:
        """Everything up to the end of the stream."""
        read = b""
        while data := self.socket.recv(65536):
            read += data
        return read


class WebSocketClient(Client):
    """
    A client over WebSocket.

    @ivar events: what has come.
    """

    def __init__(self, host: str, port: int, path: str, subprotocol: str, *, isTls: bool) -> None:
        super().__init__(host, port, isTls=isTls)
        self.websocket = WebSocket(ConnectionType.CLIENT)
        self.events: list[Event] = []
        lines = (
            f"GET /svcbroker/{path} HTTP/1.1",
            f"Host: {host}:{port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            f"Sec-WebSocket-Protocol: {subprotocol}",
        )
        self.socket.sendall("\r\n".join((*lines, "", "")).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        assert b" 101 " in answer, answer

    def messages(self, *parts: bytes) -> bytes:
        """The frames of messages, one for each part."""
        return b"".join(self.websocket.send(BytesMessage(part)) for part in parts)

    def readAll(self) -> bytes:
        """The content of all messages up to the end of the stream; Close is answered."""
        content = b""
        while data := self.socket.recv(65536):
            self.websocket.receive_data(data)
            for event in self.websocket.events():
                self.events.append(event)
                if isinstance(event, BytesMessage):
                    content += bytes(event.data)
                elif isinstance(event, TextMessage):
                    content += event.data.encode()
                elif isinstance(event, CloseConnection) and event.code == 1000:
                    self.socket.sendall(self.websocket.send(event.response()))
        return content


class RefusalTests(DaemonTestCase):
    """
    A refused client gets the reason and then the end of the stream, though it was in the middle of
    a write and had not read. A reset connection would lose both.
    """

    def onTcp(self, name: str, data: bytes) -> Callable[[], Ended]:
        """What a client of a port sends before its junk."""
        host, port = self.addresses[name]
        return lambda: Client(host, port, isTls=self.isTls).finish(data + JUNK)

    def onWebSocket(
        self, path: str, subprotocol: str, data: bytes
    ) -> Callable[[], tuple[Ended, WebSocketClient]]:
        """The same over WebSocket."""
        host, port = self.addresses["http"]

        def run() -> tuple[Ended, WebSocketClient]:
            client = WebSocketClient(host, port, path, subprotocol, isTls=self.isTls)
            return client.finish(client.messages(data, JUNK)), client

        return run

    async def serve(self, endpoint: str, *, isTls: bool) -> Daemon:
        """Start a daemon, all of whose ports are such an endpoint."""
        self.isTls = isTls
        options = [f"--mqtt={endpoint}", f"--stomp={endpoint}"]
        daemon = await self.start(*options, http=endpoint)
        self.addresses = {}
        for name in ("http", "mqtt", "stomp"):
            found = await daemon.protocol.waitFor(rf"{name.upper()} on (\S+):(\d+)")
            self.addresses[name] = (found[1], int(found[2]))
        return daemon

    async def check(self, endpoint: str, *, isTls: bool) -> None:
        """Refuse clients of all carriers, and stop while some are connected."""
        daemon = await self.serve(endpoint, isTls=isTls)
        stomp = b"NONSENSE\n\n\0"
        ended: Any = await deferToThread(self.onTcp("mqtt", CONNECT + CONNECT))
        self.checkMqtt(ended)
        ended = await deferToThread(self.onTcp("stomp", stomp))
        self.checkStomp(ended)
        ended, client = await deferToThread(self.onWebSocket("mqtt", "mqtt", CONNECT + CONNECT))
        self.checkMqtt(ended)
        self.assertEqual(self.closeCode(client), 1000)
        ended, client = await deferToThread(self.onWebSocket("stomp", "v12.stomp", stomp))
        self.checkStomp(ended)
        self.assertEqual(self.closeCode(client), 1000)
        # A frame that is not masked breaks RFC 6455, 5.1.
        host, port = self.addresses["http"]
        client = WebSocketClient(host, port, "mqtt", "mqtt", isTls=isTls)
        ended = await deferToThread(client.finish, b"\x82\x05hello" + JUNK)
        self.assertEqual(self.closeCode(client), 1002)
        self.assertLess(ended.seconds, SOON)
        await self.stop(daemon)

    async def stop(self, daemon: Daemon) -> None:
        """Clients that close when the daemon does are not waited for any longer."""
        client = Client(*self.addresses["mqtt"], isTls=self.isTls)
        websocket = WebSocketClient(*self.addresses["http"], "mqtt", "mqtt", isTls=self.isTls)
        ends = [deferToThread(client.finish, CONNECT)]
        ends.append(deferToThread(websocket.finish, websocket.messages(CONNECT)))
        began = time.monotonic()
        self.assertEqual(await daemon.stop(), 0)
        self.assertLess(time.monotonic() - began, SOON)
        await DeferredList(ends, fireOnOneErrback=True)

    def checkMqtt(self, ended: Ended) -> None:
        """CONNACK, and DISCONNECT with "protocol error"."""
        self.assertEqual(ended.data[0], 0x20)
        disconnect = ended.data[2 + ended.data[1] :]
        self.assertEqual((disconnect[0], disconnect[2]), (0xE0, 0x82))
        self.assertIn(b"there was a CONNECT already", disconnect)
        self.assertLess(ended.seconds, SOON)

    def checkStomp(self, ended: Ended) -> None:
        """ERROR."""
        self.assertTrue(ended.data.startswith(b"ERROR\n"), ended.data)
        self.assertLess(ended.seconds, SOON)

    def closeCode(self, client: WebSocketClient) -> int:
        """The code of the Close that has come last."""
        last = client.events[-1]
        assert isinstance(last, CloseConnection), client.events
        return last.code

    async def test_reasonArrivesOverTcp(self) -> None:
        await self.check(LOCAL, isTls=False)

    async def test_reasonArrivesOverTls(self) -> None:
        key, certificate = makeCertificate(self.root)
        await self.check(
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}", isTls=True
        )
