"""
Tree heads: the size and root of a log, as signed checkpoints say (c2sp.org/tlog-checkpoint); and
proofs that an entry is below one (c2sp.org/tlog-proof).

B{Frozen bytes}: specified by C2SP.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from ...chain import EMPTY_ROOT, Malformed, leafHash, rootOfPath
from ._note import Note, decodeBase64

MAX_SIZE: Final = 2**63 - 1
"""No log has more entries."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")


_FIRST_LINE: Final = "c2sp.org/tlog-proof@v1"
_MAX_PATH: Final = 63
_MAX_SIZE: Final = 1 << 29
"""Room for the proof of any event, in base64."""


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


@frozen(kw_only=True)
class LogProof:
    """
    The proof of an entry.

    @ivar index: the entry's place, from 0.
    @ivar path: the siblings on its way up, from the lowest.
    @ivar checkpoint: the checkpoint, of which nothing is verified yet.
    @ivar extra: what the application adds; it is not proved.
    """

    index: int
    path: Sequence[bytes]
    checkpoint: Note
    extra: bytes = b""

    def encode(self) -> bytes:
        """The file of the proof."""
        lines = [_FIRST_LINE]
        if self.extra:
            lines.append(f"extra {b64encode(self.extra).decode('ascii')}")
        lines += [f"index {self.index}", *map(encodeHash, self.path), "", ""]
        return "\n".join(lines).encode() + self.checkpoint.encode()

    @classmethod
    def decode(cls, data: bytes) -> LogProof:
        """
        Read the file of a proof.

        @raise Malformed: it is none.
        """
        if len(data) > _MAX_SIZE:
            raise Malformed(f"the proof is longer than {_MAX_SIZE} bytes")
        head, separator, note = data.partition(b"\n\n")
        try:
            lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise Malformed("the proof is not one of c2sp.org/tlog-proof") from None
        if lines.pop(0) != _FIRST_LINE or not separator:
            raise Malformed("the proof is not one of c2sp.org/tlog-proof")
        extra = b""
        if lines and lines[0].startswith("extra "):
            extra = decodeBase64(lines.pop(0).removeprefix("extra "))
        if not lines or not lines[0].startswith("index "):
            raise Malformed("the proof has no index")
        index = parseNumber(lines.pop(0).removeprefix("index "))
        if len(lines) > _MAX_PATH:
            raise Malformed(f"the path has more than {_MAX_PATH} hashes")
        path = tuple(map(parseHash, lines))
        return cls(index=index, path=path, checkpoint=Note.decode(note), extra=extra)

    def check(self, entry: bytes) -> TreeHead:
        """
        Check that an entry is in the tree of the checkpoint.

        @return: what the checkpoint says. Its signatures are not verified: that is what
            L{Policy.check<svcbroker.proofs.tlog.Policy.check>} does.
        @raise Malformed: the entry is not in it.
        """
        head = TreeHead.parse(self.checkpoint.text)
        if rootOfPath(leafHash(entry), self.index, head.size, self.path) != head.root:
            raise Malformed("the entry is not in the log")
        return head
