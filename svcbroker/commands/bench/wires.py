"""
Requests and answers of the protocols, as a load sends and reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from .load import Broken

MQTT_311 = 4
MQTT_5 = 5

_READ_SIZE = 1 << 16
_MOST = 1 << 20


def ask(opened: socket, request: bytes, start: bytes, end: bytes = b"") -> bytes:
    """
    Send something, and wait for its answer, on a connection that blocks.

    @param start: what the answer begins with.
    @param end: what it is whole with.
    @return: the answer.
    @raise Broken: something else was answered, or nothing.
    """
    opened.sendall(request)
    received = b""
    while len(received) < len(start) or end not in received:
        received += read(opened)
        if not start.startswith(received[: len(start)]) or len(received) > _MOST:
            raise Broken(f"not {start!r}, but {received[:300]!r}")
    return received


def read(opened: socket) -> bytes:
    """
    What has come, at least one byte.

    @raise Broken: the connection ends.
    """
    data = opened.recv(_READ_SIZE)
    if not data:
        raise Broken("the server has closed a connection")
    return data


# HTTP


def httpRequest(
    method: bytes, target: bytes, type: bytes = b"", body: bytes = b"", head: bytes = b""
) -> bytes:
    """
    A request.

    @param head: the header C{Host} and others, each with the end of its line.
    """
    lines = b"%b %b HTTP/1.1\r\n%b" % (method, target, head or b"Host: 127.0.0.1\r\n")
    if body:
        lines += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (type, len(body))
    return lines + b"\r\n" + body


# MQTT


def packet(first: int, *parts: bytes) -> bytes:
    """A control packet of MQTT."""
    body = b"".join(parts)
    length = len(body)
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + body


def text(words: str) -> bytes:
    """A string of MQTT, with its length."""
    encoded = words.encode("utf-8")
    return len(encoded).to_bytes(2, "big") + encoded


def connectPacket(clientId: str = "", version: int = MQTT_311, login: Sequence[str] = ()) -> bytes:
    """
    A CONNECT without a keep-alive, for a session that ends with the connection.

    @param login: the account's name and its password, where there are accounts.
    """
    properties = b"\0" if version == MQTT_5 else b""
    flags = 0xC2 if login else 2
    fields = (text("MQTT"), bytes((version, flags, 0, 0)), properties, text(clientId))
    return packet(0x10, *fields, *map(text, login))


def greet(opened: socket, clientId: str = "", login: Sequence[str] = ()) -> None:
    """
    Begin a connection in MQTT 3.1.1.

    @raise Broken: it is refused.
    """
    ask(opened, connectPacket(clientId, login=login), b"\x20\x02\x00\x00")


def publishPacket(topic: str, qos: int, packetId: int, content: bytes) -> bytes:
    """A PUBLISH in MQTT 3.1.1."""
    identifier = packetId.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1, text(topic), identifier, content)


# STOMP


def connectFrame(login: Sequence[str] = ()) -> bytes:
    """
    A CONNECT of STOMP 1.2 without heart-beats.

    @param login: the account's name and its password, where there are accounts.
    """
    credentials = b""
    if login:
        credentials = b"login:%b\npasscode:%b\n" % tuple(_escaped(each) for each in login)
    return b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n%b\n\0" % credentials


def sendFrame(destination: str, number: int, content: bytes) -> bytes:
    """A SEND with a receipt, persistent where the broker knows a difference."""
    return b"SEND\ndestination:%b\npersistent:true\nreceipt:%06d\ncontent-length:%d\n\n%b\0" % (
        _escaped(destination),
        number,
        len(content),
        content,
    )


def _escaped(text: str) -> bytes:
    for each, escape in (("\\", r"\\"), ("\r", r"\r"), ("\n", r"\n"), (":", r"\c")):
        text = text.replace(each, escape)
    return text.encode("utf-8")
