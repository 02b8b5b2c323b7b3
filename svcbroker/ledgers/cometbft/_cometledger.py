"""
The ledger of a CometBFT network, as the broker beside one of its engines: L{CometLedger}, the
reporter of its blocks, which go to the broker in order and without gap, and the progress of a
replay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...archive import STORE_NAME, Certificates
from ...chain import (
    NONCE_WINDOW,
    Candidate,
    ChainState,
    Header,
    Transaction,
    TransactionReceipt,
    ValidatorChange,
    ValidatorSet,
)
from ...errors import BrokerError, LedgerUnavailable, ParameterInvalid
from ...interfaces import (
    ICheckedLedger,
    IExportableLedger,
    IMeasuredLedger,
    INetworkLedger,
    IProvableLedger,
    IValidatorSetLedger,
    LedgerContext,
    Submission,
)
from ...model import Execution, Health, LedgerMeasures, NodeRecord, Page, Request, Statistics
from ...net.deferreds import asDeferred
from ...storage import StorageError, lookAt
from .._storedledger import StoredLedger, refuseOther
from .._views import TransactionMaker, blockOf, eventIdsOf, receiptsOf
from ..replicated import MAX_AHEAD, Report, reportStored
from ._abciapplication import ApplicationFailed, ChainApplication, loadEngineChain
from ._batch import BatchMaker, BrokerIdentity, IdentityFiles, IdentityMissing, checkChange
from ._certifier import Certifier
from ._cometsettings import CometSettings
from ._engine import CONNECTIONS
from ._home import CONFIG
from ._networkwatch import EnginePorts, NetworkWatch, nodeCount, nodeRecords
from ._outbox import Outbox
from ._rpc import Broadcast, EngineError, Reason
from ._snapshots import RestoreFailed
from .abci import AbciFactory

SLICE: Final = 0.02
"""Seconds of reporting after which the reactor gets its turn."""


class BlockReporter:
    """
    Reports each block of an application once. A block is reported when it is committed; those that
    are in the store otherwise are read from there: the one at which the application failed, or all
    that came with a snapshot.
    """

    def __init__(
        self,
        application: ChainApplication,
        clock: IReactorTime,
        report: Report,
        failed: Callable[[Failure], object],
    ) -> None:
        """
        @param failed: called where blocks cannot be read in a later turn of the reactor.
        """
        self._application = application
        self._clock = clock
        self._report = report
        self._failed = failed
        self._reported: int | None = None
        self._next: IDelayedCall | None = None

    @property
    def isBehind(self) -> bool:
        """Whether there are blocks in the store that are still to be reported."""
        return self._next is not None

    def begin(self) -> None:
        """
        The application has opened a chain. The blocks that it has at the first time are history.

        @raise svcbroker.storage.StorageError, Malformed: a block cannot be read.
        """
        if self._reported is None:
            self._reported = self._application.height
        self.stop()
        self._catchUp(self._reported)

    def committed(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        receipts: Sequence[TransactionReceipt],
        earlier: Mapping[int, int],
    ) -> None:
        """A block was committed. For the parameters see L{Report}."""
        if self._reported == header.height - 1:
            self._reported = header.height
            self._report(header, transactions, receipts, earlier)

    def stop(self) -> None:
        """Stop reporting blocks of the store."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _catchUp(self, reported: int) -> None:
        started, store = self._clock.seconds(), self._application.store
        while store is not None and reported < self._application.height:
            assert self._application.machine is not None
            state = self._application.machine.state
            reportStored(store, state, reported + 1, self._report)
            self._reported = reported = reported + 1
            if self._clock.seconds() - started > SLICE:
                self._next = self._clock.callLater(0, self._goOn, reported)
                return

    def _goOn(self, reported: int) -> None:
        self._next = None
        try:
            self._catchUp(reported)
        except Exception:
            self._failed(Failure())


INTERVAL: Final = 5.0
"""Seconds between two log lines of one replay."""


