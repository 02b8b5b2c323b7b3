"""
The replay of a stored chain: loading the state, executing further blocks, and the rows of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final

from attrs import define, field, frozen
from msgspec import structs

from ..chain import (
    OLD_FORMAT,
    Candidate,
    ChainState,
    ErasedRange,
    Genesis,
    Header,
    History,
    InvalidBlock,
    KeyUse,
    Malformed,
    MemoryKeys,
    NodeSource,
    Nonces,
    OwnedKey,
    Transaction,
    TransactionReceipt,
    ValidatorSet,
    VersionUnknown,
    checkBlock,
    decodeReceipts,
    encodeBody,
    leafHash,
    merkleRoot,
    receiptLeaves,
)
from ..model import Execution
from ..proofs import checkFinal, isEngineCertificate, storedCertificate
from ..storage import (
    HEADS,
    Append,
    BlockHeadRow,
    BlockRow,
    ChainReader,
    HistoryRow,
    SenderRow,
    Snapshot,
    StorageDamaged,
    StorageUnknown,
    Store,
    StoreReader,
    TopicBlockRow,
    TopicRow,
    ValidatorsRow,
    packPositions,
    wholeHeader,
)
from ._eraser import ErasureVerifier, EventRanges, eventsOf

_MAX_COUNTS: Final = 1024
"""Of how many owners the number of uses is kept in memory."""


BATCH_BLOCKS: Final = 256
"""The most blocks that are read in one SQLite transaction, or written in one."""

BATCH_BYTES: Final = 8 * 1024 * 1024
"""
The size of block bodies after which a batch ends. A read transaction keeps the write-ahead log of a
running broker from being checkpointed, so it has to end soon.
"""

ROUNDS_ASIDE: Final = 1000
"""
The number of rounds of the next height that a copied chain skips: the replicas of the original may
have
signed in them, and may still be running.
"""


@frozen(kw_only=True)
class StoredChain:
    """
    A chain as loaded from its store. The state is checked against the last header, the blocks
    before it are not read.

    @ivar head: the header of the last block, or that of genesis.
    @ivar headValidators: the set of validators that decided the last block.
    @ivar state: the state after it.
    """

    genesis: Genesis
    head: Header
    headValidators: ValidatorSet
    state: ChainState


def loadChain(store: StoreReader) -> StoredChain:
    """
    Load a chain, and check that its state is the one that its last header commits to. Whether
    that header is final is left to the caller.

    @raise svcbroker.chain.VersionUnknown: it is of another format.
    @raise ValueError: it is damaged.
    """
    genesis = Genesis.decode(store.genesis)
    if genesis.chain != store.chainId:
        raise Malformed("its genesis is not the one it was made with")
    row = store.tip()
    current, following = _lastSets(store, genesis, 0 if row is None else row.height)
    head = genesis.header() if row is None else _checkedHead(genesis, row, current)
    return StoredChain(
        genesis=genesis,
        head=head,
        headValidators=current,
        state=_checkedState(genesis, store, head, following),
    )


def _lastSets(
    store: StoreReader, genesis: Genesis, height: int
) -> tuple[ValidatorSet, ValidatorSet]:
    """
    The set of validators that decided the last block, and the one that decides the next.
    """
    rows = store.validatorSets()
    sets = [genesis.validatorSet, *(ValidatorSet.decode(row.encoded) for row in rows)]
    if rows and rows[-1].height == height:
        return sets[-2], sets[-1]
    return sets[-1], sets[-1]


def _checkedHead(genesis: Genesis, row: BlockHeadRow, validators: ValidatorSet) -> Header:
    """
    The header of the last block, checked against the other columns of its row.
    """
    head = Header.decode(row.header)
    stored = (row.hash, row.height, row.transactionTotal, genesis.chain, validators.hash)
    if (head.hash, head.height, head.transactionTotal, head.chain, head.validators) != stored:
        raise Malformed("the last block is not the one it is said to be")
    return head


def _checkedState(
    genesis: Genesis, store: StoreReader, head: Header, validators: ValidatorSet
) -> ChainState:
    """
    The state after the last block, checked against the roots in its header.
    """
    history = History.load(head.height, storedHistory(store, genesis.header().hash))
    if history.root != head.history:
        raise Malformed("the history is not that of the last block")
    if validators.hash != head.nextValidators:
        raise Malformed("the set of validators is not that of the last block")
    state = ChainState(
        genesis.chain,
        validators,
        history.after(head.hash),
        (row.topic for row in store.topics()),
        ((row.address, Nonces.decode(row.state)) for row in store.senders()),
        StoredKeys(store, ErasureVerifier(store).check),
        genesis.topics,
        store.holds(),
    )
    if state.root != head.stateRoot:
        raise Malformed("the topics are not those of the last block")
    return state


def storedHistory(store: ChainReader, genesis: bytes) -> NodeSource:
    """
    The source of a chain's history tree that reads the nodes from its store.

    @param genesis: the hash of the header of height 0, which is not in the store.
    """

    def source(level: int, first: int, count: int) -> Sequence[bytes]:
        hashes = historyHashes(store, genesis, level, first, count)
        return hashes if level else [leafHash(hash) for hash in hashes]

    return source


def historyHashes(
    store: ChainReader, genesis: bytes, level: int, first: int, count: int
) -> Sequence[bytes]:
    """
    Hashes of a chain's history tree; of level 0 those of the headers, of which the leaves are made.

    @param genesis: as for L{storedHistory}.
    """
    if level:
        return store.historyNodes(level, first, count)
    hashes = [genesis] if first == 0 and count else []
    return [*hashes, *store.blockHashes(first + len(hashes), count - len(hashes))]


@define
class Replay:
    """
    Executes the blocks of a chain one after the other. An audit, an import and a node that joins
    a network all execute blocks with it; whether a block is final is left to them.

    @ivar state: the state after the last block.
    @ivar head: the header of the last block.
    @ivar missing: the events whose contents were missing. A later block has to erase them.
    """

    state: ChainState
    head: Header
    missing: EventRanges = field(factory=EventRanges)

    def execute(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        certificate: bytes,
        receipts: bytes = b"",
    ) -> Append:
        """
        Execute the next block.

        @param transactions: its transactions; contents of publishes may be missing.
        @param certificate: its encoded certificate.
        @param receipts: its encoded receipts, which are needed where contents are missing. They are
            compared with the header.
        @return: the rows to store for it.
        @raise svcbroker.chain.InvalidBlock: it cannot follow the last block. Nothing has changed.
        """
        recorded = None
        if any(transaction.isErased for transaction in transactions):
            recorded = _recorded(header, transactions, receipts)
        candidate = checkBlock(self.state, self.head, header, transactions, recorded)
        self.state.apply(candidate.outcome, candidate.history)
        self.head = header
        append = appendOf(candidate, certificate)
        if recorded is not None:
            for topic, sequence, transaction in eventsOf(transactions, append):
                if transaction.isErased:
                    self.missing.add(topic, sequence)
        return append

    def forgetMissing(self) -> None:
        """Forget the events whose contents were missing, since all of them are erased."""
        self.missing = EventRanges()


class StoredKeys:
    """
    A L{KeySource<svcbroker.chain.KeySource>} that reads a store. What was added of blocks that are
    not stored yet is kept in memory until they are.
    """

    def __init__(self, store: StoreReader, check: Callable[[ErasedRange], object]) -> None:
        """
        @param check: compares erased events with the chain, such as L{ErasureVerifier.check
            <svcbroker.archive.ErasureVerifier.check>}: raises
            L{Malformed<svcbroker.chain.Malformed>} where no block has erased them.
        """
        self._store = store
        self._check = check
        self._added: MemoryKeys | None = None
        self._addedHeight = 0
        # The numbers of latest uses, of the owners that were asked for.
        self._counts: dict[bytes, int] = {}

    def find(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """See L{KeySource.find<svcbroker.chain.KeySource.find>}."""
        added = self._unstored()
        if added is None:
            return self._stored(wanted)
        found = {**self._stored(wanted), **added.find(wanted)}
        for each, use in found.items():
            if self.isErased(use.topic, use.sequence):
                found[each] = structs.replace(use, digest=None)
        return found

    def _stored(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        found = self._store.findUses(wanted)
        for each, use in found.items():
            if use.digest is None and not self._isStoredErased(use.topic, use.sequence):
                found[each] = structs.replace(use, digest=self._store.digestOf(use))
        return found

    def isErased(self, topic: int, sequence: int) -> bool:
        """See L{KeySource.isErased<svcbroker.chain.KeySource.isErased>}."""
        added = self._unstored()
        isAdded = added is not None and added.isErased(topic, sequence)
        return isAdded or self._isStoredErased(topic, sequence)

    def _isStoredErased(self, topic: int, sequence: int) -> bool:
        """
        Whether a stored block has erased an event. A key whose event only seems to be erased
        would be taken for the same publish, whatever its content.
        """
        erased = self._store.erasure(topic, sequence)
        if erased is None:
            return False
        try:
            self._check(erased)
        except Malformed:
            return False
        return True

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count<svcbroker.chain.KeySource.count>}."""
        count = self._counts.get(owner)
        if count is None:
            if len(self._counts) == _MAX_COUNTS:
                self._counts.clear()
            added = self._unstored()
            count = 0 if added is None else added.count(owner)
            count = self._counts[owner] = count or self._store.countUses(owner)
        return count

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add<svcbroker.chain.KeySource.add>}."""
        for use in uses:
            if use.owner in self._counts:
                self._counts[use.owner] = use.number
        added = self._unstored()
        height = (uses or erased)[0].height
        if height > self._store.height:
            added = self._added = added or MemoryKeys()
            added.add(uses, erased)
            self._addedHeight = height

    def _unstored(self) -> MemoryKeys | None:
        if self._added is not None and self._store.height >= self._addedHeight:
            self._added = None
        return self._added


def _recorded(
    header: Header, transactions: Sequence[Transaction], receipts: bytes
) -> Sequence[TransactionReceipt]:
    """
    The receipts of a block, compared with its header.

    @raise InvalidBlock: they are not those of the header.
    """
    try:
        leaves = receiptLeaves([transaction.hash for transaction in transactions], receipts)
        if merkleRoot(leaves) != header.receiptRoot:
            raise Malformed("they are not those of its header")
        return decodeReceipts(receipts)
    except Malformed as error:
        raise InvalidBlock(
            f"contents are missing, and without its receipts it cannot be executed: {error}"
        ) from None


def appendOf(candidate: Candidate, certificate: bytes) -> Append:
    """
    The rows to store for a block.

    @param certificate: its encoded certificate; empty where an engine keeps it.
    """
    header, outcome = candidate.header, candidate.outcome
    body, offsets = candidate.body, candidate.offsets
    if header.version != OLD_FORMAT:
        body, offsets = _storedBody(candidate)
    return Append(
        block=BlockRow(
            height=header.height,
            hash=header.hash,
            header=header.encoded,
            certificate=certificate,
            transactionTotal=header.transactionTotal,
            body=body,
            receipts=candidate.receipts,
        ),
        transactionHashes=[transaction.hash for transaction in candidate.transactions],
        topics=[TopicRow(index=index, topic=topic) for index, topic in outcome.topics.items()],
        senders=[
            SenderRow(index=index, address=address, state=nonces.encode())
            for index, (address, nonces) in outcome.senders.items()
        ],
        topicBlocks=[
            TopicBlockRow(
                topicIndex=index,
                height=header.height,
                firstSequence=outcome.topics[index].sequence - len(places) + 1,
                positions=packPositions(
                    (offsets[place], offsets[place + 1] - offsets[place]) for place in places
                ),
            )
            for index, places in outcome.published.items()
        ],
        history=[
            HistoryRow(level=level, position=position, hash=hash)
            for level, position, hash in candidate.history.completed
        ],
        validators=(
            None
            if header.validators == header.nextValidators
            else ValidatorsRow(
                generation=outcome.validators.generation,
                height=header.height,
                encoded=outcome.validators.encoded,
            )
        ),
        uses=outcome.uses,
        erased=outcome.erased,
        holds=outcome.holds,
    )


def _storedBody(candidate: Candidate) -> tuple[bytes, Sequence[int]]:
    """
    A block's body as it is stored: publishes from version 2 on that were refused have no content.

    @return: the body, and the offsets of its transactions.
    """
    refused = [
        number
        for number, receipt in enumerate(candidate.outcome.receipts)
        if receipt.execution is not Execution.DONE and candidate.transactions[number].seal
    ]
    if not refused:
        return candidate.body, candidate.offsets
    transactions = list(candidate.transactions)
    for number in refused:
        transactions[number] = transactions[number].withoutContent()
    return encodeBody(transactions)


def checkFormat(snapshot: Snapshot) -> None:
    """
    Refuse a chain whose first or last block is of a format that this release does not know. A
    damaged header is no such block: it has another hash than the one beside it.

    @raise StorageUnknown: it is.
    """
    with suppress(StorageDamaged):
        for height, hash, header, shared in snapshot.rows(
            f"SELECT height, hash, header, shared FROM {HEADS} WHERE height IN "
            "((SELECT min(height) FROM head), (SELECT max(height) FROM head))"
        ):
            encoded = wholeHeader(header, shared, height)
            try:
                Header.decode(encoded)
            except VersionUnknown as error:
                if sha256(encoded).digest() == hash:
                    raise StorageUnknown(
                        f"{snapshot.path}: block {height} has another format ({error}): use the "
                        "svcbroker that wrote it"
                    ) from None
            except (Malformed, TypeError):
                continue


def decidedByEngine(store: ChainReader) -> bool:
    """Whether an engine decided the blocks of a store, by the certificate of its first block."""
    first = store.blockHead(1)
    return first is not None and isEngineCertificate(first.certificate)


def checkEnd(store: ChainReader, chain: StoredChain) -> None:
    """
    Check that the last block of a chain is final. On an engine's chain it may lack its certificate.

    @raise Malformed, CertificateInvalid: it is not.
    """
    row = store.tip()
    if row is None:
        return
    certificate = storedCertificate(row.certificate)
    if certificate is not None:
        checkFinal(certificate, chain.head, chain.headValidators, chain.genesis.group)
    elif not decidedByEngine(store):
        raise Malformed("its last block has no certificate")


def setRoundsAside(store: Store, height: int) -> None:
    """
    Reserve rounds in a copied chain, so that its replicas start far beyond the rounds that the
    original's may have signed in.

    @param height: the height of the last block.
    @raise svcbroker.storage.StorageError: it cannot be written.
    """
    reserved, round = store.reservation()
    following = max(height + 1, reserved)
    store.reserve(following, (round if reserved == following else 0) + ROUNDS_ASIDE)
