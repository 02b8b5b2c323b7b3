"""
Binary fields of proofs.
"""

from __future__ import annotations

from ..chain import Malformed


def unhex(text: str, size: int) -> bytes:
    """
    The bytes that some digits stand for.

    @param size: how many bytes there must be.
    @raise Malformed: it is something else, or written in another way than proofs are.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) != size or data.hex() != text:
        raise Malformed(f"{text[:80]!r} are not {size} bytes in lower-case hexadecimal digits")
    return data
