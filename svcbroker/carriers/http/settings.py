"""
The settings of the HTTP carrier.

A module of its own: the site, its routes and its log-ins read it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field, frozen
from attrs.validators import gt

from ...net.settings import basePath

_VARY = (b"Vary", b"Origin")


def _asSet(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@frozen(kw_only=True)
class HttpSettings:
    """
    The settings of HTTP.

    @ivar basePath: the context path of the interface; C{/} or empty means none.
    @ivar accessLog: whether every request is logged: method, path, status, sizes and time,
        never a query string, which may hold content.
    @ivar corsOrigins: the origins whose pages may use the interface from a browser; C{*} means
        all of them. None by default: then no CORS header is ever sent.
    @ivar hostNames: names of this server, in lower case, that requests to a loopback address may
        have in C{Host}, beside loopback addresses and C{localhost}.
    @ivar timeout: how long a connection may be idle, in seconds.
    """

    basePath: str = field(default="/svcbroker", converter=basePath)
    accessLog: bool = False
    corsOrigins: frozenset[str] = field(default=frozenset(), converter=_asSet)
    hostNames: frozenset[str] = field(default=frozenset(), converter=_asSet)
    timeout: float = field(default=60.0, validator=gt(0))

    def corsHeaders(self, origin: bytes | None) -> Sequence[tuple[bytes, bytes]]:
        """
        The headers that let a browser's page read an answer, where its origin is allowed.

        @param origin: the value of the request's header C{Origin}.
        """
        if not self.corsOrigins:
            return ()
        if origin and ("*" in self.corsOrigins or origin.decode("latin-1") in self.corsOrigins):
            return (_VARY, (b"Access-Control-Allow-Origin", origin))
        return (_VARY,)
