"""
A connection that speaks HTTP/1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IAddress, IProtocol
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers

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

    _host: IAddress | None = None
    _peer: IAddress | None = None
    _isTLS: bool | None = None
    _isAnswering = False
    _isRefused = False
    _isLingering = False
    _isWebSocket = False

    def connectionMade(self) -> None:
        super().connectionMade()
        self.site.channels.add(self)

    # These do not change, but every request asks. The first one is asked for late enough: a
    # PROXY header stands before it and says who the client is.

    def getHost(self) -> IAddress:
        """Our end of the connection."""
        if self._host is None:
            self._host = super().getHost()
        return self._host

    def getPeer(self) -> IAddress:
        """The client's end of the connection."""
        if self._peer is None:
            self._peer = super().getPeer()
        return self._peer

    def isSecure(self) -> bool:
        """Whether it is a TLS connection."""
        if self._isTLS is None:
            self._isTLS = super().isSecure()
        return self._isTLS

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """
        Write the status line and the headers, as one piece instead of four for each header.
        """
        lines = [b"%b %b %b" % (version, code, reason)]
        for name, values in headers.getAllRawHeaders():
            lines += [b"%b: %b" % (name, value) for value in values]
        self.write(b"\r\n".join(lines) + b"\r\n\r\n")

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

    def pauseProducing(self) -> None:
        """
        The client does not take its answers. What else it has asked for already has to wait too:
        a few bytes of request can bring a megabyte of answer.
        """
        super().pauseProducing()
        if not self._isWebSocket:
            self.paused = True
            self._networkProducer.pauseProducing()

    def resumeProducing(self) -> None:
        """
        The client has taken its answers.
        """
        super().resumeProducing()
        if not self._isWebSocket:
            self.paused = False
            self._networkProducer.resumeProducing()
            self.dataReceived(b"")

    def requestDone(self, request: Any) -> None:
        self._isAnswering = False
        if self._dataBuffer and self._buffer:
            # TLS hands on what it has read already, also to who does not want to read. What came
            # while the client did not take its answers stands behind what came before.
            self._dataBuffer.append(self.clearLineBuffer())
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
        self._isWebSocket = True
        super()._protocolUpgradeForWebsockets(protocol)

    def _closeAfterAnswer(self) -> None:
        self.persistent = 0
        self.requests[0].responseHeaders.setRawHeaders(b"Connection", _CLOSE)
