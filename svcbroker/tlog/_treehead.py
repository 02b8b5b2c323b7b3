"""
Tree heads: how large a log is, and its root, as signed checkpoints say
(c2sp.org/tlog-checkpoint).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from ..chain import EMPTY_ROOT, Malformed
from ._note import decodeBase64

MAX_SIZE: Final = 2**63 - 1
"""No log has more entries."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


def parseNumber(text: str) -> int:
    """
    A number in decimal digits, without leading zeroes, of at most L{MAX_SIZE}.

    @raise Malformed: it is none.
    """
    if not _NUMBER.fullmatch(text) or (number := int(text)) > MAX_SIZE:
        raise Malformed(f"{text[:80]!r} is not a number of at most {MAX_SIZE}")
    return number


def parseHash(text: str) -> bytes:
    """
    A hash in base64.

    @raise Malformed: it is none.
    """
    hash = decodeBase64(text)
    if len(hash) != len(EMPTY_ROOT):
        raise Malformed(f"{text[:80]!r} is not a hash of {len(EMPTY_ROOT)} bytes")
    return hash


def encodeHash(hash: bytes) -> str:
    """A hash in base64."""
    return b64encode(hash).decode("ascii")


@frozen
class TreeHead:
    """
    The size and the root of a log: the text of its checkpoints.

    @ivar origin: the name of the log.
    @ivar size: how many entries it has.
    @ivar root: the root of the tree of RFC 6962 over them: 32 bytes.
    @ivar extensions: further lines, which mean nothing to us.
    """

    origin: str
    size: int
    root: bytes
    extensions: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The text of the note."""
        lines = (self.origin, str(self.size), encodeHash(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> TreeHead:
        """
        Read the text of a note.

        @raise Malformed: it is no checkpoint.
        """
        origin, *rest = text.removesuffix("\n").split("\n")
        if not origin or len(rest) < 2 or not all(rest):
            raise Malformed("a checkpoint has an origin, a size and a root, and no empty lines")
        return cls(origin, parseNumber(rest[0]), parseHash(rest[1]), tuple(rest[2:]))
