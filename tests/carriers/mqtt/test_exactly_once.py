"""
Publishes with QoS 2 through crashes at every point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.codec import encode
from svcbroker.carriers.mqtt.fields import NO_PROPERTIES, Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Connack,
    Connect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from svcbroker.testing.doubles import ScriptedLedger, memoryLedger

from .support import MetadataFile, Server

VERSIONS = (MQTT_311, MQTT_5)
MESSAGES = ((7, b"first"), (7, b"another with the same packet id"), (8, b"last"))
CONTENTS = [content for _, content in MESSAGES]
EXPIRY = 10_000


class SlowFile(MetadataFile):
    """
    A disk that takes its time.

    @ivar writing: the write that is under way, if there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writing: tuple[dict[tuple[str, str], bytes | None], Deferred[None]] | None = None

    def write(self, changes: dict[tuple[str, str], bytes | None]) -> Any:
        self.writing = (changes, Deferred())
        return self.writing[1]

    def finish(self) -> None:
        """Finish the write that is under way."""
        assert self.writing is not None
        (changes, done), self.writing = self.writing, None
        super().write(changes)
        done.callback(None)

    def crash(self, *, isWritten: bool) -> SlowFile:
        """The disk as the next process finds it. That of this one does nothing any more."""
        following = SlowFile()
        following.kept, following.numbers = self.kept, self.numbers
        if self.writing is not None and isWritten:
            super().write(self.writing[0])
        return following


class SteadyClient:
    """
    A client that keeps its half of the session, publishes L{MESSAGES} one after the other, and
    sends again what was not answered.

    @ivar hasSession: whether it has connected.
    """

    hasSession = False

    def __init__(self, version: int) -> None:
        self.version = version
        self.waiting = list(MESSAGES)
        self.sent: Publish | None = None
        self.released: int | None = None

    @property
    def isDone(self) -> bool:
        """Whether all are complete."""
        return not self.waiting and self.sent is None and self.released is None

    def connect(self, server: Server) -> None:
        """Connect to a broker, and go on as soon as it has answered."""
        self.client = server.client(self.version)
        properties = NO_PROPERTIES
        if self.version == MQTT_5:
            properties = Properties(sessionExpiryInterval=EXPIRY)
        self.write(Connect("steady", False, version=self.version, properties=properties))

    def write(self, packet: Any) -> None:
        """Send a packet, without time passing."""
        self.client.protocol.dataReceived(encode(packet, self.version))

    def read(self) -> None:
        """Answer what has arrived."""
        self.client.look()
        packets, self.client.packets = self.client.packets, []
        for packet in packets:
            self.received(packet)

    def received(self, packet: Any) -> None:
        """Answer a packet."""
        if isinstance(packet, Connack):
            assert (packet.reason, packet.sessionPresent) == (0, self.hasSession), packet
            self.hasSession = True
            if self.sent is not None:
                self.write(self.sent)
            if self.released is not None:
                self.write(Pubrel(self.released))
            self.publish()
        elif isinstance(packet, Pubrec):
            assert packet.reason == 0, packet
            if self.sent is not None:
                self.sent, self.released = None, packet.packetId
            self.write(Pubrel(packet.packetId))
        elif isinstance(packet, Pubcomp):
            self.released = None
            self.publish()

    def publish(self) -> None:
        """Publish the next message."""
        if self.waiting and self.sent is None and self.released is None:
            packetId, content = self.waiting.pop(0)
            packet = Publish("t", content, 2, packetId=packetId)
            self.sent = Publish("t", content, 2, dup=True, packetId=packetId)
            self.write(packet)


class CrashTests(SynchronousTestCase):
    """
    A broker that crashes once and again, with a client that publishes to it.
    """

    def start(self) -> None:
        """Start a broker."""
        self.ledger = ScriptedLedger(self.chain)
        self.ledger.isHolding = True
        self.server = Server(None, self.file, {"1": self.ledger}, self.clock)

    def step(self, client: SteadyClient) -> None:
        """
        The next thing that can happen: a call of the reactor, a write to the disk or a block that
        is complete, or time that passes.
        """
        clock: Any = self.clock
        due = [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
        if due:
            run, arguments, keywords = due[0].func, due[0].args, due[0].kw
            due[0].cancel()
            run(*arguments, **keywords)
        elif self.file.writing is not None:
            self.file.finish()
        elif self.ledger.held:
            self.ledger.release()
        else:
            self.clock.advance(0.025)
        client.read()

    def publish(self, version: int, crashes: Sequence[int], *, areLost: bool) -> bool:
        """
        Publish, with a crash after some numbers of steps each.

        @param areLost: whether what was on its way to the disk or into a block when the broker
            crashed is lost. Otherwise it gets there, a little later.
        @return: whether the client was not done at the last crash.
        """
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.chain = memoryLedger(self.clock)
        self.file = SlowFile()
        self.start()
        client = SteadyClient(version)
        client.connect(self.server)
        while not client.hasSession:
            self.step(client)
        for steps in crashes:
            for _ in range(steps):
                self.step(client)
            isEarly = not client.isDone
            late = () if areLost else self.ledger.held
            self.server.crash()
            self.file = self.file.crash(isWritten=not areLost)
            self.start()
            client.connect(self.server)
            for request in late:
                self.chain.submitMany((request,))
        for _ in range(200):
            self.step(client)
        self.assertTrue(client.isDone)
        return isEarly

    def contents(self) -> list[bytes]:
        """The events of the log."""
        height = self.successResultOf(self.chain.getStatistics()).height
        blocks = [self.successResultOf(self.chain.readBlock(n)) for n in range(1, height + 1)]
        return [event.content for block in blocks for event in block.events]

    def test_crashAtAnyPointLeavesOneEventOfEach(self) -> None:
        """And no message is taken for an earlier one with its packet identifier."""
        for version in VERSIONS:
            for areLost in (True, False):
                steps = 0
                while self.publish(version, [steps], areLost=areLost):
                    self.assertEqual(self.contents(), CONTENTS, (version, areLost, steps))
                    steps += 1
                self.assertGreater(steps, 20)

    def test_crashDuringRecoveryLeavesOneEventOfEach(self) -> None:
        for areLost in (True, False):
            for first in range(0, 30, 2):
                second = 0
                while self.publish(MQTT_5, [first, second], areLost=areLost):
                    self.assertEqual(self.contents(), CONTENTS, (areLost, first, second))
                    second += 1
