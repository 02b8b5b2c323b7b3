"""
Tests of chains of certificates in the headers of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import cbor2
import msgspec
from attrs import evolve, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import (
    ANCHORS_TYPE,
    MAX_ROOTS,
    Claims,
    Issuer,
    IssuerRoot,
    KeyRecord,
    Registration,
    RegistrationPolicy,
    Root,
    ServiceKey,
    StatementRefused,
    readKeys,
    readRoots,
)

SERVICE = ServiceKey.derive(bytes(32))
CLAIMS = Claims(issuer="https://corp.example", subject="urn:thing:1")
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NOW = int((START + 10 * DAY).timestamp() * 1000)
CONSTRAINTS = x509.BasicConstraints(ca=True, path_length=None)


def usage(**given: bool) -> x509.KeyUsage:
    """The extension that says what a key is for: nothing but what is given."""
    names = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{each: given.get(each, False) for each in names})


@frozen
class Party:
    """A private key, and its certificate."""

    key: Any
    certificate: x509.Certificate

    @property
    def data(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


def certify(
    name: str,
    issuer: Party | None = None,
    *extensions: x509.ExtensionType,
    key: Any = None,
    start: datetime = START,
    days: int = 100,
    digest: Any = None,
    isCritical: bool = True,
) -> Party:
    """A certificate of a name, by an issuer or by itself."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=subject if issuer is None else issuer.certificate.subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=start,
        not_valid_after=start + days * DAY,
    )
    for each in extensions:
        builder = builder.add_extension(each, isCritical)
    signer = key if issuer is None else issuer.key
    digest = None if isinstance(signer, Ed25519PrivateKey) else digest or hashes.SHA256()
    return Party(key, builder.sign(signer, digest))


ROOT = certify("root", None, CONSTRAINTS)
MIDDLE = certify("middle", ROOT, CONSTRAINTS, usage(key_cert_sign=True))
LEAF = certify("leaf", MIDDLE, usage(digital_signature=True))


