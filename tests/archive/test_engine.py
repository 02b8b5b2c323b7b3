"""
Chains that an engine decides: audits, backups, and what is not possible with them.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from svcbroker.archive import BROKER_FILES, ImportRefused, backUp, exportChain, importChain
from svcbroker.commands.chainfiles import _summary
from svcbroker.proofs.cometbft import LightBlock
from tools.vectors.enginechain import EngineChain

from .support import ArchiveTestCase


class EngineTests(ArchiveTestCase):
    """
    A chain of six blocks: an open, two of events with one between that has none, a change, an
    event, and none.
    """

    def makeEngineChain(self, *, keeps: bool = True) -> EngineChain:
        """A directory as a broker beside an engine leaves it."""
        self.directory.mkdir(parents=True, mode=0o700)
        chain = EngineChain(self.directory, keeps=keeps)
        chain.open("a")
        chain.publish("a", b"one")
        chain.decide()
        chain.changeNodes("node 0", "node 1", "node 2", "node 3", "node 4")
        chain.publish("a", b"two", b"three")
        chain.decide()
        chain.close()
        for name in BROKER_FILES:
            (self.directory / name).write_bytes(b"x")
        return chain

    def test_allVotesStoredIsGood(self) -> None:
        """With all votes stored nothing is missing, and the summary says up to where."""
        self.makeEngineChain()
        audited = self.good()
        (chain,) = audited.chains
        self.assertTrue(chain.hasEngine)
        self.assertEqual(chain.final, 5)
        self.assertIn("final up to block 5", _summary(chain))

    def test_chainWithoutCertificatesIsNotFinal(self) -> None:
        """Without votes the rest is checked, and it is said that nothing shows finality."""
        self.makeEngineChain(keeps=False)
        (chain,) = self.good().chains
        self.assertEqual(chain.final, 0)
        self.assertIn("nothing shows it to be final", _summary(chain))

    def test_laterCertificateMakesEarlierBlocksFinal(self) -> None:
        """Votes for a later block are enough for those before."""
        self.makeEngineChain()
        self.change("UPDATE head SET certificate = x'' WHERE height IN (1, 2, 5)")
        (chain,) = self.good().chains
        self.assertEqual(chain.final, 4)

    def test_newEngineChainIsGood(self) -> None:
        """A chain that has just begun, or had nothing to do yet, is good."""
        self.directory.mkdir(parents=True, mode=0o700)
        chain = EngineChain(self.directory)
        self.good()
        chain.decide()
        chain.close()
        self.good()

    def test_forgedVotesAreFound(self) -> None:
        """Votes that do not hold are found, and so is what others stand for."""
        made = self.makeEngineChain()
        whole = self.path.read_bytes()
        block = made.lights[2]
        few = made.light(block.header, made.genesis.validatorSet, (0, 1))
        other = made.light(made.lights[4].header, made.genesis.validatorSet)
        for data, words in (
            (few.encode(), "two thirds"),
            (made.lights[1].encode(), "it is block 2"),
            (other.encode(), "it is block 5"),
            (block.encode()[:-1], "not a whole one"),
            (bytes(10), "not what an engine"),
        ):
            self.change("UPDATE head SET certificate = ? WHERE height = 2", data)
            self.bad(words)
            self.path.write_bytes(whole)

    def test_certificateWithoutTheChangeIsFound(self) -> None:
        """Votes for a block of the engine that knows of no change are found."""
        made = self.makeEngineChain()
        header = LightBlock.fromJson(
            made.lights[4].toJson()
            | {"header": {**made.lights[4].toJson()["header"], **self.same(made)}}
        ).header
        block = made.light(header, made.genesis.validatorSet)
        self.change("UPDATE head SET certificate = ? WHERE height = 4", block.encode())
        self.bad("other validators for the next block")

    def same(self, made: EngineChain) -> dict[str, str]:
        """As if nothing changed in block 4."""
        return {"next_validators_hash": made.lights[4].toJson()["header"]["validators_hash"]}

    def test_keysMeanNoEngine(self) -> None:
        """A chain without certificates is no engine's where there are keys of nodes."""
        self.makeEngineChain(keeps=False)
        (self.directory / "keys").mkdir()
        self.bad("the data ends early", "chain of group")

    def test_backupKeepsTheBrokersIdentity(self) -> None:
        """A copy has who the broker is, and is as good."""
        self.makeEngineChain()
        target = self.dataDir.parent / "copy"
        done = backUp(self.dataDir, target)
        self.assertEqual(done.findings.noteCount, 0)
        self.good(target)
        for name in BROKER_FILES:
            self.assertEqual((target / "1" / name).read_bytes(), b"x")

    def test_engineChainIsNotImported(self) -> None:
        """A chain that an engine decided comes from the engine, and is not imported."""
        self.makeEngineChain()
        stream = BytesIO()
        exportChain(self.directory, stream)
        stream.seek(0)
        target = Path(self.mktemp())
        target.mkdir()
        self.assertRaises(ImportRefused, importChain, stream, target)
