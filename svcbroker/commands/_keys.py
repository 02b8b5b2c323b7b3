"""
Keys of authors, as openssl writes them, and their names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)

from ._command import CommandError

_MAX_FILE = 1 << 20


def readPrivateKey(path: Path, ask: Callable[[str], str] = getpass) -> Ed25519PrivateKey:
    """
    Read a private key from a PEM file.

    @param ask: asks for the passphrase of one that is encrypted.
    @raise CommandError: there is none.
    """
    key = _load(path, ask)
    if not isinstance(key, Ed25519PrivateKey):
        raise CommandError(f"{path} has no Ed25519 private key")
    return key


def readAuthors(path: Path) -> Mapping[bytes, str]:
    """
    Read the names of authors: a TOML file with a line C{name = "KEY"} for each. KEY is a public key
    in hexadecimal digits or the name of a PEM file with a key, from the directory of the file.

    @return: names by public keys.
    @raise CommandError: it is no such file.
    """
    try:
        found = tomllib.loads(_read(path).decode("utf-8"))
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
        return key
    source = path.parent / value
    if not source.is_file():
        raise CommandError(
            f"{path}: the key of {name} is neither 64 hexadecimal digits nor a PEM file"
        )
    pair = _load(source, getpass)
    if isinstance(pair, Ed25519PrivateKey):
        pair = pair.public_key()
    if not isinstance(pair, Ed25519PublicKey):
        raise CommandError(f"{source} has no Ed25519 key")
    return pair.public_bytes_raw()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE)


def _load(path: Path, ask: Callable[[str], str]) -> Any:
    """
    The key in a PEM file.

    @return: C{None} where there is none.
    """
    data = _read(path)
    try:
        if b"PUBLIC KEY" in data:
            return load_pem_public_key(data)
        try:
            return load_pem_private_key(data, None)
        except TypeError:
            # It is encrypted.
            passphrase = ask(f"Passphrase of {path}: ").encode("utf-8")
            return load_pem_private_key(data, passphrase)
    except (ValueError, UnsupportedAlgorithm, TypeError) as error:
        if "password" in str(error).lower() or b"ENCRYPTED" in data:
            raise CommandError(f"{path}: the passphrase is not the right one") from None
        return None
