"""
Reading transactions once more, and what they say of authors and erasure, from C{docs/chain.rst}
alone. Whatever is malformed raises C{ValueError}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from attrs import define

from .reference import KINDS, PRIVATE, Sent, digest


def need(condition: object, why: str) -> None:
    """Refuse what does not meet a condition."""
    if not condition:
        raise ValueError(why)


@define
class Cursor:
    """The rest of some bytes."""

    data: bytes

    def take(self, size: int) -> bytes:
        """The next bytes."""
        need(len(self.data) >= size, "ends early")
        part, self.data = self.data[:size], self.data[size:]
        return part

    def number(self, size: int) -> int:
        """A number of so many bytes."""
        return int.from_bytes(self.take(size), "big")

    def text(self, size: int) -> str:
        """A text of so many bytes."""
        return self.take(size).decode("utf-8")

    def pairs(self) -> Mapping[str, str]:
        """Extensions, in any order."""
        found = {}
        for _ in range(self.number(2)):
            sizes = self.number(2), self.number(2)
            key, value = (self.text(size) for size in sizes)
            found[key] = value
        return found


def readEntry(entry: bytes, isStored: bool = False) -> Sent:
    """
    A transaction as it stands in a body.

    @param isStored: whether the body is of a block that was decided, so that contents of it may be
        missing.
    """
    cursor = Cursor(entry)
    version, number = cursor.take(2)
    need(version in (1, 2, 3), "version")
    kinds = [kind for kind, code in KINDS.items() if code == number]
    need(kinds and number <= {1: 4, 2: 6, 3: 8}[version], "kind")
    sender, nonce, timestamp = cursor.take(20), cursor.number(8), cursor.number(8)
    sent = Sent(kinds[0], sender, nonce, "", timestamp=timestamp, version=version)
    commitment = cursor.take(32)
    sent.topic = cursor.text(cursor.number(2))
    options = cursor.number(1) if version != 1 else 0
    need(options < (16 if version < 3 else 32), "options")
    need(not options & 16 or options & 1, "statement without author")
    sent.statement = 2 if options & 16 else 1
    if options & 1:
        sent.author, sent.signedAt = cursor.take(32), cursor.number(8)
    if options & 2:
        sent.owner = b"" if options & 1 else cursor.take(20)
        sent.key = cursor.text(cursor.number(1))
    if options & 4:
        sent.expected = cursor.number(8)
    sent.extensions = public = cursor.pairs()
    rest = cursor.data
    isPublish = sent.kind == "PUBLISH"
    if isStored and isPublish and not rest and (version != 1 or commitment != digest()):
        sent.commitment, sent.hadPrivate = commitment, bool(options & 8)
    elif isPublish and version != 1:
        sent.salt = cursor.take(32)
        sent.signature = cursor.take(64) if options & 1 else b""
        private = cursor.pairs() if options & 8 else {}
        need(not options & 8 or private, "no private extensions")
        need(all(key.startswith(PRIVATE) for key in private), "no private extension")
        sent.extensions = {**public, **private}
    sent.content = cursor.data
    # What has another encoding was not canonical, or not what the head commits to.
    need(sent.entry == entry and sent.options == options, "canonical")
    need(version == 1 or not any(key.startswith(PRIVATE) for key in public), "public")
    check(sent)
    return sent


def check(sent: Sent) -> None:
    """Refuse a transaction that has fields that its kind has not, or too much in them."""
    isPublish = sent.kind == "PUBLISH"
    if sent.kind in ("VALIDATORS", "HOLD", "RELEASE"):
        need(not sent.topic, "name")
    else:
        need(isOld(sent.topic) or (sent.version == 3 and isName(sent.topic)), "name")
    need(isPublish or not (sent.extensions or sent.options), "only a publish has these")
    need(all(key.startswith("svc-") for key in sent.extensions), "extensions")
    size = sum(len((key + value).encode()) for key, value in sent.extensions.items())
    need(size <= 8192, "extensions")
    if sent.key is not None:
        need(1 <= len(sent.key) <= 64, "idempotency key")
        need(all("!" <= each <= "~" for each in sent.key), "idempotency key")
    if sent.kind == "CLOSE" or (sent.kind == "OPEN" and sent.version == 1):
        need(not sent.content, "content")
    elif sent.kind == "OPEN" and sent.content:
        terms = sent.content if sent.version == 2 else sent.content.removeprefix(b"\1")
        need(sent.version == 2 or terms != sent.content, "terms of other parts")
        need(Authors.read(terms).generation == 0, "authors")
    elif sent.kind == "AUTHORS":
        readAuthorChange(sent.content)
    elif sent.kind == "ERASE":
        readErasure(sent.content)
    elif sent.kind == "HOLD":
        readHold(sent.content)
    elif sent.kind == "RELEASE":
        readRelease(sent.content)


def isOld(name: str) -> bool:
    """Whether version 1 has a name of a topic."""
    isGood = all(" " <= each <= "\x80" and each not in "+#" for each in name)
    return 1 <= len(name) <= 256 and isGood and bool(name.strip(" "))


def isRefused(each: str) -> bool:
    """Whether no name of version 3 has a character, if version 1 does not have the name."""
    code = ord(each)
    ranges = (
        (0x00, 0x1F),
        (0x7F, 0x9F),
        (0x200B, 0x200F),
        (0x2028, 0x202E),
        (0x2060, 0x206F),
        (0xFEFF, 0xFEFF),
        (0xFFF9, 0xFFFB),
        (0xFDD0, 0xFDEF),
    )
    return code & 0xFFFE == 0xFFFE or any(first <= code <= last for first, last in ranges)


def isName(name: str) -> bool:
    """Whether version 3 has a name of a topic."""
    if isOld(name):
        return True
    isLong = len(name.encode()) > 256
    isGood = not any(isRefused(each) or each in "+#" for each in name)
    return not isLong and isGood and bool(name.strip(" "))


def isPattern(pattern: str) -> bool:
    """Whether a hold may have a pattern."""
    levels = pattern.split("/")
    plain = "/".join(
        "x" if each == "+" or (each == "#" and place == len(levels)) else each
        for place, each in enumerate(levels, 1)
    )
    return len(pattern) <= 256 and isName(plain)


def _case(cursor: Cursor) -> tuple[str, str, str]:
    """Case, account and reason."""
    case, account = (cursor.text(cursor.number(1)) for _ in range(2))
    need(1 <= len(case) <= 64 and all("!" <= each <= "~" for each in case), "case")
    size = cursor.number(2)
    need(size <= 1024, "reason")
    return case, account, cursor.text(size)


def readRelease(content: bytes) -> tuple[str, str, str]:
    """Case, account and reason of a release."""
    cursor = Cursor(content)
    found = _case(cursor)
    need(not cursor.data, "more after the end")
    return found


def readHold(
    content: bytes,
) -> tuple[tuple[str, str, str], Sequence[str], Sequence[tuple[bytes, int]]]:
    """The fields that a hold has in common with a release, its patterns and its events."""
    cursor = Cursor(content)
    found = _case(cursor)
    patterns = [cursor.text(cursor.number(2)) for _ in range(cursor.number(1))]
    events = [(cursor.take(20), cursor.number(8)) for _ in range(cursor.number(2))]
    need(not cursor.data, "more after the end")
    need(len(patterns) <= 16 and len(events) <= 1000, "count")
    need(bool(patterns) is not bool(events), "either")
    need(all(map(isPattern, patterns)), "pattern")
    encoded = [pattern.encode() for pattern in patterns]
    need(encoded == sorted(set(encoded)) and events == sorted(set(events)), "order")
    need(all(number for _, number in events), "event 0")
    return found, patterns, events


def readBody(body: bytes, isStored: bool = False) -> Sequence[Sent]:
    """The transactions of a block; see L{readEntry}."""
    cursor = Cursor(body)
    count = cursor.number(4)
    sizes = [cursor.number(4) for _ in range(min(count, len(body)))]
    entries = [cursor.take(size) for size in sizes]
    need(count == len(sizes) and not cursor.data, "more after the end")
    return [readEntry(entry, isStored) for entry in entries]


def asStored(block: Sequence[Sent], ends: Sequence[tuple[str, int]]) -> Sequence[Sent]:
    """A block's transactions as a node stores them, before anything is erased."""
    return [
        sent.erased if sent.version != 1 and sent.kind == "PUBLISH" and end != "DONE" else sent
        for sent, (end, _) in zip(block, ends, strict=True)
    ]


