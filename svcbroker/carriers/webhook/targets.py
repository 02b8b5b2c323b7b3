"""
The URLs that events are sent to.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Final

from attrs import frozen

from ...errors import UrlInvalid
from ...net.endpoints import isHostName, normaliseHost, parseAddress

MAX_URL: Final = 2048
"""The longest URL, in characters."""

_MAX_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 3986, without the user information and the fragment. What does not match is refused here,
# so that all parsers of URLs agree on the host.
_REST = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]+)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    rf"(?P<rest>(?:[/?]{_REST})?)",
    re.ASCII,
)
_CREDENTIALS = re.compile(r"[A-Za-z]+://[^/?#]*@")


@frozen(kw_only=True)
class WebhookTarget:
    """
    The URL that events are sent to.

    @ivar scheme: C{http} or C{https}.
    @ivar host: a name in lower case, or an address without brackets.
    @ivar port: the port.
    @ivar path: the path and the query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """C{host:port}: what may be shown and logged, unlike a path that may hold a secret."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, always in the same form."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def isAddress(self) -> bool:
        """Whether the host is an address, so that there is nothing to resolve."""
        return parseAddress(self.host) is not None


def parseUrl(text: str) -> WebhookTarget:
    """
    Read a URL as a client gives it.

    @raise UrlInvalid: it is no URL of HTTP or HTTPS, or has what it must not have.
    """
    if len(text) > MAX_URL:
        raise UrlInvalid(f"url is longer than {MAX_URL} characters")
    if _CREDENTIALS.match(text):
        raise UrlInvalid("url must not have credentials in it")
    found = _URL.fullmatch(text)
    if found is None:
        raise UrlInvalid("url is not such as https://host.example:8443/path?query")
    scheme = found["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise UrlInvalid("url is neither http nor https")
    port = int(found["port"] or _DEFAULT_PORTS[scheme])
    if not 0 < port <= _MAX_PORT:
        raise UrlInvalid("url has no valid port")
    rest = found["rest"]
    return WebhookTarget(
        scheme=scheme,
        host=_host(found["host"]),
        port=port,
        path=rest if rest.startswith("/") else f"/{rest}",
    )


def _host(text: str) -> str:
    if text.startswith("["):
        address = parseAddress(text[1:-1])
        if not isinstance(address, IPv6Address):
            raise UrlInvalid("url has no valid IPv6 address")
        if address.ipv4_mapped is not None:
            # Python writes it as ::ffff:1.2.3.4 since 3.13. The URLs that are kept do not.
            number = int(address.ipv4_mapped)
            return f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"
        return str(address)
    host = normaliseHost(text)
    if parseAddress(host) is None and not isHostName(host):
        raise UrlInvalid("url has no valid host")
    return host
