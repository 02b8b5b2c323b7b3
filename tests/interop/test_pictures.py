"""
The page of a dispute: every command of it is run, and prints what the page shows. And the pictures
of README and of the documentation: they show what the software prints and shows now.

With C{SVCBROKER_DRAW=1} they are drawn again::

    SVCBROKER_DRAW=1 python -m twisted.trial tests.interop.test_pictures
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from pathlib import Path

from twisted.trial.unittest import SkipTest

from svcbroker.proofs.bundle import decodeArchive
from tests.functional import story
from tests.functional.daemon import LOCAL
from tests.needed import neededProgram

from .chromium import Chromium
from .pictures import Pane, beside, page, terminal, words

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
REST = "section:not([aria-labelledby=events-title])"
"""What comes on the page after the events."""
OTHER = "header, section:nth-of-type(n + 2), pre, .event button"
"""What is not of the document, and its bytes."""

EVENT = "7ba3f518-1-1"
FIRST = (
    "A terminal: svcbroker run, a publish by mosquitto_pub, and svcbroker prove, which says that a "
    "quorum of the chain's validators has signed the event. Beside it the page that verifies the "
    "same event in a browser, without a network."
)
AUDITOR = (
    "A page in a browser: all 6 events are proved, 1 of them without content. The erased event "
    "shows when and why, and what is still proved."
)
DOCUMENT = (
    "The page Search of the console: report.pdf is on the log, 1 found. Below it the event with "
    "its id, its time, its topic and the key of its author."
)
_DROP = """
((name, base64) => {
  const dataTransfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  dataTransfer.items.add(new File([bytes], name));
  const given = { dataTransfer, bubbles: true, cancelable: true };
  document.querySelector(".drop").dispatchEvent(new DragEvent("drop", given));
})
"""


class PictureTests(story.StoryTestCase):
    """
    Each picture is drawn from what runs.
    """

    browser: Chromium | None = None

    async def startBrowser(self) -> Chromium:
        """The browser: a test has one at a time."""
        if self.browser is None:
            browser = Chromium()
            await browser.start()
            self.addCleanup(browser.stop)
            self.browser = browser
        return self.browser

    async def opened(self, archive: Path) -> Chromium:
        """A browser with the page of a bundle, once it has judged."""
        browser = await self.startBrowser()
        file = self.root / "verify.html"
        file.write_bytes(decodeArchive(archive.read_bytes())["verify.html"])
        await browser.open(file.as_uri())
        await browser.waitForText("proved, ")
        return browser

    def same(self, name: str, picture: str) -> None:
        """The picture has the words of the one that is kept, or is kept from now on."""
        path = FOLDER / f"{name}.svg"
        if os.environ.get("SVCBROKER_DRAW"):
            FOLDER.mkdir(exist_ok=True)
            path.write_text(picture, "utf-8")
        self.assertEqual(words(path.read_text("utf-8")), words(picture), name)

    async def test_everyCommandPrintsWhatThePageShows(self) -> None:
        """
        From the first start to the contradiction; and the pictures: the auditor's page with the
        erased event, and whose document it is that the auditor drops on the console.
        """
        pictures = {
            "svcbroker verify case.zip": self.drawAuditor,
            "svcbroker verify told.zip": self.drawDocument,
        }
        skipped = []
        count = 0
        for step in story.steps():
            count += 1
            await self.do(step)
            for command in [each for each in pictures if step.command.startswith(each)]:
                try:
                    await pictures.pop(command)()
                except SkipTest as reason:
                    # The commands need no browser.
                    skipped.append(reason)
        self.assertGreater(count, 30)
        self.assertEqual(pictures, {})
        if skipped:
            raise skipped[0]

    async def drawAuditor(self) -> None:
        """The page of the auditor: the erased event, and the one in dispute."""
        browser = await self.opened(self.root / "case.zip")
        rest = f"{REST}, article:nth-of-type(2n + 1), article:nth-of-type(n + 5)"
        for theme in ("light", "dark"):
            isDark = theme == "dark"
            pane = await page(browser, 820, 0.88, isDark, rest)
            self.same(f"auditor-{theme}", beside([pane], AUDITOR))

    async def drawDocument(self) -> None:
        """Whose document it is, and that its event is proved."""
        browser = await self.startBrowser()
        await self.dropDocument(browser)
        for theme in ("light", "dark"):
            isDark = theme == "dark"
            pane = await page(browser, 820, 0.88, isDark, OTHER, "Frost's broker")
            self.same(f"document-{theme}", beside([pane], DOCUMENT))
        await browser.evaluate("document.querySelector('.event-head a').click()")
        await browser.waitForText("proved: this is what was published")

    async def dropDocument(self, browser: Chromium) -> None:
        """Drop Corner's report on the console."""
        assert self.broker is not None
        await browser.command("Emulation.setTimezoneOverride", timezoneId="UTC")
        await browser.open(f"{self.broker.base}/console#search")
        await browser.waitForText("Is this document on the log?")
        given = json.dumps(["report.pdf", b64encode(story.report()).decode("ascii")])
        await browser.evaluate(f"{_DROP}(...{given})")
        await browser.waitForText("report.pdf is on the log: 1 found")

    async def test_firstProof(self) -> None:
        """The terminal of README's first commands, and the page of the same event."""
        neededProgram("mosquitto_pub")
        self.broker = await self.start(f"--mqtt={LOCAL}", ledger="pbft:nodes=4")
        port = (await self.broker.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1]
        lines = ["$ svcbroker run", "svcbroker 0.1.0 serves 127.0.0.1:8080/svcbroker, …"]
        for command in (
            "mosquitto_pub -t weather/zurich -m 21.5 -q 1",
            f"svcbroker prove {EVENT}",
            f"svcbroker proof bundle {EVENT} --output case.zip",
        ):
            typed = command.replace("mosquitto_pub", f"mosquitto_pub -p {port}")
            lines += [f"$ {command}", *(await self.type(typed)).splitlines()]
        lines = [line for line in lines if not line.startswith("no witness is asked for")]
        browser = await self.opened(self.root / "case.zip")
        for theme in ("light", "dark"):
            isDark = theme == "dark"
            panes: list[Pane] = [
                terminal(lines, 58, isDark),
                await page(browser, 660, 0.74, isDark, REST),
            ]
            self.same(f"first-proof-{theme}", beside(panes, FIRST))
