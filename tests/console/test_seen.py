"""
What the page's calls name of the events that it has seen.
"""

from __future__ import annotations

import subprocess

from twisted.python.filepath import FilePath
from twisted.trial.unittest import SynchronousTestCase

import svcbroker.console
from tests.waiting import TIMEOUT

from ..needed import neededProgram

_SCRIPT = """
import { pathToFileURL } from "node:url";

const answers = [];
globalThis.fetch = async (url) => {
  console.log(String(url).replace(/^.*rest/, "rest"));
  return { status: 200, ok: true, json: async () => answers.shift() };
};
const { ask, act } = await import(pathToFileURL(process.argv[1]));
const given = { topic: "t" };
for (const [call, answer, group] of [
  [ask, true],
  [act, { topic: "t", eventId: "00000000-1-7", status: "SUCCESS" }],
  [ask, true],
  [ask, true, "2"],
  [ask, { events: [{ eventId: "00000000-2-9" }, { eventId: "00000000-3-8" }] }],
  [ask, { code: 100304, message: "the log was put back" }],
  [ask, true],
]) {
  answers.push(answer);
  if (answer.code) answers.push(true);
  const path = call === act ? "rest/publish" : answer.events ? "rest/events" : "rest/exist";
  await call(path, { ...given, groupId: group });
}
"""


class SeenTests(SynchronousTestCase):
    def test_readsNameTheNewestEventOfTheirGroup(self) -> None:
        """Once more without it where it is not there any more."""
        page = FilePath(svcbroker.console.__file__).sibling("page").child("api.js")
        script = FilePath(self.mktemp())
        script.setContent(page.getContent())
        module = script.siblingExtension(".mjs")
        script.moveTo(module)
        node = [neededProgram("node"), "--input-type=module", "-e", _SCRIPT, module.path]
        done = subprocess.run(node, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout.split(),
            [
                "rest/exist?topic=t",
                "rest/publish",
                "rest/exist?topic=t&after=00000000-1-7",
                "rest/exist?topic=t&groupId=2",
                "rest/events?topic=t&after=00000000-1-7",
                "rest/exist?topic=t&after=00000000-2-9",
                "rest/exist?topic=t",
                "rest/exist?topic=t",
            ],
        )
