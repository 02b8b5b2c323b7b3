"""
C{svcbroker net engine} without an engine: join requests, the genesis, attestations and changes.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import msgspec

from svcbroker.chain import ValidatorSet, verifySignature
from svcbroker.ledgers.cometbft._batch import Attestation, attestationPayload
from svcbroker.ledgers.cometbft._home import decodeGenesis
from svcbroker.ledgers.cometbft.enginecommands.networkfiles import proposeChange, readChange
from svcbroker.ledgers.cometbft.provisioning import ourGenesis, readJoinRequest
from svcbroker.proofs.cometbft import engineOrder
from tests.commands.support import CommandTestCase
from tests.directories import shortDirectory


class EngineTests(CommandTestCase):
    """
    Four organisations on one disk.
    """

    def setUp(self) -> None:
        self.root = shortDirectory(self)
        self.names = ["acme", "bolt", "coil", "dune"]
        for name in self.names:
            self.init(name)

    def ask(self, *words: object, code: int = 0) -> str:
        """What a command writes; where it fails, its complaint."""
        status, output, errors = self.run_("engine", *words)
        self.assertEqual(status, code, errors)
        return errors if code else output

    def init(self, name: str, chain: str = "consortium", *more: str) -> None:
        """Make the keys and the join request of an organisation."""
        data = f"--data-dir={self.root / name}"
        p2p = f"--p2p={name}.example:26656"
        self.ask("init", f"--chain={chain}", f"--name={name}", p2p, data, *more, self.home(name))

    def home(self, name: str) -> Path:
        """The home of an organisation's engine."""
        return self.root / name / "engine"

    def joinRequest(self, name: str) -> Path:
        """The join request of an organisation's node."""
        return self.home(name) / "join-request.json"

    def assembled(self) -> bytes:
        """Found the network, and give its genesis."""
        made = []
        for number, name in enumerate(self.names):
            names = self.names[number:] + self.names[:number]
            requests = [self.joinRequest(each) for each in names]
            self.ask("genesis", self.home(name), *requests)
            made.append((self.home(name) / "config" / "genesis.json").read_bytes())
        self.assertEqual(len(set(made)), 1)
        return made[0]

    def test_genesisIsTheSameForAll(self) -> None:
        """All have the same genesis, and are connected to all others, not to themselves."""
        genesis = decodeGenesis(self.assembled())
        keys = {readJoinRequest(self.joinRequest(name).read_bytes()).key for name in self.names}
        self.assertEqual({member.key for member in genesis.members}, keys)
        config = (self.home("acme") / "config" / "config.toml").read_text()
        for name in self.names:
            self.assertEqual(f"@{name}.example:26656" in config, name != "acme")
        self.assertIn('external_address = "acme.example:26656"', config)
        self.assertIn('laddr = "tcp://0.0.0.0:26656"', config)
        # The same for programs.
        value = json.loads(self.ask("show", "--json", self.joinRequest("bolt")))
        self.assertEqual(value, json.loads(self.joinRequest("bolt").read_text()))
        # Once is enough.
        line = self.ask("genesis", self.home("acme"), self.joinRequest("bolt"), code=2)
        self.assertIn("is the home of an engine already", line)
        line = self.ask(
            *("init", "--chain=x", "--name=y", "--p2p=z:1", f"--data-dir={self.root}"),
            self.home("acme"),
            code=2,
        )
        self.assertIn("of a network already", line)

    def test_genesisIsToldAsJson(self) -> None:
        """What the organisations compare: the same for all but the mark of the node."""
        told = []
        for name in self.names:
            requests = [self.joinRequest(each) for each in self.names]
            told.append(json.loads(self.ask("genesis", "--json", self.home(name), *requests)))
        marked = [
            [each["name"] for each in one["validators"] if each.pop("isThisNode")] for one in told
        ]
        self.assertEqual(marked, [[name] for name in self.names])
        self.assertEqual(told, told[:1] * 4)
        data = (self.home("acme") / "config" / "genesis.json").read_bytes()
        self.assertEqual(told[0]["genesis"], sha256(data).hexdigest())
        self.assertEqual(told[0]["chainId"], ourGenesis(decodeGenesis(data)).chain.hex())

    def test_changedOrForeignRequestsAreRefused(self) -> None:
        """Join requests that were changed, or are for another chain."""
        value = json.loads(self.joinRequest("bolt").read_text())
        changed = self.root / "changed.json"
        changed.write_text(json.dumps(value | {"p2p": "evil.example:26656"}))
        line = self.ask("genesis", self.home("acme"), changed, code=1)
        self.assertIn("was changed after it was made", line)
        self.init("else", chain="other")
        line = self.ask("genesis", self.home("acme"), self.joinRequest("else"), code=1)
        self.assertIn("several chains", line)
        self.assertFalse((self.home("acme") / "config" / "genesis.json").exists())

    def test_attestationIsSignedByValidator(self) -> None:
        """The attestation is the validator's signature over this broker on this chain."""
        chain = ourGenesis(decodeGenesis(self.assembled())).chain
        self.init("new")
        request = readJoinRequest(self.joinRequest("new").read_bytes())
        for who in (self.joinRequest("new"), request.broker):
            output = self.ask("attest", self.home("acme"), who)
            attestation = msgspec.json.decode(output.encode(), type=Attestation)
            self.assertEqual(attestation.broker, request.broker)
            payload = attestationPayload(chain, bytes.fromhex(request.broker))
            key = bytes.fromhex(attestation.validator)
            signature = bytes.fromhex(attestation.signature)
            self.assertTrue(verifySignature(key, payload, signature))
        self.init("else", chain="other")
        line = self.ask("attest", self.home("acme"), self.joinRequest("else"), code=1)
        self.assertIn("the join request is for the chain other", line)
        line = self.ask("attest", self.home("acme"), "00" * 32, code=2)
        self.assertIn("not a usable Ed25519 key", line)
        line = self.ask("attest", self.home("new"), request.broker, code=2)
        self.assertIn("has no genesis yet", line)

    def test_joiningNodeConnectsToGivenNodes(self) -> None:
        """A joining node has the same genesis, and connects to the nodes whose requests it has."""
        data = self.assembled()
        genesis = self.home("acme") / "config" / "genesis.json"
        common = ("--name=new", "--p2p=new.example:26656", f"--data-dir={self.root / 'new'}")
        requests = [self.joinRequest("bolt"), self.joinRequest("coil")]
        trust = "7:" + "ab" * 32
        sync = ("--state-sync=bolt.example:1", "--state-sync=coil.example:2", f"--trust={trust}")
        self.ask("join", f"--genesis={genesis}", *common, *sync, self.home("new"), *requests)
        self.assertEqual((self.home("new") / "config" / "genesis.json").read_bytes(), data)
        config = (self.home("new") / "config" / "config.toml").read_text()
        self.assertIn("@bolt.example:26656", config)
        self.assertIn("trust_height = 7", config)
        self.assertEqual(readJoinRequest(self.joinRequest("new").read_bytes()).chain, "consortium")
        for arguments, words in (
            (("--name=x",), "--genesis is needed"),
            ((f"--genesis={genesis}", *common, sync[0]), "two engines"),
            ((f"--genesis={genesis}", *common, "--trust=7"), "HEIGHT:HASH"),
        ):
            line = self.ask("join", *arguments, self.root / "x", *requests, code=2)
            self.assertIn(words, line)

    def test_changeIsSignedByEachNode(self) -> None:
        """A change is signed by each with its own key, and by nobody else."""
        founded = ourGenesis(decodeGenesis(self.assembled()))
        self.init("new")
        self.ask("show", self.joinRequest("new"))
        key = readJoinRequest(self.joinRequest("new").read_bytes()).key
        current = ValidatorSet(0, founded.validators)
        document = proposeChange(founded.chain, current, add=[key], remove=[], order=engineOrder)
        path = self.root / "change.json"
        path.write_bytes(document.encode())
        line = self.ask("sign", self.home("new"), path, code=2)
        self.assertIn("has no genesis yet", line)
        for name in self.names:
            output = self.ask("sign", self.home(name), path)
        self.assertIn("of the new set 1 must still accept", output)
        told = json.loads(self.ask("show", "--json", path))
        self.assertEqual((told["isComplete"], told["missing"]), (False, [key.hex()]))
        self.assertEqual(
            [(each["key"], each["isAdded"], each["hasSigned"]) for each in told["validators"]],
            [*((each.hex(), False, True) for each in current.keys), (key.hex(), True, False)],
        )
        # Again changes nothing.
        before = path.read_bytes()
        self.ask("sign", self.home("acme"), path)
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(readChange(before).missing, [key])
        line = self.ask("submit", self.root, path, code=1)
        self.assertIn("it is not complete", line)

        elsewhere = proposeChange(bytes(32), current, add=[key], remove=[], order=engineOrder)
        other = self.root / "elsewhere.json"
        other.write_bytes(elsewhere.encode())
        self.assertIn(
            "it is a change of chain 00", self.ask("sign", self.home("acme"), other, code=1)
        )
        line = self.ask("merge", f"--output={self.root / 'm'}", path, other, code=1)
        self.assertIn("different changes", line)
        path.write_bytes(before.replace(key.hex().encode(), bytes(32).hex().encode()))
        for arguments in (("sign", self.home("acme"), path), ("show", path)):
            self.assertIn("does not hold", self.ask(*arguments, code=1))

    def test_timeoutsAreTheSameForAll(self) -> None:
        """Timeouts are part of the join request, and those of all nodes agree."""
        self.init("slow", "consortium", "--timeouts=wan")
        slow = self.joinRequest("slow")
        line = self.ask("genesis", self.home("acme"), slow, code=1)
        self.assertIn("several timeouts: lan, wan", line)
        self.ask("genesis", self.home("slow"))
        config = (self.home("slow") / "config" / "config.toml").read_text()
        self.assertIn('timeout_propose = "2000ms"', config)
        line = self.ask("init", "--chain=c", "--name=n", "--p2p=a:1", "--data-dir=d",
                         "--timeouts=x", self.home("other"), code=2)  # fmt: skip
        self.assertIn("--timeouts: is not lan or wan", line)

    def test_missingCommandPrintsHelp(self) -> None:
        """Without a command there is help."""
        self.assertIn("a command is needed", self.ask(code=2))
        self.assertIn("--output is needed", self.ask("merge", "x", code=2))
        line = self.ask("propose", "--output=x", "home", "data", code=2)
        self.assertIn("--add or --remove is needed", line)
