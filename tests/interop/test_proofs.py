"""
The verifiers of the documentation that run on Node and Go.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import ProofInvalid, verifyProof
from tests import examples
from tests.needed import neededProgram
from tests.proofs.authored import authored
from tests.proofs.mutations import mutations, randomlyChanged
from tests.waiting import TIMEOUT

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
VECTORS: Mapping[str, Any] = json.loads((DOCS / "vectors" / "proofs.json").read_text("ascii"))
MUTATIONS = examples(2000)

Case = tuple[str, bytes, str]
"""The name of a proof, the proof, and what is trusted."""


def cases(*members: str) -> Iterator[Case]:
    """Vectors, the newer ones too, of members that have one or both."""
    for vectors in (VECTORS, VECTORS["format3"], VECTORS["format4"], VECTORS["utf8"]):
        for member in members:
            for vector in vectors.get(member, ()):
                trusted = vector.get("checkpoint") or vectors["chain"]
                name = vector.get("name") or vector["why"]
                yield name, json.dumps(vector["proof"]).encode("ascii"), trusted


def trusting(*, good: bool) -> Iterator[Case]:
    """Event proofs with a trusted checkpoint. The examples trust one thing at a time."""
    for vector in VECTORS["trusting"]:
        if good is ("why" not in vector) and (good or vector["chain"] is None):
            proof = json.dumps(vector["proof"]).encode("ascii")
            yield vector.get("name") or vector["why"], proof, vector["checkpoint"]


def mutated() -> Iterator[Case]:
    """Random changes of proofs of signed events."""
    made, seed = authored(), Random(16)
    sources = [data for data in made.events.values() if "author" in json.loads(data)["event"]]
    for _ in range(MUTATIONS):
        changed = randomlyChanged(seed.choice(sources), seed)
        # The Go example reads one proof from each line.
        if b"\n" not in changed:
            yield changed.decode("utf-8", "replace"), changed, made.genesis.chain.hex()


def judgedChanges() -> Iterator[tuple[Case, bool]]:
    """Changes of members of some proofs, and whether the package takes the proof then."""
    made, seed = authored(), Random(17)
    for data in (made.events["all"], made.events["key"], made.erased["all"]):
        for what, changed in seed.sample(list(mutations(json.loads(data))), 700):
            text = json.dumps(changed).encode("ascii")
            try:
                verifyProof(text, chain=made.genesis.chain)
                isGood = True
            except ProofInvalid:
                isGood = False
            yield (what, text, made.genesis.chain.hex()), isGood


def written() -> Iterator[tuple[Case, bool]]:
    """Proofs that are written in other ways, and whether that is still a proof."""
    [(_, proof, chain), *_] = cases("events")
    index = b'"index": %d' % json.loads(proof)["index"]
    for isGood, text in (
        (True, b'{"jsonrpc": "2.0", "id": 1, "result": %b}' % proof),
        (True, b" \r\t" + proof + b" "),
        (False, b'{"jsonrpc": "2.0", "id": 1, "error": %b}' % proof.replace(b"event", b"other")),
        (False, b'{"jsonrpc": "2.0", "id": 1, "result": null}'),
        (False, b'{"jsonrpc": "2.0", "id": 1}'),
        (False, b'{"result": %b}' % proof),
        (False, proof.replace(index, index + b".0")),
        (False, proof.replace(index, index + b"e0")),
        (False, proof.replace(index, index + b"E+0")),
        (False, proof.replace(index, index + b", " + index)),
        (False, proof.replace(index, index + b', "ind\\u0065x": 9')),
    ):
        yield (text.decode(), text, chain), isGood


class JudgeTestCase(SynchronousTestCase):
    """
    Compares what an example says of proofs with what is known of them.
    """

    def judge(self, proofs: Sequence[Case]) -> Sequence[str]:
        """What the example says of each: nothing, or why it is refused."""
        raise NotImplementedError

    def allAreAccepted(self, proofs: Sequence[Case]) -> None:
        """The example takes all of these."""
        for (name, _, _), said in zip(proofs, self.judge(proofs), strict=True):
            self.assertEqual(said, "", name)

    def allAreRefused(self, proofs: Sequence[Case]) -> None:
        """The example takes none of these, and says why."""
        for (name, _, _), said in zip(proofs, self.judge(proofs), strict=True):
            self.assertTrue(said, name)
            self.assertNotIn("BUG", said, name)

    def checkChanges(self) -> None:
        """The example takes what the package takes."""
        changes = [*judgedChanges()]
        self.allAreAccepted([case for case, isGood in changes if isGood])
        self.allAreRefused([case for case, isGood in changes if not isGood])

    def checkWritten(self) -> None:
        """The example takes a response of JSON-RPC, and no number or member in two ways."""
        texts = [*written()]
        self.allAreAccepted([case for case, isGood in texts if isGood])
        self.allAreRefused([case for case, isGood in texts if not isGood])
        for (_, proof, chain), isGood in texts:
            if isGood:
                verifyProof(proof, chain=bytes.fromhex(chain))
            else:
                with self.assertRaises(ProofInvalid):
                    verifyProof(proof, chain=bytes.fromhex(chain))

    def checkScript(self, *command: str) -> None:
        """As a script the example says what came of it."""
        path = Path(self.mktemp())
        [(_, proof, chain), *_] = cases("events")
        path.write_bytes(proof)
        for trusted, code, word in ((chain, 0, "PROVED: "), ("00" * 32, 1, "NOT PROVED")):
            done = subprocess.run(
                [*command, str(path), trusted], capture_output=True, text=True, timeout=TIMEOUT
            )
            self.assertEqual(done.returncode, code)
            self.assertTrue(done.stdout.startswith(word))
        done = subprocess.run(
            [*command, str(path)], capture_output=True, text=True, timeout=TIMEOUT
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout + done.stderr, r"^verify\S* PROOF.json TRUSTED\n$")


_JUDGE = """
import { readFileSync } from "node:fs";
const { verify, verifyConsistency } = await import(process.env.EXAMPLE);
const said = [];
for (const [proof, ...trusted] of JSON.parse(readFileSync(0, "utf8"))) {
  const check = trusted.length === 2 ? verifyConsistency : verify;
  try {
    await check(Buffer.from(proof, "base64"), ...trusted);
    said.push("");
  } catch (error) {
    // A bug is not a judgement.
    said.push(error instanceof TypeError && error.code !== "ERR_ENCODING_INVALID_ENCODED_DATA"
      ? `BUG: ${error.stack}` : error.message);
  }
}
console.log(JSON.stringify(said));
"""


class NodeTests(JudgeTestCase):
    """
    C{docs/examples/verify.mjs}.
    """

    def setUp(self) -> None:
        self.node = neededProgram("node")

    def judge(self, proofs: Sequence[Case]) -> Sequence[str]:
        """See L{JudgeTestCase.judge}."""
        return self.judgeAll([(b64encode(proof).decode(), kept) for _, proof, kept in proofs])

    def judgeAll(self, calls: Sequence[Sequence[str]]) -> Sequence[str]:
        """What the example says of each proof, in Base64, with what is trusted."""
        done = subprocess.run(
            [self.node, "--input-type=module", "-e", _JUDGE],
            input=json.dumps(calls),
            env={"EXAMPLE": (EXAMPLES / "verify.mjs").as_uri()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said: Sequence[str] = json.loads(done.stdout)
        return said

    def test_vectorsAreJudged(self) -> None:
        """It takes every good vector and refuses every bad one."""
        good = [*cases("events", "topics"), *trusting(good=True)]
        bad = [*cases("badEvents", "badTopics"), *trusting(good=False)]
        self.assertEqual((len(good), len(bad)), (18 + 25 + 10 + 3, 79 + 61 + 19 + 5))
        self.allAreAccepted(good)
        self.allAreRefused(bad)

    def test_consistencyIsJudged(self) -> None:
        """It takes every good consistency proof and refuses every bad one."""
        for member, isGood in (("growth", True), ("badGrowth", False)):
            vectors = VECTORS[member]
            said = self.judgeAll(
                [
                    (
                        b64encode(json.dumps(each["proof"]).encode()).decode(),
                        *(each["older"], each["newer"]),
                    )
                    for each in vectors
                ]
            )
            self.assertEqual([not each for each in said], [isGood] * len(vectors), said)
            self.assertNotIn("BUG", " ".join(said))

    def test_mutationsAreRefused(self) -> None:
        """It refuses random changes of proofs of signed events."""
        self.allAreRefused([*mutated()])

    def test_changesAreJudgedAlike(self) -> None:
        """It takes and refuses the same changes of members as the package."""
        self.checkChanges()

    def test_oneWayOfReading(self) -> None:
        """It takes a response of JSON-RPC, and nothing that can be read in two ways."""
        self.checkWritten()

    def test_scriptJudgesProofs(self) -> None:
        """As a script it says what came of it."""
        self.checkScript(self.node, str(EXAMPLES / "verify.mjs"))


class GoTests(JudgeTestCase):
    """
    C{docs/examples/verify-go}.
    """

    def setUp(self) -> None:
        self.program = str(Path(self.mktemp()).absolute())
        subprocess.run(
            [neededProgram("go"), "build", "-o", self.program, "."],
            cwd=EXAMPLES / "verify-go",
            check=True,
            timeout=TIMEOUT,
        )

    def judge(self, proofs: Sequence[Case]) -> Sequence[str]:
        """See L{JudgeTestCase.judge}."""
        lines = b"".join(b"%b %b\n" % (kept.encode(), proof) for _, proof, kept in proofs)
        done = subprocess.run([self.program], input=lines, capture_output=True, timeout=TIMEOUT)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        said = done.stdout.decode("utf-8").splitlines()
        return ["" if each.startswith("PROVED: {") else each for each in said]

    def test_vectorsAreJudged(self) -> None:
        """It takes every good vector of events and refuses every bad one."""
        good = [*cases("events"), *trusting(good=True)]
        bad = [*cases("badEvents"), *trusting(good=False)]
        self.assertEqual((len(good), len(bad)), (16 + 23 + 10 + 2, 64 + 53 + 19 + 5))
        self.allAreAccepted(good)
        self.allAreRefused(bad)

    def test_mutationsAreRefused(self) -> None:
        """It refuses random changes of proofs of signed events."""
        self.allAreRefused([*mutated()])

    def test_changesAreJudgedAlike(self) -> None:
        """It takes and refuses the same changes of members as the package."""
        self.checkChanges()

    def test_halvesOfSurrogatePairsAreRefused(self) -> None:
        """A text that no UTF-8 stands for is refused, and a whole pair is not."""
        made = authored()
        chain, proof = made.genesis.chain.hex(), made.events["no author"]
        pair = next(data for name, data, _ in cases("events") if b"\\ud83d\\ude00" in data)
        self.assertEqual(self.judge([("", pair, VECTORS["chain"])]), [""])
        for text in (b"\\ud83d", b"\\ude00", b"\\ud83dx\\ude00", b"\\ude00\\ud83d", b"\\ud83d\\n"):
            changed = proof.replace(b'"plain"', b'"%b"' % text)
            self.assertIn("surrogate", self.judge([("", changed, chain)])[0])

    def test_oneWayOfReading(self) -> None:
        """It takes a response of JSON-RPC, and nothing that can be read in two ways."""
        self.checkWritten()

    def test_scriptJudgesProofs(self) -> None:
        """As a program it says what came of it."""
        self.checkScript(self.program)
