"""
Heads of transactions: all of a transaction but its content.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from ..errors import BrokerError
from ..model import (
    AUTHOR_KEY_SIZE,
    PRIVATE_PREFIX,
    checkExtensions,
    checkTopicName,
    isIdempotencyKey,
)
from ._address import ADDRESS_SIZE
from ._encoding import U16, U64, Malformed, Reader, VersionUnknown
from ._extensions import decodeExtensions

FIXED: Final = struct.Struct(">BB20sQQ32sH")
"""What a head begins with, up to the length of the name."""

MAX_HEAD_SIZE = 20480
"""No transaction's head is longer: a name and extensions at their limits stay far below."""

AUTHOR: Final = 1
KEY: Final = 2
EXPECTED: Final = 4
PRIVATE: Final = 8
STATEMENT: Final = 16
"""Of version 3: the author has signed the statement's version 2."""
_REGISTERED: Final = 32

_LAST_KINDS: Final = {1: 4, 2: 6, 3: 9}
"""The highest kind of each version."""
_NEWER: Final = "a newer svcbroker executes it"


class Kind(IntEnum):
    """What a transaction does. The numbers are part of the encoding."""

    OPEN = 1
    CLOSE = 2
    PUBLISH = 3
    VALIDATORS = 4
    AUTHORS = 5
    ERASE = 6


class Head(Struct, frozen=True, kw_only=True):
    """
    A transaction's head, taken apart.

    @ivar options: the sum of C{AUTHOR}, C{KEY}, C{EXPECTED}, C{PRIVATE} and C{STATEMENT}; 0 in
        version 1.
    @ivar commitment: of version 1 the hash of the content; of later ones that of seal and content.
    @ivar author: the author's public key and time.
    @ivar owner: whose the idempotency key is, where there is no author.
    @ivar size: how many bytes it has.
    """

    version: int
    kind: Kind
    sender: bytes
    nonce: int
    timestamp: int
    commitment: bytes
    topic: str
    options: int
    author: tuple[bytes, int] | None
    owner: bytes | None
    key: str | None
    expected: int | None
    extensions: Mapping[str, str]
    size: int

    @classmethod
    def read(cls, entry: bytes) -> Head:
        """
        Take a head off an entry.

        @raise Malformed: the entry does not begin with one; L{VersionUnknown} where it is of a
            version, or of a part of version 3, that this code does not execute.
        """
        reader = Reader(entry)
        version, number, sender, nonce, timestamp, commitment, length = FIXED.unpack(
            reader.take(FIXED.size)
        )
        if version not in _LAST_KINDS:
            raise VersionUnknown(f"transaction version {version} is not known: {_NEWER}")
        if not 1 <= number <= _LAST_KINDS[version]:
            raise Malformed(f"transaction kind {number} is not known")
        if number > Kind.ERASE:
            raise VersionUnknown(f"transaction kind {number} of version 3: {_NEWER}")
        kind = Kind(number)
        topic = reader.text(length)
        options = reader.take(1)[0] if version != 1 else 0
        if options:
            _checkOptions(options, version, kind)
        author = owner = key = expected = None
        if options & AUTHOR:
            author = reader.take(AUTHOR_KEY_SIZE), reader.number(U64)
        if options & KEY:
            if author is None:
                owner = reader.take(ADDRESS_SIZE)
            key = reader.text(reader.take(1)[0])
            if not isIdempotencyKey(key):
                raise Malformed("an idempotency key is not valid")
        if options & EXPECTED:
            expected = reader.number(U64)
        return cls(
            version=version,
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            commitment=commitment,
            topic=topic,
            options=options,
            author=author,
            owner=owner,
            key=key,
            expected=expected,
            extensions=decodeExtensions(reader),
            size=reader.position,
        )

    def check(self, hasContent: bool, private: Mapping[str, str]) -> None:
        """
        Check that name and extensions are valid for the kind.

        @param private: the private extensions.
        @raise Malformed: they are not.
        """
        kind = self.kind
        if kind is Kind.VALIDATORS:
            if self.topic or self.extensions:
                raise Malformed("a change of validators has neither topic nor extensions")
            return
        if kind is not Kind.PUBLISH:
            mayHaveContent = self.version != 1 and kind is not Kind.CLOSE
            if self.extensions or (hasContent and not mayHaveContent):
                raise Malformed("only a publish has content and extensions")
        extensions = self.extensions
        if self.version != 1 and any(key.startswith(PRIVATE_PREFIX) for key in extensions):
            raise Malformed("a private extension is not in the seal")
        if private:
            if not all(key.startswith(PRIVATE_PREFIX) for key in private):
                raise Malformed("a public extension is in the seal")
            extensions = {**extensions, **private}
        try:
            checkTopicName(self.topic)
        except BrokerError as error:
            if self.version == 3:
                raise VersionUnknown(f"a topic's name of version 3: {_NEWER}") from None
            raise Malformed(error.message) from None
        try:
            checkExtensions(extensions)
        except BrokerError as error:
            raise Malformed(error.message) from None


def _checkOptions(options: int, version: int, kind: Kind) -> None:
    """
    Check the options of a head that has some.

    @raise Malformed: there are no such options in this version, or of this kind;
        L{VersionUnknown} where this code does not execute them.
    """
    most = PRIVATE if version == 2 else _REGISTERED
    if options >= 2 * most or kind is not Kind.PUBLISH:
        raise Malformed(f"transaction options {options} are not known")
    if options & STATEMENT and not options & AUTHOR:
        raise Malformed("a statement's version is named, and there is no author")
    if options & _REGISTERED:
        raise VersionUnknown(f"a registered statement: {_NEWER}")


def endOfClaims(body: bytes, start: int) -> int:
    """
    Where the extensions begin in a head that is known to be good.

    @param start: where the head begins.
    @raise struct.error: the body ends early.
    @raise IndexError: the body ends early.
    """
    at: int = start + FIXED.size
    at += U16.unpack_from(body, at - U16.size)[0]
    if body[start] == 1:
        return at
    options, at = body[at], at + 1
    if options & AUTHOR:
        at += AUTHOR_KEY_SIZE + U64.size
    if options & KEY:
        at += 0 if options & AUTHOR else ADDRESS_SIZE
        at += 1 + body[at]
    if options & EXPECTED:
        at += U64.size
    return at
