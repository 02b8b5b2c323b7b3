"""
Looking at key files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ._layout import KEY_SUFFIX

_SEED_SIZE: Final = 32
_MAX_SIZE: Final = 1024


@frozen(kw_only=True)
class KeyFile:
    """
    A key file.

    @ivar key: the public key of what is in it; C{None} where it is not a key.
    @ivar isPrivate: whether only its owner may read it.
    """

    path: Path
    key: bytes | None
    isPrivate: bool


def readKeyFiles(directory: Path) -> Iterator[KeyFile]:
    """
    The key files of a directory, by name. None where there is no directory.

    @raise OSError: one cannot be read.
    """
    for path in sorted(directory.glob("*" + KEY_SUFFIX)):
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            yield KeyFile(
                path=path, key=_publicKey(file.read(_MAX_SIZE)), isPrivate=not mode & 0o77
            )


def keyPaths(directory: Path) -> Mapping[bytes, Path]:
    """
    Where the key of each public one is.

    @raise OSError: one cannot be read.
    """
    return {each.key: each.path for each in readKeyFiles(directory) if each.key is not None}


def _publicKey(text: bytes) -> bytes | None:
    try:
        seed = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    if len(seed) != _SEED_SIZE:
        return None
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
