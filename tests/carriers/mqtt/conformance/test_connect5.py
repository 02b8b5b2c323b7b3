"""
How MQTT 5 connections begin and end, where it has more to say than 3.1.1.
"""

from __future__ import annotations

from . import test_connect as common
from .client import Closed
from .packets import (
    AUTH,
    CONNACK,
    V5,
    Property,
    Will,
    binary,
    connect,
    frame,
    properties,
    property_,
)
from .support import MqttTestCase


class Connect5Tests(common.ConnectTests):
    """
    What both versions have, with 5.
    """

    version = V5

    def test_connackIsNotLargerThanAccepted(self) -> None:
        """[MQTT5-3.1.2-24] A client that accepts too small packets for CONNACK gets none."""
        for size in (1, 2, 4):
            client = self.open()
            asked = [("maximumPacketSize", size)]
            client.send(connect(V5, self.id_(), properties_=asked))
            self.assertRaises(Closed, client.receive)

    def test_assignedClientIdIsTold(self) -> None:
        """[MQTT5-3.2.2-16] The name that a client was given is told, and is its own."""
        first, second = self.open(), self.open()
        names = [each.connect("").get("assignedClientId") for each in (first, second)]
        self.assertTrue(all(names))
        self.assertEqual(len(set(names)), 2)
        again = self.open()
        again.connect(names[0])
        first.closes(0x8E)

    def test_assignedClientIdKeepsSession(self) -> None:
        """[MQTT5-3.1.3-7] An assigned name stands for a session like any other."""
        client = self.open()
        answer = client.connect("", clean=False, properties_=[("sessionExpiry", 60)])
        self.assertFalse(answer.sessionPresent)
        name = answer.get("assignedClientId")
        client.leave()
        again = self.open()
        answer = again.connect(name, clean=False, properties_=[("sessionExpiry", 60)])
        self.assertTrue(answer.sessionPresent)
        self.assertIsNone(answer.get("assignedClientId"))

    def test_givenClientIdIsKept(self) -> None:
        """Section 3.2.2.3.7: who has a name is not given another."""
        self.assertIsNone(self.client().connack.get("assignedClientId"))

    def test_passwordMayStandAlone(self) -> None:
        """Section 3.1.2.9: a password without a user name is allowed. Code 0x86 would be too."""
        client = self.open()
        answer = client.connect(self.id_(), password=b"x")
        self.assertIn(answer.code, (0, 0x86, 0x87))

    def test_connackLimitsAreInRange(self) -> None:
        """Section 3.2.2.3: limits that are told are in their range."""
        answer = self.client().connack
        self.assertNotEqual(answer.get("receiveMaximum", 1), 0)
        self.assertNotEqual(answer.get("maximumPacketSize", 1), 0)
        self.assertIn(answer.get("maximumQos", 0), (0, 1))
        for name in ("retainAvailable", "wildcardAvailable", "sharedAvailable"):
            self.assertEqual(answer.get(name, 1), 1, name)
        self.assertEqual(answer.get("subscriptionIdsAvailable", 1), 1)

    def test_responseInformationNeedsRequest(self) -> None:
        """[MQTT5-3.1.2-28] Response information is only for who asks."""
        client = self.client(properties=[("requestResponse", 0)])
        self.assertIsNone(client.connack.get("responseInformation"))
        self.client(properties=[("requestResponse", 1)]).ping()

    def test_allPropertiesAreAccepted(self) -> None:
        """Section 3.1.2.11: all properties at once, in any order."""
        client = self.client(
            properties=[
                ("userProperty", ("a", "1")),
                ("topicAliasMaximum", 3),
                ("maximumPacketSize", 5000),
                ("userProperty", ("a", "2")),
                ("requestProblem", 1),
                ("receiveMaximum", 7),
                ("requestResponse", 1),
                ("sessionExpiry", 5),
                ("userProperty", ("", "")),
            ]
        )
        client.ping()

    def test_serverKeepAliveIsTold(self) -> None:
        """[MQTT5-3.1.2-21] A server that wants another keep-alive says so, and it holds."""
        answer = self.client(keepAlive=65535).connack
        self.assertNotEqual(answer.get("serverKeepAlive", 1), 0)
        # One that is short enough is left alone.
        self.assertIn(self.client(keepAlive=5).connack.get("serverKeepAlive", 5), (5,))

    def refuses(self, body: bytes, *codes: int) -> None:
        """A CONNECT with these bytes as properties and no will is refused."""
        client = self.open()
        head = b"\0\4MQTT\5\2\0\x3c" + bytes([len(body)]) + body
        client.send(frame(1, 0, head + binary(self.id_())))
        try:
            answer = client.receive()
        except Closed:
            return
        self.assertEqual(answer.kind, CONNACK)
        self.assertIn(answer.code, codes or (0x81, 0x82))
        self.assertRaises(Closed, client.receive)

    def test_repeatedPropertyIsRefused(self) -> None:
        """Section 3.1.2.11: no property but the user property may be there twice."""
        for name, value in (
            ("sessionExpiry", 5),
            ("receiveMaximum", 5),
            ("maximumPacketSize", 500),
            ("topicAliasMaximum", 5),
            ("requestResponse", 1),
            ("requestProblem", 1),
            ("authMethod", "x"),
        ):
            self.refuses(property_(name, value) * 2, 0x81, 0x82, 0x8C)

    def test_propertyOutOfRangeIsRefused(self) -> None:
        """Section 3.1.2.11: values outside their range."""
        for name, value in (
            ("receiveMaximum", 0),
            ("maximumPacketSize", 0),
            ("requestResponse", 2),
            ("requestProblem", 2),
        ):
            self.refuses(property_(name, value))

    def test_foreignPropertyIsRefused(self) -> None:
        """Section 2.2.2.2: properties that are another packet's, or nobody's."""
        for body in (
            property_("topicAlias", 1),
            property_("assignedClientId", "x"),
            property_("willDelay", 1),
            b"\x7f\1",
            b"\0\0",
        ):
            self.refuses(body)

    def test_truncatedPropertyIsRefused(self) -> None:
        """Section 2.2.2: a property that does not fit into the property length."""
        self.refuses(b"\x11\0\0")
        self.refuses(b"\x26\0\1a\0\5b")

    def test_propertyTextMustBeUtf8(self) -> None:
        """[MQTT5-1.5.4-1] [MQTT5-1.5.4-2] Property texts are UTF-8 without U+0000."""
        self.refuses(property_("userProperty", (b"\xff", "x")))
        self.refuses(property_("userProperty", ("x", b"\0")))

    def test_willPropertiesAreChecked(self) -> None:
        """Section 3.1.3.2: the will's properties are checked alike."""
        self.refusesWill([("willDelay", 1), ("willDelay", 1)], [("topicAlias", 1)])

    def test_willPropertyValuesAreChecked(self) -> None:
        """[MQTT5-3.3.2-14] Section 3.1.3.2.3: so are their values."""
        self.notForeign("mosquitto 2.0.11 looks at them when it is too late")
        self.refusesWill([("payloadFormat", 2)], [("responseTopic", "a/+")])

    def refusesWill(self, *each: list[Property]) -> None:
        """A CONNECT whose will has these properties is refused."""
        for items in each:
            client = self.open()
            will = Will(topic=self.topic("w"), properties=items)
            client.send(connect(V5, self.id_(), will=will))
            try:
                self.assertGreaterEqual(client.receive().code, 0x80)
            except Closed:
                continue
            self.assertRaises(Closed, client.receive)


