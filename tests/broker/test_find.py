"""
Tests for L{svcbroker.broker.find}: the index in its files, and what follows a log and finds events.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Grants, Principal
from svcbroker.broker._groups import Groups
from svcbroker.broker.find import EventSearch, FindRequest, FoundPage
from svcbroker.broker.find._eventindex import (
    FEW_RUNS,
    ROWS_A_PAGE,
    Coverage,
    EventIndex,
    IndexDamaged,
    eventIdOf,
    extensionFingerprint,
    placeOf,
    startOf,
)
from svcbroker.broker.find._eventsearch import NEAR, RETRY, ROWS_AT_ONCE, WAIT, GroupIndex
from svcbroker.broker.subscriptions import HistoryTurns, Subscriptions
from svcbroker.errors import (
    BrokerError,
    HeightUnknown,
    LedgerUnavailable,
    NotAuthorized,
    ParameterInvalid,
    TopicNotFound,
)
from svcbroker.model import (
    EraseEvents,
    EventId,
    Moment,
    OpenTopic,
    Position,
    PublishEvent,
    Request,
    topicPrefix,
)
from svcbroker.net.budgets import Budgets, WorkBudget
from svcbroker.testing._fixtures import memoryLedger
from tests.authors import Author

from .test_restrictions import principal

END = startOf(2**47)
TWINS = "twin/45695", "twin/72377"
"""Two topics with one prefix."""


def fingerprint(number: int) -> bytes:
    """One that no other number has."""
    return sha256(b"%d" % number).digest()[:8]


def row(number: int, prefix: str = "00000001") -> bytes:
    """The row of an event, of which a block has ten."""
    return fingerprint(number) + placeOf(EventId(prefix, number + 1, number // 10 + 1))


class EventIndexTests(SynchronousTestCase):
    """
    Tests for L{EventIndex}.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.index = self.open()

    def open(self, chain: bytes = b"chain", names: Sequence[str] = ("svc-a",)) -> EventIndex:
        """Open it, as after a restart."""
        index = EventIndex(self.directory, chain, names)
        self.refused = index.open()
        self.addCleanup(index.close)
        return index

    def fill(self, first: int, last: int, size: int = 100) -> None:
        """Add the rows of some numbers, in runs of a size."""
        for start in range(first, last, size):
            rows = [row(each) for each in range(start, start + size)]
            height = (start + size - 1) // 10 + 1
            self.index.add(rows, Coverage(height=height, hash=bytes([height % 256]) * 32))

    def found(self, number: int) -> Sequence[bytes]:
        """The rows of a number."""
        return self.index.find(fingerprint(number), bytes(16), END, 10)

    def paths(self) -> Sequence[Path]:
        """Its files."""
        return sorted(self.directory.iterdir())

    def test_rowsAreFoundBeforeAndAfterMerges(self) -> None:
        """Each row is found in its run, and in what runs were merged into; others are not."""
        self.fill(0, 5000)
        for isMerged in (False, True):
            if isMerged:
                self.assertGreater(len(self.paths()), FEW_RUNS)
                for _ in self.index.merge():
                    pass
                self.assertLess(len(self.paths()), FEW_RUNS)
            for number in (*range(0, 5000, 41), 4999):
                self.assertEqual([*self.found(number)], [row(number)])
            self.assertEqual([*self.found(5000)], [])
        self.index.close()
        self.index = self.open()
        self.assertEqual(self.index.coverage, Coverage(height=500, hash=bytes([500 % 256]) * 32))
        self.assertEqual([*self.found(77)], [row(77)])
        self.assertEqual(self.refused, [])

    def test_manyRowsOfOneFingerprintArePaged(self) -> None:
        """The events of one author are given in their order, some at a time, in a range."""
        same = [b"author 1" + row(each)[8:] for each in range(3000)]
        for start in range(0, 3000, 500):
            rows = [*same[start : start + 500], *(row(each) for each in range(start, start + 500))]
            self.index.add(rows, Coverage(height=(start + 499) // 10 + 1, hash=bytes(32)))
        after, found = bytes(16), []
        while part := self.index.find(b"author 1", after, startOf(200), 70):
            found += part
            after = part[-1][8:]
        self.assertEqual(found, same[:1990])

    def test_removedRowsAreNotInTheFiles(self) -> None:
        """Nothing of a removed row is left, be it alone, many, or all of a page or of a run."""
        random = Random(1)
        self.fill(0, 4 * ROWS_A_PAGE, 2 * ROWS_A_PAGE)
        every = set(range(4 * ROWS_A_PAGE))
        first = sorted(map(row, range(2 * ROWS_A_PAGE)))
        for gone in (
            {row(5)},
            {*first[ROWS_A_PAGE:]},
            {*first[:ROWS_A_PAGE]},
            {row(each) for each in random.sample([*range(2 * ROWS_A_PAGE, 4 * ROWS_A_PAGE)], 50)},
        ):
            for _ in self.index.remove(gone):
                pass
            every -= {each for each in every if row(each) in gone}
            data = b"".join(path.read_bytes() for path in self.paths())
            for each in gone:
                self.assertNotIn(each[:8], data)
                self.assertNotIn(each[8:], data)
            for number in range(0, 4 * ROWS_A_PAGE, 3):
                expected = [row(number)] if number in every else []
                self.assertEqual([*self.found(number)], expected)
        self.index.close()
        self.index = self.open()
        self.assertEqual((self.refused, self.index.coverage.height), ([], 68))

    def test_erasedEventsAreFoundByTheirNumbers(self) -> None:
        """A scan gives the rows of a range of numbers of a prefix, and no others."""
        rows = [row(each, f"0000000{each % 3}") for each in range(1000)]
        self.index.add(rows, Coverage(height=100, hash=bytes(32)))
        found = [
            each
            for part in self.index.scan({bytes([0, 0, 0, 1]): [(5, 20), (50, 50)]})
            for each in part
        ]
        numbers = sorted(eventIdOf(each).sequence for each in found)
        self.assertEqual(numbers, [5, 8, 11, 14, 17, 20, 50])

    def test_changedBitsAreNotBelieved(self) -> None:
        """A run of which a bit was changed is refused when it is opened, or when the page is
        read; whatever is still found is right."""
        self.fill(0, 1000, 1000)
        [path] = self.paths()
        whole = path.read_bytes()
        random = Random(2)
        for place in [*random.sample(range(len(whole)), 20), 4096, 4100, 4104]:
            changed = bytearray(whole)
            changed[place] ^= 1 << random.randrange(8)
            path.write_bytes(changed)
            self.index.close()
            self.index = self.open()
            if place < 4096:
                self.assertEqual(len(self.refused), 1)
                self.assertEqual(self.index.coverage.height, 0)
                self.assertFalse(path.exists())
            else:
                caught = 0
                for number in range(0, 1000, 7):
                    try:
                        self.assertEqual([*self.found(number)], [row(number)])
                    except IndexDamaged as error:
                        caught += 1
                        self.assertEqual(error.first, 1)
                self.assertGreater(caught, 0)
        path.write_bytes(whole[:-1])
        self.index.close()
        self.index = self.open()
        self.assertEqual(self.index.coverage.height, 0)

    def test_filesOfOthersAreRefused(self) -> None:
        """Runs of another chain, or with other extensions, are told of and made anew."""
        for chain, names, why in (
            (b"other", ("svc-a",), "another chain"),
            (b"chain", ("svc-b",), "other extensions"),
        ):
            self.fill(0, 100)
            self.index.close()
            self.index = self.open(chain, names)
            self.assertIn(why, self.refused[0])
            self.assertEqual([*self.found(1)], [])
            self.index = self.open()

    def test_interruptedWritesLeaveTheRunsBefore(self) -> None:
        """What a crash leaves of a merge is removed: either the run or those it is made of."""
        self.fill(0, 100 * FEW_RUNS)
        steps = self.index.merge()
        next(steps)
        del steps
        before = {path.name: path.read_bytes() for path in self.paths() if path.suffix == ".run"}
        self.index.close()
        self.index = self.open()
        self.assertEqual({path.name for path in self.paths()}, {*before})
        for _ in self.index.merge():
            pass
        self.index.close()
        for name, data in before.items():
            (self.directory / name).write_bytes(data)
        self.index = self.open()
        self.assertEqual(len(self.paths()), 1)
        self.assertEqual([*self.found(3)], [row(3)])
        self.assertEqual(self.refused, [])

    def test_rowsOfDroppedBlocksAreGone(self) -> None:
        """A log that ends earlier has the runs after its end dropped."""
        self.fill(0, 500)
        self.index.drop(25)
        self.assertEqual(self.index.coverage.height, 20)
        self.assertEqual([*self.found(201)], [])
        self.assertEqual([*self.found(199)], [row(199)])
        self.fill(200, 300)
        self.assertEqual([*self.found(201)], [row(201)])

    def test_blocksAreAddedOnce(self) -> None:
        """Rows of blocks that are in a run are not written again."""
        self.fill(0, 100)
        self.fill(0, 100)
        self.assertEqual(len(self.paths()), 1)


class GroupTests(SynchronousTestCase):
    """
    A group in memory, with its index.
    """

    names: Sequence[str] = ("svc-order",)

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.ledger = memoryLedger(self.clock)
        self.directory = Path(self.mktemp())
        self.turns = HistoryTurns(self.clock, WorkBudget(self.clock))
        self.group = self.begin()

    def begin(self) -> GroupIndex:
        """Start an index, as after a restart."""
        index = GroupIndex(
            self.ledger,
            lambda: EventIndex(self.directory, b"chain", self.names),
            self.names,
            self.turns,
            maybeDeferred,
            self.clock,
        )
        self.successResultOf(index.start())
        self.settle()
        return index

    def end(self, index: GroupIndex) -> None:
        """Stop an index."""
        self.successResultOf(index.stop())

    def tearDown(self) -> None:
        self.end(self.group)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(30):
            self.clock.advance(0.001)

    def submit(self, *requests: Request) -> list[EventId]:
        """Have the ledger execute requests, each in a block of its own; the ids of events."""
        ids = []
        for request in requests:
            self.successResultOf(self.ledger.submitMany([request]).done)
            height = self.successResultOf(self.ledger.getStatistics()).height
            block = self.successResultOf(self.ledger.readBlock(height))
            ids += [each.eventId for each in block.events]
        self.settle()
        return ids

    def publish(self, topic: str, *contents: bytes, **extensions: str) -> list[EventId]:
        """Publish to a topic; the ids of the events."""
        named = {f"svc-{name}": value for name, value in extensions.items()}
        self.submit(OpenTopic(topic=topic))
        return self.submit(
            *(PublishEvent(topic=topic, content=each, extensions=named) for each in contents)
        )

    def rows(self, content: bytes) -> Sequence[EventId]:
        """The events that the index has of a content."""
        hash = sha256(content).digest()[:8]
        found: Sequence[EventId] = self.successResultOf(self.group.find(hash, bytes(16), END, 100))
        return found


class GroupIndexTests(GroupTests):
    """
    Tests for L{GroupIndex}.
    """

    def test_indexFollowsTheLog(self) -> None:
        """Events are found as soon as they are published, those from before a start, too."""
        [first] = self.publish("t", b"a")
        self.assertEqual([*self.rows(b"a")], [first])
        [second] = self.publish("t", b"a")
        self.assertEqual([*self.rows(b"a")], [first, second])
        self.assertEqual([*self.rows(b"b")], [])
        self.assertEqual(self.group.height, self.group.committed)

    def test_restartContinues(self) -> None:
        """A stop writes what is in memory; the next start reads only the last block, to see that
        the log is the same."""
        [first] = self.publish("t", b"a")
        self.end(self.group)
        with patch.object(self.ledger, "readBlock", wraps=self.ledger.readBlock) as reading:
            self.group = self.begin()
        self.assertEqual([each.args for each in reading.mock_calls], [(2,)])
        self.assertEqual([*self.rows(b"a")], [first])

    def test_shorterLogIsIndexedAnew(self) -> None:
        """An index of blocks that the log does not have, as after a restore, is not used."""
        self.publish("t", b"a", b"b")
        self.end(self.group)
        self.ledger = memoryLedger(self.clock)
        self.group = self.begin()
        self.assertEqual((self.group.height, [*self.rows(b"a")]), (0, []))
        self.publish("u", b"x")
        [other] = self.publish("u", b"b")
        self.assertEqual([*self.rows(b"b")], [other])
        self.assertEqual([*self.rows(b"a")], [])

    def test_erasureRemovesRows(self) -> None:
        """Rows of erased events are removed from memory and from the files, those of the other
        topic with the same prefix stay."""
        ids = {topic: self.publish(topic, b"secret", b"open", order="7") for topic in TWINS}
        self.assertEqual(len({topicPrefix(each) for each in TWINS}), 1)
        for isWritten in (False, True):
            if isWritten:
                self.end(self.group)
                self.group = self.begin()
                self.assertEqual(len([*self.directory.iterdir()]), 1)
            topic = TWINS[isWritten]
            self.submit(EraseEvents(topic=topic, ranges=[(1, 1)], account="", reason="why"))
            expected = [ids[TWINS[1]][0]] if not isWritten else []
            self.assertEqual([*self.rows(b"secret")], expected)
            self.assertEqual(len(self.rows(b"open")), 2)
        self.end(self.group)
        data = b"".join(path.read_bytes() for path in self.directory.iterdir())
        self.assertNotIn(sha256(b"secret").digest()[:8], data)
        self.assertIn(sha256(b"open").digest()[:8], data)
        for topic in TWINS:
            self.assertNotIn(placeOf(ids[topic][0]), data)
            self.assertIn(extensionFingerprint("svc-order", "7") + placeOf(ids[topic][1]), data)
        self.group = self.begin()

    def test_erasureIsMadeUpAfterACrash(self) -> None:
        """An erasure that the index had not seen when the broker was killed removes rows later."""
        self.publish("t", b"secret", b"open")
        self.end(self.group)
        self.submit(EraseEvents(topic="t", ranges=[(1, 1)], account="", reason="why"))
        self.group = self.begin()
        data = b"".join(path.read_bytes() for path in self.directory.iterdir())
        self.assertNotIn(sha256(b"secret").digest()[:8], data)
        self.assertIn(sha256(b"open").digest()[:8], data)

    def test_damagedIndexIsMadeAgain(self) -> None:
        """A call that meets damage fails with one error; then the index is made from the log."""
        [first] = self.publish("t", b"a")
        self.end(self.group)
        [path] = self.directory.iterdir()
        data = bytearray(path.read_bytes())
        data[4096 + 20] ^= 1
        path.write_bytes(data)
        self.group = self.begin()
        failure = self.failureResultOf(
            self.group.find(sha256(b"a").digest()[:8], bytes(16), END, 1), LedgerUnavailable
        )
        self.assertIn("damaged", failure.value.message)
        self.settle()
        self.assertEqual([*self.rows(b"a")], [first])
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    def test_foreignIndexIsMadeAgain(self) -> None:
        """The files of another chain are replaced."""
        [first] = self.publish("t", b"a")
        self.end(self.group)
        foreign = EventIndex(self.directory, b"other", self.names)
        foreign.open()
        foreign.add([row(1)], Coverage(height=5, hash=bytes(32)))
        foreign.close()
        self.group = self.begin()
        self.assertEqual([*self.rows(b"a")], [first])

    def test_failedLedgerIsTriedAgain(self) -> None:
        """A log that cannot be read for a while is read later, and no block is left out."""
        self.end(self.group)
        with patch.object(self.ledger, "readBlock", side_effect=LedgerUnavailable):
            self.group = self.begin()
            ids = self.ledger.submitMany(
                [OpenTopic(topic="t"), PublishEvent(topic="t", content=b"a")]
            )
            self.settle()
            self.assertEqual(self.group.height, 0)
        self.clock.advance(RETRY)
        self.settle()
        self.assertEqual(len(self.rows(b"a")), 1, ids.outcomes)

    def test_fullDiskLosesNothing(self) -> None:
        """A run that cannot be written stays in memory, and is written later."""
        with (
            patch("svcbroker.broker.find._eventsearch.RUN_ROWS", 2),
            patch.object(EventIndex, "add", side_effect=OSError(28, "No space left")),
        ):
            ids = self.publish("t", b"a", b"b", b"c")
            self.assertEqual([*self.rows(b"a")], ids[:1])
        self.clock.advance(RETRY)
        self.settle()
        self.assertEqual([*self.rows(b"c")], ids[2:])
        self.end(self.group)
        self.group = self.begin()
        self.assertEqual([*self.rows(b"a")], ids[:1])

    def test_callsWaitForTheLastBlocks(self) -> None:
        """A call waits, for a bounded time, for blocks that are near; not for an index that is
        being made."""
        self.submit(OpenTopic(topic="t"))
        with patch.object(self.ledger, "readBlock", return_value=Deferred()):
            self.ledger.submitMany([PublishEvent(topic="t", content=b"a")])
            self.assertEqual(self.group.committed, 2)
            waiting = self.group.reach(2)
            self.assertNoResult(waiting)
            self.clock.advance(WAIT)
            self.successResultOf(waiting)
            self.successResultOf(self.group.reach(2 + NEAR + 1))


class EventSearchTests(GroupTests):
    """
    Tests for L{EventSearch}.
    """

    def setUp(self) -> None:
        super().setUp()
        budgets = Budgets.of(self.clock)
        self.addCleanup(budgets.stop)
        ledgers = {"1": self.ledger}
        subscriptions = Subscriptions(
            ledgers, self.clock, self.clock.seconds, bytes, budgets=budgets
        )
        self.successResultOf(subscriptions.start())
        self.addCleanup(subscriptions.stop)
        self.groups = Groups(ledgers)
        self.search = EventSearch(
            self.groups, {"1": self.group}, subscriptions, self.turns, budgets.output, self.clock
        )
        self.output = budgets.output

    def tearDown(self) -> None:
        self.assertEqual(self.output.used, 0)
        self.end(self.group)

    def find(self, principal: Principal = ANYBODY, **given: Any) -> FoundPage:
        """Search, and give the answer."""
        if isinstance(given.get("content"), bytes):
            given["hash"] = sha256(given.pop("content")).digest()
        answer = self.search.find(principal, FindRequest(**{"group": "1", "limit": 100, **given}))
        self.settle()
        page: FoundPage = self.successResultOf(answer)
        return page

    def ids(self, principal: Principal = ANYBODY, **given: Any) -> list[EventId]:
        """The ids of the events that are found."""
        found = self.find(principal, **given)
        self.assertTrue(found.page.isAtEnd)
        self.assertEqual((found.height, found.committed), (self.group.height,) * 2)
        return [each.eventId for batch in found.page.batches for each in batch.events]

    def refused(
        self, error: type[BrokerError], principal: Principal = ANYBODY, **given: Any
    ) -> str:
        """The text of the error of a search."""
        answer = self.search.find(principal, FindRequest(**{"group": "1", "limit": 100, **given}))
        self.settle()
        text: str = self.failureResultOf(answer, error).value.message
        return text

    def test_documentIsFound(self) -> None:
        """The events with a content are found in all topics, in the order of the log, with the
        times of their blocks."""
        [first, _] = self.publish("a/b", b"document", b"other")
        self.clock.advance(60)
        [second] = self.publish("$c", b"document")
        self.assertEqual(self.ids(content=b"document"), [first, second])
        self.assertEqual(self.ids(content=b"documents"), [])
        times = [each.timestamp for each in self.find(content=b"document").page.batches]
        self.assertGreaterEqual(times[1] - times[0], 60_000)

    def test_authorsAreFound(self) -> None:
        """The signed events of an author are found, and of them those with a content."""
        author, other = Author(1), Author(2)
        [_] = self.publish("t", b"a")
        chain = self.ledger._genesis.chain
        ids = [
            self.submit(
                PublishEvent(topic="t", content=content, author=each.sign(chain, "t", content, {}))
            )[0]
            for each, content in ((author, b"a"), (other, b"a"), (author, b"b"))
        ]
        self.assertEqual(self.ids(author=author.key), [ids[0], ids[2]])
        self.assertEqual(self.ids(author=other.key), [ids[1]])
        self.assertEqual(self.ids(author=author.key, content=b"b"), [ids[2]])
        self.assertEqual(self.ids(author=bytes(32)), [])

    def test_extensionsAreFound(self) -> None:
        """Events are found by an extension that the index has, and by others beside it."""
        [first] = self.publish("t", b"a", order="7")
        [second] = self.publish("u", b"b", order="7", more="x")
        self.publish("t", b"c", order="8")
        self.publish("t", b"c", more="7")
        self.assertEqual(self.ids(extensions={"svc-order": "7"}), [first, second])
        self.assertEqual(self.ids(extensions={"svc-order": "7"}, filter="u"), [second])
        text = self.refused(ParameterInvalid, extensions={"svc-more": "x"})
        self.assertEqual(text, "svc-more is not in the index, which has: svc-order")

    def test_topicsAndTimesNarrowTheSearch(self) -> None:
        """A topic or pattern, and the place and time where the search begins and ends, leave out
        events."""
        ids = []
        for topic in ("a/b", "a/c", "d"):
            ids += self.publish(topic, b"x")
            self.clock.advance(60)
        self.assertEqual(self.ids(content=b"x", filter="a/#"), ids[:2])
        self.assertEqual(self.ids(content=b"x", filter="d"), ids[2:])
        self.assertEqual(self.ids(content=b"x", offset=ids[0]), ids[1:])
        self.assertEqual(self.ids(content=b"x", offset=Position(ids[1].height, -1)), ids[1:])
        self.assertEqual(self.ids(content=b"x", until=Position(ids[1].height, -1)), ids[:1])
        time = self.find(content=b"x").page.batches[1].timestamp
        self.assertEqual(self.ids(content=b"x", offset=Moment(time)), ids[1:])
        self.assertEqual(self.ids(content=b"x", until=Moment(time)), ids[:1])
        self.refused(TopicNotFound, hash=bytes(32), filter="e")
        self.refused(HeightUnknown, hash=bytes(32), offset=Position(99, -1))
        self.refused(HeightUnknown, hash=bytes(32), offset=EventId("00000000", 1, 2**50))

    def test_pagesHaveEachEventOnce(self) -> None:
        """A search goes on after the last event of a page, through all events."""
        self.submit(OpenTopic(topic="t"))
        contents = [b"x"] * (2 * ROWS_AT_ONCE + 5)
        self.ledger.submitMany([PublishEvent(topic="t", content=each) for each in contents])
        self.settle()
        found: list[int] = []
        given: dict[str, Any] = {}
        while True:
            answer = self.find(content=b"x", limit=30, **given)
            found += [e.eventId.sequence for b in answer.page.batches for e in b.events]
            if answer.page.isAtEnd:
                break
            given = {"offset": answer.page.next}
        self.assertEqual(found, [*range(1, len(contents) + 1)])

    def test_erasedEventsAreNotFound(self) -> None:
        """An erased event is not found, also while the index has its row."""
        ids = self.publish("t", b"x", b"x")
        with patch.object(GroupIndex, "blockCommitted"):
            self.submit(EraseEvents(topic="t", ranges=[(1, 1)], account="", reason="why"))
            self.assertEqual(len(self.rows(b"x")), 2)
            self.assertEqual(self.ids(content=b"x"), ids[1:])

    def test_unreadableEventsAreNotFound(self) -> None:
        """A client finds events of topics that it may read, and cannot tell that there are
        others."""
        self.publish("secret", b"x")
        [open] = self.publish("open", b"x")
        reader = principal(Grants.parse(["subscribe 1 open"], "ann"))
        self.assertEqual(self.ids(reader, content=b"x"), [open])
        self.refused(NotAuthorized, reader, hash=bytes(32), filter="secret")
        self.refused(NotAuthorized, reader, hash=bytes(32), filter="absent")
        nobody = principal(Grants.parse(["publish 1 #"], "ann"))
        self.assertEqual(self.ids(nobody, content=b"x"), [])

    def test_wrongRowsAreNotBelieved(self) -> None:
        """An event is given only if it is what was looked for, whatever the index says."""
        [eventId] = self.publish("t", b"x")
        absent = EventId("00000000", 1, 1)
        with patch.object(
            GroupIndex, "find", lambda *given: maybeDeferred(lambda: [absent, eventId])
        ):
            self.assertEqual(self.ids(content=b"y"), [])
            self.assertEqual(self.ids(content=b"x"), [eventId])

    def test_somethingIsLookedFor(self) -> None:
        """A search for nothing, or without an index, is refused in words."""
        self.assertEqual(self.refused(ParameterInvalid), "give hash, author, or an extension")
        self.search = EventSearch(self.groups, {})
        text = self.refused(ParameterInvalid, hash=bytes(32))
        self.assertEqual(text, "this broker keeps no index: its operator sets find")
