"""
Tests of L{svcbroker.broker._nodes}: which brokers there are, and who is asked for what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.broker import Identity, IPeer, ISubscriptionDirectory, PeerError
from svcbroker.broker._neighbour import FRESH
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

OWN = Identity(address="own:1", instance="own")
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


@implementer(ISubscriptionDirectory)
class Directory:
    """The subscriptions of this broker: one, of group 1."""

    def listSubscriptions(self, group: str | None) -> Deferred[Sequence[SubscriptionRecord]]:
        return succeed([record("own")] if group in (None, "1") else [])


@implementer(IPeer)
class FakePeer:
    """
    A peer that says what a test wants.

    @ivar error: what it fails with, if anything.
    @ivar isHolding: whether answers wait until L{release}.
    @ivar asked: every question, in order.
    """

    def __init__(self, name: str, address: str, instance: str = "") -> None:
        self.name = name
        self.identity = Identity(address=address, instance=instance or address)
        self.records: list[SubscriptionRecord] = [record(address)]
        self.error: Exception | None = None
        self.isHolding = False
        self.asked: list[Any] = []
        self._held: list[tuple[Deferred[Any], Any]] = []
        self.cancelled = 0

    def _answer(self, question: Any, value: Any) -> Deferred[Any]:
        self.asked.append(question)
        if self.isHolding:
            held: Deferred[Any] = Deferred(self._cancel)
            self._held.append((held, value))
            return held
        return succeed(value) if self.error is None else fail(self.error)

    def _cancel(self, held: Deferred[Any]) -> None:
        self.cancelled += 1
        self._held = [each for each in self._held if each[0] is not held]

    def release(self) -> None:
        """Answer what is held."""
        held, self._held = self._held, []
        for answer, value in held:
            if self.error is None:
                answer.callback(value)
            else:
                answer.errback(self.error)

    def getIdentity(self, timeout: float) -> Deferred[Identity]:
        answer: Deferred[Identity] = self._answer("identity", self.identity)
        return answer

    def listSubscriptions(
        self, group: str | None, timeout: float
    ) -> Deferred[tuple[str, Sequence[SubscriptionRecord]]]:
        told = (self.identity.address, list(self.records))
        answer: Deferred[Any] = self._answer((group, timeout), told)
        return answer

    def moves(self, address: str, instance: str = "") -> None:
        """Restart, with another address."""
        self.identity = Identity(address=address, instance=instance or address)
        self.records = [record(address)]


class NodesTestCase(SynchronousTestCase):
    """
    This broker with two others.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(100)
        self.b = FakePeer("10.0.0.2:80", "b:1")
        self.c = FakePeer("10.0.0.3:80", "c:1")
        self.nodes = self.make(self.b, self.c)

    def make(self, *peers: FakePeer) -> Nodes:
        """A broker with these peers."""
        return Nodes(OWN, Directory(), peers, self.clock, TIMEOUT)

    def listed(self) -> Sequence[str]:
        """What all are called."""
        return self.successResultOf(self.nodes.listAddresses())

    def subscriptions(self, *addresses: str, group: str | None = None) -> dict[str, list[str]]:
        """The ids of the subscriptions of nodes."""
        answer = self.successResultOf(self.nodes.listSubscriptions(group, addresses))
        return {
            address: [each.subscriptionId for each in records]
            for address, records in answer.items()
        }

    def refused(self, error: type[BrokerError], *addresses: str, group: str | None = None) -> str:
        """What is said when the subscriptions of nodes are not to be had."""
        failure = self.failureResultOf(self.nodes.listSubscriptions(group, addresses), error)
        assert isinstance(failure.value, BrokerError)
        return failure.value.message


