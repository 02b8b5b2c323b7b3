"""
Binary fields of proofs.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping

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


def contentFields(content: bytes) -> Mapping[str, str]:
    """
    What an event's content is written as.
    """
    try:
        return {"content": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"contentBase64": b64encode(content).decode("ascii")}


def unbase64(text: str) -> bytes:
    """
    The content that is written in Base64.

    @raise Malformed: it is something else, or not canonical.
    """
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        data = b""
    if b64encode(data).decode("ascii") != text:
        raise Malformed("the content is not in canonical base64")
    return data
