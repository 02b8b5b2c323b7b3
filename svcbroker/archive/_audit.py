"""
The audit of data directories: stored chains, keys, the metadata store, and files that do not belong
there. A chain is audited block after block, going on behind one that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple

from attrs import frozen

from ..chain import (
    RECEIPT_SIZE,
    Certificate,
    CertificateInvalid,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    Transaction,
    ValidatorSet,
    decodeBody,
    decodeTable,
    leaderIndex,
    merkleRoot,
)
from ..proofs import (
    AnyCertificate,
    Checkpoint,
    CometCertificate,
    PbftCertificate,
    checkFinal,
    engineSet,
    isEngineCertificate,
    storedCertificate,
)
from ..storage import (
    HEADS,
    LAST_SUFFIX,
    METADATA_WRITES,
    PRINT_SIZE,
    SEGMENT,
    TIP_SUFFIX,
    Append,
    Snapshot,
    StorageDamaged,
    StorageError,
    StorageRefused,
    StorageUnknown,
    Tip,
    findLostWrites,
    metadataChecksum,
    readTip,
    readWrites,
    tipPath,
    wholeHeader,
)
from ._audittables import (
    HoldAuditor,
    KeyAuditor,
    RowAuditor,
    auditStructure,
    compareBases,
    compareCompacted,
    compareCompatible,
    compareReservation,
    compareState,
    storedSets,
)
from ._findings import (
    LIMIT,
    AuditFinding,
    FindingKind,
    Findings,
    Pause,
    Report,
    difference,
    isSame,
    noPause,
    noReport,
    show,
)
from ._layout import (
    BROKER_FILES,
    COPY_NAME,
    INDEX_NAME,
    JOURNAL_NAME,
    KEY_SUFFIX,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    TREES_NAME,
    groupDirectories,
    isGroup,
    readKeyFiles,
    refusedName,
    unknownFiles,
)
from ._replay import BATCH_BLOCKS, BATCH_BYTES, Replay, checkFormat

_MAX_FAILURES: Final = 20
"""Failed reads after which the audit ends: each may take seconds on a dying disk."""


@frozen(kw_only=True)
class AuditedChain:
    """
    The result of auditing a chain.

    @ivar group: the id of its group, from the name of its directory.
    @ivar genesis: its genesis; C{None} where it cannot be read.
    @ivar tip: its last block; C{None} where its hash is unknown.
    @ivar transactions: how many transactions were executed.
    @ivar topics: how many topics there are; C{None} where execution ended before the last block.
    @ivar erased: how many events were erased.
    @ivar validators: the public keys that decide the next block; C{None} where execution ended
        before the last block.
    @ivar findings: the findings.
    @ivar hasEngine: whether an engine decided its blocks.
    @ivar final: the height of the last block with a certificate that holds; all blocks before it
        are final, too. On an engine's chain there may be blocks after it: their certificates come
        later, and need not be stored.
    """

    group: str
    genesis: Genesis | None
    tip: Checkpoint | None
    transactions: int
    topics: int | None
    validators: Collection[bytes] | None
    findings: Findings
    hasEngine: bool = False
    final: int = 0
    erased: int = 0

    @classmethod
    def unread(cls, group: str, findings: Findings) -> AuditedChain:
        """The result for a chain of which nothing could be read."""
        return cls(
            group=group,
            genesis=None,
            tip=None,
            transactions=0,
            topics=None,
            validators=None,
            findings=findings,
        )

    @property
    def isGood(self) -> bool:
        """Whether it was audited, and there is no damage."""
        return self.findings.isGood


def auditChain(
    path: Path,
    *,
    group: str,
    checkpoints: Collection[Checkpoint] = (),
    limit: int = LIMIT,
    report: Report = noReport,
    pause: Pause = noPause,
) -> AuditedChain:
    """
    Check a chain from its genesis on: every block, every certificate, and every row that follows
    from execution. Nothing is written; a broker may be using the file.

    @param path: the file.
    @param group: the id of the group whose chain it should be.
    @param checkpoints: blocks that it must contain.
    @param limit: how many findings are kept.
    @param report: called with the number of audited blocks, and of all blocks.
    @param pause: called after each batch of blocks but the last.
    @raise StorageUnknown: this release does not read it.
    @raise StorageRefused: it cannot be opened at all.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    findings = Findings(group, limit)
    tip = None
    try:
        # Before the ledger is read, which a running broker may extend meanwhile.
        tip = readTip(path)
    except StorageRefused as error:
        findings.damage(tipPath(path).name, str(error))
    with Snapshot.ofLedger(path, mayBeOlder=True) as snapshot:
        checkFormat(snapshot)
        with closing(KeyAuditor(snapshot, findings)) as keys:
            audit = _ChainAudit(snapshot, group, findings, checkpoints, report, pause, tip, keys)
            audited = audit.run()
        snapshot.checkUnchanged()
        return audited


