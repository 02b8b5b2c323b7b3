"""
Tests of what operators do with sessions: list, reset, delete.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.broker import IDurableSubscriptions
from svcbroker.carriers.mqtt import sessions as sessionsModule
from svcbroker.carriers.mqtt.packets import Publish
from svcbroker.carriers.mqtt.sessions import Sessions
from svcbroker.model import DurableRecord, Edge, InterfaceType, Owner, Position

from .support import Server


class SessionsTests(SynchronousTestCase):
    """
    Sessions that outlive connections.
    """

    def setUp(self) -> None:
        self.server = Server()

    @property
    def sessions(self) -> Sessions:
        """All sessions of the broker that runs."""
        return self.server.carrier.sessions

    def leave(self, clientId: str, *filters: str, qos: int = 1) -> None:
        """A client that subscribes, and is gone."""
        client = self.server.connected(clientId, expiry=1000)
        for each in filters:
            client.subscribe(each, qos)
        client.lose()

    def done(self, answer: Deferred[Any]) -> object:
        """The result of a call, after the turns that it takes."""
        results: list[object] = []
        answer.addBoth(results.append)
        self.server.pump()
        [found] = results
        return found

    def test_interfaceIsProvided(self) -> None:
        verifyObject(IDurableSubscriptions, self.sessions)

    def test_listTellsSubscriptionsAndPosition(self) -> None:
        """Of sessions that outlive connections only: their lowest position, and since when."""
        self.server.event("t", b"1")
        self.leave("a", "t", "u")
        absentAt = int(self.server.clock.seconds() * 1000)
        self.server.wait(100)
        self.leave("b")
        client = self.server.connected("c", expiry=1000)
        self.server.connected("d", expiry=0)
        first, second, third = self.sessions.listDurable("1", "", 9, None).items
        assert first.position is not None
        self.assertEqual(
            first,
            DurableRecord(
                id="a",
                interfaceType=InterfaceType.MQTT,
                group="1",
                owner=first.owner,
                isLive=False,
                subscriptions=2,
                usedAt=first.usedAt,
                position=Position(first.position.height, -1),
            ),
        )
        self.assertLess(abs(first.usedAt - absentAt), 1000)
        self.assertEqual((second.id, second.subscriptions, second.position), ("b", 0, None))
        self.assertEqual((third.id, third.isLive), ("c", True))
        self.assertEqual(self.sessions.listDurable("2", "", 9, None).items, [])
        client.lose()

    def test_pagesHoldEachOnce(self) -> None:
        """In the order of client ids, however many subscriptions they have."""
        for name in "cbad":
            self.leave(name, "t", "u")
        for looks in (5000, 1):
            self.patch(sessionsModule, "_LOOKS_A_PAGE", looks)
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                page = self.sessions.listDurable("1", after, 3, None)
                found += [each.id for each in page.items]
                after = page.next
            self.assertEqual(found, [*"abcd"])

    def test_resetDeliversAgain(self) -> None:
        """Of all subscriptions but shared ones, what is beyond the offset, with QoS 2 too."""
        published: list[bytes] = []
        for qos in (1, 2):
            with self.subTest(qos=qos):
                name = f"client{qos}"
                client = self.server.connected(name, expiry=1000)
                client.subscribe("t", qos)
                client.subscribe("$share/g/s", qos)
                for content in (b"1", b"2"):
                    self.server.event("t", content)
                    self.server.event("s", content)
                self.server.pump()
                received = [each for each in client.take() if isinstance(each, Publish)]
                self.assertEqual(len(received), 4)
                client.lose()
                self.done(self.sessions.resetDurable("1", name, Edge.LAST, None))
                self.server = self.server.restarted()
                client = self.server.client()
                self.assertTrue(client.connect(name, cleanStart=False, expiry=1000).sessionPresent)
                self.server.pump()
                received = [each for each in client.take() if isinstance(each, Publish)]
                self.assertEqual({each.topic for each in received}, {"s"})
                client.lose()
                self.done(self.sessions.resetDurable("1", name, Edge.FIRST, None))
                client = self.server.client()
                client.connect(name, cleanStart=False, expiry=1000)
                self.server.pump()
                received = [each for each in client.take() if isinstance(each, Publish)]
                contents = [each.payload for each in received if each.topic == "t"]
                # Also those that were published before the client subscribed.
                published += [b"1", b"2"]
                self.assertEqual(contents, published)
                self.assertEqual({each.dup for each in received if each.topic == "t"}, {False})
                client.lose()
                self.done(self.sessions.deleteDurable("1", [name], None))

    def test_deleteLeavesNothing(self) -> None:
        """Neither on the disk nor in the list; the client finds no session."""
        self.leave("a", "t", "$share/g/s", qos=2)
        self.leave("b", "t")
        self.assertEqual(self.done(self.sessions.deleteDurable("1", ["a", "b", "a"], None)), 2)
        self.assertEqual(self.sessions.listDurable("1", "", 9, None).items, [])
        left = {kind for kind, _ in self.server.file.kept}
        self.assertLessEqual(left, {"mqtt-followed", "position-days"})
        self.assertFalse(self.server.client().connect("a", cleanStart=False).sessionPresent)

    def test_connectedOrUnknownClientsAreRefused(self) -> None:
        """Nothing of the call is done then."""
        self.leave("a", "t")
        self.server.connected("b", expiry=1000)
        self.server.connected("c", expiry=0)
        for name, error in (
            ("b", errors.SubscriptionExists),
            ("c", errors.SubscriptionNotFound),
            ("nosuch", errors.SubscriptionNotFound),
        ):
            self.failureResultOf(self.sessions.deleteDurable("1", ["a", name], None), error)
            self.failureResultOf(self.sessions.resetDurable("1", name, Edge.FIRST, None), error)
        self.failureResultOf(
            self.sessions.deleteDurable("2", ["a"], None), errors.SubscriptionNotFound
        )
        self.assertEqual(len(self.sessions), 3)

    def test_returnDuringDeletionSavesASession(self) -> None:
        """Sessions end one a turn; one whose client comes back meanwhile does not."""
        self.leave("a", "t")
        self.leave("b", "t")
        deleting = self.sessions.deleteDurable("1", ["a", "b"], None)
        self.server.client().connect("b", cleanStart=False, expiry=1000)
        self.assertEqual(self.done(deleting), 1)
        self.assertEqual(len(self.sessions), 1)

    def test_othersSessionsDoNotExist(self) -> None:
        """Neither an account of the owner's name nor another owner finds one."""
        self.leave("a", "t")
        [session] = self.sessions.listDurable("1", "", 9, None).items
        own = Owner(session.owner, "")
        for other in (Owner(session.owner, session.owner), Owner("10.0.0.2", "")):
            self.assertEqual(self.sessions.listDurable("1", "", 9, other).items, [])
            for refused in (
                self.sessions.resetDurable("1", "a", Edge.FIRST, other),
                self.sessions.deleteDurable("1", ["a"], other),
            ):
                self.failureResultOf(refused, errors.SubscriptionNotFound)
        self.assertEqual(self.sessions.listDurable("1", "", 9, own).items, [session])
        self.done(self.sessions.resetDurable("1", "a", Edge.FIRST, own))
        self.assertEqual(self.done(self.sessions.deleteDurable("1", ["a"], own)), 1)
