"""
The beginning and the end of sessions: versions, heart-beats, DISCONNECT, refusals.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.carriers.stomp.carrier import ABORT, LINGER
from svcbroker.carriers.stomp.frames import FrameLimits, StompSettings
from svcbroker.net.transports import CLOSE_AT_STOP

from .support import Server, frame


class ConnectTests(SynchronousTestCase):
    """CONNECT and STOMP."""

    def test_newestCommonVersionIsChosen(self) -> None:
        """The newest version that both speak is chosen; who names none speaks 1.0."""
        for offered, chosen in (
            ("1.2", "1.2"),
            ("1.0,1.1,1.2", "1.2"),
            ("1.1, 1.0", "1.1"),
            ("1.0", "1.0"),
            ("1.1,2.7", "1.1"),
        ):
            answer = Server().client().ask("CONNECT", {"accept-version": offered})
            self.assertEqual((answer.command, answer["version"]), ("CONNECTED", chosen))
        answer = Server().client().ask("STOMP")
        self.assertEqual((answer.command, answer["version"]), ("CONNECTED", "1.0"))
        self.assertEqual(answer["server"], "svcbroker/9.8.7")
        self.assertEqual(answer["session"], "0000000000000001")

    def test_version10GetsNoHeartBeatHeader(self) -> None:
        """Heart-beats came with 1.1."""
        self.assertNotIn("heart-beat", Server().client().ask("CONNECT").headers)
        answer = Server().client().ask("CONNECT", {"accept-version": "1.1"})
        self.assertEqual(answer["heart-beat"], "1000,10000")

    def test_connectMayEndWithALineEnd(self) -> None:
        """Some clients send one before the NUL that ends the frame."""
        for body in (b"\n", b"\r\n"):
            answer = Server().client().ask("CONNECT", {"accept-version": "1.2"}, body)
            self.assertEqual(answer.command, "CONNECTED")
        self.assertEqual(Server().client().ask("CONNECT", {}, b"\n\n").command, "ERROR")

    def test_noVersion(self) -> None:
        """The refusal names the versions there are."""
        client = Server().client()
        answer = client.ask("CONNECT", {"accept-version": "2.0,3.1"})
        self.assertEqual((answer.command, answer["code"]), ("ERROR", "100600"))
        self.assertEqual(answer["version"], "1.0,1.1,1.2")

    def test_lineEnds(self) -> None:
        """A client of 1.2 may use CR LF from its first frame on."""
        client = Server().client()
        client.sendBytes(b"CONNECT\r\naccept-version:1.2\r\nhost:x\r\n\r\n\0\r\n")
        client.sendBytes(b"SEND\r\ndestination:a\r\nreceipt:1\r\n\r\nhello\0")
        self.assertEqual([each.command for each in client.frames()], ["CONNECTED", "RECEIPT"])

    def test_versionOfTheSameRead(self) -> None:
        """What follows CONNECT in one read is read as the version says."""
        server = Server()
        client = server.client()
        client.sendBytes(
            frame("CONNECT", {"accept-version": "1.1"})
            + frame("SEND", {"destination": "a", "svc-x": "1\\n2"}, b"x")
        )
        [event] = server.published
        self.assertEqual(event.extensions, {"svc-x": "1\n2"})

    def test_firstFrame(self) -> None:
        """Anything else at first is refused, other protocols included."""
        for data in (
            frame("SEND", {"destination": "a"}),
            frame("CONNECTED"),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\0",
            b"\x16\x03\x01\0\0\n\n\0",
            b"connect\n\n\0",
        ):
            client = Server().client()
            client.sendBytes(data)
            [answer] = client.frames()
            self.assertEqual((answer.command, answer["code"]), ("ERROR", "100600"), data)

    def test_secondConnectIsAnswered(self) -> None:
        client = Server().connect()
        answer = client.ask("CONNECT", {"receipt": "r"})
        self.assertEqual(answer["receipt-id"], "r")
        self.assertEqual(answer["message"], "unexpected frame CONNECT")

    def test_clientWithoutConnectIsClosed(self) -> None:
        """Who never says CONNECT is sent away."""
        server = Server(StompSettings(connectTimeout=3.0))
        client = server.client()
        client.sendBytes(b"\n\nCONN")
        server.fixture.clock.advance(2.9)
        self.assertEqual(client.frames(), [])
        server.fixture.clock.advance(0.1)
        self.assertEqual([each.command for each in client.frames()], ["ERROR"])
        server.fixture.clock.advance(LINGER)
        self.assertFalse(client.isOpen)
        self.assertEqual(server.factory.protocols, {})
        self.assertEqual(server.fixture.clock.getDelayedCalls(), [])


class HeartBeatTests(SynchronousTestCase):
    """Heart-beats."""

    settings = StompSettings(canBeatEvery=1000, wantsBeatEvery=2000)

    def test_slowerHeartBeatIsAgreed(self) -> None:
        """The slower of what one can and the other wants, each way; none where one says 0."""
        answer = (
            Server(self.settings)
            .client()
            .ask("CONNECT", {"accept-version": "1.2", "heart-beat": "500,3000"})
        )
        self.assertEqual(answer["heart-beat"], "1000,2000")
        for offer in ("x", "1", "1,2,3", "-1,0", "1.5,0", "9999999999,0"):
            answer = (
                Server().client().ask("CONNECT", {"accept-version": "1.2", "heart-beat": offer})
            )
            self.assertEqual((answer.command, answer["code"]), ("ERROR", "100600"), offer)

    def test_heartBeatsAreSentInTime(self) -> None:
        """The client hears something in time, and nothing needless."""
        server = Server(self.settings)
        client = server.connect(**{"heart-beat": "0,4000"})
        clock = server.fixture.clock
        clock.pump([1.0] * 60)
        self.assertEqual(client.frames(), [])
        self.assertEqual(client.beats, 20)
        clock.pump([1.0] * 2)
        client.send("SEND", {"destination": "a", "receipt": "1"})
        clock.pump([1.0] * 2)
        self.assertEqual(len(client.frames()), 1)
        self.assertEqual(client.beats, 20)

    def test_notAsked(self) -> None:
        """Nothing is sent to who wants nothing, and nobody is missed who promised nothing."""
        for version, offer in (("1.2", "0,0"), ("1.0", "1000,1000")):
            server = Server(self.settings)
            client = server.connect(version, **{"heart-beat": offer})
            server.fixture.clock.pump([10.0] * 10)
            self.assertEqual((client.frames(), client.beats), ([], 0))
            self.assertTrue(client.isOpen)

    def test_silentClientIsClosed(self) -> None:
        """A client that is not heard of for twice the agreed time is gone."""
        server = Server(self.settings)
        client = server.connect(**{"heart-beat": "3000,0"})
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        clock = server.fixture.clock
        for _ in range(10):
            clock.advance(5.0)
            client.sendBytes(b"\n")
        clock.advance(5.9)
        self.assertFalse(server.fake.made[0].isClosed)
        clock.advance(0.1)
        self.assertTrue(server.fake.made[0].isClosed)
        clock.advance(LINGER)
        self.assertFalse(client.isOpen)

    def test_notRead(self) -> None:
        """A client is not missed while nobody reads what it sends."""
        server = Server(StompSettings(wantsBeatEvery=2000, maxPublishes=1))
        server.fixture.ledger.isHolding = True
        client = server.connect(**{"heart-beat": "2000,0"})
        client.send("SEND", {"destination": "a"}, b"x")
        self.assertFalse(client.transport.isRead)
        server.fixture.clock.pump([1.0] * 8)
        server.fixture.ledger.release()
        self.assertTrue(client.transport.isRead)
        server.fixture.clock.advance(3.0)
        self.assertTrue(client.isOpen)
        server.fixture.clock.advance(3.0)
        server.fixture.clock.advance(LINGER)
        self.assertFalse(client.isOpen)

    def test_heartBeatsDoNotPileUp(self) -> None:
        """Heart-beats do not pile up where nobody reads them."""
        server = Server(self.settings)
        client = server.connect(**{"heart-beat": "0,1000"})
        client.stopReading()
        server.fixture.clock.pump([1.0] * 100)
        self.assertEqual((client.frames(), client.beats), ([], 0))
        client.goOnReading()
        server.fixture.clock.pump([1.0] * 2)
        client.frames()
        self.assertGreater(client.beats, 0)


class EndTests(SynchronousTestCase):
    """DISCONNECT, refusals, loss, and a broker that stops."""

    def test_disconnectIsAnsweredThenClosed(self) -> None:
        """The receipt, then the end; what comes later is not looked at."""
        server = Server()
        client = server.connect()
        client.sendBytes(
            frame("DISCONNECT", {"receipt": "77"}) + frame("SEND", {"destination": "a"}, b"x")
        )
        [answer] = client.frames()
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", "77"))
        self.assertFalse(client.isOpen)
        self.assertEqual(server.published, [])

    def test_disconnectWaits(self) -> None:
        """Everything sent before is answered before."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        client.send("DISCONNECT", {"receipt": "2"})
        self.assertEqual(client.frames(), [])
        self.assertTrue(client.isOpen)
        server.fixture.ledger.release()
        self.assertEqual([each["receipt-id"] for each in client.frames()], ["1", "2"])
        self.assertFalse(client.isOpen)

    def test_errorIsTheLastFrame(self) -> None:
        """An ERROR is the last frame; the rest of what the client sends is thrown away."""
        server = Server()
        client = server.connect()
        client.sendBytes(frame("NONSENSE", {"receipt": "9"}) + frame("SEND", {"destination": "a"}))
        [answer] = client.frames()
        self.assertEqual(answer.command, "ERROR")
        self.assertEqual((answer["receipt-id"], answer["code"]), ("9", "100600"))
        self.assertEqual(answer.body.decode(), f"ParameterInvalid: {answer['message']}\n")
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        self.assertEqual((client.frames(), server.published), ([], []))
        server.fixture.clock.advance(LINGER)
        self.assertFalse(client.isOpen)
        self.assertEqual(server.fixture.clock.getDelayedCalls(), [])

    def test_refusedClientSeesTheEndAtOnce(self) -> None:
        """The own direction ends after the ERROR, and the client may go on to send."""
        server = Server()
        client = server.connect()
        client.transport.losesNothing = True
        client.send("NONSENSE")
        self.assertEqual([each.command for each in client.frames()], ["ERROR"])
        transport = client.transport
        self.assertEqual((transport.isEnding, client.isOpen, transport.isRead), (True, True, True))
        client.sendBytes(b"more")
        transport.losesNothing = False
        server.fixture.clock.advance(LINGER)
        self.assertFalse(client.isOpen)

    def test_refusedWhileNotRead(self) -> None:
        """What a refused client still sends is read, so that it can see why."""
        server = Server(StompSettings(maxPublishes=2))
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.sendBytes(frame("SEND", {"destination": "a"}, b"x") + frame("X") + b"more")
        self.assertTrue(client.transport.isRead)
        server.fixture.ledger.release()
        self.assertEqual([each.command for each in client.frames()], ["ERROR"])

    def test_neverReads(self) -> None:
        """A client that does not take the last bytes is cut off."""
        server = Server()
        client = server.connect()
        client.transport.losesNothing = True
        client.send("DISCONNECT")
        server.fixture.clock.advance(ABORT)
        self.assertTrue(client.transport.wasAborted)

    def test_tooLarge(self) -> None:
        """Bounds have the error of the table."""
        server = Server(StompSettings(frames=FrameLimits(maxBody=10)))
        client = server.connect()
        client.sendBytes(b"SEND\ndestination:a\ncontent-length:11\n\n")
        [answer] = client.frames()
        self.assertEqual((answer.command, answer["code"]), ("ERROR", "100201"))

    def test_lostConnectionEndsItsSubscriptions(self) -> None:
        """A lost connection ends its subscriptions, and leaves nothing."""
        server = Server()
        client = server.connect(**{"heart-beat": "1000,1000"})
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        client.disconnect()
        self.assertTrue(server.fake.made[0].isClosed)
        self.assertFalse(server.fake.made[0].isForgotten)
        self.assertEqual(server.factory.protocols, {})
        self.assertEqual(server.fixture.clock.getDelayedCalls(), [])

    def test_lostWhileSubscribing(self) -> None:
        """A subscription that is made too late is ended."""
        server = Server()
        server.fake.isHolding = True
        client = server.connect()
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        client.disconnect()
        server.fake.release()
        self.assertTrue(server.fake.made[0].isClosed)

    def test_lostWhilePublishing(self) -> None:
        """What was submitted stays submitted."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        client.disconnect()
        server.fixture.ledger.release()
        topic = self.successResultOf(server.fixture.broker.state(ANYBODY, "1", "a"))
        self.assertEqual(topic.sequence, 1)

    def test_drainAnswersAndClosesAll(self) -> None:
        """A stop answers what has arrived, closes all, and lets nobody in."""
        server = Server()
        server.fixture.ledger.isHolding = True
        idle, new, busy = server.connect(), server.client(), server.connect()
        busy.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        drained = server.factory.drain()
        self.assertFalse(idle.isOpen or new.isOpen)
        self.assertNoResult(drained)
        self.assertIsNone(server.factory.buildProtocol(None))
        server.fixture.ledger.release()
        self.assertEqual([each["receipt-id"] for each in busy.frames()], ["1"])
        self.successResultOf(drained)

    def test_drainAbortsClosingConnections(self) -> None:
        """A refused client that keeps its end open does not hold the stop, any other not long."""
        server = Server()
        refused, deaf = server.client(), server.connect()
        for client in (refused, deaf):
            client.transport.losesNothing = True
        refused.sendBytes(b"NONSENSE\n\n\0")
        server.fixture.clock.advance(0.1)
        drained = server.factory.drain()
        server.fixture.clock.advance(0)
        self.assertEqual((refused.transport.wasAborted, deaf.transport.wasAborted), (True, False))
        self.assertNoResult(drained)
        server.fixture.clock.advance(CLOSE_AT_STOP)
        self.assertTrue(deaf.transport.wasAborted)
        self.successResultOf(drained)

    def test_drainIdle(self) -> None:
        self.successResultOf(Server().factory.drain())
