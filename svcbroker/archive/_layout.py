"""
Where things are in a data directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

STORE_NAME: Final = "ledger.sqlite"
"""The chain of a group, in the group's directory."""

KEYS_NAME: Final = "keys"
"""The directory of the private keys, in the group's directory."""

KEY_SUFFIX: Final = ".key"
"""What the names of key files end with."""

BROKER_FILES: Final = ("broker.key", "broker.voucher")
"""Who a broker is beside an engine, in the group's directory."""

NOTES_NAME: Final = "notes.sqlite"
"""What subscriptions keep, in the data directory."""


def isGroup(directory: Path) -> bool:
    """Whether this is the directory of a group, rather than a data directory."""
    return (directory / STORE_NAME).exists()


def groupDirectories(dataDir: Path) -> Sequence[Path]:
    """
    The directories of a data directory's groups that have a chain, by name.

    @raise OSError: it cannot be read.
    """
    return sorted(entry for entry in dataDir.iterdir() if entry.is_dir() and isGroup(entry))


def groupsIn(directory: Path) -> Sequence[str]:
    """
    The groups that have a chain in a data directory, or the one whose own directory it is.

    @raise OSError: it cannot be read.
    """
    if isGroup(directory):
        return [directory.absolute().name]
    return [each.name for each in groupDirectories(directory)]


def strangers(directory: Path, known: Iterable[str]) -> Sequence[str]:
    """
    What is in a directory that nobody knows, by name.

    @raise OSError: it cannot be read.
    """
    names = set(known)
    return sorted(entry.name for entry in directory.iterdir() if entry.name not in names)
