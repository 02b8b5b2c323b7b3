"""
Tests for C{svcbroker verify --policy}.
"""

from __future__ import annotations

import json
from pathlib import Path

from attrs import evolve

from svcbroker.proofs import Checkpoint
from svcbroker.proofs.tlog import LogProof, WitnessKey
from tests.proofs.tlog.support import MemoryLog

from .test_verify import ProofFileTestCase

TIME = 1_800_000_000
EXECUTING = WitnessKey("x.example/executed", b"x" * 32)
KEYS = [WitnessKey(f"{name}.example", name.encode() * 32) for name in "abc"]


class PolicyTests(ProofFileTestCase):
    """
    The proof of a logged event, and the policy of a verifier.
    """

    def setUp(self) -> None:
        super().setUp()
        data = self.made.events["first block with events"]
        self.event = json.loads(data)
        height, hash = self.event["block"]["header"]["height"], self.hash()
        log = MemoryLog(300)
        log.use([*log.entries[:height], hash, *log.entries[height + 1 :]])
        self.log = log
        proof = log.proof(height, 290, (KEYS[0], TIME), (KEYS[1], TIME + 60))
        self.data = type(proof)(
            index=proof.index, path=proof.path, checkpoint=proof.checkpoint, extra=data
        ).encode()
        self.path = self.save("event.tlog-proof", self.data)

    def hash(self) -> bytes:
        """The hash of the header of the event's block."""
        return Checkpoint.parse(
            str(self.made.checkpoints[self.event["block"]["header"]["height"]])
        ).hash

    def policy(self, quorum: str, *others: str) -> str:
        """The path of a policy of three witnesses."""
        lines = [f"log {self.log.key.verifier.text}"]
        lines += [
            f"witness {name} {key.verifier.text}" for name, key in zip("abc", KEYS, strict=True)
        ]
        lines += ["group two 2 a b c", "group all all two", *others, f"quorum {quorum}", ""]
        return self.save("policy", "\n".join(lines).encode())

    def test_witnessedEventIsDescribed(self) -> None:
        """The event, the log, and by when each witness has seen it."""
        policy = self.policy("two")
        words = " ".join(self.good("verify", "--policy", policy, self.path).split())
        for each in (
            "PROVED: it is in a log that the policy accepts.",
            f"event {self.event['event']['eventId']}, the topic's event number",
            "log broker.example/log checkpoint of size 290, root",
            "cosigned by 2 of the policy's witnesses",
            "seen by a not later than 2027-01-15 08:00:01.000 UTC",
            "seen by b not later than 2027-01-15 08:01:01.000 UTC",
            f"trusted the policy in {policy}",
        ):
            self.assertIn(each, words)
        self.assertNotIn("no other history", words)

    def test_plainWitnessesHaveExecutedNothing(self) -> None:
        """That is said, in one sentence; a witness that executes is named."""
        words = " ".join(self.good("verify", "--policy", self.policy("two"), self.path).split())
        self.assertIn(
            "executed by nobody: these witnesses have seen that the log grows, and none of them "
            "has executed it",
            words,
        )
        found = LogProof.decode(self.data)
        cosignature = EXECUTING.cosign(found.checkpoint.text, TIME)
        path = self.save(
            "executed", evolve(found, checkpoint=found.checkpoint.signedBy(cosignature)).encode()
        )
        key = EXECUTING.verifier.text
        other = WitnessKey("y.example/executed", b"y" * 32).verifier.text
        policy = self.policy("two", f"witness x {key}", f"witness y {other}")
        words = " ".join(self.good("verify", "--policy", policy, path).split())
        self.assertIn("executed by 1 of 2: x", words)
        self.assertNotIn("nobody", words)
        found = json.loads(self.good("verify", "--policy", policy, path, "--json"))
        self.assertEqual(found["executedBy"], ["x"])

    def test_quorumsWithoutCommonWitnessAreNamed(self) -> None:
        """Quorums of which two may have seen two histories are told."""
        for quorum, lines, text in (
            ("one", ["group one any a b c"], "the quorum one is reached by a, and by b,"),
            ("two", [], ""),
            ("a", [], ""),
        ):
            policy = self.policy(quorum, *lines)
            if lines:
                policy = self.save(
                    "policy",
                    Path(policy)
                    .read_bytes()
                    .replace(b"group two 2 a b c\n", b"")
                    .replace(b"group all all two\n", b""),
                )
            found = json.loads(self.good("verify", "--policy", policy, self.path, "--json"))
            words = self.good("verify", "--policy", policy, self.path)
            self.assertEqual(found["quorumWarning"][: len(text)], text)
            self.assertEqual("need not have seen" in words, bool(text))

    def test_jsonHasTheWitnesses(self) -> None:
        """For programs, with times in milliseconds."""
        found = json.loads(self.good("verify", "--policy", self.policy("a"), self.path, "--json"))
        self.assertEqual(
            found["witnesses"],
            [
                {"name": "a", "notLaterThan": (TIME + 1) * 1000},
                {"name": "b", "notLaterThan": (TIME + 61) * 1000},
            ],
        )
        log = found["log"]
        self.assertEqual((log["origin"], log["size"]), ("broker.example/log", 290))
        self.assertEqual((found["proved"], found["notProved"]), (True, []))

    def test_quorumThatIsNotReachedIsNotProved(self) -> None:
        """With exit code 1, as for other proofs; and so is what is no proof."""
        code, output, _ = self.run_("verify", "--policy", self.policy("c"), self.path)
        self.assertEqual((code, output[:11]), (1, "NOT PROVED:"))
        self.assertIn("the quorum c is not reached: cosigned by a, b", output)
        for data in (b"", self.data[:-80], self.data.replace(b"index 2", b"index 3")):
            path = self.save("changed", data)
            code, output, _ = self.run_("verify", "--policy", self.policy("two"), path)
            self.assertEqual((code, output[:11]), (1, "NOT PROVED:"), data)

    def test_policyWithoutWitnessesLeavesForksOpen(self) -> None:
        """That is said, as for the chain of one operator."""
        path = self.save("bare", b"log %b\nquorum none\n" % self.log.key.verifier.text.encode())
        words = " ".join(self.good("verify", "--policy", path, self.path).split())
        self.assertIn("nothing here shows that there is no other history", words)

    def test_wrongUsageOfPolicies(self) -> None:
        """A policy is given alone, and is one."""
        for arguments in (
            ("--policy", self.policy("a"), "--genesis", self.genesis),
            ("--policy", self.policy("nobody")),
            ("--policy", str(self.directory / "absent")),
        ):
            self.refused("verify", self.path, *arguments)
