"""
Removing the contents of erased events.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import Eraser, Erasing, loadChain
from svcbroker.archive._eraser import stripBlock
from svcbroker.chain import Kind, Transaction
from svcbroker.storage import ErasableBlock, StorageDamaged, Store
from tests import examples
from tests.archive.erasable import ErasableChain, canary, eventsIn, filesWith, reopened


class ErasingTestCase(SynchronousTestCase):
    """
    A test with a chain in a directory of its own.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "ledger.sqlite"
        self.chain = ErasableChain(self.directory)
        self.addCleanup(self.chain.close)

    def erase(self) -> None:
        """Remove what was erased."""
        self.assertIs(Eraser(self.chain.store).run(), Erasing.DONE)

    def assertGone(self, content: bytes) -> None:
        """A content is in no file."""
        self.assertEqual(filesWith(self.directory, content), [])


class ErasingTests(ErasingTestCase):
    """
    Tests for what is removed and what stays.
    """

    def test_contentIsInNoFile(self) -> None:
        """Content, salt, signature and private extensions are gone from all files; heads, public
        extensions and other events stay."""
        chain = self.chain
        chain.open("a", "b")
        private, public = canary("private").decode(), canary("public").decode()
        extensions = {"svc-private-note": private, "svc-note": public}
        gone, kept = canary("gone"), canary("kept")
        publish = chain.say("a", gone, author="ann", extensions=extensions)
        chain.decide([chain.say("b", kept), publish, chain.say("a", kept)])
        assert publish.claims is not None
        assert publish.claims.author is not None
        secrets = (gone, private.encode(), publish.seal[:32], publish.claims.author.signature)
        for secret in secrets:
            self.assertNotEqual(filesWith(self.directory, secret), [])
        chain.erase("a", (1, 1))
        self.assertIs(Eraser(chain.store).step(), Erasing.MORE)
        self.erase()
        for secret in secrets:
            self.assertGone(secret)
        self.assertNotEqual(filesWith(self.directory, public.encode()), [])
        self.assertEqual(eventsIn(chain.store), {("b", 1): kept, ("a", 1): None, ("a", 2): kept})

    def test_eventsOfVersion1AreErased(self) -> None:
        """Contents of transactions of version 1 are erased, too; an empty content stays."""
        chain = self.chain
        chain.open("a")
        chain.publish("a", canary(1), b"", canary(2))
        chain.erase("a", (1, 2))
        self.erase()
        self.assertGone(canary(1))
        self.assertEqual(
            eventsIn(chain.store), {("a", 1): None, ("a", 2): b"", ("a", 3): canary(2)}
        )

    def test_manyEventsOfABlockTakeAsLongAsOne(self) -> None:
        """Stripping a block does not compare each of its events with each range."""
        chain, count, times = self.chain, 4000, []
        chain.open("a")
        chain.publish("a", *(b"%d" % number for number in range(count)))
        row = chain.store.block(chain.head.height)
        assert row is not None
        for ranges in ([(1, 1)], [(number, number) for number in range(1, count, 2)]):
            block = ErasableBlock(
                height=row.height,
                header=row.header,
                body=row.body,
                receipts=row.receipts,
                erased={"a": ranges},
            )
            took = []
            for _ in range(3):
                started = time.process_time()
                self.assertIsNotNone(stripBlock(block, chain.genesis.chain))
                took.append(time.process_time() - started)
            times.append(min(took))
        self.assertLess(times[1], 4 * times[0])

    def test_refusedPublishIsStoredWithoutContent(self) -> None:
        """Of a publish of version 2 that was not done, the content is never stored."""
        chain = self.chain
        chain.openFor("a", "ann")
        texts = [canary(number) for number in range(5)]
        chain.decide(
            [
                chain.say("a", texts[0], author="ann", isSigned=False),
                chain.say("a", texts[1]),
                chain.say("a", texts[2], author="ann", key="k"),
                chain.say("a", texts[3], author="ann", key="k"),
                chain.say("nowhere", texts[4]),
            ]
        )
        self.assertEqual(eventsIn(chain.store), {("a", 1): texts[2]})
        found = [bool(filesWith(self.directory, text)) for text in texts]
        self.assertEqual(found, [False, False, True, False, False])

    def test_useHasNoDigestAfterwards(self) -> None:
        """The hash of an erased content is gone with it; the key stays in use."""
        chain = self.chain
        chain.open("a")
        chain.decide(
            [
                chain.say("a", canary(1), key="one"),
                chain.say("a", canary(2), key="two", author="ann"),
                chain.say("a", canary(3), key="three"),
            ]
        )
        chain.erase("a", (1, 2))
        self.erase()
        with closing(sqlite3.connect(self.path)) as connection:
            rows = dict(connection.execute("SELECT key, digest IS NULL FROM key_use").fetchall())
        self.assertEqual(rows, {"one": 1, "two": 1, "three": 0})
        keys = loadChain(chain.store).state.keys
        owner = self.chain.owner
        uses = keys.find([(owner, "one"), (owner, "three"), (owner, "four")])
        use = uses.pop((owner, "one"))
        self.assertEqual((use.sequence, use.digest), (1, None))
        self.assertEqual(list(uses), [(owner, "three")])

    def test_lateErasuresAreFound(self) -> None:
        """Erasures that come while others are removed are removed, too, and what is erased
        twice."""
        chain = self.chain
        chain.open("a", "b")
        for number in range(150):
            chain.decide([chain.say("a", canary("a", number)), chain.say("b", canary("b", number))])
        chain.erase("a", (1, 100))
        eraser = Eraser(chain.store)
        eraser.step()
        chain.decide([chain.erasure("b", (20, 40), (60, 149)), chain.erasure("a", (50, 110))])
        eraser.step()
        chain.erase("a", (111, 111))
        self.erase()
        events = eventsIn(chain.store)
        for number in range(150):
            isErased = number < 111
            self.assertEqual(events["a", number + 1] is None, isErased)
            self.assertEqual(bool(filesWith(self.directory, canary("a", number))), not isErased)
            isErased = 20 <= number + 1 <= 40 or 60 <= number + 1 <= 149
            self.assertEqual(events["b", number + 1] is None, isErased)
            self.assertEqual(bool(filesWith(self.directory, canary("b", number))), not isErased)

    def test_spaceComesBack(self) -> None:
        """The file gets smaller by what was erased."""
        chain = self.chain
        chain.open("a")
        for number in range(20):
            chain.decide([chain.say("a", canary(number) * 1500)])
        chain.store.foldLog()
        before = chain.store.size()
        chain.erase("a", (1, 15))
        self.erase()
        chain.store.foldLog()
        self.assertLess(chain.store.size(), before / 2)
        self.assertEqual(len([text for text in eventsIn(chain.store).values() if text]), 5)

    def test_spaceOfSmallBlocksComesBack(self) -> None:
        """Blocks that share pages are written close together where none has contents any more; what
        is left, and what comes later, can be erased without a trace."""
        chain = self.chain
        chain.open("a")
        for number in range(1500):
            chain.decide([chain.say("a", canary(number) * (number % 40))])
        chain.store.foldLog()
        before = chain.store.size()
        for first in range(1, 1100, 100):
            chain.erase("a", (first, first + 99))
            self.erase()
        chain.store.foldLog()
        self.assertLess(chain.store.size(), before * 0.65)
        chain.erase("a", (1101, 1400))
        self.erase()
        events = eventsIn(chain.store)
        self.assertEqual([number for (_, number), text in events.items() if text is None][-1], 1400)
        self.assertEqual(events["a", 1500], canary(1499) * 19)
        data = b"".join(path.read_bytes() for path in self.directory.iterdir())
        for number in range(1400):
            self.assertNotIn(canary(number)[:32], data)
        chain.store.close()
        with closing(reopened(self.path)) as store:
            self.assertEqual(eventsIn(store), events)

    def test_readerDelaysTheEnd(self) -> None:
        """While another process reads the file, its log may still have the content; afterwards it
        is removed."""
        chain = self.chain
        chain.open("a")
        chain.publish("a", canary(1))
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM head").fetchall()
            chain.erase("a", (1, 1))
            self.assertIs(Eraser(chain.store).run(), Erasing.WAITING)
            self.assertNotEqual(filesWith(self.directory, canary(1)), [])
        self.erase()
        self.assertGone(canary(1))

    def test_upgradeCopyIsRemoved(self) -> None:
        """A copy that was made before an upgrade has the content, too."""
        chain = self.chain
        chain.open("a")
        chain.publish("a", canary(1))
        copy = self.directory / "ledger.sqlite.v3.backup"
        shutil.copy(self.path, copy)
        (self.directory / "ledger.sqlite.v3.backup.new").write_bytes(b"half a copy")
        chain.publish("a", canary(2))
        chain.erase("a", (2, 2))
        self.erase()
        self.assertFalse(copy.exists())
        self.assertEqual(list(self.directory.glob("*backup*")), [])

    def test_damagedFileIsReported(self) -> None:
        """An eraser tells a damaged file as such, whichever step comes to it."""
        self.chain.open("a")
        for table in ("compacted", "erasing"):
            self.chain.store._writing.execute(f"DROP TABLE {table}")
            self.assertRaises(StorageDamaged, Eraser(self.chain.store).run)

    def test_chainWithoutErasuresKeepsItsBackup(self) -> None:
        """A chain without erasures has its upgrade copy afterwards."""
        self.chain.open("a")
        copy = self.directory / "ledger.sqlite.v3.backup"
        copy.write_bytes(b"")
        self.erase()
        self.assertTrue(copy.exists())


