"""
Topics: their names, their state in the ledger, and the patterns of subscriptions, which are MQTT's
topic filters.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from itertools import takewhile

from msgspec import Struct

from ..errors import PatternInvalid, TopicBlank, TopicInvalid, TopicTooLong
from ._events import AuthorSet

MAX_TOPIC_LENGTH = 256
"""The most characters that a topic name may have, and the most bytes of one beyond ASCII."""

_PUBLISHED = re.compile('[ -"$-*,-\x80]+')

# Fixed ranges, so that all nodes decide alike whatever version of Unicode their Python has.
_REFUSED = re.compile(
    "[+#\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(last - 1)}{chr(last)}" for last in range(0xFFFF, 0x110000, 0x10000))
    + "]"
)

SEPARATOR = "/"

ONE_LEVEL = "+"

ALL_BELOW = "#"


class TopicRule(StrEnum):
    """
    The names that topics of a chain may have. The chain's genesis says which rule it has. A text,
    whose hash takes no call: each event that is read asks for it.
    """

    PUBLISHED = "published"
    """Those of the published interface."""
    UTF8 = "utf8"
    """
    Those, and names of at most L{MAX_TOPIC_LENGTH} bytes of UTF-8 without control characters,
    invisible ones and noncharacters.
    """


@lru_cache(maxsize=4096)
def checkTopicName(name: str, rule: TopicRule = TopicRule.PUBLISHED) -> None:
    """
    Refuse what cannot be a topic's name on a chain. Names that are good are remembered: most are
    used again.

    @raise TopicBlank: it is empty or only spaces.
    @raise TopicTooLong: it has more than L{MAX_TOPIC_LENGTH} characters, or bytes.
    @raise TopicInvalid: it has a character that the rule does not allow.
    """
    if not name.strip(" "):
        raise TopicBlank()
    if len(name) > MAX_TOPIC_LENGTH:
        raise TopicTooLong()
    _checkCharacters(name, name, rule)


def _checkCharacters(name: str, shown: str, rule: TopicRule) -> None:
    if _PUBLISHED.fullmatch(name) is not None:
        return
    if rule is TopicRule.PUBLISHED:
        wrong = next(each for each in name if _PUBLISHED.fullmatch(each) is None)
        raise TopicInvalid(
            f"topic {shown!r} has the character {wrong!r}: allowed are the characters 32 to 128 "
            "of Unicode, without + and #"
        )
    refused = _REFUSED.search(name)
    if refused is not None:
        raise TopicInvalid(
            f"topic {shown!r} has the character {refused[0]!a}: allowed are those of Unicode "
            "without +, #, control characters, invisible ones and noncharacters"
        )
    if len(name.encode("utf-8")) > MAX_TOPIC_LENGTH:
        raise TopicTooLong(f"topic name is longer than {MAX_TOPIC_LENGTH} bytes in UTF-8")


def checkNormalised(name: str) -> None:
    """
    Refuse a name, or a pattern of names, that is not in Unicode's normalization form C: another
    one looks the same. Chains do not check it, because it depends on the version of Unicode.

    @raise TopicInvalid: it is not.
    """
    if name.isascii() or unicodedata.is_normalized("NFC", name):
        return
    good = unicodedata.normalize("NFC", name)
    at = next(at for at, pair in enumerate(zip(name, good, strict=False)) if pair[0] != pair[1])
    wrong = name[at] + "".join(takewhile(unicodedata.combining, name[at + 1 :]))
    raise TopicInvalid(
        f"topic {name!r} has {wrong!a}, which is not in normalization form C of Unicode: "
        f"allowed is {good[at]!a} there"
    )


@lru_cache(maxsize=4096)
def topicPrefix(name: str) -> str:
    """
    The first part of the ids of a topic's events: the first 8 lower-case hex digits of the
    SHA-256 of the name in UTF-8.
    """
    return sha256(name.encode("utf-8")).hexdigest()[:8]


class Topic(Struct, frozen=True, kw_only=True):
    """
    The state of one topic at some height.

    @ivar name: the topic's name.
    @ivar address: the topic's address on the chain: 20 bytes.
    @ivar sender: the creator's address: 20 bytes.
    @ivar created: milliseconds since the epoch, the time of the block that created it.
    @ivar isOpen: whether events may be published to it now.
    @ivar sequence: how many events were published to it.
    @ivar height: the height of the block of its latest event, 0 where there is none.
    @ivar authors: who may publish to it; C{None} where events need no signature.
    """

    name: str
    address: bytes
    sender: bytes
    created: int
    isOpen: bool
    sequence: int
    height: int
    authors: AuthorSet | None = None


def isPattern(filter: str) -> bool:
    """Whether a filter has wildcards, and so is more than the name of one topic."""
    return ONE_LEVEL in filter or ALL_BELOW in filter


def checkFilter(filter: str, rule: TopicRule = TopicRule.PUBLISHED) -> None:
    """
    Refuse what cannot be subscribed to: C{+} stands for one whole level, C{#} is the last level
    only.

    @raise TopicBlank: it is empty or only spaces.
    @raise TopicTooLong: it has more than 256 characters, or bytes.
    @raise TopicInvalid: it has a character that no topic name may have by the rule, or is not in
        normalization form C.
    @raise PatternInvalid: a wildcard stands where MQTT forbids it.
    """
    if not isPattern(filter):
        checkTopicName(filter, rule)
        checkNormalised(filter)
        return
    if not filter.strip(" "):
        raise TopicBlank()
    if len(filter) > MAX_TOPIC_LENGTH:
        raise TopicTooLong()
    levels = filter.split(SEPARATOR)
    for number, level in enumerate(levels):
        if ALL_BELOW in level and (level != ALL_BELOW or number != len(levels) - 1):
            raise PatternInvalid(f"pattern {filter!r}: # stands for the last level only")
        if ONE_LEVEL in level and level != ONE_LEVEL:
            raise PatternInvalid(f"pattern {filter!r}: + stands for a whole level only")
    # What is left when the wildcards are taken out has only characters that a name may have.
    _checkCharacters(filter.replace(ONE_LEVEL, "x").replace(ALL_BELOW, "x"), filter, rule)
    checkNormalised(filter)


def checkHoldPattern(pattern: str) -> None:
    """
    Refuse what cannot be the pattern of a hold, on any chain: as names of topics, with C{+} for a
    whole level and C{#} for the last one.

    @raise TopicBlank: it is empty or only spaces.
    @raise TopicTooLong: it has more than 256 characters, or bytes.
    @raise TopicInvalid: it has another character, or a wildcard in a level.
    """
    *levels, last = pattern.split(SEPARATOR)
    plain = ["x" if level == ONE_LEVEL else level for level in levels]
    plain.append("x" if last in (ONE_LEVEL, ALL_BELOW) else last)
    checkTopicName(SEPARATOR.join(plain), TopicRule.UTF8)


def filterMatches(filter: str, topic: str) -> bool:
    """
    Whether a valid filter matches a topic: C{a/#} matches C{a} too, and no leading wildcard
    matches a topic that begins with C{$}.
    """
    if not isPattern(filter):
        return filter == topic
    wanted, levels = filter.split(SEPARATOR), topic.split(SEPARATOR)
    if topic.startswith("$") and wanted[0] in (ONE_LEVEL, ALL_BELOW):
        return False
    for number, level in enumerate(wanted):
        if level == ALL_BELOW:
            return True
        if number == len(levels) or level not in (ONE_LEVEL, levels[number]):
            return False
    return len(wanted) == len(levels)


def filterExpression(filter: str) -> str:
    """A regular expression that matches, as a whole, the topics that a valid filter matches."""
    if not isPattern(filter):
        return re.escape(filter)
    *levels, last = filter.split(SEPARATOR)
    start = r"(?!\$)" if filter[0] in (ONE_LEVEL, ALL_BELOW) else ""
    pieces = [r"[^/]*" if level == ONE_LEVEL else re.escape(level) for level in levels]
    if last != ALL_BELOW:
        pieces.append(r"[^/]*" if last == ONE_LEVEL else re.escape(last))
        return start + "/".join(pieces)
    return start + ("/".join(pieces) + r"(?:/.*)?" if pieces else ".*")


def filtersOverlap(one: str, other: str) -> bool:
    """Whether there can be a topic that two valid filters both match."""
    if not isPattern(one):
        return filterMatches(other, one)
    if not isPattern(other):
        return filterMatches(one, other)
    ones, others = one.split(SEPARATOR), other.split(SEPARATOR)
    # No leading wildcard matches a topic that begins with $.
    if ones[0].startswith("$") is not others[0].startswith("$"):
        return False
    for a, b in zip(ones, others, strict=False):
        if ALL_BELOW in (a, b):
            return True
        if a != b and ONE_LEVEL not in (a, b):
            return False
    # What is left of the longer one may only be what matches no level too.
    return len(ones) == len(others) or (ones[len(others) :] or others[len(ones) :]) == [ALL_BELOW]


def filterCovers(wide: str, narrow: str) -> bool:
    """Whether a valid filter matches every topic that another one matches."""
    if not isPattern(narrow):
        return filterMatches(wide, narrow)
    wides, narrows = wide.split(SEPARATOR), narrow.split(SEPARATOR)
    if narrows[0].startswith("$") is not wides[0].startswith("$"):
        return False
    for number, level in enumerate(wides):
        if level == ALL_BELOW:
            return True
        if number == len(narrows) or narrows[number] == ALL_BELOW:
            return False
        if level not in (ONE_LEVEL, narrows[number]):
            return False
    return len(wides) == len(narrows)
