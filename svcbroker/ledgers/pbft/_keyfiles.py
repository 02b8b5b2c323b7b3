"""
The files of the replicas' private keys: one file for each key, readable by its owner only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ...files import readFile
from ...storage import syncFile
from ._keys import publicKey

SEED_SIZE = 32
_SUFFIX = ".key"


class KeysDamaged(Exception):
    """A key file is missing or damaged. The text is one line for the operator."""


def makeSeeds(directory: Path, count: int, entropy: Callable[[int], bytes]) -> Sequence[bytes]:
    """
    Make the private keys of a new chain's replicas. Existing keys are kept, so an interrupted first
    start can be repeated.

    @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
    @raise OSError: a file cannot be written.
    @raise KeysDamaged: an existing file does not hold a key.
    """
    seeds: list[bytes] = []
    missing: dict[str, bytes] = {}
    for index in range(count):
        name = f"node{index}"
        path = directory / (name + _SUFFIX)
        seed = _readSeed(path) if path.exists() else missing.setdefault(name, entropy(SEED_SIZE))
        seeds.append(seed)
    writeSeeds(directory, missing)
    return seeds


def writeSeeds(directory: Path, seeds: Mapping[str, bytes]) -> None:
    """
    Write private keys to files of these names. They are on stable storage when this returns.

    @raise OSError: a file cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, seed in seeds.items():
        path = directory / (name + _SUFFIX)
        temporary = path.with_suffix(".new")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(seed.hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    syncFile(directory)


def loadSeeds(directory: Path, keys: Sequence[bytes]) -> Sequence[bytes]:
    """
    Read the private keys that belong to some public keys, in the order of those. The names of the
    files do not matter.

    @raise KeysDamaged: one is missing, or a file does not hold a key.
    """
    found = {key: seed for _, key, seed in _read(directory)}
    if not found:
        raise KeysDamaged(
            f"{directory} has no keys, so this chain can be read but not go on (an import brings "
            "none): put the key files of its nodes there, from a backup"
        )
    for index, key in enumerate(keys):
        if key not in found:
            raise KeysDamaged(
                f"{directory} has no key of node {index} ({key.hex()[:16]}...): put it back from "
                "a backup"
            )
    return [found[key] for key in keys]


def removeSeeds(directory: Path, keys: Collection[bytes]) -> None:
    """
    Remove the private keys that belong to some public keys.

    @raise OSError: one cannot be removed.
    """
    gone = [path for path, key, _ in _read(directory) if key in keys]
    for path in gone:
        path.unlink()
    if gone:
        syncFile(directory)


def _read(directory: Path) -> Iterator[tuple[Path, bytes, bytes]]:
    """Each key file with its public and its private key."""
    for path in sorted(directory.glob("*" + _SUFFIX)):
        seed = _readSeed(path)
        yield path, publicKey(seed), seed


def _readSeed(path: Path) -> bytes:
    try:
        seed = bytes.fromhex(readFile(path).decode("ascii"))
    except OSError:
        raise KeysDamaged(f"{path} cannot be read: put it back from a backup") from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise KeysDamaged(f"{path} is not a key: put it back from a backup")
    return seed
