"""
Tests of several brokers, each with all others for peers: one picture, and no question goes round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.broker import ISubscriptionDirectory
from svcbroker.errors import NodeUnavailable, ParameterInvalid
from svcbroker.model import InterfaceType, SubscriptionRecord

from .support import Member, Network

HOSTS = ("a", "b", "c")
URLS = [f"http://{host}/svcbroker" for host in HOSTS]


@implementer(ISubscriptionDirectory)
class Directory:
    """One subscription, with the broker's name for its id."""

    def __init__(self, name: str) -> None:
        self._name = name

    def listSubscriptions(self, group: str | None) -> Deferred[Sequence[SubscriptionRecord]]:
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
        self.members = {host: self.add(host, f"{host}.example:8080") for host in HOSTS}

    def add(self, host: str, address: str, start: int = 1) -> Member:
        """Start a broker, perhaps again."""
        number = 10 * HOSTS.index(host) + start
        return self.network.add(host, address, URLS, Directory(f"of-{host}"), f"{number:032x}")

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

    def test_start(self) -> None:
        """Brokers that start ask nobody."""
        self.assertEqual(self.network.called, [])

    def test_names(self) -> None:
        """Each names all, itself first; and each was asked once by it, itself too."""
        for host in HOSTS:
            names = [f"{each}.example:8080" for each in sorted(HOSTS, key=lambda h: h != host)]
            self.network.called.clear()
            self.assertEqual(self.data(host, "listNodes"), names)
            self.assertEqual(sorted(self.network.called), list(HOSTS))

    def test_subscriptions(self) -> None:
        """Through any of them the subscriptions of any are seen, as that one shows them."""
        for host in HOSTS:
            self.data(host, "listNodes")
            for other in HOSTS:
                address = f"{other}.example:8080"
                self.assertEqual(
                    self.data(host, f"listSubscription?nodeIp={address}"),
                    self.data(other, "listSubscription"),
                )

    def test_noQuestionGoesRound(self) -> None:
        """One question makes one other, and without a name none."""
        self.data("a", "listNodes")
        self.network.called.clear()
        answer = self.data("a", "listSubscription?nodeIp=b.example:8080&groupId=1")
        self.assertEqual(list(answer["b.example:8080"]), ["of-b"])
        self.assertEqual(self.network.called, ["b"])
        self.data("a", "listSubscription")
        self.data("a", "getIdentity")
        self.assertEqual(self.network.called, ["b"])

    def test_several(self) -> None:
        """Several names make one question each."""
        self.data("a", "listNodes")
        self.network.called.clear()
        names = "c.example:8080,a.example:8080,b.example:8080"
        answer = self.data("a", f"listSubscription?nodeIp={names}")
        self.assertEqual(",".join(answer), names)
        self.assertEqual(sorted(self.network.called), ["b", "c"])

    def test_down(self) -> None:
        """One that is down keeps its name, and makes an error with it, alone or among others."""
        self.data("a", "listNodes")
        del self.network.sites[("b", 80)]
        self.assertIn("b.example:8080", self.data("a", "listNodes"))
        wanted = {"code": NodeUnavailable.code, "message": "node b.example:8080 cannot be reached"}
        for names in ("b.example:8080", "a.example:8080,b.example:8080,c.example:8080"):
            self.assertEqual(self.ask("a", f"listSubscription?nodeIp={names}"), wanted)

    def test_unknown(self) -> None:
        """A name that no broker has is the client's error."""
        answer = self.ask("a", "listSubscription?nodeIp=x.example:8080")
        self.assertEqual(answer["code"], ParameterInvalid.code)
        self.assertIn("x.example:8080", answer["message"])

    def test_neverThere(self) -> None:
        """One that was never there has its URL's name, which is honest about it."""
        del self.network.sites[("c", 80)]
        self.assertEqual(self.data("a", "listNodes")[1:], ["b.example:8080", "c:80"])
        answer = self.ask("a", "listSubscription?nodeIp=c:80")
        self.assertEqual(answer, {"code": 200215, "message": "node c:80 cannot be reached"})
        # It may well be this one.
        answer = self.ask("a", "listSubscription?nodeIp=x.example:8080")
        self.assertEqual(answer["code"], NodeUnavailable.code)
        self.assertIn("c:80 cannot be reached", answer["message"])

    def test_restarted(self) -> None:
        """One that comes back with another name is known by it, and not by the old one."""
        self.data("a", "listNodes")
        self.members["b"] = self.add("b", "new.example:1", start=2)
        answer = self.ask("a", "listSubscription?nodeIp=b.example:8080")
        self.assertEqual(answer["code"], ParameterInvalid.code)
        self.assertEqual(self.data("a", "listNodes")[1:], ["new.example:1", "c.example:8080"])
        answer = self.data("a", "listSubscription?nodeIp=new.example:1")
        self.assertEqual(list(answer["new.example:1"]), ["of-b"])

    def test_twins(self) -> None:
        """Two brokers with one name are not taken for one."""
        self.members["c"] = self.add("c", "b.example:8080", start=2)
        self.assertEqual(self.data("a", "listNodes"), ["a.example:8080", "b.example:8080"])
        answer = self.ask("a", "listSubscription?nodeIp=b.example:8080")
        self.assertEqual(answer["code"], NodeUnavailable.code)
        self.assertIn("not one but several", answer["message"])

    def test_clientLeaves(self) -> None:
        """A client that leaves meanwhile takes its question along, and nothing is logged."""
        self.data("a", "listNodes")
        connection = self.members["a"].ask("listSubscription?nodeIp=b.example:8080")
        self.assertEqual(connection.answers(), [])
        connection.disconnect()
        self.network.settle()
        self.successResultOf(self.members["a"].peers.drain())
