"""
Subscriptions that a client makes right after a publish, on a ledger that decides later.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from struct import pack

from twisted.internet.threads import deferToThread

from .daemon import LOCAL, DaemonTestCase

CONNECT = b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c"
STOMP = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


def mqttPublish(content: bytes, flags: int) -> bytes:
    """PUBLISH of MQTT 3.1.1, to the topic t with QoS 0."""
    body = pack(">H", 1) + b"t" + content
    return bytes((0x30 | flags, len(body))) + body


def send(headers: str, content: bytes) -> bytes:
    """SEND of STOMP."""
    return f"SEND\n{headers}\n\n".encode() + content + b"\0"


def exchange(address: tuple[str, int], data: bytes, end: bytes) -> bytes:
    """Write in one piece, and read up to some bytes."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(data)
        read = b""
        while end not in read:
            read += connection.recv(65536) or end
        return read


class OwnPublishTests(DaemonTestCase):
    """
    A subscription from now on begins after what its client has published before.
    """

    async def test_subscriptionBeginsAfterEarlierPublishes(self) -> None:
        daemon = await self.start(f"--mqtt={LOCAL}", f"--stomp={LOCAL}", ledger="pbft")
        addresses = {}
        for name in ("http", "mqtt", "stomp"):
            found = await daemon.protocol.waitFor(rf"{name.upper()} on (\S+):(\d+)")
            addresses[name] = (found[1], int(found[2]))
        await daemon.call("/rest/open", topic="t")
        for carrier, check in (
            ("mqtt", self.checkMqtt),
            ("stomp", self.checkStomp),
            ("stomp", self.checkCommit),
            ("http", self.checkStream),
        ):
            await deferToThread(check, addresses[carrier])

    def checkMqtt(self, address: tuple[str, int]) -> None:
        """[MQTT-3.3.1-6] [MQTT-3.3.1-8]: the message from before is a retained one."""
        subscribe = b"\x82\x06\0\1\0\1t\0"
        before, after = mqttPublish(b"before", 1), mqttPublish(b"after", 0)
        read = exchange(address, CONNECT + before + subscribe + after, after)
        self.assertEqual(read, b"\x20\2\0\0\x90\3\0\1\0" + before + after)

    def checkStomp(self, address: tuple[str, int]) -> None:
        """SEND, SUBSCRIBE, SEND."""
        subscribe = b"SUBSCRIBE\nid:1\ndestination:t\n\n\0"
        before, after = (send("destination:t", each) for each in (b"before", b"after"))
        read = exchange(address, STOMP + before + subscribe + after, b"after\0")
        self.assertEqual((read.count(b"MESSAGE\n"), b"before" in read), (1, False))

    def checkCommit(self, address: tuple[str, int]) -> None:
        """The same with a transaction."""
        subscribe = b"SUBSCRIBE\nid:1\ndestination:t\n\n\0"
        begin, commit = (b"%b\ntransaction:x\n\n\0" % each for each in (b"BEGIN", b"COMMIT"))
        before = begin + send("destination:t\ntransaction:x", b"before") + commit
        after = send("destination:t", b"after")
        read = exchange(address, STOMP + before + subscribe + after, b"after\0")
        self.assertEqual((read.count(b"MESSAGE\n"), b"before" in read), (1, False))

    def checkStream(self, address: tuple[str, int]) -> None:
        """A stream in the same connection of HTTP, pipelined behind the publish."""
        host = b" HTTP/1.1\r\nHost: %b:%d\r\n\r\n" % (address[0].encode(), address[1])
        call = b"GET /svcbroker/rest/"
        with socket.create_connection(address, 60) as connection:
            connection.sendall(call + b"publish?topic=t&content=before" + host)
            connection.sendall(call + b"follow?topic=t" + host)
            read = b""
            while b"retry:" not in read:
                read += connection.recv(65536) or b"retry:"
            exchange(address, call + b"publish?topic=t&content=after" + host, b"SUCCESS")
            while b"event: event" not in read:
                read += connection.recv(65536) or b"event: event"
        contents = [b64encode(each) in read for each in (b"before", b"after")]
        self.assertEqual(contents, [False, True])
