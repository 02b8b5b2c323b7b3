"""
Transparent Statements and consistency receipts of the service, verified by a Go program with the
libraries C{go-cose} and C{transparency-dev/merkle}, and by the pieces of C{scitt-cose}.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from svcbroker.proofs.scitt import SignedStatement, encodeKeys, readKeys, receiptsOf
from tests.carriers.scitt.support import ISSUER, ScittServiceTestCase, pathOf, statement
from tests.needed import neededProgram, needPackage
from tests.waiting import TIMEOUT

with contextlib.suppress(ImportError):
    import scitt_cose

SOURCE = Path(__file__).parent / "scitt-go"
SIZES = (3, 4, 7, 8, 13)
"""Sizes of the trees that the first statement has receipts of."""

_CONSISTENCY = -2


def changed(data: bytes, place: int) -> bytes:
    """A message with a bit changed."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def withProof(receipt: bytes, kind: int, **fields: Any) -> bytes:
    """A receipt whose proof has other numbers or hashes, and which is signed as before."""
    protected, unprotected, payload, signature = cbor2.loads(receipt[1:])
    proof = dict(
        zip(("first", "second", "path"), cbor2.loads(unprotected[396][kind][0]), strict=True)
    )
    proof |= fields
    parts = {396: {kind: [cbor2.dumps([*proof.values()])]}}
    return b"\xd2" + cbor2.dumps([protected, parts, payload, signature])


class VerifierTests(ScittServiceTestCase):
    """
    One statement with receipts of some trees, and the consistency receipts between them.

    @ivar whole: its Transparent Statements, by the sizes of the trees.
    @ivar growth: the consistency receipts to the newest tree, by the sizes of older ones.
    """

    def setUp(self) -> None:
        super().setUp()
        self.statement = statement(0)
        self.whole: dict[int, bytes] = {}
        for number in range(SIZES[-1] - 2):
            self.register(self.statement if number == 0 else statement(number))
            if self.tree.state.size in SIZES:
                answer = self.answer("GET", f"{pathOf(self.statement)}/statement")
                self.whole[self.tree.state.size] = answer.body
        self.growth = {size: self.answer("GET", f"/consistency/{size}").body for size in SIZES[:-1]}
        self.keys = self.answer("GET", "/.well-known/scitt-keys").body

    def receipt(self, size: int) -> bytes:
        """The receipt of a tree."""
        [receipt] = receiptsOf(SignedStatement.decode(self.whole[size]))
        return receipt

    def attached(self, receipt: bytes) -> bytes:
        """The Transparent Statement with a receipt."""
        return SignedStatement.decode(self.statement).withReceipts([receipt])

    def case(self, size: int = 3, **fields: bytes) -> Mapping[str, bytes]:
        """What the Go program is asked."""
        last = self.whole[SIZES[-1]]
        grown = {"newer": last, "growth": self.growth[size]} if size in self.growth else {}
        issuer = encodeKeys([ISSUER.public])
        given = {"service": self.keys, "issuer": issuer, "statement": self.whole[size]}
        return {**given, **grown, **fields}

    def wrong(self) -> Iterator[Mapping[str, bytes]]:
        """What it has to refuse."""
        receipt, growth = self.receipt(7), self.growth[7]
        stranger = statement(99)
        self.register(stranger)
        foreign = self.answer("GET", pathOf(stranger)).body
        path = cbor2.loads(cbor2.loads(receipt[1:])[1][396][-1][0])[2]
        grown = cbor2.loads(cbor2.loads(growth[1:])[1][396][_CONSISTENCY][0])[2]
        for changedReceipt in (
            changed(receipt, len(receipt) - 1),
            changed(receipt, 20),
            foreign,
            growth,
            withProof(receipt, -1, first=8),
            withProof(receipt, -1, second=3),
            withProof(receipt, -1, path=[*path, bytes(32)]),
            withProof(receipt, -1, path=[changed(path[0], 5), *path[1:]]),
        ):
            yield self.case(7, statement=self.attached(changedReceipt))
        yield self.case(7, statement=changed(self.whole[7], len(self.whole[7]) - 1))
        yield self.case(7, statement=self.statement)
        yield self.case(7, service=encodeKeys([ISSUER.public]))
        yield self.case(7, issuer=self.keys)
        for changedGrowth in (
            changed(growth, len(growth) - 1),
            self.growth[4],
            receipt,
            withProof(growth, _CONSISTENCY, first=8),
            withProof(growth, _CONSISTENCY, second=14),
            withProof(growth, _CONSISTENCY, path=grown[:-1]),
            withProof(growth, _CONSISTENCY, path=[changed(grown[0], 5), *grown[1:]]),
        ):
            yield self.case(7, growth=changedGrowth)
        yield self.case(7, newer=self.whole[8])
        yield self.case(7, newer=self.whole[7], statement=self.whole[13])

    def test_goVerifiesWhatTheServiceSigns(self) -> None:
        """And refuses each of it that was changed, or that is of something else."""
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        go = neededProgram("go")
        subprocess.run(
            [go, "build", "-o", root / "check", "."], cwd=SOURCE, check=True, timeout=TIMEOUT
        )
        good, wrong = [self.case(size) for size in SIZES], [*self.wrong()]
        cases = [{name: data.hex() for name, data in each.items()} for each in [*good, *wrong]]
        (root / "cases").write_text(json.dumps(cases))
        done = subprocess.run(
            [root / "check", root / "cases"],
            capture_output=True,
            check=True,
            timeout=TIMEOUT,
            text=True,
        )
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for size, line in zip(SIZES, lines, strict=False):
            self.assertTrue(line.startswith(f"entry 2 of {size}, root "), line)
            self.assertEqual(line.endswith(", grown to 13"), size != 13, line)
        for number, line in enumerate(lines[len(good) :]):
            self.assertTrue(line.startswith("REFUSED: "), f"{number}: {line}")

    def test_scittCoseVerifiesConsistencyReceipts(self) -> None:
        """
        The library has no one call for these receipts: what verifies its signatures and its proofs
        of growth verifies both parts of each.
        """
        needPackage("scitt_cose", "interop")
        [key] = readKeys(self.keys)
        x, y = (int.from_bytes(each, "big") for each in key.coordinates)
        public = EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        roots = {}
        for size in SIZES:
            found = scitt_cose.verify_receipt(
                self.receipt(size), leaf_entry_hex=self.statement.hex(), log_public_key_pem=pem
            )
            self.assertTrue(found.ok, found.errors)
            roots[size] = found.root
        last = bytes.fromhex(roots[13])
        for size, growth in self.growth.items():
            scitt_cose.verify_sign1(growth, public_key_pem=pem, detached_payload=last)
            with self.assertRaises(scitt_cose.CoseError):
                wrong = bytes.fromhex(roots[size])
                scitt_cose.verify_sign1(growth, public_key_pem=pem, detached_payload=wrong)
            older, newer, path = cbor2.loads(cbor2.loads(growth[1:])[1][396][_CONSISTENCY][0])
            self.assertEqual((older, newer), (size, 13))
            for each in SIZES[:-1]:
                isGood = scitt_cose.verify_consistency(
                    roots[each], roots[13], size, 13, [node.hex() for node in path]
                )
                self.assertEqual(isGood, each == size)
