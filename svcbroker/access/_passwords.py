"""
Passwords as accounts keep them: argon2id, in the PHC string format.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final

from nacl.exceptions import InvalidkeyError
from nacl.pwhash import argon2id

_OPERATIONS: Final = argon2id.OPSLIMIT_INTERACTIVE
_MEMORY: Final = argon2id.MEMLIMIT_INTERACTIVE
_PHC = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,8}),t=[1-9][0-9]{0,2},p=([1-9][0-9]?)"
    r"\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}"
)
_MAX_MEMORY: Final = 1024 * 1024
"""The most memory that verifying a password may take, in KiB."""
_MAX_LENGTH: Final = 127
"""How long a hash may be that libsodium verifies, in characters."""

DEFAULT_COST: Final = f"m={_MEMORY // 1024},t={_OPERATIONS},p=1"


def hashPassword(password: bytes) -> str:
    """The hash of a new password. Takes some 100 ms and 64 MiB."""
    return argon2id.str(password, _OPERATIONS, _MEMORY).decode("ascii")


def verifyPassword(hash: str, password: bytes) -> bool:
    """Whether a password has a hash. Blocks; may be called in any thread."""
    try:
        return bool(argon2id.verify(hash.encode("ascii"), password))
    except InvalidkeyError:
        return False


def checkHash(text: str) -> str:
    """
    Check that a text is a hash that can be verified.

    @raise ValueError: it is none.
    """
    found = _PHC.fullmatch(text)
    isUsable = (
        found is not None
        and 8 * int(found[2]) <= int(found[1]) <= _MAX_MEMORY
        and len(text) <= _MAX_LENGTH
    )
    if not isUsable:
        raise ValueError(
            "must be an argon2id hash, $argon2id$v=19$m=...,t=...,p=...$SALT$HASH, of at most "
            f"{_MAX_LENGTH} characters, with at most 1 GiB of memory: svcbroker account passwd "
            "makes it"
        )
    return text


def costOf(hash: str) -> str:
    """What verifying a password costs: the parameters of its hash."""
    return hash.split("$")[3]


class PasswordVerifier:
    """
    Verifies passwords against hashes of several costs. A wrong password is verified against one
    hash of each cost, so the time tells neither whether there is such an account nor what its hash
    costs.
    """

    def __init__(self, costs: Iterable[str], entropy: Callable[[int], bytes]) -> None:
        """
        @param costs: those of all hashes, see L{costOf}.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        """
        self._unknown = {cost: unknownHash(cost, entropy) for cost in costs}

    def verify(self, hash: str, password: bytes) -> bool:
        """
        Whether a password has a hash. Blocks; may be called in any thread.

        @param hash: empty where there is no such account, or it has no password.
        """
        if hash and verifyPassword(hash, password):
            return True
        cost = costOf(hash) if hash else ""
        for other, unknown in self._unknown.items():
            if other != cost:
                verifyPassword(unknown, password)
        return False


def unknownHash(cost: str, entropy: Callable[[int], bytes]) -> str:
    """A hash that no password has, and that costs as much to verify as others."""
    salt, digest = (b64encode(entropy(size)).decode("ascii").rstrip("=") for size in (16, 32))
    return f"$argon2id$v=19${cost}${salt}${digest}"
