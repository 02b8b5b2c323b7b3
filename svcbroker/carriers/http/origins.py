"""
The check of which web pages may use the interface, by the requests of their readers' browsers.

A page in a browser can send requests to every address that its reader's machine reaches: by forms,
images, C{fetch} and WebSockets, and, by DNS rebinding, even under a name of its own.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import urlsplit

from twisted.logger import Logger
from twisted.web.http_headers import Headers

from ...net.addresses import isLoopback
from .settings import HttpSettings

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
