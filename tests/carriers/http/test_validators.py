"""
The operator call that tells and changes a group's nodes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides

from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.chain import ValidatorSet
from svcbroker.interfaces import IValidatorSetLedger
from svcbroker.operations import Incidents
from tests.access.support import openAccess
from tests.broker.support import makeFixture

from .support import BASE, Connection, requestBytes

TOKEN = "0f" * 32
NODES = ValidatorSet(3, (b"\1" * 32, b"\2" * 32))


class ChangeableDouble:
    """Records the calls."""

    def __init__(self) -> None:
        self.told: list[tuple[Sequence[int], int | None]] = []

    def getNodes(self) -> Deferred[ValidatorSet]:
        return succeed(NODES)

    def changeNodes(self, rotate: Sequence[int] = (), count: int | None = None) -> Deferred[Any]:
        self.told.append((rotate, count))
        return succeed(NODES)


class ValidatorTests(SynchronousTestCase):
    """
    A site whose group 2 has a ledger with nodes to change.
    """

    def setUp(self) -> None:
        self.double = ChangeableDouble()
        directlyProvides(self.double, IValidatorSetLedger)
        fixture = makeFixture(ledgers={"2": self.double})
        self.site = makeSite(
            fixture.calls,
            HttpSettings(),
            openAccess(fixture.clock),
            incidents=Incidents(lambda: "incident-id"),
            operatorToken=TOKEN,
        )

    def ask(self, token: str = TOKEN, **members: Any) -> Any:
        """Ask as an operator does."""
        connection = Connection(self.site, IPv4Address("TCP", "127.0.0.1", 50000))
        headers = {
            "Host": "127.0.0.1:8080",
            "Content-Type": "application/json",
            "Authorization": f"Bearer {token}",
        }
        body = json.dumps({"groupId": "2", **members}).encode()
        path = f"{BASE}/admin/operator/validators"
        connection.send(requestBytes("POST", path, body, headers))
        [answer] = connection.answers()
        return answer.json()

    def test_withoutAChangeTheSetIsShown(self) -> None:
        data = {
            "changes": 3,
            "nodes": [
                {"index": 0, "nodeId": "01" * 32},
                {"index": 1, "nodeId": "02" * 32},
            ],
        }
        nothing: Sequence[dict[str, Any]] = ({}, {"rotate": None}, {"rotate": [], "count": None})
        for members in nothing:
            answer = self.ask(**members)
            self.assertEqual(answer, {"code": 0, "message": "success", "data": data})
        self.assertEqual(self.double.told, [])

    def test_changesReachTheLedger(self) -> None:
        self.ask(rotate=[2, 0])
        self.ask(count=7)
        self.ask(rotate=[1], count=4)
        self.assertEqual(self.double.told, [((2, 0), None), ((), 7), ((1,), 4)])

    def test_invalidChangesAreRefused(self) -> None:
        bad: Sequence[dict[str, Any]] = (
            {"rotate": "all"},
            {"rotate": 0},
            {"rotate": [-1]},
            {"rotate": [True]},
            {"rotate": [0.0]},
            {"rotate": [[0]]},
            {"rotate": [0] * 1001},
            {"count": 0},
            {"count": "7"},
            {"count": True},
            {"cuont": 7},
            {"rotate": [0], "groupId": "1"},
        )
        for members in bad:
            self.assertEqual(self.ask(**members)["code"], 100600, members)
        self.assertEqual(self.ask(token="00" * 32, count=7)["code"], 101016)
        self.assertEqual(self.double.told, [])
