"""
The settings of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from ...interfaces import InvalidDescription
from ...net.descriptions import Readers, absolutePath, readValues
from ...proofs import Checkpoint

SUMMARY = "A verified copy of a chain that another broker has, for reads and as a standby."

SETTINGS: Mapping[str, str] = {
    "url": "the base URL of the other broker, with a backslash before each colon (required)",
    "account": "the account to log in with (default: none)",
    "password-file": "a file with the account's password on its first line",
    "token-file": "a file with a token on its first line, instead of account and password",
    "certificate": "a PEM file with a certificate and its private key, to log in with",
    "ca": "a PEM file with the authorities of the other broker's certificate (default: those of "
    "the system)",
    "genesis": "the hash of the chain's genesis: no other chain is copied (default: the one that "
    "is there, or the first that comes)",
    "checkpoint": "a block that the chain must have, as HEIGHT\\:HASH (default: none)",
}


@frozen(kw_only=True)
class CopySettings:
    """
    The settings of a copy; L{SETTINGS} explains them.

    @ivar url: without a slash at its end.
    """

    url: str
    account: str | None = None
    passwordFile: Path | None = None
    tokenFile: Path | None = None
    certificate: Path | None = None
    ca: Path | None = None
    genesis: bytes | None = None
    checkpoint: Checkpoint | None = None


def _url(text: str) -> str:
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError
    isURL = text.isascii() and text.isprintable() and " " not in text
    # Credentials in it would be logged.
    if not isURL or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError
    if parts.scheme not in ("http", "https"):
        raise ValueError
    return text.rstrip("/")


def _account(text: str) -> str:
    if not text or ":" in text or not text.isprintable():
        raise ValueError
    return text


def _hash(text: str) -> bytes:
    found = bytes.fromhex(text.removeprefix("0x"))
    if len(found) != 32:
        raise ValueError
    return found


_FILE: Final = "the path of a file"
_READERS: Readers = {
    "url": (_url, "an http or https URL without credentials"),
    "account": (_account, "the name of an account"),
    "password-file": (absolutePath, _FILE),
    "token-file": (absolutePath, _FILE),
    "certificate": (absolutePath, _FILE),
    "ca": (absolutePath, _FILE),
    "genesis": (_hash, "a hash of 64 hexadecimal digits"),
    "checkpoint": (Checkpoint.parse, "HEIGHT:HASH"),
}


def readSettings(settings: Mapping[str, str]) -> CopySettings:
    """
    Read the settings of a ledger description.

    @raise InvalidDescription: one is unknown, missing or has an invalid value.
    """
    values = readValues("a copy", settings, _READERS)
    if "url" not in values:
        raise InvalidDescription("url is missing: the base URL of the broker to copy from")
    if ("account" in values) != ("password-file" in values):
        raise InvalidDescription("account and password-file belong together")
    if "account" in values and "token-file" in values:
        raise InvalidDescription("token-file: there is an account already")
    for key, name in (("password-file", "passwordFile"), ("token-file", "tokenFile")):
        if key in values:
            values[name] = values.pop(key)
    return CopySettings(**values)
