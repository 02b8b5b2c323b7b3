"""
The demo in Chromium: each page of the console shows something of it.

With C{SVCBROKER_DRAW=1} the pictures of the console in the documentation are taken again::

    SVCBROKER_DRAW=1 python -m twisted.trial tests.interop.test_console_demo
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from .chromium import Chromium
from .test_console import ConsoleTestCase

SHOWN: Final = {
    "overview": "3 / 4",
    "topics": "shipment/4713",
    "topic?name=shipment/4711": "request of the data subject",
    "search?topic=orders/%23": "Search",
    "blocks": "Page 1 of",
    "block?height=30": "nodes have signed",
    "replicas": "3 of 4 nodes run",
    "subscriptions": "503",
    "accounts": "corner",
    "checkpoints": "alba",
    "operations": "svcbroker chain backup",
    "configuration": "frost.example/svcbroker",
}
"""A text of each page."""

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
DRAWN: Final = ("topics", "subscriptions", "event")
"""The pages whose pictures the documentation has."""
SIZE: Final = (1280, 860)
_CUT: Final = """
[...document.querySelectorAll(".frame")].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => each.getAttribute("aria-label"))
"""


class DemoTests(ConsoleTestCase):
    """
    The demo, as its operator sees it.
    """

    async def test_everyPageShowsTheDemo(self) -> None:
        """From the log-in to a proof; nothing is left when it ends."""
        words = ("-m", "svcbroker.commands", "run", "--demo", "--http", "0")
        self.daemon = self.spawn(sys.executable, *words)
        told = r"The demo is at (\S+)/console: .* with the password (\w+)"
        found = await self.daemon.protocol.waitFor(told)
        self.daemon.base, password = found[1], found[2]
        browser = self.browser = Chromium()
        await browser.start()
        self.addCleanup(browser.stop)
        await browser.open(f"{self.daemon.base}/console")
        await browser.waitFor("document.activeElement.name === 'name'")
        await browser.type("frost")
        await browser.press("Tab")
        await browser.type(password)
        await browser.press("Enter")
        await browser.waitForText("Log out")
        await browser.resize(*SIZE)
        for page, text in SHOWN.items():
            await browser.evaluate(f"location.hash = {page!r}")
            await browser.waitForText(text)
            self.assertIsNone(await browser.evaluate("document.querySelector('.error')"), page)
            await self.picture(f"demo-{page.partition('?')[0]}")
        await browser.evaluate("location.hash = 'topic?name=shipment/4712'")
        link = "document.querySelector('.event a')?.hash"
        await browser.evaluate(f"location.hash = {await browser.waitFor(link)!r}")
        await browser.waitForText("proved: this is what was published")
        await self.picture("demo-event")
        await browser.evaluate("location.hash = 'topic?name=dead/corner'")
        await browser.waitForText("svc-original-id")
        await browser.evaluate(f"location.hash = {await browser.waitFor(link)!r}")
        await browser.waitForText("A webhook has given up the event")
        await browser.tabTo("Send to the webhook again")
        await browser.press("Enter")
        await browser.waitForText("not acknowledged")
        await self.picture("demo-dead-letter")
        self.assertEqual(browser.problems, [])
        [directory] = Path(self.daemonDirectory()).parents[:1]
        self.assertEqual(await self.daemon.stop(), 0)
        self.assertFalse(directory.exists())

    def daemonDirectory(self) -> str:
        """The data directory, as the daemon has told."""
        output = self.daemon.protocol.output
        return output.partition(", data in ")[2].partition(",")[0]

    async def picture(self, name: str) -> None:
        """Keep pictures, where the environment says so."""
        page = name.removeprefix("demo-")
        if os.environ.get("SVCBROKER_DRAW") and page in DRAWN:
            await self.browser.emulate(prefers_color_scheme="light")
            # Charts and proofs are drawn after their texts.
            await self.browser.waitFor("!document.querySelector('.chart:empty, progress')")
            self.assertEqual(await self.browser.evaluate(_CUT), [], page)
            path = PICTURES / f"console-{page}.png"
            await self.browser.screenshot(path, height=SIZE[1])
        if os.environ.get("SVCBROKER_SCREENSHOTS"):
            await self.judge(name)
