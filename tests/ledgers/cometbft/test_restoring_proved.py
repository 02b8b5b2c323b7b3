"""
Tests of what shows that blocks are final, on its way to a node that joins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from io import BytesIO

from attrs import evolve

from svcbroker.archive import End, StreamedBlock, StreamReader
from svcbroker.ledgers.cometbft._snapshots import Manifest, encodeChunk
from svcbroker.ledgers.cometbft.abci.messages import ApplyResult, OfferedSnapshot
from svcbroker.proofs.cometbft import Hex

from .chains import GENESIS, LATER, makeChain
from .joining import COUNT, HEIGHT, Harness, JoiningTestCase
from .support import FakeChain, replaceHeader


class ProvedTests(JoiningTestCase):
    """
    Tests for certificates, which come with blocks, also where the nodes have changed.
    """

    PIECE = 12000
    CHANGE = 22

    def proved(self, name: str) -> tuple[Harness, OfferedSnapshot]:
        harness = self.harness(name, open=False)
        makeChain(harness.path, COUNT, change=self.CHANGE, isProved=True)
        harness.application.open()
        (snapshot, *_) = self.list_(harness)
        self.assertEqual(snapshot.height, HEIGHT)
        # One piece has certificates of both sets of nodes.
        ends = Manifest.decode(snapshot.metadata).ends
        self.assertEqual(bisect_left(ends, self.CHANGE), bisect_left(ends, self.CHANGE + 2))
        return harness, snapshot

    def certificates(self, harness: Harness) -> Sequence[bytes]:
        assert harness.application.store is not None
        return [head.certificate for head in harness.application.store.blockHeads(1, HEIGHT)]

    def test_certificateIsStored(self) -> None:
        """It is stored as the sender had it."""
        there, snapshot = self.proved("proved")
        self.offer(self.here, snapshot)
        pieces = self.piecesOf(there, snapshot)
        # There was room for them.
        self.assertLess(max(map(len, pieces)), self.PIECE + 1024)
        self.applyAll(self.here, pieces)
        self.assertEqual(self.certificates(self.here), self.certificates(there))
        self.assertEqual(len([each for each in self.certificates(self.here) if each]), 20)
        state = self.here.application.machine
        assert state is not None
        self.assertEqual(state.state.validators.generation, 1)

    def test_missingCertificateKeepsChunks(self) -> None:
        """Whoever has none offers the same snapshot, in pieces with the same blocks."""
        there, snapshot = self.proved("proved")
        other = self.harness("unproved", open=False)
        makeChain(other.path, COUNT, change=self.CHANGE)
        other.application.open()
        self.assertEqual(self.list_(other), self.list_(there))
        self.offer(self.here, snapshot)
        pieces = [
            pair[index % 2]
            for index, pair in enumerate(
                zip(self.piecesOf(there, snapshot), self.piecesOf(other, snapshot), strict=True)
            )
        ]
        self.applyAll(self.here, pieces)
        self.assertTrue(any(self.certificates(self.here)))
        self.assertNotEqual(self.certificates(self.here), self.certificates(there))

    def test_invalidCertificateIsRefused(self) -> None:
        """An invalid certificate is refused, and so is that of another block or other nodes."""
        there, snapshot = self.proved("proved")
        certificates = self.certificates(there)
        pieces = self.piecesOf(there, snapshot)
        other = FakeChain(LATER, GENESIS.group, 1).add(change=replaceHeader(appHash=Hex(bytes(32))))
        self.offer(self.here, snapshot)
        for bad in (b"x", certificates[3], certificates[1][:-1], other.encode()):
            self.assertNotEqual(bad, certificates[1])
            piece = self.replaced(pieces[0], bad)
            self.assertIs(self.apply(self.here, 0, piece).result, ApplyResult.RETRY)
        self.applyAll(self.here, pieces)

    def replaced(self, piece: bytes, certificate: bytes) -> bytes:
        """The first piece, with another certificate for block 2."""
        start = 1 + 32 * piece[0]
        reader = StreamReader(BytesIO(piece[start:]))
        begin = reader.begin()
        *blocks, end = reader.rest()
        assert isinstance(end, End)
        streamed = [each for each in blocks if isinstance(each, StreamedBlock)]
        streamed[1] = evolve(streamed[1], certificate=certificate)
        path = [piece[at : at + 32] for at in range(1, start, 32)]
        return encodeChunk(begin.genesis, begin.first, streamed, end.hash, path)
