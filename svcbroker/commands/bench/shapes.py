"""
Shapes of loads: publishes over each protocol, their requests and their answers.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from itertools import cycle, repeat
from socket import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from attrs import frozen

from .load import Broken, Shape

if TYPE_CHECKING:
    from ...client import Client


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
    Read the bytes that have come, at least one.

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


CYCLE: Final = 4096
"""After so many publishes of a connection its packet identifiers and receipts come again."""

_SUCCESS: Final = b'"status":"SUCCESS"'


@frozen(kw_only=True)
class LoadTarget:
    """
    The broker that is measured.

    @ivar client: a client of it.
    @ivar url: its base address.
    @ivar headers: the headers with the credentials.
    @ivar login: the account's name and password, for protocols without headers.
    @ivar group: the group; C{None} for the broker's.
    @ivar context: that of TLS; C{None} without.
    """

    client: Client
    url: str
    headers: Mapping[str, str]
    login: tuple[str, ...]
    group: str | None
    context: ssl.SSLContext | None

    @property
    def host(self) -> str:
        """The host of its URL."""
        return str(urlsplit(self.url).hostname)

    @property
    def isLocal(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def makeShape(
    target: LoadTarget, over: str, topic: str, content: bytes, window: int, batch: int
) -> Shape:
    """
    Make the shape of a load: its requests, and the answers that must come.

    @param over: the protocol: rest, jsonrpc, mqtt or stomp.
    @param window: how many publishes are under way on each connection of mqtt and stomp.
    @param batch: how many events each request of jsonrpc has.
    """
    if over == "rest":
        return _restShape(target, topic, content)
    if over == "jsonrpc":
        return _rpcShape(target, topic, content, batch)
    if over == "mqtt":
        packets = [publishPacket(topic, 1, number, content) for number in range(1, CYCLE + 1)]
        return Shape(
            requests=lambda number: cycle(packets),
            check=_checkPuback,
            split=lambda received: (received[:4], received[4:]) if len(received) > 3 else None,
            window=window,
            greet=lambda opened: greet(opened, login=target.login),
        )
    frames = [sendFrame(topic, number, content) for number in range(CYCLE)]
    if target.group is not None:
        header = b"\ngroupId:%b\n" % target.group.encode("utf-8")
        frames = [each.replace(b"\n", header, 1) for each in frames]
    return Shape(
        requests=lambda number: cycle(frames),
        check=_checkReceipt,
        split=_splitFrame,
        window=window,
        greet=lambda opened: _connectStomp(opened, target.login),
    )


def _connectStomp(opened: socket, login: Sequence[str]) -> None:
    ask(opened, connectFrame(login), b"CONNECTED\n", b"\0")


def _head(target: LoadTarget) -> bytes:
    lines = {"Host": urlsplit(target.url).netloc, **target.headers}
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")


def _restShape(target: LoadTarget, topic: str, content: bytes) -> Shape:
    group = "" if target.group is None else f"&groupId={quote(target.group)}"
    fields = f"topic={quote(topic, safe='')}{group}&content=".encode("ascii") + content
    request = httpRequest(
        b"POST",
        f"{urlsplit(target.url).path}/rest/publish".encode("ascii"),
        b"application/x-www-form-urlencoded",
        fields,
        _head(target),
    )
    return Shape(requests=lambda number: repeat(request), check=_counting(1))


def _rpcShape(target: LoadTarget, topic: str, content: bytes, batch: int) -> Shape:
    params = {"topic": topic, "content": b64encode(content).decode("ascii")}
    if target.group is not None:
        params["groupId"] = target.group
    calls = [
        {"jsonrpc": "2.0", "id": str(number), "method": "publish", "params": params}
        for number in range(batch)
    ]
    request = httpRequest(
        b"POST",
        f"{urlsplit(target.url).path}/jsonrpc".encode("ascii"),
        b"application/json",
        json.dumps(calls if batch > 1 else calls[0]).encode("utf-8"),
        _head(target),
    )
    return Shape(requests=lambda number: repeat(request), check=_counting(batch))


def _counting(events: int) -> Callable[[bytes], int]:
    def check(body: bytes) -> int:
        if body.count(_SUCCESS) != events:
            raise Broken(f"not published: {body[:300].decode('utf-8', 'replace')}")
        return events

    return check


def _checkPuback(answer: bytes) -> int:
    if answer[:2] != b"\x40\x02":
        raise Broken(f"not an acknowledgement of MQTT: {answer!r}")
    return 1


def _splitFrame(received: bytes) -> tuple[bytes, bytes] | None:
    # Between frames there may be ends of lines.
    frame, end, rest = received.lstrip(b"\r\n").partition(b"\0")
    return (frame, rest.lstrip(b"\r\n")) if end else None


def _checkReceipt(frame: bytes) -> int:
    if not frame.startswith(b"RECEIPT\n"):
        raise Broken(f"not a receipt of STOMP: {frame[:300].decode('utf-8', 'replace')}")
    return 1