class DamagedTableTests(ErasingTestCase):
    """
    Tests for numbers of the tables of erased events that a damaged disk has changed.
    """

    def setUp(self) -> None:
        super().setUp()
        chain = self.chain
        chain.open("a", "b")
        chain.publish("a", *(canary("a", number) for number in range(1, 7)))
        chain.publish("a", *(canary("a", number) for number in range(7, 14)))
        chain.publish("b", *(canary("b", number) for number in range(1, 14)))
        chain.publish("a", b"last")
        chain.erase("a", (3, 5), (12, 12))
        chain.erase("b", (9, 10))

    def assertRefused(self, *statements: str, isPartly: bool = False) -> None:
        """With a table changed, no content of an event that was not erased is removed."""
        store = self.chain.store
        before = eventsIn(store)
        for statement in statements:
            self.assertEqual(store._writing.execute(statement).rowcount, 1)
        self.assertRaises(StorageDamaged, Eraser(store).run)
        after = eventsIn(store)
        self.assertTrue(isPartly or after == before)
        for event, content in after.items():
            isErased = event in {("a", 3), ("a", 4), ("a", 5), ("a", 12), ("b", 9), ("b", 10)}
            self.assertTrue(isErased or content == before[event], event)

    def test_longerWaitingRangeIsRefused(self) -> None:
        """Events 3 to 13 instead of 3 to 5: nothing is removed."""
        self.assertRefused("UPDATE erasing SET last = 13 WHERE topic = 0 AND first = 3")

    def test_everyOtherWaitingRangeIsRefused(self) -> None:
        """Whichever number of a waiting row is changed, and by however much."""
        for column, values in (
            ("first", (1, 2, 4, 7, 11, 19, 2**62)),
            ("last", (1, 2, 4, 7, 13, 21, 2**62)),
            ("topic", (1, 2, 4, 2**40)),
            ("height", (1, 3, 5, 6, 8, 99, 2**62)),
        ):
            for value in values:
                with self.subTest(column=column, value=value):
                    writing = self.chain.store._writing
                    rows = writing.execute("SELECT * FROM erasing").fetchall()
                    # Located: it is in block 2.
                    writing.execute("UPDATE erasing SET height = 2 WHERE topic = 0 AND first = 3")
                    change = f"UPDATE erasing SET {column} = {value} WHERE height = 2"
                    self.assertRefused(change, isPartly=True)
                    writing.execute("DELETE FROM erasing")
                    writing.executemany("INSERT INTO erasing VALUES (?, ?, ?, ?)", rows)

    def test_rangesThatNoBlockHasErasedAreRefused(self) -> None:
        """Ranges on which both tables agree are refused if the chain has no such erasure."""
        for statements in (
            (
                "UPDATE erased SET last = 7 WHERE first = 3",
                "UPDATE erasing SET last = 7 WHERE first = 3",
            ),
            ("UPDATE erased SET height = 8 WHERE first = 3",),
            ("UPDATE erased SET height = 3 WHERE first = 3",),
            ("UPDATE erased SET height = 99 WHERE first = 3",),
            ("UPDATE erased SET position = 1 WHERE first = 3",),
            (
                "UPDATE erased SET topic = 1 WHERE first = 3",
                "UPDATE erasing SET topic = 1 WHERE first = 3",
            ),
        ):
            with self.subTest(statements=statements):
                writing = self.chain.store._writing
                writing.execute("SAVEPOINT undamaged")
                tables = [
                    writing.execute(f"SELECT * FROM {t}").fetchall() for t in ("erased", "erasing")
                ]
                writing.execute("RELEASE undamaged")
                self.assertRefused(*statements, isPartly=True)
                for table, rows in zip(("erased", "erasing"), tables, strict=True):
                    writing.execute(f"DELETE FROM {table}")
                    marks = ", ".join("?" * len(rows[0]))
                    writing.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self.erase()
        self.assertGone(canary("a", 3))

    def test_damagedErasureRemovesNothing(self) -> None:
        """An erasure that is not the one of its block's header is none."""
        store = self.chain.store
        row = store.block(6)
        assert row is not None
        ranges = (3).to_bytes(8, "big") + (5).to_bytes(8, "big")
        self.assertIn(ranges, row.body)
        body = row.body.replace(ranges, (3).to_bytes(8, "big") + (7).to_bytes(8, "big"))
        store._writing.execute("UPDATE body SET body = ? WHERE height = 6", (body,))
        self.assertRaises(StorageDamaged, Eraser(store).run)
        for number in range(3, 14):
            self.assertNotEqual(filesWith(self.directory, canary("a", number)), [])

    def test_indexThatLeavesOutEventsIsRefused(self) -> None:
        """A range of two blocks of which the index lacks the second is not taken for removed."""
        self.erase()
        chain = self.chain
        chain.erase("a", (6, 8))
        chain.store._writing.execute("UPDATE topic_block SET first_sequence = 9 WHERE height = 3")
        self.assertRaises(StorageDamaged, Eraser(chain.store).run)
        self.assertNotEqual(filesWith(self.directory, canary("a", 8)), [])


