"""
Tests for verifying, with chains of which the test has all keys.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import Eraser, Erasing
from svcbroker.client import Event, NotVerified
from svcbroker.client._effects import Delay, HttpRequest, HttpResponse, Procedure
from svcbroker.client._requests import Brokers, Requests
from svcbroker.client._trust import AnswerVerifier
from svcbroker.errors import BrokerError
from svcbroker.model import EventId, topicPrefix
from svcbroker.proofs import GenesisFields, readCheckpoint, verifyProof
from tests.archive.erasable import ErasableChain

from .network import URL

TOPIC = "orders/new"


def eventOf(eventId: EventId, content: bytes = b"x", **fields: Any) -> Event:
    """An event as a broker answers it."""
    return Event(topic=TOPIC, content=content, extensions={}, eventId=str(eventId), **fields)


class TrustTests(SynchronousTestCase):
    """
    L{AnswerVerifier}.
    """

    def setUp(self) -> None:
        self.chain = self.makeChain()
        self.chain.open(TOPIC)
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.requests: list[str] = []
        self.time = 0.0
        # Set by a test to change what is answered to a call.
        self.forge: Any = lambda name, answer: answer

    def makeChain(self, **given: Any) -> ErasableChain:
        """A chain; all have the same genesis."""
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        chain = ErasableChain(directory, **given)
        self.addCleanup(chain.close)
        return chain

    @property
    def genesis(self) -> bytes:
        """The genesis as C{svcbroker chain genesis} writes it."""
        return msgspec.json.encode(GenesisFields.of(self.chain.genesis))

    def verifier(self, **trusted: Any) -> AnswerVerifier:
        """A verifier; by default one that trusts the genesis."""
        brokers = Brokers([URL], lambda: self.time, lambda: 1.0)
        requests = Requests(brokers, {}, None, 5.0)
        return AnswerVerifier(requests, **(trusted or {"genesis": self.genesis}))

    def run_(self, procedure: Procedure[Any]) -> Any:
        """The result of a procedure."""
        outcome = None
        try:
            while True:
                outcome = self.perform(procedure.send(outcome))
        except StopIteration as stop:
            return stop.value

    def perform(self, effect: Any) -> Any:
        """Answer a request as a broker with the chain does."""
        if isinstance(effect, Delay):
            self.time += effect.seconds
            return None
        assert isinstance(effect, HttpRequest)
        parts = urlsplit(effect.url)
        name = parts.path.rpartition("/")[2]
        if name == "jsonrpc":
            calls = json.loads(effect.body)
            self.requests.append(f"{len(calls)} {calls[0]['method']}")
            answers = []
            for call in calls:
                body = self.answer(call["method"], call["params"])
                answers.append(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (call["id"], body))
            return HttpResponse(status=200, headers={}, body=b"[%b]" % b",".join(answers))
        self.requests.append(name)
        return HttpResponse(
            status=200, headers={}, body=self.answer(name, dict(parse_qsl(parts.query)))
        )

    def answer(self, name: str, fields: dict[str, Any]) -> bytes:
        """Answer a call."""
        prover: Any = self.chain.prover
        try:
            if name == "genesis":
                made: Any = GenesisFields.of(self.chain.genesis)
            elif name == "consistency":
                made = prover.consistency(int(fields["older"]), int(fields["newer"]))
            elif name == "checkpoint":
                made = {"checkpoint": str(prover.checkpoint(int(fields["height"])))}
            else:
                trusted = fields.get("trusted")
                eventId = EventId.parse(fields["eventId"])
                made = prover.event(eventId, trusted=None if trusted is None else int(trusted))
        except BrokerError as error:
            return json.dumps({"code": error.code, "message": error.message}).encode()
        answer: bytes = self.forge(name, msgspec.json.encode(made))
        return answer

    def assertRefused(self, verifier: AnswerVerifier, *events: Event) -> None:
        """Events are not verified, and no block is kept."""
        newest = verifier.newest
        self.assertRaises(NotVerified, self.run_, verifier.verify(events))
        self.assertIs(verifier.newest, newest)

    def test_eventsOfTheLogAreVerified(self) -> None:
        """Events of several blocks cost one request for each fifty, and two for a new block."""
        first = self.chain.publish(TOPIC, *[b"%d" % n for n in range(70)])
        second = self.chain.publish(TOPIC, b"a", b"b")
        events = [eventOf(each, b"%d" % n) for n, each in enumerate(first)]
        events += [
            eventOf(each, content) for each, content in zip(second, (b"a", b"b"), strict=True)
        ]
        verifier = self.verifier()
        self.assertEqual(self.run_(verifier.verify(events)), events)
        self.assertEqual(self.requests, ["proof", "consistency", "50 proof", "21 proof"])
        self.assertEqual(verifier.newest, self.chain.prover.checkpoint(second[0].height))

    def test_changedEventsAreRefused(self) -> None:
        """Whatever a broker changes of an event is found, in the newest block and before it."""
        (earlier,) = self.chain.publish(TOPIC, b"x")
        (later,) = self.chain.publish(TOPIC, b"x")
        for eventId in (later, earlier):
            good = eventOf(eventId)
            for change in (
                {"topic": "orders/old"},
                {"content": b"y"},
                {"extensions": {"svc-a": "b"}},
                {"timestamp": 5},
                {"author": "00" * 32},
                {"eventId": str(EventId(eventId.prefix, 9, eventId.height))},
                {"eventId": str(EventId(eventId.prefix, eventId.sequence, 1))},
                {"erased": True},
            ):
                bad = msgspec.structs.replace(good, **change)
                verifier = self.verifier()
                self.assertRaises(NotVerified, self.run_, verifier.verify([bad]))
            self.assertEqual(self.run_(self.verifier().verify([good])), [good])

    def test_otherProofsAreRefused(self) -> None:
        """A proof of another event, no proof, and one that was changed are refused."""
        (first,) = self.chain.publish(TOPIC, b"x")
        (other,) = self.chain.publish(TOPIC, b"x")
        proof = msgspec.json.encode(self.chain.prover.event(other))
        good = self.verifier()
        self.run_(good.verify([eventOf(other)]))
        for forged in (proof, b"{}", b'"x"', b'{"code": 100303, "message": "no such event"}'):
            self.forge = lambda name, answer, forged=forged: forged if name == "proof" else answer
            self.assertRefused(self.verifier(), eventOf(first))
            self.assertRefused(good, eventOf(first))

    def test_signedForkIsRefused(self) -> None:
        """
        Events of a chain with the same validators and another history are refused once a block of
        the true one is known.
        """
        (first,) = self.chain.publish(TOPIC, b"x")
        verifier = self.verifier(genesis=self.genesis, path=self.path)
        self.run_(verifier.verify([eventOf(first)]))
        fork = self.makeChain()
        fork.open(TOPIC)
        (same,) = fork.publish(TOPIC, b"y")
        (later,) = fork.publish(TOPIC, b"z")
        true, self.chain = self.chain, fork
        stranger = self.verifier()
        self.assertEqual(len(self.run_(stranger.verify([eventOf(later, b"z")]))), 1)
        for each in (verifier, self.verifier(path=self.path)):
            self.assertRefused(each, eventOf(same, b"y"))
            self.assertRefused(each, eventOf(later, b"z"))
            self.assertRaises(NotVerified, self.run_, each.prove(str(later)))
            self.assertRaises(
                NotVerified, self.run_, each.compare(str(fork.prover.checkpoint(later.height)))
            )
        self.chain = true
        self.assertEqual(len(self.run_(verifier.verify([eventOf(first)]))), 1)

    def test_proofLeadsToTheCheckpointThatIsAskedFor(self) -> None:
        """Without signatures, and from the checkpoint's block of the trusted log alone."""
        first, second = (self.chain.publish(TOPIC, each)[0] for each in (b"x", b"y"))
        verifier = self.verifier(genesis=self.genesis)
        for height in (first.height, second.height):
            proof = self.run_(verifier.prove(str(first), height))
            kept = self.chain.prover.checkpoint(height)
            self.assertIsNone(verifyProof(proof, checkpoint=kept).signed)
        fork = self.makeChain()
        fork.open(TOPIC)
        fork.publish(TOPIC, b"x")
        fork.publish(TOPIC, b"z")
        self.run_(verifier.prove(str(second)))
        self.chain = fork
        self.assertRaises(NotVerified, self.run_, verifier.prove(str(first), second.height))

    def test_shorterLogIsRefused(self) -> None:
        """A broker whose log ends before the newest verified block proves nothing."""
        (first,) = self.chain.publish(TOPIC, b"x")
        shorter = self.makeChain()
        shorter.open(TOPIC)
        (second,) = self.chain.publish(TOPIC, b"y")
        verifier = self.verifier()
        self.run_(verifier.verify([eventOf(second, b"y")]))
        self.chain = shorter
        self.assertRefused(verifier, eventOf(first))

    def test_checkpointFindsTheChain(self) -> None:
        """A checkpoint is enough to trust: the genesis must lead to it."""
        ids = [*self.chain.publish(TOPIC, b"x"), *self.chain.publish(TOPIC, b"x")]
        for height in range(ids[1].height + 1):
            checkpoint = self.chain.prover.checkpoint(height)
            verifier = self.verifier(checkpoint=str(checkpoint))
            self.assertEqual(len(self.run_(verifier.verify([eventOf(each) for each in ids]))), 2)
            self.assertEqual(verifier.chain, self.chain.genesis.chain)
            wrong = evolve(checkpoint, hash=bytes(32))
            self.assertRefused(self.verifier(checkpoint=str(wrong)), eventOf(ids[0]))
        other = self.makeChain(name="other")
        self.forge = lambda name, answer: (
            msgspec.json.encode(GenesisFields.of(other.genesis)) if name == "genesis" else answer
        )
        self.assertRefused(self.verifier(checkpoint=str(checkpoint)), eventOf(ids[0]))

    def test_newestBlockIsKeptInTheFile(self) -> None:
        """The file has the newest verified block, and is a checkpoint for C{svcbroker verify}."""
        (first,) = self.chain.publish(TOPIC, b"x")
        verifier = self.verifier(genesis=self.genesis, path=self.path)
        self.assertFalse(self.path.exists())
        self.run_(verifier.verify([eventOf(first)]))
        kept = readCheckpoint(self.path.read_bytes())
        self.assertEqual(kept, self.chain.prover.checkpoint(first.height))
        (second,) = self.chain.publish(TOPIC, b"x")
        self.run_(self.verifier(path=self.path).verify([eventOf(second)]))
        kept = readCheckpoint(self.path.read_bytes())
        self.assertEqual(kept, self.chain.prover.checkpoint(second.height))
        self.assertEqual([*self.path.parent.glob(f"{self.path.name}*")], [self.path])

    def test_contradictingTrustIsRefused(self) -> None:
        """A file of another chain, a malformed file, and a checkpoint off the log are refused."""
        (first,) = self.chain.publish(TOPIC, b"x")
        self.run_(self.verifier(genesis=self.genesis, path=self.path).verify([eventOf(first)]))
        other = msgspec.json.encode(GenesisFields.of(self.makeChain(name="other").genesis))
        self.assertRaises(NotVerified, self.verifier, genesis=other, path=self.path)
        wrong = f"{first.height + 1}:{'00' * 32}"
        self.chain.publish(TOPIC, b"x")
        self.assertRefused(self.verifier(checkpoint=wrong, path=self.path), eventOf(first))
        for text in ("", "{}", f"1:{'00' * 32}"):
            self.path.write_text(text, "utf-8")
            self.assertRaises(ValueError, self.verifier, path=self.path)
        self.assertRaises(ValueError, self.verifier, path=self.path.with_name("absent"))

    def test_erasedEventsAreLeftOut(self) -> None:
        """An event that was erased since it was read is left out; its tombstone is verified."""
        chain = self.chain
        header = chain.decide([chain.say(TOPIC, content) for content in (b"x", b"y")])
        ids = [EventId(topicPrefix(TOPIC), number, header.height) for number in (1, 2)]
        chain.erase(TOPIC, (1, 1))
        self.assertIs(Eraser(chain.store).run(), Erasing.DONE)
        events = [eventOf(ids[0]), eventOf(ids[1], b"y")]
        self.assertEqual(self.run_(self.verifier().verify(events)), events[1:])
        tombstone = eventOf(ids[0], b"", erased=True)
        self.assertEqual(self.run_(self.verifier().verify([tombstone])), [tombstone])

    def test_blocksOfConcurrentCallsAreCompared(self) -> None:
        """
        Two calls that verify different new blocks at the same time compare them with each other,
        too: a broker cannot show each call another fork.
        """
        (first,) = self.chain.publish(TOPIC, b"x")
        verifier = self.verifier()
        fork = self.makeChain()
        fork.open(TOPIC)
        fork.publish(TOPIC, b"y")
        (other,) = fork.publish(TOPIC, b"z")
        true = self.chain
        calls: list[tuple[ErasableChain, Generator[Any, Any, Any], Any]] = [
            (true, verifier.verify([eventOf(first)]), None),
            (fork, verifier.verify([eventOf(other, b"z")]), None),
        ]
        verified = refused = 0
        while calls:
            self.chain, procedure, outcome = calls.pop(0)
            try:
                effect = procedure.send(outcome)
            except StopIteration:
                verified += 1
            except NotVerified:
                refused += 1
            else:
                calls.append((self.chain, procedure, self.perform(effect)))
        self.assertEqual((verified, refused), (1, 1))
