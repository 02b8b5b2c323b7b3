"""
Clients that publish through kills of brokers, and send again what was not answered.

C{SVCBROKER_TEST_KILLS} is the number of kills of each test. With 50 the MQTT client publishes
10,000 events. What was counted is in trial's log.
"""

from __future__ import annotations

import os
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.trial.unittest import SkipTest

from svcbroker.carriers.mqtt.packets import Packet, Pubcomp, Publish, Pubrec, Pubrel

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor
from .network import NetworkTestCase
from .test_durability import GONE
from .test_kills import MqttClient, MqttWire

KILLS = int(os.environ.get("SVCBROKER_TEST_KILLS", "10"))
NETWORK_KILLS = int(os.environ.get("SVCBROKER_TEST_KILLS", "3"))
EVENTS = 200 * KILLS
"""How many events the MQTT client publishes."""

WINDOW = 20
"""How many of its publishes are not complete at a time: as many packet identifiers are in use."""

PAUSE, NETWORK_PAUSE = 0.02, 0.1
"""Seconds between two attempts, and between two publishes of a client of the network, whose brokers
need the processors to start again."""

MQTT_TOPIC, REST_TOPIC = "said/mqtt", "said/rest"


class Qos2Publisher(MqttClient):
    """
    Publishes L{EVENTS} numbered events with QoS 2, in a session of which it keeps its half.

    @ivar completed: how many are complete.
    """

    def __init__(self, progress: Callable[[], None]) -> None:
        super().__init__("publisher")
        self.completed = 0
        self._progress = progress
        self._next = 0
        self._free = list(range(1, WINDOW + 1))
        # Without PUBREC, and with PUBREC.
        self._sent: dict[int, Publish] = {}
        self._released: dict[int, None] = {}

    def resumed(self, *, isNew: bool) -> None:
        self.wire.send(*self._sent.values(), *map(Pubrel, self._released))
        self._publish()
        self.ready.callback(None)

    def _publish(self) -> None:
        while self._free and self._next < EVENTS:
            packetId, content = self._free.pop(), b"%d" % self._next
            self._next += 1
            self.wire.send(Publish(MQTT_TOPIC, content, 2, packetId=packetId))
            self._sent[packetId] = Publish(MQTT_TOPIC, content, 2, dup=True, packetId=packetId)

    def received(self, packet: Packet) -> None:
        super().received(packet)
        if isinstance(packet, Pubrec):
            assert packet.reason == 0, packet
            if self._sent.pop(packet.packetId, None) is not None:
                self._released[packet.packetId] = None
            self.wire.send(Pubrel(packet.packetId))
        elif isinstance(packet, Pubcomp) and packet.packetId in self._released:
            del self._released[packet.packetId]
            self._free.append(packet.packetId)
            self.completed += 1
            self._publish()
            self._progress()


@define(eq=False)
class Retriers:
    """
    REST clients that publish events with an idempotency key each, until they are answered.

    @ivar brokers: gives the brokers that a client tries in turn.
    @ivar pause: seconds from one answer to the next publish.
    @ivar answered: the event's id of each key.
    @ivar attempts: how many requests were sent.
    """

    brokers: Callable[[], list[Daemon]]
    progress: Callable[[], None]
    random: Random
    pause: float = 0.0
    answered: dict[str, str] = field(factory=dict)
    attempts: int = 0
    isOver: bool = False

    def run(self, count: int) -> Deferred[Any]:
        """Start them. Fires when they have ended."""
        return gatherResults(
            [Deferred.fromCoroutine(self._client(number)) for number in range(count)],
            consumeErrors=True,
        )

    async def _client(self, number: int) -> None:
        turn = 0
        while not self.isOver:
            turn += 1
            key = f"{number}-{turn}"
            self.answered[key] = await self._publish(key, number)
            self.progress()
            if self.random.random() < 0.2:
                again = await self._publish(key, number + 1)
                assert again == self.answered[key], (key, again, self.answered[key])
            await deferLater(reactor, self.pause)

    async def _publish(self, key: str, first: int) -> str:
        """Publish until it is answered, at the next broker each time; the event's id."""
        while True:
            brokers = self.brokers()
            if brokers:
                self.attempts += 1
                try:
                    sent = await brokers[first % len(brokers)].call(
                        "/rest/publish",
                        topic=REST_TOPIC,
                        content=key,
                        headers={"Idempotency-Key": key},
                    )
                except GONE:
                    sent = {}
                if sent.get("status") == "SUCCESS":
                    eventId: str = sent["eventId"]
                    return eventId
                first += 1
            await deferLater(reactor, PAUSE)


