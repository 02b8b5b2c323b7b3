"""
How MQTT connections begin and end: section 3.1, 3.2, 3.12, 3.14 of both specifications.
"""

from __future__ import annotations

from .client import Closed, MqttClient
from .packets import (
    CONNACK,
    PING,
    PINGRESP,
    PUBACK,
    PUBLISH,
    SUBACK,
    V4,
    V5,
    Will,
    connect,
    disconnect,
    frame,
    publish,
    subscribe,
)
from .support import MqttTestCase


class ConnectTests(MqttTestCase):
    """
    Both versions.
    """

    def assertRefused(self, client: MqttClient, *codes: int) -> None:
        """The connection ends; CONNACK, if there is one, has a failure [MQTT-3.2.2-5]."""
        try:
            answer = client.receive()
        except Closed:
            return
        self.assertEqual(answer.kind, CONNACK)
        self.assertFalse(answer.sessionPresent)  # [MQTT-3.2.2-4] [MQTT5-3.2.2-6]
        if codes:
            self.assertIn(answer.code, codes)
        self.assertNotEqual(answer.code, 0)
        self.assertRaises(Closed, client.receive)

    def test_connackComesFirst(self) -> None:
        """[MQTT-3.2.0-1] [MQTT-3.1.4-4] [MQTT-3.2.2-1] CONNACK is the first answer."""
        client = self.client()
        self.assertEqual((client.connack.code, client.connack.sessionPresent), (0, False))

    def test_otherProtocolNameIsRefused(self) -> None:
        """[MQTT-3.1.2-1] Another protocol's name is not served, nor none."""
        for name in ("MQTX", ""):
            client = self.open()
            client.send(connect(self.version, self.id_(), name=name))
            self.assertRefused(client)

    def test_malformedConnectIsRefused(self) -> None:
        """Fields and flags that contradict each other."""
        noProperties = b"\0" if self.version == V5 else b""
        id_ = self.id_()
        for packet in (
            # [MQTT-3.1.2-3] The reserved bit of the connect flags is checked.
            connect(self.version, id_, flags=0x01),
            # [MQTT-3.1.2-14] [MQTT5-3.1.2-12] There is no QoS 3, for wills too.
            connect(self.version, id_, will=Will(topic="w", qos=3)),
            # [MQTT-3.1.2-13] [MQTT5-3.1.2-11] No will, no will QoS.
            connect(self.version, id_, flags=0x08),
            # [MQTT-3.1.2-15] [MQTT5-3.1.2-13] No will, no will retain.
            connect(self.version, id_, flags=0x20),
            # [MQTT-3.1.2-19] A user name that is announced must be there.
            connect(self.version, id_, flags=0x80),
            # [MQTT-3.1.3-1] [MQTT5-3.1.3-1] The payload ends after what the flags announce.
            connect(self.version, id_, extra=b"\0\1x"),
            # [MQTT-3.1.3-3] The client identifier must be there.
            frame(1, 0, b"\0\4MQTT" + bytes([self.version, 2, 0, 60]) + noProperties),
            # [MQTT-2.2.2-2] [MQTT5-2.1.3-1] The flags of CONNECT's first byte are reserved.
            b"\x11" + connect(self.version, id_)[1:],
        ):
            client = self.open()
            client.send(packet)
            self.assertRefused(client, 0x81, 0x82)

    def test_unsupportedLevelIsRefused(self) -> None:
        """[MQTT-3.1.2-2] [MQTT5-3.1.2-2] A level of the future is refused, in either's code."""
        for level in (0, 1, 2, 6, 127):
            client = self.open(V4)
            client.send(connect(self.version, self.id_(), level=level))
            # The code, at the same place in both versions' CONNACK.
            self.assertRefused(client, 1, 0x84) if level < 6 else self._refusedByNobody(client)

    def _refusedByNobody(self, client: MqttClient) -> None:
        """CONNACK may be in any version's form: only the end counts."""
        try:
            self.assertNotEqual(client.receive().code, 0)
        except Closed:
            return
        except AssertionError as error:
            self.assertIn("more bytes", str(error))
        self.assertRaises(Closed, client.receive)

    def test_clientIdMustBeUtf8(self) -> None:
        """[MQTT-3.1.3-4] [MQTT-1.5.3-1] [MQTT-1.5.3-2] A client identifier is UTF-8 without 0."""
        for wrong in (b"a\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", b"\xe2\x82"):
            client = self.open()
            client.send(connect(self.version, wrong))
            self.assertRefused(client)

    def test_alphanumericClientIdsAreAccepted(self) -> None:
        """[MQTT-3.1.3-5] 23 bytes of digits and letters are good for all servers."""
        first = self.id_("A")
        for clientId in (first.ljust(23, "z"), first.ljust(23, "Z")):
            client = self.open()
            self.assertEqual(client.connect(clientId).code, 0)

    def test_emptyClientIdIsReplaced(self) -> None:
        """[MQTT-3.1.3-6] [MQTT-3.1.3-7] Who gives no name gets one, different from others'."""
        first, second = self.open(), self.open()
        self.assertEqual(first.connect("").code, 0)
        self.assertEqual(second.connect("").code, 0)
        first.ping()
        second.ping()

    def test_firstPacketMustBeConnect(self) -> None:
        """[MQTT-3.1.0-1] Nothing comes before CONNECT."""
        for packet in (
            PING,
            subscribe(self.version, 1, [(self.topic("a"), 0)]),
            publish(self.version, self.topic("a"), b"x", qos=1, packetId=1),
            disconnect(self.version),
        ):
            client = self.open()
            client.send(packet)
            self.assertIsNone(client.closes())

    def test_secondConnectEndsConnection(self) -> None:
        """[MQTT-3.1.0-2] A second CONNECT is a protocol error."""
        client = self.client()
        client.send(connect(self.version, client.clientId))
        client.closes(0x82)

    def test_packetsBehindRefusedConnectAreIgnored(self) -> None:
        """[MQTT-3.1.4-5] [MQTT5-3.1.4-6] What follows a CONNECT that is refused is not done."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        client = self.open()
        wrong = connect(self.version, self.id_(), flags=0x01)
        client.send(wrong + publish(self.version, self.topic("a"), b"x"))
        self.assertRefused(client)
        self.assertNothing(watcher)

    def test_packetsMayFollowConnectAtOnce(self) -> None:
        """Section 3.1.4: a client need not wait for CONNACK, which still comes first."""
        client = self.open()
        client.clientId = self.id_()
        client.send(
            connect(self.version, client.clientId)
            + subscribe(self.version, 1, [(self.topic("a"), 0)])
            + PING
        )
        kinds = [client.receive().kind for _ in range(3)]
        self.assertEqual(kinds[0], CONNACK)
        self.assertEqual(set(kinds[1:]), {SUBACK, PINGRESP})

    def test_secondConnectionTakesOver(self) -> None:
        """[MQTT-3.1.4-2] [MQTT5-3.1.4-3] A client that comes again ends its older connection."""
        old = self.client("same")
        new = self.client("same")
        ended = old.closes(0x8E)
        new.ping()
        if self.version == V5:
            self.notForeign("mosquitto 2.0.11 closes without DISCONNECT")
            self.assertIsNotNone(ended, "DISCONNECT must tell")

    def test_disconnectEndsReading(self) -> None:
        """[MQTT-3.14.4-1] [MQTT-3.14.4-2] After DISCONNECT the server closes, and reads no more."""
        watcher = self.client()
        watcher.subscribe(self.topic("#"))
        client = self.client()
        client.send(disconnect(self.version) + publish(self.version, self.topic("late"), b"x"))
        self.assertIsNone(client.closes())
        self.assertNothing(watcher)

    def test_silenceEndsConnection(self) -> None:
        """[MQTT-3.1.2-24] [MQTT5-3.1.2-22] Silence of 1.5 times the keep-alive is the end."""
        client = self.client(keepAlive=1)
        started = self.broker.seconds()
        client.closes(0x8D)
        # mosquitto looks every five seconds.
        most = 10 if self.broker.isForeign else 1.6
        self.assertTrue(1.4 <= self.broker.seconds() - started <= most)

    def test_anyPacketKeepsAlive(self) -> None:
        """Section 3.1.2.10: any packet counts, not PINGREQ alone; what is received does not."""
        client = self.client(keepAlive=1)
        for _ in range(3):
            self.assertRaises(TimeoutError, client.receive, 0.8)
            client.publish(self.topic("a"), b"x")
        client.ping()

    def test_userNameAndPasswordAreRead(self) -> None:
        """[MQTT-3.1.2-19] [MQTT-3.1.2-21] A user name and password are read, whoever asks."""
        client = self.client(user="1/somebody", password=b"\0\xff")
        client.ping()

    def test_packetsMayArriveByteByByte(self) -> None:
        """Section 4.2: the transport is a stream; where it is cut means nothing."""
        client = self.open()
        client.sendSlowly(connect(self.version, self.id_()))
        self.assertEqual(client.expect(CONNACK).code, 0)
        client.sendSlowly(subscribe(self.version, 300, [(self.topic("a"), 1)]))
        self.assertEqual(client.expect(SUBACK).packetId, 300)
        data = publish(self.version, self.topic("a"), b"x" * 200, qos=1, packetId=1)
        client.sendSlowly(data)
        answers = {each.kind: each for each in (client.receive(), client.receive())}
        self.assertEqual(answers[PUBACK].packetId, 1)
        self.assertEqual(answers[PUBLISH].payload, b"x" * 200)


class Connect4Tests(MqttTestCase):
    """
    Only 3.1.1.
    """

    def test_emptyClientIdNeedsCleanSession(self) -> None:
        """[MQTT-3.1.3-8] A session that stays needs a name: code 2."""
        client = self.open()
        answer = client.connect("", clean=False)
        self.assertEqual((answer.code, answer.sessionPresent), (2, False))
        self.assertRaises(Closed, client.receive)

    def test_passwordNeedsUserName(self) -> None:
        """[MQTT-3.1.2-22] A password without a user name is wrong."""
        client = self.open()
        client.send(connect(self.version, self.id_(), password=b"x"))
        try:
            self.assertNotEqual(client.receive().code, 0)
        except Closed:
            return
        self.assertRaises(Closed, client.receive)
