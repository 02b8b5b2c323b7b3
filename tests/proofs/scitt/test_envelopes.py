"""
Tests of Hash Envelopes: statements with the hash of a content that is elsewhere.
"""

from __future__ import annotations

from hashlib import sha256, sha384, sha512
from io import BytesIO
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import Claims, HashEnvelope, ServiceKey, SignedStatement

ISSUER = ServiceKey.derive(b"issuer".ljust(32))
CLAIMS = Claims(issuer="https://acme.example", subject="urn:thing:1")
CONTENT = b"a report" * 100_000


def envelope(payload: bytes, **header: Any) -> bytes:
    """A statement with a header of such labels."""
    labels = {int(name[1:]): value for name, value in header.items()}
    fields = {1: -7, 4: ISSUER.public.kid, 15: CLAIMS.fields}
    return ISSUER.sign({**fields, **labels}, payload)


class HashEnvelopeTests(SynchronousTestCase):
    """
    L{HashEnvelope}, and contents that are compared with one.
    """

    def checked(self, data: bytes, content: bytes) -> HashEnvelope | None:
        """The envelope of a statement whose content this is."""
        said = SignedStatement.decode(data)
        said.checkContent(BytesIO(content))
        return said.envelope

    def refusal(self, data: bytes, content: bytes = CONTENT) -> str:
        return str(self.assertRaises(ProofInvalid, self.checked, data, content))

    def test_contentIsThatOfTheHash(self) -> None:
        for number, name, make in (
            (-16, "SHA-256", sha256),
            (-43, "SHA-384", sha384),
            (-44, "SHA-512", sha512),
        ):
            data = envelope(make(CONTENT).digest(), _258=number, _259=50, _260="https://x.example")
            found = self.checked(data, CONTENT)
            assert found is not None
            self.assertEqual((found.hashName, found.contentType), (name, 50))
            self.assertEqual(found.location, "https://x.example")
            self.assertIn("not that of the statement", self.refusal(data, CONTENT[1:]))

    def test_payloadMayBeTheContent(self) -> None:
        data = envelope(CONTENT, _3="text/plain")
        self.assertIsNone(self.checked(data, CONTENT))
        self.assertIn("not that of the statement", self.refusal(data, CONTENT + b"x"))
        message = evolve(SignedStatement.decode(data).message, payload=None)
        self.assertIn("does not have its payload", self.refusal(message.encode()))

    def test_unknownHashIsToldApart(self) -> None:
        """The statement can be verified; its content cannot be compared."""
        data = envelope(bytes(16), _258=-18)
        found = SignedStatement.decode(data).envelope
        assert found is not None
        self.assertEqual((found.algorithm, found.hashName), (-18, None))
        self.assertIn("the hash -18 of the statement is not known", self.refusal(data))

    def test_malformedEnvelopesAreRefused(self) -> None:
        digest = sha256(CONTENT).digest()
        for data, words in (
            (envelope(digest[1:], _258=-16), "no SHA-256"),
            (envelope(digest, _258=-44), "no SHA-512"),
            (envelope(digest, _258="SHA-256"), "not named by its number"),
            (envelope(digest, _258=True), "not named by its number"),
            (envelope(digest, _258=None), "not named by its number"),
            (envelope(digest, _258=-16, _3="text/plain"), "a type of what is not in it"),
            (envelope(digest, _258=-16, _259=-1), "neither a text nor a number"),
            (envelope(digest, _258=-16, _259=b"x"), "neither a text nor a number"),
            (envelope(digest, _258=-16, _260=b"x"), "is no text"),
            (envelope(digest, _259="text/plain"), "does not say its hash"),
            (envelope(digest, _260="https://x.example"), "does not say its hash"),
        ):
            self.assertIn(words, self.refusal(data))
        message = SignedStatement.decode(envelope(digest, _258=-16)).message
        for label, words in (
            (258, "in its unsigned header"),
            (259, "in its unsigned header"),
            (260, "in its unsigned header"),
            (3, "a type of what is not in it"),
        ):
            self.assertIn(words, self.refusal(evolve(message, unprotected={label: 1}).encode()))
