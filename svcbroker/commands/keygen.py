"""
C{svcbroker keygen}: make a key for an author.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ._arguments import PATH, makeCommand
from ._command import CommandError, Console, Exit


@makeCommand(
    """\
    Make a key with which an author signs events.

    Writes a new Ed25519 private key to FILE, which only its owner can read, and its public key to
    standard output. The file is what openssl genpkey -algorithm ed25519 makes: PEM of PKCS #8. A
    file that exists is not overwritten.
    """
)
@click.argument("path", metavar="FILE", type=PATH)
def command(console: Console, path: Path) -> int:
    """Write the key."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(f"{path} exists already") from None
    with open(descriptor, "wb") as file:
        file.write(pem)
    console.say(key.public_key().public_bytes_raw().hex())
    return Exit.GOOD
