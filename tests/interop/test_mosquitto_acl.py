"""
The authenticator of mosquitto's files decides as mosquitto itself does.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access.authenticators.mosquitto import AclFile, LineError, parseAcl, parsePasswords
from svcbroker.interfaces import Action
from svcbroker.model import filterMatches
from tests import examples
from tests.carriers.mqtt.conformance.brokers import IBroker
from tests.carriers.mqtt.conformance.client import MqttClient
from tests.carriers.mqtt.conformance.packets import (
    PING,
    PINGRESP,
    PUBACK,
    PUBLISH,
    V4,
    V5,
    Will,
    publish,
)

from .daemon import Daemon
from .mosquitto import TIMEOUT, Mosquitto

FILES = examples(2000)
SEED = 13
NOT_AUTHORIZED = 0x87
PASSWORD = "secret"

PAIRED_FILES = examples(150)
"""For how many files whole connections are compared."""

# Users and client ids, those with signs of filters and patterns in them included.
CLIENTS: tuple[tuple[str | None, str], ...] = (
    ("ann", "c1"),
    ("ann", "c+"),
    ("bob smith", "x/y"),
    ("ann#", "c2"),
    ("%c", "%u"),
    ("ann", "$a"),
    (None, "c3"),
)
ROOT = "root"


def isUnfit(user: str | None, clientId: str) -> bool:
    """Whether patterns with a name grant less than in mosquitto; see docs/authenticators."""
    return any(name.startswith("$") or "/" in name for name in (user or "", clientId))


LEVELS = ("a", "b", "", "ann", "c1", "x", "y", "bob smith", "%c", "%u", "$a")
FILTERS = (*LEVELS, "+", "+", "%u", "%c", "x%u", "%c%u%", "%%u")
ACCESS = ("read ", "write ", "readwrite ", "readwrite ", "deny ", "")


class RandomFiles:
    """
    Random ACL files, and topics that their filters may match.
    """

    def __init__(self, seed: int, special: float = 0.15) -> None:
        """
        @param special: how many of the filters begin with C{$} or a wildcard.
        """
        self._random = Random(seed)
        self._special = special

    def _filter(self) -> str:
        choice = self._random.choice
        levels = [choice(FILTERS) for _ in range(self._random.randint(1, 3))]
        if self._random.random() < 0.5:
            levels.append("#")
        if self._random.random() < self._special:
            levels[0] = choice(("$a", "$", "#" if len(levels) == 1 else "+"))
        return "/".join(levels) or "#"

    def topic(self, text: str) -> str:
        """A topic to publish to, which a filter of a file is likely to match."""
        choice = self._random.choice
        filters = [line.split(" ")[-1] for line in text.splitlines() if "user" not in line]
        levels = []
        for level in choice(filters or ["+"]).split("/"):
            if level == "#":
                levels += [choice(LEVELS) for _ in range(self._random.randint(0, 2))]
            elif level == "+" or self._random.random() < 0.1:
                levels.append(choice(LEVELS))
            else:
                user, clientId = choice(CLIENTS)
                levels.append(level.replace("%u", user or "").replace("%c", clientId))
        topic = "/".join(levels)
        # None that root does not get, or that nobody can publish to.
        isUnusable = (topic.startswith("$") and levels[0] != "$a") or any(c in topic for c in "+#")
        return "a" if isUnusable or not topic else topic

    def _line(self) -> str:
        kind = self._random.choices(("topic", "pattern"), (3, 2))[0]
        filter = self._filter()
        # A topic with a blank in it needs an access, or what is before the blank is taken for one.
        access = self._random.choice(ACCESS[: -1 if " " in filter else None])
        return f"{kind} {access}{filter}"

    def file(self, number: int) -> str:
        """An ACL file. The user C{root} may do everything, and publish the file's number."""
        lines = [self._line() for _ in range(self._random.randint(0, 2))]
        for _ in range(self._random.randint(1, 5)):
            name = self._random.choice([user for user, _ in CLIENTS if user])
            lines += [f"user {name}", *(self._line() for _ in range(self._random.randint(0, 5)))]
            lines += self._random.choice(([], ["# a comment"], [""]))
        lines += [f"user {ROOT}", "topic readwrite #", "topic readwrite $a/#", "topic readwrite $a"]
        lines += ["user number", f"topic write number/{number}"]
        return "\n".join(lines) + "\n"


