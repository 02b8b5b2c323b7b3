"""
What HTTP records in the audit trail.
"""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access, AuditTrail
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.model import PublishEvent
from svcbroker.operations import OPERATOR_CALLS
from tests.access.support import FakeAuthenticator, account
from tests.broker.support import makeFixture

from .accounts import basic
from .support import BASE, Answer, Connection, requestBytes

TOPIC = "$svc/audit"


class HttpAuditTests(SynchronousTestCase):
    """
    A site with the accounts C{ann}, who may publish to C{t}, and C{root}, who may do everything.
    """

    def setUp(self) -> None:
        fixture = makeFixture(reservedTopics=[TOPIC])
        self.ledger, self.clock = fixture.ledger, fixture.clock
        ledgers = {"1": fixture.ledger, "2": fixture.second}
        trail = fixture.calls.audit = AuditTrail(TOPIC, ledgers, self.clock, self.clock.seconds)
        self.addCleanup(trail.stop)
        accounts = FakeAuthenticator(
            account("ann", "publish 1 t"), account("root", "* * #", "* * $svc/#")
        )
        access = Access([accounts], self.clock, self.clock.seconds, audit=trail)
        self.addCleanup(access.stop)
        self.site = makeSite(fixture.calls, HttpSettings(), access, operatorToken="0f" * 32)
        self.connections: dict[str, Connection] = {}

    def ask(self, path: str, headers: dict[str, str], address: str, body: bytes = b"") -> Answer:
        """Ask over the connection of an address."""
        connection = self.connections.get(address)
        if connection is None:
            connection = Connection(self.site, IPv4Address("TCP", address, 50000))
            self.connections[address] = connection
        given = {**headers, "Content-Type": "application/json"}
        connection.send(requestBytes("POST" if body else "GET", f"{BASE}/{path}", body, given))
        self.clock.advance(0)
        [answer] = connection.answers()
        return answer

    def records(self) -> list[dict[str, Any]]:
        records = []
        for request in self.ledger.submitted:
            if isinstance(request, PublishEvent) and request.topic == TOPIC:
                record = msgspec.json.decode(request.content)
                del record["time"]
                records.append(record)
        return records

    def test_anAccountIsRecordedOncePerAddress(self) -> None:
        """Also where its credentials were checked for another address."""
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"):
            self.ask("rest/publish?topic=t&content=x", basic("ann"), address)
        login = {"what": "login", "outcome": "success", "account": "ann", "carrier": "http"}
        self.assertEqual(
            self.records(),
            [{**login, "address": "10.0.0.1"}, {**login, "address": "10.0.0.2"}],
        )

    def test_refusalsAreRecorded(self) -> None:
        self.ask("rest/publish?topic=u&content=x", basic("ann"), "10.0.0.1")
        self.ask("rest/list", basic("ann", "wrong"), "10.0.0.1")
        self.assertEqual(
            self.records()[1:],
            [
                {
                    "what": "refusal",
                    "account": "ann",
                    "group": "1",
                    "action": "publish",
                    "topic": "u",
                },
                {
                    "what": "login",
                    "outcome": "failure",
                    "account": "ann",
                    "address": "10.0.0.1",
                    "carrier": "http",
                    "error": 101015,
                },
            ],
        )

    def test_operatorCallsAreRecordedWithTheirOutcome(self) -> None:
        for name, headers, body in (
            ("validators", basic("root"), b'{"groupId":"1","count":7}'),
            ("faults/heal", basic("ann"), b"{}"),
            ("faults/heal", basic("root"), b'{"groupId":["1"]}'),
            ("faults/heal", {"Authorization": f"Bearer {'0f' * 32}", "Host": "localhost"}, b"{}"),
        ):
            self.ask(f"admin/operator/{name}", headers, "127.0.0.1", body)
        calls = [each for each in self.records() if each["what"] == "operator"]
        failed = {"what": "operator", "outcome": "failure", "group": "1"}
        self.assertEqual(
            calls,
            [
                {**failed, "account": "root", "call": "validators", "error": 100600},
                {**failed, "account": "ann", "call": "faults/heal", "error": 101016},
                {
                    "what": "operator",
                    "outcome": "failure",
                    "account": "root",
                    "call": "faults/heal",
                    "error": 100600,
                },
                {**failed, "call": "faults/heal", "error": 101016},
            ],
        )

    def test_readsOfOperatorsAreNotRecorded(self) -> None:
        """Good ones and bad ones: looking at a broker adds nothing to its log."""
        self.ask("rest/list", basic("root"), "127.0.0.1")
        before = self.records()
        names = {each.name for each in OPERATOR_CALLS if each.isRead(())}
        self.assertLessEqual(
            {"configuration", "faults/show", "subscriptions/list", "webhooks/list"}, names
        )
        self.ask("admin/operator/faults/show", basic("root"), "127.0.0.1", b'{"groupId":"1"}')
        for name in names:
            self.ask(f"admin/operator/{name}", basic("root"), "127.0.0.1", b'{"x":1}')
        self.assertEqual(self.records(), before)

    def test_theAuditTopicCannotBeForged(self) -> None:
        """Not even by an account that may do everything."""
        self.ask("rest/list", basic("root"), "10.0.0.1")
        for call in ("publish?topic=$svc/audit&content=x", "open?topic=$svc/audit"):
            self.assertEqual(self.ask(f"rest/{call}", basic("root"), "10.0.0.1").status, 403)
        self.assertEqual([each["what"] for each in self.records()], ["login", "refusal"])
