"""
Tests for L{benchmarks.growth}: requests and the report.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.growth._asking import (
    CLIENTS,
    Speed,
    blockLists,
    getEvents,
    publishMany,
    publishOne,
    topicLists,
)
from benchmarks.growth._chain import Length, Sample, sizesUpTo
from benchmarks.growth._connections import Connections
from benchmarks.growth._contents import Contents
from benchmarks.growth._daemon import Run
from benchmarks.growth._kept import Kept
from benchmarks.growth._page import (
    chainSection,
    connectionsSection,
    contentsSection,
    keptSection,
    topicsSection,
)
from benchmarks.growth._topics import Topics
from benchmarks.report import writeReport
from svcbroker.model import EventId
from tools.vectors.signedchain import SignedChain

from .test_report import requireDrawing

START = Run(seconds=0.5, cpu=0.4, memory=2**26)


def speed(cpu: float) -> Speed:
    """A speed that takes so much processor time."""
    return Speed(rate=1000.0, cpu=cpu, p50=1.0, p99=2.0)


def topicsIn(frame: bytes) -> list[str]:
    """The topics that a batch publishes to."""
    body = frame.partition(b"\r\n\r\n")[2]
    return [call["params"]["topic"] for call in msgspec.json.decode(body)]


class AskingTests(SynchronousTestCase):
    """
    Requests of the load.
    """

    def test_everyClientPublishesToEveryTopicAlike(self) -> None:
        """Every client publishes to all topics alike, and each starts with another."""
        topics = [str(number) for number in range(1000)]
        load = publishMany(topics, 10, batch=100, clients=4)
        firsts = set()
        for number in range(4):
            frames = load.frames(number)
            self.assertEqual(
                Counter(t for frame in frames for t in topicsIn(frame)), dict.fromkeys(topics, 1)
            )
            firsts.add(topicsIn(frames[0])[0])
        self.assertEqual(len(firsts), 4)

    def test_batchRepeatsFewTopics(self) -> None:
        """A batch goes to few topics more than once."""
        load = publishMany(["a", "b"], 10, batch=100)
        (frame,) = load.frames(0)
        self.assertEqual(Counter(topicsIn(frame)), {"a": 50, "b": 50})
        self.assertFalse(load.isOwn)
        self.assertEqual(load.wantedTimes, 100)

    def test_onePublishHasContentOfSize(self) -> None:
        """One publish has a content of the size."""
        (frame,) = publishOne(["t"], 5).frames(0)
        self.assertTrue(frame.endswith(b"topic=t&content=xxxxx"), frame)

    def test_askedEventIdsExist(self) -> None:
        """Requested ids are of existing events, of all topics and blocks."""
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = SignedChain(directory)
        self.addCleanup(chain.close)
        chain.open("a", "b", "none")
        known = {str(each) for each in chain.publish("a", b"1", b"2")}
        known |= {str(each) for each in chain.publish("b", b"3")}
        load = getEvents(directory / "ledger.sqlite", Random(1), 1)
        asked = set()
        for number in range(CLIENTS):
            for frame in load.frames(number):
                asked.add(frame.split(b" ")[1].partition(b"eventId=")[2].decode("ascii"))
        self.assertEqual({str(EventId.parse(each)) for each in asked}, known)

    def test_askedPagesAreWithinList(self) -> None:
        """Requested pages are spread over the list, and none is behind its end."""
        for load, name, lowest, highest in (
            (topicLists(95, Random(1)), b"pageIndex=", 0, 9),
            (blockLists(95, Random(1)), b"pageNumber=", 1, 10),
        ):
            pages = {
                int(frame.partition(name)[2].partition(b"&")[0])
                for number in range(CLIENTS)
                for frame in load.frames(number)
            }
            self.assertEqual((min(pages), max(pages)), (lowest, highest))


class PageTests(SynchronousTestCase):
    """
    The report.
    """

    def test_chainIsMeasuredAtPowersOfTen(self) -> None:
        """A chain is measured at every power of ten, and at its full length."""
        self.assertEqual(sizesUpTo(1000), [1000])
        self.assertEqual(sizesUpTo(25_000), [1000, 10_000, 25_000])
        self.assertEqual(sizesUpTo(10_000_000)[-2:], [1_000_000, 10_000_000])

    def test_pageHasAllCurvesAndNumbers(self) -> None:
        """All curves are on it, with their numbers."""
        requireDrawing()
        lengths = [
            Length(
                events=events,
                blocks=events // 100,
                disk=410.0,
                start=START,
                crashed=START,
                speeds={"getEvent": speed(cpu)},
                commands={"audit": Run(seconds=1.0, cpu=events / 2e5, memory=2**26)},
            )
            for events, cpu in ((1000, 40.0), (10_000_000, 50.0))
        ]
        samples = [Sample(events=number, memory=2**26) for number in range(3)]
        topics = [
            Topics(
                count=count,
                opened=speed(100.0),
                start=Run(seconds=1.0, cpu=1.0, memory=2**26 + 700 * count),
                memory=2**27,
                disk=2**20,
                speeds={"list": speed(30.0)},
            )
            for count in (1, 1001)
        ]
        contents = [
            Contents(
                size=size, publish=speed(50.0), getEvent=speed(60.0), disk=2.0 * size, memory=2**26
            )
            for size in (100, 2**20)
        ]
        connections = [
            Connections(
                count=count, publish=speed(50.0), state=speed(25.0), memory=2**26 + 2048 * count
            )
            for count in (1, 10_001)
        ]
        sessions = [
            Kept(
                count=count,
                made=speed(700.0),
                start=Run(seconds=1.0, cpu=1.0, memory=2**26 + 3072 * count),
                memory=2**27,
                speeds={"publish": speed(30.0)},
            )
            for count in (1, 1001)
        ]
        page = writeReport(
            Path(self.mktemp()),
            "GROWTH",
            "How it grows",
            [
                chainSection(lengths, samples, 300),
                topicsSection(topics),
                contentsSection(contents),
                connectionsSection(connections),
                keptSection("sessions", sessions),
            ],
        )
        text = page.read_text("utf-8")
        self.assertIn("10 000 000 events against 1 000: getEvent 1.25.", text)
        self.assertIn("A topic takes 700 bytes.", text)
        self.assertIn("A client takes 2 KiB of memory", text)
        self.assertIn(" 5 (64) |", text)
        self.assertIn("One takes 3 KiB of memory.", text)
        names = {path.stem for path in (page.parent / "plots").iterdir()}
        self.assertEqual(len(names), 14)
        for name in names:
            self.assertIn(f"plots/{name}.svg", text)
