"""
The verifier of the documentation that runs on Node.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "verify.mjs"

_JUDGE = """
import { readFileSync } from "node:fs";
const { verify } = await import(process.env.EXAMPLE);
const vectors = JSON.parse(readFileSync(0, "utf8"));
const judge = ({ proof, checkpoint }) => {
  try {
    verify(Buffer.from(JSON.stringify(proof)), checkpoint ?? vectors.chain);
    return "";
  } catch (error) {
    // A bug is not a judgement.
    return error instanceof TypeError ? `BUG: ${error.stack}` : error.message;
  }
};
const { events, topics, trusting, badEvents, badTopics } = vectors;
const good = [...events, ...topics, ...trusting.filter(({ why }) => !why)];
// The example trusts a checkpoint or a chain, not both.
const bad = [...badEvents, ...badTopics, ...trusting.filter(({ why, chain }) => why && !chain)];
const judged = (vectors) => vectors.map((each) => [each.name ?? each.why, judge(each)]);
console.log(JSON.stringify([judged(good), judged(bad)]));
"""


class NodeTests(SynchronousTestCase):
    """
    C{docs/examples/verify.mjs}.
    """

    def node(self, *arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
        """What Node answers."""
        node = shutil.which("node")
        if node is None:
            raise SkipTest("node is not installed")
        return subprocess.run(
            [node, *arguments], capture_output=True, text=True, timeout=60, **keywords
        )

    def test_vectorsAreJudged(self) -> None:
        """It takes every good vector and refuses every bad one."""
        text = (DOCS / "vectors" / "proofs.json").read_text("ascii")
        done = self.node(
            "--input-type=module", "-e", _JUDGE, input=text, env={"EXAMPLE": EXAMPLE.as_uri()}
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        good, bad = json.loads(done.stdout)
        self.assertEqual((len(good), len(bad)), (18, 79))
        for name, said in good:
            self.assertEqual(said, "", name)
        for why, said in bad:
            self.assertTrue(said, why)
            self.assertNotIn("BUG", said)

    def test_scriptJudgesProofs(self) -> None:
        """As a script it says what came of it."""
        vectors = json.loads((DOCS / "vectors" / "proofs.json").read_text("ascii"))
        path = Path(self.mktemp())
        path.write_text(json.dumps(vectors["events"][0]["proof"]), "ascii")
        for chain, code, word in ((vectors["chain"], 0, "PROVED: "), ("00" * 32, 1, "NOT PROVED")):
            done = self.node(str(EXAMPLE), str(path), chain)
            self.assertEqual(done.returncode, code)
            self.assertTrue(done.stdout.startswith(word))
