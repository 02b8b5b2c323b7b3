"""
Tests of beginning with a snapshot of a chain with erased events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, ensureDeferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import StreamedBlock
from svcbroker.chain import Kind, Transaction, decodeBody, encodeBody
from svcbroker.ledgers.cometbft._snapshots import (
    FORMAT,
    UNFINISHED,
    Manifest,
    RestoreFailed,
    SnapshotClient,
    encodeChunk,
)
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import ApplyResult, OfferResult
from svcbroker.storage import Store
from tests.archive.erasable import eventsIn, makeErasable


class Taker:
    """
    The application that continues a restored chain.
    """

    height = 0

    def __init__(self) -> None:
        self.begun: list[Path] = []

    async def begin(self, unfinished: Path) -> None:
        """Note it."""
        self.begun.append(unfinished)


class ErasedTests(SynchronousTestCase):
    """
    Tests for L{SnapshotClient} with a snapshot in which contents are missing.
    """

    def setUp(self) -> None:
        there, here = Path(self.mktemp()), Path(self.mktemp())
        here.mkdir()
        self.chain = makeErasable(there)
        self.addCleanup(self.chain.close)
        self.taker = Taker()
        self.path = here / "ledger.sqlite"

        def runInThread(f: Callable[..., Any], *args: Any) -> Deferred[Any]:
            return maybeDeferred(f, *args)

        self.restorer = SnapshotClient(self.path, runInThread, self.taker)
        self.addCleanup(self.restorer.close)

    def blocks(self) -> Sequence[StreamedBlock]:
        """The blocks of the chain, without certificates."""
        rows = [self.chain.store.block(height) for height in range(1, self.chain.head.height + 1)]
        return [
            StreamedBlock(header=row.header, certificate=b"", body=row.body, receipts=row.receipts)
            for row in rows
            if row is not None
        ]

    async def restore(self, blocks: Sequence[StreamedBlock]) -> ApplyResult:
        """Offer a snapshot of one chunk, and apply the chunk."""
        head = self.chain.head
        manifest = Manifest(genesis=self.chain.genesis, header=head, ends=[head.height])
        offered = messages.OfferedSnapshot(
            height=head.height, format=FORMAT, chunks=1, hash=head.hash, metadata=manifest.encode()
        )
        request = messages.OfferSnapshotRequest(snapshot=offered, appHash=head.hash)
        self.assertIs(await self.restorer.offer(request), OfferResult.ACCEPT)
        chunk = encodeChunk(self.chain.genesis, 1, blocks, head.hash, (), FORMAT)
        apply = messages.ApplySnapshotChunkRequest(index=0, chunk=chunk, sender="node")
        return (await self.restorer.apply(apply)).result

    def assertResult(self, blocks: Sequence[StreamedBlock], expected: ApplyResult) -> None:
        """Restoring some blocks gives a result."""
        result = self.successResultOf(ensureDeferred(self.restore(blocks)))
        self.assertIs(result, expected)

    def test_erasedContentsAreNotNeeded(self) -> None:
        """The restored chain has the same events, keys and erasures."""
        self.assertResult(self.blocks(), ApplyResult.ACCEPT)
        unfinished = self.path.with_name(self.path.name + UNFINISHED)
        self.assertEqual(self.taker.begun, [unfinished])
        with closing(Store.open(unfinished)) as store:
            self.assertEqual(eventsIn(store), eventsIn(self.chain.store))
            for table in ("key_use", "erased"):
                here, there = (
                    each._writing.execute(f"SELECT * FROM {table}").fetchall()
                    for each in (store, self.chain.store)
                )
                self.assertEqual(here, there)

    def test_withheldContentIsRefused(self) -> None:
        """A node that leaves out contents that nothing has erased does not get its snapshot in."""
        blocks = list(self.blocks())

        def withhold(transaction: Transaction) -> Transaction:
            isPublish = transaction.kind is Kind.PUBLISH and transaction.content
            return transaction.withoutContent() if isPublish else transaction

        transactions = decodeBody(blocks[-1].body, mayBeErased=True)
        body, _ = encodeBody([withhold(each) for each in transactions])
        blocks[-1] = evolve(blocks[-1], body=body)
        self.assertResult(blocks, ApplyResult.REJECT_SNAPSHOT)
        self.assertEqual(self.taker.begun, [])
        self.assertResult(self.blocks(), ApplyResult.ACCEPT)

    def test_otherReceiptsAreRefused(self) -> None:
        """Receipts that are not those of the header decide nothing."""
        blocks = [evolve(each, receipts=bytes(len(each.receipts))) for each in self.blocks()]
        failure = self.failureResultOf(ensureDeferred(self.restore(blocks)), RestoreFailed)
        self.assertIn("without its receipts", failure.getErrorMessage())
