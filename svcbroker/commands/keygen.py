"""
C{svcbroker keygen}: make a key for an author.
"""

from __future__ import annotations

from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ..files import writeNew
from ._arguments import PATH, jsonOption, makeCommand, options
from ._command import Console, Exit
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
    writeNew(path, pem)
    public = key.public_key().public_bytes_raw().hex()
    showRecord(console, {"key": public, "file": str(path)}, [public], asJson)
    return Exit.GOOD