class _ChainAudit:
    def __init__(
        self,
        snapshot: Snapshot,
        group: str,
        findings: Findings,
        checkpoints: Collection[Checkpoint],
        report: Report,
        pause: Pause,
        tip: Tip | None,
        keys: KeyAuditor,
    ) -> None:
        self._tip = tip
        self._keys = keys
        self._snapshot = snapshot
        self._group = group
        self._found = findings
        self._wanted = {each.height: each for each in checkpoints}
        self._report = report
        self._pause = pause
        self._hasKeys = (snapshot.path.parent / KEYS_NAME).is_dir()
        self._hasEngine = False
        self._transactions = 0
        self._failures = 0

    def run(self) -> AuditedChain:
        genesis = None
        if auditStructure(self._snapshot, STORE_NAME, self._found):
            with self._reading("chain"), self._snapshot.moment():
                genesis = self._genesis()
        if genesis is None:
            return AuditedChain.unread(self._group, self._found)
        self._blocks = BlockAuditor(
            genesis,
            storedSets(self._snapshot),
            self._found,
            self._keys,
            hasEngine=self._hasEngine,
        )
        self._rows = RowAuditor(self._snapshot, self._found)
        self._holds = HoldAuditor(self._snapshot, self._found)
        self._compareCheckpoint(0)
        while self._batch():
            self._pause()
        if self._tip is not None and self._tip.height > self._blocks.height:
            self._found.damage(
                STORE_NAME,
                f"the chain ends at block {self._blocks.height}, and block {self._tip.height} had "
                "been stored",
            )
        for height in sorted(self._wanted):
            problem = f"the chain ends at block {self._blocks.height}, before checkpoint {height}"
            if height <= self._blocks.height:
                problem = f"the block of checkpoint {height} is missing, or cannot be read"
            self._found.damage("checkpoint", problem)
        return self._audited(genesis)

    def _audited(self, genesis: Genesis) -> AuditedChain:
        blocks = self._blocks
        state = None if blocks.replay is None else blocks.replay.state
        return AuditedChain(
            group=self._group,
            genesis=genesis,
            tip=None if blocks.hash is None else Checkpoint(blocks.height, blocks.hash),
            transactions=self._transactions,
            topics=None if state is None else state.topicCount,
            validators=None if state is None else state.validators.keys,
            findings=self._found,
            hasEngine=self._hasEngine,
            final=blocks.final,
            erased=self._keys.erased,
        )

    def _genesis(self) -> Genesis | None:
        rows = list(self._snapshot.rows("SELECT id, chain_id, genesis FROM chain"))
        if len(rows) != 1:
            self._found.damage("chain", f"has {len(rows)} rows instead of one")
            return None
        key, chain, encoded = rows[0]
        if key != 0:
            self._found.differ("chain.id", 0, key)
        try:
            if not isinstance(encoded, bytes):
                raise Malformed("it is not stored as bytes")
            genesis = Genesis.decode(encoded)
        except Malformed as error:
            self._found.damage("chain.genesis", str(error))
            return None
        if genesis.chain != chain:
            self._found.differ("chain.chain_id", genesis.chain, chain)
        self._hasEngine = self._isDecidedByEngine()
        # An engine's chain is named as the engine calls it.
        if genesis.group != self._group and not self._hasEngine:
            self._found.damage("chain.genesis", f"it is the chain of group {show(genesis.group)}")
        return genesis

    def _isDecidedByEngine(self) -> bool:
        """Whether an engine decides: there are no keys then, nor certificates of replicas."""
        if self._hasKeys:
            return False
        rows = self._snapshot.rows("SELECT certificate FROM head WHERE height = 1")
        return all(isinstance(row, bytes) and isEngineCertificate(row) for (row,) in rows)

    def _batch(self) -> bool:
        """
        Audit some blocks.

        @return: whether there are more.
        """
        # Where the read transaction cannot even begin, later ones will not either.
        isLast = True
        with self._reading("ledger.sqlite"), self._snapshot.moment():
            isLast = self._readBlocks()
            with self._reading("ledger.sqlite"):
                self._rows.compare(isLast, isComplete=self._blocks.replay is not None)
            if isLast:
                self._finish()
        return not isLast

    def _readBlocks(self) -> bool:
        """
        @return: whether those were the last.
        """
        ((tip,),) = self._snapshot.rows("SELECT max(height) FROM head")
        blocks, size, count = self._blocks, 0, 0
        rows = self._snapshot.rows(
            "SELECT head.height, transaction_total, hash, header, certificate, receipts, body, "
            f"padding, base, shared FROM {HEADS} LEFT JOIN body USING (height) "
            "WHERE head.height > ? ORDER BY head.height LIMIT ?",
            blocks.height,
            BATCH_BLOCKS,
        )
        try:
            for values in rows:
                row = RawBlock(*values)
                self._check(row)
                self._report(row.height, tip)
                count += 1
                size += len(row.body) if isinstance(row.body, bytes) else 0
                if size > BATCH_BYTES:
                    rows.close()
                    return False
        except StorageError as error:
            self._failures += 1
            blocks.lose("ledger.sqlite", f"it cannot be read: {error}", blocks.height + 1)
            return self._failures >= _MAX_FAILURES or blocks.height >= (tip or 0)
        return count < BATCH_BLOCKS

    def _check(self, row: RawBlock) -> None:
        append = self._blocks.check(row, lambda: self._printsOf(row))
        if append is not None:
            self._rows.add(append)
            self._holds.add(append)
            self._transactions += len(append.transactionHashes)
        self._compareCheckpoint(row.height)

    def _printsOf(self, row: RawBlock) -> bytes:
        """The stored fingerprints of a block's transactions."""
        if not (isinstance(row.body, bytes) and isinstance(row.transactionTotal, int)):
            return b""
        count = int.from_bytes(row.body[:4], "big")
        first = max(0, row.transactionTotal - count)
        segment = first // SEGMENT
        stored = b"".join(
            prints
            for (prints,) in self._snapshot.rows(
                "SELECT prints FROM fingerprint WHERE segment BETWEEN ? AND ? ORDER BY segment",
                segment,
                (first + count) // SEGMENT,
            )
            if isinstance(prints, bytes)
        )
        start = (first - segment * SEGMENT) * PRINT_SIZE
        return stored[start : start + count * PRINT_SIZE]

    def _compareCheckpoint(self, height: int) -> None:
        """Compare a block with the checkpoint of its height, and with the tip file."""
        tip = self._tip
        if tip is not None and tip.height == height and height and self._blocks.hash != tip.hash:
            self._found.damage(STORE_NAME, "it is not the block that had been stored", height)
        checkpoint = self._wanted.pop(height, None)
        if checkpoint is not None and self._blocks.hash != checkpoint.hash:
            self._found.damage(
                "checkpoint",
                f"the block is not the one of checkpoint {checkpoint}: the chain was rewritten",
                height,
            )

    def _finish(self) -> None:
        """Compare the rows that depend on the last block, in the same read transaction."""
        with self._reading("head, body"):
            for (height,) in self._snapshot.rows(
                "SELECT height FROM head WHERE height < 1 LIMIT 10"
            ):
                self._found.damage("head", "the row should not be there", height)
            for (height,) in self._snapshot.rows(
                "SELECT body.height FROM body LEFT JOIN head USING (height) "
                "WHERE head.height IS NULL LIMIT 10"
            ):
                self._found.damage("body", "the row belongs to no block", height)
        with self._reading("header_base"):
            compareBases(self._snapshot, self._blocks.bases, self._found)
        with self._reading("reservation"):
            compareReservation(self._snapshot, self._blocks.height, self._found)
        with self._reading("compacted"):
            compareCompacted(self._snapshot, self._blocks.height, self._found)
        with self._reading("compatible"):
            compareCompatible(self._snapshot, self._found)
        if self._blocks.replay is not None:
            with self._reading("ledger.sqlite"):
                self._rows.compareCounts()
            with self._reading("topic, account"):
                compareState(self._snapshot, self._blocks.replay.state, self._found)
            with self._reading("hold, holding"):
                self._holds.compare()
            with self._reading("key_use, erased, erasing"):
                self._keys.compare(self._blocks.replay.missing)

    @contextmanager
    def _reading(self, place: str) -> Iterator[None]:
        """Report a failed read as damage."""
        try:
            yield
        except StorageError as error:
            self._found.damage(place, f"it cannot be read: {error}")


