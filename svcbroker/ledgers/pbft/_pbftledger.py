"""
The embedded ledger as the broker sees it: its settings, and opening the directory of its chain, or
creating a new chain in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from struct import error as StructError
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredLock, fail, succeed
from twisted.logger import Logger
from zope.interface import implementer

from ...archive import KEYS_NAME, ROUNDS_ASIDE, STORE_NAME, StoredChain, loadChain
from ...chain import (
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    ValidatorChange,
    ValidatorSet,
    VersionUnknown,
    checkCertificate,
    quorum,
)
from ...errors import BrokerError, LedgerUnavailable, ParameterInvalid
from ...interfaces import (
    ICheckedLedger,
    IExportableLedger,
    IFaultyLedger,
    IMeasuredLedger,
    InvalidDescription,
    IProvableLedger,
    IValidatorSetLedger,
    LedgerContext,
    Submission,
)
from ...model import (
    MAX_DELAY,
    Execution,
    FaultReport,
    Health,
    LedgerMeasures,
    NodeRecord,
    NodeType,
    Page,
    Request,
    Statistics,
    TopicRule,
)
from ...net.deferreds import asDeferred
from ...net.descriptions import Readers, readValues
from ...proofs import ledgerOfCertificate
from ...storage import StorageError, StorageLost, Store, StoreReader, lookAt, syncFile
from .._description import TOPICS, TOPICS_READER, integer, number
from .._storedledger import StoredLedger, refuseOther
from .._views import TransactionMaker, brokerAddress
from ._keys import (
    MAX_NODES,
    EvidenceFile,
    KeyRing,
    KeysDamaged,
    ReplicaSigner,
    SignatureVerifier,
    loadSeeds,
    makeSeeds,
    publicKey,
    removeSeeds,
)
from ._producer import BlockApplication, BlockProducer, ProducerState, TransactionPool
from ._protocol import Conditions
from ._replica import Replica, ReplicaApplication, Timing
from ._replicaset import FaultControls, ReplicaSet
from ._votes import Rules

DEFAULT_NODES = 4

SUMMARY = "PBFT replicas in this process, blocks in SQLite on this disk. The default."

SETTINGS: Mapping[str, str] = {
    "nodes": f"number of replicas of a new chain, 1 to {MAX_NODES}; 3f+1 tolerate f faults "
    f"(default {DEFAULT_NODES}; an existing chain keeps its own number)",
    "topics": TOPICS,
    "interval": "minimum seconds from one block to the next (default 0: no waiting)",
    "empty": "seconds after which an empty block is made if nothing waits (default: never)",
    "timeout": "seconds before the replicas replace a leader, in addition to interval (default 1)",
    "mempool": "maximum bytes of transactions waiting for a block (default 67108864)",
    "block": "maximum bytes of transactions in a block; a single one may be larger "
    "(default 4194304)",
    "delay": "seconds that messages between replicas take, as MAXIMUM or MINIMUM-MAXIMUM "
    "(default 0)",
    "loss": "share of messages between replicas that are lost, 0 to 1 (default 0)",
    "duplication": "share of messages between replicas that arrive twice, 0 to 1 (default 0)",
    "accept-loss": "height of the last block that is left of a chain whose end is lost: go on "
    "without the rest, with new keys for all replicas (default: such a chain is refused)",
    "resume-at": "height of the last block of a promoted copy that has all of the original: "
    "continue after it, with new keys for all replicas",
    "seed": "seed of the simulated network's faults (default: random)",
}


@frozen(kw_only=True)
class PbftSettings:
    """
    The settings of the embedded ledger; L{SETTINGS} explains them.

    @ivar empty: C{None} if no empty blocks are made.
    @ivar acceptLoss: the last block, as C{accept-loss} or C{resume-at} names it; C{None} if a chain
        that has lost its end is refused.
    @ivar seed: C{None} for a random seed.
    """

    nodes: int = DEFAULT_NODES
    topics: TopicRule = TopicRule.PUBLISHED
    interval: float = 0
    empty: float | None = None
    timeout: float = 1.0
    mempool: int = 64 * 1024 * 1024
    block: int = 4 * 1024 * 1024
    acceptLoss: int | None = None
    conditions: Conditions = Conditions()
    seed: int | None = None


def _delay(text: str) -> tuple[float, float]:
    shortest, dash, longest = text.rpartition("-")
    high = number(longest, 0, MAX_DELAY)
    return (number(shortest, 0, high) if dash else 0.0, high)


_READERS: Readers = {
    "nodes": (lambda text: integer(text, 1, MAX_NODES), f"a number from 1 to {MAX_NODES}"),
    "topics": TOPICS_READER,
    "interval": (lambda text: number(text, 0, 3600), "seconds from 0 to 3600"),
    "empty": (lambda text: number(text, 0.01, 86400), "seconds from 0.01 to 86400"),
    "timeout": (lambda text: number(text, 0.01, 60), "seconds from 0.01 to 60"),
    "mempool": (lambda text: integer(text, 1024, 2**40), "bytes from 1024"),
    "block": (lambda text: integer(text, 1024, 2**30), "bytes from 1024 to 1073741824"),
    "delay": (_delay, "seconds from 0 to 60, or two of them with - between"),
    "loss": (lambda text: number(text, 0, 1), "a number from 0 to 1"),
    "duplication": (lambda text: number(text, 0, 1), "a number from 0 to 1"),
    "accept-loss": (lambda text: integer(text, 0, 2**63 - 1), "the height of a block"),
    "resume-at": (lambda text: integer(text, 0, 2**63 - 1), "the height of a block"),
    "seed": (lambda text: integer(text, 0, 2**63 - 1), "a whole number from 0"),
}

_OF_THE_NETWORK = ("delay", "loss", "duplication")
_LAST_BLOCK = ("accept-loss", "resume-at")
"""Two names of one number: nothing is lost where a copy has all of its original."""


def readSettings(settings: Mapping[str, str]) -> PbftSettings:
    """
    Read the settings of a ledger description.

    @raise InvalidDescription: one is unknown or has an invalid value.
    """
    values = readValues("the pbft ledger", settings, _READERS)
    network = {key: values.pop(key) for key in _OF_THE_NETWORK if key in values}
    if len(ends := [name for name in _LAST_BLOCK if name in values]) > 1:
        raise InvalidDescription(f"the pbft ledger takes {' or '.join(ends)}, not both")
    for name in ends:
        values["acceptLoss"] = values.pop(name)
    return PbftSettings(conditions=Conditions(**network), **values)


_UNUSED_KEYS: Final = KEYS_NAME + ".new"
"""The directory of the keys until the ledger of a new chain exists."""

_log = Logger()


@frozen(kw_only=True)
class OpenedChain:
    """
    An open chain.

    @ivar seeds: the private keys of its nodes, by index.
    @ivar state: the state after its last block.
    @ivar head: the header of its last block, or of its genesis.
    @ivar hasLost: whether blocks behind C{head} are lost, which the replicas may have signed.
    """

    genesis: Genesis
    seeds: Sequence[bytes]
    store: Store
    state: ChainState
    head: Header
    hasLost: bool


def openChain(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    acceptLoss: int | None = None,
    topics: TopicRule = TopicRule.PUBLISHED,
) -> OpenedChain:
    """
    Open the chain in a directory, or create one if there is none.

    @param nodes: the number of nodes of a new chain. An existing chain keeps its own number.
    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
    @param acceptLoss: the height of the last block that is left of a chain whose end is lost.
    @param topics: the rule of topics' names. An existing chain must have it, unless it is that of
        the published interface, which every chain fulfils.
    @raise LedgerUnavailable: the chain cannot be opened. The message is one line for the operator.
    """
    path = directory / STORE_NAME
    with _explained(directory):
        refuseOther(directory, "pbft")
        if not path.exists():
            _checkNew(directory)
            _layOut(directory, group, nodes, now, entropy, topics)
        _finishLayout(directory)
        store = Store.open(path, mayLose=acceptLoss is not None)
        try:
            chain = _load(directory, store, group, acceptLoss, topics)
        except BaseException:
            store.close()
            raise
    if len(chain.seeds) != nodes:
        _log.info(
            "group {group}: the chain keeps its {count} replicas, nodes={nodes} counts for a "
            "new chain only",
            group=group,
            count=len(chain.seeds),
            nodes=nodes,
        )
    return chain


def checkChain(
    directory: Path,
    group: str,
    acceptLoss: int | None = None,
    topics: TopicRule = TopicRule.PUBLISHED,
) -> None:
    """
    Check that L{openChain} would open the chain in a directory, or create one. Nothing is changed.

    @param acceptLoss: as for L{openChain}.
    @param topics: as for L{openChain}.
    @raise LedgerUnavailable: it would not.
    """
    path, unused = directory / STORE_NAME, directory / _UNUSED_KEYS
    with _explained(directory):
        refuseOther(directory, "pbft")
        if not path.exists():
            _checkNew(directory)
            return
        with lookAt(path, mayLose=acceptLoss is not None) as store:
            chain = _checked(store, group, acceptLoss, topics)
            keys = unused if unused.exists() else directory / KEYS_NAME
            loadSeeds(keys, chain.state.validators.keys)


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """
    Turn what prevents the opening of a chain into one line for the operator.

    @raise LedgerUnavailable: in the place of any such error.
    """
    path = directory / STORE_NAME
    try:
        yield
    except StorageLost as error:
        raise _lost(error) from error
    except (StorageError, KeysDamaged) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{directory} cannot be written: {error.strerror}") from error
    except VersionUnknown as error:
        raise LedgerUnavailable(
            f"{path} has another format ({error}): run the svcbroker that wrote it, on the copy "
            "that was made before the upgrade where there is one"
        ) from error
    except (CertificateInvalid, ValueError, OverflowError, StructError) as error:
        raise LedgerUnavailable(f"{path} is damaged ({error}): restore it from a backup") from error


def _lost(error: StorageLost) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{error}: restore a backup, or go on without what is missing by the ledger's setting "
        f"accept-loss={error.height} (docs/backup.rst)"
    )


def _checkNew(directory: Path) -> None:
    """
    Check that no chain has been in a directory that has no ledger.

    @raise LedgerUnavailable: it has keys, which may have signed blocks.
    """
    if any((directory / KEYS_NAME).glob("*")):
        raise LedgerUnavailable(
            f"{directory / STORE_NAME} is missing, but its keys are there: restore a backup, or "
            f"move {directory} away to begin a new chain"
        )


def _layOut(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    topics: TopicRule,
) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    # The keys get their name last: keys without a ledger mean that the ledger is lost.
    seeds = makeSeeds(directory / _UNUSED_KEYS, nodes, entropy)
    genesis = Genesis(
        group=group,
        created=int(now() * 1000),
        validators=tuple(publicKey(seed) for seed in seeds),
        topics=topics,
    )
    store = Store.create(directory / STORE_NAME, chainId=genesis.chain, genesis=genesis.encoded)
    store.close()
    # The directory entry itself must survive a crash.
    syncFile(directory.parent)


def _finishLayout(directory: Path) -> None:
    """Give the keys of a new chain their name, also after a crash in between."""
    unused = directory / _UNUSED_KEYS
    if unused.exists():
        unused.rename(directory / KEYS_NAME)
        syncFile(directory)


def _checked(
    store: StoreReader, group: str, acceptLoss: int | None, topics: TopicRule
) -> StoredChain:
    """Load a chain, and check that it is this group's, and whole where its loss is not accepted."""
    stored = loadChain(store)
    genesis, head = stored.genesis, stored.head
    row = store.tip()
    if row is not None:
        refuseOther(store.path.parent, "pbft", ledgerOfCertificate(row.certificate))
    if genesis.group != group:
        raise LedgerUnavailable(
            f"{store.path} is the chain of group {genesis.group}, not of group {group}: "
            "move it back to where it was"
        )
    if topics is TopicRule.UTF8 and genesis.topics is not topics:
        raise LedgerUnavailable(
            f"{store.path} is a chain that was made without topics=utf8, which a chain keeps: take "
            "the setting away, or begin another group with it"
        )
    if row is not None:
        validators = stored.headValidators
        certificate = Certificate.decode(row.certificate)
        checkCertificate(certificate, head, len(validators.keys), validators.verify)
    if store.loss and acceptLoss != head.height:
        raise _lost(StorageLost(store.loss, head.height))
    return stored


