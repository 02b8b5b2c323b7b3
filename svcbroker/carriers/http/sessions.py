"""
Sessions: the log-ins of people by a form, kept in a cookie of their browser.

A session counts only in requests of pages of the broker itself, and ends with its log-in.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from twisted.web.http_headers import Headers

from ...access import Principal
from .origins import isOwnOrigin

LIFETIME: Final = 12 * 3600.0
"""The time that a session lasts, in seconds."""
MAX_SESSIONS: Final = 10_000
"""The most sessions that are kept; the oldest end first."""
MAX_OF_ONE: Final = 20
"""The most sessions that an account may have; its oldest end first."""

COOKIE: Final = b"svcbroker-session"
"""The beginning of the names of cookies with a token."""

_TOKEN_BYTES: Final = 32


@frozen(eq=False)
class _Session:
    """
    @ivar expiresAt: by the clock of the reactor.
    @ivar forget: takes back that it ends with its principal.
    """

    principal: Principal
    expiresAt: float
    forget: Callable[[], None]


class LogIns:
    """
    The sessions of a site. Tokens are kept only as hashes.
    """

    def __init__(
        self, clock: IReactorTime, entropy: Callable[[int], bytes], basePath: str = ""
    ) -> None:
        """
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param basePath: the path that browsers send the cookie to, with all paths below.
        """
        self._seconds = clock.seconds
        self._entropy = entropy
        self._path = basePath or "/"
        # By the hashes of their tokens, the oldest first.
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """The number of sessions, with those that have expired and were not asked for since."""
        return len(self._sessions)

    def begin(self, principal: Principal) -> bytes:
        """
        Begin a session.

        @return: its token.
        """
        token = self._entropy(_TOKEN_BYTES).hex().encode("ascii")
        key = _hash(token)
        self._endOldest(principal.name)
        self._sessions[key] = _Session(
            principal,
            self._seconds() + LIFETIME,
            principal.onEnd(lambda: self._end(key)),
        )
        self._counts[principal.name] += 1
        return token

    def find(self, token: bytes) -> Principal | None:
        """The principal of a session; C{None} where it has ended. Called for each request."""
        session = self._sessions.get(_hash(token))
        if session is None:
            return None
        if session.principal.isRevoked or session.expiresAt <= self._seconds():
            self.end(token)
            return None
        return session.principal

    def end(self, token: bytes) -> None:
        """End a session, if there is one."""
        self._end(_hash(token))

    def tokenOf(self, headers: Headers, port: int | None) -> bytes | None:
        """
        The token in the cookie of a request.

        @param port: of the server's end of the connection; see L{cookie}.
        @return: empty where the session was ended; C{None} where there is no cookie.
        """
        name = _nameOf(port)
        for header in headers.getRawHeaders(b"cookie", []):
            for each in header.split(b";"):
                key, equals, value = each.strip(b" \t").partition(b"=")
                if equals and key == name:
                    return value
        return None

    def cookie(self, token: bytes, port: int | None, isSecure: bool) -> bytes:
        """
        The value of C{Set-Cookie} that has a browser keep a token until it is closed.

        @param token: empty once the session has ended. The cookie stays: requests that have it are
            refused without a challenge that browsers show as a dialog of their own.
        @param port: of the server's end of the connection. Browsers send cookies to all ports of a
            host, so those of two brokers on one machine have different names.
        """
        attributes = f"; Path={self._path}; HttpOnly; SameSite=Strict"
        if isSecure:
            attributes += "; Secure"
        return b"%b=%b%b" % (_nameOf(port), token, attributes.encode("ascii"))

    def _endOldest(self, name: str) -> None:
        """Make room for one more session of an account."""
        if self._counts[name] >= MAX_OF_ONE:
            self._end(
                next(key for key, each in self._sessions.items() if each.principal.name == name)
            )
        elif len(self._sessions) >= MAX_SESSIONS:
            self._end(next(iter(self._sessions)))

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.forget()
            name = session.principal.name
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]


def isOfOwnPage(headers: Headers) -> bool:
    """
    Whether the browser tells that a page of this server makes a request.

    C{SameSite} does not tell: a server on another port of the host is of the same site. Browsers
    send C{Sec-Fetch-Site} over TLS and to loopback only, and no C{Origin} with a GET, so the
    C{Referer} has to do otherwise.
    """
    [host, origin, site, referer] = [
        b", ".join(headers.getRawHeaders(name, []))
        for name in (b"host", b"origin", b"sec-fetch-site", b"referer")
    ]
    if origin:
        return isOwnOrigin(origin.decode("latin-1"), host.decode("latin-1"))
    if site:
        return site == b"same-origin"
    return isOwnOrigin(referer.decode("latin-1"), host.decode("latin-1"))


def portOf(channel: Any) -> int | None:
    """The port of the server's end of a connection; C{None} for a UNIX socket."""
    return getattr(channel.getHost(), "port", None)


def _nameOf(port: int | None) -> bytes:
    return COOKIE if port is None else b"%b-%d" % (COOKIE, port)


def _hash(token: bytes) -> bytes:
    return sha256(token).digest()