class RawBlock(NamedTuple):
    """
    A block as it is stored. Columns may be of any type.
    """

    height: int
    transactionTotal: Any
    hash: Any
    header: Any
    certificate: Any
    receipts: Any
    body: Any
    padding: Any
    base: Any
    shared: Any


class BlockAuditor:
    """
    Executes a chain from its genesis and compares the stored blocks with the outcome.

    Execution ends at the first block that does not follow from the state before it, since the
    state after it is unknown. The header, link, certificate and transactions of the blocks behind
    it are still checked.

    @ivar height: the height of the last block that was audited.
    @ivar final: the height of the last block whose certificate holds.
    @ivar hash: the hash of the last block; C{None} where it is unknown.
    @ivar replay: the state after the last block; C{None} once execution has ended.
    @ivar bases: the numbers that rows of blocks have of the parts that headers share, and whether
        one of these headers is the one that was written.
    """

    def __init__(
        self,
        genesis: Genesis,
        sets: Mapping[bytes, ValidatorSet],
        findings: Findings,
        keys: KeyAuditor,
        *,
        hasEngine: bool = False,
    ) -> None:
        """
        @param sets: validator sets by their hashes. A set is used only where a certified header
            names it.
        @param keys: is given what the blocks bring of idempotency keys and erasures.
        @param hasEngine: whether an engine decides, so that certificates may be missing.
        """
        header = genesis.header()
        self.height = self.final = 0
        self.hash: bytes | None = header.hash
        state = genesis.state()
        state.keys = keys.keys
        self.replay: Replay | None = Replay(state, header)
        self._keys = keys
        self._hasEngine = hasEngine
        self._genesis = genesis
        self.bases: dict[object, bool] = {None: True}
        self._previous: Header | None = header
        self._validators = header.nextValidators
        self._sets = {**sets, genesis.validatorSet.hash: genesis.validatorSet}
        self._found = findings

    def lose(self, place: str, problem: str, height: int) -> None:
        """
        Report that the blocks up to a height cannot be read, or are missing.
        """
        self._found.damage(place, problem, height)
        self._endExecution(height)
        self.height, self.hash, self._previous = height, None, None

    def check(self, row: RawBlock, prints: Callable[[], bytes]) -> Append | None:
        """
        Check the next block.

        @param prints: returns the stored fingerprints of its transactions, as far as there are any.
        @return: the rows that must be stored for it; C{None} where they are unknown.
        """
        if row.height != self.height + 1:
            first, last = self.height + 1, row.height - 1
            which = f"block {first} is" if first == last else f"blocks {first} to {last} are"
            self.lose("head.height", f"{which} missing", last)
        self.height = row.height
        damages = self._found.damageCount
        self.bases.setdefault(row.base, False)
        header = self._decodeHeader(row)
        if header is None:
            self.hash, self._previous = row.hash if isinstance(row.hash, bytes) else None, None
            self._endExecution(row.height)
            return None
        before = self.hash
        problem = self._certificateProblem(row, header)
        isItself = self._checkHash(row, header, problem)
        self.bases[row.base] |= isItself
        if before is not None and header.parent != before:
            self._differ("header.parent", before, header.parent)
        transactions = self._transactions(row)
        self._checkLinks(header, transactions)
        append, reason = None, ""
        if self.replay is not None and isItself and transactions is not None:
            try:
                receipts = row.receipts if isinstance(row.receipts, bytes) else b""
                append = self.replay.execute(header, transactions, b"", receipts)
            except InvalidBlock as error:
                reason = str(error)
        if self.replay is not None and append is not None:
            validators = self.replay.state.validators
            self._sets[validators.hash] = validators
            self._checkReceipts(row.receipts, append.block.receipts)
            if transactions is not None:
                self._checkContents(row, append)
                self._keys.add(transactions, append)
        else:
            if transactions is not None:
                self._checkRoot(header, transactions, prints)
            if reason and self._found.damageCount == damages:
                self._found.damage("head.header", reason, row.height)
            self._endExecution(row.height)
        self._previous = header if isItself else None
        if append is not None or not problem:
            self._validators = header.nextValidators
        return append

    def _decodeHeader(self, row: RawBlock) -> Header | None:
        try:
            encoded = wholeHeader(row.header, row.shared, row.height)
            if not isinstance(encoded, bytes):
                raise Malformed("it is not stored as bytes")
            header = Header.decode(encoded)
        except Malformed as error:
            self._found.damage("head.header", str(error), row.height)
            return None
        if not isSame(header.transactionTotal, row.transactionTotal):
            self._differ("head.transaction_total", header.transactionTotal, row.transactionTotal)
        return header

    def _checkHash(self, row: RawBlock, header: Header, problem: str) -> bool:
        """
        Compare the hash of a header with the one stored beside it.

        @param problem: why the certificate does not hold; empty where it does.
        @return: whether this is the header that was written, by its stored hash or its certificate.
        """
        self.hash = header.hash
        if header.hash == row.hash:
            if problem:
                self._found.damage("head.certificate", problem, self.height)
            return True
        if not problem:
            self._differ("head.hash", header.hash, row.hash)
            return True
        self._found.damage(
            "head.header",
            f"its hash is {show(header.hash)}, which is neither the one stored beside it nor the "
            "one that was signed",
            self.height,
        )
        self.hash = row.hash if isinstance(row.hash, bytes) else None
        return False

    def _certificateProblem(self, row: RawBlock, header: Header) -> str:
        validators = self._sets.get(self._validators)
        if validators is None:
            return "the validator set that has to sign it is unknown"
        try:
            if not isinstance(row.certificate, bytes):
                raise Malformed("it is not stored as bytes")
            certificate = self._decodeCertificate(row.certificate)
            if certificate is not None:
                checkFinal(certificate, header, validators, self._genesis.group)
                self._checkNext(certificate, header)
        except (Malformed, CertificateInvalid) as error:
            return str(error)
        if certificate is not None:
            self.final = row.height
        return ""

    def _decodeCertificate(self, data: bytes) -> AnyCertificate | None:
        if not self._hasEngine:
            return PbftCertificate.of(Certificate.decode(data))
        if not isEngineCertificate(data):
            raise Malformed("it is not what an engine's validators sign")
        return storedCertificate(data)

    def _checkNext(self, certificate: AnyCertificate, header: Header) -> None:
        """Compare the set that decides the next block with the one that the engine has."""
        following = self._sets.get(header.nextValidators)
        if following is None or not isinstance(certificate, CometCertificate):
            return
        block = certificate.block()
        if block.header.nextValidatorsHash != engineSet(following, block.power):
            raise CertificateInvalid("the engine has other validators for the next block")

    def _transactions(self, row: RawBlock) -> Sequence[Transaction] | None:
        body = row.body
        if body is None:
            self._found.damage("body", "the block has no body", self.height)
            return None
        if not isinstance(body, bytes):
            self._found.damage("body.body", "it is not stored as bytes", self.height)
            return None
        try:
            return decodeBody(body, mayBeErased=True)
        except Malformed as error:
            index, problem = _firstMalformed(body)
            self._found.damage("body.body", problem or str(error), self.height, index)
        return None

    def _checkLinks(self, header: Header, transactions: Sequence[Transaction] | None) -> None:
        """Compare a header with its place in the chain and with the header before it."""
        expected: dict[str, object] = {
            "chain": self._genesis.chain,
            "height": self.height,
            "validators": self._validators,
        }
        validators = self._sets.get(self._validators)
        if validators is not None:
            expected["proposer"] = leaderIndex(header.view, self.height, len(validators.keys))
        if transactions is not None:
            expected["transactionCount"] = len(transactions)
        previous = self._previous
        if previous is not None:
            count = header.transactionCount if transactions is None else len(transactions)
            expected["transactionTotal"] = previous.transactionTotal + count
            for name in ("view", "timestamp"):
                value, before = getattr(header, name), getattr(previous, name)
                if value < before:
                    self._found.damage(
                        f"header.{name}", f"{value} is below its parent's {before}", self.height
                    )
        for name, value in expected.items():
            if getattr(header, name) != value:
                self._differ(f"header.{name}", value, getattr(header, name))

    def _checkRoot(
        self, header: Header, transactions: Sequence[Transaction], prints: Callable[[], bytes]
    ) -> None:
        """Compare the transactions with the header's root."""
        hashes = [transaction.hash for transaction in transactions]
        root = merkleRoot(hashes)
        if root != header.transactionRoot:
            self._found.damage(
                "body.body",
                "these are not the transactions of its header: "
                + difference(header.transactionRoot, root),
                self.height,
                _firstOther(hashes, prints()),
            )

    def _checkReceipts(self, stored: object, receipts: bytes) -> None:
        if stored != receipts:
            index = None
            if isinstance(stored, bytes) and len(stored) == len(receipts):
                pairs = zip(receipts, stored, strict=True)
                first = next(i for i, (one, other) in enumerate(pairs) if one != other)
                index = first // RECEIPT_SIZE
            self._found.differ("body.receipts", receipts, stored, self.height, index)

    def _checkContents(self, row: RawBlock, append: Append) -> None:
        """Compare a body with the one that is to be stored."""
        if row.body != append.block.body:
            self._found.damage(
                "body.body", "it has the content of a publish that was refused", row.height
            )
        if row.padding is not None and (
            not isinstance(row.padding, bytes) or row.padding.strip(b"\0")
        ):
            self._found.damage("body.padding", "it is not made of zeros", row.height)

    def _endExecution(self, height: int) -> None:
        if self.replay is not None:
            self.replay = None
            self._found.note(
                "body",
                "the state after this block is unknown, so execution ends here: of the blocks "
                "behind it, headers, certificates and transactions are checked, and the rows that "
                "follow from execution are not",
                height,
            )

    def _differ(self, place: str, expected: object, found: object) -> None:
        self._found.differ(place, expected, found, self.height)


