"""
What an operator can choose about HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import Attribute, field, frozen
from attrs.validators import gt, in_

FAST: Final = "fast"
KLEIN: Final = "klein"
DOORS: Final = (FAST, KLEIN)
"""What the most frequent calls may be answered by."""

_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def _checkBasePath(instance: object, attribute: Attribute[str], value: str) -> None:
    if _BASE_PATH.fullmatch(value) is None:
        raise ValueError(
            "the base path is segments of letters, digits and ._~- with a / before each"
        )


def _withoutLastSlash(path: str) -> str:
    return path.rstrip("/")


def _asSet(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@frozen(kw_only=True)
class HttpSettings:
    """
    What an operator can choose about HTTP.

    @ivar basePath: the context path of the interface; C{/} or empty means none.
    @ivar accessLog: whether every request is logged: method, path, status, sizes and time,
        never a query string, which may hold content.
    @ivar corsOrigins: the origins whose pages may use the interface from a browser; C{*} means
        all of them. None by default: then no CORS header is ever sent.
    @ivar timeout: how long a connection may be idle, in seconds.
    @ivar door: what answers the most frequent calls: L{FAST} the room C{door}, L{KLEIN} the same
        as all others.
    """

    basePath: str = field(
        default="/svcbroker", converter=_withoutLastSlash, validator=_checkBasePath
    )
    accessLog: bool = False
    corsOrigins: frozenset[str] = field(default=frozenset(), converter=_asSet)
    timeout: float = field(default=60.0, validator=gt(0))
    door: str = field(default=FAST, validator=in_(DOORS))

    def allowsOrigin(self, origin: bytes) -> bool:
        """Whether pages of an origin may use the interface."""
        return "*" in self.corsOrigins or origin.decode("latin-1") in self.corsOrigins
