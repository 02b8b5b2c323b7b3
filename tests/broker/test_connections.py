"""
Operators and the connections of clients.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.broker import ClientConnection
from svcbroker.errors import NotAuthorized
from svcbroker.net.addresses import ownerKey
from tests.access.support import principalOf

from .support import makeFixture


class ConnectionTests(SynchronousTestCase):
    """
    A broker with connections of C{ann}, of the address 10.0.0.2, and of many others.
    """

    def setUp(self) -> None:
        self.closed: list[str] = []
        self.clients: list[ClientConnection] = []
        self.fixture = makeFixture(connections=lambda: self.clients)
        self.operator = self.fixture.calls.operator
        self.connect("mqtt", "10.0.0.1:5", "ann")
        self.connect("stomp", "10.0.0.2:5")

    def connect(self, protocol: str, remote: str, account: str = "") -> None:
        unsent = self.fixture.broker.budgets.output.unsent(ownerKey(account, remote))
        self.clients.append(
            ClientConnection(
                protocol=protocol,
                remote=remote,
                unsent=unsent,
                close=lambda: self.closed.append(remote),
            )
        )

    def test_connectionsAreListed(self) -> None:
        """With the account that each acts for, and since when it is there."""
        page = self.successResultOf(self.operator.listConnections(ANYBODY))
        self.assertEqual(
            [(each.protocol, each.remote, each.account) for each in page.items],
            [("mqtt", "10.0.0.1:5", "ann"), ("stomp", "10.0.0.2:5", "")],
        )
        self.assertEqual(page.total, 2)
        now = self.fixture.clock.seconds()
        self.assertEqual({each.unsent.openedAt for each in page.items}, {now})

    def test_connectionsAreSearched(self) -> None:
        """By account, address and protocol."""
        for search, remotes in (
            ("ann", ["10.0.0.1:5"]),
            ("0.0.2", ["10.0.0.2:5"]),
            ("stomp", ["10.0.0.2:5"]),
            ("nobody", []),
        ):
            page = self.successResultOf(self.operator.listConnections(ANYBODY, search=search))
            self.assertEqual([each.remote for each in page.items], remotes, search)

    def test_longListsTakeSeveralTurns(self) -> None:
        """All are counted, some at a time, and no more are told than were asked for."""
        for number in range(2000):
            self.connect("http", f"10.1.0.1:{number}")
        listing = self.operator.listConnections(ANYBODY, limit=3)
        self.assertNoResult(listing)
        for _ in range(10):
            self.fixture.clock.advance(0)
        page = self.successResultOf(listing)
        self.assertEqual((len(page.items), page.total), (3, 2002))
        closing = self.operator.closeConnection(ANYBODY, "http", "10.1.0.1:1999")
        self.assertNoResult(closing)
        for _ in range(10):
            self.fixture.clock.advance(0)
        self.assertTrue(self.successResultOf(closing))
        self.assertEqual(self.closed, ["10.1.0.1:1999"])

    def test_connectionIsClosed(self) -> None:
        """That of the protocol and the address alone; one that is gone is told."""
        for protocol, remote, isThere in (
            ("mqtt", "10.0.0.2:5", False),
            ("stomp", "10.0.0.2:5", True),
            ("stomp", "10.0.0.9:5", False),
        ):
            closing = self.operator.closeConnection(ANYBODY, protocol, remote)
            self.assertIs(self.successResultOf(closing), isThere)
        self.assertEqual(self.closed, ["10.0.0.2:5"])

    def test_connectionsAreForOperators(self) -> None:
        """Others see none, and close none."""
        ann = principalOf("subscribe 1 #", "admin 1")
        self.failureResultOf(self.operator.listConnections(ann), NotAuthorized)
        closing = self.operator.closeConnection(ann, "mqtt", "10.0.0.1:5")
        self.failureResultOf(closing, NotAuthorized)
        self.assertEqual(self.closed, [])
