"""
Proofs that an entry is in a log, to be checked without it (c2sp.org/tlog-proof).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from ..chain import Malformed, leafHash, rootOfPath
from ._note import Note, decodeBase64
from ._treehead import TreeHead, encodeHash, parseHash, parseNumber

_FIRST_LINE: Final = "c2sp.org/tlog-proof@v1"
_MAX_PATH: Final = 63
_MAX_SIZE: Final = 1 << 29
"""Room for the proof of any event, in base64."""


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
            L{Policy.check<svcbroker.tlog.Policy.check>} does.
        @raise Malformed: the entry is not in it.
        """
        head = TreeHead.parse(self.checkpoint.text)
        if rootOfPath(leafHash(entry), self.index, head.size, self.path) != head.root:
            raise Malformed("the entry is not in the log")
        return head
