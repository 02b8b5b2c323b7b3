"""
The settings of the ledger beside a CometBFT engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

from ...interfaces import InvalidDescription
from ...net.descriptions import Readers, absolutePath, readValues
from .._description import integer, number, readUrl
from ._home import MAX_SOCKET_PATH, SOCKET
from ._outbox import BATCH_BYTES, BATCH_COUNT, WINDOW

DEFAULT_RPC: Final = "http://127.0.0.1:26657"

SUMMARY = "CometBFT decides the blocks, with other organisations: an engine runs beside the broker."

SETTINGS: Mapping[str, str] = {
    "home": "the engine's home directory (required)",
    "rpc": "the engine's RPC: a port of this machine, the path of a Unix socket, or a URL with a "
    "backslash before each colon (default 26657)",
    "socket": f"the broker's Unix socket, which the engine connects to (default {SOCKET} in home)",
    "engine": "the cometbft program, which the broker runs as its child (default: none is run)",
    "interval": "seconds to gather transactions into a batch (default 0.01; 0: none)",
    "mempool": "the most bytes of transactions that are not final (default 67108864)",
    "timeout": "seconds that an answer of the engine's RPC may take (default 10)",
    "snapshots": "blocks between snapshots for new nodes (default 1000; 0: none)",
    "keep": "the newest blocks that the engine keeps; older ones are only in the broker's chain "
    "(default 0: all)",
    "format3": "the height from which a network that began with format 2 makes blocks of format 3; "
    "the same on all nodes (default: never)",
    "format4": "the same for a network that has format 3, and blocks of format 4",
}

OUTDATED: Mapping[str, str] = {
    "batch": f"a batch has at most {BATCH_BYTES} bytes of transactions",
    "count": f"a batch has at most {BATCH_COUNT} transactions",
    "window": f"at most {WINDOW} batches wait for their blocks",
}
"""Settings of earlier releases: they may still be given, and have no effect."""


@frozen(kw_only=True)
class CometSettings:
    """
    The settings of the ledger beside an engine; L{SETTINGS} says what they mean.

    @ivar rpc: a URL, or the path of a Unix socket.
    @ivar engine: C{None} where somebody else runs the engine.
    @ivar snapshots: 0 where none are taken.
    @ivar keep: 0 where the engine keeps all blocks.
    @ivar format3: C{None} where the network does not change its format.
    @ivar format4: the same.
    @ivar outdated: a line for each setting that was given and is L{OUTDATED}.
    """

    home: Path
    rpc: str | Path = DEFAULT_RPC
    socket: Path = field()
    engine: Path | None = None
    interval: float = 0.01
    mempool: int = 64 * 1024 * 1024
    timeout: float = 10.0
    snapshots: int = 1000
    keep: int = 0
    format3: int | None = None
    format4: int | None = None
    outdated: tuple[str, ...] = ()

    @socket.default
    def _socketInHome(self) -> Path:
        return self.home.absolute() / SOCKET


def _socket(text: str) -> Path:
    path = absolutePath(text)
    if len(bytes(path)) > MAX_SOCKET_PATH:
        raise ValueError
    return path


def _rpc(text: str) -> str | Path:
    if text.startswith("/"):
        return _socket(text)
    return readUrl(text, isRoot=True)


_PATH = "a path"
_READERS: Readers = {
    "home": (absolutePath, _PATH),
    "rpc": (_rpc, r"a port, the path of a socket, or a URL such as http\://127.0.0.1\:26657"),
    "socket": (_socket, f"a path of at most {MAX_SOCKET_PATH} bytes"),
    "engine": (absolutePath, _PATH),
    "interval": (lambda text: number(text, 0, 60), "seconds from 0 to 60"),
    "mempool": (lambda text: integer(text, 1024, 2**40), "bytes from 1024"),
    "timeout": (lambda text: number(text, 0.1, 60), "seconds from 0.1 to 60"),
    "snapshots": (lambda text: integer(text, 0, 2**40), "a number of blocks from 0"),
    "keep": (lambda text: integer(text, 0, 2**40), "a number of blocks from 0"),
    "format3": (lambda text: integer(text, 1, 2**40), "a height from 1"),
    "format4": (lambda text: integer(text, 1, 2**40), "a height from 1"),
}


def readSettings(settings: Mapping[str, str]) -> CometSettings:
    """
    Read a description's settings.

    @raise InvalidDescription: one is unknown, has a bad value, or is missing.
    """
    known = {key: text for key, text in settings.items() if key not in OUTDATED}
    values = readValues("the cometbft ledger", known, _READERS)
    if "home" not in values:
        raise InvalidDescription("home: it must be said where the engine's home directory is")
    outdated = tuple(
        f"{key} is no setting of the ledger any more, and has no effect: {OUTDATED[key]}"
        for key in settings
        if key in OUTDATED
    )
    made = CometSettings(**values, outdated=outdated)
    if len(bytes(made.socket)) > MAX_SOCKET_PATH:
        raise InvalidDescription(
            f"home: {made.socket} has more than {MAX_SOCKET_PATH} bytes, which no socket's path "
            "has: give a shorter one as socket, and as proxy_app in the engine's config.toml"
        )
    return made