def _firstMalformed(body: bytes) -> tuple[int | None, str]:
    """The index of the first malformed transaction of a body, and the reason."""
    try:
        offsets = decodeTable(body)
    except Malformed:
        return None, ""
    if offsets[-1] != len(body):
        return None, ""
    for index in range(len(offsets) - 1):
        try:
            Transaction.decode(body[offsets[index] : offsets[index + 1]], mayBeErased=True)
        except Malformed as error:
            return index, str(error)
    return None, ""


def _firstOther(hashes: Sequence[bytes], prints: bytes) -> int | None:
    """The index of the first transaction whose hash does not match its fingerprint."""
    if len(prints) != len(hashes) * PRINT_SIZE:
        return None
    for index, hash in enumerate(hashes):
        if hash[:PRINT_SIZE] != prints[index * PRINT_SIZE : (index + 1) * PRINT_SIZE]:
            return index
    return None


_SQLITE: Final = ("", "-wal", "-shm")
_DATA_DIRECTORY: Final = (
    "lock",
    ".history",
    ".incidents",
    "operator.json",
    ".running",
    *(METADATA_NAME + end for end in (*_SQLITE, LAST_SUFFIX)),
)
_GROUP: Final[tuple[str, ...]] = (
    KEYS_NAME,
    COPY_NAME,
    INDEX_NAME,
    TREES_NAME,
    *(STORE_NAME + end for end in (*_SQLITE, TIP_SUFFIX)),
)


