"""
Tests for issuers that are named by C{did:web}.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import MAX_HEADER, CoseKey, ServiceKey, documentUrl, keysInDocument

DID = "did:web:acme.example"
ED = ServiceKey.derive(b"a", "EdDSA").public
P256 = ServiceKey.derive(b"a").public
# The example of the specification of did:key, for Ed25519.
MULTIBASE = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
RAW = bytes.fromhex("2e6fcce36701dc791488e0d0b1745cc1e33a4c1c9fcc41c63bd343dbbe0970e6")
# P-256, of the same page: a compressed point.
MULTIBASE_P256 = "zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169"


def base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(key: CoseKey) -> dict[str, str]:
    """The JSON Web Key of a key."""
    if len(key.coordinates) == 1:
        return {"kty": "OKP", "crv": "Ed25519", "x": base64(key.coordinates[0])}
    x, y = map(base64, key.coordinates)
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def method(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "JsonWebKey", "controller": DID, **fields}


def document(methods: Any, asserts: Any, **fields: Any) -> bytes:
    """A document of the issuer."""
    made = {"id": DID, "verificationMethod": methods, "assertionMethod": asserts, **fields}
    return json.dumps(made).encode()


class DidWebTests(SynchronousTestCase):
    """
    Where documents are, and what is taken of them.
    """

    def test_documentIsBelowTheHost(self) -> None:
        for did, url in (
            (DID, "https://acme.example/.well-known/did.json"),
            (f"{DID}%3A8443", "https://acme.example:8443/.well-known/did.json"),
            (f"{DID}:legal:a-1", "https://acme.example/legal/a-1/did.json"),
            ("did:web:localhost%3a443:x", "https://localhost:443/x/did.json"),
        ):
            self.assertEqual(documentUrl(did), url)

    def test_otherNamesAreRefused(self) -> None:
        """Addresses, ways out of the path, and what is no DID of this method."""
        for did in (
            *("did:key:z6Mk", "did:web:", "https://acme.example", f"{DID}:", f"{DID}:..:x"),
            *(f"{DID}/x", f"{DID}%2Fx", f"{DID}:a%2Fb", f"{DID}@evil.example", f"{DID}#key"),
            *("did:web:127.0.0.1", "did:web:10.1", f"{DID}%3A0", f"{DID}%3A65536", f"{DID} "),
            *("did:web:[::1]", "did:web:a..b", f"{DID}\n"),
        ):
            with self.assertRaises(ProofInvalid, msg=did):
                documentUrl(did)

    def test_keysThatAssertAreTaken(self) -> None:
        """Each under its fragment and its URL; those of other kinds are named."""
        methods = [
            method("#a", publicKeyJwk=jwk(ED)),
            method(f"{DID}#b", publicKeyJwk=jwk(P256)),
            method("#c", publicKeyJwk=jwk(ServiceKey.derive(b"c").public)),
            method("#rsa", publicKeyJwk={"kty": "RSA", "n": "x", "e": "AQAB"}),
        ]
        embedded = method("#d", publicKeyMultibase=MULTIBASE)
        point = method("#e", publicKeyMultibase=MULTIBASE_P256)
        found = keysInDocument(DID, document(methods, ["#a", f"{DID}#b", "#rsa", embedded, point]))
        names = [each.kid.decode() for each in found.keys]
        self.assertEqual(names[::2], ["a", "b", "d", "e"])
        self.assertEqual(names[1::2], [f"{DID}#{name}" for name in "abde"])
        self.assertEqual([each.thumbprint for each in found.keys[:2]], [ED.thumbprint] * 2)
        self.assertEqual(found.keys[2].thumbprint, P256.thumbprint)
        self.assertEqual(found.keys[4].coordinates, [RAW])
        self.assertEqual(found.leftOut, [f"{DID}#rsa"])

    def test_wrongDocumentsAreRefused(self) -> None:
        good = method("#a", publicKeyJwk=jwk(ED))
        private = {**jwk(ED), "d": "x"}
        off = {**jwk(P256), "y": jwk(P256)["x"]}
        weak = {**jwk(ED), "x": base64(b"\x01" + bytes(31))}
        for data, text in (
            (b"{", "no object in JSON"),
            (b"[]", "no object in JSON"),
            (b" " * (MAX_HEADER + 1), "more than"),
            (document([good], ["#a"], id=f"{DID}:x"), f"not of {DID}"),
            (document([good], []), "no key of Ed25519"),
            (document([good], "#a"), "no list"),
            (document([good], ["#b"]), "has no key"),
            (document([good], [7]), "no name of this issuer"),
            (document([good], ["did:web:evil.example#a"]), "no name of this issuer"),
            (document([good] * 101, ["#a"]), "no list of at most 100"),
            (document([method("#a", publicKeyJwk=private)], ["#a"]), "is malformed"),
            (document([method("#a", publicKeyJwk=off)], ["#a"]), "is malformed"),
            (document([method("#a", publicKeyJwk=weak)], ["#a"]), "is weak"),
            (document([method("#a", publicKeyMultibase="z6M0")], ["#a"]), "is malformed"),
            (document([method("#a", publicKeyMultibase="u6Mk")], ["#a"]), "no key of Ed25519"),
            (
                document([good], ["#a", method("#a", publicKeyJwk=jwk(P256))]),
                "two keys of the name a",
            ),
        ):
            with self.assertRaisesRegex(ProofInvalid, text):
                keysInDocument(DID, data)
