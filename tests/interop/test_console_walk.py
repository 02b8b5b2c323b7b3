"""
Every page of the console, walked by keyboard against a broker with many events.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from typing import Any, Final

from twisted.logger import Logger

from svcbroker.access import hashPassword

from .test_console import WIDTHS, ConsoleTestCase

EVENTS: Final = int(os.environ.get("SVCBROKER_CONSOLE_EVENTS", "20000"))
"""How many events the topic has."""
BATCH: Final = 1000

MAX_TRANSFERRED: Final = 150_000
"""The most bytes that a page and its first calls may take, without a cache."""
MAX_READY: Final = 0.3
"""Seconds until the first answers of a page are shown, the median of several times."""
TIMES: Final = 3
SLACK: Final = float(os.environ.get("SVCBROKER_CONSOLE_SLACK", "20"))
"""How much slower a machine may be that does other things, too."""

TOPIC: Final = "orders/zurich"
PASSWORD: Final = "secret of root"

NAMED: Final = {"subscriptions": "Clients", "event": "Events and proofs"}
"""The links that are not called as their pages."""

SHOWN: Final = {
    "overview": "[...document.querySelectorAll('.value')].filter(({ textContent }) =>"
    " /[0-9]/.test(textContent)).length >= 6",
    "topics": "document.querySelector('tbody tr')",
    f"topic?name={TOPIC}": "document.querySelector('.event') && document.querySelector('.facts')",
    "blocks": "document.querySelector('tbody tr')",
    "block?height=2": "document.querySelector('.facts')",
    "replicas": "document.querySelector('tbody tr')",
    "subscriptions": "document.querySelector('tbody tr')"
    " && document.body.innerText.includes('There are no live subscriptions.')",
    "accounts": "document.querySelector('tbody tr')",
    "event": "document.querySelector('main input')",
    "checkpoints": "document.querySelector('.badge.good')",
    "operations": "document.querySelector('.command')",
    "configuration": "document.querySelector('tbody tr')",
}
"""What is true of each page once it shows its first answers."""

_log = Logger()

_OBSERVER = """
addEventListener("DOMContentLoaded", () => {
  const look = () => {
    if (!window.readyAt && (%s)) window.readyAt = performance.now();
  };
  new MutationObserver(look).observe(document.body,
    { subtree: true, childList: true, characterData: true, attributes: true });
});
"""
_TRANSFERRED = """
["navigation", "resource"].flatMap((each) => performance.getEntriesByType(each))
  .reduce((sum, each) => sum + each.transferSize, 0)
"""


class WalkTests(ConsoleTestCase):
    """
    A broker with accounts, faults and a topic of many events.
    """

    async def begin(self) -> None:
        """Start it, fill it, and log in by keyboard."""
        accounts = self.root / "accounts.toml"
        hash = hashPassword(PASSWORD.encode())
        accounts.write_text(f'[accounts.root]\npassword = "{hash}"\nroles = ["everything"]\n')
        await self.open(f"--accounts={accounts}", "--faults", ledger="pbft:nodes=4")
        browser = self.browser
        await browser.waitFor("document.activeElement.name === 'name'")
        await browser.type("root")
        await browser.press("Tab")
        await browser.type(PASSWORD)
        await browser.press("Enter")
        await browser.waitForText("Log out")
        await self.publishMany()

    async def publishMany(self) -> None:
        """Publish all events, in batches of JSON-RPC."""
        credentials = b64encode(f"root:{PASSWORD}".encode()).decode()
        headers: Any = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
        await self.daemon.call("/rest/open", headers=headers, topic=TOPIC)
        for first in range(0, EVENTS, BATCH):
            batch = [
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "method": "publish",
                    "params": {
                        "topic": TOPIC,
                        "content": b64encode(b'{"number": %d}' % number).decode(),
                    },
                }
                for number in range(first, min(first + BATCH, EVENTS))
            ]
            body = json.dumps(batch).encode()
            answers = await self.daemon.call("/jsonrpc", "POST", body, headers)
            for answer in answers:
                self.assertEqual(answer["result"]["status"], "SUCCESS")

    async def measure(self, page: str) -> tuple[float, int]:
        """Seconds until a page is ready without a cache, and the bytes that were transferred."""
        browser = self.browser
        observer = await browser.command(
            "Page.addScriptToEvaluateOnNewDocument", source=_OBSERVER % SHOWN[page]
        )
        times, sizes = [], []
        for _ in range(TIMES):
            # From another site, the browser would need a new process first.
            await browser.open(f"{self.daemon.base}/console/icon.svg")
            await browser.command("Network.clearBrowserCache")
            await browser.open(f"{self.daemon.base}/console#{page}")
            times.append(await browser.waitFor("window.readyAt") / 1000)
            # A chart is drawn after that.
            await browser.waitFor("!document.querySelector('.chart:empty')")
            sizes.append(await browser.evaluate(_TRANSFERRED))
        await browser.command(
            "Page.removeScriptToEvaluateOnNewDocument", identifier=observer["identifier"]
        )
        return sorted(times)[TIMES // 2], max(sizes)

    async def test_everyPageIsReachedByKeyboardAndQuick(self) -> None:
        """
        Topic and block by a link on their page; each shows its answers and no error. Without a
        cache, each page is small, and quick on loopback, however many events there are.
        """
        await self.begin()
        await self.walk()
        await self.browser.resize(WIDTHS[1])
        found = {page: await self.measure(page) for page in SHOWN}
        _log.info("Seconds and bytes of each page: {found}", found=found)
        for page, (seconds, size) in found.items():
            self.assertLess(size, MAX_TRANSFERRED, page)
            self.assertLess(seconds, SLACK * MAX_READY, page)

    async def walk(self) -> None:
        """Go to every page by keyboard. Pictures are taken where the environment says so."""
        browser = self.browser
        for page, shown in SHOWN.items():
            name = page.partition("?")[0]
            link = {"topic": TOPIC, "block": "2"}.get(name)
            if name == "block":
                await browser.tabTo("Height, or hash of a block or a transaction")
                await browser.type("2")
            elif link is not None:
                await browser.tabTo(link)
            else:
                await browser.tabTo(NAMED.get(name, name.capitalize()))
            await browser.press("Enter")
            # Both at once: what is shown may be true of the page before, too.
            await browser.waitFor(f"location.hash.split('?')[0] === '#{name}' && Boolean({shown})")
            self.assertEqual(
                await browser.evaluate("[...document.querySelectorAll('.error')].length"), 0, page
            )
            if os.environ.get("SVCBROKER_SCREENSHOTS"):
                for language in ("en", "zh"):
                    await browser.evaluate(
                        f"localStorage.setItem('svcbroker-language', '{language}')"
                    )
                    await browser.command("Page.reload")
                    await browser.waitFor(f"Boolean({shown})")
                    await self.judge(f"walk-{name}-{language}")
                await browser.evaluate("localStorage.setItem('svcbroker-language', 'en')")
                await browser.command("Page.reload")
                await browser.waitFor(f"Boolean({shown})")
        self.assertEqual(browser.problems, [])