class RandomChain:
    """
    A chain of random events of both versions, of which some are erased.

    @ivar contents: what was published, by topic and sequence number.
    @ivar erased: what of that was erased.
    """

    TOPICS = ("a", "b", "c/d", "by")

    def __init__(self, directory: Path, seed: int) -> None:
        self.contents: dict[tuple[str, int], bytes] = {}
        self.erased: set[tuple[str, int]] = set()
        self.chain = ErasableChain(directory)
        self.chain.open("a", "b", "c/d")
        self.chain.openFor("by", "ann", "bob")
        self._directory = directory
        self._random = Random(seed)
        self._counts = dict.fromkeys(self.TOPICS, 0)

    def grow(self, blocks: int, largest: int) -> None:
        """
        Make blocks.

        @param largest: the size of the largest contents, roughly.
        """
        for _ in range(blocks):
            transactions = [
                self._publish(largest) for _ in range(self._random.choice((0, 1, 1, 1, 2, 5, 12)))
            ]
            topic = self._random.choice(self.TOPICS)
            if self._counts[topic] and self._random.random() < 0.5:
                first = self._random.randint(1, self._counts[topic])
                last = self._random.randint(first, min(self._counts[topic], first + 6))
                transactions.append(self.chain.erasure(topic, (first, last)))
                self.erased.update((topic, number) for number in range(first, last + 1))
            self.chain.decide(transactions)

    def _publish(self, largest: int) -> Transaction:
        random, topic = self._random, self._random.choice(self.TOPICS)
        self._counts[topic] += 1
        size = int(largest ** random.random())
        content = (canary(topic, self._counts[topic]) * (size // 64 + 1))[: max(64, size)]
        self.contents[topic, self._counts[topic]] = content
        if topic == "by":
            return self.chain.say(topic, content, author=random.choice(("ann", "bob")))
        if random.random() < 0.3:
            return self.chain.transaction(Kind.PUBLISH, topic, content)
        key = f"{topic}{self._counts[topic]}" if random.random() < 0.5 else None
        return self.chain.say(topic, content, key=key)

    def check(self, directory: Path) -> None:
        """
        Check that in a closed copy everything that was erased is gone, and the rest is there.
        """
        store = reopened(directory / "ledger.sqlite")
        try:
            assert Eraser(store).run() is Erasing.DONE
            found = eventsIn(store)
        finally:
            store.close()
        files = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
        for event, content in self.contents.items():
            isErased = event in self.erased
            assert found.pop(event) == (None if isErased else content), event
            if isErased:
                # In halves, since a page may end in the middle.
                assert content[:32] not in files, event
                assert content[32:64] not in files, event
        assert not found, found


class RandomTests(SynchronousTestCase):
    """
    Tests with random chains.
    """

    def make(self, seed: int) -> RandomChain:
        """A chain in a directory of its own."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        chain = RandomChain(self.directory, seed)
        self.addCleanup(chain.chain.close)
        return chain

    @settings(max_examples=examples(12), deadline=None, derandomize=True, database=None)
    @given(st.integers(0, 2**32), st.sampled_from((200, 3000, 30_000)))
    def test_onlyWhatIsErasedIsGone(self, seed: int, largest: int) -> None:
        """Whatever is erased, and whenever the eraser runs, it is in no byte of any file
        afterwards, and all else can be read."""
        made = self.make(seed)
        random = Random(seed)
        for _ in range(4):
            made.grow(random.randint(1, 25), largest)
            eraser = Eraser(made.chain.store)
            for _ in range(random.choice((0, 1, 3, 99))):
                eraser.step()
        made.chain.close()
        made.check(self.directory)

    def test_crashAtEveryStatement(self) -> None:
        """A process that dies before any statement of the eraser leaves files with which the next
        one finishes."""
        made = self.make(5)
        made.grow(30, 2500)
        made.chain.close()
        shutil.copy(self.directory / "ledger.sqlite", self.directory / "ledger.sqlite.v3.backup")
        copies: list[Path] = []

        def crash() -> None:
            copies.append(self.directory.with_name(f"{self.directory.name}-{len(copies)}"))
            shutil.copytree(self.directory, copies[-1])

        class Crashing(sqlite3.Connection):
            """Copies all files before it writes."""

            def execute(self, statement: str, *parameters: Any) -> Any:
                if isErasing and not statement.startswith("SELECT"):
                    crash()
                return super().execute(statement, *parameters)

            def executemany(self, *arguments: Any) -> Any:
                if isErasing:
                    crash()
                return super().executemany(*arguments)

        isErasing = False
        store = Store.open(
            self.path(), connect=lambda *a, **k: sqlite3.connect(*a, **k, factory=Crashing)
        )
        self.addCleanup(store.close)
        isErasing = True
        self.assertIs(Eraser(store).run(), Erasing.DONE)
        crash()
        isErasing = False
        self.assertGreater(len(copies), 100)
        for copy in copies[:: max(1, len(copies) // 60)]:
            made.check(copy)
        made.check(copies[-1])

    def path(self) -> Path:
        """The file of the chain."""
        return self.directory / "ledger.sqlite"