@frozen(kw_only=True)
class Audited:
    """
    The result of auditing a directory.

    @ivar chains: the result of each group's chain.
    @ivar findings: the findings that concern no group.
    """

    chains: Sequence[AuditedChain]
    findings: Findings

    @property
    def isGood(self) -> bool:
        """Whether all was audited, and there is no damage."""
        return all(each.isGood for each in self._findings())

    @property
    def isDamaged(self) -> bool:
        """Whether there is damage."""
        return any(each.damageCount for each in self._findings())

    def unaudited(self) -> Sequence[str]:
        """Reasons why something could not be audited."""
        return [each.problem for each in self.all() if each.kind is FindingKind.UNAUDITED]

    def _findings(self) -> Sequence[Findings]:
        return [*(chain.findings for chain in self.chains), self.findings]

    def all(self) -> Iterator[AuditFinding]:
        """All kept findings."""
        for each in self._findings():
            yield from each.kept


def audit(
    directory: Path,
    *,
    groups: Collection[str] | None = None,
    checkpoints: Mapping[str, Collection[Checkpoint]] | None = None,
    limit: int = LIMIT,
    reporting: Callable[[str], AbstractContextManager[Report]] | None = None,
    pause: Pause = noPause,
) -> Audited:
    """
    Check everything in a data directory, or in the directory of a group. Nothing is written; a
    broker may be running on it.

    @param groups: only the chains of these groups; C{None} for all, and for the other files.
    @param checkpoints: blocks that the chains must contain, by group.
    @param limit: how many findings are kept for each group.
    @param reporting: returns the callback that is told how many blocks of a group are done.
    @param pause: called between read transactions. Without a pause, a broker that is running
        cannot begin its write-ahead log anew, which grows by all that is published meanwhile.
    @raise OSError: the directory cannot be read.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    checkpoints = checkpoints or {}
    reporting = reporting or (lambda group: nullcontext(noReport))
    others = Findings("", limit)
    if isGroup(directory):
        directories: Sequence[Path] = [directory.absolute()]
    else:
        directories = groupDirectories(directory)
        if groups is None:
            auditDataDirectoryFiles(directory, others)
    chains = []
    for each in directories:
        group = each.name
        if groups is None or group in groups:
            with reporting(group) as report:
                chains.append(
                    auditGroup(
                        each,
                        checkpoints=checkpoints.get(group, ()),
                        limit=limit,
                        report=report,
                        pause=pause,
                    )
                )
    missing = {*(groups or ()), *checkpoints} - {chain.group for chain in chains}
    for group in sorted(missing):
        others.damage("data directory", f"there is no chain of group {group}")
    return Audited(chains=chains, findings=others)


def auditGroup(
    directory: Path,
    *,
    checkpoints: Collection[Checkpoint] = (),
    limit: int = LIMIT,
    report: Report = noReport,
    pause: Pause = noPause,
) -> AuditedChain:
    """
    Check the chain in a group's directory, and the other files there.

    @param checkpoints: blocks that the chain must contain.
    @param limit: how many findings are kept.
    @param report: called with the number of audited blocks, and of all blocks.
    @param pause: called between read transactions.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    earlier: list[bytes | None] = []
    # A file that cannot be read is named below.
    with suppress(OSError):
        earlier += [each.key for each in readKeyFiles(directory / KEYS_NAME)]
    try:
        audited = auditChain(
            directory / STORE_NAME,
            group=directory.name,
            checkpoints=checkpoints,
            limit=limit,
            report=report,
            pause=pause,
        )
    except (StorageRefused, StorageDamaged) as error:
        findings = Findings(directory.name, limit)
        if isinstance(error, StorageUnknown):
            findings.unaudited(STORE_NAME, str(error))
        else:
            findings.damage(STORE_NAME, str(error))
        audited = AuditedChain.unread(directory.name, findings)
    auditGroupFiles(
        directory, audited.validators, earlier, audited.findings, hasEngine=audited.hasEngine
    )
    return audited


