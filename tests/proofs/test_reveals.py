"""
Tests for reveals, and for the vectors of closed contents.
"""

from __future__ import annotations

import json
from base64 import b64decode

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import (
    AgeIdentity,
    NotOpened,
    ProofInvalid,
    openContent,
    verifyProof,
    verifyReveal,
    withoutContent,
)
from tests.needed import needPackage
from tools.vectors.closed import DEFAULT, vectors

VECTORS = json.loads(DEFAULT.read_text("ascii"))
CHAIN = bytes.fromhex(VECTORS["reveals"]["chain"])
IDENTITIES = [AgeIdentity.parse(VECTORS["identity"])]


class VectorTests(SynchronousTestCase):
    def test_toolMakesCommittedFile(self) -> None:
        self.assertEqual(json.loads(json.dumps(vectors())), VECTORS)

    def test_contentsAreOpened(self) -> None:
        for each in VECTORS["contents"]:
            found = openContent(b64decode(each["closed"]), each["extensions"], IDENTITIES)
            self.assertEqual(found, b64decode(each["opened"]), each["name"])

    def test_pyrageOpensThem(self) -> None:
        """What the second implementation closed, the library opens."""
        needPackage("pyrage", "encryption")
        import pyrage

        identity = pyrage.x25519.Identity.from_str(VECTORS["identity"])
        for each in VECTORS["contents"]:
            plain = pyrage.decrypt(b64decode(each["closed"]), [identity])
            self.assertTrue(plain.startswith(b64decode(each["opened"])), each["name"])

    def test_badContentsAreRefused(self) -> None:
        for each in VECTORS["badContents"]:
            with self.assertRaises(NotOpened, msg=each["why"]):
                openContent(b64decode(each["closed"]), each["extensions"], IDENTITIES)

    def test_revealsAreVerified(self) -> None:
        for each in VECTORS["reveals"]["good"]:
            proved = verifyReveal(json.dumps(each["reveal"]).encode(), chain=CHAIN)
            found = proved.content if proved.opened is None else proved.opened
            self.assertEqual(found, each["opened"].encode())

    def test_badRevealsAreRefused(self) -> None:
        for each in VECTORS["reveals"]["bad"]:
            with self.assertRaises(ProofInvalid, msg=each["why"]):
                verifyReveal(json.dumps(each["reveal"]).encode(), chain=CHAIN)


class WithoutContentTests(SynchronousTestCase):
    def test_proofShowsNothingOfTheContent(self) -> None:
        """It proves the same event, without content, salt, signature and private extensions."""
        for each in VECTORS["reveals"]["good"]:
            proof = json.dumps(each["reveal"]["proof"]).encode()
            whole = verifyProof(proof, chain=CHAIN)
            bare = withoutContent(proof)
            proved = verifyProof(bare, chain=CHAIN)
            self.assertEqual(
                (proved.eventId, proved.transaction), (whole.eventId, whole.transaction)
            )
            self.assertIs(proved.content, None)
            event = json.loads(bare)["event"]
            self.assertEqual({"content", "contentBase64", "salt", "signature"} & set(event), set())
            self.assertNotIn("svc-private-name", event["extensions"])
            self.assertEqual(withoutContent(bare), bare)

    def test_eventWithoutSaltIsRefused(self) -> None:
        """The commitment of an event of version 1 has no salt, and would tell what is guessed."""
        proofs = json.loads((DEFAULT.parent / "proofs.json").read_text())["events"]
        with self.assertRaisesRegex(ProofInvalid, "version 1"):
            withoutContent(json.dumps(proofs[0]["proof"]).encode())