class AclTestCase(SynchronousTestCase):
    """A test with a mosquitto that has the users of L{CLIENTS}."""

    timeout = 300

    def setUp(self) -> None:
        self.mosquitto = Mosquitto(self)

    def start(self) -> None:
        for user in sorted({user for user, _ in CLIENTS if user} | {ROOT, "number"}):
            self.mosquitto.addUser(user, PASSWORD)
        self.mosquitto.start()
        self.number = self.client(self.mosquitto, "number", "number")

    def client(
        self, broker: IBroker, user: str | None, clientId: str, version: int = V5, **more: Any
    ) -> MqttClient:
        """A client that has sent CONNECT and got an answer; see its C{connack}."""
        client = MqttClient(broker, version)
        self.addCleanup(client.close)
        password = PASSWORD.encode() if user else None
        client.connect(clientId, user=user, password=password, **more)
        return client

    def give(self, number: int, text: str) -> None:
        """Give mosquitto an ACL file, and wait until it has read it."""
        self.mosquitto.acl.write_text(text)
        self.mosquitto.reload()
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.number.publish(f"number/{number}", b"x", qos=1)
            assert answer is not None
            if answer.code != NOT_AUTHORIZED:
                return
            self.assertLess(time.monotonic(), deadline)


class MosquittoAclTests(AclTestCase):
    def connect(self) -> None:
        self.start()
        self.clients = []
        for user, clientId in CLIENTS:
            client = self.client(self.mosquitto, user, clientId)
            # Whatever may be read, mosquitto lets everybody subscribe.
            granted = client.subscribe("#", "$a/#", qos=0)
            self.assertEqual([client.connack.code, *granted.codes], [0, 0, 0])
            self.clients.append(client)
        self.root = self.client(self.mosquitto, ROOT, "root")

    def published(self, client: MqttClient, topics: Sequence[str], payload: bytes) -> list[bool]:
        """Which publishes of a client are accepted."""
        client.send(
            b"".join(
                publish(V5, topic, payload, qos=1, packetId=index)
                for index, topic in enumerate(topics, 1)
            )
        )
        return [client.expect(PUBACK).code != NOT_AUTHORIZED for _ in topics]

    def received(self, client: MqttClient) -> Iterator[str]:
        """The topics of what C{root} has published, as far as they came to a client."""
        client.send(PING)
        while (packet := client.receive()).kind != PINGRESP:
            if packet.payload == b"root":
                yield packet.topic

    def test_requestsAreDecidedAsMosquittoDoes(self) -> None:
        """Random files; each client tries to publish, and to get what another one publishes."""
        self.connect()
        files = RandomFiles(SEED)
        answers = {True: 0, False: 0}
        for number in range(FILES):
            text = files.file(number)
            self.give(number, text)
            ours = parseAcl(text.encode())
            topics = sorted({files.topic(text) for _ in range(3)})
            self.assertEqual(self.published(self.root, topics, b"root"), [True] * len(topics))
            for (user, clientId), client in zip(CLIENTS, self.clients, strict=True):
                grants = ours.grants(user or "")
                read = set(self.received(client))
                written = self.published(client, topics, b"x")
                for topic, isWritten in zip(topics, written, strict=True):
                    for action, theirs in (
                        (Action.PUBLISH, isWritten),
                        (Action.OPEN, isWritten),
                        (Action.SUBSCRIBE, topic in read),
                    ):
                        decision = grants.decide(action, "1", topic, clientId)
                        answers[theirs] += 1
                        where = f"{user} {clientId} {action} {topic!r}: {decision}\n{text}"
                        if isUnfit(user, clientId):
                            self.assertLessEqual(decision.isGranted, theirs, where)
                            theirs = decision.isGranted
                        self.assertEqual(decision.isGranted, theirs, where)
                        self.checkFilters(ours, user or "", clientId, action, topic, theirs)
        # Neither answer is rare.
        self.assertGreater(min(answers.values()), 0.1 * max(answers.values()), answers)

    def checkFilters(
        self, acl: AclFile, user: str, clientId: str, action: Action, topic: str, isGranted: bool
    ) -> None:
        """A filter that matches what is granted is not refused, but may be otherwise."""
        grants = acl.grants(user)
        first, *_ = topic.split("/")
        for filter in (topic, "#", f"{first}/#", "+/a"):
            if isGranted and filterMatches(filter, topic):
                self.assertTrue(grants.mayAny(action, "1", filter, clientId))

    def test_linesThatMosquittoRefusesAreRefused(self) -> None:
        for line, isGood in (
            ("topic", False),
            ("topic read", True),
            ("topic x y", False),
            ("topic read a+", False),
            ("topic read a/#/b", False),
            ("topic write   a  b  ", True),
            ("  topic read a", True),
            ("\ttopic read a", False),
            ("topic\tread a", False),
            ("user", False),
            ("user   ", False),
            ("pattern read %u+", False),
            ("pattern read a", True),
            ("subscribe a", False),
            ("  # comment", False),
            ("# comment", True),
            ("topic read a\r", True),
            ("topic read   ", True),
            ("topic readwrite a#", False),
        ):
            self.mosquitto.acl.write_text(f"topic read a\n{line}\n")
            try:
                parseAcl(self.mosquitto.acl.read_bytes())
                isOurs = True
            except LineError as error:
                self.assertTrue(str(error).startswith("line 2: "), error)
                isOurs = False
            self.assertEqual((isOurs, line), (isGood, line))
            self.assertEqual((self.mosquitto.accepts(), line), (isGood, line))

    def test_passwordsAreVerifiedAsMosquittoDoes(self) -> None:
        """Hashes of both kinds that C{mosquitto_passwd} made."""
        for name, password, hash in (
            ("ann", "secret", "sha512"),
            ("bob smith", "pässword ", "sha512-pbkdf2"),
            ("%c", "x" * 300, "sha512-pbkdf2"),
        ):
            self.mosquitto.addUser(name, password, hash)
        self.mosquitto.start()
        hashes = parsePasswords(self.mosquitto.passwords.read_bytes())
        self.assertEqual([*hashes], ["ann", "bob smith", "%c"])
        self.assertEqual([each.iterations for each in hashes.values()], [0, 101, 101])
        for name, hash_ in hashes.items():
            for password in ("secret", "pässword ", "pässword", "x" * 300, ""):
                client = self.mosquitto.client("", name, password.encode())
                isTheirs = client.connack.code == 0
                self.assertEqual(hash_.verify(password.encode()), isTheirs, (name, password))


