"""
Tests for contradictions of what a transparency log has signed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import (
    Contradiction,
    ProofInvalid,
    contradictionDocument,
    extraOf,
    readStatement,
    verifyContradiction,
)
from svcbroker.proofs.tlog import VerifierKey, WitnessKey
from tests.proofs.witness.lying import ChainLog, LyingChain

WITNESSES = [WitnessKey(f"{name}.example", name.encode() * 32) for name in "ab"]
TIME = 1_800_000_000


class LogContradictionTests(SynchronousTestCase):
    """
    A log that has signed two events with one number, and a log with two histories. Two honest
    witnesses have cosigned all of it.
    """

    def setUp(self) -> None:
        self.chain = self.makeChain()
        self.log = ChainLog(self.chain)
        self.keys: list[VerifierKey] = [
            self.log.key.verifier,
            *(each.verifier for each in WITNESSES),
        ]

    def makeChain(self) -> LyingChain:
        """A chain with an event."""
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = LyingChain(directory)
        self.addCleanup(chain.close)
        chain.open("t", "u")
        (self.event,) = chain.publish("t", b"first")
        return chain

    def lie(self, sequence: int = 1) -> tuple[bytes, bytes]:
        """The proofs of an event and of another one that its topic does not count."""
        other = self.chain.lie("t", b"second", sequence)
        size = self.log.size
        return self.proof(self.event, size), self.proof(other, size)

    def proof(self, eventId: Any, size: int) -> bytes:
        """The proof of an event in a cosigned checkpoint."""
        extra = encode(self.chain.prover.event(eventId, None, trusted=eventId.height))
        return self.log.proof(eventId.height, size, extra, *self.cosigned(self.log, size))

    def topic(self, size: int) -> bytes:
        """The proof of the topic, in a cosigned checkpoint."""
        prover = self.chain.prover
        extra = encode(prover.certified(prover.topic("t", self.chain.state)))
        return self.log.proof(self.chain.head.height, size, extra, *self.cosigned(self.log, size))

    def cosigned(self, log: ChainLog, size: int) -> list[Any]:
        """The cosignatures of a checkpoint."""
        return [each.cosign(log.head(size).text, TIME) for each in WITNESSES]

    def found(self, one: bytes, other: bytes) -> Contradiction | None:
        """The contradiction, as others read it in its document."""
        document = contradictionDocument(
            readStatement(one, self.keys), readStatement(other, self.keys)
        )
        if document is None:
            return None
        self.assertEqual(document.format, "svcbroker/contradiction/2")
        self.document = encode(document)
        return verifyContradiction(self.document)

    def test_twoEventsOfOneNumber(self) -> None:
        """Two tlog-proofs of one history contradict each other."""
        found = self.found(*self.lie())
        assert found is not None
        self.assertEqual((found.kind, found.chain), ("event", self.chain.genesis.chain))
        self.assertEqual([*found.keys], [each.key for each in self.keys])
        self.assertFalse(found.isDoubleSigning)

    def test_topicAndEventOfOneLog(self) -> None:
        """A topic that lacks an event contradicts the proof of that event, signed or logged."""
        _, second = self.lie(2)
        topic = self.topic(self.log.size)
        for proof in (topic, extraOf(topic)):
            found = self.found(proof, second)
            assert found is not None
            self.assertEqual(found.kind, "topic")

    def test_checkpointsOfOneSize(self) -> None:
        """Two checkpoints of one size and of different histories show a log that forks."""
        fork = self.makeChain()
        self.chain.publish("t", b"one")
        fork.publish("t", b"other")
        other = ChainLog(fork)
        size = self.log.size
        signed = [
            each.checkpoint(size, *self.cosigned(each, size)).encode() for each in (self.log, other)
        ]
        found = self.found(signed[0], signed[1])
        assert found is not None
        self.assertEqual((found.kind, found.chain, found.isDoubleSigning), ("root", b"", True))
        self.assertEqual([*found.keys], [each.key for each in self.keys])
        self.assertIsNone(self.found(signed[0], self.log.checkpoint(2).encode()))
        foreign = ChainLog(fork, "other.example")
        self.keys.append(foreign.key.verifier)
        self.assertIsNone(self.found(signed[0], foreign.checkpoint(size).encode()))

    def test_checkpointAndLaterProof(self) -> None:
        """The header of a proof has the root of all sizes up to it, so an earlier checkpoint."""
        fork = self.makeChain()
        self.chain.publish("t", b"one")
        fork.publish("t", b"other")
        (later,) = self.chain.publish("t", b"two")
        note = ChainLog(fork).checkpoint(later.height).encode()
        found = self.found(note, self.proof(later, self.log.size))
        assert found is not None
        self.assertEqual((found.kind, found.chain), ("root", self.chain.genesis.chain))
        honest = self.log.checkpoint(later.height).encode()
        self.assertIsNone(self.found(honest, self.proof(later, self.log.size)))

    def test_honestLogHasNone(self) -> None:
        """Proofs and checkpoints of an honest log do not contradict each other."""
        self.chain.publish("t", b"second")
        size = self.log.size
        statements = [
            self.proof(self.event, size),
            self.proof(self.event, size - 1),
            self.topic(size),
            self.log.checkpoint(size).encode(),
            self.log.checkpoint(2).encode(),
        ]
        for one in statements:
            for other in statements:
                self.assertIsNone(self.found(one, other))

    def test_unknownOrForgedSignaturesAreRefused(self) -> None:
        """Without the log's key nothing is signed; a signature that does not hold is refused."""
        first, second = self.lie()
        with self.assertRaisesRegex(ProofInvalid, "no known key of the log"):
            readStatement(first, self.keys[1:])
        with self.assertRaises(ProofInvalid):
            readStatement(first.replace(b"\n4\n", b"\n3\n"), self.keys)
        self.found(first, second)
        document = json.loads(self.document)
        key = WitnessKey("c.example", b"c" * 32).verifier.text
        for changed in (
            {"keys": document["keys"][1:]},
            {"keys": [*document["keys"], key]},
            {"keys": document["keys"][::-1]},
            {"keys": ["x"]},
            {"format": "svcbroker/contradiction/1"},
            {"second": document["first"]},
            {"contradiction": {**document["contradiction"], "kind": "topic"}},
        ):
            with self.assertRaises(ProofInvalid, msg=changed):
                verifyContradiction(encode({**document, **changed}))
        del document["keys"]
        with self.assertRaises(ProofInvalid):
            verifyContradiction(encode(document))
