"""
Tampering: nothing in a proof can be changed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import _validators
from svcbroker.proofs import ProofInvalid, verifyConsistency, verifyProof, verifyTopic

from .authored import authored
from .mutations import mutations, randomlyChanged
from .support import Proofs, proofs


def written(document: Any) -> bytes:
    """A document as JSON, of which half of a surrogate pair can be a part."""
    return json.dumps(document).encode("ascii")


def meant(document: Any) -> Any:
    """
    The meaning of a document: absent and empty are one where both are allowed.
    """
    if not isinstance(document, dict):
        return document
    absent: dict[str, Any] = {"checkpoint": None, "changes": []}
    value = {**absent, **document}
    # True equals 1 in Python, and in no proof.
    return json.dumps(value, sort_keys=True)


class TamperingTestCase(SynchronousTestCase):
    """
    Tests that verify thousands of proofs, most of them with the same signatures.
    """

    def setUp(self) -> None:
        """Have each signature verified once: most changes leave them as they are."""
        self.patch(_validators, "verifySignature", cache(_validators.verifySignature))

    def changesOf(
        self, data: bytes, least: int, meaning: Callable[[Any], object] = meant
    ) -> Iterator[tuple[str, bytes]]:
        """Every change of a proof that changes its meaning: where and what, and the proof."""
        document = json.loads(data)
        count, same = 0, meaning(document)
        for what, changed in mutations(document):
            if meaning(changed) != same:
                count += 1
                yield what, written(changed)
        self.assertGreater(count, least)

    def refuseChanges(
        self,
        data: bytes,
        verify: Callable[[bytes], object],
        least: int = 1000,
        meaning: Callable[[Any], object] = json.dumps,
    ) -> None:
        """A proof holds, and every change of it is refused."""
        verify(data)
        for what, changed in self.changesOf(data, least, meaning):
            with self.assertRaises(ProofInvalid, msg=what):
                verify(changed)

    def walk(self, made: Proofs, name: str, least: int) -> None:
        """Every change of an event proof is refused, but for one that leaves its checkpoint out."""
        chain, data = made.genesis.chain, made.events[name]
        proved = verifyProof(data, chain=chain)
        for what, changed in self.changesOf(data, least):
            try:
                found = verifyProof(changed, chain=chain)
            except ProofInvalid:
                continue
            # Without its checkpoint a proof is a whole proof, of the same event.
            self.assertIsNotNone(json.loads(data)["block"].get("certificate"))
            self.assertIn(what, ("$.checkpoint: dropped", "$.checkpoint: None"), name)
            self.assertEqual(found, evolve(proved, checkpoint=None))


class EventTests(TamperingTestCase):
    """
    Event proofs, with the chain trusted.
    """

    def test_everyChangeOfProofIsRefused(self) -> None:
        """Every change of every proof is refused."""
        for name in proofs().events:
            self.walk(proofs(), name, 1000)

    def test_everyChangeOfUnsignedProofIsRefused(self) -> None:
        """With a trusted checkpoint, nothing in a proof without signatures can be changed."""
        made = proofs()
        tip = made.checkpoints[max(made.checkpoints)]
        for data in made.unsigned.values():
            with self.assertRaisesRegex(ProofInvalid, "no signatures"):
                verifyProof(data, chain=made.genesis.chain)
            verifyProof(data, checkpoint=tip, chain=made.genesis.chain)
            self.refuseChanges(data, partial(verifyProof, checkpoint=tip), meaning=meant)

    def test_everyChangeOfTopicProofIsRefused(self) -> None:
        """Nothing in a topic proof can be changed."""
        made = proofs()
        for data in made.topics.values():
            self.refuseChanges(data, partial(verifyTopic, chain=made.genesis.chain))

    def test_everyChangedByteIsRefused(self) -> None:
        """No byte of a proof can be another one, whatever it is part of."""
        made = proofs()
        data = made.events["first block with events"]
        document = json.loads(data)
        for at, byte in enumerate(data):
            for other in (byte ^ 1, byte ^ 0x20, 0x20, 0x80):
                changed = data[:at] + bytes([other]) + data[at + 1 :]
                try:
                    verifyProof(changed, chain=made.genesis.chain)
                except ProofInvalid:
                    continue
                self.assertEqual(json.loads(changed), document, (at, other))

    def test_cutProofIsRefused(self) -> None:
        """No proof can be cut short."""
        made = proofs()
        for data in made.events.values():
            for end in (0, 1, len(data) // 2, len(data) - 1):
                self.assertRaises(ProofInvalid, verifyProof, data[:end], chain=made.genesis.chain)


class AuthoredTests(TamperingTestCase):
    """
    Proofs of events of version 2, with and without author, content and certificates.
    """

    def test_everyChangeOfAuthoredProofIsRefused(self) -> None:
        """Nothing in one can be changed."""
        made = authored()
        for name in ("all", "private", "key", "after a change of nodes"):
            self.refuseEvent(made.events[name], chain=made.genesis.chain)

    def test_everyChangeOfErasedProofIsRefused(self) -> None:
        """Nothing in a proof without content can be changed, and no content can be added."""
        made = authored()
        for name in ("of version 1", "all", "no author"):
            self.refuseEvent(made.erased[name], chain=made.genesis.chain)

    def test_everyChangeOfUnsignedAuthoredProofIsRefused(self) -> None:
        """The same of a proof without certificates, with a trusted checkpoint."""
        made = authored()
        self.refuseEvent(made.unsigned["all"], checkpoint=made.tip)

    def refuseEvent(self, data: bytes, **trusted: Any) -> None:
        """An event proof holds, and every change of its meaning is refused."""
        self.refuseChanges(data, partial(verifyProof, **trusted), meaning=meant)

    def test_everyChangeOfAuthorsIsRefused(self) -> None:
        """Nothing in the proof of a topic with authors can be changed."""
        made = authored()
        self.refuseChanges(
            made.topics["signed"], partial(verifyTopic, chain=made.genesis.chain), least=0
        )

    def test_randomMutationsAreRefused(self) -> None:
        """Of 10,000 random changes of proofs of signed events none is accepted."""
        made, seed = authored(), random.Random(15)
        chain = made.genesis.chain
        sources = [
            data for name, data in made.events.items() if json.loads(data)["event"].get("author")
        ]
        self.assertGreater(len(sources), 5)
        for _ in range(10_000):
            data = seed.choice(sources)
            changed = randomlyChanged(data, seed)
            with self.assertRaises(ProofInvalid, msg=changed.decode("utf-8", "replace")):
                verifyProof(changed, chain=chain)


class GrowthTests(TamperingTestCase):
    """
    Consistency proofs, with both checkpoints trusted.
    """

    def test_everyChangeOfGrowthIsRefused(self) -> None:
        """Nothing in one can be changed."""
        for data, older, newer in proofs().growth.values():
            self.refuseChanges(data, partial(verifyConsistency, older=older, newer=newer), 700)
