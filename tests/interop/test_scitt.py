"""
Statements and receipts of SCITT, between this package and C{scitt-cose}.

The library is made by others, for verifiers and services: what it has signed is verified here, and
receipts of other entries are refused by both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import (
    CoseKey,
    SignedStatement,
    readKeys,
    receiptsOf,
    verifyGrowth,
    verifyReceipts,
)
from tests.needed import needPackage

with contextlib.suppress(ImportError):
    import scitt_cose

SERVICE = "https://service.example"
SUBJECT = "urn:example:thing"


class Signer:
    """
    A key of either side.
    """

    def __init__(self, algorithm: str) -> None:
        private = (
            Ed25519PrivateKey.generate()
            if algorithm == "EdDSA"
            else generate_private_key(SECP256R1())
        )
        self.algorithm = algorithm
        self.pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.public = private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def keys(self) -> Sequence[CoseKey]:
        return readKeys(self.public)


class ScittCoseTests(SynchronousTestCase):
    """
    A log of some statements that C{scitt-cose} has signed, for each algorithm that both know.
    """

    def setUp(self) -> None:
        needPackage("scitt_cose", "interop")

    def log(self, algorithm: str, leaves: int) -> tuple[Signer, Signer, list[bytes]]:
        issuer, service = Signer(algorithm), Signer(algorithm)
        statements = [
            scitt_cose.build_signed_statement(
                b"%d" % number,
                alg=algorithm,
                private_key_pem=issuer.pem,
                issuer="https://issuer.example",
                subject=SUBJECT,
                content_type="text/plain",
                kid=issuer.keys[0].kid,
            )
            for number in range(leaves)
        ]
        return issuer, service, statements

    def receipt(self, service: Signer, entries: Sequence[bytes], index: int) -> bytes:
        """A receipt that the library has signed."""
        made: bytes = scitt_cose.build_receipt(
            leaf_entry_hex=entries[index].hex(),
            leaf_index=index,
            tree_entries_hex=[each.hex() for each in entries],
            alg=service.algorithm,
            log_private_key_pem=service.pem,
            iss=SERVICE,
            sub=SUBJECT,
            kid=service.keys[0].kid,
        )
        return made

    def test_statementsAndReceiptsOfLibraryAreVerified(self) -> None:
        for algorithm in ("ES256", "EdDSA"):
            issuer, service, statements = self.log(algorithm, 11)
            root = scitt_cose.merkle_root([each.hex() for each in statements])
            for index, data in enumerate(statements):
                receipt = self.receipt(service, statements, index)
                whole = SignedStatement.decode(scitt_cose.attach_receipts(data, [receipt]))
                whole.verify(issuer.keys)
                self.assertEqual(whole.message.withoutUnprotected(), data)
                [found] = verifyReceipts(whole, receiptsOf(whole), service.keys, SERVICE)
                place = (found.receipt.index, found.receipt.size, found.isHashed)
                self.assertEqual((*place, found.root.hex()), (index, 11, False, root))

    def test_bothRefuseReceiptOfAnotherEntry(self) -> None:
        for algorithm in ("ES256", "EdDSA"):
            _, service, statements = self.log(algorithm, 7)
            receipt = self.receipt(service, statements, 3)
            for index, data in enumerate(statements):
                result = scitt_cose.verify_receipt(
                    receipt, leaf_entry_hex=data.hex(), log_public_key_pem=service.public
                )
                self.assertEqual(result.ok, index == 3)
                if index != 3:
                    statement = SignedStatement.decode(data)
                    with self.assertRaises(ProofInvalid):
                        verifyReceipts(statement, [receipt], service.keys)

    def test_consistencyPathsOfLibraryLeadToItsRoots(self) -> None:
        for algorithm in ("ES256", "EdDSA"):
            _, service, statements = self.log(algorithm, 13)
            entries = [each.hex() for each in statements]
            first = SignedStatement.decode(statements[0])
            for older in range(1, 13):
                path = scitt_cose.consistency_proof(entries, older, 13)
                proof = cbor2.dumps([older, 13, [bytes.fromhex(each) for each in path]])
                root = bytes.fromhex(scitt_cose.merkle_root(entries))
                grown = scitt_cose.sign_sign1(
                    root,
                    alg=algorithm,
                    private_key_pem=service.pem,
                    protected={4: service.keys[0].kid, 395: 1, 15: {1: SERVICE, 2: SUBJECT}},
                    unprotected={396: {-2: [proof]}},
                    detached=True,
                )
                receipt = self.receipt(service, statements[:older], 0)
                found = verifyReceipts(first, [receipt], service.keys)
                _, later = verifyGrowth(found, grown, service.keys, SERVICE)
                self.assertEqual(later, root)
