"""
Tests for L{LogMonitor}.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import leafHash
from svcbroker.proofs.tlog import (
    FetchFailed,
    LogContradiction,
    LogMonitor,
    Note,
    Party,
    Policy,
    Tile,
    TreeHead,
    WitnessKey,
    parseTilePath,
)

from .support import ORIGIN, MemoryLog

LOG = MemoryLog(1500)
FORK = LOG.forked(100)
WITNESS = WitnessKey("w.example", b"w" * 32)
SEEN = f"{sha256(ORIGIN.encode()).hexdigest()}/checkpoint"


class MonitorTests(SynchronousTestCase):
    """
    L{LogMonitor}.
    """

    def setUp(self) -> None:
        self.log, self.size = LOG, 300
        self.cosigned: tuple[tuple[WitnessKey, int], ...] = ((WITNESS, 1000),)
        self.changed: dict[str, bytes] = {}
        self.witness: Mapping[str, bytes] = {SEEN: LOG.checkpoint(300, (WITNESS, 1000)).encode()}
        self.missing: set[Tile] = set()
        self.read: list[Tile] = []
        policy = (
            f"log {LOG.key.verifier.text}\n"
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
            self.assertEqual((report.head, report.complaints), (LOG.head(size), ()))
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
        self.monitor.known = Note(evolve(LOG.head(300), origin="other.example/log").text)
        self.assertIn("the log was other.example/log", str(self.contradiction()))

    def test_smallerLogIsComplainedOf(self) -> None:
        """A log that shows an earlier size than before is told, and what was known stays."""
        self.monitor.check()
        self.size = 100
        self.assertIn("had 300 before", self.monitor.check().complaints[0])
        assert self.monitor.known is not None
        self.assertEqual(TreeHead.parse(self.monitor.known.text), LOG.head(300))

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
        text = LOG.head(300).text
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
            {SEEN: LOG.checkpoint(300).encode()},
            {SEEN: other.checkpoint(300, (WITNESS, 5)).encode()},
            {SEEN: LOG.checkpoint(300, (WITNESS, 5)).encode().replace(b"300", b"301")},
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
