"""
A request whose body is bounded while it arrives.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.server import Request

from .encoding import CONTENT_TYPE

if TYPE_CHECKING:
    from .channel import BrokerChannel
    from .site import BrokerSite


class BrokerRequest(Request):
    """
    A request to a L{BrokerSite<svcbroker.carriers.http.site.BrokerSite>}.

    Its body stays in memory, within the site's bound. Nobody parses query or body but who reads
    them: C{args} is always empty.

    @ivar query: the query string, as it was sent.
    """

    site: BrokerSite
    channel: BrokerChannel
    content: BytesIO
    query: bytes = b""
    _received = 0
    _isRefused = False

    def body(self) -> bytes:
        """The whole body."""
        return self.content.getvalue()

    def gotLength(self, length: int | None) -> None:
        """
        All headers are there, the body is not. See C{twisted.web.http.Request.gotLength}.
        """
        self.content = BytesIO()
        if length is not None and length > self.channel.site.maxBody:
            # Without the header the channel does not ask for the body.
            self.requestHeaders.removeHeader(b"Expect")
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """
        A piece of the body is there. See C{twisted.web.http.Request.handleContentChunk}.
        """
        if self._isRefused:
            return
        self._received += len(data)
        if self._received > self.channel.site.maxBody:
            self._refuse()
        else:
            self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """
        The body is there too, or is refused. See C{twisted.web.http.Request.requestReceived}.
        """
        self.method, self.uri, self.clientproto = command, path, version
        self.path, _, self.query = path.partition(b"?")
        self.args = {}
        self.site = self.channel.site
        self.site.allowOrigin(self)
        if self._isRefused:
            code, body = self.site.refusal(self.path)
            self.answer(code, body)
        else:
            self.process()

    def answer(self, code: int, body: bytes) -> None:
        """Answer with JSON text and finish."""
        self.setResponseCode(code)
        self.setHeader(b"content-type", CONTENT_TYPE)
        self.setHeader(b"content-length", b"%d" % len(body))
        self.write(body)
        self.finish()

    def processingFailed(self, reason: Failure) -> Failure:
        """
        Nobody else handled this failure. See C{twisted.web.server.Request.processingFailed}.
        """
        self.answer(http.INTERNAL_SERVER_ERROR, self.site.explain(reason))
        return reason

    def getRequestHostname(self) -> bytes:
        """
        Not what the client says: nothing here makes an address from the Host header, and
        Klein's router fails on some of them.
        """
        return b"localhost"

    def _refuse(self) -> None:
        self._isRefused = True
        self.channel.refuseBody()
