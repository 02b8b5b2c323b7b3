"""
Transactions: a head with all that is said of an event, and its content, which can be erased and
leaves the hash as it is.

B{Frozen bytes}: heads, contents and hashes of all versions, pinned by C{transactions},
also of C{format3} and C{format4}, in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import sha256
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..errors import BrokerError
from ..model import (
    AUTHOR_KEY_SIZE,
    PRIVATE_PREFIX,
    SIGNATURE_SIZE,
    Authorship,
    TopicRule,
    checkExtensions,
    checkTopicName,
    isIdempotencyKey,
)
from ._authorship import decodeAuthorChange, isSignedBy, openedFor, statement
from ._claims import Erasure, Hold, Release
from ._encoding import (
    ADDRESS_SIZE,
    U16,
    U32,
    U64,
    Malformed,
    Reader,
    VersionUnknown,
    decodeExtensions,
    encodeExtensions,
    keyAddress,
)
from ._merkle import leafHash

FIXED: Final = struct.Struct(">BB20sQQ32sH")
"""The beginning of a head, up to the length of the name."""

_OWN: Final = struct.Struct(">QQ32s")
"""Nonce, time and commitment of a head, in which those of similar publishes differ."""
_OWN_AT: Final = struct.calcsize(">BB20s")
_SHARED_AT: Final = _OWN_AT + _OWN.size

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
_RULES: Final = {1: TopicRule.PUBLISHED, 2: TopicRule.PUBLISHED, 3: TopicRule.UTF8}
_NEWER: Final = "a newer svcbroker executes it"


SALT_SIZE = 32
"""Bytes of the salt of a publish."""

_NO_EXTENSIONS = encodeExtensions(None)

_PLAIN = b"\x00" + _NO_EXTENSIONS
"""The end of a head from version 2 on, after the name, without options and extensions."""

_NO_CONTENT = sha256(b"").digest()

_COMMITMENT_TAG = b"svcbroker/content"

_OTHER_CONTENT: Final = "the content is not the one that the transaction names"

_SIZE = U32.size

_OVERHEAD = _SIZE + FIXED.size + SALT_SIZE


class Kind(IntEnum):
    """The action of a transaction. The numbers are part of the encoding."""

    OPEN = 1
    CLOSE = 2
    PUBLISH = 3
    VALIDATORS = 4
    AUTHORS = 5
    ERASE = 6
    HOLD = 7
    RELEASE = 8


_UNNAMED: Final = frozenset({Kind.VALIDATORS, Kind.HOLD, Kind.RELEASE})
"""The kinds of transactions that are about no topic."""


class Head(Struct, frozen=True, kw_only=True, gc=False):
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
        if number > Kind.RELEASE:
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
        if kind in _UNNAMED:
            if self.topic or self.extensions:
                raise Malformed("a change of validators or a hold has no topic and no extensions")
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
            # The state knows whether the chain has such names.
            checkTopicName(self.topic, _RULES[self.version])
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
    The offset of the extensions in a head that is known to be good.

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


_PUBLISH = Kind.PUBLISH  # an enumeration's member takes longer to get


class Claims(Struct, frozen=True, kw_only=True, gc=False):
    """
    The claims of a publish, which the chain checks. Most publishes have none.

    @ivar author: who has signed it. The signature is empty where it was erased.
    @ivar key: its idempotency key.
    @ivar owner: the address whose key it is; C{None} where it is that of the author.
    @ivar expected: the sequence number that the topic must have.
    """

    author: Authorship | None = None
    key: str | None = None
    owner: bytes | None = None
    expected: int | None = None

    def ownerOn(self, chain: bytes) -> bytes:
        """
        The address whose the idempotency key is; there is a key.

        @param chain: the chain's id.
        """
        if self.author is not None:
            return keyAddress(chain, self.author.key)
        assert self.owner is not None
        return self.owner


class Transaction(Struct, frozen=True, kw_only=True, gc=False):
    """
    One request, as the chain holds it. Made for every event, so it is a C{msgspec} structure, which
    is made in a ninth of the time of another frozen value; so are other values here. The garbage
    collector does not look at them (C{gc=False}): thousands would make its passes long, and none is
    ever in a cycle.

    Its I{head} is everything but the content, which it commits to; so a transaction can
    be listed, and its place in a block proved, without its content.

    @ivar sender: the sender's address: 20 bytes.
    @ivar topic: the name of the topic that it is about; empty for a change of validators, a hold
        and a release.
    @ivar extensions: those of the event, private ones included.
    @ivar content: the event's, or what the kind encodes: a
        L{ValidatorChange<svcbroker.chain.ValidatorChange>}, an C{AuthorSet}, an C{AuthorChange}, an
        L{Erasure}, a L{Hold}, a L{Release}.
    @ivar nonce: the sender's number for it, from 1. The chain executes no number twice.
    @ivar timestamp: when it was submitted, in milliseconds since the epoch.
    @ivar head: its canonical encoding without seal and content.
    @ivar seal: of a publish from version 2 on: salt, signature and private extensions.
    @ivar hash: the Merkle leaf hash of C{head}.
    @ivar size: how many bytes it takes in a block's body.
    @ivar claims: C{None} where a publish has none.
    @ivar isErased: whether seal and content are missing.
    """

    kind: Kind
    sender: bytes
    nonce: int
    timestamp: int
    topic: str
    extensions: Mapping[str, str]
    content: bytes
    head: bytes
    hash: bytes
    size: int
    seal: bytes = b""
    claims: Claims | None = None
    isErased: bool = False

    @property
    def version(self) -> int:
        """The version of its encoding: 1, 2 or 3."""
        return self.head[0]

    @property
    def hasPrivateExtensions(self) -> bool:
        """Whether it was published with private extensions, also where these were erased."""
        return bool(Head.read(self.head).options & PRIVATE)

    @classmethod
    def create(
        cls,
        kind: Kind,
        sender: bytes,
        nonce: int,
        timestamp: int,
        topic: str,
        content: bytes = b"",
        extensions: Mapping[str, str] | None = None,
    ) -> Transaction:
        """
        Make a transaction of version 1. Name, content and extensions are valid.
        """
        name = topic.encode("utf-8")
        head = (
            FIXED.pack(1, kind, sender, nonce, timestamp, _digest(content), len(name))
            + name
            + encodeExtensions(extensions)
        )
        return cls(
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            topic=topic,
            extensions=extensions or {},
            content=content,
            head=head,
            hash=leafHash(head),
            size=_SIZE + len(head) + len(content),
        )

    @classmethod
    def publish(
        cls,
        sender: bytes,
        nonce: int,
        timestamp: int,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str] | None,
        salt: bytes,
        claims: Claims | None = None,
        version: int = 2,
    ) -> Transaction:
        """
        Make a publish of version 2 or 3. Name, content, extensions and claims are valid.

        @param salt: L{SALT_SIZE} random bytes.
        @param version: the least version that it may have.
        """
        given = () if claims is None else (claims,)
        [made] = cls.publishes(
            sender, nonce, timestamp, topic, [content], extensions, salt, given, version
        )
        return made

    @classmethod
    def publishes(
        cls,
        sender: bytes,
        nonce: int,
        timestamp: int,
        topic: str,
        contents: Sequence[bytes],
        extensions: Mapping[str, str] | None,
        salts: bytes,
        claims: Sequence[Claims] = (),
        version: int = 2,
    ) -> list[Transaction]:
        """
        Make publishes that differ in their contents and claims alone. See L{publish}. Those that
        need version 3 are of it.

        @param nonce: that of the first; each other one has the next.
        @param salts: L{SALT_SIZE} random bytes for each.
        @param claims: those of each; empty where none has any.
        @param version: the least version that they may have.
        """
        name, private, options, public = topic.encode("utf-8"), b"", 0, _NO_EXTENSIONS
        if extensions:
            private, options, public = _encodeParts(extensions)
        rest, sealed, extensions = b"%b%c%b" % (name, options, public), private, extensions or {}
        overhead = _OVERHEAD + len(rest) + len(sealed)
        pack, size, at, each, number = FIXED.pack, len(name), 0, None, version
        made: list[Transaction] = []
        # Hot path, so without a call of our own for each that has no claims.
        for content in contents:
            if claims:
                each = claims[len(made)]
                added, encoded = _encodeClaims(each)
                number = 3 if added & STATEMENT else version
                rest = b"%b%c%b%b" % (name, options | added, encoded, public)
                sealed = private if each.author is None else each.author.signature + private
                overhead = _OVERHEAD + len(rest) + len(sealed)
            seal = salts[at : at + SALT_SIZE] + sealed
            commitment = sha256(_COMMITMENT_TAG + seal + content).digest()
            head = pack(number, _PUBLISH, sender, nonce, timestamp, commitment, size) + rest
            made.append(
                cls(
                    kind=_PUBLISH,
                    sender=sender,
                    nonce=nonce,
                    timestamp=timestamp,
                    topic=topic,
                    extensions=extensions,
                    content=content,
                    head=head,
                    hash=sha256(b"\x00" + head).digest(),
                    size=overhead + len(content),
                    seal=seal,
                    claims=each,
                )
            )
            nonce += 1
            at += SALT_SIZE
        return made

    @classmethod
    def make(
        cls,
        kind: Kind,
        sender: bytes,
        nonce: int,
        timestamp: int,
        topic: str,
        content: bytes = b"",
        version: int = 2,
    ) -> Transaction:
        """
        Make a transaction of version 2 or 3 that is not a publish. Name and content are valid.
        """
        name = topic.encode("utf-8")
        head = (
            FIXED.pack(version, kind, sender, nonce, timestamp, _digest(content), len(name))
            + name
            + _PLAIN
        )
        return cls(
            kind=kind,
            sender=sender,
            nonce=nonce,
            timestamp=timestamp,
            topic=topic,
            extensions={},
            content=content,
            head=head,
            hash=leafHash(head),
            size=_SIZE + len(head) + len(content),
        )

    @classmethod
    def decode(cls, entry: bytes, mayBeErased: bool = False) -> Transaction:
        """
        Read a transaction as it stands in a body: its head, and seal and content up to the end.

        @param mayBeErased: whether a publish may stand there without its content.
        @raise Malformed: the head is not canonical, its name or extensions are not valid, or
            the content is not the one that the head commits to; L{VersionUnknown} where a newer
            svcbroker executes it.
        """
        head = Head.read(entry)
        encoded, rest = entry[: head.size], entry[head.size :]
        isPublish = head.kind is Kind.PUBLISH
        isSealed = isPublish and head.version != 1
        isErased = (
            not rest and isPublish and (isSealed or head.commitment != _NO_CONTENT) and mayBeErased
        )
        signature, content = b"", rest
        private: Mapping[str, str] = {}
        if not isErased:
            tag = _COMMITMENT_TAG if isSealed else b""
            if sha256(tag + rest).digest() != head.commitment:
                raise Malformed(_OTHER_CONTENT)
            if isSealed:
                signature, private, content = _readSeal(rest, head.options)
        head.check(bool(content), private)
        if head.version != 1 and not isPublish:
            _checkContent(head, content)
        return cls(
            kind=head.kind,
            sender=head.sender,
            nonce=head.nonce,
            timestamp=head.timestamp,
            topic=head.topic,
            extensions={**head.extensions, **private} if private else head.extensions,
            content=content,
            head=encoded,
            hash=leafHash(encoded),
            size=_SIZE + len(entry),
            seal=rest[: len(rest) - len(content)],
            claims=_claimsOf(head, signature),
            isErased=isErased,
        )

    @classmethod
    def decodeAll(
        cls, body: bytes, offsets: Sequence[int], mayBeErased: bool = False
    ) -> list[Transaction]:
        """
        Read the transactions of a body. See L{decode}.

        Hot path: of a publish without claims, the rest of whose head is the same as in the one
        before it, only nonce, time, commitment and content are read and checked.

        @param offsets: where each starts, and after the last of these the end.
        """
        made: list[Transaction] = []
        last: Transaction | None = None
        begin = shared = b""
        size, unpack = 0, _OWN.unpack_from
        for start, end in pairwise(offsets):
            at = start + size
            if (
                last is None
                or end - at < SALT_SIZE
                or not body.startswith(shared, start + _SHARED_AT)
                or not body.startswith(begin, start)
            ):
                each = cls.decode(body[start:end], mayBeErased)
                made.append(each)
                last = None
                if each.claims is None and len(each.seal) == SALT_SIZE:
                    # A publish from version 2 on without private extensions.
                    last, size = each, len(each.head)
                    begin, shared = each.head[:_OWN_AT], each.head[_SHARED_AT:]
                continue
            nonce, timestamp, commitment = unpack(body, start + _OWN_AT)
            if sha256(_COMMITMENT_TAG + body[at:end]).digest() != commitment:
                raise Malformed(_OTHER_CONTENT)
            head = body[start:at]
            made.append(
                cls(
                    kind=_PUBLISH,
                    sender=last.sender,
                    nonce=nonce,
                    timestamp=timestamp,
                    topic=last.topic,
                    extensions=last.extensions,
                    content=body[at + SALT_SIZE : end],
                    head=head,
                    hash=sha256(b"\x00" + head).digest(),
                    size=_SIZE + end - start,
                    seal=body[at : at + SALT_SIZE],
                )
            )
        return made

    def isSigned(self, chain: bytes) -> bool:
        """
        Whether its author has signed its statement. There is an author, and the content.

        @param chain: the chain's id.
        """
        assert self.claims is not None and self.claims.author is not None
        claims, author = self.claims, self.claims.author
        signed = statement(
            chain,
            self.topic,
            self.content,
            author.signedAt,
            claims.key,
            self.extensions,
            author.statement,
            claims.expected,
        )
        return isSignedBy(author, signed)

    def withNonce(self, nonce: int) -> Transaction:
        """
        The same with another nonce, to be executed instead of this one. What its author has signed
        stays.
        """
        version, kind, sender, _, timestamp, commitment, length = FIXED.unpack_from(self.head)
        head = FIXED.pack(version, kind, sender, nonce, timestamp, commitment, length)
        head += self.head[FIXED.size :]
        return replace(self, nonce=nonce, head=head, hash=leafHash(head))

    def withoutContent(self) -> Transaction:
        """
        A publish as it stands in a body once its content was erased.
        """
        return Transaction.decode(self.head, mayBeErased=True)


class TransactionSummary(Struct, frozen=True, kw_only=True):
    """
    A transaction without its content.

    @ivar sender: the sender's address: 20 bytes.
    @ivar topic: the name of the topic that it is about.
    @ivar hash: its hash.
    """

    sender: bytes
    topic: str
    hash: bytes

    @classmethod
    def decode(cls, entry: bytes) -> TransactionSummary:
        """
        Read the head of a transaction in a body.

        @param entry: its bytes, of which the first L{MAX_HEAD_SIZE} are enough.
        @raise Malformed: they do not begin with a head.
        """
        head = Head.read(entry)
        return cls(sender=head.sender, topic=head.topic, hash=leafHash(entry[: head.size]))


def _encodeParts(extensions: Mapping[str, str]) -> tuple[bytes, int, bytes]:
    """The private extensions, for a seal; the option that says so; and the public ones."""
    for key in extensions:
        if key.startswith(PRIVATE_PREFIX):
            public, private = _split(extensions)
            return encodeExtensions(private), PRIVATE, encodeExtensions(public)
    return b"", 0, encodeExtensions(extensions)


def _split(extensions: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The public and the private extensions."""
    public: dict[str, str] = {}
    private: dict[str, str] = {}
    for key, value in extensions.items():
        (private if key.startswith(PRIVATE_PREFIX) else public)[key] = value
    return public, private


