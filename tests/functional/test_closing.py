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
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from tests.certificates import makeCertificate

from .daemon import LOCAL, Daemon, DaemonTestCase

SOON = 1.5
"""Seconds within which a refused client has the end of what the daemon sends: the daemon gives up
later, after 2, 5 or 10."""

TRIES = 5
"""How often that is tried, since a busy machine may take longer. Giving up never takes less."""

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
    @ivar code: the code of the Close that has come last over WebSocket; C{None} over TCP.
    """

    data: bytes
    seconds: float
    code: int | None


class Client:
    """
    A blocking client, which writes everything before it reads.

    @ivar code: see L{Ended}.
    @ivar isEnded: whether it sends nothing more.
    """

    code: int | None = None
    isEnded = False

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
            data = self.readAll()
            return Ended(data, time.monotonic() - began, self.code)

    def readAll(self) -> bytes:
        """Everything up to the end of the stream."""
        read = b""
        while data := self.socket.recv(65536):
            read += data
        return read


class WebSocketClient(Client):
    """
    A client over WebSocket.
    """

    def __init__(self, host: str, port: int, path: str, subprotocol: str, *, isTls: bool) -> None:
        super().__init__(host, port, isTls=isTls)
        self.websocket = WebSocket(ConnectionType.CLIENT)
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
                # Nothing comes behind Close.
                self.code = None
                if isinstance(event, BytesMessage):
                    content += bytes(event.data)
                elif isinstance(event, TextMessage):
                    content += event.data.encode()
                elif isinstance(event, CloseConnection):
                    self.code = event.code
                    if event.code == 1000 and not self.isEnded:
                        self.socket.sendall(self.websocket.send(event.response()))
        return content


class ClosingTestCase(DaemonTestCase):
    """
    A test of a daemon with all its ports.
    """

    async def serve(self, endpoint: str, *, isTls: bool, ledger: str = "memory") -> Daemon:
        """Start a daemon, all of whose ports are such an endpoint."""
        self.isTls = isTls
        options = [f"--mqtt={endpoint}", f"--stomp={endpoint}"]
        daemon = await self.start(*options, http=endpoint, ledger=ledger)
        self.addresses = {}
        for name in ("http", "mqtt", "stomp"):
            found = await daemon.protocol.waitFor(rf"{name.upper()} on (\S+):(\d+)")
            self.addresses[name] = (found[1], int(found[2]))
        return daemon


class RefusalTests(ClosingTestCase):
    """
    A refused client gets the reason and then the end of the stream, though it was in the middle of
    a write and had not read. A reset connection would lose both.
    """

    def onTcp(self, name: str, data: bytes) -> Callable[[], Ended]:
        """What a client of a port sends before its junk."""
        host, port = self.addresses[name]
        return lambda: Client(host, port, isTls=self.isTls).finish(data + JUNK)

    def onWebSocket(self, path: str, subprotocol: str, data: bytes) -> Callable[[], Ended]:
        """The same over WebSocket."""

        def run() -> Ended:
            client = self.webSocket(path, subprotocol)
            return client.finish(client.messages(data, JUNK))

        return run

    def unmasked(self) -> Ended:
        """A frame that is not masked, which breaks RFC 6455, 5.1."""
        return self.webSocket("mqtt", "mqtt").finish(b"\x82\x05hello" + JUNK)

    def webSocket(self, path: str, subprotocol: str) -> WebSocketClient:
        """A client over WebSocket."""
        return WebSocketClient(*self.addresses["http"], path, subprotocol, isTls=self.isTls)

    async def check(self, endpoint: str, *, isTls: bool) -> None:
        """Refuse clients of all carriers, and stop while some are connected."""
        daemon = await self.serve(endpoint, isTls=isTls)
        stomp = b"NONSENSE\n\n\0"
        await self.refuse(self.checkMqtt, self.onTcp("mqtt", CONNECT + CONNECT))
        await self.refuse(self.checkStomp, self.onTcp("stomp", stomp))
        await self.refuse(
            self.checkMqtt, self.onWebSocket("mqtt", "mqtt", CONNECT + CONNECT), code=1000
        )
        await self.refuse(self.checkStomp, self.onWebSocket("stomp", "v12.stomp", stomp), code=1000)
        await self.refuse(self.checkNothing, self.unmasked, code=1002)
        for _ in range(TRIES):
            seconds = await self.stop(daemon)
            if seconds < SOON:
                return
            daemon = await self.serve(endpoint, isTls=isTls)
        self.fail(f"the last stop took {seconds} seconds")

    async def refuse(
        self, check: Callable[[bytes], None], run: Callable[[], Ended], code: int | None = None
    ) -> None:
        """
        Have clients refused, until one has the end soon.

        @param check: checks what each has read.
        @param code: the code of the Close that each has got over WebSocket.
        """
        for _ in range(TRIES):
            ended: Ended = await deferToThread(run)
            check(ended.data)
            self.assertEqual(ended.code, code)
            if ended.seconds < SOON:
                return
        self.fail(f"the end came after {ended.seconds} seconds")

    async def stop(self, daemon: Daemon) -> float:
        """
        Clients that close when the daemon does are not waited for any longer.

        @return: how many seconds the stop takes.
        """
        client = Client(*self.addresses["mqtt"], isTls=self.isTls)
        websocket = self.webSocket("mqtt", "mqtt")
        ends = [deferToThread(client.finish, CONNECT)]
        ends.append(deferToThread(websocket.finish, websocket.messages(CONNECT)))
        began = time.monotonic()
        self.assertEqual(await daemon.stop(), 0)
        seconds = time.monotonic() - began
        await DeferredList(ends, fireOnOneErrback=True)
        return seconds

    def checkMqtt(self, data: bytes) -> None:
        """CONNACK, and DISCONNECT with "protocol error"."""
        self.assertEqual(data[0], 0x20)
        disconnect = data[2 + data[1] :]
        self.assertEqual((disconnect[0], disconnect[2]), (0xE0, 0x82))
        self.assertIn(b"there was a CONNECT already", disconnect)

    def checkStomp(self, data: bytes) -> None:
        """ERROR."""
        self.assertTrue(data.startswith(b"ERROR\n"), data)

    def checkNothing(self, data: bytes) -> None:
        """No message."""
        self.assertEqual(data, b"")

    async def test_reasonArrivesOverTcp(self) -> None:
        await self.check(LOCAL, isTls=False)

    async def test_reasonArrivesOverTls(self) -> None:
        key, certificate = makeCertificate(self.root)
        await self.check(
            f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}", isTls=True
        )


EVENTS = 300
"""More publishes than a carrier handles without a look at the time."""


class HalfClosedTests(ClosingTestCase):
    """
    A client that writes its publishes, ends its own direction as C{nc -N} does and reads on gets
    an answer to each, and then the end of the stream.
    """

    def finish(self, client: Client, data: bytes) -> bytes:
        """What comes for these bytes, of which no more follow."""
        with client.socket:
            client.socket.sendall(data)
            client.isEnded = True
            client.socket.shutdown(socket.SHUT_WR)
            return client.readAll()

    async def serveTopic(self, endpoint: str = LOCAL) -> Daemon:
        """A daemon with a topic, whose publishes are not final at once."""
        daemon = await self.serve(endpoint, isTls=False, ledger="pbft:nodes=4")
        await daemon.call("/rest/open", topic="t")
        return daemon

    async def check(self, data: bytes, answer: bytes, carrier: str, path: str = "") -> None:
        """
        Write publishes at once.

        @param answer: what comes for each.
        @param carrier: its port.
        @param path: that of a WebSocket; empty for plain TCP.
        """
        daemon = await self.serveTopic()
        client: Client
        if path:
            client = WebSocketClient(*self.addresses["http"], path, carrier, isTls=False)
            data = client.messages(data)
        else:
            client = Client(*self.addresses[carrier], isTls=False)
        read = await deferToThread(self.finish, client, data)
        self.assertEqual(read.count(answer), EVENTS, read[-1000:])
        self.assertEqual(await daemon.stop(), 0)

    async def test_plainRequestsAreAnswered(self) -> None:
        body = b"topic=t&content=x"
        head = b"POST /svcbroker/rest/publish HTTP/1.1\r\nHost: localhost\r\n"
        head += (
            b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        await self.check((head + body) * EVENTS, b'"SUCCESS"', "http")

    async def test_unusualRequestsAreAnswered(self) -> None:
        """Those that twisted.web reads."""
        call = (
            b'{"jsonrpc":"2.0","id":1,"method":"publish","params":{"topic":"t","content":"eA=="}}'
        )
        head = b"POST /svcbroker/jsonrpc HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
        request = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(call), call)
        await self.check(request * EVENTS, b'"SUCCESS"', "http")

    def stompFrames(self) -> bytes:
        """CONNECT and SENDs with receipts, without DISCONNECT."""
        send = b"SEND\ndestination:t\nreceipt:r\n\nx\0"
        return b"CONNECT\naccept-version:1.2\nhost:h\n\n\0" + send * EVENTS

    async def test_stompIsAnswered(self) -> None:
        await self.check(self.stompFrames(), b"RECEIPT\n", "stomp")

    async def test_stompOverWebSocketIsAnswered(self) -> None:
        await self.check(self.stompFrames(), b"RECEIPT\n", "v12.stomp", "stomp")

    def mqttPackets(self) -> bytes:
        """CONNECT and PUBLISHes with QoS 1, without DISCONNECT."""
        return CONNECT + b"".join(
            b"\x32\x07\0\1t%b\0x" % number.to_bytes(2) for number in range(1, EVENTS + 1)
        )

    async def test_mqttIsAnswered(self) -> None:
        await self.check(self.mqttPackets(), b"\x40\x02", "mqtt")

    async def test_mqttOverWebSocketIsAnswered(self) -> None:
        await self.check(self.mqttPackets(), b"\x40\x02", "mqtt", "mqtt")

    async def test_followerLeaves(self) -> None:
        """A stream of events, which has no end of its own, ends with its client."""
        daemon = await self.serveTopic()
        client = Client(*self.addresses["http"], isTls=False)
        request = b"GET /svcbroker/rest/follow?topics=t HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.socket.sendall(request)
        head = await deferToThread(client.socket.recv, 65536)
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        await deferToThread(self.finish, client, b"")
        self.assertEqual(await daemon.stop(), 0)
