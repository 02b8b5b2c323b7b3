"""
Clients are never sent more than their accounts may read, whatever they and others do.

Contents are marks that tell which event they are of, so that every byte that leaves the broker can
be held against the grants of that moment.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any, Final
from urllib.parse import quote

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import Properties
from svcbroker.carriers.mqtt.packets import (
    MQTT_5,
    MQTT_311,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    TopicSubscription,
    Unsubscribe,
    Will,
)
from svcbroker.interfaces import Action
from svcbroker.model import EventId, OpenTopic, PublishEvent

from .fixture import GROUPS, CarriersFixture, Peer, mqttPeer, stompPeer, views
from .support import account

SEEDS: Final = (0, 1, 2, 4, 109, 110, 122, 132)
"""Sequences that have found leaks: of events that wait, shared subscriptions, history, webhooks."""
STEPS: Final = 600

TOPICS: Final = (
    "alder/one",
    "alder/two",
    "birch/one",
    "cedar/dev1",
    "cedar/dev2",
    "elder",
    "$svc/fir",
)
NAMES_OF_TOPICS: Final = {
    topic: (topic.encode(), sha256(topic.encode()).hexdigest()[:8].encode()) for topic in TOPICS
}
FILTERS: Final = (*TOPICS, "#", "alder/#", "+/one", "cedar/+", "birch/#", "$svc/#", "+")
NAMES: Final = ("u0", "u1", "u2", "u3", "root", None)
CLIENT_IDS: Final = ("dev1", "dev2", "dev3")
IDS: Final = tuple(f"00000000-0000-4000-8000-00000000000{number}" for number in range(4))
PRESETS: Final = (
    ("* 1 alder/#", "open 1 #"),
    ("subscribe 1 #", "deny subscribe 1 birch/#", "publish * +/one"),
    ("* * #",),
    ("* 1 cedar/%c",),
    ("subscribe 1 alder/one", "publish 1 birch/one", "subscribe 2 #", "admin 1"),
    ("publish * #", "open * #"),
    (),
)
ANONYMOUS: Final = account("", "subscribe 1 elder", "subscribe 2 birch/#")
MARK: Final = re.compile(rb"<(\d{4})>")


def kindOf(peer: Peer) -> str:
    """The protocol of a client that stays connected."""
    return "stomp" if "stomp" in type(peer.client).__module__ else "mqtt"


class Run:
    """
    A random sequence of what clients, receivers of webhooks and operators do.

    @ivar leaks: what somebody was sent that he may not read.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fixture = CarriersFixture(
            *(account(f"u{number}", *lines) for number, lines in enumerate(PRESETS[:4])),
            account("root", "* * #", "* * $svc/#"),
            anonymous=ANONYMOUS,
        )
        self.peers: list[Peer] = []
        # Group and topic of each event, by its mark.
        self.events: list[tuple[str, str]] = []
        self.eventIds: list[str] = []
        self.leaks: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.doing = ""
        # What clients of each account have sent: the list of its subscriptions names that.
        self.mentions: dict[str | None, bytes] = defaultdict(bytes)
        self.fixture.poster.judge = self.judge
        for group in GROUPS:
            for topic in TOPICS[:-2]:
                self.fixture.submit(group, OpenTopic(topic=topic))

    # Looking.

    def mayRead(self, name: str | None, clientId: str, group: str, topic: str) -> bool:
        """Whether an account may read a topic now, asked of its grants past the broker."""
        identity = self.fixture.accounts.identities.get(name) if name else ANONYMOUS
        return identity is not None and (
            identity.grants.decide(Action.SUBSCRIBE, group, topic, clientId).isGranted
        )

    def sees(self, name: str | None, clientId: str, topic: str) -> bool:
        """Whether an account may do anything with a topic."""
        identity = self.fixture.accounts.identities.get(name) if name else ANONYMOUS
        return identity is not None and any(
            identity.grants.decide(action, group, topic, clientId).isGranted
            for action in Action
            for group in GROUPS
        )

    def judge(self, post: Any) -> bool | None:
        self.check(self.fixture.accountOf(post), "", post.body, "webhook", b"")
        return self.random.choice((True, True, False, None))

    def lookAt(self, peer: Peer) -> None:
        """Hold what a client was sent against what it may read."""
        data = peer.look()
        if data:
            self.check(peer.name, peer.clientId, data, kindOf(peer), peer.mentioned)
            self.mentions[peer.name] = self.mentions[peer.name][-10_000:] + peer.mentioned

    def check(
        self, name: str | None, clientId: str, data: bytes, where: str, mentioned: bytes
    ) -> None:
        for view in views(data):
            for number in map(int, MARK.findall(view)):
                group, topic = self.events[number]
                self.delivered[where] += 1
                if not self.mayRead(name, clientId, group, topic):
                    self.leaks.append(f"{name} got {topic} of {group} by {where} of {self.doing}")
            for topic in TOPICS:
                for each in NAMES_OF_TOPICS[topic]:
                    # Grants are asked last: they take most of the time.
                    isTold = each in view and each not in mentioned
                    if isTold and not self.sees(name, clientId, topic):
                        self.leaks.append(f"{name} was told {each!r} by {where} of {self.doing}")

    # Doing.

    def run(self) -> None:
        """Do it all."""
        for _ in range(STEPS):
            step = self.random.choice(STEPS_OF_RUN)
            self.doing = step.__name__
            step(self)
            self.fixture.pump()
            for peer in self.peers:
                self.lookAt(peer)
        self.fixture.stop()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def mark(self, group: str, topic: str) -> bytes:
        """The content of a new event."""
        self.events.append((group, topic))
        return b"<%04d>" % (len(self.events) - 1)

    def some(self, kind: str) -> Peer | None:
        """A client of a protocol that is connected."""
        found = [peer for peer in self.peers if kindOf(peer) == kind and self.isOpen(peer)]
        return self.random.choice(found) if found else None

    def isOpen(self, peer: Peer) -> bool:
        if kindOf(peer) == "stomp":
            return bool(peer.transport.connected) and peer.client.protocol._admission is not None
        return not peer.transport.disconnecting and not peer.client.isLost

    def granted(self, peer: Peer, action: Action, group: str, *choices: str) -> str:
        """One of these topics or filters, mostly one of which something is granted."""
        identity = self.fixture.accounts.identities.get(peer.name or "", ANONYMOUS)
        found = [
            each
            for each in choices
            if identity.grants.mayAny(action, group, each.split(",")[0], peer.clientId)
        ]
        if not found or self.random.random() < 0.2:
            found = list(choices)
        return self.random.choice(found)

    def offset(self) -> str:
        offset: str = self.pick("OFFSET_FIRST", "OFFSET_LAST", "1", *self.eventIds[-5:])
        return offset

    def publishAnything(self) -> None:
        """Publish as others, so that there is something to read."""
        group, topic = self.pick("1", "1", "2"), self.pick(*TOPICS)
        extensions = self.pick({}, {}, {"svc-retain": "1"}, {"svc-tag": "t"})
        requests = [
            PublishEvent(topic=topic, content=self.mark(group, topic), extensions=extensions)
            for _ in range(self.pick(1, 3))
        ]
        for receipt in self.fixture.submit(group, OpenTopic(topic=topic), *requests)[1:]:
            self.eventIds.append(str(receipt.eventId))

    def askREST(self) -> None:
        topic, group, name = (
            self.pick(*TOPICS),
            self.pick("1", "1", "1", "2", "9"),
            self.pick(*NAMES),
        )
        filter = self.granted(Peer(name, None), Action.SUBSCRIBE, group, *FILTERS)
        known = self.pick(*self.eventIds[-20:], str(EventId("0" * 8, 1, 1)))
        content = quote(self.mark(group, topic))
        path = self.pick(
            f"/rest/open?topic={quote(topic)}",
            f"/rest/close?topic={quote(topic)}",
            f"/rest/exist?topic={quote(topic)}",
            f"/rest/state?topic={quote(topic)}",
            f"/rest/topicProof?topic={quote(topic)}",
            f"/rest/publish?topic={quote(topic)}&content={content}&svc-retain=1",
            f"/rest/publish?topic={quote(topic)}&content={content}",
            f"/rest/getEvent?eventId={known}",
            f"/rest/getEvent?eventId={known}",
            f"/rest/proof?eventId={known}",
            f"/rest/events?topic={quote(filter)}&from={self.offset()}&limit=50",
            f"/rest/events?topic={quote(filter)}&reverse=true&limit={self.pick(1, 50)}",
            "/rest/list?pageIndex=0&pageSize=99",
            "/rest/list?pageIndex=1&pageSize=1",
            "/rest/checkpoint?",
            "/rest/genesis?",
            "/rest/consistency?older=1&newer=2",
            "/admin/listGroup?",
            "/admin/listSubscription?",
            "/admin/listNodes?",
            "/admin/group/general?",
            "/admin/transaction/transList?",
            "/admin/block/blockList?",
            "/admin/node/nodeList?",
            "/openapi.json?",
            f"/rest/subscribe?topic={quote(filter)}&url=http://93.184.215.14/h"
            f"&subscriptionId={self.pick(*IDS)}&offset={self.offset()}",
            f"/rest/subscribe?topic={quote(filter)}&url=http://93.184.215.14/h"
            f"&offset={self.offset()}&tag=t",
            f"/rest/unSubscribe?subscriptionId={self.pick(*IDS)}",
        )
        peer = self.fixture.ask(name, "GET", f"{path}&groupId={group}")
        [answer] = peer.news
        self.check(name, "", answer, "HTTP", peer.mentioned + self.mentions[name])

    def askJSONRPC(self) -> None:
        topic, group, name = self.pick(*TOPICS), self.pick("1", "2"), self.pick(*NAMES)
        known = self.pick(*self.eventIds[-20:], str(EventId("0" * 8, 1, 1)))
        content = b64encode(self.mark(group, topic)).decode()
        method, params = self.pick(
            ("publish", {"topic": topic, "content": content}),
            ("getEvent", {"eventId": known}),
            ("list", {"pageSize": 50}),
            ("state", {"topic": topic}),
            ("proof", {"eventId": known}),
            ("close", {"topic": topic}),
        )
        peer = self.fixture.call(name, method, {**params, "groupId": group})
        [answer] = peer.news
        self.check(name, "", answer, "HTTP", peer.mentioned)

    def connectSTOMP(self) -> None:
        peer = stompPeer(self.fixture, self.pick(*NAMES))
        self.peers.append(peer)
        if self.isOpen(peer):
            self.subscribeSTOMP(peer)

    def subscribeSTOMP(self, peer: Peer) -> None:
        group = self.pick("1", "1", "1", "2")
        destinations = (*FILTERS, "alder/one,birch/one", "#,elder")
        headers = {
            "id": str(len(peer.mentioned)),
            "destination": self.granted(peer, Action.SUBSCRIBE, group, *destinations),
            "groupId": group,
            "ack": self.pick("auto", "client", "client-individual"),
            "prefetch-count": self.pick("1", "2", "100"),
            "eventId": self.offset(),
        }
        if self.random.random() < 0.5:
            headers["svc-subscriptionId"] = self.pick(*IDS)
        peer.client.send("SUBSCRIBE", headers)

    def useSTOMP(self) -> None:
        peer = self.some("stomp")
        if peer is None:
            return
        client, group = peer.client, self.pick("1", "1", "2")
        topic = self.granted(peer, Action.PUBLISH, group, *TOPICS)
        what = self.pick("SUBSCRIBE", "SEND", "ACK", "ACK", "ACK", "UNSUBSCRIBE", "COMMIT")
        if what == "SUBSCRIBE":
            self.subscribeSTOMP(peer)
        elif what == "SEND":
            headers = {"destination": topic, "groupId": group, "receipt": "r"}
            client.send("SEND", headers, self.mark(group, topic))
        elif what == "ACK":
            for frame in client.frames()[:3]:
                if frame.command == "MESSAGE" and "ack" in frame.headers:
                    command = self.pick("ACK", "ACK", "NACK")
                    client.send(command, {"id": frame["ack"]})
        elif what == "UNSUBSCRIBE":
            found = re.findall(rb"SUBSCRIBE\nid:(\d+)", peer.mentioned) or [b"1"]
            client.send("UNSUBSCRIBE", {"id": found[-1].decode()})
        else:
            client.send("BEGIN", {"transaction": "t"})
            headers = {"destination": topic, "groupId": group, "transaction": "t"}
            client.send("SEND", headers, self.mark(group, topic))
            client.send("COMMIT", {"transaction": "t"})

    def connectMQTT(self) -> None:
        will = topic = None
        group = self.pick("1", "1", "2")
        name, version = self.pick(*NAMES), self.pick(MQTT_311, MQTT_5)
        if name is None:
            group = "1"
        if self.random.random() < 0.3:
            topic = self.pick(*TOPICS)
            will = Will(
                topic, self.mark(group or "1", topic), self.pick(0, 1), self.pick(True, False)
            )
        properties = Properties(
            sessionExpiryInterval=self.pick(0, 30), receiveMaximum=self.pick(1, 100)
        )
        fields: dict[str, Any] = {"properties": properties} if version == MQTT_5 else {}
        clientId = self.pick(*CLIENT_IDS, *[f"client-of-{name}"] * 4)
        cleanStart = self.pick(True, False)
        self.peers.append(
            mqttPeer(
                self.fixture,
                name,
                clientId,
                version,
                group,
                will=will,
                cleanStart=cleanStart,
                **fields,
            )
        )

    def useMQTT(self) -> None:
        peer = self.some("mqtt")
        if peer is None:
            return
        client, group = peer.client, peer.group
        topic = self.granted(peer, Action.PUBLISH, group, *TOPICS)
        what = self.pick("subscribe", "subscribe", "publish", "acknowledge", "unsubscribe")
        if what == "subscribe":
            filter = self.granted(peer, Action.SUBSCRIBE, group, *FILTERS)
            share = self.pick("", "", "$share/s/")
            properties = Properties()
            if client.version == MQTT_5:
                named = self.pick((), (("svc-offset", self.offset()),), (("svc-tag", "t"),))
                properties = Properties(userProperties=named)
            asked = TopicSubscription(share + filter, self.pick(0, 1, 2))
            client.send(Subscribe(1, (asked,), properties))
        elif what == "publish":
            qos = self.pick(0, 1, 2)
            content = self.mark(group, topic)
            client.send(
                Publish(topic, content, qos, self.pick(True, False), False, 9 if qos else 0)
            )
            if qos == 2:
                client.send(Pubrel(9))
        elif what == "acknowledge":
            for packet in client.take()[:3]:
                if isinstance(packet, Publish) and packet.qos and self.isOpen(peer):
                    kind = Puback if packet.qos == 1 else Pubrec
                    client.send(kind(packet.packetId))
        else:
            client.send(Unsubscribe(2, (self.pick(*FILTERS),)))

    def leave(self) -> None:
        if not self.peers:
            return
        peer = self.peers.pop(self.random.randrange(len(self.peers)))
        self.lookAt(peer)
        if kindOf(peer) == "stomp":
            if peer.transport.connected:
                peer.client.disconnect()
        else:
            if self.random.random() < 0.3 and self.isOpen(peer):
                peer.client.send(Disconnect(0))
            peer.client.lose()
        self.fixture.pump()

    def stall(self) -> None:
        if self.peers:
            peer = self.random.choice(self.peers)
            if self.isOpen(peer) and peer.transport.producer is not None:
                change = self.pick("pauseProducing", "resumeProducing")
                getattr(peer.transport.producer, change)()

    def changeGrants(self) -> None:
        name = self.pick("u0", "u1", "u2", "u3")
        identities = self.fixture.accounts.identities
        if self.random.random() < 0.3:
            identities.pop(name, None)
        else:
            identities[name] = account(name, *self.pick(*PRESETS))
        self.fixture.reload()

    def answerPosts(self) -> None:
        for post in self.fixture.poster.open:
            if not post.isCancelled:
                post.answer.callback(None)

    def wait(self) -> None:
        self.fixture.wait(self.pick(0.1, 2.0, 40.0))


STEPS_OF_RUN: Final[tuple[Callable[[Run], None], ...]] = (
    Run.publishAnything,
    Run.publishAnything,
    Run.askREST,
    Run.askREST,
    Run.askJSONRPC,
    Run.connectSTOMP,
    Run.useSTOMP,
    Run.useSTOMP,
    Run.useSTOMP,
    Run.connectMQTT,
    Run.useMQTT,
    Run.useMQTT,
    Run.useMQTT,
    Run.leave,
    Run.stall,
    Run.changeGrants,
    Run.answerPosts,
    Run.wait,
)


class ConfidentialityTests(SynchronousTestCase):
    def test_clientsAreSentWhatTheyMayReadAndNothingElse(self) -> None:
        delivered: Counter[str] = Counter()
        for seed in SEEDS:
            run = Run(seed)
            run.run()
            self.assertEqual(run.leaks, [], f"seed {seed}")
            delivered.update(run.delivered)
        # The runs have shown something.
        for where in ("stomp", "mqtt", "webhook", "HTTP"):
            self.assertGreater(delivered[where], 5)
