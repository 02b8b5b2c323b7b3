"""
Tests for C{svcbroker proof contradict}.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

from msgspec.json import encode
from msgspec.structs import replace

from svcbroker.archive import exportChain
from svcbroker.proofs import PbftCertificate
from tests.commands.support import CommandTestCase
from tools.vectors.enginechain import EngineChain
from tools.vectors.signedchain import SignedChain, seedOf


class ContradictTestCase(CommandTestCase):
    """
    A chain of 9 blocks with a change of the nodes in block 3, and a fork of it from block 5 on.
    """

    kind: type[SignedChain] = SignedChain

    def makeChain(self, name: str, word: bytes) -> SignedChain:
        """A chain in a directory of its own."""
        directory = self.directory / name
        directory.mkdir()
        chain = self.kind(directory)
        self.addCleanup(chain.close)
        chain.open("t")
        chain.publish("t", b"same")
        chain.changeNodes("node 0", "new 1", "node 2", "node 3")
        chain.decide()
        self.event = chain.publish("t", word)[0]
        chain.decide()
        chain.changeNodes("node 0", "new 1", "node 2", "new 3")
        chain.publish("t", b"last")
        chain.decide()
        return chain

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.chain = self.makeChain("chain", b"true")
        self.fork = self.makeChain("fork", b"forged")
        self.genuine, self.bad = (self.export(name) for name in ("chain", "fork"))

    def save(self, name: str, data: bytes) -> str:
        """The path of a new file."""
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def export(self, name: str, first: int = 1, last: int | None = None) -> str:
        """The path of an export."""
        data = io.BytesIO()
        exportChain(self.directory / name, data, first=first, last=last)
        return self.save(f"{name}-{first}-{last}.export", data.getvalue())

    def proof(self, chain: SignedChain, height: int | None = None) -> str:
        """The path of an event proof."""
        name = "proof" if chain is self.chain else "forged"
        return self.save(f"{name}-{height}.json", encode(chain.prover.event(self.event, height)))

    def run_(self, *words: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        return super().run_("contradict", *words, stdin=stdin)

    def contradicts(self, first: str, second: str, keys: int, says: str) -> None:
        """A contradiction is found, told, and written as a document that can be checked."""
        code, output, errors = self.run_(first, second)
        self.assertEqual(code, 0, errors)
        self.assertIn("CONTRADICTION: two different blocks of one height.", errors)
        self.assertEqual(len(json.loads(output)["contradiction"]["keys"]), keys)
        self.assertIn(says, errors)
        path = self.save("document.json", output.encode())
        self.assertEqual(self.run_("--check", path), (0, errors, ""))
        changed = output.replace('"isDoubleSigning": true', '"isDoubleSigning": false')
        changed = changed.replace(f'"says": "{self.event.height}:', '"says": "9:')
        code, output, errors = self.run_("--check", self.save("changed.json", changed.encode()))
        self.assertEqual((code, errors), (1, ""))
        self.assertIn("NOT SHOWN", output)


class ContradictTests(ContradictTestCase):
    """
    On one operator's chain.
    """

    def test_twoProofs(self) -> None:
        """Two proofs of one event id."""
        self.contradicts(
            self.proof(self.chain), self.proof(self.fork), 3, "signed two blocks in one round"
        )

    def test_proofAndExport(self) -> None:
        """A proof and an export, in either order, with changes of the nodes before."""
        self.contradicts(self.proof(self.chain), self.bad, 3, "signed two blocks")
        self.contradicts(self.bad, self.proof(self.chain, 8), 3, "signed two blocks")

    def test_twoExports(self) -> None:
        """Of two exports the first block that differs."""
        self.contradicts(self.genuine, self.bad, 3, f"  first        {self.event.height}:")
        part = self.export("chain", 1, 6)
        self.contradicts(part, self.bad, 3, "signed two blocks")

    def test_checkpointAndExport(self) -> None:
        """A checkpoint that is not on the history of an export, which has no keys in common."""
        kept = str(self.chain.prover.checkpoint(self.event.height))
        file = self.save("kept.txt", kept.encode())
        for given in (kept, file):
            self.contradicts(given, self.bad, 0, "a checkpoint, without signatures")

    def test_nothingToContradict(self) -> None:
        """What can both be true is no contradiction, and has code 1."""
        shared = str(self.fork.prover.checkpoint(2))
        for first, second in (
            (self.proof(self.chain), self.proof(self.chain, 8)),
            (self.proof(self.chain), self.genuine),
            (self.genuine, self.export("chain", 1, 4)),
            (self.genuine, self.export("fork", 1, 4)),
            (shared, self.genuine),
            ("100:" + "0" * 64, self.genuine),
        ):
            code, output, errors = self.run_(first, second)
            self.assertEqual((code, output), (1, ""), errors)
            self.assertTrue(errors.startswith("NO CONTRADICTION"))

    def test_badInputHasCodeTwo(self) -> None:
        """What does not hold by itself contradicts nothing, and has code 2."""
        proof = self.proof(self.chain)
        data = Path(self.bad).read_bytes()
        cut = self.save("cut.export", data[:-40])
        late = self.export("fork", 5)
        kept = str(self.chain.prover.checkpoint(5))
        bare = self.save("bare.json", encode(self.chain.prover.event(self.event, trusted=8)))
        other = self.save("other.json", Path(proof).read_bytes().replace(b"true", b"fake"))
        for arguments, words in (
            ([proof], "usage: svcbroker proof contradict"),
            ([proof, proof, proof], "usage: svcbroker proof contradict"),
            (["--check", proof, proof], "usage: svcbroker proof contradict"),
            ([proof, "nosuch"], "nosuch: No such file"),
            ([proof, cut], "is cut off"),
            ([proof, other], "not in its block"),
            ([bare, self.bad], "no signatures"),
            ([proof, late], "export the chain from block 1 on"),
            ([kept, kept], "two checkpoints have no signatures"),
        ):
            code, output, errors = self.run_(*arguments)
            self.assertEqual((code, output), (2, ""), (arguments, errors))
            self.assertIn(words, errors)

    def test_unsignedExportIsRefused(self) -> None:
        """An export whose certificates do not hold contradicts nothing."""
        path = Path(self.bad)
        certificate = self.fork.store.blockHead(self.event.height)
        assert certificate is not None
        found = certificate.certificate
        changed = path.read_bytes().replace(found, found[:-1] + bytes([found[-1] ^ 1]))
        forged = self.save("changed.export", changed)
        code, output, errors = self.run_(self.proof(self.chain), forged)
        self.assertEqual((code, output), (2, ""))
        self.assertIn("the export cannot be used", errors)


class RoundTests(ContradictTestCase):
    """
    Rounds, which one operator's replicas sign.
    """

    def test_otherRoundsAreNotDoubleSigning(self) -> None:
        """Where the rounds differ, it is said that not each of the keys need be at fault."""
        proof = self.fork.prover.event(self.event)
        self.fork._seeds = [seedOf(name) for name in ("node 0", "new 1", "node 2", "node 3")]
        certificate = self.fork.certify(proof.block.header.header(), round=1)
        block = replace(proof.block, certificate=PbftCertificate.of(certificate))
        other = self.save("round.json", encode(replace(proof, block=block)))
        code, output, errors = self.run_(self.proof(self.chain), other)
        self.assertEqual(code, 0)
        self.assertIn("not in one round of one height", errors)
        self.assertIs(json.loads(output)["contradiction"]["isDoubleSigning"], False)


class EngineContradictTests(ContradictTests):
    """
    The same on the chain of a network of engines, where blocks without transactions have no
    certificates.
    """

    kind = EngineChain

    def test_laterCertificateProvesBlock(self) -> None:
        """A block without a certificate is proved by a later one."""
        kept = str(self.chain.prover.checkpoint(self.event.height))
        height, hash = self.event.height + 1, "0" * 64
        self.assertTrue(kept.startswith(f"{self.event.height}:"))
        code, output, _ = self.run_(f"{height}:{hash}", self.genuine)
        self.assertEqual(code, 0)
        self.assertIn("earlier", json.loads(output)["second"])
