"""
Log-ins and grants over STOMP.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import REFUSAL_DELAY
from svcbroker.interfaces import Quotas

from ...access.support import FakeAuthenticator, account, fillTurn
from .support import Client, Received, Server, event, frame


class AccessTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.accounts = FakeAuthenticator(
            account("ann", "publish 1 a", "subscribe 1 a"),
            account("one", "* 1 #", quotas=Quotas(connections=1, publishes=1)),
            account("two", "* 1 #", quotas=Quotas(publishes=2)),
        )
        self.server = Server(authenticators=[self.accounts])

    def connected(self, name: str = "ann") -> Client:
        return self.server.client().connect(login=name, passcode=name)

    def refused(self, client: Client, **headers: str) -> Received:
        """The last frame is an ERROR, after which the connection is closed."""
        frame = client.frames()[-1]
        self.assertEqual(frame.command, "ERROR")
        self.assertTrue(client.transport.isEnding)
        for name, value in headers.items():
            self.assertEqual(frame.headers[name], value)
        return frame

    def test_wrongOrNoCredentialsAreRefused(self) -> None:
        for headers in ({}, {"login": "ann"}, {"login": "ann", "passcode": "x"}):
            client = self.server.client()
            client.send("CONNECT", {"accept-version": "1.2", **headers})
            self.refused(client, message="not authenticated", code="101015")

    def test_framesBehindCONNECTWaitForTheLogIn(self) -> None:
        client = self.server.client()
        client.send("CONNECT", {"accept-version": "1.2", "login": "ann", "passcode": "x"})
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        self.refused(client)

    def test_clientsMayWaitLongForTheirLogIn(self) -> None:
        """Such as behind an address from which passwords are guessed. They have sent CONNECT."""
        client = self.server.client()
        checking: Deferred[Any] = Deferred()
        self.patch(self.accounts, "requestAvatarId", lambda credentials: checking)
        client.send("CONNECT", {"accept-version": "1.2", "login": "ann", "passcode": "ann"})
        for _ in range(10):
            self.server.fixture.clock.advance(10)
        self.assertEqual(client.frames(), [])
        checking.callback(self.accounts.identities["ann"])
        self.assertEqual(client.frames()[-1].command, "CONNECTED")

    def test_framesBeforeTheLogInWaitForTheirTurn(self) -> None:
        """The client is not read from meanwhile."""
        client = self.server.client()
        fillTurn(self.server.access)
        login = {"accept-version": "1.2", "login": "ann", "passcode": "ann"}
        client.send("CONNECT", login)
        self.assertEqual(client.transport.producerState, "paused")
        self.assertEqual(client.frames(), [])
        self.server.fixture.clock.advance(0)
        self.assertEqual(client.frames()[-1].command, "CONNECTED")
        self.assertEqual(client.transport.producerState, "producing")

    def test_grantedFramesAreTaken(self) -> None:
        client = self.connected()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        self.server.fixture.ledger.release()
        self.assertEqual(client.frames()[0].headers["receipt-id"], "1")

    def test_othersAreRefusedWithTheDestination(self) -> None:
        client = self.connected()
        client.send("SEND", {"destination": "b", "receipt": "1"}, b"x")
        frame = self.refused(client, **{"receipt-id": "1", "code": "101016"})
        self.assertIn("publish b in group 1", frame.headers["message"])

    def test_accountsThatGoAreDisconnected(self) -> None:
        client = self.connected()
        del self.accounts.identities["ann"]
        self.successResultOf(self.server.access.reload())
        self.refused(client, message="not authenticated")

    def test_connectionsAreCounted(self) -> None:
        first = self.connected("one")
        second = self.server.client()
        second.send("CONNECT", {"accept-version": "1.2", "login": "one", "passcode": "one"})
        self.assertIn("connections", self.refused(second).headers["message"])
        first.disconnect()
        self.connected("one")

    def test_messagesThatWaitAreDroppedWhenGrantsGo(self) -> None:
        client = self.connected()
        headers = {"id": "1", "destination": "a", "ack": "client-individual", "prefetch-count": "1"}
        client.send("SUBSCRIBE", headers)
        [subscription] = self.server.fake.made
        sent, waiting = event(1), event(2, "b")
        subscription.publish(sent, waiting, event(3))
        subscription.unreadable.add("b")
        [first] = client.frames()
        client.send("ACK", {"id": first["ack"]})
        self.assertEqual([each["eventId"] for each in client.frames()], [str(event(3).eventId)])
        self.assertEqual(subscription.acknowledged, [sent, waiting])

    def test_messagesAreNotSentAgainWhenGrantsGo(self) -> None:
        client = self.connected()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a", "ack": "client"})
        [subscription] = self.server.fake.made
        subscription.publish(event(1))
        [first] = client.frames()
        subscription.unreadable.add("a")
        client.send("NACK", {"id": first["ack"]})
        self.assertEqual(client.frames(), [])
        self.assertEqual(subscription.acknowledged, [event(1)])

    def test_publishesAboveTheRateAreRefused(self) -> None:
        client = self.connected("one")
        client.send("SEND", {"destination": "a"}, b"x")
        client.send("SEND", {"destination": "a"}, b"x")
        self.server.fixture.ledger.release()
        self.assertEqual([each.command for each in client.frames()], [])
        self.server.fixture.clock.advance(REFUSAL_DELAY)
        self.assertIn("publishes a second", self.refused(client).headers["message"])

    def burst(self, **headers: str) -> bytes:
        """Three frames that publish."""
        return b"".join(
            frame("SEND", {"destination": "a", "receipt": str(number), **headers}, b"x")
            for number in range(3)
        )

    def test_ratesHoldWithinABurst(self) -> None:
        """The first frames are answered before the ERROR."""
        client = self.connected("two")
        client.sendBytes(self.burst())
        self.server.fixture.ledger.release()
        self.server.fixture.clock.advance(REFUSAL_DELAY)
        *receipts, error = client.frames()
        self.assertEqual([each["receipt-id"] for each in receipts], ["0", "1"])
        self.assertEqual((error.command, error["receipt-id"]), ("ERROR", "2"))
        self.assertEqual(error["code"], "200101")
        self.assertEqual(len(self.server.published), 2)

    def test_transactionsArePublishedWholeOrNotAtAll(self) -> None:
        client = self.connected("two")
        client.ask("BEGIN", {"transaction": "t", "receipt": "b"})
        client.sendBytes(self.burst(transaction="t"))
        self.assertEqual([each.command for each in client.frames()], ["RECEIPT"] * 3)
        client.send("COMMIT", {"transaction": "t", "receipt": "c"})
        self.server.fixture.clock.advance(REFUSAL_DELAY)
        error = self.refused(client, code="200101")
        self.assertIn("at most 2 events at once", error["message"])
        self.assertEqual(self.server.published, [])
