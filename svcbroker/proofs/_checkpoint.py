"""
Checkpoints: published, or kept by third parties, so that rewriting a chain before them is noticed.
"""

from __future__ import annotations

import re

from attrs import frozen

from ..chain import Header

_TEXT = re.compile(r"(0|[1-9][0-9]{0,18}):([0-9a-f]{64})", re.ASCII)


@frozen
class Checkpoint:
    """
    The height and hash of a block.

    @ivar height: its height.
    @ivar hash: its hash: 32 bytes.
    """

    height: int
    hash: bytes

    def __str__(self) -> str:
        """The textual form: C{HEIGHT:HASH}."""
        return f"{self.height}:{self.hash.hex()}"

    @classmethod
    def of(cls, header: Header) -> Checkpoint:
        """The checkpoint that a header is."""
        return cls(header.height, header.hash)

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """
        Read what C{str} wrote.

        @raise ValueError: it is something else.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise ValueError("a checkpoint is HEIGHT:HASH, with 64 hexadecimal digits")
        return cls(int(found[1]), bytes.fromhex(found[2]))
