"""
CONNECT, keep alive, take-over, DISCONNECT.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.context import MqttSettings
from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
)
from svcbroker.net.budgets import READS_A_TURN
from svcbroker.net.transports import CLOSE_AT_STOP

from .support import Server

VERSIONS = (MQTT_311, MQTT_5)


class ConnectTests(SynchronousTestCase):
    """
    What a CONNECT is granted.
    """

    def test_connackTellsTheBounds(self) -> None:
        """The first packet is a CONNACK, which tells a MQTT 5 client the bounds."""
        server = Server()
        self.assertEqual(server.client(MQTT_311).connect("a"), Connack())
        connack = server.client(MQTT_5).connect("b", keepAlive=30)
        self.assertEqual(connack.reason, 0)
        settings = MqttSettings()
        self.assertEqual(
            connack.properties,
            Properties(
                receiveMaximum=settings.receiveMaximum,
                maximumPacketSize=settings.maximumPacketSize,
                topicAliasMaximum=settings.topicAliasMaximum,
            ),
        )

    def test_serverOnlyPacketIsRefused(self) -> None:
        """Only a server sends some packets."""
        for packet in (Connack(), Pingresp()):
            client = Server().connected()
            client.send(packet)
            self.assertEqual(client.reasonOfEnd(), ReasonCode.PROTOCOL_ERROR)

    def test_unknownLevelIsRefused(self) -> None:
        """A version that is not spoken is refused in words that its client knows."""
        client = Server().client(MQTT_311)
        client.sendBytes(bytes.fromhex("100c00044d51545403020000") + b"\0\0")
        self.assertEqual(client.takeOne(Connack).reason, 1)
        self.assertTrue(client.isClosed)
        client = Server().client(MQTT_5)
        client.sendBytes(bytes.fromhex("100c00044d51545406020000") + b"\0\0")
        self.assertEqual(client.reasonOfEnd(), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)

    def test_unknownProtocolIsClosedSilently(self) -> None:
        """Another protocol is closed without a word."""
        client = Server().client(MQTT_311)
        client.sendBytes(bytes.fromhex("100e00064d514973647003020000") + b"\0\0")
        self.assertTrue(client.isClosed)
        self.assertEqual(client.take(), [])

    def test_malformedConnectIsToldWhy(self) -> None:
        """A malformed CONNECT of MQTT 5 is told why."""
        client = Server().client(MQTT_5)
        client.sendBytes(bytes.fromhex("100d00044d5154540503000000") + b"\0\0")
        self.assertEqual(client.reasonOfEnd(), ReasonCode.MALFORMED_PACKET)

    def test_longClientIdIsRefused(self) -> None:
        """A client identifier has a bound."""
        client = Server().client()
        self.assertEqual(client.connect("x" * 1025).reason, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        self.assertEqual(Server().client(MQTT_311).connect("x" * 1025).reason, 2)

    def test_userNameChoosesTheGroup(self) -> None:
        """The user name chooses the group; a password is not looked at."""
        server = Server()
        two = server.connected("a", userName="2/alice", password=b"any")
        one = server.connected("b", userName="alice")
        two.subscribe("#")
        one.subscribe("#")
        server.connected("c", userName="2/bob").publish("t", b"in two")
        server.connected("d", MQTT_311).publish("t", b"in one")
        self.assertEqual(two.payloads(), [b"in two"])
        self.assertEqual(one.payloads(), [b"in one"])
        client = server.client()
        self.assertEqual(
            client.connect("e", userName="9/x").reason, ReasonCode.BAD_USER_NAME_OR_PASSWORD
        )
        self.assertEqual(server.client(MQTT_311).connect("e", userName="9/x").reason, 4)

    def test_sessionsAreBounded(self) -> None:
        """There is a bound on sessions; one that is there can be resumed."""
        server = Server(MqttSettings(maxSessions=1))
        server.connected("a", expiry=100).lose()
        self.assertEqual(server.client().connect("b").reason, ReasonCode.QUOTA_EXCEEDED)
        self.assertEqual(server.client(MQTT_311).connect("b").reason, 3)
        self.assertTrue(server.client().connect("a", cleanStart=False, expiry=9).sessionPresent)

    def test_secondConnectionTakesOver(self) -> None:
        """A second connection with the same identifier ends the first one."""
        server = Server()
        old = server.connected("a")
        new = server.connected("a")
        self.assertEqual(old.reasonOfEnd(), ReasonCode.SESSION_TAKEN_OVER)
        new.send(Pingreq())
        self.assertEqual(new.take(), [Pingresp()])
        old = server.connected("b", MQTT_311)
        server.connected("b", MQTT_311)
        self.assertTrue(old.isClosed)
        old.lose()
        self.assertEqual(len(server.carrier.sessions), 2)


class KeepAliveTests(SynchronousTestCase):
    """
    Silence.
    """

    def test_onlyWholePacketsCount(self) -> None:
        """Every packet counts, bytes of an unfinished one do not."""
        server = Server()
        client = server.connected(keepAlive=10)
        for _ in range(3):
            server.wait(9)
            client.publish("t")
        self.assertFalse(client.isClosed)
        server.wait(9)
        client.sendBytes(b"\x30")
        server.wait(7)
        self.assertTrue(client.isClosed)

    def test_pausedClientIsNotSilent(self) -> None:
        """Who is not read from, because the log is slow, is not taken for silent."""
        server = Server(MqttSettings(receiveMaximum=1))
        client = server.connected(keepAlive=10)
        server.ledger.isHolding = True
        client.send(Publish("t", b"x", 1, packetId=1))
        server.wait(100)
        self.assertFalse(client.isClosed)
        server.ledger.isHolding = False
        server.ledger.release()
        server.wait(100)
        self.assertTrue(client.isClosed)

    def test_keepAliveMayBeZero(self) -> None:
        """A 3.1.1 client may have no keep-alive."""
        server = Server()
        client = server.connected(version=MQTT_311)
        server.wait(100_000)
        self.assertFalse(client.isClosed)

    def test_keepAliveIsCapped(self) -> None:
        """A MQTT 5 client that asks for more than there is gets what there is."""
        server = Server()
        for asked in (0, 120):
            client = server.client()
            connack = client.connect(keepAlive=asked)
            self.assertEqual(connack.properties.serverKeepAlive, 60)
            server.wait(91)
            self.assertTrue(client.isClosed)

    def test_missingConnectTimesOut(self) -> None:
        """Who does not say anything at first is not waited for."""
        server = Server()
        client = server.client()
        server.wait(11)
        self.assertTrue(client.isClosed)

    def test_unreadEndIsAborted(self) -> None:
        """Who does not take what is left is cut off."""
        server = Server()
        client = server.connected()
        client.send(Connect("again"))
        self.assertTrue(client.isClosed)
        self.assertFalse(client.transport.aborting)
        server.wait(11)
        self.assertTrue(client.transport.aborting)


class DisconnectTests(SynchronousTestCase):
    """
    DISCONNECT.
    """

    def test_shutDownAnswersThenDisconnects(self) -> None:
        """The daemon stops: publishes are answered, then everybody is told."""
        server = Server()
        new = server.connected("a")
        old = server.connected("b", MQTT_311)
        server.ledger.isHolding = True
        new.send(Publish("t", b"x", 1, packetId=5))
        drained = server.carrier.drain()
        server.pump()
        self.assertTrue(old.isClosed)
        self.assertFalse(new.isClosed)
        server.ledger.isHolding = False
        server.ledger.release()
        self.assertEqual(
            new.take(),
            [
                Puback(5),
                Disconnect(
                    ReasonCode.SERVER_SHUTTING_DOWN,
                    Properties(reasonString="the server is shutting down"),
                ),
            ],
        )
        self.assertNoResult(drained)
        new.lose()
        old.lose()
        self.successResultOf(drained)
        self.assertIsNone(server.factory.buildProtocol(None))

    def test_shutDownThatIsCancelledAbortsInTurns(self) -> None:
        """Its time is over: the connections that are left end, each with its subscriptions."""
        server = Server()
        server.ledger.isHolding = True
        clients = [server.connected(each) for each in "abc"]
        for each in clients:
            each.send(Publish("t", b"x", 1, packetId=5))
        drained = server.carrier.drain()
        work, end = server.budgets.work, server.carrier.sessions.disconnected
        ended: list[str] = []

        def disconnected(session: Any, **more: Any) -> None:
            end(session, **more)
            ended.append(session.clientId)
            work.used[0] += READS_A_TURN

        self.patch(server.carrier.sessions, "disconnected", disconnected)
        drained.cancel()
        for count in range(1, len(clients) + 1):
            self.assertEqual(len(ended), count)
            server.clock.advance(1)
        self.failureResultOf(drained, CancelledError)

    def test_shutDownAbortsClosingConnections(self) -> None:
        """A refused client that keeps its end open does not hold the stop, any other not long."""
        server = Server()
        refused, deaf = server.connected("a"), server.connected("b")
        refused.send(Connect("again"))
        self.assertTrue(refused.isClosed)
        drained = server.carrier.drain()
        server.clock.advance(0)
        self.assertEqual((refused.transport.aborting, deaf.transport.aborting), (True, False))
        server.clock.advance(CLOSE_AT_STOP)
        self.assertTrue(deaf.transport.aborting)
        refused.lose()
        deaf.lose()
        self.successResultOf(drained)
