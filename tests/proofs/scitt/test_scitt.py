"""
Tests for L{svcbroker.proofs.scitt}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.chain import Malformed, merkleRoot, rootOfGrowth
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import (
    MAX_HEADER,
    MAX_MESSAGE,
    MAX_RECEIPTS,
    ConsistencyReceipt,
    InclusionReceipt,
    KeyUnknown,
    SignedStatement,
    readKeys,
    receiptsOf,
    verifyGrowth,
    verifyReceipts,
)

VECTORS = Path(svcbroker.__file__).parents[1] / "docs" / "vectors" / "scitt.json"
SERVICE = "https://broker.example/scitt"

unhex = bytes.fromhex


def build(protected: bytes, unprotected: Any, payload: bytes | None, signature: bytes) -> bytes:
    """A message of four parts, whatever they are."""
    return b"\xd2" + cbor2.dumps([protected, unprotected, payload, signature])


def flip(data: bytes, at: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class ScittTestCase(SynchronousTestCase):
    """
    The vectors: for ES256 and EdDSA an issuer, a service, statements and receipts.
    """

    def setUp(self) -> None:
        self.cases: Mapping[str, Any] = json.loads(VECTORS.read_text("ascii"))["algs"]

    def refusal(self, data: bytes, entry: bytes, keys: Any) -> str:
        """Why a receipt is refused."""
        with self.assertRaises(ProofInvalid) as caught:
            verifyReceipts(SignedStatement.decode(entry), [data], keys)
        return str(caught.exception)


class VectorTests(ScittTestCase):
    """
    What other programs have made is accepted, and each change of it refused.
    """

    def test_statementsAreVerified(self) -> None:
        for case in self.cases.values():
            keys = readKeys(case["issuer"]["pem"].encode())
            self.assertEqual(keys[0].kid.hex(), case["issuer"]["kid"])
            for data in map(unhex, case["entries"].values()):
                statement = SignedStatement.decode(data)
                statement.verify(keys)
                self.assertEqual(statement.claims.subject, "urn:example:artifact:1")
                self.assertEqual(statement.message.withoutUnprotected(), data)
                self.assertRaises(
                    ProofInvalid, statement.verify, readKeys(case["log"]["pem"].encode())
                )
                changed = SignedStatement.decode(flip(data, len(data) - 1))
                self.assertRaises(ProofInvalid, changed.verify, keys)

    def receipts(self, case: Any) -> Iterator[tuple[bytes, bytes, bytes]]:
        """All receipts of a case, with their entries and roots."""
        for tree in case["trees"]:
            for index, receipt in tree["receipts"].items():
                yield unhex(receipt), unhex(case["entries"][index]), unhex(tree["root"])

    def test_receiptsAreVerified(self) -> None:
        for case in self.cases.values():
            for keys in (
                readKeys(unhex(case["scitt_keys"])),
                readKeys(case["log"]["pem"].encode()),
            ):
                for receipt, entry, root in self.receipts(case):
                    statement = SignedStatement.decode(entry)
                    [found] = verifyReceipts(statement, [receipt], keys, SERVICE)
                    self.assertEqual((found.root, found.isHashed), (root, False))

    def test_leavesMayBeHashesOfStatements(self) -> None:
        for case in self.cases.values():
            statement = SignedStatement.decode(unhex(case["entries"]["0"]))
            digest = case["digest_entry_0_of_7"]
            keys = readKeys(unhex(case["scitt_keys"]))
            [found] = verifyReceipts(statement, [unhex(digest["receipt"])], keys)
            self.assertEqual((found.root.hex(), found.isHashed), (digest["root"], True))

    def test_transparentStatementsHaveTheirReceipts(self) -> None:
        for case in self.cases.values():
            data = unhex(case["transparent_statement_0_of_7"])
            statement = SignedStatement.decode(data)
            keys = readKeys(unhex(case["scitt_keys"]))
            [found] = verifyReceipts(statement, receiptsOf(statement), keys)
            self.assertEqual((found.receipt.index, found.receipt.size), (0, 7))
            self.assertEqual(statement.message.withoutUnprotected().hex(), case["entries"]["0"])

    def mutations(
        self, receipt: bytes, entry: bytes, root: bytes
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """Changes of a receipt, each of which makes it worthless."""
        protected, unprotected, _, signature = cbor2.loads(receipt[1:])
        header = cbor2.loads(protected)
        size, index, path = cbor2.loads(unprotected[396][-1][0])

        def proved(*proof: Any, **more: Any) -> bytes:
            kinds = {396: {-1: [cbor2.dumps([*proof])]}}
            return build(protected, {**kinds, **more}, None, signature)

        def headed(header: Any) -> bytes:
            return build(cbor2.dumps(header), unprotected, None, signature)

        if path:
            yield "path bit", proved(size, index, [flip(path[0]), *path[1:]]), entry
            yield "path shorter", proved(size, index, path[1:]), entry
            yield "path node", proved(size, index, [path[0][:31], *path[1:]]), entry
        yield "path longer", proved(size, index, [*path, bytes(32)]), entry
        yield "leaf index", proved(size, index ^ 1, path), entry
        yield "index out of range", proved(size, size, path), entry
        yield "negative index", proved(size, -1, path), entry
        yield "tree size", proved(size * 2, index, path), entry
        yield "size 0", proved(0, 0, []), entry
        yield "size of 2^64", proved(2**64, index, path), entry
        yield "size true", proved(True, False, []), entry
        yield "more parts", proved(size, index, path, 0), entry
        yield (
            "two proofs",
            build(protected, {396: {-1: unprotected[396][-1] * 2}}, None, signature),
            entry,
        )
        yield (
            "other kind of proof",
            build(protected, {396: {-2: unprotected[396][-1]}}, None, signature),
            entry,
        )
        yield "beside the proof", build(protected, {**unprotected, 4: b"x"}, None, signature), entry
        yield "early labels", build(protected, {-222: unprotected[396]}, None, signature), entry
        yield "signature bit", build(protected, unprotected, None, flip(signature, 40)), entry
        yield "signature cut", build(protected, unprotected, None, signature[:-1]), entry
        yield "vds 2", headed({**header, 395: 2}), entry
        yield "vds true", headed({**header, 395: True}), entry
        yield "iss changed", headed({**header, 15: {1: "x", 2: "y"}}), entry
        yield "claims in an array", headed({**header, 15: ["x", "y"]}), entry
        yield "no algorithm", headed({k: v for k, v in header.items() if k != 1}), entry
        yield "other algorithm", headed({**header, 1: -35}), entry
        yield "critical", headed({**header, 2: [395]}), entry
        yield (
            "key true for 1",
            headed({(True if k == 1 else k): v for k, v in header.items()}),
            entry,
        )
        yield "payload attached", build(protected, unprotected, root, signature), entry
        yield "trailing byte", receipt + b"\x00", entry
        yield "indefinite array", b"\xd2\x9f" + receipt[2:] + b"\xff", entry
        yield "untagged", receipt[1:], entry
        yield "tagged twice", b"\xd2" + receipt, entry
        yield "other tag", b"\xd1" + receipt[1:], entry
        yield "long head", receipt[:2] + b"\x59\x00" + receipt[3:], entry
        yield "cut", receipt[:-1], entry
        yield (
            "doubled label",
            b"\xd2\x84"
            + cbor2.dumps(b"\xa2\x01\x26\x01\x26")
            + cbor2.dumps(unprotected)
            + b"\xf6"
            + cbor2.dumps(signature),
            entry,
        )
        yield "bignum", b"\xd2\x84" + cbor2.dumps(protected) + b"\xc2\x41\x01\xf6\x40", entry
        yield "deep", b"\xd2\x84\x40" + b"\x81" * 100_000, entry
        yield "length of 2^62", b"\xd2\x84\x5b\x40" + bytes(7), entry
        yield "too large", receipt + bytes(MAX_MESSAGE), entry
        yield "large header", build(bytes(MAX_HEADER + 1), {}, None, signature), entry
        yield "empty", b"", entry

    def test_changesAreRefused(self) -> None:
        """One clear error each."""
        count = 0
        for case in self.cases.values():
            keys = readKeys(unhex(case["scitt_keys"]))
            for receipt, entry, root in self.receipts(case):
                for name, bad, said in self.mutations(receipt, entry, root):
                    reason = self.refusal(bad, said, keys)
                    self.assertNotIn("\n", reason, name)
                    count += 1
                changed = SignedStatement.decode(flip(entry, len(entry) - 1))
                self.assertRaises(ProofInvalid, verifyReceipts, changed, [receipt], keys)
        self.assertGreater(count, 1000)

    def test_consistencyReceiptsAreNotReceiptsOfEntries(self) -> None:
        for case in self.cases.values():
            keys = readKeys(unhex(case["scitt_keys"]))
            entry = unhex(case["entries"]["0"])
            reason = self.refusal(unhex(case["consistency"]["receipt"]), entry, keys)
            self.assertEqual(reason, "the receipt does not have one proof of inclusion")


class ReceiptTests(ScittTestCase):
    """
    Which receipts are looked at, and what they must say.
    """

    def setUp(self) -> None:
        super().setUp()
        case = self.cases["ES256"]
        self.keys = readKeys(unhex(case["scitt_keys"]))
        self.statement = SignedStatement.decode(unhex(case["entries"]["0"]))
        self.receipt = unhex(case["trees"][3]["receipts"]["0"])
        other = self.cases["EdDSA"]
        self.foreign = unhex(other["trees"][3]["receipts"]["0"])

    def test_receiptsOfOthersAreLeftOut(self) -> None:
        found = verifyReceipts(self.statement, [self.foreign, self.receipt], self.keys)
        self.assertEqual(
            [each.root.hex() for each in found], [self.cases["ES256"]["trees"][3]["root"]]
        )
        self.assertRaises(KeyUnknown, verifyReceipts, self.statement, [self.foreign], self.keys)
        self.assertRaises(KeyUnknown, verifyReceipts, self.statement, [], self.keys)

    def test_serviceMustBeThatOfReceipt(self) -> None:
        with self.assertRaises(ProofInvalid) as caught:
            verifyReceipts(self.statement, [self.receipt], self.keys, "https://else.example")
        self.assertIn("not issued in the name", str(caught.exception))

    def test_receiptsInStatementAreBounded(self) -> None:
        message = self.statement.message
        for receipts in ([b""] * (MAX_RECEIPTS + 1), ["text"], {1: b""}, b""):
            data = build(message.protected, {394: receipts}, message.payload, message.signature)
            self.assertRaises(ProofInvalid, receiptsOf, SignedStatement.decode(data))
        self.assertEqual(receiptsOf(self.statement), [])

    def test_statementNeedsIssuerAndSubject(self) -> None:
        message = self.statement.message
        for claims in (
            {},
            {1: "x"},
            {1: "", 2: "y"},
            {1: "x" * 8193, 2: "y"},
            {1: b"x", 2: "y"},
            7,
        ):
            header = cbor2.dumps({**message.header, 15: claims})
            data = build(header, {}, message.payload, message.signature)
            self.assertRaises(ProofInvalid, SignedStatement.decode, data)

    def test_statementNeedsPayloadAndKnownAlgorithm(self) -> None:
        keys = readKeys(self.cases["ES256"]["issuer"]["pem"].encode())
        message = self.statement.message
        detached = build(message.protected, {}, None, message.signature)
        self.assertRaises(ProofInvalid, SignedStatement.decode(detached).verify, keys)
        for algorithm in (5, -8, -35, -36, -257, "ES256", None):
            header = cbor2.dumps({**message.header, 1: algorithm})
            data = build(header, {}, message.payload, message.signature)
            self.assertRaises(ProofInvalid, SignedStatement.decode(data).verify, keys)

    def test_signatureInDerIsRefused(self) -> None:
        """ES256 has two numbers of 32 bytes, in one form."""
        keys = readKeys(self.cases["ES256"]["issuer"]["pem"].encode())
        message = self.statement.message
        numbers = [message.signature[:32], message.signature[32:]]
        r, s = (int.from_bytes(each, "big") for each in numbers)
        for signature in (encode_dss_signature(r, s), bytes(1) + message.signature, bytes(64)):
            data = build(message.protected, {}, message.payload, signature)
            self.assertRaises(ProofInvalid, SignedStatement.decode(data).verify, keys)

    def test_decodedReceiptTellsItsPlace(self) -> None:
        receipt = InclusionReceipt.decode(self.receipt)
        self.assertEqual((receipt.index, receipt.size, len(receipt.path)), (0, 7, 3))


class GrowthTests(ScittTestCase):
    """
    Consistency receipts: the trees of 7 and 256 leaves of the vectors.
    """

    def cases_(self) -> Iterator[tuple[Any, Any, Any, bytes]]:
        """Each case's consistency receipt, the keys, and what is proved of the smaller tree."""
        for case in self.cases.values():
            keys = readKeys(unhex(case["scitt_keys"]))
            statement = SignedStatement.decode(unhex(case["entries"]["0"]))
            receipts = [unhex(tree["receipts"]["0"]) for tree in case["trees"][2:4]]
            found = verifyReceipts(statement, receipts, keys)
            yield case["consistency"], keys, found, unhex(case["consistency"]["receipt"])

    def refused(self, found: Any, data: bytes, keys: Any, service: str | None = None) -> str:
        with self.assertRaises(ProofInvalid) as caught:
            verifyGrowth(found, data, keys, service)
        return str(caught.exception)

    def test_laterTreeHasSignedRoot(self) -> None:
        for vector, keys, found, data in self.cases_():
            receipt, root = verifyGrowth(found, data, keys, SERVICE)
            self.assertEqual((receipt.older, receipt.newer, root.hex()), (7, 256, vector["root2"]))
            self.assertEqual([each.hex() for each in receipt.path], vector["path"])

    def test_changesAreRefused(self) -> None:
        for vector, keys, found, data in self.cases_():
            protected, unprotected, _, signature = cbor2.loads(data[1:])
            older, newer, path = cbor2.loads(unprotected[396][-2][0])
            header = cbor2.loads(protected)

            def proved(
                *proof: Any, label: int = -2, protected: bytes = protected, sign: bytes = signature
            ) -> bytes:
                return build(protected, {396: {label: [cbor2.dumps([*proof])]}}, None, sign)

            for name, bad in {
                "node bit": proved(older, newer, [flip(path[0]), *path[1:]]),
                "last node bit": proved(older, newer, [*path[:-1], flip(path[-1])]),
                "nodes swapped": proved(older, newer, [path[1], path[0], *path[2:]]),
                "node missing": proved(older, newer, path[:-1]),
                "no nodes": proved(older, newer, []),
                "node more": proved(older, newer, [*path, bytes(32)]),
                "node cut": proved(older, newer, [path[0][:31], *path[1:]]),
                "older size": proved(older + 1, newer, path),
                "newer size": proved(older, newer - 129, path),
                "sizes swapped": proved(newer, older, path),
                "sizes equal": proved(older, older, []),
                "size 0": proved(0, newer, path),
                "size negative": proved(-1, newer, path),
                "size of 2^64": proved(older, 2**64, path),
                "size true": proved(True, newer, path),
                "inclusion": proved(older, newer, path, label=-1),
                "signature bit": proved(older, newer, path, sign=flip(signature, 40)),
                "vds 2": proved(older, newer, path, protected=cbor2.dumps({**header, 395: 2})),
                "root attached": build(protected, unprotected, unhex(vector["root2"]), signature),
                "trailing byte": data + b"\x00",
            }.items():
                self.assertNotIn("\n", self.refused(found, bad, keys), name)
            wrong = ConsistencyReceipt.decode(data)
            self.assertRaises(ProofInvalid, wrong.verify, unhex(vector["root2"]), keys)

    def test_powerOfTwoNeedsOnlyHashesBeyondIt(self) -> None:
        """The smaller tree's own root begins the path (RFC 9162, 2.1.4.2)."""
        leaves = [unhex(each) for each in self.cases["ES256"]["leaf_hashes"]]
        root = rootOfGrowth(4, merkleRoot(leaves[:4]), 7, [merkleRoot(leaves[4:7])])
        self.assertEqual(root, merkleRoot(leaves[:7]))
        for older, newer in ((0, 4), (4, 4), (5, 4)):
            self.assertRaises(Malformed, rootOfGrowth, older, bytes(32), newer, [])

    def test_itMustBeOfTreeAndService(self) -> None:
        for _, keys, found, data in self.cases_():
            self.assertIn("of which there is no receipt", self.refused(found[:1], data, keys))
            reason = self.refused(found, data, keys, "https://else.example")
            self.assertIn("not issued in the name", reason)
            case = next(each for each in self.cases.values())
            stranger = readKeys(case["issuer"]["pem"].encode())
            self.assertRaises(KeyUnknown, verifyGrowth, found, data, stranger)


