"""
The embedded ledger as the broker sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...chain import Header, Malformed, quorum
from ...errors import BrokerError, LedgerUnavailable
from ...interfaces import IBlockObserver, ILedger, LedgerContext
from ...model import (
    Block,
    BlockRecord,
    Event,
    EventId,
    Health,
    NodeRecord,
    NodeType,
    Page,
    Receipt,
    Request,
    Statistics,
    Topic,
    TransactionRecord,
)
from ...storage import StorageError
from .._observers import Observers
from .._reader import ChainReader
from .._views import TransactionMaker
from ._application import BlockApplication
from ._keys import Signer
from ._nodeset import NodeSet
from ._opening import openChain
from ._pool import TransactionPool
from ._ports import Application, Timing
from ._producer import BlockProducer, Stage
from ._replica import Replica
from ._rounds import Rules
from ._settings import PbftSettings

T = TypeVar("T")

PATIENCE = 5.0
"""
Seconds that a transaction may wait, on top of the interval, before the ledger is said not to
make progress.
"""


@implementer(ILedger)
class PbftLedger:
    """
    A group's log, decided by a set of PBFT replicas in this process and stored on this disk.

    @ivar nodes: the replicas, from L{start} on; tests and operators stop and start them and
        change their network's conditions.
    """

    _log = Logger()

    nodes: NodeSet

    def __init__(
        self,
        context: LedgerContext,
        settings: PbftSettings | None = None,
        makeReplica: Callable[[Signer, Rules, Application, Timing, Header], Replica] = Replica,
    ) -> None:
        """
        @param makeReplica: makes a replica; a test may make worse ones.
        """
        self.group = context.group
        self._context = context
        self._settings = PbftSettings() if settings is None else settings
        self._makeReplica = makeReplica
        self._observers = Observers()

    def start(self) -> Deferred[None]:
        try:
            self._start()
        except LedgerUnavailable as error:
            return fail(error)
        return succeed(None)

    def _start(self) -> None:
        context, settings = self._context, self._settings
        chain = openChain(
            context.directory, self.group, settings.nodes, context.now, context.entropy
        )
        genesis = chain.genesis
        self._validators = genesis.validators
        self._state = chain.state
        self._pool = TransactionPool(settings.mempool)
        application = BlockApplication(
            genesis=genesis,
            state=chain.state,
            store=chain.store,
            pool=self._pool,
            now=context.now,
            head=chain.head,
            maxBytes=settings.block,
            takesEmpty=settings.empty is not None,
        )
        self._producer = BlockProducer(
            reactor=context.reactor,
            runInThread=context.runInThread,
            state=chain.state,
            store=chain.store,
            pool=self._pool,
            application=application,
            observers=self._observers,
            interval=settings.interval,
            empty=settings.empty,
        )
        self.nodes = NodeSet(
            context.reactor,
            Random(settings.seed),
            Rules(chain=genesis.chain, verifier=chain.verifier),
            [
                Signer(index, seed, genesis.chain, chain.verifier)
                for index, seed in enumerate(chain.seeds)
            ],
            application,
            Timing.forNetwork(settings.interval + settings.timeout, settings.conditions.delay[1]),
            self._producer.decided,
            settings.conditions,
            self._makeReplica,
        )
        self._reader = ChainReader(chain.state, chain.store, self._breathe)
        self._maker = TransactionMaker(genesis.chain, context.now)
        self._maker.resume(chain.state.account(self._maker.sender).highest)
        try:
            self._producer.start(self.nodes)
        except StorageError as error:
            chain.store.close()
            raise LedgerUnavailable(str(error)) from error

    def stop(self) -> Deferred[None]:
        return self._producer.stop()

    def submit(self, request: Request) -> Deferred[Receipt]:
        try:
            return self._producer.submit(self._maker.make(request))
        except BrokerError as error:
            return fail(error)

    def getTopic(self, name: str) -> Deferred[Topic | None]:
        return succeed(self._state.topic(name))

    def listTopics(self, offset: int, limit: int) -> Deferred[Page[Topic]]:
        return self._read(lambda: self._reader.listTopics(offset, limit))

    def getEvent(self, eventId: EventId) -> Deferred[Event]:
        return self._read(lambda: self._reader.getEvent(eventId))

    def readBlock(self, height: int) -> Deferred[Block]:
        return self._read(lambda: self._reader.readBlock(height))

    def findBlocks(self, topics: Sequence[str], first: int, limit: int) -> Deferred[Sequence[int]]:
        return self._read(lambda: self._reader.findBlocks(topics, first, limit))

    def countEvents(self, filters: Sequence[str], first: int) -> Deferred[int]:
        return self._search(lambda: self._reader.countEvents(filters, first))

    def addObserver(self, observer: IBlockObserver) -> None:
        self._observers.add(observer)

    def removeObserver(self, observer: IBlockObserver) -> None:
        self._observers.remove(observer)

    def getStatistics(self) -> Deferred[Statistics]:
        return self._read(lambda: self._reader.getStatistics(len(self._validators)))

    def listBlocks(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[BlockRecord]]:
        return self._read(lambda: self._reader.listBlocks(offset, limit, height, hash))

    def listTransactions(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[TransactionRecord]]:
        return self._search(lambda: self._reader.listTransactions(offset, limit, height, hash))

    def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Deferred[Page[NodeRecord]]:
        running = set(self.nodes.running)
        nodes = [
            NodeRecord(
                nodeId=self._validators[replica.index],
                name=None,
                view=replica.view,
                nodeType=NodeType.SEALER,
                height=replica.head.height,
                isActive=replica.index in running,
            )
            for replica in self.nodes.replicas
            if name is None
        ]
        return succeed(Page(total=len(nodes), items=nodes[offset : offset + limit]))

    def getHealth(self) -> Deferred[Health]:
        reason = self._whatIsWrong()
        return succeed(Health(isReady=not reason, reason=reason))

    def _whatIsWrong(self) -> str:
        if self._producer.stage is Stage.STOPPED:
            return "the ledger is stopped"
        if self._producer.isStopping:
            return "the ledger is stopping"
        if self._producer.trouble:
            return self._producer.trouble
        running, needed = len(self.nodes.running), quorum(len(self._validators))
        if running < needed:
            return f"{running} of {len(self._validators)} nodes run, {needed} are needed"
        oldest = self._pool.oldest
        patience = PATIENCE + self._settings.interval
        if oldest is not None and self._context.reactor.seconds() - oldest > patience:
            return f"transactions have waited for more than {patience:g} seconds"
        return ""

    def _read(self, read: Callable[[], T]) -> Deferred[T]:
        try:
            self._checkOpen()
            return succeed(read())
        except BrokerError as error:
            return fail(error)
        except (StorageError, Malformed):
            return fail(self._unreadable())

    def _search(self, search: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> Deferred[T]:
        async def searched() -> T:
            try:
                self._checkOpen()
                return await search()
            except (StorageError, Malformed):
                raise self._unreadable() from None

        return Deferred.fromCoroutine(searched())

    def _checkOpen(self) -> None:
        if self._producer.stage is Stage.STOPPED:
            raise LedgerUnavailable("the ledger is stopped")

    def _unreadable(self) -> LedgerUnavailable:
        self._log.failure("the chain of group {group} cannot be read", group=self.group)
        return LedgerUnavailable("the ledger's disk cannot be read")

    def _breathe(self) -> Deferred[None]:
        return deferLater(self._context.reactor, 0, self._checkOpen)
