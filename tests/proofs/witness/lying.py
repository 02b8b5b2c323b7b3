"""
An operator who has all keys of a chain and of its log, and lies.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from svcbroker.archive import storedHistory
from svcbroker.chain import (
    History,
    Kind,
    NodeSource,
    TransactionReceipt,
    encodeReceipts,
    growthPath,
    historyPath,
    merkleRoot,
    proposeBlock,
    receiptLeaves,
)
from svcbroker.model import EventId, Execution, topicPrefix
from svcbroker.proofs.tlog import AddCheckpoint, LogKey, LogProof, Note, NoteSignature, TreeHead
from svcbroker.storage import Append, BlockRow, HistoryRow, TopicBlockRow, packPositions
from tests.archive.erasable import ErasableChain
from tools.vectors.signedchain import STEP, SignedChain

ORIGIN = "broker.example/log/1"


class LyingChain(ErasableChain):
    """
    A chain whose validators sign what does not follow from its transactions.
    """

    def lie(
        self, topic: str, content: bytes, sequence: int, *, author: str | None = None
    ) -> EventId:
        """
        A block with one event, under a number that its topic has given already. In the state of
        the chain the topic has no event more than before.

        @param author: the name of the key of an author who has not signed it.
        """
        transaction = self.transaction(Kind.PUBLISH, topic, content)
        if author is not None:
            transaction = self.say(topic, content, author=author, isSigned=False)
        time = self.head.timestamp + STEP
        honest = proposeBlock(self._state, self.head, 0, time, [transaction])
        empty = proposeBlock(self._state, self.head, 0, time, [])
        receipts = encodeReceipts([TransactionReceipt(Execution.DONE, sequence)])
        header = replace(
            honest.header,
            receiptRoot=merkleRoot(receiptLeaves([transaction.hash], receipts)),
            stateRoot=empty.header.stateRoot,
        )
        history = self._state.history.after(header.hash)
        index = self._state.topicIndex(topic)
        assert index is not None
        place = (honest.offsets[0], honest.offsets[1] - honest.offsets[0])
        self.store.append(
            Append(
                block=BlockRow(
                    height=header.height,
                    hash=header.hash,
                    header=header.encoded,
                    certificate=self.certify(header).encode(),
                    transactionTotal=header.transactionTotal,
                    body=honest.body,
                    receipts=receipts,
                ),
                transactionHashes=[transaction.hash],
                topics=[],
                senders=[],
                topicBlocks=[
                    TopicBlockRow(
                        topicIndex=index,
                        height=header.height,
                        firstSequence=sequence,
                        positions=packPositions([place]),
                    )
                ],
                history=[
                    HistoryRow(level=level, position=position, hash=hash)
                    for level, position, hash in history.completed
                ],
                validators=None,
                uses=[],
                erased=[],
            )
        )
        self._state.apply(empty.outcome, history)
        self.head = header
        return EventId(topicPrefix(topic), sequence, header.height)


class ChainLog:
    """
    The transparency log of a chain.

    @ivar key: signs its checkpoints.
    @ivar lines: further lines of the checkpoints.
    """

    def __init__(self, chain: SignedChain, origin: str = ORIGIN) -> None:
        self.key = LogKey(origin, b"l" * 32)
        self.lines: Sequence[str] = ()
        self._chain = chain

    @property
    def _source(self) -> NodeSource:
        return storedHistory(self._chain.store, self._chain.genesis.header().hash)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self._chain.head.height + 1

    def head(self, size: int) -> TreeHead:
        """The tree head of a size."""
        root = History.load(size, self._source).root
        return TreeHead(self.key.verifier.name, size, root, self.lines)

    def checkpoint(self, size: int, *cosignatures: NoteSignature) -> Note:
        """The checkpoint of a size."""
        text = self.head(size).text
        return Note(text).signedBy(self.key.sign(text), *cosignatures)

    def request(self, older: int, newer: int) -> AddCheckpoint:
        """The request to a witness."""
        return AddCheckpoint(
            older=older,
            proof=tuple(growthPath(older, newer, self._source)),
            checkpoint=self.checkpoint(newer),
        )

    def proof(self, index: int, size: int, extra: bytes, *cosignatures: NoteSignature) -> bytes:
        """A tlog-proof of an entry."""
        return LogProof(
            index=index,
            path=tuple(historyPath(index, size, self._source)),
            checkpoint=self.checkpoint(size, *cosignatures),
            extra=extra,
        ).encode()
