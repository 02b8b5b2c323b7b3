"""
Looking at key files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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

    @ivar text: what is in it.
    @ivar key: the public key of the private one in it; C{None} where it is not a key.
    @ivar isPrivate: whether only its owner may read it.
    """

    path: Path
    text: bytes
    key: bytes | None
    isPrivate: bool


def readKeyFiles(directory: Path) -> Iterator[KeyFile]:
    """
    The key files of a directory, by name. None where there is no directory.

    @raise OSError: one cannot be read.
    """
    for path in sorted(directory.glob("*" + KEY_SUFFIX)):
        try:
            with path.open("rb") as file:
                mode, text = os.fstat(file.fileno()).st_mode, file.read(_MAX_SIZE)
        except FileNotFoundError:
            # A change of the nodes has put it out of use just now.
            continue
        yield KeyFile(path=path, text=text, key=_publicKey(text), isPrivate=not mode & 0o77)


def _publicKey(text: bytes) -> bytes | None:
    try:
        seed = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    if len(seed) != _SEED_SIZE:
        return None
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
