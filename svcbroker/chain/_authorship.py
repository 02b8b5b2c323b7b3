"""
Authors: the statements that they sign, and the sets of authors that topics may have.

B{Frozen bytes}: pinned by C{statements}, C{authorSets} and C{authorChanges} of C{format3},
and C{statements} of C{format4}, in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Final

from ..model import (
    AUTHOR_KEY_SIZE,
    MAX_ADMINS,
    MAX_AUTHORS,
    SIGNATURE_SIZE,
    AuthorChange,
    AuthorSet,
    Authorship,
)
from ._encoding import U64, Malformed, Reader, VersionUnknown, sortedExtensions
from ._validators import verifySignature

_REMEMBERED: Final = 16_384
_AUTHORS_ALONE: Final = 1
_LAST_TERMS: Final = 7
"""The terms of a topic, from version 3 on: authors and nothing else, and all that there are."""
_verified: dict[bytes, None] = {}


def statement(
    chain: bytes,
    topic: str,
    content: bytes,
    signedAt: int,
    idempotencyKey: str | None,
    extensions: Mapping[str, str],
    version: int = 1,
    expected: int | None = None,
) -> bytes:
    """
    The bytes that an author signs to publish an event.

    @param chain: the chain's id.
    @param signedAt: the author's own time in milliseconds since the epoch.
    @param extensions: all of the event's extensions, private ones included.
    @param version: the version of the statement, 1 or 2.
    @param expected: the expected sequence number, which version 1 does not have.
    """
    lines = [
        f"svcbroker/statement/{version}",
        f"chain={chain.hex()}",
        f"topic={topic}",
        f"content={sha256(content).hexdigest()}",
        f"time={signedAt}",
        f"key={idempotencyKey or ''}",
    ]
    if version != 1:
        lines.append(f"expected={'' if expected is None else expected}")
    lines += [f"extension={key.hex()}:{value.hex()}" for key, value in sortedExtensions(extensions)]
    return _text(lines)


def authorsStatement(chain: bytes, topic: str, following: AuthorSet) -> bytes:
    """
    The bytes that an admin signs to change who may publish to a topic.

    @param chain: the chain's id.
    @param following: the new set.
    """
    return _text(
        [
            "svcbroker/authors/1",
            f"chain={chain.hex()}",
            f"topic={topic}",
            f"generation={following.generation}",
            f"authors={','.join(key.hex() for key in following.authors)}",
            f"admins={','.join(key.hex() for key in following.admins)}",
        ]
    )


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def isSignedBy(author: Authorship, signed: bytes) -> bool:
    """
    Whether an author has signed a statement. What was found to be signed is remembered: the broker,
    the pool and the state machine all ask.

    @param signed: what L{statement} gave.
    """
    digest = sha256(author.key + author.signature + signed).digest()
    if digest in _verified:
        return True
    if not verifySignature(author.key, signed, author.signature):
        return False
    _verified[digest] = None
    if len(_verified) > _REMEMBERED:
        del _verified[next(iter(_verified))]
    return True


def encodeAuthors(authors: AuthorSet) -> bytes:
    """The canonical encoding of a set of authors."""
    return b"".join(
        (
            U64.pack(authors.generation),
            bytes([len(authors.authors)]),
            *authors.authors,
            bytes([len(authors.admins)]),
            *authors.admins,
        )
    )


def openedFor(version: int, content: bytes) -> AuthorSet | None:
    """
    The authors that an open of some version from 2 on has in its content; C{None} for everybody.

    @raise Malformed: the content is not one of an open; L{VersionUnknown} where a newer svcbroker
        executes it.
    """
    if not content:
        return None
    if version == 3:
        parts, content = content[0], content[1:]
        if not 1 <= parts <= _LAST_TERMS:
            raise Malformed("a topic's terms have other parts")
        if parts != _AUTHORS_ALONE:
            raise VersionUnknown("a topic's terms: a newer svcbroker executes them")
    authors = decodeAuthors(content)
    if authors.generation:
        raise Malformed("a topic is opened with authors of generation 0")
    return authors


def openingContent(version: int, authors: AuthorSet | None) -> bytes:
    """The content of an open, which L{openedFor} reads."""
    if authors is None:
        return b""
    return (bytes([_AUTHORS_ALONE]) if version == 3 else b"") + encodeAuthors(authors)


def decodeAuthors(data: bytes) -> AuthorSet:
    """
    Read a set of authors.

    @raise Malformed: the bytes are not one.
    """
    reader = Reader(data)
    authors = _readAuthors(reader)
    reader.finish()
    return authors


def encodeAuthorChange(change: AuthorChange) -> bytes:
    """The canonical encoding of a change of authors: the content of its transaction."""
    return encodeAuthors(change.following) + change.admin + change.signature


def decodeAuthorChange(data: bytes) -> AuthorChange:
    """
    Read a change of authors.

    @raise Malformed: the bytes are not one.
    """
    reader = Reader(data)
    following = _readAuthors(reader)
    admin, signature = reader.take(AUTHOR_KEY_SIZE), reader.take(SIGNATURE_SIZE)
    reader.finish()
    return AuthorChange(following=following, admin=admin, signature=signature)


def _readAuthors(reader: Reader) -> AuthorSet:
    generation = reader.number(U64)
    authors = _readKeys(reader)
    admins = _readKeys(reader)
    if not 1 <= len(authors) <= MAX_AUTHORS or len(admins) > MAX_ADMINS:
        raise Malformed(f"a topic has 1 to {MAX_AUTHORS} authors and up to {MAX_ADMINS} admins")
    return AuthorSet(generation=generation, authors=authors, admins=admins)


def _readKeys(reader: Reader) -> tuple[bytes, ...]:
    keys = tuple(reader.take(AUTHOR_KEY_SIZE) for _ in range(reader.take(1)[0]))
    if any(following <= key for key, following in pairwise(keys)):
        raise Malformed("authors are not in rising order")
    return keys


def holds(change: AuthorChange, chain: bytes, topic: str, current: AuthorSet) -> bool:
    """
    Whether a change may follow a topic's current set of authors.

    @param chain: the chain's id.
    """
    following = change.following
    return (
        following.generation == current.generation + 1
        and change.admin in current.admins
        and verifySignature(
            change.admin, authorsStatement(chain, topic, following), change.signature
        )
    )
