"""
Tests for C{svcbroker verify}, C{genesis} and C{checkpoint}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from attrs import evolve
from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import verify
from svcbroker.commands.prooftext import eventLines
from svcbroker.commands.terminal import contentText, quoted, timeText
from svcbroker.proofs import GenesisFields, verifyProof
from svcbroker.proofs import _documents as reading
from tests.commands.support import CommandTestCase
from tests.proofs.support import BINARY, proofs
from tests.test_files import makeSpecial
from tests.waiting import TIMEOUT
from tools.vectors.enginechain import EngineChain
from tools.vectors.signedchain import SignedChain


class ProofFileTestCase(CommandTestCase):
    """
    What these tests share.
    """

    def setUp(self) -> None:
        self.made = proofs()
        self.chain = self.made.genesis.chain.hex()
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.genesis = self.save("genesis.json", encode(GenesisFields.of(self.made.genesis)))

    def save(self, name: str, data: bytes) -> str:
        """The path of a new file."""
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def proof(self, name: str = "first block with events") -> str:
        """The path of a proof."""
        return self.save("proof.json", self.made.events[name])


class VerifyTests(ProofFileTestCase):
    """
    Event proofs.
    """

    def test_specialFilesAreNamed(self) -> None:
        """A FIFO, a socket or a device where a file should be: nothing waits for it."""
        proof = self.proof()
        for path, kind in makeSpecial(self.directory / "x").items():
            words = f"svcbroker verify: {path}: it is {kind}, not a file"
            for arguments in (
                (str(path), f"--chain={self.chain}"),
                (proof, f"--genesis={path}"),
                (proof, f"--checkpoint={path}"),
                (proof, f"--policy={path}"),
                (proof, f"--chain={self.chain}", f"--authors={path}"),
            ):
                self.assertEqual(self.refused("verify", *arguments), words, arguments)

    def test_provedEventIsDescribed(self) -> None:
        """What is proved is told: what, where, when, by whom, and what was trusted."""
        output = self.good("verify", self.proof("unicode"), "--genesis", self.genesis)
        words = " ".join(output.split())
        for each in (
            "PROVED: a quorum of this chain's validators has signed it.",
            "event c14cddc0-3-6, the topic's event number 3",
            "topic a/b",
            'content "größer\\x00\\r\\n\U0001f600" (15 bytes, SHA-256 80724b1000d1',
            "extension svc-größe: große \U0001f600",
            "submitted 2023-11-14 22:13:21.375 UTC by the broker's clock",
            f"block {self.made.checkpoints[6]} of 2023-11-14 22:13:21.500 UTC",
            f"chain {self.chain}, group 1",
            "signed by 3 of 4 validators validator 0, key f10b5386db2f9da0",
            "the set had changed once",
            f"trusted the genesis in {self.genesis}",
            "nothing here shows that there is no other history",
        ):
            self.assertIn(each, words)

    def test_everyKindOfTrust(self) -> None:
        """Everything that can be trusted, in each of its forms."""
        tip = max(self.made.checkpoints)
        kept = self.made.checkpoints[tip]
        answer = json.dumps({"checkpoint": str(kept)}).encode()
        response = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "result": json.loads(Path(self.genesis).read_bytes())}
        )
        for trusted in (
            ["--genesis", self.genesis],
            ["--genesis", self.save("response.json", response.encode())],
            ["--chain", self.chain],
            ["--chain", "0x" + self.chain],
            ["--chain", self.chain.upper()],
            ["--checkpoint", str(kept)],
            ["--checkpoint", self.save("kept.txt", f"{kept}\n".encode())],
            ["--checkpoint", self.save("kept.json", answer)],
            ["--chain", self.chain, "--checkpoint", str(kept)],
        ):
            output = self.good("verify", self.proof("with a checkpoint"), *trusted)
            self.assertIn("PROVED", output)
            self.assertIn(f"in the history of block {kept}", output)

    def test_resultAsJson(self) -> None:
        """For programs everything is there, binary content too."""
        name = "binary, after a change of nodes"
        found = json.loads(self.good("verify", self.proof(name), "--chain", self.chain, "--json"))
        proved = verifyProof(self.made.events[name], chain=self.made.genesis.chain)
        self.assertIs(found["proved"], True)
        self.assertEqual(found["block"], str(proved.block))
        self.assertEqual(found["contentBase64"], self.base64(BINARY))
        self.assertEqual([each["node"] for each in found["signers"]], [0, 1, 2])
        self.assertEqual((found["nodes"], found["changes"]), (4, 1))

    def base64(self, data: bytes) -> Any:
        """Standard Base64, as JSON writes bytes."""
        return json.loads(encode(data))

    def test_notProved(self) -> None:
        """A proof that does not hold is told as the result, with code 1."""
        changed = self.save("bad.json", self.made.events["unicode"][:-2])
        for arguments, reason in (
            ([self.proof(), "--chain", "00" * 32], "not the trusted one"),
            ([self.proof(), "--checkpoint", f"3:{'0' * 64}"], "does not lead to"),
            ([changed, "--chain", self.chain], "not a proof"),
            ([self.genesis, "--chain", self.chain], "names no format"),
        ):
            code, output, errors = self.run_("verify", *arguments)
            self.assertEqual((code, errors), (1, ""))
            self.assertTrue(output.startswith("NOT PROVED: "))
            self.assertIn(reason, output)
            code, output, errors = self.run_("verify", *arguments, "--json")
            found = json.loads(output)
            self.assertEqual((code, found["proved"]), (1, False))
            self.assertIn(reason, found["reason"])

    def test_wrongUsageHasCodeTwo(self) -> None:
        """What cannot even be tried is code 2, with a line that says why."""
        proof = self.proof()
        for arguments, words in (
            ([proof], "give what you trust"),
            ([proof, "--chain", "00"], "64 hexadecimal digits"),
            ([proof, "--chain", "00 " * 32], "64 hexadecimal digits"),
            ([proof, "--chain", self.chain, "--genesis", self.genesis], "leave out --chain"),
            ([proof, "--checkpoint", "nosuch"], "neither HEIGHT:HASH nor a file"),
            ([proof, "--checkpoint", proof], "not a checkpoint"),
            ([proof, "--genesis", proof], "not a genesis"),
            ([proof, "--genesis", "nosuch"], "nosuch: No such file"),
            (["nosuch", "--chain", self.chain], "nosuch: No such file"),
            ([proof, *["--checkpoint", f"3:{'0' * 64}"] * 2], "two checkpoints are for"),
            ([proof, *["--checkpoint", f"3:{'0' * 64}"] * 3], "at most two"),
            ([proof, proof, "--chain", self.chain], "usage: svcbroker verify [options] PROOF"),
        ):
            self.assertIn(words, self.refused("verify", *arguments))

    def test_standardInputWithoutReactor(self) -> None:
        """From standard input; and neither a reactor nor anything of a network is imported."""
        code = (
            "import sys; from svcbroker.commands import main; code = main(sys.argv[1:]);"
            "bad = [name for name in sys.modules if name.startswith(('twisted.internet',"
            " 'twisted.web', 'klein', 'treq', 'OpenSSL', 'sqlite3'))];"
            "sys.exit(code or str(bad) if bad else code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "verify", "-", "--chain", self.chain],
            input=self.made.events["unicode"],
            capture_output=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"},
            timeout=TIMEOUT,
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.startswith(b"PROVED"))

    def test_endlessInputIsCutOff(self) -> None:
        """Of what has no end no more is read than a proof may have."""
        for place in (verify, reading):
            self.patch(place, "MAX_PROOF_SIZE", 1000)
        with open("/dev/zero", encoding="utf-8") as endless:
            self.patch(sys, "stdin", endless)
            code, output, _ = self.run_("verify", "-", "--chain", self.chain)
        self.assertEqual(code, 1)
        self.assertIn("never as long as 1001 bytes", output)

    def test_historyIsOpenWithoutCheckpoint(self) -> None:
        """
        On one operator's chain that other histories may exist is told, unless a checkpoint is
        trusted.
        """
        tip = self.made.checkpoints[max(self.made.checkpoints)]
        path, words = self.proof("with a checkpoint"), "no other history"
        self.assertIn(words, self.good("verify", path, "--chain", self.chain))
        found = json.loads(self.good("verify", path, "--chain", self.chain, "--json"))
        self.assertEqual(found["notProved"], ["that there is no other history"])
        self.assertNotIn(
            words, self.good("verify", path, "--chain", self.chain, "--checkpoint", str(tip))
        )
        network = proofs(EngineChain)
        engine = self.save("engine.json", network.events["first block with events"])
        output = self.good("verify", engine, "--chain", network.genesis.chain.hex())
        self.assertNotIn(words, output)
        found = json.loads(
            self.good("verify", engine, "--chain", network.genesis.chain.hex(), "--json")
        )
        self.assertEqual(found["notProved"], [])

    def test_blockBeforeItsEventIsExplained(self) -> None:
        """A block whose time is before that of the event has a word of explanation."""
        data = self.made.events["first block with events"]
        proved = verifyProof(data, chain=self.made.genesis.chain)
        words = "before it was submitted: CometBFT dates a block by the one before it"
        self.assertNotIn(words, "\n".join(eventLines(proved)))
        earlier = evolve(proved, timestamp=proved.submitted - 1)
        self.assertIn(words, "\n".join(eventLines(earlier)))

    def test_proofWithoutSignatures(self) -> None:
        """A proof without signatures holds with the trusted checkpoint only, and says so."""
        tip = self.made.checkpoints[max(self.made.checkpoints)]
        path = self.save("unsigned.json", self.made.unsigned["after two changes"])
        output = self.good("verify", path, "--checkpoint", str(tip))
        self.assertIn("PROVED: it is in the trusted checkpoint's block or history.", output)
        self.assertNotIn("validators accepted", output)
        self.assertNotIn("signed by", output)
        found = json.loads(self.good("verify", path, "--checkpoint", str(tip), "--json"))
        self.assertEqual((found["signed"], found["signers"], found["nodes"]), (None, [], 0))
        code, output, _ = self.run_("verify", path, "--chain", self.chain)
        self.assertEqual(code, 1)
        self.assertIn("it has no signatures", output)


class TopicTests(ProofFileTestCase):
    """
    Topic proofs.
    """

    def setUp(self) -> None:
        super().setUp()
        directory = self.directory / "chain"
        directory.mkdir()
        chain = SignedChain(directory)
        self.addCleanup(chain.close)
        chain.open("t")
        self.ids = [*chain.publish("t", b"one", b"two"), *chain.publish("t", b"three")]
        self.prover = chain.prover
        self.chain = chain.genesis.chain.hex()
        made = chain.prover.certified(chain.prover.topic("t", chain.state))
        self.topic = self.save("topic.json", encode(made))
        self.height = made.block.header.height

    def event(self, number: int) -> str:
        """The path of an event's proof."""
        proof = self.prover.event(self.ids[number], trusted=self.height)
        return self.save(f"{number}.json", encode(proof))

    def test_topicProofIsDescribed(self) -> None:
        """What a topic proof proves."""
        words = " ".join(self.good("verify", self.topic, "--chain", self.chain).split())
        for each in (
            "PROVED: a quorum of this chain's validators has signed it.",
            "topic t, open events exactly 3 up to this block",
            f"block {self.prover.checkpoint(self.height)}",
            "signed by 3 of 4 validators",
            "no other history",
        ):
            self.assertIn(each, words)
        found = json.loads(self.good("verify", self.topic, "--chain", self.chain, "--json"))
        self.assertEqual((found["topic"], found["isOpen"], found["count"]), ("t", True, 3))

    def test_allEventsAreComplete(self) -> None:
        """With the proofs of all events, in files of one or of several, nothing is left out."""
        trusted = ["--checkpoint", str(self.prover.checkpoint(self.height))]
        files = [self.event(number) for number in range(3)]
        lines = self.save("all.jsonl", b"\n".join(Path(each).read_bytes() for each in files))
        pretty = self.save(
            "pretty.json", json.dumps(json.loads(Path(files[2]).read_bytes()), indent=1).encode()
        )
        for given in (files, [lines], [pretty, files[0], files[1]]):
            output = self.good("verify", "--complete", self.topic, *given, *trusted)
            self.assertIn("PROVED: complete: all 3 events of the topic.", output)
            self.assertIn(f'event 2      {self.ids[1]} "two"', output)
        output = self.good("verify", "--complete", self.topic, lines, *trusted, "--json")
        self.assertEqual(json.loads(output)["complete"], [str(each) for each in self.ids])

    def test_missingEventIsTold(self) -> None:
        """Without one of the proofs, or with another proof for the topic's, it is not proved."""
        files = [self.event(0), self.event(2)]
        for arguments, reason in (
            ([self.topic, *files], "1 of the topic's 3 events are missing"),
            ([self.topic], "3 of the topic's 3 events are missing"),
            ([files[0], *files], "this is not a topic proof"),
            ([self.topic, self.topic], "event proof 1: this is not an event proof"),
        ):
            code, output, _ = self.run_("verify", "--complete", *arguments, "--chain", self.chain)
            self.assertEqual(code, 1)
            self.assertIn(reason, output)


