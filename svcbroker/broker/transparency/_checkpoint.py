"""
A checkpoint of a log, with what it says.
"""

from __future__ import annotations

from attrs import frozen

from ...tlog import Note, TreeHead


@frozen
class LogCheckpoint:
    """
    A checkpoint of a log.

    @ivar head: what it says.
    @ivar note: with its signatures.
    """

    head: TreeHead
    note: Note

    @classmethod
    def decode(cls, data: bytes) -> LogCheckpoint:
        """
        Read a checkpoint.

        @raise Malformed: it is none.
        """
        note = Note.decode(data)
        return cls(TreeHead.parse(note.text), note)
