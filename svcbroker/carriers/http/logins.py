"""
Principals of requests: from credentials, from the certificate of a connection, or from the log-in
of a person by a form, which is kept in a cookie of a browser.

A page in a browser can send requests to every address that its reader's machine reaches: by forms,
images, C{fetch} and WebSockets, and, by DNS rebinding, even under a name of its own. So an
L{OriginPolicy} tells which pages may use the interface; a session counts only in requests of pages
of the broker itself, and ends with its log-in.

The settings of the carrier are here, as the site and its routes read them, too.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from hashlib import sha256
from ipaddress import IPv6Address
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen
from attrs.validators import gt
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http_headers import Headers

from ...access import ANYBODY, Access, Principal, Usage
from ...errors import NotAuthenticated
from ...interfaces import ClientCertificate
from ...net.addresses import isLoopback
from ...net.deferreds import asLeanDeferred
from ...net.settings import basePath
from ...net.tls import peerCertificate

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


CHALLENGES: Final = (b'Basic realm="svcbroker", charset="UTF-8"', b'Bearer realm="svcbroker"')
"""The values of C{WWW-Authenticate}."""
SESSION_CHALLENGE: Final = b'Session realm="svcbroker"'
"""That of requests with the cookie of a session. Browsers show no dialog for it."""


class Credentials(Enum):
    """
    The rule of a path for credentials.

    @cvar REQUIRED: a request needs a principal.
    @cvar OPTIONAL: a request without credentials is answered too; with wrong ones it is refused.
    @cvar IGNORED: every request is answered.
    """

    REQUIRED = 1
    OPTIONAL = 2
    IGNORED = 3


class ClientAuthenticator:
    """
    Finds the principals of the requests of one connection, and counts it as one of the account that
    has made the last request.

    A request acts by its header C{Authorization}; without one, by the certificate that the client
    has shown to TLS, where an account names it; without one, as an anonymous client.
    """

    def __init__(self, access: Access, channel: Any) -> None:
        """
        @param channel: the connection.
        """
        self._access = access
        self._channel = channel
        self._isCertificateChecked = access.isOpen
        self._certified: Principal | None = None
        self._recalled: Principal | None = None
        self._usage: Usage | None = None

    def count(self, principal: Principal) -> None:
        """
        Count the connection as one of an account.

        @raise QuotaExceeded: the account has as many connections as it may have.
        """
        usage = principal.usage
        if usage is not self._usage and not self._access.isOpen:
            usage.take("connections")
            self._release()
            self._usage = usage

    def close(self) -> None:
        """The connection is closed, or is no longer HTTP."""
        self._release()
        # Otherwise they would be a cycle.
        self._channel = None

    def _release(self) -> None:
        if self._usage is not None:
            self._usage.free("connections")
            self._usage = None

    def recall(self, authorization: bytes | None) -> Principal | None:
        """
        The principal of a request where no credentials have to be checked for it, because they
        were checked a short time ago or none are needed.

        @param authorization: the value of the header; C{None} where there is none.
        @return: C{None} where L{logIn} has to be asked.
        """
        access = self._access
        if access.isOpen:
            return ANYBODY
        if authorization is not None:
            principal = access.recall(authorization)
            if principal is not None and principal is not self._recalled:
                self._recalled = principal
                access.loggedIn(principal, self._address, "http")
            return principal
        if not self._isCertificateChecked:
            # At the first request the handshake is over.
            self._isCertificateChecked = peerCertificate(self._channel.transport) is None
            if not self._isCertificateChecked:
                return None
        certified = self._certified
        if certified is not None and not certified.isRevoked:
            return certified
        return access.anonymous

    @asLeanDeferred
    async def logIn(self, authorization: bytes | None) -> Principal:
        """
        Check the credentials of a request.

        @param authorization: the value of the header; C{None} where there is none.
        @raise NotAuthenticated: they are not valid, or there are none.
        @raise Overloaded: too many log-ins are being checked.
        """
        address = self._address
        if authorization is not None:
            return await self._access.loginHttp(authorization, address)
        if not self._isCertificateChecked:
            self._certified = await self._logInByCertificate(address)
            self._isCertificateChecked = True
        principal = self.recall(None)
        if principal is None:
            raise NotAuthenticated("credentials are needed")
        return principal

    @property
    def _address(self) -> str:
        """The client's IP address; empty where it has none."""
        address: str = getattr(self._channel.getPeer(), "host", "")
        return address

    async def _logInByCertificate(self, address: str) -> Principal | None:
        certificate = peerCertificate(self._channel.transport)
        if certificate is None:
            return None
        credentials = ClientCertificate(
            commonName=certificate.commonName, fingerprint=certificate.fingerprint
        )
        try:
            return await self._access.login(credentials, address)
        except NotAuthenticated:
            # No account names it.
            return None


