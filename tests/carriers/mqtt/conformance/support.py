"""
What conformance tests have in common.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from .brokers import IBroker, MemoryBroker, SocketBroker
from .client import MqttClient
from .packets import CONNACK, V4, V5, Packet, Property

ADDRESS = "SVCBROKER_TEST_MQTT"
STRICT = "SVCBROKER_TEST_STRICT"

PERSISTENT: tuple[Property, ...] = (("sessionExpiry", 300),)

_numbers = count(1)
_run = uuid4().hex[:8]


class MqttTestCase(SynchronousTestCase):
    """
    A test of a broker, from outside.

    @ivar version: the version that its clients speak. Behaviour that the two have in common is
        tested in a class of 3.1.1, whose subclass runs the same with 5.
    """

    version = V4
    timeout = 60

    def setUp(self) -> None:
        self.broker = self.makeBroker()
        self.prefix = f"{_run}/{next(_numbers)}"
        self.addCleanup(self._check)

    def makeBroker(self) -> IBroker:
        """The broker under test."""
        elsewhere = os.environ.get(ADDRESS)
        if elsewhere:
            host, _, port = elsewhere.rpartition(":")
            return SocketBroker((host, int(port)), isForeign=STRICT not in os.environ)
        return MemoryBroker()

    def _check(self) -> None:
        self.assertEqual(self.broker.errors(), "")

    def notForeign(self, reason: str) -> None:
        """
        Leave out brokers of others, where one that the tests were tried against is known to
        deviate (mosquitto 2.0.11), or where the specification leaves it open and we do not.
        """
        if self.broker.isForeign:
            raise SkipTest(reason)

    def topic(self, name: str) -> str:
        """A topic that no other test uses."""
        return f"{self.prefix}/{name}"

    def id_(self, name: str = "c") -> str:
        """A client identifier that no other test uses: letters and digits [MQTT-3.1.3-5]."""
        return f"{self.prefix}{name}".replace("/", "x")

    def open(self, version: int | None = None) -> MqttClient:
        """A connection on which nothing was sent yet."""
        client = MqttClient(self.broker, version or self.version)
        client.isTold = client.version == V5 and not self.broker.isForeign
        self.addCleanup(client.close)
        return client

    def client(
        self,
        name: str | None = None,
        *,
        version: int | None = None,
        properties: Iterable[Property] = (),
        **more: Any,
    ) -> MqttClient:
        """
        A client that is connected; with a name of its own if none is given.
        """
        client = self.open(version)
        clientId = self.id_(f"n{next(_numbers)}" if name is None else name)
        answer = client.connect(clientId, properties_=tuple(properties), **more)
        self.assertEqual((answer.kind, answer.code), (CONNACK, 0), answer)
        return client

    def persistent(
        self,
        name: str,
        *,
        version: int | None = None,
        clean: bool = False,
        properties: Iterable[Property] = (),
        **more: Any,
    ) -> MqttClient:
        """A client whose session stays when it leaves."""
        version = version or self.version
        all_ = (*PERSISTENT, *properties) if version == V5 else tuple(properties)
        return self.client(name, version=version, clean=clean, properties=all_, **more)

    def assertNothing(self, client: MqttClient) -> None:
        """What was published up to now does not come to this client."""
        self.assertEqual(client.settle(), [])

    def assertMessages(self, packets: Iterable[Packet], *expected: tuple[Any, ...]) -> None:
        """They have these payloads, or pairs of payload and QoS."""
        got = list(packets)
        short = [(each.payload, each.qos)[: len(expected[0])] if expected else each for each in got]
        self.assertEqual(short, list(expected))