def _load(
    directory: Path, store: Store, group: str, acceptLoss: int | None, topics: TopicRule
) -> OpenedChain:
    stored = _checked(store, group, acceptLoss, topics)
    genesis, head = stored.genesis, stored.head
    if store.loss:
        _log.warn(
            "{loss}: group {group} goes on after block {height}, and its replicas get new keys",
            loss=store.loss,
            group=group,
            height=head.height,
        )
        store.acceptLoss(ROUNDS_ASIDE)
    seeds = loadSeeds(directory / KEYS_NAME, stored.state.validators.keys)
    _removeOldKeys(directory / KEYS_NAME, store, stored)
    return OpenedChain(
        genesis=genesis,
        seeds=seeds,
        store=store,
        state=stored.state,
        head=head,
        hasLost=bool(store.loss),
    )


def _removeOldKeys(directory: Path, store: Store, stored: StoredChain) -> None:
    """
    Remove the keys of former nodes that a crash has left. Keys that were never in a validator set
    of this chain are kept: they may belong to a longer copy of it.
    """
    old = set(stored.genesis.validators)
    for row in store.validatorSets():
        old.update(ValidatorSet.decode(row.encoded).keys)
    try:
        removeSeeds(directory, old.difference(stored.state.validators.keys))
    except OSError:
        _log.failure("old keys could not be removed from {path}", path=directory)