def auditGroupFiles(
    directory: Path,
    validators: Collection[bytes] | None,
    earlier: Collection[bytes | None],
    findings: Findings,
    *,
    hasEngine: bool = False,
) -> None:
    """
    Check the keys of a group, and report unknown files in its directory.

    @param validators: the public keys that decide the next block; C{None} where unknown.
    @param earlier: the public keys that were there before the chain was read: a key change of the
        running broker may have removed them since.
    @param hasEngine: whether an engine decides, so that the keys are elsewhere.
    """
    known = _GROUP
    try:
        if hasEngine:
            known += (*BROKER_FILES, JOURNAL_NAME)
        else:
            _auditKeys(directory / KEYS_NAME, validators, earlier, findings)
        for name in unknownFiles(directory, known):
            findings.note(show(name), _kindOf(name))
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def _kindOf(name: str) -> str:
    """The kind of a file beside a chain."""
    if name.startswith(f"{STORE_NAME}.v") and name.endswith(".backup"):
        return "a copy from before an upgrade, which is not looked at"
    if fnmatch(name, refusedName("*")):
        return "blocks that a copy has refused"
    return "the file is unknown"


def _auditKeys(
    directory: Path,
    validators: Collection[bytes] | None,
    earlier: Collection[bytes | None],
    findings: Findings,
) -> None:
    if not directory.is_dir():
        findings.note(KEYS_NAME, "there are no keys: the chain can be read, but not go on")
        return
    found: set[bytes] = set()
    files = 0
    for file in readKeyFiles(directory):
        place = f"{KEYS_NAME}/{file.path.name}"
        files += 1
        if file.key is None:
            findings.damage(place, "it is not a key")
            continue
        if file.key in found:
            findings.note(place, "the same key is in another file, too")
        found.add(file.key)
        if validators is not None and file.key not in validators:
            findings.note(place, "it is the key of no replica that decides the next block")
        if not file.isPrivate:
            findings.note(place, "others than its owner may read it")
    if not files:
        findings.note(KEYS_NAME, "there are no keys: the chain can be read, but not go on")
    else:
        for index, key in enumerate(validators or ()):
            if key not in found and key not in earlier:
                findings.damage(
                    KEYS_NAME,
                    f"no file has the key of replica {index}, whose public one is {key.hex()}",
                )
    for entry in sorted(directory.iterdir()):
        if not entry.name.endswith(KEY_SUFFIX):
            findings.note(f"{KEYS_NAME}/{entry.name}", "the file is unknown")