class NameTests(NodesTestCase):
    """
    C{listNodes}.
    """

    def test_interface(self) -> None:
        """The double is what it stands for."""
        verifyObject(IPeer, self.b)

    def test_nobodyIsAskedBefore(self) -> None:
        """Making it asks nobody."""
        self.assertEqual(self.b.asked + self.c.asked, [])

    def test_alone(self) -> None:
        """A broker without peers names itself."""
        self.nodes = self.make()
        self.assertEqual(self.listed(), ["own:1"])

    def test_all(self) -> None:
        """Peers are named as they say, in the operator's order, this broker first."""
        self.assertEqual(self.listed(), ["own:1", "b:1", "c:1"])

    def test_fresh(self) -> None:
        """What was said a moment ago is not asked again, later it is."""
        self.listed()
        self.clock.advance(FRESH - 0.1)
        self.listed()
        self.assertEqual(self.b.asked, ["identity"])
        self.b.moves("bb:1")
        self.clock.advance(0.1)
        self.assertEqual(self.listed(), ["own:1", "bb:1", "c:1"])
        self.assertEqual(self.b.asked, ["identity"] * 2)

    def test_neverAnswered(self) -> None:
        """Who has never answered is called by the URL; and by its own name from then on."""
        self.b.error = SILENT
        self.assertEqual(self.listed(), ["own:1", "10.0.0.2:80", "c:1"])
        self.listed()
        self.assertEqual(self.b.asked, ["identity"])
        self.b.error = None
        self.clock.advance(FRESH)
        self.assertEqual(self.listed(), ["own:1", "b:1", "c:1"])

    def test_down(self) -> None:
        """Who is down keeps its last name."""
        self.listed()
        self.b.error = SILENT
        self.clock.advance(FRESH)
        self.assertEqual(self.listed(), ["own:1", "b:1", "c:1"])

    def test_unforeseen(self) -> None:
        """A peer that fails in a way of its own is named, and the failure is in the log."""
        self.b.error = ZeroDivisionError()
        self.assertEqual(self.listed(), ["own:1", "10.0.0.2:80", "c:1"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_concurrent(self) -> None:
        """All are asked at the same time; who asks meanwhile waits for the same answers."""
        self.b.isHolding = self.c.isHolding = True
        first, second = self.nodes.listAddresses(), self.nodes.listAddresses()
        self.assertEqual((self.b.asked, self.c.asked), (["identity"], ["identity"]))
        self.c.release()
        self.assertNoResult(first)
        self.b.release()
        for each in (first, second):
            self.assertEqual(self.successResultOf(each), ["own:1", "b:1", "c:1"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """A client that leaves takes nobody's answer along."""
        self.b.isHolding = True
        first, second = self.nodes.listAddresses(), self.nodes.listAddresses()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.b.cancelled, 0)
        self.b.release()
        self.assertEqual(self.successResultOf(second), ["own:1", "b:1", "c:1"])

    def test_bounded(self) -> None:
        """However long a peer keeps its own time-out, nobody waits longer than ours."""
        self.b.isHolding = True
        answer = self.nodes.listAddresses()
        self.clock.advance(TIMEOUT - 0.1)
        self.assertNoResult(answer)
        self.clock.advance(0.1)
        self.assertEqual(self.successResultOf(answer), ["own:1", "10.0.0.2:80", "c:1"])
        self.b.release()
        self.assertEqual(self.listed(), ["own:1", "b:1", "c:1"])

    def test_self(self) -> None:
        """A peer that is this broker, by whatever URL, is left out."""
        self.b.identity = OWN
        self.assertEqual(self.listed(), ["own:1", "c:1"])

    def test_twice(self) -> None:
        """A broker that is reached by two URLs is one."""
        self.c.identity = self.b.identity
        self.assertEqual(self.listed(), ["own:1", "b:1"])
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["b:1"]})


class SubscriptionTests(NodesTestCase):
    """
    C{listSubscription}.
    """

    def test_own(self) -> None:
        """For its own subscriptions a broker asks nobody."""
        for addresses in ((), ("own:1",), ("own:1", "own:1")):
            self.assertEqual(self.subscriptions(*addresses), {"own:1": ["own"]})
        self.assertEqual(self.subscriptions(group="2"), {"own:1": []})
        self.assertEqual(self.b.asked + self.c.asked, [])

    def test_another(self) -> None:
        """Another's are asked of that one, with the group and what is left of the time."""
        self.listed()
        self.assertEqual(self.subscriptions("c:1", group="1"), {"c:1": ["c:1"]})
        self.assertEqual(self.c.asked, ["identity", ("1", TIMEOUT)])
        self.assertEqual(self.b.asked, ["identity"])

    def test_notAskedYet(self) -> None:
        """Who has a name is found out where that is not known yet."""
        self.assertEqual(self.subscriptions("c:1"), {"c:1": ["c:1"]})

    def test_several(self) -> None:
        """Several are asked at the same time, and stand in the order of the question."""
        self.listed()
        self.b.isHolding = self.c.isHolding = True
        answer = self.nodes.listSubscriptions(None, ["c:1", "own:1", "b:1"])
        self.c.release()
        self.assertNoResult(answer)
        self.b.release()
        told: Any = self.successResultOf(answer)
        self.assertEqual(list(told), ["c:1", "own:1", "b:1"])

    def test_unknown(self) -> None:
        """A name that nobody has is the client's fault, and told back not longer than need be."""
        self.assertEqual(
            self.refused(ParameterInvalid, "x:1"), "no known node has this nodeIp: x:1"
        )
        self.assertTrue(self.refused(ParameterInvalid, "x" * 1000).endswith(": " + "x" * 300))
        self.refused(ParameterInvalid, "own:1", "b:1", "x:1")
        self.assertIn("fewer", self.refused(ParameterInvalid, "own:1", "b:1", "c:1", "x:1"))
        # For all of these the peers were asked once.
        self.assertEqual(self.c.asked, ["identity"])

    def test_unknownWhileSomeAreSilent(self) -> None:
        """While somebody has not told its name, nobody can say that there is no such node."""
        self.b.error = SILENT
        self.assertEqual(
            self.refused(NodeUnavailable, "x:1"),
            "no known node is x:1, and some have not told their address yet: "
            "10.0.0.2:80 gave no answer in time",
        )

    def test_down(self) -> None:
        """A node that is down is named, with the reason; it is tried each time."""
        self.listed()
        self.b.error = PeerError("cannot be reached")
        for _ in range(2):
            text = self.refused(NodeUnavailable, "b:1")
            self.assertEqual(text, "node b:1 cannot be reached")
        self.assertEqual(len(self.b.asked), 3)
        self.b.error = None
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["b:1"]})

    def test_partly(self) -> None:
        """There is no answer in part: all that failed are told."""
        self.listed()
        self.b.error = SILENT
        self.assertEqual(
            self.refused(NodeUnavailable, "b:1", "own:1", "c:1"), "node b:1 gave no answer in time"
        )
        self.c.error = PeerError("cannot be reached")
        self.assertEqual(
            self.refused(NodeUnavailable, "b:1", "own:1", "c:1"),
            "node b:1 gave no answer in time; node c:1 cannot be reached",
        )
        # What the client can mend comes first.
        self.refused(ParameterInvalid, "b:1", "x:1")

    def test_otherFailures(self) -> None:
        """What the peer says of the question is passed on, with its name."""
        self.listed()
        for error, text in (
            (GroupUnknown(), "node b:1 does not serve this group"),
            (Overloaded(), "node b:1 is asked too often, try again"),
        ):
            self.b.error = error
            self.assertEqual(self.refused(type(error), "b:1"), text)
        self.b.error = UnknownError("incident")
        self.assertEqual(self.refused(UnknownError, "b:1"), "incident")
        self.b.error = ZeroDivisionError()
        self.failureResultOf(self.nodes.listSubscriptions(None, ["b:1"]), ZeroDivisionError)

    def test_byUrl(self) -> None:
        """One that has never answered can be asked for by its URL's name."""
        self.b.error = SILENT
        self.assertEqual(
            self.refused(NodeUnavailable, "10.0.0.2:80"), "node 10.0.0.2:80 gave no answer in time"
        )
        self.assertEqual(self.b.asked, [(None, TIMEOUT)])
        self.assertEqual(self.c.asked, [])

    def test_byUrlOfItsOwn(self) -> None:
        """Where that is its own name, it answers."""
        self.b.moves("10.0.0.2:80")
        self.assertEqual(self.subscriptions("10.0.0.2:80"), {"10.0.0.2:80": ["10.0.0.2:80"]})
        self.assertEqual(self.b.asked, [(None, TIMEOUT)])

    def test_byUrlOfAnother(self) -> None:
        """Where it turns out to have another name, the client is told that."""
        for _ in range(2):
            self.assertEqual(
                self.refused(ParameterInvalid, "10.0.0.2:80"),
                "no known node has this nodeIp: 10.0.0.2:80; the one that is reached at "
                "10.0.0.2:80 calls itself b:1",
            )

    def test_sameUrlName(self) -> None:
        """Two behind one host and port are not taken for each other."""
        self.c = FakePeer("10.0.0.2:80", "c:1")
        self.nodes = self.make(self.b, self.c)
        self.b.error = self.c.error = SILENT
        self.assertEqual(self.listed(), ["own:1", "10.0.0.2:80"])
        self.refused(NodeUnavailable, "10.0.0.2:80")
        self.c.error = None
        self.clock.advance(FRESH)
        self.assertEqual(self.subscriptions("c:1"), {"c:1": ["c:1"]})

    def test_timeIsShared(self) -> None:
        """All that one answer takes has one time-out."""
        self.b.isHolding = True
        answer = self.nodes.listSubscriptions(None, ["b:1"])
        self.clock.advance(2)
        self.b.release()
        self.assertNoResult(answer)
        self.assertEqual(self.b.asked, ["identity", (None, TIMEOUT - 2)])
        self.b.release()
        self.successResultOf(answer)

    def test_cancelled(self) -> None:
        """A client that leaves ends its questions."""
        self.listed()
        self.b.isHolding = self.c.isHolding = True
        answer = self.nodes.listSubscriptions(None, ["b:1", "c:1"])
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual((self.b.cancelled, self.c.cancelled), (1, 1))


