"""
Tests of the registration of statements by a policy that is in the log, and of what the key of a
service signs.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import cbor2
import msgspec
from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import History, growthPath, historyPath, leafHash
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import (
    MAX_ISSUERS,
    MAX_VERIFIED,
    Claims,
    CoseKey,
    CoseMessage,
    Entry,
    Issuer,
    KeyRecord,
    Registration,
    RegistrationPolicy,
    ServiceKey,
    SignedStatement,
    StatementRefused,
    encodeKeys,
    readKeys,
    verifyGrowth,
    verifyReceipts,
)

SERVICE = ServiceKey.derive(bytes(32))
ISSUER = ServiceKey.derive(b"issuer".ljust(32))
PINNED = "ed7c1fff93ae63553efd62998a89c17b89aede18e6405cd4b65224872236b434"
CLAIMS = Claims(issuer="https://acme.example", subject="urn:thing:1")


def policy(**changed: Any) -> RegistrationPolicy:
    """One that trusts the issuer from 1000 to 2000."""
    issuer = Issuer(name=CLAIMS.issuer, key=ISSUER.public, since=1000, until=2000)
    return RegistrationPolicy.of([evolve(issuer, **changed)])


class RegistrationTests(SynchronousTestCase):
    """
    A log with the key of a service and its policy.
    """

    def setUp(self) -> None:
        self.registration = Registration()
        self.registration.addKey(msgspec.json.encode(KeyRecord.of("service", SERVICE.public)))
        self.statement = ISSUER.statement(CLAIMS, "text/plain", b"hello")

    def put(self, policy: RegistrationPolicy, key: ServiceKey = SERVICE) -> None:
        """Have the service register a policy."""
        for kind, document in policy.documents():
            self.take(key.statement(Claims(issuer="service", subject="p"), kind, document))

    def take(self, data: bytes, time: int = 1500) -> Entry:
        """Register a statement."""
        entry = self.registration.check(data, time)
        self.registration.apply(entry)
        return entry

    def refused(self, data: bytes, time: int = 1500) -> str:
        """The title of the refusal."""
        title: str = self.assertRaises(StatementRefused, self.take, data, time).title
        return title

    def test_statementIsAnEntryWithoutUnprotectedHeader(self) -> None:
        self.put(policy())
        message = CoseMessage.decode(self.statement, "it")
        entry = self.take(evolve(message, unprotected={1: b"x"}).encode())
        self.assertEqual((entry.content, entry.leaf), (self.statement, self.statement))
        self.assertEqual(entry.id, sha256(self.statement).digest())
        self.put(evolve(policy(), isHashed=True))
        self.assertEqual(self.take(self.statement).leaf, entry.id)

    def test_policyIsInForceFromItsPlaceOn(self) -> None:
        self.assertEqual(self.refused(self.statement), "Rejected")
        self.put(policy())
        self.take(self.statement)
        self.put(policy(name="https://other.example"))
        self.assertEqual(self.refused(self.statement), "Rejected")
        self.put(policy())
        self.take(self.statement)
        self.assertEqual([*self.registration.documents], [*policy().documents()])

    def test_signatureIsVerifiedOnce(self) -> None:
        """Where the event is checked after the statement, by the same key; and for some alone."""
        self.put(policy())
        verified: list[bytes] = []
        verify = CoseMessage.verify

        def note(message: CoseMessage, key: CoseKey, what: str) -> None:
            verified.append(message.signature)
            verify(message, key, what)

        self.patch(CoseMessage, "verify", note)
        entry = self.registration.check(self.statement, 1500, isAhead=True)
        self.registration.check(self.statement, 1500, isAhead=True)
        self.assertEqual(self.registration.entryOf(self.statement, 1600), entry)
        self.assertEqual(len(verified), 1)
        # From here on, nothing is known of it.
        self.assertEqual(self.registration.entryOf(self.statement, 1600), entry)
        self.assertEqual(len(verified), 2)
        for each in range(MAX_VERIFIED + 1):
            self.registration.check(
                ISSUER.statement(CLAIMS, "text/plain", b"%d" % each), 1500, isAhead=True
            )
        self.assertEqual(len(self.registration._verified), MAX_VERIFIED)

    def test_verifiedSignatureIsThatOfOneKey(self) -> None:
        """The policy may trust another key of this name by then, or none."""
        self.put(policy())
        self.registration.check(self.statement, 1500, isAhead=True)
        self.assertIsNone(self.registration.entryOf(self.statement, 2000))
        self.registration.check(self.statement, 1500, isAhead=True)
        other = evolve(ServiceKey.derive(b"other".ljust(32)).public, kid=ISSUER.public.kid)
        self.put(policy(key=other))
        self.assertIsNone(self.registration.entryOf(self.statement, 1500))

    def test_policyOfAnotherKeyIsNone(self) -> None:
        """Nor is one that the service has not signed as it is there."""
        self.put(policy())
        kind, document = policy(name="evil").documents()[1]
        # An ordinary statement of the issuer, whatever its content type.
        data = ISSUER.statement(CLAIMS, kind, document)
        self.take(data)
        forged = CoseMessage.decode(data, "it")
        header = cbor2.dumps({**forged.header, 4: SERVICE.public.kid})
        for data in (
            ISSUER.statement(evolve(CLAIMS, issuer="service"), kind, document),
            evolve(forged, protected=header).encode(),
        ):
            self.assertEqual(self.refused(data), "Rejected")
        self.take(self.statement)

    def test_keyIsTrustedInItsTime(self) -> None:
        self.put(policy())
        for time in (1000, 1999):
            self.take(self.statement, time)
        for time in (0, 999, 2000, 2**62):
            self.assertEqual(self.refused(self.statement, time), "Rejected")
        self.put(policy(since=None, until=None))
        for time in (0, 2**62):
            self.take(self.statement, time)

    def test_refusalsHaveTitles(self) -> None:
        self.put(policy())
        message = CoseMessage.decode(self.statement, "it")

        def changed(**header: object) -> bytes:
            fields = {**message.header, **{int(k[1:]): v for k, v in header.items()}}
            fields = {key: value for key, value in fields.items() if value is not None}
            return evolve(message, protected=cbor2.dumps(fields)).encode()

        for data, title in (
            (b"", "Malformed request"),
            (self.statement + b"\0", "Malformed request"),
            (self.statement[1:], "Malformed request"),
            (changed(_15=None), "Malformed request"),
            (changed(_2=[1]), "Malformed request"),
            (changed(_1=5), "Bad Signature Algorithm"),
            (changed(_1=None), "Bad Signature Algorithm"),
            (changed(_1=-8), "Rejected"),
            (changed(_4=None), "Rejected"),
            (changed(_4="text"), "Rejected"),
            (changed(_3="text/html"), "Rejected"),
            (evolve(message, payload=None).encode(), "Payload Missing"),
            (evolve(message, payload=b"other").encode(), "Rejected"),
            (evolve(message, unprotected={1: [[]] * 20_000}).encode(), "Malformed request"),
        ):
            self.assertEqual(self.refused(data), title, data[:60])
        self.take(self.statement)

    def test_hashEnvelopesAreEntries(self) -> None:
        """With a hash that is known; others could be of anything."""
        self.put(policy())
        for header, size, title in (
            ({258: -16, 259: "application/pdf", 260: "https://acme.example/1"}, 32, ""),
            ({258: -44}, 64, ""),
            ({258: -18}, 16, "Rejected"),
            ({258: -16}, 31, "Malformed request"),
            ({258: -16, 3: "text/plain"}, 32, "Malformed request"),
            ({258: "SHA-256"}, 32, "Malformed request"),
        ):
            data = ISSUER.sign(
                {1: -7, 4: ISSUER.public.kid, 15: CLAIMS.fields, **header}, bytes(size)
            )
            if title:
                self.assertEqual(self.refused(data), title, header)
            else:
                self.assertEqual(self.take(data).content, data)

    def test_malformedRecordsAndDocumentsAreIgnored(self) -> None:
        self.put(policy())
        for record in (b"", b"{}", b'{"service":"x","key":"!"}', b'{"service":"x","key":"oA"}'):
            self.registration.addKey(record)
        self.assertEqual([*self.registration.keys], [SERVICE.public.kid])
        for kind, _ in policy().documents():
            for document in (b"", b"{}", b'{"format":"svcbroker/scitt-policy/2"}'):
                self.take(SERVICE.statement(CLAIMS, kind, document))
        self.take(self.statement)

    def test_policyHasDistinctKeysAndNotTooMany(self) -> None:
        one = Issuer(name="a", key=ISSUER.public)
        many = [evolve(one, name=f"{each}") for each in range(MAX_ISSUERS + 1)]
        RegistrationPolicy.of(many[1:])
        for issuers, words in (([one, one], "one name"), (many, "more than 1000")):
            error = self.assertRaises(ProofInvalid, RegistrationPolicy.of, issuers)
            self.assertIn(words, str(error))


class ServiceKeyTests(SynchronousTestCase):
    """
    The key of a service.
    """

    def test_keyFollowsFromItsSeed(self) -> None:
        """Pinned: receipts of earlier versions name it."""
        self.assertEqual(ServiceKey.derive(bytes(32)).public, SERVICE.public)
        self.assertNotEqual(ISSUER.public, SERVICE.public)
        self.assertEqual(SERVICE.public.kid, SERVICE.public.thumbprint)
        self.assertEqual([*readKeys(encodeKeys([SERVICE.public]))], [SERVICE.public])
        self.assertEqual(CoseKey.make(SERVICE.public.fields), SERVICE.public)
        self.assertEqual(SERVICE.public.kid.hex(), PINNED)
        self.assertNotIn("private", repr(SERVICE).lower().replace("_private", ""))

    def test_receiptsAreVerified(self) -> None:
        """Of inclusion and of consistency, in trees of several sizes."""
        statements = [
            ISSUER.statement(evolve(CLAIMS, subject=f"urn:{each}"), "text/plain", b"x")
            for each in range(9)
        ]
        leaves = [leafHash(each) for each in statements]

        def nodes(level: int, first: int, count: int) -> list[bytes]:
            return leaves[first : first + count]

        claims = Claims(issuer="service", subject="urn:3", issuedAt=17)
        said = SignedStatement.decode(statements[3])
        for older in range(4, 9):
            root = History.of(statements[:older]).root
            path = historyPath(3, older, nodes)
            receipt = SERVICE.inclusion(claims, 3, older, path, root)
            found = verifyReceipts(said, [receipt], [SERVICE.public], "service")
            self.assertEqual((found[0].root, found[0].receipt.claims), (root, claims))
            newer = History.of(statements).root
            grown = SERVICE.consistency(claims, older, 9, growthPath(older, 9, nodes), newer)
            _, later = verifyGrowth(found, grown, [SERVICE.public], "service")
            self.assertEqual(later, newer)
            with self.assertRaises(ProofInvalid):
                verifyReceipts(said, [receipt], [ISSUER.public])
