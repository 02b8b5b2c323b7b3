"""
Values from elsewhere in words that no terminal takes for orders.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

LONGEST = 500
"""Characters of a text that are shown."""


def printable(text: str) -> str:
    """A text on one line: unprintable characters are escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(text: str) -> str:
    """The same of a text that is cut short where it is long."""
    return printable(text[:LONGEST] + ("..." if len(text) > LONGEST else ""))


def contentText(content: bytes) -> str:
    """
    An event's content: the text where it is one, its size and its hash.
    """
    size = f"{len(content)} bytes, SHA-256 {sha256(content).hexdigest()}"
    try:
        return f'"{quoted(content.decode("utf-8"))}" ({size})'
    except UnicodeDecodeError:
        return f"binary ({size})"


def timeText(milliseconds: int) -> str:
    """
    A time in UTC. One that no calendar has is its number.
    """
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} milliseconds after 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03} UTC"


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