class ReplayProgress:
    """
    The progress of a replay. Its first block is logged, one each few seconds, and its end.
    """

    _log = Logger()

    def __init__(self, seconds: Callable[[], float], findTarget: Callable[[], int]) -> None:
        """
        @param seconds: the reactor's clock.
        @param findTarget: gives a height that the engine has reached at least; 0 if unknown.
            Called once in each replay.
        """
        self._seconds = seconds
        self._findTarget = findTarget
        self._target = self._height = 0
        self._due = 0.0
        self._isRunning = False

    @property
    def reason(self) -> str:
        """The progress in words for an operator; empty while there is no replay."""
        if not self._isRunning:
            return ""
        of = f" of {self._target}" if self._target >= self._height else ""
        return f"replaying blocks: {self._height}{of}"

    def committed(self, height: int, isDeciding: bool) -> None:
        """
        A block was committed.

        @param isDeciding: whether the engine has decided it now, rather than replayed it.
        """
        if isDeciding:
            self.end()
            return
        now = self._seconds()
        if not self._isRunning:
            self._isRunning, self._target, self._due = True, self._findTarget(), now
        self._height = height
        if now >= self._due:
            self._due = now + INTERVAL
            self._log.info("{reason}", reason=self.reason)

    def end(self) -> None:
        """The engine has replayed all, if there was a replay."""
        if self._isRunning:
            self._isRunning = False
            self._log.info("replayed all blocks up to {height}", height=self._height)


T = TypeVar("T")

START_TIMEOUT = 60.0
"""Seconds that an engine may take to begin a chain, before the start fails."""

STOP_TIMEOUT = 5.0
"""Seconds that accepted transactions may take to become final after the ledger stops."""
STALL_TIMEOUT = 5.0
"""Seconds that a transaction may wait before the ledger reports that it makes no progress."""
FIRST_RECOVERY = 1.0
LAST_RECOVERY = 30.0
"""Seconds before the application is opened again after a failure: the first time, and at most."""