MAX_LOGGED: Final = 100
"""The most different refusals that are logged, against floods of them."""

# RFC 3986, 3.2.2 and 3.2.3: a name may be empty, and so may a port.
_HOST: Final = re.compile(
    rb"(?:\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+)\]"
    rb"|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_OTHER_SITES: Final = (b"cross-site", b"same-site")
_SHOWN: Final = 200
"""The most characters of a header that are shown."""


def hostName(host: bytes) -> str:
    """The name or the address in a C{Host} header; empty where there is none."""
    try:
        return urlsplit("//" + host.decode("ascii")).hostname or ""
    except ValueError:
        return ""


def isHost(host: bytes) -> bool:
    """Whether a header C{Host} is valid: a name or an address, and a port or none."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    try:
        if found[1] is not None:
            IPv6Address(found[1].decode("ascii"))
    except ValueError:
        return False
    return True


def isOwnOrigin(origin: str, host: str) -> bool:
    """
    Whether a page is of the server that its request was sent to.

    @param origin: the page's origin, or its whole URL.
    @param host: the header C{Host}.
    """
    try:
        scheme, own, *_ = urlsplit(origin.lower())
    except ValueError:
        return False
    return bool(own) and host.lower() in (own, own + _DEFAULT_PORTS.get(scheme, ""))


class OriginPolicy:
    """
    Decides which requests are refused because of the page that sends them. One serves a whole
    site.
    """

    _log = Logger()

    def __init__(self, settings: HttpSettings) -> None:
        self._logged: set[str] = set()
        self._origins = settings.corsOrigins
        self._hostNames = settings.hostNames

    def refusal(self, headers: Headers, isOnLoopback: bool, isLinked: bool = False) -> str | None:
        """
        The reason to refuse a request with these headers. Each reason is logged, once.

        @param isLinked: whether pages of other sites may link to what is asked for.
        """
        names = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode")
        # Repeated headers are joined, and so match nothing.
        host, origin, site, mode = (
            None if each is None else b", ".join(each) for each in map(headers.getRawHeaders, names)
        )
        if isLinked and mode == b"navigate":
            site = None
        reason = self.reason(host, origin, site, isOnLoopback)
        if reason is not None and reason not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(reason)
            self._log.warn("Refused a request: {reason}", reason=reason)
        return reason

    def reason(
        self, host: bytes | None, origin: bytes | None, fetchSite: bytes | None, isOnLoopback: bool
    ) -> str | None:
        """
        The reason to refuse a request.

        @param host: the header C{Host}. Browsers always send it.
        @param origin: the header C{Origin}.
        @param fetchSite: the header C{Sec-Fetch-Site}.
        @param isOnLoopback: whether the request was sent to a loopback address.
        @return: C{None} where it is not refused.
        """
        if isOnLoopback and host is not None:
            name = hostName(host)
            if not isLoopback(name) and name not in self._hostNames:
                return f"Host {_show(host)} is neither loopback nor named by --host-name"
        if origin is not None:
            if not self._isAllowed(origin.decode("latin-1"), (host or b"").decode("latin-1")):
                return f"pages of {_show(origin)} may not use this interface; see --cors-origin"
        elif fetchSite is not None and fetchSite.strip().lower() in _OTHER_SITES:
            return "pages of other sites may not use this interface without Origin"
        return None

    def _isAllowed(self, origin: str, host: str) -> bool:
        return "*" in self._origins or origin in self._origins or isOwnOrigin(origin, host)


def _show(header: bytes) -> str:
    return ascii(header.decode("latin-1")[:_SHOWN])


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
