"""
The MQTT client of these tests, over WebSocket: its frames are made and read here, byte by byte.
"""

from __future__ import annotations

import base64
import struct
from hashlib import sha1

from tests.carriers.mqtt.conformance.brokers import SocketBroker
from tests.carriers.mqtt.conformance.client import TIMEOUT, Closed, MqttClient

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

_KEY = base64.b64encode(b"sixteen bytes...").decode()
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_MASK = b"\x11\x22\x33\x44"
_MOST = 16_384


class WebSocketClient(MqttClient):
    """
    A connection over WebSocket.

    @ivar status: the status line that the upgrade was answered with.
    @ivar headers: and its headers, their names in lower case.
    @ivar sizes: how many bytes each frame with packets had.
    @ivar controls: control frames that came: opcode and payload.
    """

    def __init__(
        self,
        address: tuple[str, int],
        version: int,
        path: str = "/svcbroker/mqtt",
        subprotocols: str | None = "mqtt",
    ) -> None:
        super().__init__(SocketBroker(address), version)
        self.controls: list[tuple[int, bytes]] = []
        self._frames = bytearray()
        self.sizes: list[int] = []
        host = f"{address[0]}:{address[1]}"
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {_KEY}",
            "Sec-WebSocket-Version: 13",
        ]
        if subprotocols is not None:
            lines.append(f"Sec-WebSocket-Protocol: {subprotocols}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._socket.settimeout(TIMEOUT)
        while b"\r\n\r\n" not in self._frames:
            self._read()
        head, _, rest = bytes(self._frames).partition(b"\r\n\r\n")
        self._frames = bytearray(rest)
        self.status, *fields = head.decode().split("\r\n")
        pairs = (each.split(":", 1) for each in fields)
        self.headers = {name.lower(): value.strip() for name, value in pairs}
        if self.isUpgraded:
            accept = base64.b64encode(sha1((_KEY + _GUID).encode()).digest()).decode()
            if self.headers["sec-websocket-accept"] != accept:
                raise AssertionError(f"Sec-WebSocket-Accept is {self.headers}")

    @property
    def isUpgraded(self) -> bool:
        """Whether the server has agreed."""
        return self.status.split()[1] == "101"

    def frame(self, opcode: int, payload: bytes, isLast: bool = True) -> None:
        """Send one frame."""
        size = len(payload)
        head = bytes([(0x80 if isLast else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65_536:
            head += b"\xfe" + struct.pack(">H", size)
        else:
            head += b"\xff" + struct.pack(">Q", size)
        mask = (_MASK * (size // 4 + 1))[:size]
        masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
        self._socket.sendall(head + _MASK + masked.to_bytes(size, "big"))

    def send(self, data: bytes) -> None:
        """Send bytes in binary messages."""
        for start in range(0, len(data), _MOST):
            self.frame(BINARY, data[start : start + _MOST])

    def sendSlowly(self, data: bytes) -> None:
        """Send bytes, each in a message of its own."""
        for index in range(len(data)):
            self.frame(BINARY, data[index : index + 1])

    def _read(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed("the server closed the connection")
        self._frames += data

    def _take(self, count: int) -> bytes:
        while len(self._frames) < count:
            self._read()
        read = bytes(self._frames[:count])
        del self._frames[:count]
        return read

    def _fill(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        first, second = self._take(2)
        if first & 0x70 or second & 0x80:
            raise AssertionError(f"a frame that begins with {first:#x} {second:#x}")
        size = second
        if second == 126:
            (size,) = struct.unpack(">H", self._take(2))
        elif second == 127:
            (size,) = struct.unpack(">Q", self._take(8))
        payload = self._take(size)
        opcode = first & 0x0F
        if opcode >= CLOSE:
            self.controls.append((opcode, payload))
            if opcode == CLOSE:
                raise Closed(f"the server sent a close frame: {payload!r}")
        elif opcode in (BINARY, CONTINUATION):
            self._buffer += payload
            self.sizes.append(size)
        else:
            raise AssertionError("a text frame")  # [MQTT-6.0.0-1]
        self._socket.settimeout(TIMEOUT)