PROGRESS_TIMEOUT = 5.0
"""
Seconds that a transaction may wait, in addition to the interval, before the ledger is not
ready.
"""


@implementer(
    ICheckedLedger,
    IProvableLedger,
    IExportableLedger,
    IValidatorSetLedger,
    IFaultyLedger,
    IMeasuredLedger,
)
class PbftLedger(StoredLedger):
    """
    A group's log, decided by a set of PBFT replicas in this process and stored on this disk.

    @ivar replicaSet: the replicas, once L{start} was called. Tests and operators stop and start
        them and change their network's conditions.
    """

    replicaSet: ReplicaSet

    def __init__(
        self,
        context: LedgerContext,
        settings: PbftSettings | None = None,
        makeReplica: Callable[
            [ReplicaSigner, Rules, ReplicaApplication, Timing, Header], Replica
        ] = Replica,
    ) -> None:
        """
        @param makeReplica: makes a replica; tests pass faulty ones.
        """
        super().__init__(context)
        self._context = context
        self._settings = PbftSettings() if settings is None else settings
        self._makeReplica = makeReplica
        self._changing = DeferredLock()
        self._highestView = 0

    def check(self) -> None:
        """See L{ICheckedLedger<svcbroker.interfaces.ICheckedLedger>}."""
        settings = self._settings
        checkChain(self._context.directory, self.group, settings.acceptLoss, settings.topics)

    def start(self) -> Deferred[None]:
        try:
            chain = self._open()
            if not chain.hasLost:
                self._begin()
                return succeed(None)
        except LedgerUnavailable as error:
            return fail(error)
        return self._beginWithNewKeys()

    def _open(self) -> OpenedChain:
        context, settings = self._context, self._settings
        chain = openChain(
            context.directory,
            self.group,
            settings.nodes,
            context.now,
            context.entropy,
            settings.acceptLoss,
            settings.topics,
        )
        genesis, self._store = chain.genesis, chain.store
        self._openReads(genesis, chain.state, chain.store)
        self._pool = TransactionPool(settings.mempool)
        application = BlockApplication(
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
            runInThread=context.runBriefly,
            state=chain.state,
            store=chain.store,
            pool=self._pool,
            application=application,
            observers=self._observers,
            interval=settings.interval,
            empty=settings.empty,
            reform=self._reform,
            erasing=self._erasing,
        )
        self._openReplicas(chain, application)
        self._maker = TransactionMaker(
            genesis.chain, brokerAddress(genesis.chain), context.now, context.entropy
        )
        self._maker.resume(chain.state.nonces(self._maker.sender).highest)
        return chain

    def _openReplicas(self, chain: OpenedChain, application: BlockApplication) -> None:
        context, settings, id = self._context, self._settings, chain.genesis.chain
        self._keys = KeyRing(
            context.directory / KEYS_NAME,
            id,
            chain.seeds,
            context.entropy,
            context.runInThread,
        )
        kept = EvidenceFile(context.directory, id, context.runInThread)
        rules, signers = self._makeSigners(chain.seeds)
        self.replicaSet = ReplicaSet(
            context.reactor,
            Random(settings.seed),
            rules,
            signers,
            application,
            Timing.forNetwork(settings.interval + settings.timeout, settings.conditions.delay[1]),
            self._producer.decided,
            settings.conditions,
            self._makeReplica,
            lambda evidence: kept.add(self._state.validators.keys[evidence.first.sender], evidence),
        )
        self._faults = FaultControls(
            self.group, self.replicaSet, settings.conditions, tuple(kept.contradictions)
        )

    def _begin(self) -> None:
        try:
            self._producer.start(self.replicaSet)
        except StorageError as error:
            self._store.close()
            raise LedgerUnavailable(str(error)) from error

    @asDeferred
    async def _beginWithNewKeys(self) -> None:
        """
        Begin after a loss: the first block gives all replicas new keys, so that none signs a
        later height, which it may have signed before the loss, with its old key.
        """
        current = self._state.validators
        try:
            change = await self._keys.prepare(current, range(len(current.keys)), None)
        except LedgerUnavailable:
            self._store.close()
            raise
        self._begin()
        # Before anything else may be submitted.
        await self._decideChange(change)

    def _makeSigners(self, seeds: Sequence[bytes]) -> tuple[Rules, Sequence[ReplicaSigner]]:
        """
        Make the rules and the signers of the current validator set.

        @param seeds: the private keys, by index.
        """
        verifier = SignatureVerifier(self._state.validators.keys)
        chain = self._state.chain
        return Rules(chain=chain, verifier=verifier), [
            ReplicaSigner(index, seed, chain, verifier) for index, seed in enumerate(seeds)
        ]

    def _reform(self, head: Header) -> None:
        self.replicaSet.reform(*self._makeSigners(self._keys.seeds(self._state.validators)), head)

    def _privateKey(self) -> bytes:
        self._checkOpen()
        return self._keys.seeds(self._state.validators)[0]

    def getNodes(self) -> Deferred[ValidatorSet]:
        return succeed(self._state.validators)

    def changeNodes(
        self, rotate: Sequence[int] = (), count: int | None = None
    ) -> Deferred[ValidatorSet]:
        """
        See L{IValidatorSetLedger}. The change is a transaction that all current and future nodes
        sign. The old keys are removed from the disk once it is final. Proofs of earlier blocks stay
        valid, since each validator set has signed the next.
        """
        return self._changing.run(lambda: self._changeNodes(rotate, count))

    @asDeferred
    async def _changeNodes(self, rotate: Sequence[int], count: int | None) -> ValidatorSet:
        current = self._state.validators
        self._checkOpen()
        change = await self._keys.prepare(current, rotate, count)
        await self._decideChange(change)
        return change.following

    async def _decideChange(self, change: ValidatorChange) -> None:
        receipt = await self._producer.submitMany([self._maker.makeChange(change)]).only()
        if receipt.execution is not Execution.DONE:
            raise LedgerUnavailable("the chain refused the change of the nodes")
        await self._keys.retire(change)

    def submitChange(self, change: ValidatorChange) -> Deferred[ValidatorSet]:
        return fail(ParameterInvalid("groupId: the ledger of this group holds all keys itself"))

    def stop(self) -> Deferred[None]:
        return self._producer.stop()

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        try:
            return self._producer.submitMany(self._maker.makeMany(requests))
        except BrokerError as error:
            return Submission.refused(len(requests), error)

    def getStatistics(self) -> Deferred[Statistics]:
        nodes = len(self._state.validators.keys)
        return self._read(lambda: self._reader.getStatistics(nodes))

    def measure(self) -> LedgerMeasures:
        pool, replicas = self._pool, self.replicaSet.replicas
        views = [replica.view for replica in replicas]
        # The view of a replica falls where a block of an earlier round was decided.
        self._highestView = max(self._highestView, *views)
        oldest = pool.oldest
        return LedgerMeasures(
            waiting=len(pool),
            waitingBytes=pool.bytes,
            oldest=0.0 if oldest is None else self._context.reactor.seconds() - oldest,
            replicas=len(replicas),
            running=len(self.replicaSet.running),
            viewChanges=self._highestView,
            latency=self._producer.latency,
            sync=self._producer.sync,
        )

    def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Deferred[Page[NodeRecord]]:
        running = set(self.replicaSet.running)
        nodes = [
            NodeRecord(
                nodeId=self._state.validators.keys[replica.index],
                name=None,
                view=replica.view,
                nodeType=NodeType.SEALER,
                height=replica.head.height,
                isActive=replica.index in running,
            )
            for replica in self.replicaSet.replicas
            if name is None
        ]
        return succeed(Page(total=len(nodes), items=nodes[offset : offset + limit]))

    def stopNode(self, index: int) -> Deferred[None]:
        return self._read(lambda: self._faults.stopNode(index))

    def startNode(self, index: int) -> Deferred[None]:
        return self._read(lambda: self._faults.startNode(index))

    def setNetwork(
        self,
        *,
        delay: tuple[float, float] | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        cut: Collection[tuple[int, int]] | None = None,
    ) -> Deferred[None]:
        return self._read(lambda: self._faults.setNetwork(delay, loss, duplication, cut))

    def heal(self) -> Deferred[None]:
        return self._read(self._faults.heal)

    def describeFaults(self) -> Deferred[FaultReport]:
        return self._read(self._faults.describe)

    def getHealth(self) -> Deferred[Health]:
        reason = self._reason()
        return succeed(Health(isReady=not reason, reason=reason))

    def _reason(self) -> str:
        if self._producer.state is ProducerState.STOPPED:
            return "the ledger is stopped"
        if self._producer.isStopping:
            return "the ledger is stopping"
        if self._producer.lastError:
            return self._producer.lastError
        running, nodes = len(self.replicaSet.running), len(self._state.validators.keys)
        if running < quorum(nodes):
            return f"{running} of {nodes} nodes run, {quorum(nodes)} are needed"
        isolation = self._faults.isolation()
        if isolation:
            return isolation
        oldest = self._pool.oldest
        timeout = PROGRESS_TIMEOUT + self._settings.interval
        if oldest is not None and self._context.reactor.seconds() - oldest > timeout:
            return f"transactions have waited for more than {timeout:g} seconds"
        return ""

    def _checkOpen(self) -> None:
        if self._producer.state is ProducerState.STOPPED:
            raise LedgerUnavailable("the ledger is stopped")
