"""
The engine's hashes and sign bytes: canonical Protocol Buffers, and Merkle trees over them.

The engine's specification is C{spec/core/encoding.md} and C{spec/consensus/signing.md} at
CometBFT v0.38. Its Merkle trees are those of RFC 6962, like those of L{svcbroker.chain}.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from ...chain import leafHash, merkleRoot
from ._values import BlockId, Header, Member
from .wire import DELIMITED, FIXED64, VARINT, delimited, encodeTag, encodeVarint

_PRECOMMIT = 2
_FIXED = struct.Struct("<q")


def _number(field: int, value: int) -> bytes:
    """A number field, left out where it is 0. Negative ones take ten bytes."""
    return encodeTag(field, VARINT) + encodeVarint(value) if value else b""


def _fixed(field: int, value: int) -> bytes:
    return encodeTag(field, FIXED64) + _FIXED.pack(value) if value else b""


def _message(field: int, data: bytes) -> bytes:
    """An embedded message, written even if it is empty."""
    return encodeTag(field, DELIMITED) + delimited(data)


def _bytes(field: int, data: bytes) -> bytes:
    """A field of bytes, left out if it is empty."""
    return _message(field, data) if data else b""


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode("utf-8"))


def _instant(time: int) -> bytes:
    seconds, nanos = divmod(time, 10**9)
    return _number(1, seconds) + _number(2, nanos)


def _blockId(value: BlockId) -> bytes:
    """A block id, encoded alike in headers and in votes."""
    parts = _number(1, value.parts.total) + _bytes(2, value.parts.hash)
    return _bytes(1, value.hash) + _message(2, parts)


@lru_cache(maxsize=64)
def headerHash(header: Header) -> bytes:
    """
    The hash of a block: the root over its header's fields. A block is hashed when it is made from
    answers, and when it is checked.
    """
    fields = (
        _number(1, header.version.block) + _number(2, header.version.app),
        _text(1, header.chainId),
        _number(1, header.height),
        _instant(header.time),
        _blockId(header.lastBlockId),
        _bytes(1, header.lastCommitHash),
        _bytes(1, header.dataHash),
        _bytes(1, header.validatorsHash),
        _bytes(1, header.nextValidatorsHash),
        _bytes(1, header.consensusHash),
        _bytes(1, header.appHash),
        _bytes(1, header.lastResultsHash),
        _bytes(1, header.evidenceHash),
        _bytes(1, header.proposerAddress),
    )
    return merkleRoot([leafHash(field) for field in fields])


def validatorsHash(members: Sequence[Member]) -> bytes:
    """
    The hash of a validator set, in the engine's order.
    """
    return merkleRoot(
        [
            leafHash(_message(1, _message(1, member.key)) + _number(2, member.power))
            for member in members
        ]
    )


def votePayload(chainId: str, height: int, round: int, blockId: BlockId, time: int) -> bytes:
    """
    The sign bytes of a precommit.
    """
    before, after = _aroundTime(chainId, height, round, blockId)
    return delimited(before + _message(5, _instant(time)) + after)


@lru_cache(maxsize=64)
def _aroundTime(chainId: str, height: int, round: int, blockId: BlockId) -> tuple[bytes, bytes]:
    """The fields of a precommit before and after its time, which all votes for a block share."""
    before = (
        _number(1, _PRECOMMIT),
        _fixed(2, height),
        _fixed(3, round),
        _message(4, _blockId(blockId)),
    )
    return b"".join(before), _text(6, chainId)