class SaidOnceTestCase(DaemonTestCase):
    """
    A test that looks at what is in the log at the end.
    """

    timeout = (KILLS + 10) * TIMEOUT

    _log = Logger()

    def setUp(self) -> None:
        super().setUp()
        self.random = Random(15)
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def progress(self) -> None:
        """Look whether what is waited for is there."""
        for waiting in tuple(self._waiting):
            isTrue, found = waiting
            if isTrue():
                self._waiting.remove(waiting)
                found.callback(None)

    def until(self, isTrue: Callable[[], bool]) -> Deferred[None]:
        """Fires when something is true; the clients' L{progress} has it looked at."""
        found: Deferred[None] = Deferred()
        self._waiting.append((isTrue, found))
        self.progress()
        return found.addTimeout(TIMEOUT, reactor)

    async def events(self, daemon: Daemon, topic: str) -> list[tuple[str, str]]:
        """Content and id of all events of a topic."""
        found: list[tuple[str, str]] = []
        more: dict[str, Any] = {}
        while not more.get("isAtEnd"):
            page = await daemon.call("/rest/events", topic=topic, limit=1000, **more)
            found += [(b64decode(e["content"]).decode(), e["eventId"]) for e in page["events"]]
            more = {"from": page["next"], "isAtEnd": page["atEnd"]}
        return found

    def tell(self, kills: int, retriers: Retriers) -> None:
        """Write what was counted to the log."""
        self._log.info(
            "{kills} kills, {keys} keys, {attempts} attempts",
            kills=kills,
            keys=len(retriers.answered),
            attempts=retriers.attempts,
        )

    async def checkKeys(self, daemon: Daemon, retriers: Retriers) -> None:
        """Each key has one event, which was answered."""
        found = await self.events(daemon, REST_TOPIC)
        counts = Counter(key for key, _ in found)
        self.assertEqual([key for key, count in counts.items() if count > 1], [])
        self.assertEqual(dict(found), retriers.answered)


class DaemonKillTests(SaidOnceTestCase):
    """
    One daemon that is killed and started again.
    """

    async def begin(self) -> Daemon:
        """Start the daemon, and connect the MQTT client."""
        self.isUp = False
        self.daemon = daemon = await self.start(f"--mqtt={LOCAL}", ledger="pbft:nodes=1")
        found = await daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)")
        self.publisher.ready = Deferred()
        port = TCP4ClientEndpoint(reactor, "127.0.0.1", int(found[1]))
        await connectProtocol(port, MqttWire(self.publisher))
        await self.publisher.ready.addTimeout(TIMEOUT, reactor)
        self.isUp = True
        return daemon

    async def test_publishesThroughKillsAreInTheLogOnce(self) -> None:
        """Those with QoS 2, also in their order, and those with a key by REST."""
        self.publisher = publisher = Qos2Publisher(self.progress)
        daemon = await self.begin()
        await daemon.call("/rest/open", topic=REST_TOPIC)
        retriers = Retriers(
            lambda: [self.daemon] if self.isUp else [], self.progress, Random(self.random.random())
        )
        running = retriers.run(8)
        answers = 0
        for completed in sorted(self.random.sample(range(EVENTS - WINDOW), KILLS)):
            # The next kill comes in the middle of both.
            await self.until(lambda: publisher.completed >= completed)  # noqa: B023
            answers = len(retriers.answered) + self.random.randint(1, 10)
            await self.until(lambda: len(retriers.answered) >= answers)  # noqa: B023
            self.isUp = False
            self.assertEqual(await daemon.stop(signal.SIGKILL), -signal.SIGKILL)
            daemon = await self.begin()
        await self.until(lambda: publisher.completed == EVENTS)
        retriers.isOver = True
        await running
        contents = [content for content, _ in await self.events(daemon, MQTT_TOPIC)]
        self.assertEqual(contents, [str(number) for number in range(EVENTS)])
        await self.checkKeys(daemon, retriers)
        self.assertGreater(retriers.attempts, len(retriers.answered))
        self.assertEqual(await daemon.stop(), 0)
        self.assertNotIn("Traceback", daemon.protocol.output)
        self.tell(KILLS, retriers)


class NetworkKillTests(SaidOnceTestCase, NetworkTestCase):
    """
    Four nodes, of which one broker after the other is killed.
    """

    async def test_retriesThroughOtherBrokersAreInTheLogOnce(self) -> None:
        if not Path("/proc/self/cmdline").exists():
            raise SkipTest("the processes of brokers are found in /proc only")
        network = await self.startNetwork()
        brokers = [evolve(network, base=self.base(number)) for number in range(4)]
        await network.call("/rest/open", topic=REST_TOPIC)
        retriers = Retriers(lambda: brokers, self.progress, self.random, NETWORK_PAUSE)
        running = retriers.run(8)
        kills = Counter[int]()
        for _ in range(NETWORK_KILLS):
            answers = len(retriers.answered) + self.random.randint(8, 30)
            await self.until(lambda: len(retriers.answered) >= answers)  # noqa: B023
            number = self.random.randrange(4)
            kills[number] += 1
            os.kill(self.brokerOf(number), signal.SIGKILL)
            again = rf"node{number} is ready again"
            await network.protocol.waitFor(rf"(?s)({again}.*){{{kills[number]}}}")
        retriers.isOver = True
        await running
        for broker in brokers:
            await self.checkKeys(broker, retriers)
        self.assertGreater(retriers.attempts, len(retriers.answered))
        self.assertEqual(await network.stop(signal.SIGINT), 0)
        self.tell(NETWORK_KILLS, retriers)
