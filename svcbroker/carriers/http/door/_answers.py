"""
What the door's answers look like: as twisted.web writes them, headers in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.web.http import datetimeToString
from twisted.web.server import version

from ..encoding import CONTENT_TYPE
from ..settings import HttpSettings

_OK: Final = b"HTTP/1.1 200 OK"
_NO_CONTENT: Final = b"HTTP/1.1 204 No Content"
_FAILED: Final = b"HTTP/1.1 500 Internal Server Error"
_CLOSE: Final = b"\r\nConnection: close"


class Answers:
    """
    Makes answers. One serves a whole site.
    """

    def __init__(self, settings: HttpSettings, seconds: Callable[[], float]) -> None:
        """
        @param seconds: the time; the date is asked for once in each second of it.
        """
        self._settings = settings
        self._seconds = seconds
        self._second: int | None = None
        self._common = b""
        self._usual = b""

    def make(self, body: bytes | None, origin: bytes | None = None, isLast: bool = False) -> bytes:
        """
        The answer to a call.

        @param body: its JSON text; C{None} where nothing is to be said.
        @param origin: the origin of the page that asks.
        @param isLast: whether the connection is closed then.
        """
        self._keepDate()
        if body is None:
            return b"%b%b%b\r\n\r\n" % (_NO_CONTENT, self._cors(origin), self._headers(isLast))
        if isLast or self._settings.corsOrigins:
            return self._whole(_OK, body, origin, isLast)
        # What nearly all answers are costs one formatting.
        return b"%b%d\r\n\r\n%b" % (self._usual, len(body), body)

    def makeFailed(self, body: bytes, origin: bytes | None, isLast: bool) -> bytes:
        """The answer to a call that failed as no call should."""
        self._keepDate()
        return self._whole(_FAILED, body, origin, isLast)

    def _whole(self, status: bytes, body: bytes, origin: bytes | None, isLast: bool) -> bytes:
        return b"%b%b%b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            *(status, self._cors(origin), self._headers(isLast)),
            *(CONTENT_TYPE, len(body), body),
        )

    def _headers(self, isLast: bool) -> bytes:
        return self._common + _CLOSE if isLast else self._common

    def _cors(self, origin: bytes | None) -> bytes:
        if not self._settings.corsOrigins:
            return b""
        if origin and self._settings.allowsOrigin(origin):
            return b"\r\nVary: Origin\r\nAccess-Control-Allow-Origin: %b" % origin
        return b"\r\nVary: Origin"

    def _keepDate(self) -> None:
        second = int(self._seconds())
        if second != self._second:
            self._second = second
            self._common = b"\r\nServer: %b\r\nDate: %b" % (version, datetimeToString())
            self._usual = b"%b%b\r\nContent-Type: %b\r\nContent-Length: " % (
                *(_OK, self._common, CONTENT_TYPE),
            )
