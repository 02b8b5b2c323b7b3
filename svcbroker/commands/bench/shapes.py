"""
The loads of C{svcbroker bench}: publishes over each protocol.
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
from .wires import ask, connectFrame, greet, httpRequest, publishPacket, sendFrame

if TYPE_CHECKING:
    from ...client import Client

CYCLE: Final = 4096
"""After so many publishes of a connection its packet identifiers and receipts come again."""

_SUCCESS: Final = b'"status":"SUCCESS"'


@frozen(kw_only=True)
class Target:
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
        """Where it is."""
        return str(urlsplit(self.url).hostname)

    @property
    def isLocal(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def makeShape(
    target: Target, over: str, topic: str, content: bytes, window: int, batch: int
) -> Shape:
    """
    What is sent, and what must come back.

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


def _head(target: Target) -> bytes:
    lines = {"Host": urlsplit(target.url).netloc, **target.headers}
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")


def _restShape(target: Target, topic: str, content: bytes) -> Shape:
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


def _rpcShape(target: Target, topic: str, content: bytes, batch: int) -> Shape:
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
