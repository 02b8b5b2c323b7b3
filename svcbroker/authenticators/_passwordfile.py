"""
mosquitto's password files.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from hashlib import pbkdf2_hmac, sha512
from hmac import compare_digest
from typing import Final

from attrs import field, frozen

from ._lines import BLANKS, LineError, readLines

_SALTED: Final = "6"
_PBKDF2: Final = "7"
_NUMBER = re.compile("[0-9]{1,9}")
_MAX_ITERATIONS: Final = 10_000_000

USUAL_ITERATIONS: Final = 210_000
"""What OWASP advises for PBKDF2 with HMAC-SHA-512: some 0.2 seconds."""

_DIGEST_SIZE: Final = sha512().digest_size


@frozen
class PasswordHash:
    """
    The hash of a password: C{$6$SALT$HASH} is SHA-512 of the password and the salt, and
    C{$7$ITERATIONS$SALT$HASH} is PBKDF2 with HMAC-SHA-512.

    @ivar iterations: 0 for C{$6$}.
    """

    iterations: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """
        Read a hash.

        @raise ValueError: it is none. The text does not show it.
        """
        empty, _, rest = text.partition("$")
        kind, *parts = rest.split("$")
        if empty or kind not in (_SALTED, _PBKDF2):
            raise ValueError(
                "the password is not hashed as $6$ or $7$; mosquitto_passwd -U hashes those of "
                "a file"
            )
        iterations = 0
        if kind == _PBKDF2:
            count = parts.pop(0) if parts else ""
            iterations = int(count) if _NUMBER.fullmatch(count) else 0
            if not 0 < iterations <= _MAX_ITERATIONS:
                raise ValueError(f"a $7$ hash has 1 to {_MAX_ITERATIONS} iterations")
        if len(parts) != 2:
            raise ValueError(f"a ${kind}$ hash has a salt and a hash after it")
        try:
            salt, digest = (b64decode(part, validate=True) for part in parts)
        except ValueError:
            raise ValueError("the salt or the hash is not base64") from None
        if len(digest) != _DIGEST_SIZE:
            raise ValueError(f"the hash does not have {_DIGEST_SIZE} bytes")
        return cls(iterations, salt, digest)

    def verify(self, password: bytes, iterations: int = 0) -> bool:
        """
        Whether it is the hash of a password. Blocks; may be called in any thread.

        @param iterations: those that a wrong password takes at least, so that the time does not
            tell which hash it was compared with.
        """
        if self.iterations:
            digest = pbkdf2_hmac("sha512", password, self.salt, self.iterations)
        else:
            digest = sha512(password + self.salt).digest()
        isGood = compare_digest(digest, self.digest)
        if not isGood and iterations > self.iterations:
            pbkdf2_hmac("sha512", password, self.salt, iterations - self.iterations)
        return isGood


def parsePasswords(raw: bytes) -> Mapping[str, PasswordHash]:
    """
    Read a password file: C{NAME:HASH} in each line. As with mosquitto, lines without a colon mean
    nothing.

    @return: the hashes, by the names of the users.
    @raise LineError: a line cannot be used.
    """
    hashes: dict[str, PasswordHash] = {}
    for number, line in readLines(raw):
        name, colon, rest = line.partition(":")
        if not colon:
            continue
        name = name.strip(BLANKS)
        if not name:
            raise LineError(number, "there is no name before the colon")
        if name in hashes:
            raise LineError(number, f"there is a password of {name!r} already")
        try:
            hashes[name] = PasswordHash.parse(rest.partition(":")[0].strip(BLANKS))
        except ValueError as error:
            raise LineError(number, str(error)) from None
    return hashes


def unknownHash(
    hashes: Mapping[str, PasswordHash], entropy: Callable[[int], bytes]
) -> PasswordHash:
    """
    A hash that no password has, and that takes as long to verify as the dearest of others.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    """
    iterations = max((each.iterations for each in hashes.values()), default=0)
    return PasswordHash(iterations, bytes(12), entropy(_DIGEST_SIZE))
