"""
C{svcbroker keygen}: make a key for an author.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ._arguments import PATH, jsonOption, makeCommand, options
from ._command import CommandError, Console, Exit
from ._tables import showRecord


@makeCommand(
    """\
    Make a key with which an author signs events.

    Writes a new Ed25519 private key to FILE, which only its owner can read, and its public key to
    standard output. The file is what openssl genpkey -algorithm ed25519 makes: PEM of PKCS #8. A
    file that exists is not overwritten.
    """
)
@options(click.argument("path", metavar="FILE", type=PATH), jsonOption())
def command(console: Console, path: Path, asJson: bool) -> int:
    """Write the key."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists already") from None
    with open(descriptor, "wb") as file:
        file.write(pem)
    public = key.public_key().public_bytes_raw().hex()
    showRecord(console, {"key": public, "file": str(path)}, [public], asJson)
    return Exit.GOOD
