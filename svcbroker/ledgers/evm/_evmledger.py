"""
The ledger of a group whose batches a contract on an EVM chain keeps in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import evolve, frozen
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...archive import STORE_NAME, StoredChain, appendOf, loadChain
from ...chain import Genesis, Header, Malformed, Transaction, TransactionReceipt
from ...errors import BrokerError, LedgerUnavailable
from ...histogram import Histogram
from ...interfaces import (
    ICheckedLedger,
    IExportableLedger,
    IMeasuredLedger,
    INetworkLedger,
    IProvableLedger,
    LedgerContext,
    Submission,
)
from ...model import (
    ChainMeasures,
    EventId,
    Health,
    LedgerMeasures,
    NodeRecord,
    NodeType,
    Page,
    Request,
    Statistics,
)
from ...net.deferreds import asDeferred
from ...proofs import EventProof, EvmPlace, TopicProof, ledgerOfCertificate
from ...storage import StorageError, Store, StoreReader, lookAt
from .._jsonrpc import RpcCall
from .._storedledger import SYNC_BOUNDS, StoredLedger, refuseOther
from .._views import TransactionMaker, blockOf, eventIdsOf, receiptsOf
from ..replicated import PendingTransactions, reportStored
from ._contract import LogState, attestCall, attestedCall, bornCall, readPair
from ._ethereum import EvmAccount, KeyUnusable, showAddress
from ._evmbatch import (
    NEWEST,
    BatchBlock,
    BatchSource,
    LogIncomplete,
    Reorganized,
    SourcePlace,
    executeBlock,
    genesisOf,
    senderOf,
)
from ._evmrpc import (
    DIALECTS,
    EvmError,
    EvmRpc,
    SyncProgress,
    blockCall,
    connectChain,
    contractCall,
    syncingCall,
    undata,
    unquantity,
)
from ._evmsettings import EvmSettings
from ._sender import Journal, Sender

BUSY: Final = 0.1
"""Seconds between two looks at the chain while transactions wait for it."""

IDLE: Final = 0.5
"""Seconds between two looks at the chain while none do."""

RETRY: Final = 1.0
"""Seconds before the chain or the disk is tried again after a failure."""

START_TIMEOUT: Final = 60.0
"""Seconds that a chain may take to tell of its contract, before the first start fails."""

STOP_TIMEOUT: Final = 10.0
"""Seconds that accepted transactions may take to become final after the ledger stops."""

COMPARED: Final = 5.0
"""Seconds between two looks at what the brokers have attested."""

SURVEYED: Final = 60.0
"""Seconds between two looks at who the chain's validators are, and at the account's money."""

BEHIND: Final = 10.0
"""Seconds that reading what is final may take before the ledger tells that it is behind."""

STILL: Final = 30.0
"""Seconds without a new block after which a node is left for the next endpoint."""

STALL_TIMEOUT: Final = 60.0
"""Seconds that a transaction may wait before the ledger reports that it makes no progress."""


@implementer(ICheckedLedger, INetworkLedger, IProvableLedger, IExportableLedger, IMeasuredLedger)
class EvmLedger(StoredLedger):
    """
    A group's log, whose batches are in order on a chain that others run.

    What is final there is executed and stored here, and only then are receipts delivered.
    """

    takesRequests = True

    _log = Logger()

    def __init__(
        self,
        context: LedgerContext,
        settings: EvmSettings,
        connect: Callable[..., EvmRpc] = connectChain,
    ) -> None:
        """
        @param connect: makes the client of the chain's nodes; tests pass their own.
        """
        super().__init__(context)
        self._context = context
        self._settings = settings
        self._rpc = connect(
            context.reactor,
            settings.endpoint,
            DIALECTS[settings.dialect],
            settings.chainId,
            settings.contract,
        )
        self._pending = PendingTransactions(context.reactor.seconds, settings.mempool)
        self._sync = Histogram(SYNC_BOUNDS)
        self._store: Store | None = None
        self._head: Header | None = None
        self._told = 0
        self._comparedAt = -COMPARED
        self._surveyedAt = -SURVEYED
        self._validators = EvmValidators(self._rpc)
        self._source: BatchSource | None = None
        self._sender: Sender | None = None
        self._account: EvmAccount | None = None
        self._maker: TransactionMaker | None = None
        self._fault = "the chain was not asked yet"
        self._stopped = ""
        self._isStopping = False
        self._readingSince: float | None = None
        self._looked = context.reactor.seconds()
        self._newest = -1
        self._newestAt = self._triedAt = self._looked
        self._syncing = ""
        self._call: IDelayedCall | None = None
        self._looking: Deferred[Any] | None = None
        self._draining: Deferred[None] | None = None

    # Start.

    @asDeferred
    async def start(self) -> None:
        directory = self._context.directory
        try:
            refuseOther(directory, "evm")
            self._account = await self._context.runInThread(
                EvmAccount.load, self._settings.key, self._settings.password
            )
            directory.mkdir(mode=0o700, exist_ok=True)
            if (directory / STORE_NAME).exists():
                self._open(Store.open(directory / STORE_NAME, mayLose=True))
            else:
                await self._create()
        except BrokerError:
            await self._close()
            raise
        except (KeyUnusable, StorageError, EvmError, ValueError, OSError) as error:
            await self._close()
            raise LedgerUnavailable(f"group {self.group}: {error}") from error
        # A chain that does not answer keeps nobody from reading, nor does one that is long.
        begun: Deferred[None] = Deferred()
        call = self._context.reactor.callLater(BEHIND, begun.callback, None)

        def looked(_: object) -> None:
            if call.active():
                call.cancel()
                begun.callback(None)

        self._look().addCallback(looked)
        await begun

    def check(self) -> None:
        """See L{ICheckedLedger<svcbroker.interfaces.ICheckedLedger>}."""
        directory = self._context.directory
        refuseOther(directory, "evm")
        try:
            EvmAccount.load(self._settings.key, self._settings.password)
            if (directory / STORE_NAME).exists():
                with lookAt(directory / STORE_NAME, mayLose=True) as store:
                    self._load(store)
        except (KeyUnusable, StorageError, ValueError, OSError) as error:
            raise LedgerUnavailable(f"group {self.group}: {error}") from error

    async def _create(self) -> None:
        """Make the store of a chain that begins with the contract."""
        deadline = self._context.reactor.seconds() + START_TIMEOUT
        while True:
            try:
                genesis = (await self._born())[0]
                break
            except EvmError:
                if self._context.reactor.seconds() + RETRY > deadline:
                    raise
            await deferLater(self._context.reactor, RETRY)
        path = self._context.directory / STORE_NAME
        self._open(Store.create(path, chainId=genesis.chain, genesis=genesis.encoded))

    def _genesisAt(self, born: int) -> Genesis:
        settings = self._settings
        return genesisOf(self.group, settings.chainId, settings.contract, born, settings.topics)

    async def _born(self) -> tuple[Genesis, SourcePlace]:
        """The genesis, and the place before the first batch."""
        settings = self._settings
        answer = await self._rpc.ask(contractCall(settings.contract, bornCall()))
        number, time = readPair(answer)
        block = await self._rpc.ask(blockCall(number))
        genesis = self._genesisAt(time * 1000)
        return genesis, SourcePlace(number=number, hash=block.id, log=LogState())

    def _open(self, store: Store) -> None:
        try:
            chain = self._load(store)
        except BaseException:
            store.close()
            raise
        self._store = store
        self._goOn(chain)

    def _load(self, store: StoreReader) -> StoredChain:
        """
        Load the chain of a store.

        @raise LedgerUnavailable: it is not that of the group in the contract.
        @raise StorageError, ValueError: it is damaged.
        """
        chain, last = loadChain(store), store.tip()
        directory, settings = self._context.directory, self._settings
        if last is not None:
            refuseOther(directory, "evm", ledgerOfCertificate(last.certificate))
        created = chain.genesis.created
        wanted = self._genesisAt(created)
        if chain.genesis.encoded != wanted.encoded:
            raise LedgerUnavailable(
                f"{directory} has another chain than that of group {self.group} in contract "
                f"{showAddress(settings.contract)} on chain {settings.chainId} with "
                f"topics={settings.topics.value}"
            )
        return chain

    def _goOn(self, chain: StoredChain) -> None:
        """Go on after the last block of the store."""
        assert self._store is not None and self._account is not None
        self._head = chain.head
        self._source = None
        self._openReads(chain.genesis, chain.state, self._store)
        self._erasing.wake()
        if self._sender is not None:
            self._tellStored()
            return
        self._told = chain.head.height
        sender = senderOf(self.chain, self._account.address)
        self._maker = TransactionMaker(self.chain, sender, self._context.now, self._context.entropy)
        # Batches from before this start may still be on their way, with nonces that the chain has
        # not seen. The time in microseconds is ahead of all of them.
        self._maker.resume(int(self._context.now() * 1_000_000))
        self._maker.resume(self._state.nonces(sender).highest)
        self._sender = Sender(
            clock=self._context.reactor,
            rpc=self._rpc,
            account=self._account,
            chainId=self._settings.chainId,
            contract=self._settings.contract,
            journal=Journal(self._context.directory, self._runInThread),
            pending=self._pending,
            window=self._settings.window,
            gasPrice=self._settings.gasPrice,
            interval=self._settings.interval,
        )
        self._attestations = Attestations(
            self._rpc, self._settings.contract, self._settings.attest, self._sender.call
        )
        store = self._store
        self._attestations.begin(chain.head.height, lambda height: store.blockHashes(height, 1)[0])
        self._sender.open(self.chain)

    # Reading what the chain has ordered.

    def _look(self) -> Deferred[None]:
        self._call = None
        self._looking = self._follow()
        return self._looking.addErrback(self._failed).addCallback(self._lookAgain)

    def _lookAgain(self, delay: float) -> None:
        self._looking = None
        if self._draining is not None and not self._pending:
            self._drained()
        elif not self._stopped:
            self._call = self._context.reactor.callLater(delay, self._look)

    def _failed(self, failure: Failure) -> float:
        error = failure.value
        self._readingSince = None
        if isinstance(error, CancelledError) and self._stopped:
            return RETRY
        fault = str(error)
        if not isinstance(
            error, EvmError | LogIncomplete | Reorganized | StorageError | OSError | BrokerError
        ):
            self._log.failure("the chain of group {group}", failure, group=self.group)
        elif fault != self._fault:
            self._log.error("group {group}: {fault}", group=self.group, fault=fault)
        self._fault = fault
        if isinstance(error, LogIncomplete | Malformed):
            # Another node may be whole.
            self._rpc.leave()
        if isinstance(error, StorageError) and self._store is not None:
            # What is on the disk is not known: it is loaded again.
            self._store.close()
            self._store = None
        return RETRY

    @asDeferred
    async def _follow(self) -> float:
        """
        Execute what is final and was not executed yet.

        @return: the seconds until the next look.
        """
        if self._store is None:
            self._open(Store.open(self._context.directory / STORE_NAME, mayLose=True))
        source = await self._sourceOf()
        async for block in source.read():
            if self._readingSince is None:
                self._readingSince = self._context.reactor.seconds()
            await self._execute(source, block)
            await self._turn()
        self._readingSince = None
        self._looked = self._context.reactor.seconds()
        self._noteNewest(source.final)
        if self._fault:
            self._fault = ""
            self._log.info("group {group} is up to date with its chain", group=self.group)
        assert self._sender is not None
        await self._sender.settled(source.place.number)
        if self._looked >= self._comparedAt + COMPARED:
            self._comparedAt = self._looked
            await self._attestations.compare()
            await self._lookAtSync()
        if self._looked >= self._surveyedAt + SURVEYED:
            self._surveyedAt = self._looked
            await self._validators.look(source.final)
            await self._sender.lookAtBalance()
        return BUSY if self._pending or self._sender.underWay else IDLE

    def _noteNewest(self, final: int) -> None:
        """
        Note the last final block. A node that stands still cannot be told from a chain that does:
        after a while without a new block the next endpoint is asked.
        """
        now = self._looked
        if final > self._newest:
            self._newest, self._newestAt, self._triedAt = final, now, now
        elif now - self._triedAt > STILL and len(self._settings.endpoint) > 1:
            self._triedAt = now
            self._rpc.leave()

    async def _lookAtSync(self) -> None:
        """Ask whether the node says that it is behind its chain."""
        [found] = await self._rpc.tryAll([syncingCall()])
        self._syncing = ""
        if isinstance(found, SyncProgress):
            current, highest = unquantity(found.currentBlock), unquantity(found.highestBlock)
            if current < highest:
                self._syncing = (
                    f"the node {self._rpc.url} is catching up with its chain: it has block "
                    f"{current} of {highest}"
                )

    async def _sourceOf(self) -> BatchSource:
        if self._source is None:
            assert self._store is not None
            row = self._store.tip()
            if row is None:
                place = (await self._born())[1]
            else:
                found = EvmPlace.decode(row.certificate)
                log = LogState(found.count, found.head)
                place = SourcePlace(number=found.number, hash=found.hash, log=log)
            settings = self._settings
            self._source = BatchSource(
                self._rpc,
                settings.contract,
                settings.finality,
                place,
                DIALECTS[settings.dialect].blocks,
                self._turn,
            )
        return self._source

    def _turn(self) -> Deferred[None]:
        """
        A later turn of the reactor: the next one where publishes of this broker wait for what is
        read, and else one that has time for reads.
        """
        if self._pending:
            return deferLater(self._context.reactor, 0)
        return self._context.turn()

    async def _execute(self, source: BatchSource, block: BatchBlock) -> None:
        assert self._store is not None and self._head is not None
        execution = await executeBlock(self._state, self._head, source.place.log, block, self._turn)
        candidate, outcome = execution.candidate, execution.candidate.outcome
        started = self._context.reactor.seconds()
        await self._context.runBriefly(
            self._store.append, appendOf(candidate, execution.place.encode())
        )
        self._sync.observe(self._context.reactor.seconds() - started)
        self._attestations.executed(candidate.header, self._head.timestamp, source.behind)
        self._state.apply(outcome, candidate.history)
        self._head = candidate.header
        source.place = SourcePlace(number=block.number, hash=block.hash, log=execution.state)
        for batch, why in execution.refused:
            self._log.warn(
                "batch {number} of account {account} was not executed: {why}",
                number=batch.number,
                account=showAddress(batch.sender),
                why=why,
            )
        if outcome.erased:
            self._erasing.wake()
        self._tell(candidate.header, candidate.transactions, outcome.receipts, outcome.earlier)

    def _tellStored(self) -> None:
        """Tell of the blocks that were stored though storing them seemed to fail."""
        assert self._store is not None and self._head is not None
        for height in range(self._told + 1, self._head.height + 1):
            reportStored(self._store, self._state, height, self._tell)

    def _tell(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        receipts: Sequence[TransactionReceipt],
        earlier: Mapping[int, int],
    ) -> None:
        self._told = header.height
        if self._maker is not None:
            # Of a broker with a copy of the key, or of before its data was lost.
            self._maker.resume(self._state.nonces(self._maker.sender).highest)
        ids = eventIdsOf(header.height, transactions, receipts)
        self._observers.tell(lambda: blockOf(header, transactions, ids))
        if self._pending:
            self._pending.settle(receiptsOf(header.height, transactions, receipts, ids, earlier))

    # Writing.

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        if self._isStopping:
            return Submission.refused(len(requests), LedgerUnavailable("the ledger is stopping"))
        reason = self._stopped or (self._sender.reason if self._sender else "it has not started")
        if reason or self._maker is None or self._head is None or self._sender is None:
            return Submission.refused(len(requests), LedgerUnavailable(reason))
        self._maker.version = NEWEST
        self._maker.isNew = not self._head.transactionTotal
        try:
            submission = self._pending.add(self._maker.makeMany(requests))
        except BrokerError as error:
            return Submission.refused(len(requests), error)
        self._sender.submitted()
        return submission

    # Proofs: no signatures of ours make a block final, so they lead to an attested one.

    def prove(
        self, eventId: EventId, checkpoint: int | None, *, trusted: int | None = None
    ) -> Deferred[EventProof]:
        if trusted is None:
            agreed = self._attestations.agreed if self._sender is not None else 0
            trusted = checkpoint or max(eventId.height, agreed)
        return super().prove(eventId, None, trusted=trusted)

    def proveTopic(self, name: str) -> Deferred[TopicProof]:
        return fail(
            LedgerUnavailable(
                "a topic's events are proved by validators' signatures, which the blocks of this "
                "ledger do not have: prove each event to an attested block"
            )
        )

    def _privateKey(self) -> bytes:
        if self._account is None:
            raise LedgerUnavailable("the ledger has not started")
        return self._account.secret

    # The end.

    @asDeferred
    async def stop(self) -> None:
        self._isStopping = True
        if self._pending and not self._stopped:
            self._draining = Deferred()
            call = self._context.reactor.callLater(STOP_TIMEOUT, self._drained)
            await self._draining
            if call.active():
                call.cancel()
        await self._close()

    def _drained(self) -> None:
        waiting, self._draining = self._draining, None
        if waiting is not None:
            waiting.callback(None)

    async def _close(self) -> None:
        # Whoever stops it may have been called by what is cancelled here.
        await deferLater(self._context.reactor, 0)
        self._stopped = "the ledger is stopped"
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if self._looking is not None:
            self._looking.cancel()
        if self._sender is not None:
            self._sender.close("the ledger stopped before this was final")
        await self._stopErasing()
        if self._store is not None:
            self._store.close()
            self._store = None
        await self._rpc.close()

    # For operators.

    @asDeferred
    async def getStatistics(self) -> Statistics:
        count = len(self._settings.endpoint)
        return await self._read(lambda: self._reader.getStatistics(count))

    def measure(self) -> LedgerMeasures:
        return evolve(
            self._pending.measure(self._sync),
            height=0 if self._head is None else self._head.height,
            age=self._context.reactor.seconds() - self._looked,
            chain=self._measureChain(),
        )

    def _measureChain(self) -> ChainMeasures | None:
        source, sender = self._source, self._sender
        if source is None or sender is None:
            return None
        return ChainMeasures(
            height=source.final,
            behind=source.behind,
            underWay=sender.underWay,
            balance=sender.balance,
            gasPrice=sender.gasPrice,
            attested=self._attestations.agreed,
        )

    @asDeferred
    async def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Page[NodeRecord]:
        self._checkOpen()
        height = 0 if self._head is None else self._head.height
        # Each proposes a block in its turn.
        records = [
            NodeRecord(
                nodeId=each.address,
                name=showAddress(each.address),
                view=0,
                nodeType=NodeType.SEALER,
                height=each.proposed,
                isActive=each.proposed > 0,
            )
            for each in self._validators.known
        ] or [
            NodeRecord(
                nodeId=url.encode("ascii"),
                name=url,
                view=0,
                nodeType=NodeType.SEALER,
                height=height if url == self._rpc.url else 0,
                # Those that are not asked now are for the case that this one fails.
                isActive=not (url == self._rpc.url and self._fault),
            )
            for url in self._settings.endpoint
        ]
        found = [record for record in records if name in (None, record.name)]
        return Page(total=len(found), items=found[offset : offset + limit])

    @asDeferred
    async def getHealth(self) -> Health:
        reason = self._reasonNotReady()
        return Health(isReady=not reason, reason=reason)

    def _reasonNotReady(self) -> str:
        reason = self._stopped or ("the ledger is stopping" if self._isStopping else "")
        if reason:
            return reason
        now = self._context.reactor.seconds()
        if self._readingSince is not None and now - self._readingSince > BEHIND:
            assert self._source is not None
            return f"{self._source.behind} blocks of the chain are still to be read"
        if self._fault:
            return self._fault
        if self._sender is not None and self._sender.reason:
            return self._sender.reason
        if self._sender is not None and self._attestations.fault:
            return self._attestations.fault
        oldest = self._pending.oldest
        if self._syncing or oldest is None or now - oldest <= STALL_TIMEOUT:
            return self._syncing
        reason = f"transactions have waited for more than {STALL_TIMEOUT:g} seconds"
        if now - self._newestAt > STILL:
            reason += (
                f", and no block has come for {now - self._newestAt:.0f}: the node "
                f"{self._rpc.url} stands still, or its chain does"
            )
        return reason

    def _checkOpen(self) -> None:
        if self._stopped:
            raise LedgerUnavailable(self._stopped)
        if self._store is None:
            raise LedgerUnavailable(self._fault or "the ledger has not started")


HOUR: Final = 3600 * 1000
"""Milliseconds after which a block is attested, however few there were."""

RECENT: Final = 1000
"""The most blocks of the chain that a block of ours may be behind to be attested by this broker."""

_MAX_WAITING: Final = 16
_PROBED: Final = 3


class Attestations:
    """
    The attestations of one broker: the hashes of our blocks that brokers put into the contract, so
    that brokers whose executions differ find out, and verifiers need no broker's word.

    @ivar agreed: the height of the newest block whose hash more than two thirds of the accounts
        have attested as it is here; 0 where none is known.
    @ivar fault: why the chain here is not that of the others; empty where it is, so far as is
        known.
    """

    _log = Logger()

    def __init__(
        self, rpc: EvmRpc, contract: bytes, interval: int, call: Callable[[bytes], object]
    ) -> None:
        """
        @param interval: the blocks between two attestations; 0 for none. All brokers of a contract
            have the same, so that they attest the same blocks.
        @param call: calls the contract.
        """
        self._rpc = rpc
        self._contract = contract
        self._interval = interval
        self._call = call
        self._waiting: dict[int, bytes] = {}
        self.agreed = 0
        self.fault = ""

    def begin(self, height: int, hashOf: Callable[[int], bytes]) -> None:
        """
        Look for attestations of before the start.

        @param height: that of the last block.
        @param hashOf: gives the hash of a block.
        """
        if self._interval:
            last = height - height % self._interval
            for each in range(last, max(0, last - _PROBED * self._interval), -self._interval):
                self._waiting[each] = hashOf(each)

    def executed(self, header: Header, before: int, behind: int) -> None:
        """
        Attest a block, where that is due. All brokers attest the same ones.

        @param before: the time of the block before it, in milliseconds since the epoch.
        @param behind: how many blocks of the chain were not read yet.
        """
        isDue = self._interval and (
            not header.height % self._interval or header.timestamp // HOUR != before // HOUR
        )
        if not isDue or behind > RECENT:
            return
        self._call(attestCall(header.height, header.hash))
        self._waiting[header.height] = header.hash
        while len(self._waiting) > _MAX_WAITING:
            del self._waiting[min(self._waiting)]

    @asDeferred
    async def compare(self) -> None:
        """
        Compare the hashes here with those that the brokers have attested.

        @raise EvmError: the chain does not answer.
        """
        heights = sorted(self._waiting)
        if not heights:
            return
        calls = [contractCall(self._contract, attestedCall(height)) for height in heights]
        for height, found in zip(heights, await self._rpc.askAll(calls), strict=True):
            if found == self._waiting.get(height):
                self.agreed = max(self.agreed, height)
                del self._waiting[height]
            elif any(found):
                self.fault = (
                    f"block {height} has hash {self._waiting[height].hex()} here, and the brokers "
                    f"of this chain have attested {found.hex()}: audit this group"
                )
                self._log.error("{fault}", fault=self.fault)
                del self._waiting[height]


METHODS: Final = (
    "qbft_getValidatorsByBlockNumber",
    "ibft_getValidatorsByBlockNumber",
    "istanbul_getValidators",
)
"""The calls by which kinds of nodes tell the validators."""

MAX_VALIDATORS: Final = 128
"""The most validators that are shown."""

MAX_LOOKED: Final = 64
"""The most blocks whose proposers are looked at."""

_addresses = msgspec.json.Decoder(list[str]).decode


class _Proposed(Struct, frozen=True):
    """A block, and who has proposed it."""

    number: str
    miner: str


_proposed = msgspec.json.Decoder(_Proposed | None).decode


def _readAddresses(data: bytes) -> Sequence[bytes]:
    return [undata(each, 20) for each in _addresses(data)[:MAX_VALIDATORS]]


@frozen(kw_only=True)
class EvmValidator:
    """
    A validator.

    @ivar proposed: the number of the newest block that it has proposed, of those looked at; 0 for
        none.
    """

    address: bytes
    proposed: int


class EvmValidators:
    """
    The validators of a chain, where its nodes tell them: QBFT and IBFT of Besu and of GoQuorum.

    @ivar known: all of them; empty where the nodes tell none.
    """

    def __init__(self, rpc: EvmRpc) -> None:
        self._rpc = rpc
        self._generation = -1
        self._method = ""
        self.known: Sequence[EvmValidator] = ()

    @asDeferred
    async def look(self, newest: int) -> None:
        """
        Ask who they are, and who has proposed the last blocks.

        @param newest: the number of the last block.
        @raise EvmError: the chain does not answer.
        """
        methods = METHODS if self._generation != self._rpc.generation else [self._method]
        calls = [RpcCall(each, ("latest",), _readAddresses) for each in methods if each]
        generation = self._rpc.generation
        answers = await self._rpc.tryAll(calls)
        told = [
            (call.method, found)
            for call, found in zip(calls, answers, strict=True)
            if not isinstance(found, EvmError) and found
        ]
        self._generation, self._method = generation, told[0][0] if told else ""
        if not told:
            self.known = ()
            return
        addresses = told[0][1]
        first = max(1, newest + 1 - min(MAX_LOOKED, 2 * len(addresses)))
        blocks: list[RpcCall[Any]] = [
            RpcCall("eth_getBlockByNumber", (hex(number), False), _proposed)
            for number in range(first, newest + 1)
        ]
        proposed: dict[bytes, int] = {}
        for block in await self._rpc.tryAll(blocks):
            if isinstance(block, _Proposed):
                proposed[undata(block.miner, 20)] = unquantity(block.number)
        self.known = [
            EvmValidator(address=each, proposed=proposed.get(each, 0)) for each in addresses
        ]