class ChangeTests(NodesTestCase):
    """
    Nodes that change their names, and names that several have.
    """

    def setUp(self) -> None:
        super().setUp()
        self.listed()

    def test_renamed(self) -> None:
        """An old name is nobody's, at once, and the new one is known."""
        self.b.moves("bb:1")
        self.refused(ParameterInvalid, "b:1")
        self.assertEqual(self.listed(), ["own:1", "bb:1", "c:1"])
        self.assertEqual(self.subscriptions("bb:1"), {"bb:1": ["bb:1"]})

    def test_swapped(self) -> None:
        """Names that were swapped lead to who has them now."""
        self.b.moves("c:1")
        self.b.records = [record("of b")]
        self.c.moves("b:1")
        self.c.records = [record("of c")]
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["of c"]})
        self.assertEqual(self.subscriptions("c:1"), {"c:1": ["of b"]})

    def test_restless(self) -> None:
        """A node that never has the name that it says is given up."""
        peer = self.b

        def listSubscriptions(group: str | None, timeout: float) -> Deferred[Any]:
            return succeed(("elsewhere:1", []))

        self.patch(peer, "listSubscriptions", listSubscriptions)
        self.assertIn("again and again", self.refused(NodeUnavailable, "b:1"))

    def test_takenOver(self) -> None:
        """Where one has taken the name of another that is gone, it is the one."""
        self.b.error = SILENT
        self.c.moves("b:1", "c")
        self.c.records = [record("of c")]
        self.clock.advance(FRESH)
        self.assertEqual(self.listed(), ["own:1", "b:1"])
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["of c"]})

    def test_bothGone(self) -> None:
        """Where all that had a name are down, that is what is told."""
        self.c.moves("b:1", "c")
        self.clock.advance(FRESH)
        self.listed()
        self.b.error = self.c.error = SILENT
        self.assertIn("gave no answer", self.refused(NodeUnavailable, "b:1"))

    def test_doubled(self) -> None:
        """A name that two brokers have is nobody's until one has another."""
        self.c.moves("b:1", "c")
        self.clock.advance(FRESH)
        self.assertEqual(self.listed(), ["own:1", "b:1"])
        text = self.refused(NodeUnavailable, "b:1")
        self.assertIn("several", text)
        self.assertIn("10.0.0.2:80 and 10.0.0.3:80", text)
        self.c.moves("c:1")
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["b:1"]})

    def test_twoUrlsAndARestart(self) -> None:
        """A broker behind two URLs that restarts is not taken for two."""
        self.c.identity = self.b.identity
        self.clock.advance(FRESH)
        self.listed()
        restarted = evolve(self.b.identity, instance="restarted")
        self.b.identity = self.c.identity = restarted
        self.nodes._neighbours[0].doubt()
        self.listed()
        self.assertEqual(self.subscriptions("b:1"), {"b:1": ["b:1"]})

    def test_claimsOurs(self) -> None:
        """A peer that has our name makes it nobody's, while it is there."""
        self.b.moves("own:1", "b")
        self.clock.advance(FRESH)
        self.assertEqual(self.listed(), ["own:1", "c:1"])
        self.assertIn("several", self.refused(NodeUnavailable, "own:1"))
        self.b.error = SILENT
        self.assertEqual(self.subscriptions("own:1"), {"own:1": ["own"]})
