"""
Keys of authors, as openssl writes them, and their names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ..chain import isUsableKey
from ._command import CommandError
from ._reading import readBounded

if TYPE_CHECKING:
    from ..client import AuthorKey

_MAX_FILE = 1 << 20


def readAuthorKey(path: Path, ask: Callable[[str], str] = getpass) -> AuthorKey:
    """
    Read an author's private key from a PEM file.

    @param ask: asks for the passphrase of one that is encrypted.
    @raise CommandError: it is no such file.
    """
    from ..client import AuthorKey, PassphraseMissing

    try:
        try:
            return AuthorKey.read(path)
        except PassphraseMissing:
            return AuthorKey.read(path, ask(f"Passphrase of {path}: ").encode("utf-8"))
    except ValueError as error:
        raise CommandError(str(error)) from None


def readAuthors(path: Path) -> Mapping[bytes, str]:
    """
    Read the names of authors: a TOML file with a line C{name = "KEY"} for each. KEY is a public key
    in hexadecimal digits or the name of a PEM file with a key, from the directory of the file.

    @return: names by public keys.
    @raise CommandError: it is no such file.
    """
    try:
        found = tomllib.loads(readBounded(path, _MAX_FILE).decode("utf-8"))
    except ValueError as error:
        raise CommandError(f'{path} has no lines of the form name = "KEY": {error}') from None
    names: dict[bytes, str] = {}
    for name, value in found.items():
        key = _publicKey(path, name, value)
        if key in names:
            raise CommandError(f"{path}: {names[key]} and {name} have the same key")
        names[key] = name
    return names


def _publicKey(path: Path, name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise CommandError(f"{path}: the key of {name} is not a text")
    try:
        key = bytes.fromhex(value)
    except ValueError:
        key = b""
    if len(key) == 32:
        if not isUsableKey(key):
            raise CommandError(f"{path}: the key of {name} is not a usable Ed25519 key")
        return key
    source = path.parent / value
    if not source.is_file():
        raise CommandError(
            f"{path}: the key of {name} is neither 64 hexadecimal digits nor a PEM file"
        )
    data = readBounded(source, _MAX_FILE)
    if b"PRIVATE KEY" in data:
        return readAuthorKey(source).public
    try:
        pair: Any = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        pair = None
    if not isinstance(pair, Ed25519PublicKey):
        raise CommandError(f"{source} has no Ed25519 key")
    return pair.public_bytes_raw()
