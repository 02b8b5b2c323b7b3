"""
Tests for C{docs/architecture.rst}: what it says about the way of an event is what happens.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.broker import Broker, Limits
from svcbroker.carriers.http import HttpSettings, makeSite
from svcbroker.ledgers import pbft
from svcbroker.testing import ClockFixture
from tests.access.support import openAccess
from tests.broker.support import FakeDirectory, makeCalls
from tests.carriers.http.support import BASE, FORM, Connection, requestBytes
from tests.test_imports import FLOORS, KIT

PAGE = Path(__file__).parents[1] / "docs" / "architecture.rst"
PACKAGE = Path(svcbroker.__file__).parent
LEDGER = {"archive", "chain", "ledgers", "storage", "testing"}
"""The rooms that are the ledger, and the test kit that runs it; all others are above it."""


def filesCalled(action: Callable[[], None]) -> list[str]:
    """
    The files above the ledger whose functions an action calls, in the order of their first call.

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
    return [str(path) for path in inside if path.parts[0] not in LEDGER]


def filesListed() -> list[str]:
    """The files that the paragraph about reading the code names, in its order."""
    _, _, rest = PAGE.read_text("utf-8").partition(".. _reading-publish:")
    paragraph = next(part for part in rest.split("\n\n") if part.startswith("To understand"))
    return re.findall(r"``((?!tests/)[\w/]+\.py)``", paragraph)


class RoomTests(SynchronousTestCase):
    """
    The table of rooms.
    """

    def test_everyRoomIsListed(self) -> None:
        """The page lists the rooms that there are, and no others."""
        listed = re.findall(r"^   \* - ``([\w.]+)``$", PAGE.read_text("utf-8"), re.M)
        rooms = {room for floor in FLOORS for room in floor if room.strip("_") == room != ""}
        self.assertEqual(sorted(listed), sorted({*rooms, KIT}))


class PublishTests(SynchronousTestCase):
    """
    A lone publish over REST, on the real site, broker and PBFT ledger.
    """

    def test_readingListNamesTheFilesOfAPublish(self) -> None:
        """A publish calls functions of exactly the files that a newcomer is told to read."""
        fixture = ClockFixture(pbft.configure({}), isDurable=True)
        directory = Path(self.mktemp())
        directory.mkdir()
        ledger = fixture.makeLedger(directory / "1")
        self.successResultOf(ledger.start())
        broker = Broker(
            {"1": ledger},
            fixture.clock,
            Limits(),
            FakeDirectory(),
        )
        site = makeSite(makeCalls(broker), HttpSettings(), openAccess(fixture.clock))
        connection = Connection(site)

        def ask(call: str, body: bytes) -> None:
            connection.transport.clear()
            headers = {"Content-Type": FORM}
            connection.send(requestBytes("POST", f"{BASE}/rest/{call}", body, headers))
            for _ in range(100):
                if connection.transport.value():
                    break
                fixture.clock.advance(0)

        def publish() -> None:
            ask("publish", b"topic=t&content=x")

        ask("open", b"topic=t")
        publish()
        called = filesCalled(publish)
        [answer] = connection.answers()
        self.assertEqual(answer.json()["status"], "SUCCESS")
        self.successResultOf(ledger.stop())
        self.assertEqual(sorted(filesListed()), sorted(called))
