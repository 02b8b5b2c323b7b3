"""
Holds in stored chains: loaded, audited, exported and imported.
"""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path

from svcbroker.archive import STORE_NAME, Eraser, Erasing, exportChain, importChain, loadChain
from svcbroker.chain import Hold, Kind, Malformed, Release, Transaction, topicAddress
from svcbroker.storage import Store

from .erasable import ErasableChain
from .support import ArchiveTestCase


class HeldChain(ErasableChain):
    """A chain with holds and releases."""

    def hold(self, case: str, *patterns: str, events: tuple[int, ...] = ()) -> Transaction:
        """A hold of patterns, or of events of the topic a."""
        address = topicAddress(self.genesis.chain, "a")
        content = Hold(
            case=case,
            account="ops",
            reason="court order",
            patterns=patterns,
            events=[(address, number) for number in events],
        )
        return self.make(Kind.HOLD, "", content.encode(), 3)

    def release(self, case: str) -> Transaction:
        """A release."""
        content = Release(case=case, account="ops", reason="case closed").encode()
        return self.make(Kind.RELEASE, "", content, 3)


class HoldTests(ArchiveTestCase):
    """
    Tests with a chain of which one hold was released and two are in force.
    """

    def makeHeld(self) -> HeldChain:
        """Make the chain. It is closed."""
        self.directory.mkdir(parents=True, mode=0o700)
        chain = HeldChain(self.directory)
        chain.open("a", "b")
        chain.publish("a", b"one", b"two", b"three")
        chain.decide([chain.hold("x", "b", "c/#"), chain.hold("y", events=(1, 3))])
        chain.decide([chain.release("x"), chain.erasure("a", (1, 1)), chain.hold("x", "+/d")])
        chain.erase("a", (2, 2))
        assert Eraser(chain.store).run() is Erasing.DONE
        self.finish(chain)
        self.makeMetadata()
        return chain

    def test_holdsAreLoaded(self) -> None:
        """A state that is loaded has the holds, and the height of the latest release."""
        chain = self.makeHeld()
        store = Store.open(self.path)
        self.addCleanup(store.close)
        holds = loadChain(store).state.holds
        self.assertEqual(list(holds), list(chain.state.holds))
        self.assertEqual([each.content.case for each in holds], ["y", "x"])
        self.assertEqual((holds.released, chain.state.holds.released), (4, 4))
        last, second, first = store.holdPlaces((9, 0), 9)
        self.assertEqual((last.case, last.isReleased, second.case), ("x", False, "y"))
        self.assertEqual((first.case, first.isReleased), ("x", True))
        self.assertEqual(store.holdPlaces((first.height, first.position), 9), [])
        released = store.releasedHold(first)
        self.assertEqual((released.hold.height, released.release.height), (3, 4))
        self.assertEqual(released.release.content.reason, "case closed")

    def test_damagedHoldsAreNotLoaded(self) -> None:
        """A store without one of its holds, or with another one, is refused, and the audit says
        what is wrong."""
        self.makeHeld()
        self.good()
        whole = self.path.read_bytes()
        for statement, words in (
            ("DELETE FROM hold WHERE name = 'y'", "the row is missing"),
            ("UPDATE hold SET released_height = 6 WHERE name = 'y'", "released_height"),
            ("UPDATE hold SET entry = x'00' WHERE name = 'y'", "entry"),
            ("UPDATE hold SET name = 'z' WHERE name = 'y'", "name"),
            ("UPDATE holding SET count = 1", "holding"),
            ("UPDATE holding SET again = '3'", "holding"),
        ):
            with self.subTest(statement=statement):
                self.change(statement)
                self.bad(words)
                store = Store.open(self.path)
                try:
                    self.assertRaises(Malformed, loadChain, store)
                finally:
                    store.close()
                self.path.write_bytes(whole)

    def test_damageOfReleasesIsFound(self) -> None:
        """The audit compares the rows of holds that were released, and times and places."""
        self.makeHeld()
        whole = self.path.read_bytes()
        for statement, words in (
            ("DELETE FROM hold WHERE released_height = 4", "the row is missing"),
            ("UPDATE hold SET released_position = 1 WHERE released_height = 4", "position"),
            ("UPDATE hold SET release = x'01' WHERE released_height = 4", "release"),
            ("UPDATE hold SET released_time = 1 WHERE released_height = 4", "released_time"),
            ("UPDATE hold SET time = 1 WHERE name = 'y'", "time"),
            (
                "INSERT INTO hold SELECT 99, position, 'w', time, entry, 1, 1, 1, entry FROM hold "
                "WHERE name = 'y'",
                "the row should not be there",
            ),
        ):
            with self.subTest(statement=statement):
                self.change(statement)
                self.bad(words)
                self.path.write_bytes(whole)

    def test_importsExecuteHolds(self) -> None:
        """An imported chain has the same holds, and its audit is good."""
        chain = self.makeHeld()
        stream = BytesIO()
        exportChain(self.directory, stream)
        target = Path(self.mktemp()).absolute()
        target.mkdir()
        importChain(BytesIO(stream.getvalue()), target)
        store = Store.open(target / "1" / STORE_NAME)
        self.assertEqual(list(loadChain(store).state.holds), list(chain.state.holds))
        store.close()
        shutil.copytree(self.directory / "keys", target / "1" / "keys")
        self.good(target)
