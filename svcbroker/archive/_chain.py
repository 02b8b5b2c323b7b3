"""
Auditing the stored chain of one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from ..chain import Genesis, Malformed
from ..proofs import Checkpoint, isEngineCertificate
from ..storage import (
    PRINT_SIZE,
    SEGMENT,
    Snapshot,
    StorageError,
    StorageRefused,
    Tip,
    readTip,
    tipPath,
)
from ._auditkeys import KeyAuditor
from ._blocks import BlockAuditor, RawBlock
from ._findings import LIMIT, Findings, Pause, Report, noPause, noReport, show
from ._layout import KEYS_NAME, STORE_NAME
from ._replay import BATCH_BLOCKS, BATCH_BYTES, checkFormat
from ._tables import (
    RowAuditor,
    auditStructure,
    compareCompacted,
    compareCompatible,
    compareReservation,
    compareState,
    storedSets,
)

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
            "padding FROM head LEFT JOIN body USING (height) WHERE head.height > ? "
            "ORDER BY head.height LIMIT ?",
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
            with self._reading("key_use, erased, erasing"):
                self._keys.compare(self._blocks.replay.missing)

    @contextmanager
    def _reading(self, place: str) -> Iterator[None]:
        """Report a failed read as damage."""
        try:
            yield
        except StorageError as error:
            self._found.damage(place, f"it cannot be read: {error}")
