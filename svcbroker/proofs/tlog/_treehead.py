"""
Tree heads: the size and root of a log, as signed checkpoints say (c2sp.org/tlog-checkpoint); proofs
that an entry is below one (c2sp.org/tlog-proof); and the requests of logs to witnesses to cosign
one, with their decision (c2sp.org/tlog-witness).

B{Frozen bytes}: specified by C2SP.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from ...chain import EMPTY_ROOT, Malformed, checkGrowth, leafHash, rootOfPath
from ._note import MAX_NOTE_SIZE, Note, SignatureRefused, VerifierKey, decodeBase64

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
