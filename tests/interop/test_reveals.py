"""
Tests for reveals and closed contents with the program of the pages, which runs on Node.
"""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.needed import neededProgram
from tests.proofs.test_reveals import VECTORS
from tests.waiting import TIMEOUT
from tools.vectors.closed import DEFAULT

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "reveal.mjs"

JUDGE = """
import { readFileSync } from "node:fs";
const { findKey, openContent, verifyReveal } = await import(process.env.EXAMPLE);
const vectors = JSON.parse(readFileSync(0, "utf8"));
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const said = [];
const judge = async (work) => {
  try {
    said.push({ opened: Buffer.from(await work()).toString("base64") });
  } catch (error) {
    said.push({ refused: error instanceof TypeError ? `BUG: ${error.stack}` : error.message });
  }
};
for (const { closed, extensions } of [...vectors.contents, ...vectors.badContents]) {
  await judge(async () => {
    const key = await findKey(bytes(closed), vectors.identity);
    if (!key) throw new Error("no identity here opens it");
    return openContent(bytes(closed), extensions, key);
  });
}
for (const { reveal } of [...vectors.reveals.good, ...vectors.reveals.bad]) {
  const data = Buffer.from(JSON.stringify(reveal));
  await judge(async () => (await verifyReveal(data, vectors.reveals.chain)).content);
}
console.log(JSON.stringify(said));
"""


class PageTests(SynchronousTestCase):
    """
    C{docs/examples/reveal.mjs}.
    """

    def test_pagesProgramJudgesAlike(self) -> None:
        """It opens every good vector, and refuses every bad one."""
        done = subprocess.run(
            [neededProgram("node"), "--input-type=module", "-e", JUDGE],
            input=DEFAULT.read_text("ascii"),
            env={"EXAMPLE": SCRIPT.as_uri()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said: list[Any] = json.loads(done.stdout)
        good = [each["opened"] for each in VECTORS["contents"]]
        bad = len(VECTORS["badContents"])
        self.assertEqual([each.get("opened") for each in said[: len(good)]], good)
        self.assertEqual([*map(list, said[len(good) : len(good) + bad])], [["refused"]] * bad)
        shown = [b64decode(each["opened"]) for each in said[len(good) + bad :] if "opened" in each]
        self.assertEqual(shown, [each["opened"].encode() for each in VECTORS["reveals"]["good"]])
        self.assertEqual(len(said), len(good) + bad + 2 + len(VECTORS["reveals"]["bad"]))
        self.assertNotIn("BUG", done.stdout)


class ReferenceTests(SynchronousTestCase):
    """
    A verifier that opens contents by the reference implementation of age, in Go.
    """

    def build(self, source: Path) -> str:
        """Build a program of Go."""
        program = str(Path(self.mktemp()).absolute())
        subprocess.run(
            [neededProgram("go"), "build", "-o", program, "."],
            cwd=source,
            check=True,
            timeout=TIMEOUT,
        )
        return program

    def test_referenceJudgesAlike(self) -> None:
        """
        It opens the good reveals, and refuses those of another event, with a changed content or
        salt, and all other bad ones.
        """
        verify = self.build(SCRIPT.parent / "verify-go")
        chain = VECTORS["reveals"]["chain"]
        cases = [each["reveal"] for each in VECTORS["reveals"]["good"] + VECTORS["reveals"]["bad"]]
        done = subprocess.run(
            [self.build(Path(__file__).parent / "age-go"), verify],
            input="".join(f"{chain} {json.dumps(each)}\n" for each in cases),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = [line.split(" ", 1) for line in done.stdout.splitlines()]
        good = [each["opened"].encode() for each in VECTORS["reveals"]["good"]]
        self.assertEqual([b64decode(text) for kind, text in said if kind == "OPENED:"], good)
        self.assertEqual(
            [kind for kind, _ in said[len(good) :]], ["REFUSED:"] * len(VECTORS["reveals"]["bad"])
        )