def statement(
    chain: bytes,
    topic: str,
    content: bytes,
    signedAt: int,
    key: str | None,
    extensions: Mapping[str, str],
    version: int = 1,
    expected: int | None = None,
) -> bytes:
    """The bytes that an author signs."""
    number = "" if expected is None else str(expected)
    return lines(
        f"svcbroker/statement/{version}",
        f"chain={chain.hex()}",
        f"topic={topic}",
        f"content={sha256(content).hexdigest()}",
        f"time={signedAt}",
        f"key={key or ''}",
        *([f"expected={number}"] if version == 2 else []),
        *(
            f"extension={each.encode().hex()}:{extensions[each].encode().hex()}"
            for each in sorted(extensions, key=str.encode)
        ),
    )


def lines(*each: str) -> bytes:
    """A text of lines."""
    return "".join(f"{line}\n" for line in each).encode()


@define
class Authors:
    """A set of authors."""

    generation: int
    authors: Sequence[bytes]
    admins: Sequence[bytes] = ()

    @property
    def encoded(self) -> bytes:
        """Its encoding."""
        keys = b"".join(bytes([len(keys)]) + b"".join(keys) for keys in (self.authors, self.admins))
        return self.generation.to_bytes(8, "big") + keys

    @classmethod
    def read(cls, content: bytes) -> Authors:
        """From its encoding, and nothing after it."""
        cursor = Cursor(content)
        authors = cls.next(cursor)
        need(not cursor.data, "more after the end")
        return authors

    @classmethod
    def next(cls, cursor: Cursor) -> Authors:
        """From an encoding, and perhaps something after it."""
        generation = cursor.number(8)
        authors, admins = ([cursor.take(32) for _ in range(cursor.number(1))] for _ in range(2))
        need(1 <= len(authors) <= 64 and len(admins) <= 16, "count")
        for keys in (authors, admins):
            need(keys == sorted(set(keys)), "order")
        return cls(generation, authors, admins)