def _digest(content: bytes) -> bytes:
    return sha256(content).digest() if content else _NO_CONTENT


def _encodeClaims(claims: Claims) -> tuple[int, bytes]:
    """The options of a head, and what they add to it."""
    options, encoded = 0, b""
    if claims.author is not None:
        options |= AUTHOR if claims.author.statement == 1 else AUTHOR | STATEMENT
        encoded += claims.author.key + U64.pack(claims.author.signedAt)
    if claims.key is not None:
        options |= KEY
        if claims.author is None:
            assert claims.owner is not None
            encoded += claims.owner
        encoded += bytes([len(claims.key)]) + claims.key.encode("ascii")
    if claims.expected is not None:
        options |= EXPECTED
        encoded += U64.pack(claims.expected)
    return options, encoded


def _claimsOf(head: Head, signature: bytes) -> Claims | None:
    if not head.options & ~PRIVATE:
        return None
    author = None
    if head.author is not None:
        key, signedAt = head.author
        version = 2 if head.options & STATEMENT else 1
        author = Authorship(key=key, signedAt=signedAt, signature=signature, statement=version)
    return Claims(author=author, key=head.key, owner=head.owner, expected=head.expected)


def _readSeal(rest: bytes, options: int) -> tuple[bytes, dict[str, str], bytes]:
    """The signature, the private extensions and the content."""
    reader = Reader(rest)
    reader.take(SALT_SIZE)
    signature = reader.take(SIGNATURE_SIZE) if options & AUTHOR else b""
    private: dict[str, str] = {}
    if options & PRIVATE:
        private = decodeExtensions(reader)
        if not private:
            raise Malformed("a seal says that there are private extensions")
    return signature, private, rest[reader.position :]


def _checkContent(head: Head, content: bytes) -> None:
    """
    Check the content of a transaction from version 2 on that is not a publish.

    @raise Malformed: it is not one of its kind.
    """
    kind = head.kind
    if kind is Kind.OPEN:
        openedFor(head.version, content)
    elif kind is Kind.AUTHORS:
        decodeAuthorChange(content)
    elif kind is Kind.ERASE:
        Erasure.decode(content)
    elif kind is Kind.HOLD:
        Hold.decode(content)
    elif kind is Kind.RELEASE:
        Release.decode(content)
