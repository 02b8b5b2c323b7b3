"""
Tests of L{svcbroker.broker._nodes}: the brokers by their names, and which of them is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import IPeer, PeerError
from svcbroker.broker._nodes import Nodes
from svcbroker.errors import (
    BrokerError,
    GroupUnknown,
    NodeUnavailable,
    Overloaded,
    ParameterInvalid,
    UnknownError,
)
from svcbroker.model import InterfaceType, SubscriptionRecord

from .support import FakeDirectory

OWN = "own:1"
TIMEOUT = 5.0
SILENT = PeerError("gave no answer in time")


def record(id: str) -> SubscriptionRecord:
    """A subscription of group 1."""
    return SubscriptionRecord(
        subscriptionId=id,
        interfaceType=InterfaceType.MQTT,
        group="1",
        filters=("a",),
        remote="10.0.0.1:5",
        createdAt=1000,
        notifiedAt=1000,
        notified=0,
        notifying=0,
    )


class Directory(FakeDirectory):
    """The subscriptions of this broker: one, of group 1."""

    def listSubscriptions(
        self, principal: Principal, group: str | None
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        return succeed([record("own")] if group in (None, "1") else [])


@implementer(IPeer)
class FakePeer:
    """
    A peer that answers what a test wants.

    @ivar error: what it fails with, if anything.
    @ivar isHolding: whether answers wait until L{release}.
    @ivar asked: every question, in order.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[SubscriptionRecord] = [record(name)]
        self.error: Exception | None = None
        self.isHolding = False
        self.asked: list[Any] = []
        self._held: list[Deferred[Sequence[SubscriptionRecord]]] = []
        self.cancelled = 0

    def listSubscriptions(
        self, group: str | None, timeout: float
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        self.asked.append((group, timeout))
        if self.isHolding:
            held: Deferred[Sequence[SubscriptionRecord]] = Deferred(self._cancel)
            self._held.append(held)
            return held
        return succeed(self.records) if self.error is None else fail(self.error)

    def _cancel(self, held: Deferred[Any]) -> None:
        self.cancelled += 1

    def release(self) -> None:
        """Answer what is held."""
        for answer in self._held:
            answer.callback(self.records)
        self._held.clear()


class NodesTestCase(SynchronousTestCase):
    """
    This broker with two others.
    """

    def setUp(self) -> None:
        self.b = FakePeer("b:1")
        self.c = FakePeer("c:1")
        self.nodes = self.make(self.b, self.c)

    def make(self, *peers: FakePeer) -> Nodes:
        """A broker with these peers."""
        return Nodes(OWN, Directory(), peers, TIMEOUT)

    def subscriptions(self, *addresses: str, group: str | None = None) -> dict[str, list[str]]:
        """The ids of the subscriptions of nodes."""
        answer = self.successResultOf(self.nodes.listSubscriptions(ANYBODY, group, addresses))
        return {
            address: [each.subscriptionId for each in records]
            for address, records in answer.items()
        }

    def refused(self, error: type[BrokerError], *addresses: str, group: str | None = None) -> str:
        """The message of the error that an answer fails with."""
        failure = self.failureResultOf(
            self.nodes.listSubscriptions(ANYBODY, group, addresses), error
        )
        assert isinstance(failure.value, BrokerError)
        return failure.value.message


class AddressTests(NodesTestCase):
    """
    C{listNodes}.
    """

    def test_fakePeerImplementsInterface(self) -> None:
        """The double is what it stands for."""
        verifyObject(IPeer, self.b)

    def test_namesAreTheOperators(self) -> None:
        """In the operator's order, this broker first, and no peer is asked."""
        self.assertEqual(self.nodes.addresses, [OWN, "b:1", "c:1"])
        self.assertEqual(self.b.asked + self.c.asked, [])

    def test_brokerWithoutPeersNamesItself(self) -> None:
        """There is always one."""
        self.assertEqual(self.make().addresses, [OWN])

    def test_peerWithOwnNameIsLeftOut(self) -> None:
        """The list of peers may be the same on every broker."""
        own = FakePeer(OWN)
        self.nodes = self.make(self.b, own, self.c)
        self.assertEqual(self.nodes.addresses, [OWN, "b:1", "c:1"])
        self.assertEqual(self.subscriptions(OWN), {OWN: ["own"]})
        self.assertEqual(own.asked, [])


class SubscriptionTests(NodesTestCase):
    """
    C{listSubscription}.
    """

    def test_ownSubscriptionsNeedNoPeer(self) -> None:
        """Without an address they are meant, too."""
        for addresses in ((), (OWN,), (OWN, OWN)):
            self.assertEqual(self.subscriptions(*addresses), {OWN: ["own"]})
        self.assertEqual(self.subscriptions(group="2"), {OWN: []})
        self.assertEqual(self.b.asked + self.c.asked, [])

    def test_onlyNamedPeerIsAsked(self) -> None:
        """With the group, and the time that an answer may take."""
        self.assertEqual(self.subscriptions("c:1", group="1"), {"c:1": ["c:1"]})
        self.assertEqual(self.c.asked, [("1", TIMEOUT)])
        self.assertEqual(self.b.asked, [])

    def test_severalAreAskedAtTheSameTime(self) -> None:
        """They stand in the order of the question."""
        self.b.isHolding = self.c.isHolding = True
        answer = self.nodes.listSubscriptions(ANYBODY, None, ["c:1", OWN, "b:1"])
        self.c.release()
        self.assertNoResult(answer)
        self.b.release()
        told: Any = self.successResultOf(answer)
        self.assertEqual(list(told), ["c:1", OWN, "b:1"])

    def test_unknownAddressIsInvalid(self) -> None:
        """It is quoted, but not at any length."""
        self.assertEqual(
            self.refused(ParameterInvalid, "x:1"), "no known node has this nodeIp: x:1"
        )
        self.assertTrue(self.refused(ParameterInvalid, "x" * 1000).endswith(": " + "x" * 300))
        self.refused(ParameterInvalid, OWN, "b:1", "x:1")
        self.assertIn("fewer", self.refused(ParameterInvalid, OWN, "b:1", "c:1", "x:1"))

    def test_silentPeerIsNamedWithReason(self) -> None:
        """It is asked again each time."""
        self.b.error = PeerError("cannot be reached")
        for _ in range(2):
            text = self.refused(NodeUnavailable, "b:1")
            self.assertEqual(text, "node b:1 cannot be reached")
        self.assertEqual(len(self.b.asked), 2)
        self.b.error = None
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["b:1"]})

    def test_failureOfOneFailsTheAnswer(self) -> None:
        """All that failed are told, and first what the client can mend."""
        self.b.error = SILENT
        self.assertEqual(
            self.refused(NodeUnavailable, "b:1", OWN, "c:1"), "node b:1 gave no answer in time"
        )
        self.c.error = PeerError("cannot be reached")
        self.assertEqual(
            self.refused(NodeUnavailable, "b:1", OWN, "c:1"),
            "node b:1 gave no answer in time; node c:1 cannot be reached",
        )
        self.refused(ParameterInvalid, "b:1", "x:1")

    def test_peersErrorsArePassedOnWithItsName(self) -> None:
        """What is no answer to the question stays what it is."""
        for error, text in (
            (GroupUnknown(), "node b:1 does not serve this group"),
            (Overloaded(), "node b:1 is asked too often, try again"),
        ):
            self.b.error = error
            self.assertEqual(self.refused(type(error), "b:1"), text)
        self.b.error = UnknownError("incident")
        self.assertEqual(self.refused(UnknownError, "b:1"), "incident")
        self.b.error = ZeroDivisionError()
        self.failureResultOf(
            self.nodes.listSubscriptions(ANYBODY, None, ["b:1"]), ZeroDivisionError
        )

    def test_cancellingEndsAllQuestions(self) -> None:
        """A client that leaves leaves nothing under way."""
        self.b.isHolding = self.c.isHolding = True
        answer = self.nodes.listSubscriptions(ANYBODY, None, ["b:1", "c:1"])
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual((self.b.cancelled, self.c.cancelled), (1, 1))