@frozen(kw_only=True)
class Outcome:
    """
    The outcome of a connection and of all that its client tried.

    @ivar isConnected: whether CONNECT was accepted.
    @ivar subscribed: whether each filter was accepted.
    @ivar received: the topics of what C{root} has published that came.
    @ivar published: whether each publish was accepted; none in 3.1.1, where no refusal is told.
    """

    isConnected: bool = False
    subscribed: Mapping[str, bool] = {}
    received: frozenset[str] = frozenset()
    published: Mapping[str, bool] = {}


class MosquittoClientTests(AclTestCase):
    """
    The same clients of a mosquitto and of the daemon, with the same files. What is different is in
    docs/authenticators.
    """

    def setUp(self) -> None:
        super().setUp()
        self.start()
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        files = f"passwords={self.mosquitto.passwords}:acl={self.mosquitto.acl}"
        self.daemon = Daemon(directory / "data", [f"--auth=mosquitto:{files}"])
        self.addCleanup(self.daemon.stop)

    def give(self, number: int, text: str) -> None:
        """Give both an ACL file, and wait until they have read it."""
        super().give(number, text)
        seen = len(self.daemon.output)
        self.daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT
        while not any("were read again" in line for line in self.daemon.output[seen:]):
            self.assertLess(time.monotonic(), deadline, self.daemon.output[seen:])
            time.sleep(0.001)

    def outcome(
        self, client: MqttClient, root: MqttClient, filters: Sequence[str], topics: Sequence[str]
    ) -> Outcome:
        """Have a client try everything."""
        if client.connack.code:
            return Outcome()
        codes = client.subscribe(*filters, qos=0).codes
        for topic in topics:
            self.assertIn(root.publish(topic, b"root", qos=1).code, (0, 0x10))  # type: ignore[union-attr]
        published = {}
        if client.version == V5:
            for topic in topics:
                answer = client.publish(topic, b"x", qos=1)
                assert answer is not None
                published[topic] = answer.code != NOT_AUTHORIZED
        # A broker that has delivered to root has delivered to all.
        self.received(root, topics)
        received = self.received(client, ())
        client.close()
        return Outcome(
            isConnected=True,
            subscribed={each: code < 0x80 for each, code in zip(filters, codes, strict=True)},
            received=frozenset(received),
            published=published,
        )

    def received(self, client: MqttClient, expected: Collection[str]) -> set[str]:
        """The topics of what C{root} has published: all that have come, and what is expected."""
        found: set[str] = set()
        while not found.issuperset(expected):
            packet = client.expect(PUBLISH)
            if packet.payload == b"root":
                found.add(packet.topic)
        return found | {each.topic for each in client.pending() if each.payload == b"root"}

    def isWillAccepted(self, user: str, clientId: str, topic: str) -> bool:
        """Whether the daemon accepts a CONNECT with a will."""
        will = Will(topic=topic, payload=b"x", qos=1)
        client = self.client(self.daemon, user, clientId, will=will)
        if client.connack.code:
            return False
        client.leave()
        return True

    def test_clientsMayDoWhatMosquittoLetsThem(self) -> None:
        # Rights below C{$} alone are the rare case.
        files, random = RandomFiles(SEED, special=0.4), Random(SEED)
        counts = {True: 0, False: 0}
        for number in range(PAIRED_FILES):
            text = files.file(number)
            self.give(number, text)
            roots = []
            for broker in (self.mosquitto, self.daemon):
                root = self.client(broker, ROOT, "root")
                root.subscribe("#", "$a/#", "$a", qos=0)
                roots.append(root)
            for user, clientId in CLIENTS:
                if user is None:
                    # Not the file says whether there are clients without a name.
                    continue
                version = random.choice((V4, V5, V5))
                topics = sorted({files.topic(text) for _ in range(4)})
                filters = list(dict.fromkeys((*topics, "#", "$a/#", "+/+", "$a")))
                theirs, ours = (
                    self.outcome(
                        self.client(broker, user, clientId, version), root, filters, topics
                    )
                    for broker, root in zip((self.mosquitto, self.daemon), roots, strict=True)
                )
                for isAllowed in (ours.isConnected, *ours.published.values()):
                    counts[isAllowed] += 1
                where = f"{user} {clientId} {version} {theirs}\n{ours}\n{text}"
                self.compare(theirs, ours, isLess=isUnfit(user, clientId), where=where)
                if ours.isConnected and theirs.published and not isUnfit(user, clientId):
                    topic = random.choice(topics)
                    isAccepted = self.isWillAccepted(user, clientId, topic)
                    self.assertEqual(isAccepted, theirs.published[topic], f"will {topic} {where}")
            for root in roots:
                root.close()
        self.assertEqual(self.daemon.errors(), "")
        # Neither answer is rare.
        self.assertGreater(min(counts.values()), 0.2 * max(counts.values()), counts)

    def compare(self, theirs: Outcome, ours: Outcome, isLess: bool, where: str) -> None:
        """
        @param isLess: whether some of what mosquitto lets a client do may be refused.
        """
        self.assertTrue(theirs.isConnected, where)
        isRefused = not ours.isConnected
        if isLess:
            self.assertLessEqual(ours.received, theirs.received, where)
            for topic, isPublished in ours.published.items():
                self.assertLessEqual(isPublished, theirs.published[topic], where)
        elif isRefused:
            # To a client that may do nothing mosquitto refuses everything but CONNECT.
            self.assertEqual(theirs.received, frozenset(), where)
            self.assertNotIn(True, theirs.published.values(), where)
        else:
            self.assertEqual(ours.received, theirs.received, where)
            self.assertEqual(ours.published, theirs.published, where)
        for filter, isAccepted in ours.subscribed.items():
            if not isAccepted:
                # Of a filter of which nothing can be read, nothing comes.
                matching = [each for each in ours.received if filterMatches(filter, each)]
                self.assertEqual(matching, [], where)
