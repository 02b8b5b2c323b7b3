"""
The files of the page, as they are sent.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from attrs import field, frozen
from twisted.web.http import CACHED
from twisted.web.server import Request

INDEX: Final = "index.html"
ICON: Final = "icon.svg"

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""Nothing of another server, and nothing inline."""

_HERE = Path(__file__).parent
_TYPES: Final = {
    ".html": "text/html;charset=UTF-8",
    ".css": "text/css;charset=UTF-8",
    ".js": "text/javascript;charset=UTF-8",
    ".mjs": "text/javascript;charset=UTF-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    # Sessions count in requests of the page alone: see L{isOfOwnPage}.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # Kept, and asked for again each time: after an upgrade, pages and scripts must fit.
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept-Encoding"),
)
_ACCEPTS_GZIP: Final = re.compile(rb"(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?:0\.0*[1-9]|1))", re.I)


@frozen
class File:
    """
    One file, which is compressed once.

    @ivar type: its content type.
    """

    type: str
    body: bytes = field(repr=False)
    _tag: str = field(init=False)
    _zipped: bytes = field(init=False, repr=False)

    @_tag.default
    def _makeTag(self) -> str:
        return sha256(self.body).hexdigest()[:32]

    @_zipped.default
    def _zip(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    def respond(self, request: Request) -> bytes:
        """Answer a request with it, or with 304 where the browser has it. Called by Klein."""
        headers = request.responseHeaders
        for name, value in _HEADERS:
            headers.setRawHeaders(name, [value])
        isZipped = _ACCEPTS_GZIP.search(request.getHeader(b"accept-encoding") or b"") is not None
        tag = f'"{self._tag}-gzip"' if isZipped else f'"{self._tag}"'
        if request.setETag(tag.encode("ascii")) is CACHED:
            return b""
        body = self._zipped if isZipped else self.body
        if isZipped:
            headers.setRawHeaders("Content-Encoding", ["gzip"])
        headers.setRawHeaders("Content-Type", [self.type])
        headers.setRawHeaders("Content-Length", [str(len(body))])
        return body


def readFiles() -> Mapping[str, File]:
    """Read all files, by their paths below the console's."""
    files = {}
    for folder, prefix in (("page", ""), ("vendor", "vendor/")):
        for path in sorted((_HERE / folder).iterdir()):
            if path.suffix in _TYPES:
                files[prefix + path.name] = File(_TYPES[path.suffix], path.read_bytes())
    return files
