"""
Time stamps of authorities (RFC 3161) on the checkpoints of a bundle: a clock that neither the
log's operator nor a witness sets. They need the extra C{timestamps}.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from attrs import frozen
from cryptography.x509 import Certificate

from ...chain import Malformed

REQUEST_TYPE: Final = "application/timestamp-query"
"""The media type of a request."""
MAX_STAMP: Final = 64 * 1024
"""No answer of an authority is longer, in bytes."""


class StampRefused(Exception):
    """A time stamp that does not hold. The text says why."""


@frozen
class Stamp:
    """
    A time stamp that holds.

    @ivar time: when its authority says to have seen the checkpoint.
    @ivar authority: the name in the authority's certificate.
    """

    time: datetime
    authority: str


def stampName(text: str) -> str:
    """The name of the file with the time stamp of a checkpoint, by the text of its note."""
    return f"{sha256(text.encode()).hexdigest()}.tsr"


async def requestStamp(
    text: str, roots: Sequence[Certificate], ask: Callable[[bytes], Awaitable[bytes]]
) -> bytes:
    """
    Have an authority stamp a checkpoint.

    @param text: the text of the checkpoint's note.
    @param roots: the certificates that are trusted.
    @param ask: sends a request to the authority, and gives its answer.
    @return: the answer, which holds.
    @raise StampRefused: it does not.
    @raise ImportError: the extra is not installed.
    """
    client = _library()
    algorithm = client.HashAlgorithm.SHA256
    request = client.TimestampRequestBuilder().data(text.encode()).hash_algorithm(algorithm).build()
    answer = await ask(request.as_bytes())
    _check(answer, text, roots, client.VerifierBuilder.from_request(request))
    return answer


def checkStamp(answer: bytes, text: str, roots: Sequence[Certificate]) -> Stamp:
    """
    Check the time stamp of a checkpoint.

    @param answer: the answer of the authority.
    @param text: the text of the checkpoint's note.
    @param roots: the certificates that are trusted.
    @raise StampRefused: it does not hold.
    @raise ImportError: the extra is not installed.
    """
    return _check(answer, text, roots, _library().VerifierBuilder())


def _check(answer: bytes, text: str, roots: Sequence[Certificate], builder: Any) -> Stamp:
    client = _library()
    if len(answer) > MAX_STAMP:
        raise StampRefused(f"a time stamp has at most {MAX_STAMP} bytes")
    try:
        response = client.decode_timestamp_response(answer)
        for root in roots:
            builder = builder.add_root_certificate(root)
        builder.build().verify_message(response, text.encode())
        info = response.tst_info
        name = info.name.value.rfc4514_string() if info.name is not None else "not named"
        return Stamp(info.gen_time, name)
    except (client.VerificationError, ValueError, Malformed) as error:
        raise StampRefused(f"the time stamp does not hold: {error}") from None


def _library() -> Any:
    import rfc3161_client

    return rfc3161_client
