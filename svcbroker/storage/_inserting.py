"""
The SQL that stores a block.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from ..chain import encodeAuthors
from ..model import topicPrefix
from ._fingerprints import PRINT_SIZE, SEGMENT
from ._keys import insertErased, insertUses
from ._rows import Append, TopicRow

SEGMENT_SIZE: Final = SEGMENT * PRINT_SIZE
"""Bytes of a full segment of fingerprints."""


def checkedPrints(append: Append, height: int, total: int, tail: bytes) -> bytes:
    """
    The fingerprints of a block's transactions, after those of the last segment.

    @param height: the height of the block before it.
    @param total: how many transactions there are up to that.
    @param tail: the fingerprints of the last segment, where that is not full.
    @raise ValueError: the block does not follow that one, or a hash is too short.
    """
    block, hashes = append.block, append.transactionHashes
    if block.height != height + 1:
        raise ValueError(f"block {block.height} does not follow block {height}")
    if block.transactionTotal != total + len(hashes):
        raise ValueError(f"block {block.height} makes {total + len(hashes)} transactions in total")
    prints = tail + b"".join([hash[:PRINT_SIZE] for hash in hashes])
    if len(prints) != len(tail) + PRINT_SIZE * len(hashes):
        raise ValueError("a transaction's hash has at least 4 bytes")
    return prints


def insertBlock(writing: sqlite3.Connection, append: Append, first: int, prints: bytes) -> None:
    """
    Insert the rows of a block. Called in a transaction.

    @param first: the number of the first segment of fingerprints that changes.
    @param prints: the fingerprints from its beginning on.
    """
    block = append.block
    writing.execute(
        "INSERT INTO head (height, transaction_total, hash, header, certificate) "
        "VALUES (?, ?, ?, ?, ?)",
        (
            block.height,
            block.transactionTotal,
            block.hash,
            block.header,
            block.certificate,
        ),
    )
    writing.execute(
        "INSERT INTO body (height, receipts, body) VALUES (?, ?, ?)",
        (block.height, block.receipts, block.body),
    )
    writing.executemany(
        "INSERT OR REPLACE INTO fingerprint (segment, prints) VALUES (?, ?)",
        [
            (first + number, prints[start : start + SEGMENT_SIZE])
            for number, start in enumerate(range(0, len(prints), SEGMENT_SIZE))
        ]
        if append.transactionHashes
        else (),
    )
    writing.executemany(
        "INSERT INTO topic (idx, prefix, name, address, sender, created, is_open, sequence, "
        "height, authors) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (idx) DO UPDATE SET "
        "is_open = excluded.is_open, sequence = excluded.sequence, height = excluded.height, "
        "authors = excluded.authors",
        [_topicValues(row) for row in append.topics],
    )
    writing.executemany(
        "INSERT INTO account (idx, address, state) VALUES (?, ?, ?) "
        "ON CONFLICT (idx) DO UPDATE SET state = excluded.state",
        [(row.index, row.address, row.state) for row in append.senders],
    )
    writing.executemany(
        "INSERT INTO topic_block (topic, height, first_sequence, positions) VALUES (?, ?, ?, ?)",
        [
            (row.topicIndex, row.height, row.firstSequence, row.positions)
            for row in append.topicBlocks
        ],
    )
    if append.history:
        writing.executemany(
            "INSERT INTO history (level, position, hash) VALUES (?, ?, ?)",
            [(row.level, row.position, row.hash) for row in append.history],
        )
    if append.validators is not None:
        row = append.validators
        writing.execute(
            "INSERT INTO validator_set (generation, height, encoded) VALUES (?, ?, ?)",
            (row.generation, row.height, row.encoded),
        )
    if append.uses:
        insertUses(writing, append.uses)
    if append.erased:
        insertErased(writing, append.erased)


def _topicValues(row: TopicRow) -> tuple[object, ...]:
    topic = row.topic
    return (
        row.index,
        int(topicPrefix(topic.name), 16),
        topic.name,
        topic.address,
        topic.sender,
        topic.created,
        topic.isOpen,
        topic.sequence,
        topic.height,
        None if topic.authors is None else encodeAuthors(topic.authors),
    )
