"""
Requests of logs to witnesses, and their decision (c2sp.org/tlog-witness).

B{Frozen bytes}: specified by C2SP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from ...chain import EMPTY_ROOT, Malformed, checkGrowth
from ._note import MAX_NOTE_SIZE, Note, SignatureRefused, VerifierKey
from ._treehead import TreeHead, encodeHash, parseHash, parseNumber

MAX_PROOF: Final = 63
"""No consistency proof has more hashes."""
MAX_REQUEST_SIZE: Final = MAX_NOTE_SIZE + 8 * 1024
"""No request is longer, in bytes."""
SIZE_TYPE: Final = "text/x.tlog.size"
"""The media type of the size that a refused log should have begun from."""


@frozen(kw_only=True)
class AddCheckpoint:
    """
    A request to cosign a checkpoint.

    @ivar older: the size of the log's checkpoint that the witness has cosigned last.
    @ivar proof: the consistency proof from there.
    @ivar checkpoint: the checkpoint, of which nothing is verified yet.
    """

    older: int
    proof: Sequence[bytes]
    checkpoint: Note

    def encode(self) -> bytes:
        """The body of the request."""
        lines = [f"old {self.older}", *map(encodeHash, self.proof), "", ""]
        return "\n".join(lines).encode() + self.checkpoint.encode()

    @classmethod
    def decode(cls, data: bytes) -> AddCheckpoint:
        """
        Read the body of a request.

        @raise Malformed: it is none.
        """
        if len(data) > MAX_REQUEST_SIZE:
            raise Malformed(f"the request is longer than {MAX_REQUEST_SIZE} bytes")
        head, separator, note = data.partition(b"\n\n")
        try:
            first, *lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise Malformed(
                "the request has characters before the checkpoint that are not ASCII"
            ) from None
        if not separator or not first.startswith("old "):
            raise Malformed("the request begins with no line of the old size")
        if len(lines) > MAX_PROOF:
            raise Malformed(f"the consistency proof has more than {MAX_PROOF} hashes")
        return cls(
            older=parseNumber(first.removeprefix("old ")),
            proof=tuple(map(parseHash, lines)),
            checkpoint=Note.decode(note),
        )


class CheckpointRefused(Exception):
    """
    A checkpoint that is not cosigned. The text says why.

    @ivar status: the status of HTTP that the specification wants.
    @ivar size: with 409, the size of the checkpoint that was cosigned last.
    """

    def __init__(self, status: int, message: str, size: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.size = size


def checkCheckpoint(
    request: AddCheckpoint,
    logs: Mapping[str, Sequence[VerifierKey]],
    latest: TreeHead | None,
) -> tuple[TreeHead, Note]:
    """
    Decide whether a witness may cosign a checkpoint. The caller stores the checkpoint as the latest
    one before it cosigns, and stores nothing else in between.

    @param logs: the keys of the logs that are witnessed, by their origins.
    @param latest: the checkpoint of this log that was cosigned last; C{None} where none was.
    @return: what it says, and the note with those signatures only that were verified.
    @raise CheckpointRefused: it may not.
    """
    try:
        head = TreeHead.parse(request.checkpoint.text)
    except Malformed as error:
        raise CheckpointRefused(400, str(error)) from None
    keys = logs.get(head.origin)
    if keys is None:
        raise CheckpointRefused(404, f"the log {head.origin} is not witnessed here")
    try:
        signed = request.checkpoint.verified(keys)
    except SignatureRefused as error:
        raise CheckpointRefused(403, str(error)) from None
    if not signed:
        raise CheckpointRefused(403, f"no known key of {head.origin} has signed the checkpoint")
    if request.older > head.size:
        raise CheckpointRefused(400, "the old size is larger than the checkpoint's")
    size, root = (0, EMPTY_ROOT) if latest is None else (latest.size, latest.root)
    if request.older != size:
        raise CheckpointRefused(409, f"the checkpoint cosigned last has size {size}", size)
    try:
        checkGrowth(size, root, head.size, head.root, request.proof)
    except Malformed as error:
        reason = f"the log has not grown from what was cosigned at size {size}: {error}"
        raise CheckpointRefused(422, reason) from None
    return head, Note(request.checkpoint.text, tuple(signature for _, signature in signed))
