"""
Tests for C{docs/architecture.rst}: what it says about the way of an event is what happens.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.broker import Broker, Limits
from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.follow import Following
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.interfaces import submit
from svcbroker.ledgers import pbft
from svcbroker.model import OpenTopic, PublishEvent
from svcbroker.testing import ClockFixture
from tests.access.support import openAccess
from tests.broker.support import FakeDirectory, makeCalls
from tests.carriers.http.support import BASE, FORM, Connection, requestBytes
from tests.test_imports import FLOORS, KIT
from tools.rooms import PICTURE, drawRooms

PAGE = Path(__file__).parents[1] / "docs" / "architecture.rst"
PACKAGE = Path(svcbroker.__file__).parent
ROOT = PACKAGE.parent
LEDGER = {"archive", "chain", "ledgers", "storage", KIT}
"""The rooms that are the ledger, and the test kit that runs it; all others are above it."""

MAX_FILES = 10
"""The most files of HTTP, operations and broker that a publish calls functions of."""
MAX_FRAMES = 8
"""The most frames from a connection's C{dataReceived} to a call of SQLite for an event."""


def filesCalled(action: Callable[[], None], inLedger: bool = False) -> list[str]:
    """
    The files above the ledger, or of it, whose functions an action calls, in the order of their
    first call.

    A class body or an C{__init__} that attrs made has no file of its own, so it is not seen.
    """
    seen: dict[str, None] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.setdefault(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    paths = [Path(name) for name in seen if name.startswith(f"{PACKAGE}/")]
    inside = [path.relative_to(PACKAGE) for path in paths]
    chosen = [path for path in inside if (path.parts[0] in LEDGER) == inLedger]
    return [str(path) for path in chosen if path.parts[0] != KIT]


def filesListed(label: str) -> list[str]:
    """
    The files that a paragraph about reading the code names, in its order.

    @param label: the label before its heading.
    """
    _, _, rest = PAGE.read_text("utf-8").partition(f".. _{label}:")
    paragraph = next(part for part in rest.split("\n\n") if part.startswith("To understand"))
    return re.findall(r"``((?!tests/)[\w/]+\.py)``", paragraph)


class RoomTests(SynchronousTestCase):
    """
    The table of rooms, and their picture.
    """

    def test_everyRoomIsListed(self) -> None:
        """The page lists the rooms that there are, and no others."""
        listed = re.findall(r"^   \* - ``([\w.]+)``$", PAGE.read_text("utf-8"), re.M)
        rooms = {room for floor in FLOORS for room in floor if room.strip("_") == room != ""}
        self.assertEqual(sorted(listed), sorted({*rooms, KIT}))

    def test_pictureShowsTheFloors(self) -> None:
        """The picture is the one that C{python -m tools.rooms} makes of the table of floors."""
        self.assertEqual(PICTURE.read_text("utf-8"), drawRooms())

    def test_namedPlacesExist(self) -> None:
        """Every file and folder that the page names is there, under the root or the package."""
        text = PAGE.read_text("utf-8")
        named = re.findall(r"``((?:[\w.+-]+/)+[\w.+-]*)``", text)
        self.assertGreater(len(named), 30)
        for name in named:
            places = [ROOT / name, PACKAGE / name, ROOT / "docs" / name]
            self.assertTrue(any(each.exists() for each in places), name)


class ReadingTestCase(SynchronousTestCase):
    """
    A client of the real site, broker, subscriptions and PBFT ledger.
    """

    def setUp(self) -> None:
        self.fixture = ClockFixture(pbft.configure({}), isDurable=True)
        clock = self.fixture.clock
        directory = Path(self.mktemp())
        directory.mkdir()
        self.ledger = self.fixture.makeLedger(directory / "1")
        self.successResultOf(self.ledger.start())
        self.addCleanup(lambda: self.successResultOf(self.ledger.stop()))
        ledgers = {"1": self.ledger}
        broker = Broker(ledgers, clock, Limits(), FakeDirectory())
        self.subscriptions = Subscriptions(ledgers, clock, clock.seconds, bytes)
        calls = makeCalls(broker)
        settings = HttpSettings()
        following = Following(calls, self.subscriptions, settings.basePath, 1)
        access = openAccess(clock)
        self.connection = Connection(makeSite(calls, settings, access, (following.route,)))

    def settle(self) -> None:
        """Let everything happen that does not wait for time."""
        for _ in range(100):
            self.fixture.clock.advance(0)

    def ask(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request, and let its answer come."""
        headers = {"Content-Type": FORM} if body else {}
        self.connection.send(requestBytes(method, f"{BASE}/rest/{path}", body, headers))
        self.settle()


class PublishTests(ReadingTestCase):
    """
    A lone publish over REST.
    """

    def test_readingListNamesTheFilesOfAPublish(self) -> None:
        """A publish calls functions of exactly the files that a newcomer is told to read."""

        def publish() -> None:
            self.ask("POST", "publish", b"topic=t&content=x")

        self.ask("POST", "open", b"topic=t")
        publish()
        self.connection.answers()
        called = filesCalled(publish)
        [answer] = self.connection.answers()
        self.assertEqual(answer.json()["status"], "SUCCESS")
        self.assertEqual(sorted(filesListed("reading-publish")), sorted(called))
        rooms = ("carriers/http/", "operations/", "broker/")
        self.assertLessEqual(sum(name.startswith(rooms) for name in called), MAX_FILES)

    def test_readingListNamesTheFilesOfADecision(self) -> None:
        """Below the broker it calls functions of exactly the files of the next list."""

        def publish() -> None:
            self.ask("POST", "publish", b"topic=t&content=x")

        self.ask("POST", "open", b"topic=t")
        publish()
        called = filesCalled(publish, inLedger=True)
        self.assertEqual(sorted(filesListed("reading-decision")), sorted(called))


class GetEventTests(ReadingTestCase):
    """
    An event that is read over REST.
    """

    def test_fewFramesAreBetweenSocketAndFile(self) -> None:
        """Of an event in a block that was compared with its header before."""
        self.ask("POST", "open", b"topic=t")
        self.ask("POST", "publish", b"topic=t&content=x")
        eventId = self.connection.answers()[-1].json()["eventId"]
        depths: list[int] = []

        def profile(frame: FrameType | None, event: str, argument: Any) -> None:
            if event == "c_call" and argument.__name__ in ("execute", "blobopen"):
                depth = 1
                while frame is not None and frame.f_code.co_name != "dataReceived":
                    depth, frame = depth + 1, frame.f_back
                depths.append(depth)

        for _ in range(2):
            depths.clear()
            sys.setprofile(profile)
            try:
                self.ask("GET", f"getEvent?eventId={eventId}")
            finally:
                sys.setprofile(None)
            self.assertEqual(self.connection.answers()[0].json()["content"], "eA==")
        self.assertGreaterEqual(len(depths), 4)
        self.assertLessEqual(max(depths), MAX_FRAMES)


class DeliveryTests(ReadingTestCase):
    """
    A delivery to a client that follows a topic.
    """

    def test_readingListNamesTheFilesOfADelivery(self) -> None:
        """A delivery calls functions of exactly the files that a newcomer is told to read."""
        self.successResultOf(self.subscriptions.start())
        self.addCleanup(self.subscriptions.stop)

        def publish() -> None:
            submit(self.ledger, PublishEvent(topic="t", content=b"x", extensions={}))
            self.settle()

        submit(self.ledger, OpenTopic(topic="t"))
        self.settle()
        self.ask("GET", "follow?topic=t")
        publish()
        self.connection.transport.clear()
        called = filesCalled(publish)
        self.assertIn(b'"content":"eA=="', self.connection.transport.value())
        self.assertEqual(sorted(filesListed("reading-delivery")), sorted(called))
