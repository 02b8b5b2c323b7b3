"""
What ledgers have in common that keep their chain in a store: everything that only reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from ..archive import ERASURE_BYTES, TREE_BYTES, Certificates, Eraser, Prover, exportPart
from ..chain import ChainState, Genesis, Malformed
from ..errors import BrokerError, LedgerUnavailable, ParameterInvalid
from ..interfaces import IBlockObserver, LedgerContext
from ..model import (
    Block,
    BlockRecord,
    ChainPart,
    Event,
    EventId,
    Page,
    Position,
    Topic,
    TransactionRecord,
)
from ..net.deferreds import asDeferred
from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields, TopicProof
from ..storage import CACHE_BYTES, StorageError, Store
from ._erasing import ErasingJob
from ._observers import Observers
from ._reader import ChainReader
from ._verifying import CACHED_BYTES

T = TypeVar("T")

IN_MEMORY: Final = 8
"""How many times as much memory as bytes in a block the shortest transactions take."""

_ERASURE_VERIFIERS: Final = 4  # of reads, proofs, keys and the removal of contents

LOG_PERIOD = 60.0
"""The period, in seconds, in which each reason why the chain cannot be read is logged once."""

MAX_REASONS = 10
"""How many reasons are logged in a period."""


HISTORY_LEVELS = range(0, 64, 8)
"""The levels of the history tree that a store keeps; level 0 are the headers."""

MAX_HASHES = 256
"""The most hashes of the history that are read at a time."""

SYNC_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The ranges of the time that storing and syncing a block takes, in seconds."""


