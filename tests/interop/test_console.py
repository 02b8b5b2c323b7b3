"""
The console in Chromium, against the daemon: walked by keyboard, judged by axe-core.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.functional.daemon import TIMEOUT, Daemon, DaemonTestCase

from .chromium import Chromium
from .node import nodeModules

WIDTHS = (390, 1280, 1920)

ACCOUNTS = """
[accounts.ann]
password = "{password}"
roles = ["everything"]
"""


class ConsoleTestCase(DaemonTestCase):
    """
    A daemon and a browser.
    """

    timeout = 3 * TIMEOUT

    async def open(self, *arguments: str, page: str = "") -> None:
        """Start both, and open the console."""
        self.daemon: Daemon = await self.start(*arguments)
        self.browser = Chromium()
        await self.browser.start(self.root / "profile")
        self.addCleanup(self.browser.stop)
        await self.browser.open(f"{self.daemon.base}/console{page}")

    async def publish(self, topic: str, count: int) -> None:
        """Open a topic and publish events to it."""
        await self.daemon.call("/rest/open", topic=topic)
        for number in range(count):
            fields: dict[str, Any] = {"topic": topic, "content": f'{{"number": {number}}}'}
            await self.daemon.call("/rest/publish", **fields)

    async def judge(self, name: str) -> None:
        """
        axe-core finds nothing at any width, in light and dark, and nothing is wider than the
        window. Pictures are kept where the environment says so.
        """
        axe = Path(nodeModules("axe-core"), "axe-core", "axe.min.js").read_text("utf-8")
        browser = self.browser
        for width in WIDTHS:
            await browser.resize(width)
            for scheme in ("light", "dark"):
                await browser.emulate(prefers_color_scheme=scheme)
                if folder := os.environ.get("SVCBROKER_SCREENSHOTS"):
                    await browser.screenshot(Path(folder, f"{name}-{width}-{scheme}.png"))
                await browser.evaluate(axe)
                found = await browser.evaluate(
                    "axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>"
                    "  `${id}: ${nodes.map((each) => each.html).join(' ')}`))"
                )
                self.assertEqual(found, [], f"{name} {width} {scheme}")
            wide = await browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0, f"{name} {width}")
        await browser.resize(WIDTHS[1])
        self.assertEqual(browser.problems, [])


class PagesTests(ConsoleTestCase):
    """
    The pages where there are no accounts.
    """

    async def test_overviewShowsTheChain(self) -> None:
        """The height, the nodes and a rate are there, and change while events are published."""
        await self.open()
        await self.browser.waitForText("Transactions a second")
        await self.publish("orders/zurich", 5)
        await self.browser.waitFor(
            "[...document.querySelectorAll('.figure')].some((each) =>"
            " each.innerText.startsWith('Transactions\\n6'))"
        )
        await self.browser.waitForText("active")
        await self.judge("overview")

    async def test_topicsAreOpenedByKeyboard(self) -> None:
        """A topic is opened, found, published to and closed without a pointer."""
        await self.open()
        browser = self.browser
        await self.publish("orders/geneva", 1)
        await browser.waitForText("Transactions a second")
        await browser.tabTo("Topics")
        await browser.press("Enter")
        await browser.waitForText("orders/geneva")
        self.assertEqual(await browser.evaluate("document.activeElement.tagName"), "H1")
        await browser.tabTo("Name")
        await browser.type("orders/zurich")
        await browser.press("Enter")
        await browser.waitForText("2 of 2 topics")
        await browser.tabTo("Search")
        await browser.type("zur")
        await browser.waitForText("1 of 2 topics")
        await self.judge("topics")
        await browser.tabTo("orders/zurich")
        await browser.press("Enter")
        await browser.waitForText("Address")
        await browser.tabTo("Content")
        await browser.type('{"amount": 5}')
        await browser.tabTo("Publish")
        await browser.press("Enter")
        await browser.waitForText("final")
        await browser.evaluate("history.back()")
        await browser.waitForText("2 of 2 topics")
        await browser.tabTo("Close orders/zurich")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("1 of 1 topics")

    async def test_topicShowsEventsAsTheyCome(self) -> None:
        """The log is read page by page, from an id on, in each format; new events are followed."""
        await self.open()
        browser = self.browser
        await self.publish("orders/zurich", 60)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText('"number":59')
        count = "document.querySelectorAll('.event').length"
        self.assertEqual(await browser.evaluate(count), 50)
        await browser.tabTo("More events")
        await browser.press("Enter")
        await browser.waitFor(f"{count} === 60")
        await browser.tabTo("Follow")
        await browser.press("Enter")
        await browser.waitForText("connected")
        await self.daemon.call(
            "/rest/publish", topic="orders/zurich", content="\u00e9", **{"svc-unit": "C"}
        )
        await browser.waitForText("1 events have come.")
        await browser.waitForText("svc-unit C")
        await self.judge("topic")
        choose = (
            "(name, value) => { const field = document.querySelector(name); field.value = value;"
            " field.dispatchEvent(new Event('change', { bubbles: true })); }"
        )
        await browser.evaluate(f"({choose})('.title select', 'hex')")
        await browser.waitForText("000000  c3 a9")
        await browser.evaluate(f"({choose})('[name=kind]', 'id')")
        await browser.tabTo("Event id or height")
        await browser.type("60")
        await browser.press("Enter")
        await browser.waitFor(f"{count} === 4")
