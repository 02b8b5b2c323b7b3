"""
Auditing the stored chain of one group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from ..chain import Genesis, Malformed
from ..proofs import Checkpoint, isEngineCertificate
from ..storage import Snapshot, StorageError
from ._blocks import BlockAuditor, RawBlock
from ._findings import LIMIT, Findings, Report, noReport, show
from ._layout import KEYS_NAME, STORE_NAME
from ._structure import auditStructure
from ._tables import (
    PRINT_SIZE,
    SEGMENT,
    RowAuditor,
    compareReservation,
    compareState,
    storedSets,
)

BATCH_BLOCKS: Final = 256
BATCH_BYTES: Final = 16 * 1024 * 1024
"""How much is read of one moment: a running broker's log cannot be folded in meanwhile."""

_GIVE_UP: Final = 20
"""After so many reads that failed, nothing more is read."""


@frozen(kw_only=True)
class AuditedChain:
    """
    What came of auditing a chain.

    @ivar group: the id of its group, as its genesis says; that of its directory where there is
        no genesis.
    @ivar genesis: its genesis; C{None} where it cannot be read.
    @ivar tip: its last block; C{None} where its hash is not known.
    @ivar transactions: how many transactions were looked at.
    @ivar topics: how many topics there are; C{None} where nobody knows.
    @ivar validators: the public keys of the nodes that decide the next block, where known.
    @ivar findings: what was found.
    @ivar hasEngine: whether an engine decided its blocks.
    @ivar final: the height of the last block that its certificate shows to be final, and with it
        all blocks before. Only an engine's chain may go on behind it: what shows that a block is
        final comes after it, and may not have been kept.
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

    @classmethod
    def unread(cls, group: str, findings: Findings) -> AuditedChain:
        """A chain that could not even be begun with."""
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
        """Whether nothing says that it is not good."""
        return self.findings.damages == 0


def auditChain(
    path: Path,
    *,
    group: str,
    checkpoints: Collection[Checkpoint] = (),
    limit: int = LIMIT,
    report: Report = noReport,
) -> AuditedChain:
    """
    Check a chain from its genesis on: every block, every certificate, and every row that
    execution says must be there. Nothing is ever written; a broker may be using the file.

    @param path: the file.
    @param group: the id of the group that it should be of.
    @param checkpoints: blocks that it must have.
    @param limit: how many findings are kept.
    @param report: told how many blocks are done, of how many.
    @raise StorageRefused: it cannot be opened at all.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    with Snapshot.ofLedger(path) as snapshot:
        audit = _ChainAudit(snapshot, group, Findings(group, limit), checkpoints, report)
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
    ) -> None:
        self._snapshot = snapshot
        self._group = group
        self._found = findings
        self._wanted = {each.height: each for each in checkpoints}
        self._report = report
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
            genesis, storedSets(self._snapshot), self._found, hasEngine=self._hasEngine
        )
        self._rows = RowAuditor(self._snapshot, self._found)
        self._meet(0)
        while self._batch():
            pass
        for height in sorted(self._wanted):
            self._found.damage(
                "checkpoint",
                f"the chain ends at block {self._blocks.height}, before checkpoint {height}",
            )
        return self._audited(genesis)

    def _audited(self, genesis: Genesis) -> AuditedChain:
        blocks = self._blocks
        state = blocks.state
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
        self._hasEngine = self._isEngines()
        # An engine's chain is named as the engine calls it.
        if genesis.group != self._group and not self._hasEngine:
            self._found.damage("chain.genesis", f"it is the chain of group {show(genesis.group)}")
        return genesis

    def _isEngines(self) -> bool:
        """Whether an engine decides: then there are no keys here, nor certificates of nodes."""
        if self._hasKeys:
            return False
        rows = self._snapshot.rows("SELECT certificate FROM head WHERE height = 1")
        return all(isinstance(row, bytes) and isEngineCertificate(row) for (row,) in rows)

    def _batch(self) -> bool:
        """
        Look at some blocks.

        @return: whether there are more.
        """
        # Where not even the moment can be read, nothing more will be.
        isLast = True
        with self._reading("ledger.sqlite"), self._snapshot.moment():
            isLast = self._readBlocks()
            with self._reading("ledger.sqlite"):
                self._rows.compare(isLast and self._blocks.state is not None)
            if isLast:
                self._finish()
        return not isLast

    def _readBlocks(self) -> bool:
        """
        @return: whether there are no more.
        """
        ((tip,),) = self._snapshot.rows("SELECT max(height) FROM head")
        blocks, size, count = self._blocks, 0, 0
        rows = self._snapshot.rows(
            "SELECT head.height, transaction_total, hash, header, certificate, receipts, body "
            "FROM head LEFT JOIN body USING (height) WHERE head.height > ? "
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
            return self._failures >= _GIVE_UP or blocks.height >= (tip or 0)
        return count < BATCH_BLOCKS

    def _check(self, row: RawBlock) -> None:
        append = self._blocks.check(row, lambda: self._printsOf(row))
        if append is not None:
            self._rows.add(append)
            self._transactions += len(append.transactionHashes)
        self._meet(row.height)

    def _printsOf(self, row: RawBlock) -> bytes:
        """What is stored as the fingerprints of a block's transactions."""
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

    def _meet(self, height: int) -> None:
        """Compare a block with the checkpoint of its height."""
        checkpoint = self._wanted.pop(height, None)
        if checkpoint is not None and self._blocks.hash != checkpoint.hash:
            self._found.damage(
                "checkpoint",
                f"the block is not the one of checkpoint {checkpoint}: the chain was rewritten",
                height,
            )

    def _finish(self) -> None:
        """Compare what is only known after the last block, of the same moment."""
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
        state = self._blocks.state
        if state is not None:
            with self._reading("ledger.sqlite"):
                self._rows.compareCounts()
            with self._reading("topic, account"):
                compareState(self._snapshot, state, self._found)

    @contextmanager
    def _reading(self, place: str) -> Iterator[None]:
        """What cannot be read is a finding."""
        try:
            yield
        except StorageError as error:
            self._found.damage(place, f"it cannot be read: {error}")