def auditDataDirectoryFiles(dataDir: Path, findings: Findings) -> None:
    """
    Check the metadata store of a data directory, and report unknown files in it.
    """
    path = dataDir / METADATA_NAME
    known = readWrites(path)
    writes = auditMetadata(path, findings) if path.exists() else 0
    lost = "" if writes is None else findLostWrites(path, known, writes)
    if lost:
        findings.damage(METADATA_NAME, lost)
    try:
        groups = [directory.name for directory in groupDirectories(dataDir)]
        for name in unknownFiles(dataDir, (*_DATA_DIRECTORY, *groups)):
            what = "directory has no chain" if (dataDir / name).is_dir() else "file is unknown"
            findings.note(show(name), f"this {what}")
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def auditMetadata(path: Path, findings: Findings) -> int | None:
    """
    Check each row of the metadata store against its checksum.

    @return: how many writes it had; C{None} where that cannot be read.
    @raise StorageFailed: a broker began to use the file meanwhile.
    """
    writes: int | None = None
    try:
        with Snapshot.ofMetadata(path, mayBeOlder=True) as snapshot:
            if auditStructure(snapshot, METADATA_NAME, findings):
                with snapshot.moment():
                    writes = _auditRows(snapshot, findings)
            snapshot.checkUnchanged()
    except StorageUnknown as error:
        findings.unaudited(METADATA_NAME, str(error))
    except (StorageRefused, StorageDamaged) as error:
        findings.damage(METADATA_NAME, str(error))
    return writes


def _auditRows(snapshot: Snapshot, findings: Findings) -> int | None:
    """
    @return: how many writes there were; C{None} where that cannot be read.
    """
    writes: int | None = 0
    for kind, name, value, checksum in snapshot.rows(
        "SELECT kind, name, value, checksum FROM note"
    ):
        isEntry = isinstance(kind, str) and isinstance(name, str) and isinstance(value, bytes)
        isGood = isEntry and metadataChecksum(kind, name, value) == checksum
        if not isGood:
            findings.damage(
                f"{METADATA_NAME}, note {show(kind)} {show(name)}", "it is not what was written"
            )
        if (kind, name) == METADATA_WRITES:
            writes = int(value) if isGood and value.isdigit() else None
    return writes