class GrowthTests(ProofFileTestCase):
    """
    Consistency proofs.
    """

    def test_consistencyWithBothCheckpoints(self) -> None:
        """With both checkpoints, in any order, or with the genesis as the older one."""
        for data, older, newer in self.made.growth.values():
            path = self.save("growth.json", data)
            for pair in ((older, newer), (newer, older)):
                options = [word for each in pair for word in ("--checkpoint", str(each))]
                output = self.good("verify", path, *options, "--chain", self.chain)
                self.assertIn(
                    "PROVED: between these two checkpoints the log has only grown", output
                )
                self.assertIn(str(older), output)
            if older.height == 0:
                output = self.good(
                    "verify", path, "--genesis", self.genesis, "--checkpoint", str(newer), "--json"
                )
                self.assertEqual(json.loads(output)["older"], str(older))

    def test_consistencyIsRefused(self) -> None:
        """Another checkpoint, another chain, and too few checkpoints."""
        data, older, newer = self.made.growth["5 and 28"]
        path = self.save("growth.json", data)
        pair = ["--checkpoint", str(older), "--checkpoint"]
        for options in (
            [*pair, str(self.made.checkpoints[27])],
            [*pair, str(newer), "--chain", "00" * 32],
            ["--genesis", self.genesis, "--checkpoint", str(newer)],
        ):
            code, output, _ = self.run_("verify", path, *options)
            self.assertEqual((code, output[:10]), (1, "NOT PROVED"))
        for options in (["--chain", self.chain], ["--checkpoint", str(newer)]):
            self.assertIn("about two blocks", self.refused("verify", path, *options))


