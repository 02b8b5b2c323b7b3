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


def erasedText(time: int, account: str, reason: str) -> str:
    """
    An erasure: its day in UTC, the account and the reason, as far as they are known.

    @param time: milliseconds since the epoch; 0 where it is not known.
    """
    text = "erased"
    if time:
        # A time that no calendar has is a number of milliseconds.
        shown = timeText(time)
        text += f" {shown.partition(' ')[0] if shown.endswith(' UTC') else f'at {shown}'}"
    if account:
        text += f" by {quoted(account)}"
    return f"{text}: {quoted(reason)}" if reason else text


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
