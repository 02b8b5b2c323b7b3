"""
Tests of the calls by which clients manage their durable subscriptions.
"""

from __future__ import annotations

from twisted.internet.address import IPv6Address
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.model import InterfaceType, Owner
from svcbroker.operations import Incidents
from tests.access.support import FakeAuthenticator, account, openAccess
from tests.broker.support import makeFixture

from .accounts import basic
from .support import BASE, Connection, requestBytes
from .test_operator import DurableDouble


class OwnersTests(SynchronousTestCase):
    """Whose durable subscriptions a client manages by REST and JSON-RPC."""

    def ask(self, access: Access | None, name: str = "") -> list[Owner | None]:
        """List, reset and delete; whose those were that the calls reached."""
        double = DurableDouble()
        fixture = makeFixture(answers={InterfaceType.STOMP: double})
        site = makeSite(
            fixture.calls,
            HttpSettings(),
            openAccess(fixture.clock) if access is None else access,
            incidents=Incidents(lambda: "incident-id"),
        )
        headers = basic(name) if name else {}
        for call in (
            "listDurableSubscriptions?limit=5",
            "resetDurableSubscription?id=x&offset=OFFSET_FIRST",
            "deleteDurableSubscription?id=x",
        ):
            connection = Connection(site, IPv6Address("TCP", "2001:db8::1", 1))
            path = f"{BASE}/rest/{call}&interfaceType=STOMP"
            connection.send(requestBytes("GET", path, headers=headers))
            [answer] = connection.answers()
            self.assertNotIn(b'"code"', answer.body)
        return double.owners

    def test_clientsManageTheirOwn(self) -> None:
        """An account what it has made, a client without one what its address has."""
        byAddress = Owner("2001:db8::/64", "")
        self.assertEqual(self.ask(None), [byAddress] * 3)
        clock = makeFixture().clock
        access = Access(
            (FakeAuthenticator(account("ann", "subscribe 1 #"), account("op", "operate 1")),),
            clock,
            clock.seconds,
            anonymous=account("", "subscribe 1 #"),
        )
        self.assertEqual(self.ask(access, "ann"), [Owner("ann", "ann")] * 3)
        self.assertEqual(self.ask(access), [byAddress] * 3)
        self.assertEqual(self.ask(access, "op"), [None] * 3)
