"""
Tests for C{svcbroker proof scitt verify}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2

import svcbroker
from tests.commands.support import CommandTestCase

VECTORS = Path(svcbroker.__file__).parents[1] / "docs" / "vectors" / "scitt.json"


class ScittTests(CommandTestCase):
    """
    A statement of the vectors, its receipt, and the keys of its service.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        case: Any = json.loads(VECTORS.read_text("ascii"))["algs"]["ES256"]
        self.transparent = self.save("t.scitt", case["transparent_statement_0_of_7"])
        self.statement = self.save("s.scitt", case["entries"]["0"])
        self.receipt = self.save("r.receipt", case["trees"][3]["receipts"]["0"])
        self.later: Any = case["consistency"]
        self.grown = self.save("g.receipt", self.later["receipt"])
        self.keys = self.save("keys", case["scitt_keys"])
        self.issuer = self.save("issuer.pem", case["issuer"]["pem"].encode().hex())
        self.other = self.save("other.pem", case["log"]["pem"].encode().hex())

    def save(self, name: str, digits: str) -> Path:
        path = self.directory / name
        path.write_bytes(bytes.fromhex(digits))
        return path

    def test_transparentStatementIsProved(self) -> None:
        output = self.good("proof", "scitt", "verify", self.transparent, "--keys", self.keys)
        self.assertTrue(output.startswith("PROVED: the statement is in the tree of the service\n"))
        self.assertIn("  entry        0 of a tree of 7\n", output)
        self.assertIn("  service      https://broker.example/scitt\n", output)
        self.assertIn("  not checked  the signature of the issuer: give --issuer-keys\n", output)

    def test_receiptMayBeInItsOwnFile(self) -> None:
        words = (
            "proof",
            "scitt",
            "verify",
            self.statement,
            "--keys",
            self.keys,
            "--receipt",
            self.receipt,
        )
        output = self.good(*words, "--issuer-keys", self.issuer)
        self.assertNotIn("not checked", output)
        told = json.loads(self.good(*words, "--json"))
        self.assertEqual((told["proved"], told["signatureChecked"]), (True, False))
        self.assertEqual([each["size"] for each in told["receipts"]], [7])

    def test_laterTreeIsShown(self) -> None:
        words = ("proof", "scitt", "verify", self.transparent, "--keys", self.keys)
        output = self.good(*words, "--consistency", self.grown)
        self.assertIn("  later tree   of 256, has all of the tree of 7\n", output)
        self.assertIn(f"  its root     {self.later['root2']}\n", output)
        told = json.loads(self.good(*words, "--consistency", self.grown, "--json"))
        self.assertEqual(told["laterTree"], {"size": 256, "root": self.later["root2"]})
        self.assertNotIn("laterTree", json.loads(self.good(*words, "--json")))
        wrong = self.notProved(*words[3:], "--consistency", self.receipt)
        self.assertIn("does not have one proof of consistency", wrong)

    def notProved(self, *words: object) -> str:
        code, output, errors = self.run_("proof", "scitt", "verify", *words)
        self.assertEqual((code, errors), (1, ""))
        self.assertTrue(output.startswith("NOT PROVED: "), output)
        return output

    def test_refusalSaysWhy(self) -> None:
        keys = ("--keys", self.keys)
        self.assertIn("has no receipts: give --receipt", self.notProved(self.statement, *keys))
        wrong = (self.transparent, *keys, "--issuer-keys", self.other)
        self.assertIn("the signature of the statement is wrong", self.notProved(*wrong))
        stranger = (self.transparent, "--keys", self.issuer)
        self.assertIn("no receipt that is signed by a key given", self.notProved(*stranger))
        named = (self.transparent, *keys, "--service", "https://else.example")
        self.assertIn("not issued in the name of that service", self.notProved(*named))
        self.assertIn("no COSE_Sign1", self.notProved(self.issuer, *keys))
        code, output, _ = self.run_("proof", "scitt", "verify", self.issuer, *keys, "--json")
        self.assertEqual((code, json.loads(output)["proved"]), (1, False))

    def test_badKeysAreNamed(self) -> None:
        line = self.refused("proof", "scitt", "verify", self.transparent, "--keys", self.receipt)
        self.assertIn(str(self.receipt), line)

    def test_receiptsOfOthersAreCounted(self) -> None:
        first, *_ = cbor2.loads(self.transparent.read_bytes()[1:])[1][394]
        parts = cbor2.loads(self.transparent.read_bytes()[1:])
        header = cbor2.loads(cbor2.loads(first[1:])[0])
        foreign = cbor2.loads(first[1:])
        foreign[0] = cbor2.dumps({**header, 4: b"x"})
        parts[1] = {394: [b"\xd2" + cbor2.dumps(foreign), first]}
        path = self.save("both.scitt", (b"\xd2" + cbor2.dumps(parts)).hex())
        output = self.good("proof", "scitt", "verify", path, "--keys", self.keys)
        self.assertIn("  left out     1 receipt by keys that are not given\n", output)
