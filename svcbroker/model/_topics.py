"""
Topics: their names, and what the ledger knows of one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from msgspec import Struct

from ..errors import TopicBlank, TopicInvalid, TopicTooLong
from ._authors import AuthorSet

MAX_TOPIC_LENGTH = 256
"""The most characters that a topic name may have."""

_ALLOWED = re.compile('[ -"$-*,-\x80]+')


@lru_cache(maxsize=4096)
def checkTopicName(name: str) -> None:
    """
    Refuse what cannot be a topic's name. Names that are good are remembered: most are used
    again.

    @raise TopicBlank: it is empty or only spaces.
    @raise TopicTooLong: it has more than L{MAX_TOPIC_LENGTH} characters.
    @raise TopicInvalid: it has a character outside [32,128], or C{+} or C{#}.
    """
    if not name.strip(" "):
        raise TopicBlank()
    if len(name) > MAX_TOPIC_LENGTH:
        raise TopicTooLong()
    if _ALLOWED.fullmatch(name) is None:
        raise TopicInvalid()


@lru_cache(maxsize=4096)
def topicPrefix(name: str) -> str:
    """
    The first part of the ids of a topic's events: the first 8 lower-case hex digits of the
    SHA-256 of the name in UTF-8.
    """
    return sha256(name.encode("utf-8")).hexdigest()[:8]


class Topic(Struct, frozen=True, kw_only=True):
    """
    What the ledger knows of one topic at some height.

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
