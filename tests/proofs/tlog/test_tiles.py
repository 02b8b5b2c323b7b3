"""
Tests for tiles, proofs of entries, and L{LogMonitor}.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    History,
    Malformed,
    checkGrowth,
    growthPath,
    historyPath,
    leafHash,
    merkleRoot,
    rootOfPath,
)
from svcbroker.proofs.tlog import (
    FetchFailed,
    LogContradiction,
    LogMonitor,
    LogProof,
    Note,
    Party,
    Policy,
    Tile,
    Tiles,
    TreeHead,
    WitnessKey,
    decodeEntries,
    encodeEntries,
    hashEntries,
    neededTiles,
    parseTilePath,
    tilesBetween,
)

from .support import ORIGIN, MemoryLog

LOG = MemoryLog(70_000)
sizes = st.integers(1, 70_000) | st.sampled_from([1, 255, 256, 257, 511, 512, 65_535, 65_536])


class PathTests(SynchronousTestCase):
    """
    The paths of tiles.
    """

    def test_pathsAreThoseOfTheSpecification(self) -> None:
        """Indexes are in groups of three digits, and partial tiles have their width."""
        for tile, path in (
            (Tile(0, 0), "0/000"),
            (Tile(1, 1_234_067), "1/x001/x234/067"),
            (Tile(0, 273, 112), "0/273.p/112"),
            (Tile(7, 1000), "7/x001/000"),
        ):
            self.assertEqual(tile.path, path)
            self.assertEqual(parseTilePath(path), (tile, False))
        self.assertEqual(Tile(0, 67, 5).entriesPath, "entries/067.p/5")
        self.assertEqual(parseTilePath("entries/067.p/5"), (Tile(0, 67, 5), True))

    @given(st.integers(0, 7), st.integers(0, 2**50), st.integers(1, 256))
    def test_everyPathIsReadBack(self, level: int, index: int, width: int) -> None:
        """A tile has one path, which is read as that tile."""
        tile = Tile(level, index, width)
        self.assertEqual(parseTilePath(tile.path), (tile, False))

    def test_otherPathsAreRefused(self) -> None:
        """A second path of a tile is refused."""
        for wrong in (
            "",
            "0",
            "0/0",
            "8/000",
            "00/000",
            "0/x000/000",
            "0/x001/x000",
            "0/001/000",
            "0/000.p/0",
            "0/000.p/256",
            "0/000.p/05",
            "0/000/",
            "/0/000",
            "0/..",
            "data/000",
            "0/\u0660\u0660\u0660",
        ):
            with self.assertRaises(Malformed, msg=wrong):
                parseTilePath(wrong)

    def test_tilesOfASizeAreThoseOfTheExample(self) -> None:
        """A tree of 70,000 has the tiles that the specification counts."""
        tiles = list(tilesBetween(0, 70_000))
        self.assertEqual(len(tiles), 273 + 1 + 1 + 1 + 1)
        self.assertEqual(
            [each for each in tiles if each.width < 256],
            [Tile(0, 273, 112), Tile(1, 1, 17), Tile(2, 0, 1)],
        )
        self.assertEqual(list(tilesBetween(0, 256)), [Tile(0, 0), Tile(1, 0, 1)])
        self.assertEqual(list(tilesBetween(256, 257)), [Tile(0, 1, 1)])
        self.assertTrue(all(each.isIn(70_000) for each in tiles))
        self.assertFalse(Tile(0, 273, 113).isIn(70_000))


class ContentTests(SynchronousTestCase):
    """
    Tiles, and what follows from them.
    """

    @given(sizes, sizes)
    def test_growthFollowsFromTheNeededTiles(self, one: int, other: int) -> None:
        """The root of a size, and the growth from a smaller one, follow from a few tiles."""
        older, newer = sorted((one, other))
        source = LOG.tiles(newer, older - 1).source
        root = History.load(newer, source).root
        self.assertEqual(root, LOG.head(newer).root)
        path = growthPath(older, newer, source)
        checkGrowth(older, LOG.head(older).root, newer, root, path)
        self.assertLess(len(neededTiles(newer, older - 1)), 7)
        with self.assertRaises(Malformed):
            checkGrowth(older, LOG.head(older).root, newer, leafHash(root), path)

    @given(sizes, sizes)
    def test_pathsFollowFromTheNeededTiles(self, one: int, other: int) -> None:
        """The path of an entry follows from a few tiles."""
        index, size = min(one, other) - 1, max(one, other)
        path = historyPath(index, size, LOG.tiles(size, index).source)
        leaf = leafHash(LOG.entries[index])
        self.assertEqual(rootOfPath(leaf, index, size, path), LOG.head(size).root)

    def test_rootsAreThoseOfAllLeaves(self) -> None:
        """The root that follows from tiles is that over all hashes."""
        for size in (1, 2, 255, 256, 257, 65_536, 70_000):
            root = merkleRoot([leafHash(each) for each in LOG.entries[:size]])
            self.assertEqual(History.load(size, LOG.tiles(size).source).root, root)

    def test_missingTilesAreTold(self) -> None:
        """Without a tile there is no path, and a tile of another length is refused."""
        with self.assertRaises(Malformed):
            historyPath(5, 300, Tiles({}).source)
        with self.assertRaises(Malformed):
            Tiles({Tile(0, 0, 2): b"x" * 63})

    def test_entriesMakeTheTileOfTheirHashes(self) -> None:
        """A bundle is read back, and its hashes are those of the tile."""
        entries = LOG.entries[256:300]
        self.assertEqual(decodeEntries(encodeEntries(entries)), entries)
        self.assertEqual(hashEntries(entries), LOG.tile(Tile(0, 1, 44)))
        for wrong in (b"\x00", b"\x00\x02x", encodeEntries(entries)[:-1]):
            with self.assertRaises(Malformed):
                decodeEntries(wrong)


class ProofTests(SynchronousTestCase):
    """
    L{LogProof}.
    """

    def test_proofIsReadBackAndChecked(self) -> None:
        """The file of a proof proves its entry and no other."""
        proof = LOG.proof(1000, 3000)
        again = LogProof.decode(proof.encode())
        self.assertEqual(again, proof)
        self.assertEqual(again.check(LOG.entries[1000]), LOG.head(3000))
        with self.assertRaises(Malformed):
            again.check(LOG.entries[1001])

    def test_extraDataIsKept(self) -> None:
        """Data that the application adds is read back."""
        proof = LOG.proof(0, 1)
        with_ = LogProof(index=0, path=proof.path, checkpoint=proof.checkpoint, extra=b"\x00x")
        self.assertIn(b"\nextra AHg=\nindex 0\n", with_.encode())
        self.assertEqual(LogProof.decode(with_.encode()), with_)

    def test_malformedProofsAreRefused(self) -> None:
        """A text that is no proof is refused."""
        data = LOG.proof(5, 9).encode()
        for wrong in (
            b"",
            data.replace(b"@v1", b"@v2"),
            data.replace(b"index 5", b"index 05"),
            data.replace(b"index 5\n", b""),
            data.replace(b"\n\n", b"\n"),
            data.replace(b"index 5\n", b"index 5\n" + b"x\n"),
            data.replace(b"index 5\n", b"index 5\n" + data.split(b"\n")[2] + b"\n"),
            b"\xff" + data,
        ):
            with self.assertRaises(Malformed, msg=wrong):
                LogProof.decode(wrong).check(LOG.entries[5])


SMALL_LOG = MemoryLog(1500)
FORK = SMALL_LOG.forked(100)
WITNESS = WitnessKey("w.example", b"w" * 32)
SEEN = f"{sha256(ORIGIN.encode()).hexdigest()}/checkpoint"


class MonitorTests(SynchronousTestCase):
    """
    L{LogMonitor}.
    """

    def setUp(self) -> None:
        self.log, self.size = SMALL_LOG, 300
        self.cosigned: tuple[tuple[WitnessKey, int], ...] = ((WITNESS, 1000),)
        self.changed: dict[str, bytes] = {}
        self.witness: Mapping[str, bytes] = {
            SEEN: SMALL_LOG.checkpoint(300, (WITNESS, 1000)).encode()
        }
        self.missing: set[Tile] = set()
        self.read: list[Tile] = []
        policy = (
            f"log {SMALL_LOG.key.verifier.text}\n"
            f"witness w {WITNESS.verifier.text} https://w.example\nquorum w\n"
        )
        self.monitor = LogMonitor(Policy.parse(policy.encode()), self.fetch, self.fetchFrom)

    def fetch(self, path: str) -> bytes:
        """The answer of the log."""
        if path in self.changed:
            return self.changed[path]
        if path == "checkpoint":
            return self.log.checkpoint(self.size, *self.cosigned).encode()
        tile, isEntries = parseTilePath(path.removeprefix("tile/"))
        self.read.append(tile)
        self.assertFalse(isEntries)
        if tile in self.missing or not tile.isIn(len(self.log.entries)):
            raise FetchFailed(f"{path}: 404")
        return self.log.tile(tile)

    def fetchFrom(self, witness: Party) -> Any:
        """The answer of a witness."""
        self.assertEqual(witness.url, "https://w.example")

        def fetch(path: str) -> bytes:
            if path not in self.witness:
                raise FetchFailed("404")
            return self.witness[path]

        return fetch

    def contradiction(self) -> LogContradiction:
        """The contradiction of the log."""
        known = self.monitor.known
        with self.assertRaises(LogContradiction) as caught:
            self.monitor.check()
        self.assertIs(self.monitor.known, known)
        found: LogContradiction = caught.exception
        return found

    def test_growingLogIsGood(self) -> None:
        """A log that only grows, and that its witness has seen, is good."""
        for size in (300, 300, 301, 1024, 1500):
            self.size = size
            report = self.monitor.check()
            self.assertEqual((report.head, report.complaints), (SMALL_LOG.head(size), ()))
            [witness] = report.witnesses
            self.assertEqual((witness.name, witness.size, witness.time), ("w", 300, 1000))
            assert self.monitor.known is not None
            self.assertEqual(TreeHead.parse(self.monitor.known.text).size, size)

    def test_tilesAreReadOnceInARound(self) -> None:
        """A tile from which several things follow is fetched once."""
        self.monitor.check()
        self.size = 1500
        self.read.clear()
        self.monitor.check()
        self.assertEqual(len(self.read), len(set(self.read)))

    def test_fullTilesReplacePartialOnes(self) -> None:
        """A partial tile that is gone is read from the full one."""
        self.missing = {Tile(0, 1, 44)}
        self.assertEqual(self.monitor.check().complaints, ())

    def test_rewrittenLogIsAContradiction(self) -> None:
        """A log with another history is told, with both signed checkpoints."""
        self.monitor.check()
        self.log = FORK
        for size in (300, 400, 150, 100):
            self.size = size
            found = self.contradiction()
            self.assertEqual(
                [TreeHead.parse(each.text).size for each in found.checkpoints], [300, size]
            )

    def test_otherLogIsAContradiction(self) -> None:
        """A log in the place of the one that was known is told."""
        self.monitor.known = Note(evolve(SMALL_LOG.head(300), origin="other.example/log").text)
        self.assertIn("the log was other.example/log", str(self.contradiction()))

    def test_smallerLogIsComplainedOf(self) -> None:
        """A log that shows an earlier size than before is told, and what was known stays."""
        self.monitor.check()
        self.size = 100
        self.assertIn("had 300 before", self.monitor.check().complaints[0])
        assert self.monitor.known is not None
        self.assertEqual(TreeHead.parse(self.monitor.known.text), SMALL_LOG.head(300))

    def test_forkForUsIsSeenByTheWitness(self) -> None:
        """A monitor that was only shown the fork finds that the witness has seen another log."""
        self.log = FORK
        found = self.contradiction()
        self.assertIn("witness w", str(found))
        self.assertEqual(len(found.checkpoints), 2)

    def test_smallerLogThanTheWitnessSawIsToldOf(self) -> None:
        """A log that shows less than its witness has seen is complained of."""
        self.size = 200
        [complaint] = self.monitor.check().complaints
        self.assertIn("has seen 300", complaint)

    def test_tilesHaveToMakeTheRoot(self) -> None:
        """Tiles that do not make the signed root are a contradiction."""
        self.changed = {"tile/0/001.p/44": leafHash(b"x") * 44}
        self.assertIn("do not make the root", str(self.contradiction()))
        self.changed = {"tile/0/001.p/44": b"x"}
        self.assertIn("tiles are none", str(self.contradiction()))

    def test_unsignedCheckpointIsAContradiction(self) -> None:
        """A text that no key of the log has signed is no checkpoint."""
        other = MemoryLog(300, seed=b"o" * 32)
        text = SMALL_LOG.head(300).text
        for wrong in (
            other.checkpoint(300).encode(),
            Note(text).signedBy(WITNESS.cosign(text, 5)).encode(),
            b"nothing",
            MemoryLog(300, "other.example").checkpoint(300).encode(),
        ):
            self.changed = {"checkpoint": wrong}
            self.assertIn("signed", str(self.contradiction()))

    def test_missingCosignaturesAreComplainedOf(self) -> None:
        """Too few cosignatures are no contradiction, and told."""
        self.cosigned = ()
        [complaint] = self.monitor.check().complaints
        self.assertIn("quorum w is not reached", complaint)

    def test_badWitnessIsComplainedOf(self) -> None:
        """A witness that is away, or answers nonsense, says nothing about the log."""
        other = MemoryLog(300, seed=b"o" * 32)
        for answer in (
            {},
            {SEEN: b"nonsense"},
            {SEEN: SMALL_LOG.checkpoint(300).encode()},
            {SEEN: other.checkpoint(300, (WITNESS, 5)).encode()},
            {SEEN: SMALL_LOG.checkpoint(300, (WITNESS, 5)).encode().replace(b"300", b"301")},
        ):
            self.witness = answer
            report = self.monitor.check()
            self.assertEqual(len(report.complaints), 1, answer)
            self.assertIsNone(report.witnesses[0].size)

    def test_absentLogIsNoContradiction(self) -> None:
        """A log that cannot be fetched is not wrong by that."""
        self.missing = {Tile(0, 1, 44), Tile(0, 1)}
        with self.assertRaises(FetchFailed):
            self.monitor.check()
