"""
A connection that speaks HTTP/1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IProtocol
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from .encoding import CONTENT_TYPE

if TYPE_CHECKING:
    from .site import BrokerSite

MAX_HEADERS: Final = 64 * 1024
"""The largest request line and headers together, in bytes."""
LINGER: Final = 2.0
"""How long what a refused client still sends is thrown away, in seconds."""

_CLOSE = [b"close"]


class BrokerChannel(HTTPChannel):
    """
    A connection that can refuse a body before it is there, and can be drained.

    Who refuses a body must answer, keep reading for a moment, and only then close: a connection
    that is closed with unread bytes is reset, and the client may never see the answer.
    """

    MAX_LENGTH = MAX_HEADERS
    totalHeadersSize = MAX_HEADERS
    site: BrokerSite

    _isAnswering = False
    _isRefused = False
    _isLingering = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.channels.add(self)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        super().connectionLost(reason)
        self.site.channelLost(self)

    def refuseBody(self) -> None:
        """
        Have the request that arrives now answered without its body, and close then. Called by
        the request.
        """
        self._isRefused = True
        self._closeAfterAnswer()
        self._isAnswering = True
        super().allContentReceived()

    def drain(self) -> None:
        """
        Close as soon as the request that is there has been answered. One that has not yet
        arrived whole is not waited for.
        """
        if self._isAnswering:
            self._closeAfterAnswer()
        else:
            super().loseConnection()

    def dataReceived(self, data: bytes) -> None:
        if not self._isRefused:
            super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if not self._isRefused:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        if not self._isRefused:
            super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        if not self._isRefused:
            self._isAnswering = True
            super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        self._isAnswering = False
        super().requestDone(request)

    def lineLengthExceeded(self, line: bytes) -> None:
        """
        The request line or a header is too long.
        """
        assert self.transport is not None
        self._isRefused = True
        status, body = self.site.overlong(line)
        self.transport.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (status, CONTENT_TYPE, len(body), body)
        )
        self.loseConnection()

    def loseConnection(self) -> None:
        if self._isRefused and not self._isLingering:
            self._isLingering = True
            self.setTimeout(LINGER)
        else:
            super().loseConnection()

    def _protocolUpgradeForWebsockets(self, protocol: IProtocol) -> None:
        # The WebSocket takes the connection over, its end included. What keeps WebSockets has
        # to close them in an orderly stop.
        self.site.channelLost(self)
        super()._protocolUpgradeForWebsockets(protocol)

    def _closeAfterAnswer(self) -> None:
        self.persistent = 0
        self.requests[0].responseHeaders.setRawHeaders(b"Connection", _CLOSE)
