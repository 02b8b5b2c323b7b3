"""
Tests of L{svcbroker.net.proxied}.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.net.proxied import ProxiedFactory

PROXY = IPv4Address("TCP", "10.0.0.1", 5)
CLIENT = IPv4Address("TCP", "192.0.2.7", 7)
VERSION_2 = b"\r\n\r\n\0\r\nQUIT\n"


class Recorder(Protocol):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        self.received += data


class HeaderTests(SynchronousTestCase):
    """PROXY headers."""

    def connect(self, *data: bytes) -> tuple[Any, StringTransport]:
        """The protocol that has received some pieces of data, and its transport."""
        protocol = ProxiedFactory(Factory.forProtocol(Recorder)).buildProtocol(PROXY)
        transport = StringTransport(peerAddress=PROXY)
        protocol.makeConnection(transport)
        for each in data:
            protocol.dataReceived(each)
        return protocol, transport

    def test_headersNameTheClient(self) -> None:
        """Where there are no addresses, the connection is the proxy's own."""
        for header, peer in (
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n", CLIENT),
            (b"PROXY UNKNOWN\r\n", PROXY),
            (b"PROXY UNKNOWN ffff::1 ffff::2 7 8\r\n", PROXY),
            (VERSION_2 + b"\x21\x11\0\x0c\xc0\0\2\7\xc0\0\2\x08\0\7\0\x08", CLIENT),
            (VERSION_2 + b"\x20\0\0\0", PROXY),
        ):
            for end in (len(header), 16):
                pieces = header[:end], header[end:] + b"hel", b"lo"
                protocol, transport = self.connect(*filter(None, pieces))
                self.assertEqual(protocol.wrappedProtocol.received, b"hello", header)
                self.assertEqual(protocol.getPeer(), peer)
                self.assertFalse(transport.disconnecting)

    def test_otherHeadersAreRefused(self) -> None:
        for header in (
            b"PROXY UNKNOWNS\r\n",
            b"PROXY TCP4\r\n",
            b"GET / HTTP/1.1\r\n",
            b"PROXY X\r\n",
        ):
            _, transport = self.connect(header)
            self.assertTrue(transport.disconnecting, header)
