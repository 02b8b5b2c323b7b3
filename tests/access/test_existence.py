"""
Clients cannot tell which topics and groups there are of those with which they may do nothing.

Two brokers differ in the name of a secret topic and the id of a secret group alone: they have
events, retained messages, subscribers, wills and webhooks. Both have logs of the same height.
Whatever clients ask that may do nothing with either, they are sent the same bytes in both, but for
hashes of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any, Final
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Publish,
    Subscribe,
    TopicSubscription,
    Will,
)
from svcbroker.model import CloseTopic, EventId, OpenTopic, PublishEvent, topicPrefix

from .fixture import CarriersFixture, Peer, mqttPeer, stompPeer
from .support import account

SECRETS: Final = ("secret/one", "hidden/two")
SECRET_GROUPS: Final = ("group-one", "group-two")
OPEN: Final = "public/three"
SEEDS: Final = range(6)
STEPS: Final = 300
OBSERVERS: Final = ("spy", "near", "nobody", None)
UUIDS: Final = tuple(f"00000000-0000-4000-8000-00000000000{number}" for number in range(3))
URL: Final = "http://93.184.215.14/hook"
_DENIED: Final = tuple(f"deny * 1 {name.partition('/')[0]}/#" for name in SECRETS)
_VARYING: Final = re.compile(rb"Date: [^\r]+|(0x)?[0-9a-f]{40,}|[A-Za-z0-9+/]{43,}={0,2}")
# Their lengths depend on what else the log holds: every proof shows some hashes of that.
_PROVING: Final = re.compile("/rest/(proof|topicProof|consistency|checkpoint|genesis)")


class Play:
    """
    One of the brokers.

    @ivar seen: what observers were sent, step by step.
    """

    def __init__(self, seed: int, secret: str, secretGroup: str) -> None:
        self.random = Random(seed)
        self.secret = secret
        self.secretGroup = secretGroup
        self.fixture = CarriersFixture(
            account("spy", "subscribe 1 public/#", "publish 1 public/#", "open 1 public/#"),
            account(
                "near", *(f"{each} 1 #" for each in ("publish", "subscribe", "open")), *_DENIED
            ),
            account("nobody"),
            account("root", "* * #"),
            anonymous=account("", f"subscribe 1 {OPEN}", "publish 1 +/four"),
            groups=("1", "2", secretGroup),
        )
        self.fixture.submit(secretGroup, OpenTopic(topic=OPEN))
        self.fixture.submit("1", OpenTopic(topic=OPEN), OpenTopic(topic=secret))
        self.peers: list[Peer] = []
        self.seen: list[tuple[str, bytes]] = []
        self.root = [
            stompPeer(self.fixture, "root"),
            mqttPeer(self.fixture, "root", "root", MQTT_5, will=Will(secret, b"gone", 1, True)),
        ]
        # The sequence numbers and heights of the events of the secret topic.
        self.places: list[tuple[int, int]] = []

    def run(self) -> None:
        """Do it all."""
        for _ in range(STEPS):
            step = self.pick(*STEPS_OF_PLAY)
            step(self)
            self.fixture.pump()
            for number, peer in enumerate(self.peers):
                data = peer.look()
                if data:
                    self.see(f"{number} in {step.__name__}", data)
        self.fixture.stop()

    def see(self, where: str, data: bytes) -> None:
        """Keep what an observer was sent."""
        self.seen.append((where, _VARYING.sub(b"#", data)))

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    # What happens to the secret topic.

    def publishSecret(self) -> None:
        extensions = self.pick({}, {"svc-retain": "1"}, {"svc-tag": "t"})
        content = self.pick(b"x", b"yy", b"")
        event = PublishEvent(topic=self.secret, content=content, extensions=extensions)
        before = self.pick(OpenTopic, OpenTopic, CloseTopic)(topic=self.secret)
        _, receipt = self.fixture.submit("1", before, event)
        if receipt.eventId is not None:
            self.places.append((receipt.eventId.sequence, receipt.eventId.height))

    def useGroup(self) -> None:
        """Use the secret group."""
        group = self.secretGroup
        self.fixture.submit(group, PublishEvent(topic=OPEN, content=b"g"))
        self.fixture.ask("root", "GET", f"/rest/subscribe?topic=%23&url={URL}&groupId={group}")
        mqttPeer(self.fixture, "root", "in group", MQTT_5, group)

    def publishOpen(self) -> None:
        self.fixture.submit("1", OpenTopic(topic=OPEN), PublishEvent(topic=OPEN, content=b"z"))

    def useSecret(self) -> None:
        """Subscribers of it, that make durable positions, sessions and webhooks."""
        filter = self.pick(self.secret, "#", f"{self.secret}/#")
        stomp, mqtt = self.root
        what = self.pick("stomp", "mqtt", "webhook", "lose")
        if what == "stomp":
            id = self.pick(*UUIDS)
            headers = {"id": id, "destination": filter, "ack": "client", "svc-subscriptionId": id}
            if not stomp.transport.connected:
                stomp = self.root[0] = stompPeer(self.fixture, "root")
            stomp.client.send("SUBSCRIBE", headers)
        elif what == "mqtt" and not mqtt.transport.disconnecting:
            asked = TopicSubscription(self.pick("", "$share/s/") + filter, 1)
            mqtt.client.send(Subscribe(1, (asked,)))
        elif what == "webhook":
            self.fixture.ask("root", "GET", f"/rest/subscribe?topic={quote(filter)}&url={URL}")
        elif what == "lose":
            mqtt.client.lose()
            will = Will(self.secret, b"gone", 1, True)
            clientId = self.pick("root", "other")
            self.root[1] = mqttPeer(self.fixture, "root", clientId, MQTT_5, will=will)

    # What observers do.

    def topic(self) -> str:
        topic: str = self.pick(*SECRETS, *SECRETS, OPEN, "never/four", "a+b")
        return topic

    def filter(self) -> str:
        filter: str = self.pick(
            self.topic(), "#", "+/+", "secret/#", "hidden/+", "public/#", "+/one"
        )
        return filter

    def group(self) -> str:
        group: str = self.pick("1", "1", "1", "2", "9", *SECRET_GROUPS)
        return group

    def eventId(self) -> str:
        """The id of an event of a secret topic, or of no event."""
        sequence, height = self.pick((1, 99), *self.places[-4:])
        return str(EventId(topicPrefix(self.pick(*SECRETS)), sequence, height))

    def offset(self) -> str:
        offset: str = self.pick("OFFSET_FIRST", "", "1", self.eventId(), self.eventId())
        return offset

    def askREST(self) -> None:
        topic, name = quote(self.topic()), self.pick(*OBSERVERS)
        path = self.pick(
            *(f"/rest/{call}?topic={topic}" for call in ("exist", "state", "close", "topicProof")),
            f"/rest/publish?topic={topic}&content=x&svc-retain=1",
            f"/rest/getEvent?eventId={self.eventId()}",
            f"/rest/proof?eventId={self.eventId()}",
            f"/rest/events?topic={quote(self.filter())}&from={self.offset()}&limit=5",
            f"/rest/events?topic={quote(self.filter())}&from={self.eventId()}&reverse=true",
            "/rest/list?pageSize=99",
            "/rest/list?pageIndex=1&pageSize=1",
            "/rest/checkpoint?",
            "/rest/consistency?older=1&newer=2",
            "/rest/genesis?",
            "/admin/listGroup?",
            "/admin/listSubscription?",
            "/admin/group/general?",
            "/admin/block/blockList?",
            "/admin/transaction/transList?",
            "/openapi.json?",
            "/rest/nosuch?",
            f"/rest/subscribe?topic={quote(self.filter())}&url={URL}&offset={self.offset()}"
            f"&subscriptionId={self.pick('', *UUIDS)}",
            f"/rest/unSubscribe?subscriptionId={self.pick(*UUIDS)}",
        )
        group = self.group()
        [answer] = self.fixture.ask(name, "GET", f"{path}&groupId={group}").news
        if _PROVING.match(path):
            # Whether there is a proof, and if not, why.
            answer = answer if b'"message"' in answer else answer[:20]
        self.see(f"{name} {path} {group}", answer)

    def openREST(self) -> None:
        """Opening, closing and publishing by JSON-RPC: all are refused by both."""
        topic, name, group = self.pick(*SECRETS), self.pick(*OBSERVERS), self.group()
        named = {"topic": topic, "groupId": group}
        calls = (("open", named), ("close", named), ("publish", {**named, "content": "x"}))
        for method, params in calls:
            [answer] = self.fixture.call(name, method, params).news
            self.see(f"{name} {method} {topic} {group}", answer)

    def connectSTOMP(self) -> None:
        self.peers.append(stompPeer(self.fixture, self.pick(*OBSERVERS)))

    def connectMQTT(self) -> None:
        name, clientId = self.pick(*OBSERVERS), self.pick("root", "one", "two")
        version = self.pick(MQTT_5, MQTT_311)
        will = self.pick(None, None, Will(self.topic(), b"w", 1, True))
        fields: dict[str, Any] = {}
        if version == MQTT_5:
            fields["properties"] = Properties(sessionExpiryInterval=60)
        peer = mqttPeer(
            self.fixture,
            name,
            clientId,
            version,
            self.group(),
            will=will,
            cleanStart=self.pick(True, False),
            **fields,
        )
        self.peers.append(peer)

    def useConnection(self) -> None:
        if not self.peers:
            return
        peer = self.pick(*self.peers)
        topic, filter, offset = self.topic(), self.filter(), self.offset()
        what, qos = self.pick("subscribe", "subscribe", "publish", "commit"), self.pick(0, 1)
        id, share = self.pick(*UUIDS), self.pick("", "$share/s/")
        if hasattr(peer.client, "packets"):
            if not peer.client.isLost and not peer.transport.disconnecting:
                named = (("svc-offset", offset),) if peer.client.version == MQTT_5 else ()
                asked = TopicSubscription(share + filter, qos)
                packet: Any = Subscribe(1, (asked,), Properties(userProperties=named))
                if what != "subscribe":
                    packet = Publish(topic, b"x", qos, True, False, qos * 9)
                peer.client.send(packet)
        elif peer.transport.connected:
            group = self.group()
            headers = {"id": str(len(peer.mentioned)), "eventId": offset, "destination": filter}
            headers["groupId"] = group
            if what == "subscribe":
                headers.update({"ack": "client", "svc-subscriptionId": id} if qos else {})
                peer.client.send("SUBSCRIBE", headers)
            elif what == "publish":
                headers = {"destination": topic, "groupId": group, "receipt": "r"}
                peer.client.send("SEND", headers, b"x")
            else:
                peer.client.send("BEGIN", {"transaction": "t"})
                headers = {"destination": topic, "groupId": group, "transaction": "t"}
                peer.client.send("SEND", headers, b"x")
                peer.client.send("COMMIT", {"transaction": "t"})

    def wait(self) -> None:
        self.fixture.wait(self.pick(0.1, 5.0))


STEPS_OF_PLAY: Final[tuple[Callable[[Play], None], ...]] = (
    Play.publishSecret,
    Play.publishSecret,
    Play.useGroup,
    Play.publishOpen,
    Play.useSecret,
    Play.askREST,
    Play.askREST,
    Play.askREST,
    Play.openREST,
    Play.connectSTOMP,
    Play.connectMQTT,
    Play.useConnection,
    Play.useConnection,
    Play.useConnection,
    Play.wait,
)


class ExistenceTests(SynchronousTestCase):
    def test_secretTopicsAndGroupsAreNotToldOf(self) -> None:
        for seed in SEEDS:
            secrets = zip(SECRETS, SECRET_GROUPS, strict=True)
            one, other = (Play(seed, topic, group) for topic, group in secrets)
            one.run()
            other.run()
            for (where, this), (_, that) in zip(one.seen, other.seen, strict=True):
                # In which order the subscriptions of a connection get an event is not defined.
                if sorted(this) != sorted(that):
                    self.assertEqual(this, that, f"seed {seed}, {where}")
