"""
Tests of the operator calls: authorization, parameters and answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from twisted.internet.address import HostnameAddress, IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IAddress
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import directlyProvides, implementer
from zope.interface.verify import verifyObject

from svcbroker.broker import Answers, IDurableSubscriptions
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.carriers.http.operator import MAX_BODY
from svcbroker.errors import SubscriptionExists, SubscriptionNotFound
from svcbroker.interfaces import IFaultyLedger
from svcbroker.model import (
    DoubleVote,
    DurablePage,
    DurableRecord,
    Edge,
    FaultReport,
    InterfaceType,
    NodeCondition,
    Offset,
    Owner,
    Position,
)
from svcbroker.net.addresses import isLoopback
from svcbroker.operations import OPERATOR_CALLS, Incidents
from tests.access.support import openAccess
from tests.broker.support import makeFixture

from .support import BASE, Answer, Connection, requestBytes

TOKEN = "0f" * 32
HERE = IPv4Address("TCP", "127.0.0.1", 50000)
REPORT = FaultReport(
    nodes=[NodeCondition(index=0, isRunning=False, isLeader=True, view=3, height=7)],
    quorum=1,
    delay=(0.0, 0.5),
    loss=0.25,
    duplication=0.0,
    cut={(1, 0), (0, 1)},
    evidence=[DoubleVote(node=0, height=5, round=1)],
)


class FaultyDouble:
    """Records the calls, and always answers the same."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.error: Exception | None = None

    def _tell(self, *what: Any) -> Deferred[None]:
        self.told.append(what)
        return succeed(None) if self.error is None else fail(self.error)

    def stopNode(self, index: int) -> Deferred[None]:
        return self._tell("stop", index)

    def startNode(self, index: int) -> Deferred[None]:
        return self._tell("start", index)

    def setNetwork(self, **given: Any) -> Deferred[None]:
        return self._tell("network", given)

    def heal(self) -> Deferred[None]:
        return self._tell("heal")

    def describeFaults(self) -> Deferred[FaultReport]:
        return succeed(REPORT)


