"""
Tests of request bodies that arrive slowly, or not to their end.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.connection import GRACE, MIN_RATE

from .support import BASE, FORM, Client, Connection, requestBytes

BODY = b"topic=t&content=" + b"x" * 900


class IncompleteBodyTests(SynchronousTestCase):
    """
    A site that holds two incomplete bodies, not three.
    """

    def setUp(self) -> None:
        self.client = Client()
        self.client.rest("open?topic=t")
        self.clock = self.client.fixture.clock
        self.bodies = self.client.site.bodies
        self.bodies.budget.total = 2 * len(BODY)
        self.request = requestBytes("POST", f"{BASE}/rest/publish", BODY, {"Content-Type": FORM})

    def begin(self, path: str = "/rest/publish") -> Connection:
        """A connection with a request that misses its last byte."""
        connection = self.client.connect()
        connection.send(self.request[:-1].replace(b"/rest/publish", path.encode()))
        return connection

    def test_bodiesHaveACommonBound(self) -> None:
        """The body for which there is no room is refused, the others are served."""
        first, second = self.begin(), self.begin()
        third = self.begin()
        [refused] = third.answers()
        self.assertEqual((refused.status, refused.json()["code"]), (200, 200101))
        self.assertEqual(refused.headers["connection"], "close")
        for connection in (first, second):
            connection.send(self.request[-1:])
            self.assertEqual(connection.answers()[0].json()["status"], "SUCCESS")
        self.assertEqual(self.bodies.budget.used, 0)
        fourth = self.begin()
        fourth.send(self.request[-1:])
        self.assertEqual(fourth.answers()[0].json()["status"], "SUCCESS")

    def test_pieceWithoutRoomIsRefused(self) -> None:
        """A request that was being received before there was no room."""
        first = self.client.connect()
        first.send(self.request[: -len(BODY)] + BODY[:1])
        others = [self.begin(), self.begin()]
        self.assertEqual(others[1].answers(), [])
        first.send(BODY[1:] + self.request)
        [refused] = first.answers()
        self.assertEqual((refused.status, refused.json()["code"]), (200, 200101))
        self.assertEqual(self.bodies.budget.used, 2 * (len(BODY) - 1))

    def test_refusalOutsideOfAreas(self) -> None:
        connections = [self.begin(), self.begin(), self.begin("/nothing")]
        [refused] = connections[-1].answers()
        self.assertEqual((refused.status, refused.json()["code"]), (503, 200101))

    def test_leavingClientsMakeRoom(self) -> None:
        before = self.clock.getDelayedCalls()
        for _ in range(3):
            for connection in [self.begin(), self.begin()]:
                self.assertEqual(connection.answers(), [])
                connection.disconnect()
            self.assertEqual(self.bodies.budget.used, 0)
        self.assertEqual(self.clock.getDelayedCalls(), before)

    def test_slowBodyTimesOut(self) -> None:
        """Although the connection is never idle for long."""
        connection = self.client.connect()
        connection.send(self.request[: -len(BODY)])
        for _ in range(int(GRACE) - 1):
            self.clock.advance(1)
            connection.send(b"x")
            self.assertTrue(connection.isOpen)
        self.clock.advance(2)
        self.assertFalse(connection.isOpen)
        self.assertEqual(self.bodies.budget.used, 0)

    def test_largeBodyMayTakeLonger(self) -> None:
        """As long as it arrives fast enough."""
        size = 60_000
        self.bodies.budget.total = size
        request = requestBytes("POST", f"{BASE}/rest/exist?topic=t", b"x" * size)
        connection = self.client.connect()
        connection.send(request[: 1 - size])
        self.clock.advance(GRACE - 1)
        connection.send(b"x" * (size - 2))
        self.clock.advance(size // MIN_RATE)
        self.assertTrue(connection.isOpen)
        self.clock.advance(2)
        self.assertFalse(connection.isOpen)
