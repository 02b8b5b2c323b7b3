"""
The files of a data directory: their names, and reading the key files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from errno import EEXIST
from pathlib import Path
from typing import Final

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..files import openFile, readFile
from ..storage import syncFile, writeFile

STORE_NAME: Final = "ledger.sqlite"
"""The chain of a group, in the group's directory."""

KEYS_NAME: Final = "keys"
"""The directory of the private keys, in the group's directory."""

KEY_SUFFIX: Final = ".key"
"""The suffix of key files."""

BROKER_FILES: Final = ("broker.key", "broker.voucher")
"""The broker's identity beside an engine, in the group's directory."""

JOURNAL_NAME: Final = "journal"
"""The directory with the transactions of a broker that are on their way to an EVM chain."""

COPY_NAME: Final = "copy-of"
"""
The file in the group's directory that says what its chain is a copy of. The embedded ledger does
not start on it.
"""

INDEX_NAME: Final = "index"
"""The directory of the index of a group's events, in the group's directory. It is made anew."""

TREES_NAME: Final = "scitt"
"""The directory of the trees of statements, in the group's directory. They are made anew."""

METADATA_NAME: Final = "notes.sqlite"
"""The metadata store, in the data directory."""

_SEED_SIZE: Final = 32
_MAX_KEY_FILE: Final = 1024


def ledgerOf(directory: Path) -> str:
    """
    The kind of ledger whose files are in a group's directory; empty where there are none, or where
    they do not tell, as after an import.
    """
    if (directory / COPY_NAME).exists():
        return "copy"
    if any((directory / KEYS_NAME).glob("*")):
        return "pbft"
    if (directory / JOURNAL_NAME).exists():
        return "evm"
    return "cometbft" if (directory / BROKER_FILES[0]).exists() else ""


def isGroup(directory: Path) -> bool:
    """Whether a directory is that of a group, rather than a data directory."""
    return (directory / STORE_NAME).exists()


def groupDirectory(directory: Path, group: str) -> Path:
    """
    The directory of a group's chain.

    @param directory: a data directory, or the group's own.
    """
    return directory if isGroup(directory) else directory / group


def groupDirectories(dataDir: Path) -> Sequence[Path]:
    """
    The directories of a data directory's groups that have a chain, by name.

    @raise OSError: it cannot be read.
    """
    return sorted(entry for entry in dataDir.iterdir() if entry.is_dir() and isGroup(entry))


def groupsIn(directory: Path) -> Sequence[str]:
    """
    The ids of the groups that have a chain in a data directory, or of the one group whose own
    directory it is.

    @raise OSError: it cannot be read.
    """
    if isGroup(directory):
        return [directory.absolute().name]
    return [each.name for each in groupDirectories(directory)]


def unknownFiles(directory: Path, known: Iterable[str]) -> Sequence[str]:
    """
    The names of the files in a directory that are not among the known ones, sorted.

    @raise OSError: it cannot be read.
    """
    names = set(known)
    return sorted(entry.name for entry in directory.iterdir() if entry.name not in names)


@frozen(kw_only=True)
class KeyFile:
    """
    A key file.

    @ivar text: its content.
    @ivar key: the public key of the private key in it; C{None} where it is not a key.
    @ivar isPrivate: whether only its owner may read it.
    """

    path: Path
    text: bytes
    key: bytes | None
    isPrivate: bool


def readKeyFiles(directory: Path) -> Iterator[KeyFile]:
    """
    The key files of a directory, by name; none where the directory does not exist.

    @raise OSError: one cannot be read.
    """
    for path in sorted(directory.glob("*" + KEY_SUFFIX)):
        try:
            with openFile(path) as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(_MAX_KEY_FILE)
        except FileNotFoundError:
            # A key change has removed it just now.
            continue
        yield KeyFile(path=path, text=text, key=_publicKey(text), isPrivate=not mode & 0o77)


def writeKeyFiles(
    directory: Path, validators: Sequence[bytes], keys: Mapping[bytes, KeyFile]
) -> None:
    """
    Copy the key files of some validators into a directory, which is made. Keys that are there
    already stay. They are on stable storage when this returns.

    @param validators: their public keys.
    @param keys: key files by their public keys; those of all validators are among them.
    @raise OSError: a file cannot be written, or has another key.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    kept = {each.path for each in readKeyFiles(directory) if each.key is not None}
    for key in validators:
        path = directory / keys[key].path.name
        if path == keys[key].path:
            continue
        if path in kept:
            raise FileExistsError(EEXIST, "it has another key", str(path))
        writeFile(path, keys[key].text, 0o600)
    syncFile(directory)


def _publicKey(text: bytes) -> bytes | None:
    try:
        seed = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    if len(seed) != _SEED_SIZE:
        return None
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def refusedName(height: object) -> str:
    """The name of the file with what a copy has refused to copy at a height."""
    return f"refused-{height}.export"


def markCopy(directory: Path, original: str) -> None:
    """
    Write L{COPY_NAME}. It is on stable storage when this returns.

    @param directory: the group's directory.
    @param original: what its chain is a copy of.
    @raise OSError: it cannot be written.
    """
    path, text = directory / COPY_NAME, f"{original}\n".encode()
    if not path.exists() or readFile(path) != text:
        writeFile(path, text)