@implementer(
    ICheckedLedger,
    INetworkLedger,
    IProvableLedger,
    IExportableLedger,
    IValidatorSetLedger,
    IMeasuredLedger,
)
class CometLedger(StoredLedger):
    """
    A group's log, decided by the engines of a network; this broker runs beside one of them.

    The ledger contains that engine's application: blocks are stored on this disk when they are
    committed, and only then are their receipts delivered. Transactions go to this broker's
    engine, which gossips them, so they reach every proposer.
    """

    takesRequests = True

    _log = Logger()

    def __init__(
        self,
        context: LedgerContext,
        settings: CometSettings,
        parts: EnginePorts | None = None,
    ) -> None:
        """
        @param parts: the parts that touch the network and other processes; tests have their own.
        """
        super().__init__(context)
        self._context = context
        self._settings = settings
        self._ports = EnginePorts.real(context, settings) if parts is None else parts
        self._outbox = Outbox(
            clock=context.reactor,
            broadcast=self._broadcast,
            maxBytes=settings.mempool,
            interval=settings.interval,
            areUsed=self._areUsed,
            renumber=self._renumber,
        )
        self._application = ChainApplication(
            context.directory,
            context.runInThread,
            context.runBriefly,
            self._begun,
            self._committed,
            settings.snapshots,
            self._outbox.propose,
            context.reactor.seconds,
            context.now,
            settings.format3,
            settings.format4,
            lambda height: self._certifier.retained(height, settings.keep),
        )
        self._certifier = Certifier(self._ports.rpc, context.reactor, context.runInThread)
        self._reporter = BlockReporter(self._application, context.reactor, self._tell, self._failed)
        self._watch = NetworkWatch(self._ports, context.reactor, context.now)
        self._replay = ReplayProgress(context.reactor.seconds, self._ports.signedHeight)
        self._maker: TransactionMaker | None = None
        self._identity: BrokerIdentity | None = None
        self._reason = "the chain has not begun"
        self._error = self._lastError = ""
        self._recoveries = 0
        self._beginning: list[Deferred[None]] = []
        self._server: AbciFactory | None = None
        self._call: IDelayedCall | None = None
        self._draining: Deferred[None] | None = None
        self._isStopping = False
        self._isStopped = False

    # Start, and start again.

    def check(self) -> None:
        """See L{ICheckedLedger<svcbroker.interfaces.ICheckedLedger>}."""
        directory = self._context.directory
        self._checkPlaces()
        path = directory / STORE_NAME
        if path.exists():
            try:
                with lookAt(path, mayLose=True) as store:
                    loadEngineChain(store)
            except (StorageError, ValueError) as error:
                raise LedgerUnavailable(f"{directory}: {error}") from error

    def _checkPlaces(self) -> None:
        """
        Check the paths in the settings, and that the directory has no other ledger's chain.

        @raise LedgerUnavailable: it cannot be used.
        """
        refuseOther(self._context.directory, "cometbft")
        home, engine, folder = (
            self._settings.home,
            self._settings.engine,
            self._settings.socket.parent,
        )
        if engine is not None:
            if not engine.is_file() or not os.access(engine, os.X_OK):
                raise LedgerUnavailable(
                    f"engine: {engine} is no program that can be run: give the path of cometbft"
                )
            if not (home / CONFIG).is_file():
                raise LedgerUnavailable(
                    f"home: {home} is no home of an engine, it has no {CONFIG}: svcbroker "
                    "engine init or join makes one (docs/cometbft)"
                )
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise LedgerUnavailable(
                f"socket: no socket can be made in {folder}: give a directory that can be written"
            )

    @asDeferred
    async def start(self) -> None:
        for line in self._settings.outdated:
            self._log.warn("group {group}: {line}", group=self._context.group, line=line)
        self._checkPlaces()
        try:
            self._context.directory.mkdir(mode=0o700, exist_ok=True)
            self._application.open()
            self._listen()
        except (StorageError, ValueError, OSError) as error:
            self._application.close()
            raise LedgerUnavailable(f"{self._context.directory}: {error}") from error
        self._ports.engine.start()
        while self._application.store is None:
            progress = self._application.progress
            begun: Deferred[None] = Deferred()
            self._beginning.append(begun)
            begun.addTimeout(START_TIMEOUT, self._context.reactor)
            try:
                await begun
            except Exception as error:
                if self._application.progress > progress:
                    # A snapshot is being received, however long that takes.
                    self._beginning.remove(begun)
                    continue
                await self._close()
                why = self._lastError or "start it, and look at what it says"
                raise LedgerUnavailable(
                    f"no engine began a chain over {self._ports.socket} within "
                    f"{START_TIMEOUT:g} seconds: {why}"
                ) from error

    def _listen(self) -> None:
        self._server = AbciFactory(
            self._application,
            clock=self._context.reactor,
            failed=self._failed,
            changed=self._connectionsChanged,
        )
        self._ports.listen(self._server)

    def _connectionsChanged(self, count: int) -> None:
        self._ports.engine.connectionsChanged(count)
        if count == CONNECTIONS:
            self._outbox.broadcastAgain()

    def _begun(self) -> None:
        """There is a chain: from the disk, from InitChain, or from a snapshot."""
        application = self._application
        assert application.store is not None and application.machine is not None
        state, genesis = application.machine.state, application.genesis
        self._openReads(genesis, state, application.store)
        self._certifier.begin(genesis, application.store)
        self._reporter.begin()
        self._watch.start()
        self._identify(state)
        self._erasing.wake()
        beginning, self._beginning = self._beginning, []
        for waiting in beginning:
            waiting.callback(None)

    def _identify(self, state: ChainState) -> None:
        """Load this broker's identity; a change of the validator set may change its sponsor."""
        try:
            files = IdentityFiles(directory=self._context.directory, home=self._settings.home)
            identity = files.load(state.chain, state.validators, self._context.entropy)
        except IdentityMissing as error:
            self._log.error("{error}", error=str(error))
            self._reason = str(error)
        else:
            self._identity = identity
            batches = BatchMaker(state.chain, identity)
            highest = state.nonces(batches.sender).highest
            self._resume(batches.sender, highest)
            # Otherwise the first nonce is the time, which no batch of before has reached.
            mayBeUsed = highest >= self._microseconds
            self._outbox.begin(batches, highest, mayBeUsed=mayBeUsed)

    def _privateKey(self) -> bytes:
        if self._identity is None:
            raise LedgerUnavailable(self._reason or "the chain has not begun")
        return self._identity.seed

    @property
    def _microseconds(self) -> int:
        return int(self._context.now() * 1_000_000)

    def _resume(self, sender: bytes, highest: int) -> None:
        if self._maker is None or self._maker.sender != sender:
            self._maker = TransactionMaker(
                self.chain, sender, self._context.now, self._context.entropy
            )
            # Batches from before this start may still be in a mempool, with nonces that the chain
            # has not seen. The time in microseconds is ahead of all of them.
            self._maker.resume(self._microseconds)
        self._maker.resume(highest)
        self._reason = ""

    def _failed(self, failure: Failure) -> None:
        """The application has failed. Open it again; the engine replays the missing blocks."""
        self._error = f"the ledger's application has failed ({failure.getErrorMessage()})"
        self._lastError = self._error
        if failure.check(ApplicationFailed, RestoreFailed, StorageError, OSError):
            self._log.error("{error}", error=self._error)
        else:
            self._log.failure("the ledger's application has failed", failure)
        self._ports.stopListening()
        if not self._isStopping:
            delay = min(LAST_RECOVERY, FIRST_RECOVERY * 2.0 ** min(self._recoveries, 10))
            self._recoveries += 1
            self._call = self._context.reactor.callLater(delay, self._recover)

    def _recover(self) -> None:
        self._call = None
        self._reopen().addErrback(self._failed)

    @asDeferred
    async def _reopen(self) -> None:
        if self._server is not None:
            await self._server.close()
        await self._certifier.stop()
        await self._stopErasing()
        self._application.close()
        if self._isStopping:
            return
        self._application.open()
        self._listen()
        self._log.info("the application of group {group} is open again", group=self.group)
        self._error = ""

    def _committed(self, candidate: Candidate) -> None:
        header, outcome = candidate.header, candidate.outcome
        self._recoveries = 0
        self._skipNonces()
        self._certifier.committed()
        if outcome.erased:
            self._erasing.wake()
        self._replay.committed(header.height, self._application.isDeciding)
        if self._application.isDeciding:
            self._watch.decided()
        self._reporter.committed(header, candidate.transactions, outcome.receipts, outcome.earlier)
        if header.nextValidators != header.validators and not self._isStopping:
            self._identify(self._state)

    def _skipNonces(self) -> None:
        """
        Go on after the nonces of this broker in the last block: of before its data was lost, or of
        another broker.
        """
        maker = self._maker
        if maker is None or not maker.resume(self._state.nonces(maker.sender).highest):
            return
        # Batches under way may have the same nonces: the engine says so before they are due.
        self._outbox.broadcastAgain()
        if self._application.isDeciding:
            self._log.warn(
                "block {height} of group {group} has transactions with this broker's key that it "
                "did not send since its start: had it sent them before, or does another broker use "
                "a copy of the key?",
                height=self._application.height,
                group=self.group,
            )

    def _tell(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        receipts: Sequence[TransactionReceipt],
        earlier: Mapping[int, int],
    ) -> None:
        ids = eventIdsOf(header.height, transactions, receipts)
        self._observers.tell(lambda: blockOf(header, transactions, ids))
        if self._outbox:
            self._outbox.committed(receiptsOf(header.height, transactions, receipts, ids, earlier))
        if self._draining is not None and self._call is not None and not self._outbox:
            # Not from within commit: its answer to the engine comes first.
            self._call.reset(0)

    # Writing.

    def _broadcast(self, data: bytes) -> Deferred[Broadcast]:
        try:
            self._checkReported()
        except EngineError as error:
            return fail(error)
        return self._ports.rpc.broadcast(data).addCallback(self._checkReported)

    def _checkReported(self, answer: Any = None) -> Any:
        """
        @return: the engine's answer.
        @raise EngineError: the batch may be in a block that was not reported yet: of a snapshot, or
            one at which the application failed.
        """
        if self._application.machine is None or self._reporter.isBehind:
            raise EngineError(Reason.UNREACHABLE, "the chain goes on from a snapshot")
        return answer

    def _areUsed(self, transactions: Sequence[Transaction]) -> bool:
        state = self._state
        return not any(state.nonces(each.sender).accepts(each.nonce) for each in transactions)

    def _renumber(self, transactions: Sequence[Transaction]) -> Sequence[Transaction]:
        assert self._maker is not None
        self._maker.resume(self._state.nonces(self._maker.sender).highest)
        return self._maker.renumber(transactions)

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        return self._send(len(requests), lambda maker: maker.makeMany(requests))

    def changeNodes(self, rotate: Sequence[int] = (), count: int | None = None) -> Deferred[Any]:
        return fail(ParameterInvalid("groupId: the ledger of this group has no nodes to change"))

    @asDeferred
    async def submitChange(self, change: ValidatorChange) -> ValidatorSet:
        self._checkOpen()
        current = self._state.validators
        if change.following != current:
            checkChange(change, self._state.chain, current)
            receipt = await self._send(1, lambda maker: [maker.makeChange(change)]).only()
            # Another broker may have submitted the same change meanwhile.
            if receipt.execution is not Execution.DONE and change.following != (
                self._state.validators
            ):
                raise LedgerUnavailable("another change of the validators came first")
        return change.following

    def _send(
        self, count: int, make: Callable[[TransactionMaker], Sequence[Transaction]]
    ) -> Submission:
        if self._isStopping:
            return Submission.refused(count, LedgerUnavailable("the ledger is stopping"))
        reason = self._reason or self._ports.engine.failure or self._watch.refusal
        if reason or self._maker is None:
            return Submission.refused(count, LedgerUnavailable(reason))
        machine = self._application.machine
        self._maker.version = 1 if machine is None else machine.newest
        self._maker.isNew = machine is not None and machine.isNew
        try:
            return self._outbox.add(make(self._maker))
        except BrokerError as error:
            return Submission.refused(count, error)

    # Proofs.

    def _prove(self, make: Callable[[Certificates], T]) -> Deferred[T]:
        return self._certifier.complete(lambda given: self._read(lambda: make(given)))

    # The end.

    @asDeferred
    async def stop(self) -> None:
        self._endRecovery()
        if self._outbox:
            self._draining = Deferred()
            self._call = self._context.reactor.callLater(STOP_TIMEOUT, self._drained)
            await self._draining
        await self._close()

    def _drained(self) -> None:
        waiting, self._draining = self._draining, None
        self._call = None
        if waiting is not None:
            waiting.callback(None)

    def _endRecovery(self) -> None:
        self._isStopping = True
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _close(self) -> None:
        self._endRecovery()
        self._watch.stop()
        self._reporter.stop()
        self._outbox.close("the ledger stopped before this was final")
        await self._ports.engine.stop()
        await self._ports.stopListening()
        if self._server is not None:
            await self._server.close()
        await self._certifier.stop()
        await self._stopErasing()
        self._isStopped = True
        self._application.close()
        await self._ports.close()

    # For operators.

    def getNodes(self) -> Deferred[ValidatorSet]:
        return self._read(lambda: self._state.validators)

    @asDeferred
    async def getStatistics(self) -> Statistics:
        try:
            count = nodeCount(await self._ports.rpc.netInfo())
        except EngineError:
            # Reading does not need the engine, and works before it has started.
            count = len((await self.getNodes()).keys)
        return await self._read(lambda: self._reader.getStatistics(count))

    def measure(self) -> LedgerMeasures:
        measures = self._outbox.measure(self._application.sync)
        return evolve(measures, height=self._application.height, age=self._watch.age)

    @asDeferred
    async def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Page[NodeRecord]:
        records = await self._asked(self._nodes())
        found = [record for record in records if name in (None, record.name)]
        return Page(total=len(found), items=found[offset : offset + limit])

    @asDeferred
    async def _nodes(self) -> Sequence[NodeRecord]:
        picture, parts = await self._watch.picture(), self._ports
        order = (await self.getNodes()).keys
        return nodeRecords(picture, self._context.now(), parts.names(), order, parts.peers())

    async def _asked(self, answer: Deferred[T]) -> T:
        try:
            return await answer
        except EngineError as error:
            raise LedgerUnavailable(f"the engine does not answer: {error}") from error

    @asDeferred
    async def getHealth(self) -> Health:
        reason = self._reasonNotReady()
        if reason:
            return Health(isReady=False, reason=reason)
        try:
            health = await self._watch.health()
        except (EngineError, CancelledError) as error:
            # It answers after it has replayed the blocks that the application lacks.
            height = self._application.height
            reason = f"the engine does not answer: {error}; the last block here is {height}"
            return Health(isReady=False, reason=self._replay.reason or reason)
        if health.isReady:
            self._replay.end()
        return health

    def _reasonNotReady(self) -> str:
        if self._isStopped:
            return "the ledger is stopped"
        if self._isStopping:
            return "the ledger is stopping"
        engine = self._ports.engine
        reason = self._error or self._reason or engine.failure or engine.reason
        if reason:
            return reason
        reason = self._clockFault()
        oldest = self._outbox.oldest
        if reason or oldest is None:
            return reason
        if self._context.reactor.seconds() - oldest > STALL_TIMEOUT:
            reason = f"transactions have waited for more than {STALL_TIMEOUT:g} seconds"
            return reason + self._clockDoubt()
        return ""

    def _clockFault(self) -> str:
        """
        The reason for which the network refuses this broker's transactions, where it is a clock.
        """
        maker, machine = self._maker, self._application.machine
        if maker is None or machine is None:
            return ""
        ahead = maker.nonce - self._application.time * 1000
        near = machine.state.nonces(maker.sender).highest + NONCE_WINDOW
        if ahead <= MAX_AHEAD or maker.nonce <= near:
            return ""
        return (
            f"this machine's clock was {ahead / 86_400_000_000:.1f} days ahead of the network's "
            "time when the broker started, so the network refuses what it publishes: set the "
            "clock, and restart the broker"
        )

    def _clockDoubt(self) -> str:
        """A doubt about the clock, while the network's time is not known."""
        if self._application.knowsTime or self._application.machine is None:
            return ""
        age = self._context.now() - self._application.machine.head.timestamp / 1000
        if age * 1_000_000 <= MAX_AHEAD:
            return ""
        return (
            f"; by this machine's clock the last block is {age / 86400:.1f} days old: is the "
            "clock right?"
        )

    def _checkOpen(self) -> None:
        if self._isStopped:
            raise LedgerUnavailable("the ledger is stopped")
        if self._application.store is None:
            raise LedgerUnavailable(self._error or "the chain has not begun")