LATENCY_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""The ranges of the time until a transaction is final, in seconds."""


def storedMemory(mempool: int, block: int) -> Mapping[str, int]:
    """
    The bounds of what a ledger with a store keeps in memory. See
    L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.

    @param mempool: the most bytes of its pending transactions, as they are encoded.
    @param block: the most bytes of a block's, likewise.
    """
    return {
        **({"pending transactions": IN_MEMORY * mempool} if mempool else {}),
        "blocks being decided": IN_MEMORY * block,
        "pages of the store": CACHE_BYTES,
        "blocks that events are verified with": CACHED_BYTES,
        "trees that proofs are made of": TREE_BYTES,
        "erasures that were verified": _ERASURE_VERIFIERS * ERASURE_BYTES,
    }


class StoredLedger:
    """
    The reading half of a ledger: of L{ILedger<svcbroker.interfaces.ILedger>} what follows from
    the chain alone, and of L{IProvableLedger<svcbroker.interfaces.IProvableLedger>} and
    L{IExportableLedger<svcbroker.interfaces.IExportableLedger>} all of it.

    @ivar group: the id of the group whose log it is.
    @ivar chain: the id of the chain; empty until there is one.
    """

    _log = Logger()

    def __init__(self, context: LedgerContext) -> None:
        """
        @param context: what it lives on.
        """
        self.group = context.group
        self.chain = b""
        self._reactor = context.reactor
        self._runInThread = context.runInThread
        self._turn = context.turn
        self._observers = Observers()
        self._logged: set[str] = set()
        self._loggedAt = -LOG_PERIOD

    def _openReads(self, genesis: Genesis, state: ChainState, store: Store) -> None:
        """There is a chain to read, in place of any former one."""
        if self.chain:
            self._erasing.stop()
        self.chain = genesis.chain
        self._state = state
        self._directory = store.path.parent
        self._reader = ChainReader(state, store, self._reactor.seconds, self._yieldToReactor)
        self._prover = Prover(genesis, store)
        self._erasing: ErasingJob = ErasingJob(Eraser(store), self._reactor, self._runInThread)

    def _stopErasing(self) -> Deferred[None]:
        """Stop removing contents. Fires when nothing writes to the store for it any more."""
        if self.chain:
            self._erasing.stop()
        return self._runInThread(lambda: None)

    def _checkOpen(self) -> None:
        """
        @raise LedgerUnavailable: the store cannot be read now.
        """
        raise NotImplementedError

    def topicState(self, name: str) -> Topic | None:
        self._checkOpen()
        return self._state.topic(name)

    def listTopics(self, offset: int, limit: int) -> Deferred[Page[Topic]]:
        return self._read(lambda: self._reader.listTopics(offset, limit))

    def getEvent(self, eventId: EventId) -> Deferred[Event]:
        return self._read(lambda: self._reader.getEvent(eventId))

    def locate(self, eventId: EventId) -> Deferred[Position]:
        return self._read(lambda: self._reader.locate(eventId))

    def mayHold(self, height: int, extension: str) -> Deferred[bool]:
        return self._read(lambda: self._reader.mayHold(height, extension))

    def readBlock(self, height: int) -> Deferred[Block]:
        return self._read(lambda: self._reader.readBlock(height))

    def findBlocks(self, topics: Sequence[str], first: int, limit: int) -> Deferred[Sequence[int]]:
        return self._read(lambda: self._reader.findBlocks(topics, first, limit))

    def countEvents(self, filters: Sequence[str], first: int) -> Deferred[int]:
        return self._search(lambda: self._reader.countEvents(filters, first))

    def getGenesis(self) -> Deferred[GenesisFields]:
        return self._read(lambda: self._prover.genesis())

    def getCheckpoint(self, height: int | None) -> Deferred[Checkpoint]:
        return self._read(lambda: self._prover.checkpoint(height))

    def prove(
        self, eventId: EventId, checkpoint: int | None, *, trusted: int | None = None
    ) -> Deferred[EventProof]:
        return self._prove(
            lambda given: self._prover.event(eventId, checkpoint, given, trusted=trusted)
        )

    def proveConsistency(self, older: int, newer: int) -> Deferred[ConsistencyProof]:
        return self._read(lambda: self._prover.consistency(older, newer))

    @asDeferred
    async def proveTopic(self, name: str) -> TopicProof:
        proof = await self._read(lambda: self._prover.topic(name, self._state))
        return await self._prove(lambda given: self._prover.certified(proof, given))

    def readHistory(self, level: int, first: int, count: int) -> Deferred[Sequence[bytes]]:
        if level not in HISTORY_LEVELS or first < 0 or not 0 <= count <= MAX_HASHES:
            error = f"at most {MAX_HASHES} hashes of every eighth level can be read"
            return fail(ParameterInvalid(error))
        return self._read(lambda: self._prover.history(level, first, count))

    def _privateKey(self) -> bytes:
        """
        The private key that others are derived from.

        @raise LedgerUnavailable: there is none now.
        """
        raise NotImplementedError

    def deriveKey(self, purpose: str) -> bytes:
        info = f"svcbroker {purpose}".encode()
        return HKDF(SHA256(), 32, self.chain, info).derive(self._privateKey())

    def exportBlocks(self, first: int) -> ChainPart:
        # In a thread, so nothing is read of the ledger but the path of its file.
        try:
            return exportPart(self._directory, first)
        except StorageError as error:
            self._log.error("a part of the chain cannot be exported: {error}", error=str(error))
            raise LedgerUnavailable("the ledger's disk cannot be read") from None

    def addObserver(self, observer: IBlockObserver) -> None:
        self._observers.add(observer)

    def removeObserver(self, observer: IBlockObserver) -> None:
        self._observers.remove(observer)

    def listBlocks(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[BlockRecord]]:
        return self._read(lambda: self._reader.listBlocks(offset, limit, height, hash))

    def listTransactions(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[TransactionRecord]]:
        return self._search(lambda: self._reader.listTransactions(offset, limit, height, hash))

    def _prove(self, make: Callable[[Certificates], T]) -> Deferred[T]:
        """
        Make a proof.

        @param make: makes it with the certificates that the store does not have.
        """
        return self._read(lambda: make({}))

    def _read(self, read: Callable[[], T]) -> Deferred[T]:
        try:
            self._checkOpen()
            return succeed(read())
        except BrokerError as error:
            return fail(error)
        except (StorageError, Malformed) as error:
            return fail(self._unreadable(error))

    @asDeferred
    async def _search(self, search: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        try:
            self._checkOpen()
            return await search()
        except (StorageError, Malformed) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: StorageError | Malformed) -> LedgerUnavailable:
        """
        Log why the chain cannot be read, and make the error for the client.
        """
        # Clients may ask for damaged events without end.
        now = self._reactor.seconds()
        if not 0 <= now - self._loggedAt < LOG_PERIOD:
            self._loggedAt = now
            self._logged.clear()
        reason = str(error)
        if reason not in self._logged and len(self._logged) < MAX_REASONS:
            self._logged.add(reason)
            self._log.error(
                "the chain of group {group} cannot be read: {reason}",
                group=self.group,
                reason=reason,
            )
        return LedgerUnavailable("the ledger's disk cannot be read")

    def _yieldToReactor(self) -> Deferred[None]:
        return self._turn().addCallback(lambda _: self._checkOpen())