def authorsStatement(chain: bytes, topic: str, following: Authors) -> bytes:
    """The bytes that an admin signs."""
    return lines(
        "svcbroker/authors/1",
        f"chain={chain.hex()}",
        f"topic={topic}",
        f"generation={following.generation}",
        f"authors={','.join(key.hex() for key in following.authors)}",
        f"admins={','.join(key.hex() for key in following.admins)}",
    )


def readAuthorChange(content: bytes) -> tuple[Authors, bytes, bytes]:
    """The new set, the admin's key and its signature."""
    cursor = Cursor(content)
    change = Authors.next(cursor), cursor.take(32), cursor.take(64)
    need(not cursor.data, "more after the end")
    return change


Ranges = Sequence[tuple[int, int]]


def erasure(account: str, reason: str, ranges: Ranges) -> bytes:
    """The content of an erasure."""
    who, why = account.encode(), reason.encode()
    content = bytes([len(who)]) + who + len(why).to_bytes(2, "big") + why
    content += len(ranges).to_bytes(2, "big")
    return content + b"".join(number.to_bytes(8, "big") for each in ranges for number in each)


def readErasure(content: bytes) -> Ranges:
    """The sequence numbers that an erasure names."""
    cursor = Cursor(content)
    cursor.text(cursor.number(1))
    size = cursor.number(2)
    need(size <= 1024, "reason")
    cursor.text(size)
    count = cursor.number(2)
    ranges = [(cursor.number(8), cursor.number(8)) for _ in range(count)]
    need(not cursor.data and 1 <= count <= 1024, "count")
    before = 0
    for first, last in ranges:
        need(before < first <= last, "order")
        before = last
    need(sum(last - first + 1 for first, last in ranges) <= 65536, "too many")
    return ranges
