"""
The files of the page, as they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from attrs import field, frozen
from twisted.web.http import CACHED
from twisted.web.server import Request

INDEX: Final = "index.html"

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
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # Kept, and asked for again each time: after an upgrade, pages and scripts must fit.
    ("Cache-Control", "no-cache"),
)


@frozen
class File:
    """
    One file.

    @ivar type: its content type.
    """

    type: str
    body: bytes = field(repr=False)
    _tag: bytes = field(init=False)

    @_tag.default
    def _makeTag(self) -> bytes:
        return b'"%b"' % sha256(self.body).hexdigest()[:32].encode("ascii")

    def respond(self, request: Request) -> bytes:
        """Answer a request with it, or with 304 where the browser has it. Called by Klein."""
        headers = request.responseHeaders
        for name, value in _HEADERS:
            headers.setRawHeaders(name, [value])
        if request.setETag(self._tag) is CACHED:
            return b""
        headers.setRawHeaders("Content-Type", [self.type])
        headers.setRawHeaders("Content-Length", [str(len(self.body))])
        return self.body


def readFiles() -> Mapping[str, File]:
    """Read all files, by their paths below the console's."""
    files = {}
    for folder, prefix in (("page", ""), ("vendor", "vendor/")):
        for path in sorted((_HERE / folder).iterdir()):
            if path.suffix in _TYPES:
                files[prefix + path.name] = File(_TYPES[path.suffix], path.read_bytes())
    return files