class AuthTests(MqttTestCase):
    """
    Enhanced authentication, section 4.12, at a server that has none.
    """

    version = V5

    def test_unknownMethodIsRefused(self) -> None:
        """[MQTT5-4.12.0-1] A method that the server does not know: 0x8C, and the end."""
        client = self.open()
        answer = client.connect(self.id_(), properties_=[("authMethod", "NOBODY-KNOWS")])
        self.assertEqual(answer.code, 0x8C)
        self.assertRaises(Closed, client.receive)

    def test_dataWithoutMethodIsRefused(self) -> None:
        """Section 3.1.2.11.10: authentication data without a method is a protocol error."""
        self.notForeign("mosquitto 2.0.11 does not look at it without a plugin")
        client = self.open()
        client.send(connect(V5, self.id_(), properties_=[("authData", b"x")]))
        try:
            self.assertIn(client.receive().code, (0x81, 0x82, 0x87, 0x8C))
        except Closed:
            return
        self.assertRaises(Closed, client.receive)

    def test_unaskedAuthEndsConnection(self) -> None:
        """[MQTT5-4.12.1-1] Who gave no method in CONNECT may not send AUTH."""
        client = self.client()
        more = properties(V5, [("authMethod", "x")])
        client.send(frame(AUTH, 0, b"\x19" + more))
        client.closes(0x82)

    def test_authBeforeConnectEndsConnection(self) -> None:
        """[MQTT5-3.1.0-1] AUTH is not the first packet."""
        client = self.open()
        client.send(frame(AUTH, 0, b""))
        client.closes()

    def test_authFlagsMustBeZero(self) -> None:
        """[MQTT5-3.15.1-1] AUTH's flags are reserved."""
        client = self.client()
        client.send(frame(AUTH, 1, b""))
        client.closes(0x81, 0x82)
