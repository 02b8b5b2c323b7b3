"""
Tests of several brokers, each with all others for peers: one picture, and no question goes round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Principal
from svcbroker.errors import NodeUnavailable, ParameterInvalid
from svcbroker.model import InterfaceType, SubscriptionRecord
from svcbroker.net.http import basicAuthorization
from tests.access.support import account
from tests.broker.support import FakeDirectory
from tests.carriers.http.accounts import Accounts

from .support import Network

HOSTS = ("a", "b", "c")
URLS = {f"{host}.example:8080": f"http://{host}/svcbroker" for host in HOSTS}


class Directory(FakeDirectory):
    """One subscription, with the broker's name for its id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def listSubscriptions(
        self, principal: Principal, group: str | None
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        record = SubscriptionRecord(
            subscriptionId=self._name,
            interfaceType=InterfaceType.STOMP,
            group="1",
            filters=("t",),
            remote="10.0.0.1:5",
            createdAt=1_000_000,
            notifiedAt=2_000_000,
            notified=3,
            notifying=4,
        )
        return succeed([record])


class BrokersTests(SynchronousTestCase):
    """
    Three brokers, each with the same list of peers, itself among them.
    """

    def setUp(self) -> None:
        self.network = Network()
        self.members = {
            host: self.network.add(host, f"{host}.example:8080", URLS, Directory(f"of-{host}"))
            for host in HOSTS
        }

    def ask(self, host: str, query: str) -> Any:
        """What a broker answers."""
        connection = self.members[host].ask(query)
        self.network.settle()
        [answer] = connection.answers()
        self.assertEqual(answer.status, 200)
        return answer.json()

    def data(self, host: str, query: str) -> Any:
        """The data that a broker answers."""
        answer = self.ask(host, query)
        self.assertEqual((answer["code"], answer["message"]), (0, "success"))
        return answer["data"]

    def test_eachNamesAllItselfFirst(self) -> None:
        """The names are the operator's: no broker asks another for them."""
        for host in HOSTS:
            names = [f"{each}.example:8080" for each in sorted(HOSTS, key=lambda h: h != host)]
            self.assertEqual(self.data(host, "listNodes"), names)
        self.assertEqual(self.network.called, [])

    def test_anyShowsSubscriptionsOfAll(self) -> None:
        """Through any of them the subscriptions of any are seen, as that one shows them."""
        for host in HOSTS:
            for other in HOSTS:
                address = f"{other}.example:8080"
                self.assertEqual(
                    self.data(host, f"listSubscription?nodeIp={address}"),
                    self.data(other, "listSubscription"),
                )

    def test_questionsAreNotForwarded(self) -> None:
        """One question makes one other, and without a name none."""
        answer = self.data("a", "listSubscription?nodeIp=b.example:8080&groupId=1")
        self.assertEqual(list(answer["b.example:8080"]), ["of-b"])
        self.assertEqual(self.network.called, ["b"])
        self.data("a", "listSubscription")
        self.assertEqual(self.network.called, ["b"])

    def test_severalNamesAreAskedOnceEach(self) -> None:
        """Several names make one question each."""
        names = "c.example:8080,a.example:8080,b.example:8080"
        answer = self.data("a", f"listSubscription?nodeIp={names}")
        self.assertEqual(",".join(answer), names)
        self.assertEqual(sorted(self.network.called), ["b", "c"])

    def test_brokerThatIsDownIsAnError(self) -> None:
        """One that is down keeps its name, and makes an error with it, alone or among others."""
        del self.network.sites[("b", 80)]
        self.assertIn("b.example:8080", self.data("a", "listNodes"))
        wanted = {"code": NodeUnavailable.code, "message": "node b.example:8080 cannot be reached"}
        for names in ("b.example:8080", "a.example:8080,b.example:8080,c.example:8080"):
            self.assertEqual(self.ask("a", f"listSubscription?nodeIp={names}"), wanted)

    def test_unknownNameIsInvalid(self) -> None:
        """A name that no broker has is the client's error."""
        answer = self.ask("a", "listSubscription?nodeIp=x.example:8080")
        self.assertEqual(answer["code"], ParameterInvalid.code)
        self.assertIn("x.example:8080", answer["message"])

    def test_leavingClientEndsItsQuestion(self) -> None:
        """A client that leaves meanwhile takes its question along, and nothing is logged."""
        connection = self.members["a"].ask("listSubscription?nodeIp=b.example:8080")
        self.assertEqual(connection.answers(), [])
        connection.disconnect()
        self.network.settle()
        self.successResultOf(self.members["a"].peers.drain())


class AccountTests(SynchronousTestCase):
    """
    A broker without accounts, and one whose accounts may operate or not.
    """

    def subscriptions(self, credentials: bytes | None) -> Any:
        """What the first broker answers about the second, by these credentials."""
        network = Network()
        accounts = Accounts(account("peer", "operate *"), account("ann", "publish * #"))
        network.add("b", "b.example:8080", {}, Directory("of-b"), [accounts])
        known = {} if credentials is None else {"b.example:8080": credentials}
        first = network.add("a", "a.example:8080", URLS, Directory("of-a"), (), known)
        connection = first.ask("listSubscription?nodeIp=b.example:8080")
        network.settle()
        network.clock.advance(0)
        network.settle()
        [answer] = connection.answers()
        return answer.json()

    def test_brokersLogInToEachOther(self) -> None:
        answer = self.subscriptions(basicAuthorization("peer", "peer"))
        self.assertEqual(list(answer["data"]["b.example:8080"]), ["of-b"])

    def test_brokerWithoutCredentialsIsExplained(self) -> None:
        answer = self.subscriptions(None)
        self.assertEqual(answer["code"], 200215)
        self.assertIn("node b.example:8080 wants credentials", answer["message"])

    def test_refusedCredentialsAreExplained(self) -> None:
        answer = self.subscriptions(basicAuthorization("peer", "hush"))
        self.assertEqual(answer["code"], 200215)
        self.assertIn("refuses the credentials of this broker", answer["message"])
        self.assertNotIn("hush", str(answer))