class KeyTests(ScittTestCase):
    """
    Tests for L{svcbroker.proofs.scitt.readKeys}.
    """

    def test_thumbprintIsThatOfStandard(self) -> None:
        """The example of RFC 9679, 6."""
        x = unhex("65eda5a12577c2bae829437fe338701a10aaa375e1bb5b5de108de439c08551d")
        y = unhex("1e52ed75701163f7f9e40ddf9f341b3dc9ba860af7e0ca7ca7e9eecd0084d19c")
        [key] = readKeys(cbor2.dumps({1: 2, -1: 1, -2: x, -3: y, 2: b"meriadoc"}))
        expected = "496bd8afadf307e5b08c64b0421bf9dc01528a344a43bda88fadd1669da253ec"
        self.assertEqual((key.thumbprint.hex(), key.kid), (expected, b"meriadoc"))

    def test_keysOfP384AreRead(self) -> None:
        public = generate_private_key(SECP384R1()).public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        [key] = readKeys(pem)
        numbers = public.public_numbers()
        self.assertEqual(
            key.coordinates, [numbers.x.to_bytes(48, "big"), numbers.y.to_bytes(48, "big")]
        )

    def test_badKeysAreRefused(self) -> None:
        case = self.cases["ES256"]
        good = cbor2.loads(unhex(case["log"]["cose_key"]))
        weak = {1: 1, -1: 6, -2: b"\x01" + bytes(31)}
        for fields in (
            *([], 7, "x", [7], {}, weak, {**good, -3: bytes(32)}, {**good, -3: True}),
            *(
                {**good, -2: b"x"},
                {**good, -1: 2},
                {**good, 1: 4},
                {**good, 3: -8},
                {**good, 2: "x"},
            ),
            [good, good],
        ):
            self.assertRaises(ProofInvalid, readKeys, cbor2.dumps(fields))
        for data in (b"", b"-----BEGIN PUBLIC KEY-----\n", bytes(MAX_HEADER + 1), b"\xff"):
            self.assertRaises(ProofInvalid, readKeys, data)

    def test_weakSignatureIsRefused(self) -> None:
        """Signatures of low order are those of everything, for some libraries."""
        case = self.cases["EdDSA"]
        [key] = readKeys(unhex(case["scitt_keys"]))
        message = SignedStatement.decode(unhex(case["entries"]["0"])).message
        data = build(message.protected, {}, message.payload, b"\x01" + bytes(63))
        statement = SignedStatement.decode(data)
        self.assertRaises(ProofInvalid, statement.message.verify, key, "it")
