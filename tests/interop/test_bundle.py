"""
Bundles in Node and in Chromium: the page that is in them verifies them without a network.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import sideTexts
from svcbroker.proofs.bundle import Bundle, decodeArchive, encodeArchive
from svcbroker.proofs.tlog import Policy
from tests.functional.daemon import DaemonTestCase
from tests.needed import neededProgram
from tests.waiting import TIMEOUT
from tools.vectors.signedchain import publicKeyOf

from ..proofs.bundle.support import (
    CONTENTS,
    bundle,
    bundleOf,
    closedBundle,
    executedBundle,
    mlDsaBundle,
    receiptBundle,
    signedBundle,
)
from ..proofs.bundle.test_bundle import MUTATIONS, mutated
from .chromium import Chromium
from .node import nodeModules

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "verify-log.mjs"
WIDTHS = (390, 1280)


class NodeTests(SynchronousTestCase):
    """
    C{docs/examples/verify-log.mjs}.
    """

    def judge(self, proof: bytes, policy: bytes) -> tuple[int, str]:
        """What it says of a proof."""
        node = neededProgram("node")
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "proof").write_bytes(proof)
        (folder / "policy").write_bytes(policy)
        ended = subprocess.run(
            [node, str(SCRIPT), folder / "proof", folder / "policy"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        self.assertEqual(ended.stderr, "")
        return ended.returncode, ended.stdout

    def test_proofsAreJudged(self) -> None:
        """A proof holds by a policy whose quorum has seen it, and by no other."""
        name, proof = next(iter(bundle().proofs.items()))
        status, said = self.judge(proof, bundle().policy)
        self.assertEqual(status, 0, said)
        self.assertIn("seen by b not later than 2026-09-21T", said)
        self.assertIn(f'PROVED: {{"eventId":"{name}"', said)
        stricter = bundle().policy.replace(b"all 2 a b c", b"all all a b c")
        for wrong, policy in (
            (proof, stricter),
            (proof.replace(b"index ", b"index 1"), bundle().policy),
            (proof, bundle().policy.replace(b"log ", b"# log ")),
        ):
            status, said = self.judge(wrong, policy)
            self.assertEqual((status, said[:12]), (1, "NOT PROVED: "))

    def test_mlDsaIsNotCounted(self) -> None:
        """Cosignatures of ML-DSA are passed over; a policy that needs them is told so."""
        made = mlDsaBundle()
        proof = next(iter(made.proofs.values()))
        status, said = self.judge(proof, made.policy)
        self.assertEqual(status, 0, said)
        self.assertNotIn("seen by q", said)
        status, said = self.judge(proof, made.policy.replace(b"all 2 a b c", b"all all a b q"))
        self.assertEqual(status, 1)
        self.assertIn("(those of ML-DSA cannot be checked here: use svcbroker verify)", said)

    def test_largeContentsAreJudged(self) -> None:
        """An event of a megabyte is proved, too."""
        large = bundleOf(random.Random(5).randbytes(1024 * 1024))
        [proof] = large.proofs.values()
        status, said = self.judge(proof, large.policy)
        self.assertEqual(status, 0, said[:200])


class PageTests(DaemonTestCase):
    """
    The page of a bundle, opened as a file.
    """

    async def open(self, made: Bundle | None = None) -> None:
        """Open that of a bundle."""
        self.browser = Chromium()
        await self.browser.start()
        self.addCleanup(self.browser.stop)
        self.data = (made or bundle()).encode()
        page = self.root / "verify.html"
        page.write_bytes(decodeArchive(self.data)["verify.html"])
        await self.browser.open(page.as_uri())

    async def said(self, made: Bundle, verdict: str) -> str:
        """What the page of a bundle shows."""
        await self.open(made)
        await self.browser.waitForText(verdict)
        self.assertEqual(self.browser.problems, [])
        shown: str = await self.browser.evaluate("document.body.innerText")
        self.assertNotIn("undefined", shown)
        return " ".join(shown.split())

    async def test_authorIsNamed(self) -> None:
        """A signed event has the key and the time of signing; of another nobody is named."""
        verdict = "All 2 events are proved, if the keys below are the right ones."
        shown = await self.said(signedBundle(), verdict)
        self.assertIn(f"Signed by key {publicKeyOf('ada').hex()}, at 2023-11-14T", shown)
        self.assertIn("Signed by nobody: no author has signed this event", shown)
        self.assertIn("those that the log and its witnesses publish", shown)
        self.assertNotIn("No witness", shown)

    async def test_erasedEventIsProvedWithoutItsContent(self) -> None:
        """It is shown when, by whom and why it was erased, and what is still proved."""
        verdict = "All 2 events are proved, 1 of them without content, if the keys below are"
        shown = await self.said(signedBundle(erased=True), verdict)
        for words in (
            'Content erased at 2026-09-21T14:13:20.000Z by the account "olga"',
            "Reason request 17 of a @WHAT@ customer",
            "Not proved when, by whom and why it was erased: the broker said so",
            "block and public extensions, and the key of its author",
            f"Author named key {publicKeyOf('ada').hex()}",
            "the signature was removed with the content, and is not checked here",
        ):
            self.assertIn(words, shown)
        self.assertNotIn("0 bytes", shown)

    async def test_closedEventsAreShownAsWhatTheyAre(self) -> None:
        """The revealed event is shown in plain, the other closed one as closed with its size."""
        shown = await self.said(closedBundle(), "All 3 events are proved, if the keys below")
        self.assertIn("Content price 7 Opened it was closed, in 208 bytes", shown)
        self.assertIn("Content closed: 208 bytes that only its recipients can read", shown)
        self.assertIn("Content words", shown)
        self.assertNotIn("price 8", shown)

    async def test_withheldEventsAreShownAsWithheld(self) -> None:
        """Neither what was closed nor what was open is in the page, and both are proved."""
        made = closedBundle()
        _, second, third = sorted(made.proofs)
        verdict = "All 3 events are proved, 2 of them without content, if the keys below"
        shown = await self.said(made.withholding([second, third]), verdict)
        self.assertIn("Content price 7 Opened it was closed, in 208 bytes", shown)
        self.assertIn("withheld, or erased: what was closed is not in this proof", shown)
        self.assertIn("withheld, or erased: it is not in this proof", shown)
        self.assertNotIn("words", shown)
        self.assertNotIn("closed: 208 bytes", shown)

    async def test_bothSidesAreShown(self) -> None:
        """Who has said what, who has signed to have it, and that silence proves nothing."""
        made = receiptBundle()
        shown = await self.said(made, "All 5 events are proved, if the keys below")
        shown = re.sub(r"\.\d{3}Z", "Z", shown)
        found = made.verify(Policy.parse(made.policy))
        for text in sideTexts([each.event for each in found]):
            # The page has times of ISO 8601.
            text = re.sub(r"(\d) (\d\d:\d\d:\d\d) UTC", r"\1T\2Z", text)
            text = re.sub(r"that can be believed: .*", "that can be believed", text)
            self.assertIn(text, shown)

    async def test_wrongKeyIsRefused(self) -> None:
        """A key that does not open its event is no proof of what it says."""
        made = closedBundle()
        files = dict(decodeArchive(made.encode()))
        del files["verify.html"]
        files["reveals.json"] = json.dumps(dict.fromkeys(made.reveals, "00" * 16)).encode()
        await self.open()
        await self.browser.waitForText("All 4 events are proved")
        policy = json.dumps(made.policy.decode())
        await self.browser.evaluate(f"void (policy.value = {policy})")
        await self.choose(encodeArchive(files))
        await self.browser.waitForText("NOT PROVED: 1 of 3")

    async def test_plainWitnessesHaveNotExecuted(self) -> None:
        """Of plain witnesses it says that none of them has executed the log."""
        shown = await self.said(bundle(), "All 4 events are proved")
        self.assertIn("Executed by nobody: these witnesses have seen that the log grows", shown)

    async def test_executingWitnessesAreNamed(self) -> None:
        """Of witnesses that execute it says which have executed the log."""
        shown = await self.said(executedBundle(), "All 4 events are proved")
        self.assertIn("Executed by x", shown)

    async def test_missingWitnessesAreTold(self) -> None:
        """Without witnesses all rests on the key of the log."""
        verdict = "No witness has seen any of them: this rests on the log's own key alone."
        shown = await self.said(signedBundle(witnessed=False), verdict)
        self.assertIn("those that the log publishes", shown)
        self.assertIn("none: the policy needs no witness", shown)

    async def choose(self, data: bytes) -> None:
        """Choose a file in the page."""
        await self.browser.evaluate(
            f"""(() => {{
                const bytes = Uint8Array.from(atob({json.dumps(b64encode(data).decode())}),
                  (each) => each.charCodeAt(0));
                const transfer = new DataTransfer();
                transfer.items.add(new File([bytes], "case.zip"));
                const input = document.getElementById("file");
                input.files = transfer.files;
                input.dispatchEvent(new Event("change"));
            }})()"""
        )

    async def test_pageVerifiesWhatItCameWith(self) -> None:
        """It shows the events and who has seen them; a stricter policy is not content."""
        await self.open()
        browser = self.browser
        await browser.waitForText("All 4 events are proved, if the keys below are the right ones.")
        shown = await browser.evaluate("document.body.innerText")
        for text in (CONTENTS[0].decode(), "</script><b>", "256 bytes that are no text"):
            self.assertIn(text, shown)
        self.assertIn("a: not later than 2026-09-21T", shown)
        for width in WIDTHS:
            await browser.resize(width)
            await self.judge(f"bundle-{width}")
        await browser.tabTo(
            "Policy: the keys of the log and of the witnesses, and how many witnesses are needed"
        )
        await browser.evaluate(
            "void (policy.value = policy.value.replace('all 2 a b c', 'all all a b c'))"
        )
        await browser.tabTo("Verify with this policy")
        await browser.press("Enter")
        await browser.waitForText("NOT PROVED: 4 of 4")
        await self.choose(self.data[:-1] + b"\1")
        await browser.waitForText("NOT PROVED: a byte of the archive is not what was written")
        self.assertEqual(browser.problems, [])

    async def judge(self, name: str) -> None:
        """axe-core finds nothing."""
        axe = Path(nodeModules("axe-core"), "axe-core", "axe.min.js").read_text("utf-8")
        await self.browser.evaluate(axe)
        found = await self.browser.evaluate(
            "axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>"
            "  `${id}: ${nodes.map((each) => each.html).join(' ')}`))"
        )
        self.assertEqual(found, [], name)
        wide = await self.browser.evaluate("document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wide, 0, name)

    async def test_everyMutationIsRefused(self) -> None:
        """It takes a bundle, and none in which a byte was changed, lost or doubled."""
        await self.open()
        dice = random.Random(11)
        changed = [mutated(self.data, dice) for _ in range(MUTATIONS)]
        said: list[Any] = []
        for start in range(0, len(changed), 100):
            batch = [self.data, *changed[start : start + 100]]
            encoded = json.dumps([b64encode(each).decode() for each in batch])
            said += await self.browser.evaluate(
                f"""(async () => {{
                    const said = [];
                    for (const each of {encoded}) {{
                      const bytes = Uint8Array.from(atob(each), (one) => one.charCodeAt(0));
                      said.push(await svcbroker.verifyBundle(bytes).then(
                        (results) => results.length, (error) => error.message));
                    }}
                    return said;
                }})()"""
            )
        good = [each for each in said if not isinstance(each, str)]
        self.assertEqual(good, [len(CONTENTS)] * len(range(0, MUTATIONS, 100)))
        self.assertEqual(len([each for each in said if isinstance(each, str)]), MUTATIONS)
