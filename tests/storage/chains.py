"""
Chains to store, and a plain Python model of what a store answers about them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random

from svcbroker.model import Topic
from svcbroker.storage import (
    Append,
    BlockHeadRow,
    BlockRow,
    SenderRow,
    Store,
    TopicBlockRow,
    TopicRow,
    packPositions,
    wholeHeader,
)
from svcbroker.storage._rows import TransactionPlace
from svcbroker.storage._schema import APPLICATION_ID, schemaSteps

CHAIN_ID = b"chain of the tests"
GENESIS = b"in the beginning"


def newStore(path: str | Path) -> Store:
    """
    An empty store.
    """
    return Store.create(Path(path), chainId=CHAIN_ID, genesis=GENESIS)


def makeFirst(path: Path) -> None:
    """
    Make a store what it was with the first step of the schema alone, as far as that goes.
    """
    old = path.with_name("made by the first step")
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.create_function("whole", 3, wholeHeader)
        connection.executescript(schemaSteps()[0])
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("ATTACH ? AS later", (str(path),))
        tables = connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            columns = connection.execute(f"SELECT name FROM pragma_table_info('{table}')")
            names = ", ".join(name for (name,) in columns.fetchall())
            source = f"later.{table}"
            if table == "head":
                names = names.replace("header", "whole(header, shared, height)")
                source += " LEFT JOIN later.header_base ON number = base"
            connection.execute(f"DELETE FROM main.{table}")
            connection.execute(f"INSERT INTO main.{table} SELECT {names} FROM {source}")
    old.replace(path)


def headOf(block: BlockRow) -> BlockHeadRow:
    """
    A block without its body.
    """
    return BlockHeadRow(
        height=block.height,
        hash=block.hash,
        header=block.header,
        certificate=block.certificate,
        transactionTotal=block.transactionTotal,
    )


class Chain:
    """
    A chain that is made block by block, and remembers all of it.

    @ivar appends: what to store, block by block.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.appends: list[Append] = []
        self.topics: dict[str, TopicRow] = {}
        self.accounts: dict[bytes, SenderRow] = {}

    @property
    def height(self) -> int:
        """The height of the latest block."""
        return len(self.appends)

    @property
    def total(self) -> int:
        """The number of transactions."""
        return self.appends[-1].block.transactionTotal if self.appends else 0

    @property
    def hashes(self) -> Sequence[bytes]:
        """The hashes of all transactions, in order."""
        return [hash for append in self.appends for hash in append.transactionHashes]

    def place(self, position: int) -> TransactionPlace:
        """
        The place of the transaction of this number.
        """
        for append in self.appends:
            if position < len(append.transactionHashes):
                return TransactionPlace(height=append.block.height, index=position)
            position -= len(append.transactionHashes)
        raise LookupError

    def add(self, events: Sequence[tuple[str, bytes]]) -> Append:
        """
        Make the next block.

        @param events: names of topics and the contents that are published to them.
        """
        height = self.height + 1
        body = bytearray(f"block {height}:".encode())
        changed: dict[str, TopicRow] = {}
        places: dict[str, list[tuple[int, int]]] = {}
        hashes: list[bytes] = []
        for name, content in events:
            known = self.topics.get(name)
            index = len(self.topics) if known is None else known.index
            sequence = 1 if known is None else known.topic.sequence + 1
            topic = Topic(
                name=name,
                address=sha256(name.encode()).digest()[:20],
                sender=b"s" * 20,
                created=height if known is None else known.topic.created,
                isOpen=sequence % 3 != 0,
                sequence=sequence,
                height=height,
            )
            self.topics[name] = changed[name] = TopicRow(index=index, topic=topic)
            places.setdefault(name, []).append((len(body), len(content)))
            body += content
            hashes.append(sha256(b"%d %d %d" % (self._seed, height, len(hashes))).digest())
        sender = sha256(b"%d" % (height % 3)).digest()[:20]
        known_account = self.accounts.get(sender)
        self.accounts[sender] = account = SenderRow(
            index=len(self.accounts) if known_account is None else known_account.index,
            address=sender,
            state=b"%d" % height,
        )
        append = Append(
            block=BlockRow(
                height=height,
                hash=sha256(b"block %d %d" % (self._seed, height)).digest(),
                header=b"header %d" % height,
                certificate=b"certificate %d" % height,
                transactionTotal=self.total + len(hashes),
                body=bytes(body),
                receipts=b"receipts %d" % height,
            ),
            transactionHashes=hashes,
            topics=list(changed.values()),
            senders=[account],
            topicBlocks=[
                TopicBlockRow(
                    topicIndex=row.index,
                    height=height,
                    firstSequence=row.topic.sequence - len(places[name]) + 1,
                    positions=packPositions(places[name]),
                )
                for name, row in changed.items()
            ],
        )
        self.appends.append(append)
        return append

    def drop(self) -> None:
        """
        Make the latest block, which was not stored, never have been. Its topics stay changed.
        """
        self.appends.pop()


def seededChain(seed: int, blocks: int, *, events: int = 4, size: int = 40) -> Chain:
    """
    A chain that is the same each time.
    """
    random = Random(seed)
    chain = Chain(seed)
    for _ in range(blocks):
        chain.add(
            [
                (f"com/test/{random.randrange(5)}", random.randbytes(random.randrange(size)))
                for _ in range(random.randrange(events + 1))
            ]
        )
    return chain


def differences(store: Store, chain: Chain, height: int) -> list[str]:
    """
    The answers of a store with the first C{height} blocks of a chain that are not as they should
    be.
    """
    wrong = []
    tip = store.tip()
    if (0 if tip is None else tip.height) != height:
        wrong.append(f"tip {tip}, not {height}")
    total = 0
    for append in chain.appends[:height]:
        block = append.block
        if store.block(block.height) != block:
            wrong.append(f"block {block.height}")
        if store.heightOfHash(block.hash) != block.height:
            wrong.append(f"hash of block {block.height}")
        for row in append.topicBlocks:
            found = store.topicBlocks(row.topicIndex, block.height - 1, 1)
            if found != [row]:
                wrong.append(f"topic {row.topicIndex} in block {block.height}: {found}")
        for index, hash in enumerate(append.transactionHashes):
            place = TransactionPlace(height=block.height, index=index)
            if store.locateTransaction(total + index) != place:
                wrong.append(f"transaction {total + index}")
            if [place] != [found for step in store.findTransaction(hash) for found in step]:
                wrong.append(f"search for transaction {total + index}")
        total += len(append.transactionHashes)
    if store.locateTransaction(total) is not None or store.block(height + 1) is not None:
        wrong.append("there is more than there should be")
    return wrong
