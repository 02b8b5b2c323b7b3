"""
Tests of what snapshots are made of: where pieces end, and that nothing in one can be changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import Begin, End, StreamedBlock, StreamReader, StreamWriter
from svcbroker.chain import Genesis, leafHash, merklePath
from svcbroker.ledgers.cometbft._snapshots import (
    BLOCKS_AFTER,
    MAX_CHUNKS,
    OFFERED,
    OLD_FORMAT,
    ChunkPlan,
    Manifest,
    SnapshotInvalid,
    SnapshotServer,
    encodeChunk,
    proofRoom,
    readChunk,
)
from svcbroker.ledgers.cometbft.abci.messages import OfferedSnapshot

from .chains import GENESIS, everyOther, makeChain

PIECE = 4096
COUNT = 60


class PlanTests(SynchronousTestCase):
    """
    L{ChunkPlan}.
    """

    def sizes(self) -> Sequence[int]:
        random = Random(1)
        return [random.randrange(1000) for _ in range(500)]

    def test_planDoesNotDependOnSteps(self) -> None:
        """It is the same in whatever steps it is made, and however far."""
        whole = ChunkPlan(PIECE)
        whole.extend(self.sizes())
        stepwise = ChunkPlan(PIECE)
        for height, size in enumerate(self.sizes(), 1):
            stepwise.extend([size])
            self.assertEqual(stepwise.height, height)
            self.assertEqual(stepwise.ends(height), whole.ends(height))

    def test_chunksRespectSize(self) -> None:
        """All blocks are in one piece each; none is too large, and two would not fit in one."""
        plan = ChunkPlan(PIECE)
        sizes = [size + 64 for size in self.sizes()]
        plan.extend(self.sizes())
        ends = plan.ends(500)
        self.assertEqual(ends[-1], 500)
        pieces = [sizes[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        self.assertEqual([size for piece in pieces for size in piece], sizes)
        self.assertTrue(all(sum(piece) <= PIECE for piece in pieces))
        for one, other in pairwise(pieces):
            self.assertGreater(sum(one) + other[0], PIECE)
        self.assertGreater(len(pieces), 50)

    def test_oversizedBlockEndsSnapshots(self) -> None:
        """A block may be larger than a piece; one that the engine cannot send ends snapshots."""
        plan = ChunkPlan(1000, 5000)
        plan.extend([10, 3000, 10, 4900, 10])
        self.assertEqual(plan.ends(5), [1, 2, 3, 4, 5])
        self.assertIsNone(plan.limit)
        plan.extend([5000, 10, 6000])
        self.assertEqual(plan.limit, 5)

    def test_chunkCountIsBounded(self) -> None:
        """There are never more pieces than the engine takes."""
        plan = ChunkPlan(1)
        plan.extend([1] * (MAX_CHUNKS + 5))
        self.assertEqual(plan.limit, MAX_CHUNKS)
        self.assertEqual(len(plan.ends(MAX_CHUNKS)), MAX_CHUNKS)


class SourceTestCase(SynchronousTestCase):
    """
    A stored chain.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.calls = 0

    def path(self, name: str = "chain") -> Path:
        return self.directory / name

    def run_(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        self.calls += 1
        return maybeDeferred(call, *args)

    def source(self, interval: int = 20, step: int = 7, path: Path | None = None) -> SnapshotServer:
        return SnapshotServer(
            path or self.path(), GENESIS, interval, self.run_, ChunkPlan(PIECE), step
        )

    def list_(self, source: SnapshotServer, tip: int) -> Sequence[OfferedSnapshot]:
        return self.successResultOf(Deferred.fromCoroutine(source.list(tip)))

    def load(
        self,
        source: SnapshotServer,
        height: int,
        index: int,
        tip: int = COUNT,
        format: int = OLD_FORMAT,
    ) -> bytes:
        return self.successResultOf(Deferred.fromCoroutine(source.load(height, format, index, tip)))


class OfferingTests(SourceTestCase):
    """
    L{SnapshotServer.list}.
    """

    def heights(self, interval: int, tip: int) -> Sequence[int]:
        return [each.height for each in self.list_(self.source(interval), tip)]

    def test_snapshotHeightsFollowInterval(self) -> None:
        """
        The latest blocks with transactions at or after multiples of the interval, that have two
        blocks after them; below, powers of two.
        """
        makeChain(self.path(), COUNT)
        self.assertEqual(self.heights(10, COUNT), [50, 40, 30])
        self.assertEqual(self.heights(15, COUNT), [46, 30, 16])
        self.assertEqual(self.heights(15, 48), [46, 30, 16])
        self.assertEqual(self.heights(15, 47), [30, 16, 8])
        self.assertEqual(self.heights(1000, COUNT), [32, 16, 8])
        self.assertEqual(self.heights(1000, 34), [32, 16, 8])
        self.assertEqual(self.heights(1000, 33), [16, 8, 4])
        self.assertEqual(self.heights(1, COUNT), [58, 56, 54])
        self.assertEqual(self.heights(1000, 4), [2])
        self.assertEqual(self.heights(1000, 3), [])
        self.assertEqual(self.heights(0, COUNT), [])
        for tip in range(COUNT + 1):
            found = self.heights(10, tip)
            self.assertLessEqual(len(found), OFFERED)
            self.assertTrue(all(height <= tip - BLOCKS_AFTER for height in found))
            self.assertTrue(all(everyOther(height) is not None for height in found))

    def test_emptyChainOffersNothing(self) -> None:
        """A chain without events offers nothing."""
        makeChain(self.path(), 20, lambda height: None)
        self.assertEqual(self.heights(1, 20), [])

    def test_offersAreTheSameOnEveryNode(self) -> None:
        """Whoever has the chain offers the same, whenever he began to look, in bounded steps."""
        hashes = makeChain(self.path(), COUNT)
        makeChain(self.path("other"), COUNT)
        first, second = self.source(), self.source(step=1000, path=self.path("other"))
        for tip in range(COUNT):
            self.list_(first, tip)
        self.calls = 0
        offered = self.list_(first, COUNT)
        self.assertEqual(self.calls, 2)
        self.assertEqual(offered, self.list_(second, COUNT))
        self.assertEqual([each.height for each in offered], [40, 20, 16])
        for each in offered:
            self.assertEqual((each.hash, each.format), (hashes[each.height], OLD_FORMAT))
            manifest = Manifest.decode(each.metadata)
            self.assertEqual(manifest.genesis, GENESIS)
            self.assertEqual(manifest.encode(), each.metadata)
            self.assertEqual(each.chunks, len(manifest.ends))
            for index in range(each.chunks):
                self.assertEqual(
                    self.load(first, each.height, index), self.load(second, each.height, index)
                )
        self.assertGreater(offered[0].chunks, 3)

    def test_chunksAreServedAfterRestart(self) -> None:
        """A piece can be had of whoever was started since he offered it, in bounded steps."""
        makeChain(self.path(), COUNT)
        expected = self.load(self.source(), 40, 1)
        self.assertTrue(expected)
        self.calls = 0
        self.assertEqual(self.load(self.source(step=10), 40, 1), expected)
        self.assertEqual(self.calls, 5)

    def test_unknownChunksAreEmpty(self) -> None:
        """There are no pieces of what there is not."""
        makeChain(self.path(), COUNT)
        source = self.source()
        (latest, *_) = self.list_(source, COUNT)
        self.assertEqual(self.load(source, latest.height, latest.chunks), b"")
        self.assertEqual(self.load(source, latest.height, 2**32 - 1), b"")
        self.assertEqual(self.load(source, 0, 0), b"")
        self.assertEqual(self.load(source, COUNT - 1, 0), b"")
        self.assertEqual(self.load(source, 2**63, 0), b"")
        self.assertEqual(self.load(source, latest.height, 0, format=2), b"")
        self.assertEqual(self.load(self.source(0), latest.height, 0), b"")

    def test_nothingIsOfferedBehindOversizedBlock(self) -> None:
        """Behind a block that the engine cannot send nothing is offered."""
        makeChain(self.path(), COUNT)
        plan = ChunkPlan(PIECE, 10**6)
        source = SnapshotServer(self.path(), GENESIS, 20, self.run_, plan)
        self.assertEqual([each.height for each in self.list_(source, COUNT)], [40, 20, 16])
        plan.limit = 20
        self.assertEqual([each.height for each in self.list_(source, COUNT)], [20, 16])
        self.assertEqual(self.load(source, 40, 0), b"")
        self.assertTrue(self.load(source, 20, 0))

    def test_oversizedCertificateIsLeftOut(self) -> None:
        """A certificate larger than is reckoned for it is left out."""
        makeChain(self.path(), COUNT)
        expected = self.load(self.source(), 40, 0)
        with closing(sqlite3.connect(self.path())) as connection, connection:
            connection.execute(
                "UPDATE head SET certificate = zeroblob(?) WHERE height = 2",
                (proofRoom(len(GENESIS.validators)) + 1,),
            )
        self.assertEqual(self.load(self.source(), 40, 0), expected)

    def test_missingBlockIsReported(self) -> None:
        """A block that is missing is said to be."""
        makeChain(self.path(), COUNT)
        with closing(sqlite3.connect(self.path())) as connection, connection:
            connection.execute("DELETE FROM body WHERE height = 3")
        failure = self.failureResultOf(Deferred.fromCoroutine(self.source().list(COUNT)))
        self.assertIn("audit", failure.getErrorMessage())


class PieceTests(SourceTestCase):
    """
    L{readChunk}.
    """

    HEIGHT = 40

    def setUp(self) -> None:
        super().setUp()
        self.hashes = makeChain(self.path(), COUNT)
        source = self.source()
        (snapshot, *_) = self.list_(source, COUNT)
        self.assertEqual(snapshot.height, self.HEIGHT)
        self.manifest = Manifest.decode(snapshot.metadata)
        self.pieces = [self.load(source, self.HEIGHT, i) for i in range(snapshot.chunks)]

    def parent(self, index: int) -> bytes:
        return self.hashes[self.manifest.range(index)[0] - 1]

    def read(self, data: bytes, index: int, manifest: Manifest | None = None) -> Sequence[bytes]:
        blocks = readChunk(
            data, manifest or self.manifest, index, self.parent(index), GENESIS.validatorSet
        )
        return [block.header.hash for block in blocks]

    def refused(self, data: bytes, index: int, manifest: Manifest | None = None) -> str:
        with self.assertRaises(SnapshotInvalid) as caught:
            self.read(data, index, manifest)
        return str(caught.exception)

    def parts(self, index: int) -> tuple[list[bytes], Begin, list[StreamedBlock], End]:
        """The parts of a piece."""
        data = self.pieces[index]
        start = 1 + 32 * data[0]
        reader = StreamReader(BytesIO(data[start:]))
        begin = reader.begin()
        *blocks, end = reader.rest()
        assert isinstance(end, End)
        path = [data[at : at + 32] for at in range(1, start, 32)]
        return path, begin, [each for each in blocks if isinstance(each, StreamedBlock)], end

    def test_chunksMakeTheChain(self) -> None:
        """All pieces together are the chain."""
        read = [hash for index, data in enumerate(self.pieces) for hash in self.read(data, index)]
        self.assertEqual(read, self.hashes[1 : self.HEIGHT + 1])

    def test_changedByteIsRefused(self) -> None:
        """Not one byte can be another one, be missing, or be too much."""
        random = Random(3)
        for index in (0, 1, len(self.pieces) - 1):
            data = self.pieces[index]
            places = {*range(200), *range(len(data) - 60, len(data))}
            places |= {random.randrange(len(data)) for _ in range(300)}
            for place in places:
                changed = bytearray(data)
                changed[place] ^= 1 << random.randrange(8)
                self.refused(bytes(changed), index)
            for size in (0, 1, 33, len(data) // 2, len(data) - 1):
                self.refused(data[:size], index)
            self.refused(data + b"\0", index)

    def test_chunksAreNotInterchangeable(self) -> None:
        """No piece passes for another one."""
        for index in range(len(self.pieces)):
            for other in range(len(self.pieces)):
                if index != other:
                    self.assertIn("another", self.refused(self.pieces[index], other))

    def test_chunkOfOtherChainIsRefused(self) -> None:
        """The same piece of a chain of the same genesis, which differs, is refused."""
        for at in (2, 20, 38):

            def fill(height: int, at: int = at) -> Sequence[bytes] | None:
                contents = everyOther(height)
                if contents is None or height != at:
                    return contents
                return [bytes(len(contents[0])), *contents[1:]]

            path = self.path(f"other{at}")
            makeChain(path, COUNT, fill)
            source = self.source(path=path)
            self.list_(source, COUNT)
            for index, data in enumerate(self.pieces):
                piece = self.load(source, self.HEIGHT, index)
                if self.manifest.range(index)[1] >= at:
                    self.refused(piece, index)
                else:
                    # The same blocks, and a path that leads elsewhere.
                    self.assertEqual(piece[1 + 32 * piece[0] :], data[1 + 32 * data[0] :])
                    self.refused(piece, index)

    def test_otherLastBlockIsRefused(self) -> None:
        """Another last block is refused, although all before it are the same."""

        def fill(height: int) -> Sequence[bytes] | None:
            return [b"other"] if height == self.HEIGHT else everyOther(height)

        path = self.path("other")
        makeChain(path, COUNT, fill)
        source = self.source(path=path)
        last = len(self.pieces) - 1
        (snapshot, *_) = self.list_(source, COUNT)
        ends = Manifest.decode(snapshot.metadata).ends
        self.assertEqual(ends, self.manifest.ends)
        for index, data in enumerate(self.pieces[:-1]):
            self.assertEqual(self.load(source, self.HEIGHT, index), data)
        self.assertIn("chain", self.refused(self.load(source, self.HEIGHT, last), last))

    def test_shortChunkIsRefused(self) -> None:
        """A piece with fewer blocks than it should have is refused, also with a proof."""
        path, begin, blocks, _ = self.parts(0)
        last = begin.first + len(blocks) - 2
        hash = self.hashes[last]
        data = encodeChunk(GENESIS, begin.first, blocks[:-1], hash, path)
        self.assertIn("another", self.refused(data, 0))

    def test_wrongBlockCountIsRefused(self) -> None:
        """It is no good either where it says that it has all of them."""
        _, begin, blocks, _ = self.parts(0)
        hash = self.hashes[begin.last - 1]
        hashes = [leafHash(each) for each in self.hashes[: self.HEIGHT]]
        path = merklePath(hashes, begin.last - 1)
        whole = encodeChunk(GENESIS, begin.first, blocks[:-1], hash, path)
        file = BytesIO()
        file.write(whole[: 1 + 32 * whole[0]])
        writer = StreamWriter(file)
        writer.begin(begin)
        for block in blocks[:-1]:
            writer.block(block)
        writer.end(End(begin.last, hash))
        self.assertIn("end", self.refused(file.getvalue(), 0))

    def test_rearrangedPartsAreRefused(self) -> None:
        """Blocks that changed places or bodies, a certificate, another end: all are refused."""
        path, begin, blocks, end = self.parts(1)
        self.assertEqual(encodeChunk(GENESIS, begin.first, blocks, end.hash, path), self.pieces[1])
        swapped = [blocks[1], blocks[0], *blocks[2:]]
        bodies = [evolve(blocks[0], body=blocks[1].body), *blocks[1:]]
        certified = [evolve(blocks[0], certificate=b"x"), *blocks[1:]]
        for changed in (swapped, bodies, certified):
            self.refused(encodeChunk(GENESIS, begin.first, changed, end.hash, path), 1)
        self.refused(encodeChunk(GENESIS, begin.first, blocks, bytes(32), path), 1)
        self.refused(encodeChunk(GENESIS, begin.first, blocks, end.hash, path[:-1]), 1)
        self.refused(encodeChunk(GENESIS, begin.first, blocks, end.hash, [*path, path[0]]), 1)
        self.refused(encodeChunk(GENESIS, begin.first, [], end.hash, path), 1)

    def test_chunkMustFollowParent(self) -> None:
        """A piece follows the one before."""
        with self.assertRaises(SnapshotInvalid):
            readChunk(self.pieces[1], self.manifest, 1, bytes(32), GENESIS.validatorSet)

    def test_invalidManifestsAreRefused(self) -> None:
        """A manifest that cannot be is refused."""
        manifest = self.manifest
        data = manifest.encode()
        other = Genesis(group="other", created=1, validators=GENESIS.validators)
        bad = [
            evolve(manifest, genesis=other),
            evolve(manifest, ends=[]),
            evolve(manifest, ends=manifest.ends[:-1]),
            evolve(manifest, ends=[*manifest.ends, self.HEIGHT]),
            evolve(manifest, ends=[0, *manifest.ends]),
            evolve(manifest, ends=[manifest.ends[1], *manifest.ends]),
        ]
        for each in [*(one.encode() for one in bad), b"", data[:3], data[:50], data[:-1]]:
            self.assertRaises(SnapshotInvalid, Manifest.decode, each)
        for place in range(len(data) - 8 * len(manifest.ends)):
            changed = bytearray(data)
            changed[place] ^= 1
            try:
                found = Manifest.decode(bytes(changed))
            except SnapshotInvalid:
                continue
            # It is the header's hash that the engine has verified.
            self.assertNotEqual(found.header.hash, manifest.header.hash)
