"""
The authenticator of mosquitto's files decides as mosquitto itself does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.authenticators._aclfile import AclFile, parseAcl
from svcbroker.authenticators._lines import LineError
from svcbroker.authenticators._passwordfile import parsePasswords
from svcbroker.interfaces import Action
from svcbroker.model import filterMatches
from tests.carriers.mqtt.conformance.client import MqttClient
from tests.carriers.mqtt.conformance.packets import (
    PING,
    PINGRESP,
    PUBACK,
    V5,
    publish,
)

from .mosquitto import TIMEOUT, Mosquitto

FILES = 2000
SEED = 13
NOT_AUTHORIZED = 0x87

# Users and client ids, those with signs of filters and patterns in them included.
CLIENTS: tuple[tuple[str | None, str], ...] = (
    ("ann", "c1"),
    ("ann", "c+"),
    ("bob smith", "x/y"),
    ("ann#", "c2"),
    ("%c", "%u"),
    (None, "c3"),
)
ROOT = "root"
LEVELS = ("a", "b", "", "ann", "c1", "x", "y", "bob smith", "%c", "%u", "$a")
FILTERS = (*LEVELS, "+", "+", "%u", "%c", "x%u", "%c%u%", "%%u")
ACCESS = ("read ", "write ", "readwrite ", "readwrite ", "deny ", "")


class RandomFiles:
    """
    Random ACL files, and topics that their filters may match.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def _filter(self) -> str:
        choice = self._random.choice
        levels = [choice(FILTERS) for _ in range(self._random.randint(1, 3))]
        if self._random.random() < 0.5:
            levels.append("#")
        if self._random.random() < 0.15:
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


class MosquittoAclTests(SynchronousTestCase):
    timeout = 120

    def setUp(self) -> None:
        self.mosquitto = Mosquitto(self)

    def connect(self) -> None:
        users = {user for user, _ in CLIENTS if user} | {ROOT, "number"}
        for user in sorted(users):
            self.mosquitto.addUser(user, "secret")
        self.mosquitto.start()
        self.clients = [self.client(user, clientId) for user, clientId in CLIENTS]
        for client in self.clients:
            # Whatever may be read, mosquitto lets everybody subscribe.
            granted = client.subscribe("#", "$a/#", qos=0)
            self.assertEqual(list(granted.codes), [0, 0])
        self.root = self.client(ROOT, "root")
        self.number = self.client("number", "number")

    def client(self, user: str | None, clientId: str) -> MqttClient:
        client = self.mosquitto.client(clientId, user, b"secret" if user else None)
        self.assertEqual(client.connack.code, 0)
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
