"""
Authors who sign events.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import statement
from svcbroker.model import Authorship
from svcbroker.testing._fixtures import ScriptedLedger
from tests.needed import neededProgram

SIGNED_AT = 1_700_000_000_123


def tellChain(ledger: ScriptedLedger) -> bytes:
    """The chain of a memory ledger, which tells the broker of it from now on."""
    chain: bytes = ledger._ledger._genesis.chain
    ledger.chain = chain
    return chain


def makeKeyFile(path: Path) -> None:
    """Have openssl make the key of an author, in a file."""
    command = (neededProgram("openssl"), "genpkey", "-algorithm", "ed25519", "-out", path)
    subprocess.run(command, check=True, capture_output=True)


class Author:
    """
    An author with a key of its own.

    @ivar key: its public key.
    """

    def __init__(self, number: int = 1) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        self.key = self._private.public_key().public_bytes_raw()

    def signText(self, text: bytes) -> bytes:
        """Its signature of a text."""
        return self._private.sign(text)

    def sign(
        self,
        chain: bytes,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str],
        key: str | None = None,
        signedAt: int = SIGNED_AT,
        version: int = 1,
        expected: int | None = None,
    ) -> Authorship:
        """Its signature of an event."""
        text = statement(chain, topic, content, signedAt, key, extensions, version, expected)
        return Authorship(key=self.key, signedAt=signedAt, signature=self._private.sign(text))
