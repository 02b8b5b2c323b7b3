"""
Every bit of small stores, changed one after the other, or a sample of them: nothing is destroyed,
denied or signed wrongly by what then starts on them.

C{SVCBROKER_SWEEP_FLIPS} is the number of bits for each kind of store. docs/decisions/damage.rst has
the table that a long run has printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from struct import error as StructError
from tempfile import TemporaryDirectory

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import METADATA_NAME, STORE_NAME, Eraser, audit, loadChain
from svcbroker.chain import CertificateInvalid, ChainState, Malformed
from svcbroker.errors import EventErased
from svcbroker.ledgers._storedledger import LedgerReader
from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs.tlog import CheckpointRefused
from svcbroker.proofs.witness import Witness, WitnessError, makeWitness
from svcbroker.proofs.witness._statefile import LAST_NAME, STATE_NAME
from svcbroker.storage import MetadataFile, StorageError, Store, tipPath

from ..proofs.tlog.support import MemoryLog
from .erasable import canary, eventsIn, makeErasable

FLIPS = int(os.environ.get("SVCBROKER_SWEEP_FLIPS", "60"))

DAMAGE = (StorageError, Malformed, CertificateInvalid, ValueError, OverflowError, StructError)
"""The errors that a ledger that starts takes for damage; see svcbroker.ledgers.copy._copyledger."""

LOG = MemoryLog(30, "log.example", b"l" * 32)


class SweepTests(SynchronousTestCase):
    """
    Bits of files of a data directory, each as it was when the next one is changed.
    """

    def setUp(self) -> None:
        temporary = TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.place = Path(temporary.name)
        self.whole = self.place / "whole" / "1"

    def sweep(
        self, name: str, judge: Callable[[Path], str], *, isRunning: bool = False
    ) -> Counter[str]:
        """
        Change bits of one file of a directory.

        @param name: the file.
        @param judge: is given a copy of the directory, and says what came of it.
        @param isRunning: whether the bit is changed when C{judge} calls L{change}, rather than
            before.
        @return: how often it has said what.
        """
        bits = (self.whole / name).stat().st_size * 8
        dice = Random(f"{name} {FLIPS}")
        chosen = range(bits) if bits <= FLIPS else sorted(dice.sample(range(bits), FLIPS))
        said: Counter[str] = Counter()
        for bit in chosen:
            target = self.place / "changed" / "1"
            shutil.copytree(self.whole.parent, target.parent)
            self.change = partial(flip, target / name, bit)
            if not isRunning:
                self.change()
            try:
                said[judge(target)] += 1
            except self.failureException as error:
                raise self.failureException(f"bit {bit} of {name}: {error}") from error
            shutil.rmtree(target.parent)
        sys.stdout.write(f"{name}: {len(chosen)} of {bits} bits: {dict(said)}\n")
        return said

    def makeChain(self, *, isRemoved: bool) -> None:
        """A chain with three erased events, whose contents are removed or wait for it."""
        chain = makeErasable(self.whole, isRemoved=isRemoved)
        self.tip = chain.head.hash
        self.root = chain.state.root
        found = eventsIn(chain.store)
        erased = {("a", 1), ("a", 4), ("by", 1)}
        self.events: dict[EventId, bytes | None] = {}
        for height in range(1, chain.store.height + 1):
            for (topic, sequence), content in found.items():
                prefix = topicPrefix(topic)
                if any(chain.store.eventPlaces(prefix, height, sequence)):
                    event = EventId(prefix, sequence, height)
                    self.events[event] = None if (topic, sequence) in erased else content
        self.assertEqual(len(self.events), len(found))
        chain.close()

    def judgeLedger(self, group: Path) -> str:
        """A broker, or a copy, that starts, finishes an erasure and is asked for all events."""
        audited = audit(group).isGood
        path = group / STORE_NAME
        before = path.read_bytes()
        try:
            store = Store.open(path)
        except DAMAGE:
            self.assertFalse(audited, "an audit takes what a broker refuses")
            self.keptIn(path, before)
            return "refused"
        try:
            try:
                stored = loadChain(store)
            except DAMAGE:
                return "refused"
            # What it would sign goes on from here.
            self.assertEqual((stored.head.hash, stored.state.root), (self.tip, self.root))
            isTold = self.erasesAndReads(store, stored.state)
        finally:
            store.close()
            self.keptIn(path, before)
        return "told" if isTold else "as before" if audited else "as before; the audit tells"

    def erasesAndReads(self, store: Store, state: ChainState) -> bool:
        """Remove what waits, and read all events; whether damage was told."""
        isTold = False
        try:
            Eraser(store).run()
        except DAMAGE:
            isTold = True
        reader = LedgerReader(state, store, lambda: 0.0, lambda: succeed(None))
        for event, content in self.events.items():
            isTold |= self.readsTruly(reader, event, content)
        return isTold

    def readsTruly(self, reader: LedgerReader, event: EventId, content: bytes | None) -> bool:
        """
        Ask for an event. It is what it was, or the answer is that something is damaged.

        @param content: its content; C{None} where it is erased.
        @return: whether damage was told.
        """
        try:
            found = reader.getEvent(event).content
        except EventErased:
            self.assertIsNone(content, f"{event} is called erased")
        except DAMAGE:
            return True
        else:
            # Where the row of an erasure is lost, its event may be shown until its content is gone.
            if content is not None:
                self.assertEqual(found, content, event)
        return False

    def keptIn(self, path: Path, before: bytes) -> None:
        """No content that nobody has erased is gone."""
        after = b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
        for event, content in self.events.items():
            if content and content in before:
                self.assertIn(content, after, f"{event} is destroyed")

    def test_ledgerWithErasedEvents(self) -> None:
        """The ledger of a broker or a copy from which contents were removed."""
        self.makeChain(isRemoved=True)
        self.assertGreater(self.sweep(STORE_NAME, self.judgeLedger).total(), 0)

    def test_ledgerThatErases(self) -> None:
        """The same where contents wait to be removed, as after a crash or in a copy."""
        self.makeChain(isRemoved=False)
        self.assertGreater(self.sweep(STORE_NAME, self.judgeLedger).total(), 0)

    def judgeRunning(self, group: Path) -> str:
        """A broker on whose file a bit changes after it has started."""
        path = group / STORE_NAME
        store = Store.open(path)
        try:
            stored = loadChain(store)
            self.change()
            before = path.read_bytes()
            isTold = self.erasesAndReads(store, stored.state)
        finally:
            store.close()
        self.keptIn(path, before)
        return "told" if isTold else "as before"

    def test_ledgerOfRunningBroker(self) -> None:
        """The ledger of a broker or a copy that runs, and removes contents."""
        self.makeChain(isRemoved=False)
        said = self.sweep(STORE_NAME, self.judgeRunning, isRunning=True)
        self.assertGreater(said.total(), 0)

    def test_tipOfLedger(self) -> None:
        """The file that names the last block."""
        self.makeChain(isRemoved=True)
        name = tipPath(Path(STORE_NAME)).name
        self.assertGreater(self.sweep(name, self.judgeLedger).total(), 0)

    def test_metadataFiles(self) -> None:
        """Notes: the file is refused, or says which changes are lost, or has all that it had."""
        self.whole.mkdir(parents=True)
        rows = {("webhook", str(each)): canary(each) for each in range(12)}
        file = MetadataFile.open(self.whole / METADATA_NAME)
        file.write(rows)
        file.close()

        def judge(directory: Path) -> str:
            return self.judgeMetadata(directory / METADATA_NAME, rows)

        for name in (METADATA_NAME, f"{METADATA_NAME}-last"):
            self.assertGreater(self.sweep(name, judge).total(), 0)

    def judgeMetadata(self, path: Path, rows: Mapping[tuple[str, str], bytes]) -> str:
        """A broker that starts on the notes."""
        try:
            file = MetadataFile.open(path)
        except StorageError:
            return "refused"
        try:
            found = file.load()
            if file.loss:
                return "told"
            self.assertEqual(found, rows)
            return "as before"
        except StorageError:
            return "refused"
        finally:
            file.close()

    def test_filesOfWitness(self) -> None:
        """A witness does not start, or refuses another history as before."""
        self.whole.mkdir(parents=True)
        makeWitness(self.whole, "w.example", lambda size: b"w" * size)
        witness = self.witness(self.whole)
        witness.addCheckpoint(LOG.request(0, 9).encode())
        witness.addCheckpoint(LOG.request(9, 20).encode())
        witness.close()
        fork = LOG.forked(3)
        for name in (STATE_NAME, LAST_NAME):

            def judge(directory: Path) -> str:
                try:
                    witness = self.witness(directory)
                except WitnessError:
                    return "refused"
                try:
                    for request in (fork.request(9, 21), fork.request(0, 9), fork.request(20, 25)):
                        with self.assertRaises((CheckpointRefused, StorageError)):
                            witness.addCheckpoint(request.encode())
                    witness.addCheckpoint(LOG.request(20, 25).encode())
                except StorageError:
                    return "refused"
                finally:
                    witness.close()
                return "as before"

            self.assertGreater(self.sweep(name, judge).total(), 0)

    def witness(self, directory: Path) -> Witness:
        """The witness in a directory."""
        return Witness.open(directory, {LOG.key.verifier.name: [LOG.key.verifier]}, lambda: 1000.0)


def flip(path: Path, bit: int) -> None:
    """Change a bit of a file where it is."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        [byte] = os.pread(descriptor, 1, bit // 8)
        os.pwrite(descriptor, bytes([byte ^ 1 << bit % 8]), bit // 8)
    finally:
        os.close(descriptor)
