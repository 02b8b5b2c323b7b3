"""
Making proofs from a stored chain.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
from attrs import frozen
from msgspec import UNSET

from ..chain import (
    ChainState,
    Genesis,
    Header,
    Malformed,
    MerkleTree,
    Transaction,
    ValidatorSet,
    decodeTable,
    historyPath,
    leafHash,
    receiptLeaves,
    rootOfPath,
    transactionHashes,
)
from ..errors import EventNotFound, HeightUnknown, ParameterInvalid, TopicNotFound
from ..model import EventId
from ..proofs import (
    CERTIFIED,
    UNCERTIFIED,
    VERSIONED,
    AnyCertificate,
    Checkpoint,
    CheckpointFields,
    ConsistencyProof,
    EventProof,
    FinalHeader,
    GenesisFields,
    HeaderFields,
    NodeChange,
    ProofInvalid,
    TopicFields,
    TopicProof,
    eventFieldsOf,
    isEvmPlace,
    storedCertificate,
    verifyProof,
    verifyTopic,
)
from ..storage import BlockHeadRow, BlockRow, ChainReader, Snapshot, StorageDamaged
from ._eraser import ErasureVerifier
from ._layout import STORE_NAME
from ._replay import checkFormat, decidedByEngine, historyHashes, storedHistory

Certificates: TypeAlias = Mapping[int, AnyCertificate | None]
"""Certificates that a store does not have, by height; C{None} for one that cannot be had."""

CACHED_LEAVES: Final = 64 * 1024
"""The number of transactions of the blocks whose trees are kept: some 400 bytes for each. The
trees of
one block are kept in any case."""

TREE_BYTES: Final = 400 * CACHED_LEAVES
"""The bytes of memory that these trees take."""

_NONE: Certificates = MappingProxyType({})


class NotCertified(Exception):
    """
    A block's certificate is with the engine that decided it, and not in the store.

    @ivar height: the block's height.
    """

    def __init__(self, height: int) -> None:
        super().__init__(f"the certificate of block {height} is not stored")
        self.height = height


@contextmanager
def readChain(directory: Path) -> Iterator[Prover]:
    """
    Open the chain in a group's directory for reading, also while a broker runs on it.

    Nothing is checked: that is what L{audit<svcbroker.archive.audit>} is for.

    @raise StorageError: it cannot be read.
    """
    path = directory / STORE_NAME
    with Snapshot.ofLedger(path, mayBeOlder=True) as snapshot:
        checkFormat(snapshot)
        rows = list(snapshot.rows("SELECT chain_id, genesis FROM chain"))
        try:
            genesis = Genesis.decode(rows[0][1])
            if genesis.chain != rows[0][0]:
                raise Malformed("its genesis is not the one it was made with")
        except (Malformed, LookupError, TypeError) as error:
            raise StorageDamaged(f"{path} is damaged ({error}): restore it from a backup") from None
        yield Prover(genesis, snapshot.reader())


@frozen(kw_only=True)
class BlockTrees:
    """
    The Merkle trees of a block. Making them takes a hash or two for each transaction, so the
    prover keeps those of the blocks that were asked for last. They stay the same when contents of
    the block are erased.

    @ivar hashes: the hashes of the block's transactions.
    @ivar transactions: the tree of its transactions.
    @ivar receipts: the tree of its receipts.
    """

    hashes: Sequence[bytes]
    transactions: MerkleTree
    receipts: MerkleTree

    @classmethod
    def of(cls, row: BlockRow) -> BlockTrees:
        """
        Make the trees of a stored block, and check their roots against its header.

        @raise Malformed: the block is damaged.
        """
        header = Header.decode(row.header)
        hashes = transactionHashes(row.body, decodeTable(row.body))
        transactions = MerkleTree(hashes)
        receipts = MerkleTree(receiptLeaves(hashes, row.receipts))
        if (transactions.root, receipts.root) != (header.transactionRoot, header.receiptRoot):
            raise Malformed(f"block {row.height} does not match the roots in its header")
        return cls(hashes=hashes, transactions=transactions, receipts=receipts)


class Prover:
    """
    Makes the proofs of L{svcbroker.proofs} from a store.

    Every method fails with L{Malformed<svcbroker.chain.Malformed>} or
    L{StorageError<svcbroker.storage.StorageError>} where the store is damaged.
    """

    def __init__(self, genesis: Genesis, store: ChainReader) -> None:
        self._genesis = genesis
        self._store = store
        self._erasures = ErasureVerifier(store)
        self._history = storedHistory(store, genesis.header().hash)
        # Of the blocks that were asked for last, and how many transactions these have.
        self._trees: OrderedDict[int, BlockTrees] = OrderedDict()
        self._cached = 0
        self._changed: dict[int, NodeChange] = {}

    def genesis(self) -> GenesisFields:
        """The genesis of the chain."""
        return GenesisFields.of(self._genesis)

    def checkpoint(self, height: int | None) -> Checkpoint:
        """
        The checkpoint of a block. On an engine's chain it is the last block with transactions up
        to the height, since the engine's headers commit to no others.

        @param height: its height; C{None} for the latest one.
        @raise HeightUnknown: there is no such block.
        """
        header = self._header(self._anchor(self._tipHeight() if height is None else height))
        self._checkInChain(header)
        return Checkpoint.of(header)

    def _checkInChain(self, header: Header) -> None:
        """
        Check that a stored header is in the history of the last one.

        @raise Malformed: it is not.
        """
        tip = self._store.tip()
        if tip is None or header.height == tip.height:
            isInChain = tip is None or header.hash == tip.hash
        else:
            last = Header.decode(tip.header)
            path = historyPath(header.height, last.height, self._history)
            root = rootOfPath(leafHash(header.hash), header.height, last.height, path)
            isInChain = root == last.history
        if not isInChain:
            raise Malformed(f"the header of block {header.height} is not that of the chain")

    def consistency(self, older: int, newer: int) -> ConsistencyProof:
        """
        A proof that the chain up to one block is the beginning of the chain up to another.

        @raise HeightUnknown: the newer one is above the chain's height.
        @raise ParameterInvalid: the heights are not in that order.
        """
        header = self._header(newer)
        return ConsistencyProof(
            format="svcbroker/consistency-proof/1",
            older=str(Checkpoint.of(self._header(self._below(older, newer)))),
            newer=HeaderFields.of(header),
            path=self._path(older, newer),
        )

    def history(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """
        Hashes of the history tree. See
        L{IProvableLedger.readHistory<svcbroker.interfaces.IProvableLedger.readHistory>}.
        """
        return historyHashes(self._store, self._genesis.header().hash, level, first, count)

    def event(
        self,
        eventId: EventId,
        checkpoint: int | None = None,
        certificates: Certificates = _NONE,
        *,
        trusted: int | None = None,
    ) -> EventProof:
        """
        A proof of an event.

        @param checkpoint: the height of a later block that the proof leads to as well; see
            L{checkpoint}.
        @param certificates: by height, of blocks that have none in the store; C{None} where there
            is none. The proof then leads to a later block with a certificate.
        @param trusted: the height of a checkpoint that the verifier trusts. The proof leads to it,
            and has no certificates.
        @raise HeightUnknown: its block, or the checkpoint's, is above the chain's height.
        @raise EventNotFound: there is no such event.
        @raise ParameterInvalid: the checkpoint is not after the event's block, or the trusted one
            is before it.
        @raise NotCertified: a block's certificate is neither in the store nor given.
        """
        height = eventId.height
        self._row(height)
        self._place(eventId)
        block, last, later = self._leading(height, checkpoint, trusted, certificates)
        trees = self._treesOf(height)
        transaction = self._transaction(eventId)
        try:
            # Where it stands twice, the second one was not executed.
            index = trees.hashes.index(transaction.hash)
        except ValueError:
            raise Malformed(f"the transaction of {eventId} is not in its block") from None
        event = eventFieldsOf(eventId, transaction)
        proof = EventProof(
            format=VERSIONED
            if event.version is not UNSET
            else UNCERTIFIED
            if block.certificate is None
            else CERTIFIED,
            event=event,
            index=index,
            transactionPath=_hex(trees.transactions.path(index)),
            receiptPath=_hex(trees.receipts.path(index)),
            block=block,
            genesis=self.genesis(),
            changes=self._changes(last, certificates) if trusted is None else (),
            checkpoint=later,
        )
        kept = None
        if trusted is not None:
            # There is no certificate that a damaged header would contradict.
            header = self._header(last)
            self._checkInChain(header)
            kept = Checkpoint.of(header)
        try:
            verifyProof(msgspec.json.encode(proof), chain=self._genesis.chain, checkpoint=kept)
        except ProofInvalid as error:
            raise Malformed(f"the proof of {eventId} does not hold: {error}") from None
        return proof

    def topic(self, name: str, state: ChainState) -> TopicProof:
        """
        A proof of how many events a topic has. Its block has no certificate until L{certified}
        adds it, because a state cannot be proved any more when the next block has changed it.

        @param state: the chain's state after one of its stored blocks.
        @raise TopicNotFound: the topic was never opened.
        """
        index = state.topicIndex(name)
        if index is None:
            raise TopicNotFound()
        # Blocks without transactions have the state of the block before.
        height = self._anchor(state.history.size - 1)
        path, topic = state.topicPath(index), state.topicAt(index)
        return TopicProof(
            format="svcbroker/topic-proof/1",
            topic=TopicFields.of(topic),
            index=index,
            topicPath=_hex(path.path),
            topicCount=path.topics,
            accountRoot=path.senderRoot.hex(),
            accountCount=path.senders,
            block=self._uncertified(height),
            genesis=self.genesis(),
        )

    def certified(self, proof: TopicProof, certificates: Certificates = _NONE) -> TopicProof:
        """
        A topic proof with its certificates.

        @param certificates: by height, of blocks that have none in the store.
        @raise NotCertified: a block's certificate is neither in the store nor given.
        """
        height = proof.block.header.height
        whole = msgspec.structs.replace(
            proof,
            block=self._final(height, certificates),
            changes=self._changes(height, certificates),
        )
        try:
            verifyTopic(msgspec.json.encode(whole), chain=self._genesis.chain)
        except ProofInvalid as error:
            raise Malformed(f"the proof of a topic does not hold: {error}") from None
        return whole

    def _leading(
        self,
        height: int,
        checkpoint: int | None,
        trusted: int | None,
        certificates: Certificates,
    ) -> tuple[FinalHeader, int, CheckpointFields | None]:
        """
        The header of a block, and the later header that a proof leads to, if any.

        @return: the block's, the height of the last one of both, and the later one.
        """
        if trusted is not None:
            if checkpoint is not None or trusted < height:
                raise ParameterInvalid(
                    f"trusted: it is a block from {height} on, and the only checkpoint"
                )
            block, last = self._uncertified(height), self._anchor(trusted)
            anchor = self._uncertified(last)
        else:
            last = height
            if checkpoint is not None:
                last = self._anchor(checkpoint)
                self._below(height, checkpoint)
            try:
                block = self._final(height, certificates)
            except NotCertified:
                if last == height:
                    last = self._anchor(self._tipHeight())
                if last == height or height not in certificates:
                    raise
                block = self._uncertified(height)
            anchor = block if last == height else self._final(last, certificates)
        if last == height:
            return block, last, None
        path = self._path(height, last)
        later = CheckpointFields(header=anchor.header, certificate=anchor.certificate, path=path)
        return block, last, later

    def _uncertified(self, height: int) -> FinalHeader:
        return FinalHeader(header=HeaderFields.of(self._header(height)))

    def _treesOf(self, height: int) -> BlockTrees:
        trees = self._trees.get(height)
        if trees is not None:
            self._trees.move_to_end(height)
            return trees
        row = self._store.block(height)
        if row is None:
            raise _unknown(height)
        trees = self._trees[height] = BlockTrees.of(row)
        self._cached += len(trees.hashes)
        while self._cached > CACHED_LEAVES and len(self._trees) > 1:
            _, dropped = self._trees.popitem(last=False)
            self._cached -= len(dropped.hashes)
        return trees

    def _transaction(self, eventId: EventId) -> Transaction:
        """The transaction that published an event."""
        with self._store.moment():
            offset, length = self._place(eventId)
            entry = self._store.bodySlice(eventId.height, offset, length)
        transaction = Transaction.decode(entry, mayBeErased=True)
        erased = self._store.erasureOf(transaction.topic, eventId.sequence)
        if erased is not None:
            # Its content may be there still.
            self._erasures.check(erased)
            return Transaction.decode(transaction.head, mayBeErased=True)
        return transaction

    def _place(self, eventId: EventId) -> tuple[int, int]:
        places = self._store.eventPlaces(eventId.prefix, eventId.height, eventId.sequence)
        for place in filter(None, places):
            return place.offset, place.length
        raise EventNotFound()

    def _changes(self, height: int, certificates: Certificates) -> Sequence[NodeChange]:
        """The changes of the validator set below a height."""
        # Cached: every proof has all of them, and they only grow in number.
        for row in self._store.validatorSets():
            if row.height < height and row.height not in self._changed:
                final = self._final(row.height, certificates)
                nodes = ValidatorSet.decode(row.encoded).keys
                self._changed[row.height] = NodeChange(
                    header=final.header, certificate=final.certificate, nodes=_hex(nodes)
                )
        return [change for at, change in sorted(self._changed.items()) if at < height]

    def _path(self, older: int, newer: int) -> Sequence[str]:
        return _hex(historyPath(older, newer, self._history))

    def _below(self, older: int, newer: int) -> int:
        if not 0 <= older < newer:
            raise ParameterInvalid(f"block {newer} does not come after block {older}")
        return older

    def _header(self, height: int) -> Header:
        return Header.decode(self._row(height).header) if height else self._genesis.header()

    def _final(self, height: int, certificates: Certificates) -> FinalHeader:
        row = self._row(height)
        certificate = storedCertificate(row.certificate) or certificates.get(height)
        if certificate is None:
            if not decidedByEngine(self._store):
                raise Malformed(f"block {height} has no certificate")
            raise NotCertified(height)
        header = Header.decode(row.header)
        return FinalHeader(header=HeaderFields.of(header), certificate=certificate)

    def _anchor(self, height: int) -> int:
        """The last height, up to the given one, whose header can have a certificate of its own."""
        if not height:
            return 0
        row = self._row(height)
        if not decidedByEngine(self._store) or isEvmPlace(row.certificate):
            return height
        place = self._store.locateTransaction(row.transactionTotal - 1)
        return 0 if place is None else place.height

    def _tipHeight(self) -> int:
        tip = self._store.tip()
        return tip.height if tip else 0

    def _row(self, height: int) -> BlockHeadRow:
        row = self._store.blockHead(height) if 0 < height < 2**63 else None
        if row is None:
            raise _unknown(height)
        return row


def _unknown(height: int) -> HeightUnknown:
    return HeightUnknown(f"block {height} is above the chain's height")


def _hex(hashes: Sequence[bytes]) -> Sequence[str]:
    return [hash.hex() for hash in hashes]
