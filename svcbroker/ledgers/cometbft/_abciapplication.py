"""
The ABCI application: executes the engine's blocks on the chain on this disk.

For each block of the engine there is one of this chain, of the same height; its header follows
from C{FinalizeBlock} alone. The application's hash is the hash of the chain's last header with
transactions. So the engine's next header commits to all of that header, and empty blocks do not
change the hash, because the engine would otherwise make another block for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from ...archive import STORE_NAME, StoredChain, appendOf, loadChain
from ...chain import Candidate, Genesis, Header, ValidatorSet, VersionUnknown, isUsableKey
from ...histogram import Histogram
from ...proofs import engineSet, ledgerOfCertificate
from ...proofs.cometbft import BadAnswer, addressOf
from ...storage import TIP_SUFFIX, Store, StoreReader
from ...version import readVersion
from .._storedledger import SYNC_BOUNDS, refuseOther
from ..replicated import BlockRefused, Code
from ._batch import ChainMachine
from ._home import POWER, POWERS, decodeAppState
from ._snapshots import SnapshotClient, SnapshotServer, checkHistory, putInPlace
from .abci import messages

APP_VERSION = 1

TIMED_BLOCKS = 3
"""Blocks in a row, decided now, after which the last one's time is that of the network."""

QUIET = 2.0
"""Seconds after the last block from which an empty block precedes the next one, for its time."""

_SEARCH_STEP = 1000
_NANOSECONDS = 1_000_000


class ApplicationFailed(Exception):
    """The application cannot continue with this engine. The text is one line for the operator."""


