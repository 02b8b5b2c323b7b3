"""
The log lines of an engine, read and split.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

MAX_LINE: Final = 16 * 1024
"""Bytes of a line; what is longer comes in pieces. A trace of a crash is one line."""

# I[2026-11-20|16:30:09.277] Generated private validator      module=main keyFile=...
_LINE: Final = re.compile(r"([DIE])\[[^\]]*\] (.*)", re.DOTALL)
_MODULE: Final = re.compile(r" module=(\S+)")
_LEVELS: Final = {"D": "debug", "I": "info", "E": "error"}
# These modules log errors whenever a peer disconnects.
_PEERS: Final = frozenset({"p2p", "blocksync"})
# What an engine says of each broker that looks whether it is there.
_PROBED: Final = re.compile('Inbound Peer rejected .*err="auth failure: secret conn failed: EOF"')
# How the last line of a crash begins.
_ALARMS: Final = ("ERROR:", "panic:")
_FATAL: Final = "CONSENSUS FAILURE!!!"


@frozen(kw_only=True)
class LogLine:
    """
    @ivar level: C{debug}, C{info}, C{error}; C{warn} for an error that a peer may have made.
    @ivar text: the rest, without the time.
    @ivar module: the engine's module; empty where that is not known.
    @ivar isFatal: whether the engine has stopped taking part in consensus.
    """

    level: str
    text: str
    module: str = ""
    isFatal: bool = False


def readLine(text: str, *, isError: bool) -> LogLine:
    """
    Read a line of the plain format.

    @param isError: whether it came on the standard error, where only crashes write; it counts
        where the line has no level of its own.
    """
    found = _LINE.fullmatch(text)
    if found is None:
        isError = isError or text.startswith(_ALARMS)
        return LogLine(level="error" if isError else "info", text=text)
    # The message is padded with blanks, so that what follows stands in a column.
    message, gap, values = found[2].partition(" module=")
    said = message.rstrip(" ") + gap + values.rstrip(" ")
    module = _MODULE.search(gap + values)
    level = _LEVELS[found[1]]
    name = "" if module is None else module[1]
    if level == "error" and name in _PEERS:
        level = "warn"
    elif _PROBED.match(said):
        level = "debug"
    return LogLine(
        level=level,
        text=said,
        module=name,
        isFatal=level == "error" and message.startswith(_FATAL),
    )


def shortened(text: str, most: int) -> str:
    """
    The first words of a text, with an ellipsis where it has more than so many characters.
    """
    if len(text) <= most:
        return text
    words, _, _ = text[: most + 1].rpartition(" ")
    # A single word that is so long is cut all the same.
    return f"{words if len(words) > most // 2 else text[:most]} ..."


class LineSplitter:
    """
    Cuts what comes into lines of bounded length.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Take bytes; the lines that end in them, and pieces of one that is too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > MAX_LINE:
            lines.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        return [
            piece.decode("utf-8", "replace")
            for line in lines
            for piece in _pieces(line.rstrip(b"\r"))
        ]

    def rest(self) -> list[str]:
        """What has come since the last line."""
        return self.feed(b"\n") if self._rest else []


def _pieces(line: bytes) -> list[bytes]:
    """A line without what is empty, in pieces."""
    return [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)]
