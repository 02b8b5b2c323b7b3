"""
Every page of the console, walked by keyboard against a broker with many events.
"""

from __future__ import annotations

import json
import os
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import treq
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from svcbroker.access import hashPassword
from tests.functional.daemon import LOCAL, TIMEOUT, reactor

from .test_console import WIDTHS, ConsoleTestCase

EVENTS: Final = int(os.environ.get("SVCBROKER_CONSOLE_EVENTS", "5000"))
"""How many events the topic has."""
TOPICS: Final = int(os.environ.get("SVCBROKER_CONSOLE_TOPICS", "100"))
"""How many more topics there are."""
CLIENTS: Final = int(os.environ.get("SVCBROKER_CONSOLE_CLIENTS", "10"))
"""How many clients of MQTT are connected."""
BATCH: Final = 1000

MAX_TRANSFERRED: Final = 150_000
"""The most bytes that a page and its first calls may take, without a cache."""
ROW: Final = 200
"""The most bytes for each topic or client that a page lists."""
MAX_READY: Final = 0.3
"""Seconds until the first answers of a page are shown, the median of several times."""
TIMES: Final = 3
IDLE: Final = 10.0 if "SVCBROKER_CONSOLE_EVENTS" in os.environ else 0.0
"""For so many seconds nobody looks, to know how late the machine alone makes the reactor."""
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

    timeout = ConsoleTestCase.timeout + EVENTS / 500 + TOPICS / 50

    async def begin(self) -> None:
        """Start it, fill it, and log in by keyboard."""
        accounts = self.root / "accounts.toml"
        hash = hashPassword(PASSWORD.encode())
        accounts.write_text(f'[accounts.root]\npassword = "{hash}"\nroles = ["everything"]\n')
        options = (f"--accounts={accounts}", "--faults", f"--mqtt={LOCAL}")
        await self.open(*options, ledger="pbft:nodes=4")
        browser = self.browser
        await browser.waitFor("document.activeElement.name === 'name'")
        await browser.type("root")
        await browser.press("Tab")
        await browser.type(PASSWORD)
        await browser.press("Enter")
        await browser.waitForText("Log out")
        names = (TOPIC, *(f"shelf/{number}" for number in range(TOPICS)))
        await self.callMany("open", ({"topic": name} for name in names))
        contents = (b64encode(b'{"number": %d}' % number) for number in range(EVENTS))
        await self.callMany(
            "publish", ({"topic": TOPIC, "content": each.decode()} for each in contents)
        )
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        for number in range(CLIENTS):
            client = await deferToThread(connectAccount, port, b"client-%d" % number)
            self.addCleanup(client.close)

    async def callMany(self, method: str, calls: Iterator[dict[str, str]]) -> None:
        """Make calls in batches of JSON-RPC. All of them succeed."""
        credentials = b64encode(f"root:{PASSWORD}".encode()).decode()
        headers: Any = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"}
        while batch := [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": each}
            for number, each in enumerate(islice(calls, BATCH))
        ]:
            body = json.dumps(batch).encode()
            for answer in await self.daemon.call("/jsonrpc", "POST", body, headers):
                # Opening answers with a word alone.
                wanted = "SUCCESS" if method == "publish" else "true"
                self.assertIn(wanted, str(answer["result"]), str(answer))

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
            if sum(each < SLACK * MAX_READY for each in times) > TIMES // 2:
                # So is the median, whatever comes.
                break
        await browser.command(
            "Page.removeScriptToEvaluateOnNewDocument", identifier=observer["identifier"]
        )
        return sorted(times)[len(times) // 2], max(sizes)

    async def test_everyPageIsReachedByKeyboardAndQuick(self) -> None:
        """
        Topic and block by a link on their page; each shows its answers and no error. Without a
        cache, each page is small, and quick on loopback, however many events there are.
        """
        await self.begin()
        await self.walk()
        await self.browser.resize(WIDTHS[1])
        found, slow = {}, {}
        for page in SHOWN:
            before = await self.slowTurns()
            found[page] = await self.measure(page)
            slow[page] = await self.slowTurns() - before
        await self.browser.open("about:blank")
        before = await self.slowTurns()
        await deferLater(reactor, IDLE)
        slow["nothing"] = await self.slowTurns() - before
        _log.info("Seconds and bytes of each page: {found}", found=found)
        _log.info("Looks at a reactor that was late by more than 50 ms: {slow}", slow=slow)
        for page, (seconds, size) in found.items():
            self.assertLess(size, MAX_TRANSFERRED + ROW * (TOPICS + CLIENTS), page)
            self.assertLess(seconds, SLACK * MAX_READY, page)

    async def slowTurns(self) -> float:
        """How often the reactor was late by more than 50 ms since the start."""
        [port] = re.findall(r":(\d+)/", self.daemon.base)
        answer = await treq.get(
            f"http://127.0.0.1:{port}/metrics", auth=("root", PASSWORD), pool=self.daemon.pool
        )
        name = r"svcbroker_reactor_lag_seconds_bucket\{le=\"%s\"\} (\S+)"
        text = await answer.text()
        within, every = (re.findall(name % each, text) for each in ("0.05", r"\+Inf"))
        return float(every[0]) - float(within[0])

    async def walk(self) -> None:
        """Go to every page by keyboard. Pictures are taken where the environment says so."""
        browser = self.browser
        for page, shown in SHOWN.items():
            name = page.partition("?")[0]
            link = {"topic": TOPIC, "block": "2"}.get(name)
            # A page of many clients has more buttons than a reader would go through.
            await browser.evaluate("document.querySelector('.skip').focus()")
            if name == "block":
                await browser.tabTo("Height, or hash of a block or a transaction")
                await browser.type("2")
            elif link is not None:
                await browser.tabTo(link)
            else:
                await browser.tabTo(NAMED.get(name, name.capitalize()))
            await browser.press("Enter")
            # The address and what is shown may both be there while the page before is: the focus
            # goes to the heading of another page once that is there.
            focused = "document.activeElement.matches('h1')" if page != "overview" else "true"
            await browser.waitFor(
                f"location.hash.split('?')[0] === '#{name}' && {focused} && Boolean({shown})"
            )
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


def connectAccount(port: int, clientId: bytes) -> socket.socket:
    """A client of MQTT 3.1.1 that has connected as the account."""
    client = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    fields = (clientId, b"root", PASSWORD.encode())
    body = b"\x00\x04MQTT\x04\xc2\x00\x00"
    body += b"".join(len(each).to_bytes(2, "big") + each for each in fields)
    client.sendall(bytes([0x10, len(body)]) + body)
    client.recv(4, socket.MSG_WAITALL)
    return client