class ChainApplication:
    """
    The application of one chain.

    @ivar store: the chain on disk; C{None} before the chain has begun.
    @ivar machine: the state machine; C{None} before the chain has begun.
    @ivar sync: how long storing and syncing each block took, in seconds.
    @ivar isDeciding: whether the engine takes part in deciding blocks, so far as is known. It
        replays blocks, or fetches them, where it does not.
    """

    def __init__(
        self,
        directory: Path,
        runInThread: Callable[..., Deferred[Any]],
        runBriefly: Callable[..., Deferred[Any]],
        begun: Callable[[], object],
        committed: Callable[[Candidate], object],
        snapshots: int = 0,
        own: Callable[[], Sequence[bytes]] = tuple,
        seconds: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = lambda: 0.0,
        format3: int | None = None,
        format4: int | None = None,
        retained: Callable[[int], int] = lambda height: 0,
    ) -> None:
        """
        @param directory: where the chain is kept; it exists.
        @param runInThread: runs blocking disk work, one call after the other.
        @param runBriefly: the same for storing a block, which takes less than a thread while the
            disk is fast.
        @param begun: called when there is a chain: a new one, or the one on the disk.
        @param committed: called with each block that is on stable storage.
        @param snapshots: blocks between snapshots for new nodes; 0: no snapshots.
        @param own: gives this broker's batches that are in no block, in order; they go into
            every block that this node proposes, whether or not they are in the mempool.
        @param seconds: the reactor's clock.
        @param now: the wall clock: seconds since the epoch.
        @param format3: see L{ChainMachine}.
        @param format4: see L{ChainMachine}.
        @param retained: gives the first block that the engine has to keep, from the height of the
            last one; 0 for all.
        """
        self._retained = retained
        self._formats = format3, format4
        self.store: Store | None = None
        self.machine: ChainMachine | None = None
        self.isDeciding = False
        self._path = directory / STORE_NAME
        self._runInThread = runInThread
        self._runBriefly = runBriefly
        self._begun = begun
        self._committed = committed
        self._executed: Candidate | None = None
        self._hash = b""
        self._own = own
        self._seconds = seconds
        self._now = now
        self._lastBlock = 0.0
        self._decided = 0
        self._timeAt: tuple[int, float] | None = None
        self.sync = Histogram(SYNC_BOUNDS)
        self._power = POWER
        self._interval = snapshots
        self._source: SnapshotServer | None = None
        self._restorer = SnapshotClient(self._path, runInThread, self)

    # The chain on disk.

    def open(self) -> None:
        """
        Open the chain on the disk, if there is one.

        @raise svcbroker.storage.StorageError: it cannot be opened.
        @raise ValueError: it is damaged.
        """
        self._restorer.close()
        if self._path.exists():
            # The engine replays the blocks that are missing.
            self.adopt(Store.open(self._path, mayLose=True))

    def adopt(self, store: Store) -> None:
        """
        Continue a chain.

        @param store: the chain; closed if this fails.
        @raise svcbroker.storage.StorageError: it cannot be read.
        @raise ValueError: it is damaged.
        """
        self._goOn(store, *_loaded(store))

    def _goOn(self, store: Store, chain: StoredChain, hash: bytes) -> None:
        self.store, self._hash = store, hash
        self.machine = ChainMachine(chain.state, chain.head, *self._formats)
        self._source = SnapshotServer(self._path, chain.genesis, self._interval, self._runInThread)
        self._lastBlock = self._seconds()
        self._begun()

    async def begin(self, unfinished: Path) -> None:
        """See L{SnapshotTaker<svcbroker.ledgers.cometbft._snapshots.SnapshotTaker>}."""
        if self.store is not None and self.machine is not None:
            # The engine has lost its blocks, or was reset before it had any.
            await self._runInThread(checkHistory, unfinished, self.machine.head)
        old = self._release()
        if old is not None:
            # After what the thread still does with it.
            await self._runInThread(old.close)
        await self._runInThread(putInPlace, unfinished, self._path)
        store: Store = await self._runInThread(Store.open, self._path)
        self._goOn(store, *await self._runInThread(_loaded, store))

    def close(self) -> None:
        """Close the chain."""
        store = self._release()
        if store is not None:
            store.close()
        self._restorer.close()

    def _release(self) -> Store | None:
        """Use the chain no more. Its store is still open."""
        store, self.store, self.machine = self.store, None, None
        self._executed, self._source = None, None
        return store

    @property
    def progress(self) -> int:
        """A counter that grows while a snapshot is received."""
        return self._restorer.progress

    @property
    def height(self) -> int:
        """The height of the last block, 0 where there is none."""
        return 0 if self.machine is None else self.machine.head.height

    @property
    def time(self) -> int:
        """
        The time in milliseconds since the epoch: that of the network, by its latest blocks, and
        this machine's before they are known.
        """
        if self._timeAt is None:
            return int(self._now() * 1000)
        timestamp, at = self._timeAt
        return timestamp + max(0, int((self._seconds() - at) * 1000))

    @property
    def knowsTime(self) -> bool:
        """Whether L{time} is that of the network."""
        return self._timeAt is not None

    @property
    def genesis(self) -> Genesis:
        """The genesis of the chain, which has begun."""
        return Genesis.decode(self._running[0].genesis)

    @property
    def _running(self) -> tuple[Store, ChainMachine]:
        if self.store is None or self.machine is None:
            raise ApplicationFailed("the engine continues a chain that has not begun here")
        return self.store, self.machine

    # What the engine calls.

    def info(self, request: messages.InfoRequest) -> messages.InfoResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        self.isDeciding, self._decided = False, 0
        height = self.height
        return messages.InfoResponse(
            data="svcbroker",
            version=readVersion().version,
            appVersion=APP_VERSION,
            lastBlockHeight=height,
            lastBlockAppHash=self._hash if height else b"",
        )

    def initChain(self, request: messages.InitChainRequest) -> messages.InitChainResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        genesis = _genesisOf(request)
        self._power = request.validators[0].power
        if self.machine is not None and self.machine.head.height:
            raise ApplicationFailed(f"{self._path} has blocks already, the engine has none")
        if self.store is None or self.store.genesis != genesis.encoded:
            for key in genesis.validators:
                if not isUsableKey(key):
                    raise ApplicationFailed(
                        f"the engine's genesis has the validator key {key.hex()}, which is not a "
                        "usable Ed25519 key"
                    )
            self.close()
            for ending in ("", TIP_SUFFIX):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
            self.adopt(Store.create(self._path, chainId=genesis.chain, genesis=genesis.encoded))
        return messages.InitChainResponse(appHash=genesis.header().hash)

    def query(self, request: messages.QueryRequest) -> messages.QueryResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        return messages.QueryResponse(code=1, log="there are no queries")

    def checkTx(self, request: messages.CheckTxRequest) -> messages.CheckTxResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        machine = self.machine
        if machine is None:
            # An engine takes transactions while it fetches a snapshot.
            return messages.CheckTxResponse(code=Code.NO_CHAIN, log="the chain has not begun here")
        try:
            machine.check(
                request.tx,
                self.time,
                isRecheck=request.type is messages.CheckTxType.RECHECK,
            )
        except BlockRefused as refusal:
            return messages.CheckTxResponse(code=refusal.code, log=str(refusal))
        return messages.CheckTxResponse()

    def prepareProposal(
        self, request: messages.PrepareProposalRequest
    ) -> messages.PrepareProposalResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        _, machine = self._running
        self.isDeciding = True
        if self._seconds() - self._lastBlock > QUIET:
            # A block's time is the median of the votes for the block before, so after a pause it
            # would lie in the past. An empty block is decided now, and gives the next its time.
            return messages.PrepareProposalResponse()
        own = self._own()
        waiting = [*(data for data in request.txs if data not in own), *own]
        return messages.PrepareProposalResponse(
            txs=tuple(machine.select(waiting, request.maxTxBytes, request.time // _NANOSECONDS))
        )

    def processProposal(
        self, request: messages.ProcessProposalRequest
    ) -> messages.ProcessProposalResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        _, machine = self._running
        self.isDeciding = True
        isGood = machine.isValid(request.txs, request.time // _NANOSECONDS)
        return messages.ProcessProposalResponse(
            status=messages.Verdict.ACCEPT if isGood else messages.Verdict.REJECT
        )

    def finalizeBlock(
        self, request: messages.FinalizeBlockRequest
    ) -> messages.FinalizeBlockResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        _, machine = self._running
        if request.height != machine.head.height + 1:
            raise ApplicationFailed(
                f"the engine decided block {request.height}, the last block here is "
                f"{machine.head.height}"
            )
        before = machine.state.validators
        # After a start the engine replays the first missing block without checking the state it
        # is replayed on, so the home of another network would corrupt the chain.
        if not self._isDecidedBy(before, request.nextValidatorsHash):
            raise ApplicationFailed(
                f"the engine's block {request.height} is of another chain than {self._path}: its "
                "validators are others; is this the engine's home?"
            )
        try:
            execution = machine.execute(
                request.txs,
                request.height,
                request.time // _NANOSECONDS,
                _keysByAddress(before).get(request.proposerAddress, b""),
            )
        except VersionUnknown as error:
            # Executed without them, the state would be another one than that of the others.
            raise ApplicationFailed(str(error)) from None
        self._executed = candidate = execution.candidate
        return messages.FinalizeBlockResponse(
            txResults=tuple(messages.ExecutedTransaction(code=code) for code in execution.codes),
            validatorUpdates=self._updates(before, candidate.outcome.validators),
            appHash=candidate.header.hash if candidate.transactions else self._hash,
        )

    def _isDecidedBy(self, validators: ValidatorSet, hash: bytes) -> bool:
        """Whether the engine's validators are those of this chain; learns their power."""
        for power in (self._power, *POWERS):
            if hash == engineSet(validators, power):
                self._power = power
                return True
        return not hash

    def _updates(
        self, before: ValidatorSet, after: ValidatorSet
    ) -> tuple[messages.ValidatorUpdate, ...]:
        """The engine's form of a change of the validator set."""
        gone = [(key, 0) for key in before.keys if key not in after.keys]
        come = [(key, self._power) for key in after.keys if key not in before.keys]
        return tuple(
            messages.ValidatorUpdate(
                publicKey=messages.ValidatorPublicKey(ed25519=key), power=power
            )
            for key, power in gone + come
        )

    async def commit(self, request: messages.CommitRequest) -> messages.CommitResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        store, machine = self._running
        candidate, self._executed = self._executed, None
        if candidate is None:
            raise ApplicationFailed("the engine commits a block that was not executed")
        started = self._seconds()
        await self._runBriefly(store.append, appendOf(candidate, b""))
        self.sync.observe(self._seconds() - started)
        machine.apply(candidate)
        if candidate.transactions:
            self._hash = candidate.header.hash
        self._noteTime(candidate.header.timestamp)
        self._committed(candidate)
        return messages.CommitResponse(retainHeight=self._retained(candidate.header.height))

    def _noteTime(self, timestamp: int) -> None:
        """
        Note the time of a block that is committed now.

        It is that of the votes for the block before, and those may be old after a start or a
        pause.
        """
        before, self._lastBlock = self._lastBlock, self._seconds()
        self._decided = self._decided + 1 if self.isDeciding else 0
        if self._decided >= TIMED_BLOCKS:
            self._timeAt = (timestamp, before)

    async def listSnapshots(
        self, request: messages.ListSnapshotsRequest
    ) -> messages.ListSnapshotsResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        if self._source is None:
            return messages.ListSnapshotsResponse()
        snapshots = await self._source.list(self.height)
        return messages.ListSnapshotsResponse(snapshots=tuple(snapshots))

    async def loadSnapshotChunk(
        self, request: messages.LoadSnapshotChunkRequest
    ) -> messages.LoadSnapshotChunkResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        if self._source is None:
            return messages.LoadSnapshotChunkResponse()
        piece = await self._source.load(request.height, request.format, request.chunk, self.height)
        return messages.LoadSnapshotChunkResponse(chunk=piece)

    async def offerSnapshot(
        self, request: messages.OfferSnapshotRequest
    ) -> messages.OfferSnapshotResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        return messages.OfferSnapshotResponse(result=await self._restorer.offer(request))

    async def applySnapshotChunk(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> messages.ApplySnapshotChunkResponse:
        """See L{AbciApplication<svcbroker.ledgers.cometbft.abci.AbciApplication>}."""
        return await self._restorer.apply(request)


def loadEngineChain(store: StoreReader) -> StoredChain:
    """
    Load the chain of a network of engines.

    @raise LedgerUnavailable: another ledger has decided its blocks.
    @raise svcbroker.storage.StorageError, ValueError: it is damaged.
    """
    chain, last = loadChain(store), store.tip()
    if last is not None:
        refuseOther(store.path.parent, "cometbft", ledgerOfCertificate(last.certificate))
    return chain


def _loaded(store: Store) -> tuple[StoredChain, bytes]:
    """Load a chain and its last application hash; the store is closed if this fails."""
    try:
        chain = loadEngineChain(store)
        return chain, _lastHash(store, chain.genesis)
    except BaseException:
        store.close()
        raise


@lru_cache(maxsize=4)
def _keysByAddress(validators: ValidatorSet) -> Mapping[bytes, bytes]:
    """The keys of a validator set by their engine's addresses."""
    return {addressOf(key): key for key in validators.keys}


def _genesisOf(request: messages.InitChainRequest) -> Genesis:
    """The chain's genesis, from the engine's."""
    if request.initialHeight > 1:
        raise ApplicationFailed("the engine's genesis must begin with height 1")
    if not request.validators or request.validators[0].power not in POWERS:
        raise ApplicationFailed(f"each validator in the engine's genesis must have power {POWER}")
    keys = []
    for update in request.validators:
        if update.publicKey.ed25519 is None or update.power != request.validators[0].power:
            raise ApplicationFailed(
                "each validator in the engine's genesis must have an Ed25519 key and the same power"
            )
        keys.append(update.publicKey.ed25519)
    try:
        topics = decodeAppState(request.appState or b"{}").rule
    except BadAnswer as error:
        raise ApplicationFailed(f"the engine's genesis has an unknown app_state: {error}") from None
    genesis = Genesis(
        group=request.chainId,
        created=request.time // _NANOSECONDS,
        validators=tuple(keys),
        topics=topics,
    )
    return Genesis.decode(genesis.encoded)


def _lastHash(store: Store, genesis: Genesis) -> bytes:
    """The hash of the last header with transactions, or of genesis."""
    row = store.tip()
    last = 0 if row is None else row.height
    while last > 0:
        first = max(1, last - _SEARCH_STEP + 1)
        for head in reversed(store.blockHeads(first, last)):
            if Header.decode(head.header).transactionCount:
                return head.hash
        last = first - 1
    return genesis.header().hash