class ChainTests(ProofFileTestCase):
    """
    C{genesis} and C{checkpoint}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.data = self.directory / "data"
        (self.data / "1").mkdir(parents=True)
        made = SignedChain(self.data / "1")
        self.addCleanup(made.close)
        made.open("t")
        made.publish("t", b"x")
        self.store = made

    def test_genesisAndItsHash(self) -> None:
        """The genesis, or its hash, beside whoever writes the chain."""
        fields = GenesisFields.of(self.store.genesis)
        found = json.loads(self.good("genesis", str(self.data)))
        self.assertEqual(found, json.loads(encode(fields)))
        self.assertEqual(self.good("genesis", str(self.data), "--hash"), f"{fields.chain}\n")
        self.assertEqual(self.good("genesis", str(self.data / "1"), "--hash"), f"{fields.chain}\n")

    def test_checkpointOfHeight(self) -> None:
        """The latest block, or one of a height."""
        for options, height in (([], 2), (["--height", "1"], 1), (["--height=0"], 0)):
            expected = self.store.prover.checkpoint(height)
            found = self.good("checkpoint", str(self.data), *options)
            self.assertEqual(found, f"{expected}\n")
        self.store.decide()
        self.assertTrue(self.good("checkpoint", str(self.data)).startswith("3:"))

    def test_nothingThere(self) -> None:
        """No such group, no such block, nonsense."""
        where = str(self.data)
        self.assertIn("cannot be read", self.refused("genesis", where, "--group", "2"))
        self.assertIn("above the chain", self.refused("checkpoint", where, "--height", "9"))
        self.assertIn("not a height", self.refused("checkpoint", where, "--height", "-1"))
        self.assertIn("usage: svcbroker chain checkpoint", self.refused("checkpoint"))
        (self.data / "1" / "ledger.sqlite").write_bytes(b"x" * 5000)
        self.assertIn("not a ledger", self.refused("genesis", where))


class WordTests(SynchronousTestCase):
    """
    What comes from elsewhere gives no orders to a terminal.
    """

    def test_unprintableTextIsEscaped(self) -> None:
        """Nothing but printable characters, and not too many."""
        self.assertEqual(quoted("größe \U0001f600"), "größe \U0001f600")
        self.assertEqual(quoted("\x1b[2J\r\n\x80\u202e"), "\\x1b[2J\\r\\n\\x80\\u202e")
        self.assertEqual(quoted("x" * 501), "x" * 500 + "...")
        self.assertIn("binary (2 bytes", contentText(b"\xff\xfe"))

    def test_everyNumberIsATime(self) -> None:
        """Any number is a time."""
        self.assertEqual(timeText(1_700_000_000_007), "2023-11-14 22:13:20.007 UTC")
        for odd in (2**63, 2**64 - 1, 10**17):
            self.assertIn(str(odd), timeText(odd))

    def test_topicIsEscaped(self) -> None:
        """A topic may have characters that terminals obey."""
        made = proofs()
        data = made.events["first block with events"]
        proved = evolve(verifyProof(data, chain=made.genesis.chain), topic="a\x7f\x80b")
        self.assertIn("a\\x7f\\x80b", "\n".join(eventLines(proved)))