def signed(party: Party, chain: Any, alg: int = -7, **header: Any) -> bytes:
    """A statement with a chain, signed by the key of a party."""
    labels = {int(name[1:]): value for name, value in header.items()}
    protected = cbor2.dumps({1: alg, 15: CLAIMS.fields, 33: chain, **labels})
    data = cbor2.dumps(["Signature1", protected, b"", b"hello"])
    if isinstance(party.key, Ed25519PrivateKey):
        signature = party.key.sign(data)
    else:
        r, s = decode_dss_signature(party.key.sign(data, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return b"\xd2" + cbor2.dumps([protected, {}, b"hello", signature])


class ChainTests(SynchronousTestCase):
    """
    A policy that trusts a root for an issuer.
    """

    def setUp(self) -> None:
        self.registration = Registration()
        self.registration.addKey(msgspec.json.encode(KeyRecord.of("service", SERVICE.public)))
        self.trust(IssuerRoot(name=CLAIMS.issuer, root=Root.decode(ROOT.data)))

    def trust(self, *issuers: Issuer | IssuerRoot) -> None:
        """Put a policy in force, as the log has it."""
        for kind, document in RegistrationPolicy.of(issuers).documents():
            data = SERVICE.statement(evolve(CLAIMS, issuer="service"), kind, document)
            self.registration.apply(self.registration.check(data, NOW))

    def accepted(self, data: bytes, time: int = NOW) -> None:
        self.assertEqual(self.registration.check(data, time).content, data)

    def refused(self, data: bytes, words: str, time: int = NOW) -> None:
        error = self.assertRaises(StatementRefused, self.registration.check, data, time)
        self.assertEqual((error.title, words in str(error)), ("Rejected", True), str(error))

    def chained(self, *parties: Party, words: str = "", time: int = NOW, **header: Any) -> None:
        """Register a statement of the first of some parties."""
        data = signed(parties[0], [each.data for each in parties], **header)
        if words:
            self.refused(data, words, time)
        else:
            self.accepted(data, time)

    def test_chainLeadsToARoot(self) -> None:
        """With the root in it or without, of one certificate alone, and with both kinds of keys."""
        self.chained(LEAF, MIDDLE)
        self.chained(LEAF, MIDDLE, ROOT)
        direct = certify("direct", ROOT)
        self.accepted(signed(direct, direct.data))
        edwards = certify("edwards", MIDDLE, key=Ed25519PrivateKey.generate())
        self.chained(edwards, MIDDLE, alg=-8)
        self.chained(LEAF, MIDDLE, _34=[-16, sha256(LEAF.data).digest()])

    def test_chainThatLeadsNowhereIsRefused(self) -> None:
        """Reordered, with a gap, to a stranger of the same name, or with a forged signature."""
        stranger = certify("root", None, CONSTRAINTS)
        forged = certify("leaf", certify("middle", stranger, CONSTRAINTS))
        for parties, words in (
            ((MIDDLE, LEAF), "does not end at a root"),
            ((LEAF, ROOT), "certificate 1 of the chain is not issued by the next one"),
            ((LEAF, ROOT, MIDDLE), "certificate 1 of the chain is not issued"),
            ((LEAF, MIDDLE, LEAF), "does not end at a root"),
            ((certify("leaf", stranger), stranger), "does not end at a root"),
            ((forged, MIDDLE), "certificate 1 of the chain is not issued"),
            ((certify("leaf"), MIDDLE), "certificate 1 of the chain is not issued"),
        ):
            self.chained(*parties, words=words)
        self.refused(signed(certify("leaf"), [LEAF.data, MIDDLE.data]), "the signature of")
        self.refused(signed(LEAF, LEAF.data), "does not end at a root")
        self.refused(signed(ROOT, ROOT.data), "is that of an authority")
        self.chained(LEAF, MIDDLE, words="another kind of key", alg=-8)

    def test_everyCertificateIsValidAtTheTime(self) -> None:
        end = int((START + 100 * DAY).timestamp() * 1000)
        for time, words in (
            (end + 999, ""),
            (end + 1000, "the certificate of the issuer is not valid at this time"),
            (int(START.timestamp() * 1000), ""),
            (int(START.timestamp() * 1000) - 1, "not valid at this time"),
            (2**62, "not valid at this time"),
            (0, "not valid at this time"),
        ):
            self.chained(LEAF, MIDDLE, words=words, time=time)
        old = certify("old", ROOT, CONSTRAINTS, days=9)
        self.chained(certify("leaf", old), old, words="certificate 2 is not valid at this time")
        self.trust(IssuerRoot(name=CLAIMS.issuer, root=Root.decode(ROOT.data), until=NOW))
        self.chained(LEAF, MIDDLE, words="the issuer's roots are not trusted at this time")
        self.chained(LEAF, MIDDLE, time=NOW - 1)

    def test_certificatesAreForWhatTheyDo(self) -> None:
        plain = certify("plain", ROOT)
        short = certify("short", ROOT, x509.BasicConstraints(ca=True, path_length=0))
        below = certify("below", short, CONSTRAINTS)
        signing = certify("signing", ROOT, CONSTRAINTS, usage(crl_sign=True))
        for parties, words in (
            ((certify("leaf", plain), plain), "certificate 2 is not that of an authority"),
            ((certify("leaf", signing), signing), "certificate 2 is not that of an authority"),
            ((certify("leaf", below), below, short), "does not allow as many authorities"),
            ((MIDDLE, ROOT), "is that of an authority, which signs certificates alone"),
            ((certify("leaf", ROOT, usage(key_agreement=True)),), "is not for signatures"),
        ):
            with self.subTest(words=words):
                data = signed(parties[0], [each.data for each in parties])
                if len(parties) == 1:
                    data = signed(parties[0], parties[0].data)
                self.refused(data, words)
        self.chained(certify("leaf", short), short)

    def test_weakOrStrangeCertificatesAreRefused(self) -> None:
        names = x509.NameConstraints([x509.DNSName("corp.example")], None)
        constrained = certify("constrained", ROOT, CONSTRAINTS, names)
        self.chained(certify("leaf", constrained), constrained, words="a critical extension")
        small = certify("small", None, CONSTRAINTS, key=rsa.generate_private_key(65537, 1024))
        self.trust(IssuerRoot(name=CLAIMS.issuer, root=Root.decode(small.data)))
        weak = certify("leaf", small)
        self.refused(signed(weak, weak.data), "does not end at a root")
        large = certify("large", None, CONSTRAINTS, key=rsa.generate_private_key(65537, 2048))
        self.trust(IssuerRoot(name=CLAIMS.issuer, root=Root.decode(large.data)))
        good = certify("leaf", large)
        self.accepted(signed(good, good.data))
        other = Party(good.key, certify("leaf", large, key=large.key).certificate)
        self.refused(signed(other, other.data), "has no key that is known here")

    def test_malformedChainsAreRefused(self) -> None:
        leaf, middle = LEAF.data, MIDDLE.data
        for chain, words in (
            ("x", "is malformed"),
            ([leaf, "x"], "is malformed"),
            ({}, "is malformed"),
            ([], "has not 1 to 8 certificates"),
            ([leaf], "has not 1 to 8 certificates"),
            ([leaf, *[middle] * 8], "has not 1 to 8 certificates"),
            (b"", "certificate 1 is no X.509 certificate"),
            (leaf + b"\0", "certificate 1 is no X.509 certificate"),
            (leaf[:-1], "certificate 1 is no X.509 certificate"),
            ([leaf, b"x" * 20_000], "certificate 2 has more than 16384 bytes"),
        ):
            self.refused(signed(LEAF, chain), words)
        for x5t in ([-16, sha256(middle).digest()], [-43, bytes(48)], b"", None):
            self.chained(LEAF, MIDDLE, words="x5t of the statement", _34=x5t)

    def test_rootSpeaksForItsIssuerAlone(self) -> None:
        """A kid that the policy knows means the same key; without roots the kid alone counts."""
        root = Root.decode(ROOT.data)
        self.trust(IssuerRoot(name="https://other.example", root=root))
        self.chained(LEAF, MIDDLE, words="kid is missing")
        self.chained(LEAF, MIDDLE, words="no such issuer", _4=b"1")
        public = LEAF.key.public_key()
        [key] = readKeys(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        mine = Issuer(name=CLAIMS.issuer, key=evolve(key, kid=b"1"))
        other = Issuer(name=CLAIMS.issuer, key=evolve(SERVICE.public, kid=b"2"))
        self.trust(mine, other)
        self.chained(LEAF, MIDDLE, _4=b"1")
        self.trust(mine, other, IssuerRoot(name=CLAIMS.issuer, root=root))
        self.chained(LEAF, MIDDLE, _4=b"1")
        self.chained(LEAF, MIDDLE, _4=b"3")
        self.chained(LEAF, MIDDLE, _4=b"2", words="is not of the key of its kid")

    def test_rootsAreInTheDocument(self) -> None:
        """In a format of their own, which says that earlier versions cannot read it."""
        issuer = IssuerRoot(name=CLAIMS.issuer, root=Root.decode(ROOT.data), since=5)
        documents = dict(RegistrationPolicy.of([issuer]).documents())
        fields = msgspec.json.decode(documents[ANCHORS_TYPE])
        self.assertEqual(fields["format"], "svcbroker/scitt-anchors/2")
        self.assertEqual([each["since"] for each in fields["roots"]], [5])
        plain = dict(RegistrationPolicy.of([]).documents())[ANCHORS_TYPE]
        self.assertEqual(plain, b'{"issuers":[],"format":"svcbroker/scitt-anchors/1"}')
        self.assertRaises(ProofInvalid, RegistrationPolicy.of, [issuer] * (MAX_ROOTS + 1))

    def test_rootsAreAuthorities(self) -> None:
        pem = ROOT.certificate.public_bytes(Encoding.PEM)
        self.assertEqual([each.data for each in readRoots(pem * 2)], [ROOT.data] * 2)
        leaf = LEAF.certificate.public_bytes(Encoding.PEM)
        cases: Sequence[bytes] = (b"", b"x", pem[:100], leaf)
        for data in cases:
            self.assertRaises(ProofInvalid, readRoots, data)
