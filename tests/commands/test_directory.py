"""
Tests for the directory of recipients on the log, with a broker in its place.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import Event
from svcbroker.commands.pub import Directory
from svcbroker.commands.terminal import CommandError, Console
from svcbroker.errors import TopicNotFound
from svcbroker.model import EventId, topicPrefix
from tests.proofs.test_age import RECIPIENT
from tools.vectors.signedchain import SignedChain, publicKeyOf

TOPIC = "$svc/recipients/acme"
URL = "http://broker.example/svcbroker"


@define
class BrokerDouble:
    """
    A broker of which a test says what it answers.

    @ivar newest: the event that it says is the newest; none at first.
    @ivar authors: the authors that it says the topic has.
    @ivar meanwhile: what another command does before the next proof is got.
    """

    chain: SignedChain
    authors: list[str]
    newest: EventId | None = None
    proofs: dict[str, bytes] = field(factory=dict)
    meanwhile: Callable[[], None] | None = None

    def state(self, topic: str) -> Any:
        """See the client's."""
        if topic != TOPIC:
            raise TopicNotFound()
        return self

    def events(self, topic: str, **given: object) -> Iterator[Event]:
        """See the client's."""
        if self.newest is not None:
            yield Event(topic=topic, content=b"", extensions={}, eventId=str(self.newest))

    def proof(self, eventId: str) -> bytes:
        """See the client's."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self.proofs.get(eventId) or encode(self.chain.prover.event(EventId.parse(eventId)))

    def genesis(self) -> bytes:
        """See the client's."""
        return encode(self.chain.prover.genesis())


class DirectoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp()) / "known"
        self.broker = self.makeBroker()
        self.errors = io.StringIO()

    def makeBroker(self, created: str = "node") -> BrokerDouble:
        """A broker with a chain of its own."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        chain = SignedChain(Path(folder.name), name=created)
        self.addCleanup(chain.close)
        chain.openFor(TOPIC, "acme")
        return BrokerDouble(chain, [publicKeyOf("acme").hex()])

    def publish(self, content: str, number: int, author: str = "acme") -> EventId:
        """Publish recipients."""
        chain = self.broker.chain
        header = chain.decide([chain.say(TOPIC, content.encode(), author=author)])
        self.broker.newest = EventId(topicPrefix(TOPIC), number, header.height)
        return self.broker.newest

    def find(self, name: str = "acme") -> list[str]:
        """The recipients of an organisation."""
        console = Console(output=io.StringIO(), errors=self.errors)
        client: Any = self.broker
        return Directory(console, client, URL, self.path).find(name)

    def refused(self, why: str, name: str = "acme") -> str:
        """The recipients are refused, and what is remembered stays."""
        before = self.path.read_bytes() if self.path.exists() else None
        with self.assertRaises(CommandError) as caught:
            self.find(name)
        self.assertIn(why, str(caught.exception))
        self.assertEqual(self.path.read_bytes() if self.path.exists() else None, before)
        return str(caught.exception)

    def test_keyIsRememberedAtFirstUse(self) -> None:
        """The first use tells the key; later ones are silent, also after a rotation."""
        self.publish(f"# ours\n{RECIPIENT}\n", 1)
        self.assertEqual(self.find(), [RECIPIENT])
        self.assertIn(publicKeyOf("acme").hex(), self.errors.getvalue())
        self.errors.truncate(0)
        self.publish(f"a {RECIPIENT}\nb {RECIPIENT}\n", 2)
        self.assertEqual(self.find(), [RECIPIENT] * 2)
        self.assertEqual(self.errors.getvalue().strip("\0"), "")
        self.assertIn(" 2\n", self.path.read_text())

    def test_olderRecipientsAreRefused(self) -> None:
        first = self.publish(RECIPIENT, 1)
        self.publish(RECIPIENT, 2)
        self.find()
        self.broker.newest = first
        self.refused("event number 1, and number 2 was seen before")

    def test_commandsBesideEachOtherLoseNothing(self) -> None:
        """What another command has written meanwhile stays, and nothing becomes older."""
        first = self.publish(RECIPIENT, 1)
        self.publish(RECIPIENT, 2)

        def other() -> None:
            self.broker.newest = EventId(topicPrefix(TOPIC), 2, first.height + 1)
            self.find()
            with self.path.open("a") as file:
                file.write(f"{URL} other {'00' * 32} {'11' * 32} 7\n")

        self.broker.newest, self.broker.meanwhile = first, other
        self.assertEqual(self.find(), [RECIPIENT])
        lines = self.path.read_text().splitlines()
        self.assertEqual(sorted(line.split()[-1] for line in lines), ["2", "7"])

    def test_changedKeyIsRefusedWithBoth(self) -> None:
        self.publish(RECIPIENT, 1)
        self.find()
        line = self.path.read_text()
        own, other = publicKeyOf("acme").hex(), publicKeyOf("other").hex()
        self.path.write_text(line.replace(own, other))
        text = self.refused("has changed")
        self.assertIn(own, text)
        self.assertIn(other, text)

    def test_wrongSignatureIsRefused(self) -> None:
        eventId = str(self.publish(RECIPIENT, 1))
        proof = self.broker.proof(eventId)
        self.broker.proofs[eventId] = proof.replace(RECIPIENT.encode(), RECIPIENT[:-1].encode())
        self.refused("are not proved")

    def test_otherChainIsRefused(self) -> None:
        """The chain of the first use is remembered, too."""
        self.publish(RECIPIENT, 1)
        self.find()
        self.broker = self.makeBroker("other")
        self.publish(RECIPIENT, 1)
        self.refused("not the trusted one")

    def test_topicHasOneAuthor(self) -> None:
        """A topic to which others may publish is no directory."""
        self.publish(RECIPIENT, 1)
        for authors in ([], [*self.broker.authors, publicKeyOf("eve").hex()]):
            self.broker.authors = authors
            self.refused("has not one author")

    def test_missingRecipientsAreTold(self) -> None:
        self.refused("there are no recipients in")
        self.refused("there are no recipients: no topic", "nobody")
        self.publish("nothing", 1)
        self.refused("line 1: it is not NAME age1...")

    def test_namesAreOneLevel(self) -> None:
        for name in ("", "a b", "a/b", "#"):
            self.refused("is one level of a topic", name)

    def test_malformedMemoryIsNamed(self) -> None:
        self.path.parent.mkdir()
        self.path.write_text("x\n")
        self.refused("line 1: it is not URL NAME CHAIN KEY NUMBER")