@implementer(IDurableSubscriptions)
class DurableDouble:
    """Records the calls, and always answers the same."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.owners: list[Owner | None] = []
        self.error: Exception | None = None

    def listDurable(self, group: str, after: str, limit: int, owner: Owner | None) -> DurablePage:
        self.told.append(("list", group, after, limit))
        self.owners.append(owner)
        record = DurableRecord(
            id="x",
            interfaceType=InterfaceType.STOMP,
            group="2",
            owner="10.0.0.1",
            isLive=False,
            subscriptions=1,
            usedAt=1_700_000_000_000,
            position=Position(7, 3),
        )
        other = evolve(record, id="y", owner="", isLive=True, subscriptions=0, position=None)
        return DurablePage(items=[record, other], next="y")

    def resetDurable(
        self, group: str, id: str, offset: Offset, owner: Owner | None
    ) -> Deferred[None]:
        self.told.append(("reset", id, offset))
        self.owners.append(owner)
        return succeed(None)

    def deleteDurable(self, group: str, ids: Sequence[str], owner: Owner | None) -> Deferred[int]:
        if self.error is not None:
            return fail(self.error)
        self.told.append(("delete", ids))
        self.owners.append(owner)
        return succeed(len(ids))


class OperatorTests(SynchronousTestCase):
    """
    A site whose group 2 has a ledger for faults.
    """

    def setUp(self) -> None:
        self.double = FaultyDouble()
        directlyProvides(self.double, IFaultyLedger)
        self.serve({})

    def serve(self, answers: Answers) -> None:
        """Make the site of a broker with features that answer calls."""
        ledgers = {"2": self.double}
        self.fixture = makeFixture(ledgers=ledgers, hasFaults=True, answers=answers)
        self.site = makeSite(
            self.fixture.calls,
            HttpSettings(corsOrigins=["*"]),
            openAccess(self.fixture.clock),
            incidents=Incidents(lambda: "incident-id"),
            operatorToken=TOKEN,
        )

    def ask(
        self,
        name: str = "faults/show",
        body: bytes = b'{"groupId": "2"}',
        peer: IAddress = HERE,
        method: str = "POST",
        without: str = "",
        **headers: str,
    ) -> Answer:
        """Ask as an operator does."""
        given: Mapping[str, str] = {
            "Host": "127.0.0.1:8080",
            "Content-Type": "application/json",
            "Authorization": f"Bearer {TOKEN}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        kept = {name: value for name, value in given.items() if name != without}
        connection = Connection(self.site, peer)
        connection.send(requestBytes(method, f"{BASE}/admin/operator/{name}", body, kept))
        [answer] = connection.answers()
        return answer

    def refused(self, code: int, *args: Any, **keywords: Any) -> str:
        """The message of a refusal that changed nothing."""
        answer = self.ask(*args, **keywords)
        self.assertEqual(answer.status, 200)
        said = answer.json()
        self.assertEqual(set(said), {"code", "message"})
        self.assertEqual(said["code"], code, said)
        self.assertEqual(self.double.told, [])
        message: str = said["message"]
        return message

    def test_answerIsAnEnvelope(self) -> None:
        answer = self.ask()
        self.assertEqual(answer.headers["content-type"], "application/json;charset=UTF-8")
        self.assertEqual(
            answer.json(),
            {
                "code": 0,
                "message": "success",
                "data": {
                    "nodes": [
                        {
                            "index": 0,
                            "running": False,
                            "leader": True,
                            "pbftView": 3,
                            "blockNumber": 7,
                        }
                    ],
                    "quorum": 1,
                    "delay": [0.0, 0.5],
                    "loss": 0.25,
                    "duplication": 0.0,
                    "cut": [[0, 1], [1, 0]],
                    "evidence": [{"node": 0, "blockNumber": 5, "round": 1}],
                },
            },
        )

    def test_callsReachTheLedger(self) -> None:
        """With the values that were given, and the answer tells of the state after it."""
        cases: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
            ("stop", {"node": 3}, ("stop", 3)),
            ("start", {"node": 0}, ("start", 0)),
            ("heal", {}, ("heal",)),
            (
                "network",
                {"delay": [0, 60], "loss": 1, "duplication": 0.5},
                ("network", {"delay": (0, 60), "loss": 1, "duplication": 0.5, "cut": None}),
            ),
            (
                "network",
                {"islands": [[1]], "links": [[2, 3]]},
                (
                    "network",
                    {
                        "delay": None,
                        "loss": None,
                        "duplication": None,
                        "cut": {(0, 1), (1, 0), (2, 3)},
                    },
                ),
            ),
        ]
        for name, given, told in cases:
            self.double.told.clear()
            answer = self.ask(f"faults/{name}", json.dumps({"groupId": "2", **given}).encode())
            self.assertEqual((answer.json()["code"], self.double.told), (0, [told]))

    def test_tokenIsRequired(self) -> None:
        """The scheme's case does not matter."""
        message = self.refused(101016, without="Authorization")
        self.assertIn("Authorization: Bearer", message)
        for given in (f"Basic {TOKEN}", "Bearer", TOKEN):
            self.refused(101016, Authorization=given)
        for given in (f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0"):
            self.assertIn("not the token", self.refused(101016, Authorization=given))
        self.assertEqual(self.ask(Authorization=f"bearer  {TOKEN}").json()["code"], 0)

    def test_peerMustBeThisMachine(self) -> None:
        for peer in (
            IPv4Address("TCP", "192.0.2.1", 1),
            IPv6Address("TCP", "2001:db8::1", 1),
            IPv6Address("TCP", "::ffff:192.0.2.1", 1),
            UNIXAddress("/socket"),
            HostnameAddress(b"localhost", 1),
        ):
            self.assertIn("this machine", self.refused(101016, peer=peer))
        for peer in (
            IPv4Address("TCP", "127.3.2.1", 1),
            IPv6Address("TCP", "::1", 1),
            IPv6Address("TCP", "::ffff:127.0.0.1", 1),
        ):
            self.assertEqual(self.ask(peer=peer).json()["code"], 0)

    def test_hostMustBeLoopback(self) -> None:
        """DNS rebinding leads other names to this machine."""
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""):
            self.assertIn("Host", self.refused(101016, Host=host))
        for host in ("localhost", "LOCALHOST:8080", "[::1]:8080", "127.0.0.1"):
            self.assertEqual(self.ask(Host=host).json()["code"], 0)

    def test_webPagesAreRefused(self) -> None:
        """Also those of origins that may call the interface."""
        for origin in ("http://127.0.0.1:8080", "null"):
            self.assertIn("web pages", self.refused(101016, Origin=origin))
        origin = "http://a.example"
        preflight = self.ask(method="OPTIONS", body=b"", Origin=origin)
        self.assertEqual(
            preflight.headers["access-control-allow-headers"],
            "Authorization, Content-Type, Idempotency-Key, traceparent, tracestate, svc-after",
        )

    def test_proxiedRequestsAreRefused(self) -> None:
        """The client of a proxy on this machine may be anywhere."""
        for name in ("Forwarded", "X_Forwarded_For", "Via"):
            self.assertIn("proxies", self.refused(101016, **{name: "x"}))

    def test_contentTypeMustBeJSON(self) -> None:
        """A form could come from any web page."""
        for given in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
            self.assertIn("application/json", self.refused(100600, Content_Type=given))
        self.refused(100600, without="Content-Type")
        self.assertEqual(self.ask(Content_Type="Application/JSON; charset=utf-8").json()["code"], 0)

    def test_bodyMustBeAnObjectOfKnownMembers(self) -> None:
        for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 10000):
            self.assertIn("JSON", self.refused(100600, body=body))
        self.assertIn("nosuch", self.refused(100600, body=b'{"nosuch": 1}'))
        self.assertEqual(self.ask(body=b'{"groupId":"2"}'.ljust(MAX_BODY)).json()["code"], 0)
        self.refused(100201, body=b'{"groupId":"2"}'.ljust(MAX_BODY + 1))

    def test_valuesOutOfBoundsAreRefused(self) -> None:
        """The bounds are those of the ledger's settings."""
        for name, member, values in [
            ("stop", "node", [-1, 1000, 1.5, "1", True, None, [1]]),
            ("network", "loss", [-0.1, 1.1, "0", True, [0]]),
            ("network", "duplication", [2, "x"]),
            ("network", "delay", [1, [1], [0, 61], [-1, 0], [2, 1], ["0", 1], [0, 0, 0]]),
            ("network", "islands", [1, [1], [["x"]], [[0], [0]], [[1000]], [[0] * 600] * 2]),
            ("network", "links", [1, [1], [[0]], [[0, -1]], [[0, 1, 2]], [[0, 1]] * 1001]),
        ]:
            for value in values:
                body = json.dumps({"groupId": "2", member: value}).encode()
                message = self.refused(100600, f"faults/{name}", body)
                self.assertTrue(message.startswith(f"{member}: "), message)

    def manage(self) -> DurableDouble:
        """Have subscriptions of STOMP listed and changed by a double."""
        durable = DurableDouble()
        verifyObject(IDurableSubscriptions, durable)
        self.serve({InterfaceType.STOMP: durable})
        return durable

    def test_durableSubscriptionsAreListed(self) -> None:
        durable = self.manage()
        body = b'{"groupId":"2","interfaceType":"STOMP","after":"a","limit":2}'
        answer = self.ask("subscriptions/list", body).json()
        self.assertEqual(answer["code"], 0, answer)
        self.assertEqual(
            answer["data"],
            {
                "subscriptions": [
                    {
                        "id": "x",
                        "interfaceType": "STOMP",
                        "groupId": "2",
                        "owner": "10.0.0.1",
                        "live": False,
                        "usedTimeStamp": "2023-11-14 22:13:20",
                        "subscriptions": 1,
                        "blockNumber": 7,
                    },
                    {
                        "id": "y",
                        "interfaceType": "STOMP",
                        "groupId": "2",
                        "owner": "",
                        "live": True,
                        "usedTimeStamp": "2023-11-14 22:13:20",
                        "subscriptions": 0,
                        "blockNumber": None,
                    },
                ],
                "next": "y",
            },
        )
        self.assertEqual(durable.told, [("list", "2", "a", 2)])

    def test_durableSubscriptionsAreResetAndDeleted(self) -> None:
        durable = self.manage()
        for name, members, data, told in (
            ("reset", {"id": "x", "offset": "OFFSET_FIRST"}, True, ("reset", "x", Edge.FIRST)),
            ("reset", {"id": "x", "offset": 7}, True, ("reset", "x", Position(7, -1))),
            ("delete", {"ids": ["x", "y"]}, 2, ("delete", ("x", "y"))),
        ):
            given = {"groupId": "2", "interfaceType": "STOMP", **members}
            answer = self.ask(f"subscriptions/{name}", json.dumps(given).encode()).json()
            self.assertEqual(answer, {"code": 0, "message": "success", "data": data})
            self.assertEqual(durable.told.pop(), told)
        for error, code in ((SubscriptionNotFound("why"), 100504), (SubscriptionExists(), 100507)):
            durable.error = error
            body = b'{"groupId":"2","interfaceType":"STOMP","ids":["x"]}'
            self.assertEqual(self.refused(code, "subscriptions/delete", body), error.message)

    def test_wrongDurableSubscriptionsAreRefused(self) -> None:
        """The message names the parameter, and where webhooks are."""
        durable = self.manage()
        good = {"groupId": "2", "interfaceType": "STOMP"}
        for name, members in (
            ("list", {"interfaceType": None}),
            ("list", {"interfaceType": "RESTful"}),
            ("list", {"limit": 0}),
            ("list", {"limit": 1001}),
            ("list", {"limit": True}),
            ("list", {"after": 1}),
            ("reset", {"id": None}),
            ("reset", {"offset": None}),
            ("delete", {"ids": None}),
            ("delete", {"ids": []}),
            ("delete", {"ids": "x"}),
            ("delete", {"ids": [1]}),
            ("delete", {"ids": ["x"] * 1001}),
        ):
            needed = {"id": "x", "offset": "0"} if name == "reset" else {}
            body = json.dumps({**good, **needed, **members}).encode()
            message = self.refused(100600, f"subscriptions/{name}", body)
            self.assertTrue(message.startswith(f"{next(iter(members))}: "), message)
        body = json.dumps({**good, "interfaceType": "JsonRPC"}).encode()
        self.assertIn("svcbroker webhook", self.refused(100600, "subscriptions/list", body))
        self.assertEqual(durable.told, [])

    def test_onlyPostOfKnownCalls(self) -> None:
        answer = self.ask(method="GET")
        self.assertEqual((answer.status, answer.headers["allow"]), (405, "OPTIONS, POST"))
        self.assertEqual(self.ask("faults/nosuch").json()["code"], 200204)
        self.assertEqual(self.ask("../../rest/faults/show").json()["code"], 200204)

    def test_groupWithoutFaultsIsRefused(self) -> None:
        """And so is an unknown group."""
        self.refused(200211, body=b'{"groupId": "7"}')
        self.assertIn("no nodes to make fail", self.refused(100600, body=b"{}"))

    def test_bugIsAnIncident(self) -> None:
        """Its cause is in the log only."""
        self.double.error = RuntimeError("secret")
        answer = self.ask("faults/heal").json()
        self.assertEqual((answer["code"], "secret" in answer["message"]), (200203, False))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_withoutFaultsOptionCallsAreRefused(self) -> None:
        """The message names the option."""
        fixture = makeFixture(ledgers={"2": self.double})
        access = openAccess(fixture.clock)
        self.site = makeSite(fixture.calls, HttpSettings(), access, operatorToken=TOKEN)
        for call in OPERATOR_CALLS:
            if call.name.startswith("faults/"):
                body = b'{"groupId": "2", "node": 0}' if b"node" in _names(call) else b"{}"
                self.assertIn("--faults", self.refused(101016, call.name, body))

    def test_siteWithoutTokenHasNoOperatorCalls(self) -> None:
        self.site = makeSite(self.fixture.calls, HttpSettings(), openAccess(self.fixture.clock))
        self.refused(200204)

    def test_otherInterfacesHaveNoOperatorCalls(self) -> None:
        """REST, JSON-RPC, the queries and the OpenAPI document."""
        for call in OPERATOR_CALLS:
            for path in ("rest", "admin"):
                connection = Connection(self.site, HERE)
                connection.send(requestBytes("GET", f"{BASE}/{path}/{call.name}"))
                [answer] = connection.answers()
                self.assertEqual(answer.json()["code"], 200204)
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": call.name}).encode()
            connection = Connection(self.site, HERE)
            connection.send(requestBytes("POST", f"{BASE}/jsonrpc", body))
            [answer] = connection.answers()
            self.assertEqual(answer.json()["error"]["code"], -32601)
        connection = Connection(self.site, HERE)
        connection.send(requestBytes("GET", f"{BASE}/openapi.json"))
        [answer] = connection.answers()
        self.assertEqual([path for path in answer.json()["paths"] if "operator" in path], [])


def _names(call: Any) -> list[bytes]:
    return [parameter.name.encode() for parameter in call.parameters]


class LoopbackTests(SynchronousTestCase):
    """
    Which hosts are this machine.
    """

    def test_loopbackAddressesAndNames(self) -> None:
        for host in ("127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1", "localhost"):
            self.assertTrue(isLoopback(host), host)
        for host in ("", "0.0.0.0", "128.0.0.1", "::", "::2", "localhost.evil.example", "127.1"):
            self.assertFalse(isLoopback(host), host)
