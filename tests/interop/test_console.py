"""
The console in Chromium, against the daemon: walked by keyboard, judged by axe-core.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import hashPassword
from svcbroker.client import Client, OpenedEvent
from svcbroker.client._confidential import newIdentity
from svcbroker.proofs.bundle import Bundle
from svcbroker.proofs.tlog import Policy
from tests.authors import makeKeyFile
from tests.console.support import VENDOR, Origin, originOf
from tests.functional.daemon import AGAIN, LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor
from tests.functional.test_confidential import Relay, isIn
from tests.needed import needPackage
from tests.proofs.test_age import IDENTITY, RECIPIENT, SECRET
from tools.vectors.closed import DEFAULT as VECTORS

from .chromium import Chromium
from .node import nodeModules

BUILD = Path(__file__).parents[2] / "tools" / "packages" / "age" / "build"
WIDTHS = (390, 1280, 1920)
LAST_LAYOUT = 1280
"""The widest window in which axe-core is asked: wider ones only have more figures in a row."""
# What it has to say of elements that are right takes it half of its time.
_BRIEF: dict[str, Any] = {"resultTypes": ["violations"]}
_SCHEMES: dict[str, dict[str, Any]] = {
    "light": _BRIEF,
    "dark": {**_BRIEF, "runOnly": ["color-contrast", "link-in-text-block"]},
}
"""The options of axe-core for each scheme of colours: another one changes nothing else."""
_DELETE = {"type": "keyDown", "key": "Delete", "code": "Delete", "windowsVirtualKeyCode": 46}
GIVE_FILES = """
const fetched = fetch, sent = [];
window.fetch = (url, options) => {
  sent.push(`${url} ${options?.body ?? ""}`);
  return fetched(url, options);
};
const filesOf = (name, text) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  return data;
};
const drop = (name, text) => {
  const given = { dataTransfer: filesOf(name, text), bubbles: true, cancelable: true };
  document.querySelector(".drop").dispatchEvent(new DragEvent("drop", given));
};
const choose = (name, text) => {
  const field = document.querySelector("input[type=file]");
  field.files = filesOf(name, text).files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
};
"""
TELL = """
(async () => (await import(document.querySelector("script[src]").src.replace("app.js", "texts.js")))
  .tell(%s))()
"""
TOLD = json.loads(Path(__file__).with_name("told.json").read_text("utf-8"))
"""What the broker writes, in Chinese; what another system writes stays."""
_BUNDLE = """
(async () => {
  const id = document.querySelector(".plain-list code").textContent;
  const answer = await fetch(`console/bundle?events=${id}`);
  return btoa(String.fromCharCode(...new Uint8Array(await answer.arrayBuffer())));
})()
"""


class VendoredTests(SynchronousTestCase):
    """
    The files of the console that others have written.
    """

    def test_vendoredFilesAreThoseOfTheirPackages(self) -> None:
        """Below their first line, which tells where they are from; so are their licences."""
        modules = Path(nodeModules("htm", "uplot", "age-encryption", "esbuild"))
        for path in VENDOR.iterdir():
            if path.name.startswith("LICENSE-"):
                package = path.name.removeprefix("LICENSE-")
                package = re.sub("^(noble|scure)-", r"@\1/", package)
                # Preact is in the file of htm.
                if package != "preact":
                    self.assertEqual(
                        path.read_bytes(), (modules / package / "LICENSE").read_bytes()
                    )
                continue
            origin, content = originOf(path)
            manifest = json.loads((modules / origin.package / "package.json").read_bytes())
            self.assertEqual(manifest["version"], origin.version, path.name)
            self.assertEqual(content, self.original(modules, origin), path.name)

    def original(self, modules: Path, origin: Origin) -> bytes:
        """What a package has of a file, or what is built of it."""
        if origin.package != "age-encryption":
            return (modules / origin.package / origin.file).read_bytes()
        return subprocess.run(
            [BUILD], env={**os.environ, "NODE_PATH": str(modules)}, capture_output=True, check=True
        ).stdout


class ConsoleTestCase(DaemonTestCase):
    """
    A daemon and a browser.

    @cvar script: what the page runs before its own.
    """

    timeout = 3 * TIMEOUT
    script = ""

    async def open(
        self, *arguments: str, page: str = "", ledger: str = "memory", http: str = LOCAL
    ) -> None:
        """Start both, and open the console."""
        self.daemon: Daemon = await self.start(*arguments, ledger=ledger, http=http)
        self.browser = Chromium()
        await self.browser.start()
        self.addCleanup(self.browser.stop)
        if self.script:
            await self.browser.command("Page.addScriptToEvaluateOnNewDocument", source=self.script)
        await self.browser.open(f"{self.daemon.base}/console{page}")

    async def publish(self, topic: str, count: int) -> None:
        """Open a topic and publish events to it."""
        await self.daemon.call("/rest/open", topic=topic)
        for number in range(count):
            fields: dict[str, Any] = {"topic": topic, "content": f'{{"number": {number}}}'}
            await self.daemon.call("/rest/publish", **fields)

    async def judge(self, name: str, isAway: bool = False) -> None:
        """
        axe-core finds nothing on a phone and on a desk, in light and dark, and nothing is wider
        than the window. Pictures are kept where the environment says so.

        @param isAway: whether the broker does not answer, of which browsers tell as well.
        """
        axe = Path(nodeModules("axe-core"), "axe-core", "axe.min.js").read_text("utf-8")
        browser = self.browser
        await browser.evaluate(axe)
        for width in WIDTHS:
            await browser.resize(width)
            for scheme, options in _SCHEMES.items():
                await browser.emulate(prefers_color_scheme=scheme)
                if folder := os.environ.get("SVCBROKER_SCREENSHOTS"):
                    await browser.screenshot(Path(folder, f"{name}-{width}-{scheme}.png"))
                if width > LAST_LAYOUT:
                    continue
                found = await browser.evaluate(
                    f"axe.run({json.dumps(options)}).then(({{ violations }}) =>"
                    " violations.map(({ id, nodes }) =>"
                    "  `${id}: ${nodes.map((each) => each.html).join(' ')}`))"
                )
                self.assertEqual(found, [], f"{name} {width} {scheme}")
            wide = await browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0, f"{name} {width}")
        await browser.resize(WIDTHS[1])
        told = "net::ERR_CONNECTION_REFUSED" if isAway else "\0"
        self.assertEqual([each for each in browser.problems if told not in each], [])


class PagesTests(ConsoleTestCase):
    """
    The pages where there are no accounts.
    """

    async def test_overviewShowsTheChain(self) -> None:
        """The height, the nodes and a rate are there, and change while events are published."""
        await self.open(ledger="pbft:nodes=4")
        await self.browser.waitForText("Transactions a second")
        await self.publish("orders/zurich", 5)
        await self.browser.waitFor(
            "[...document.querySelectorAll('.figure')].some((each) =>"
            " each.innerText.startsWith('Transactions\\n6'))"
        )
        await self.browser.waitForText("active")
        await self.browser.waitForText("Disk free")
        await self.browser.waitForText("median; 99 % within")
        await self.browser.waitFor("/Connections: [1-9]/.test(document.body.innerText)")
        await self.judge("overview")
        await self.browser.tabTo("Shown")
        await self.browser.evaluate(
            "((field) => { field.value = '86400';"
            " field.dispatchEvent(new Event('change', { bubbles: true })); })"
            "(document.activeElement)"
        )
        await self.browser.waitFor("document.querySelectorAll('.chart canvas').length === 8")

    async def test_alarmIsSeenUntilItIsOver(self) -> None:
        """Above the page, with what to do, and as a number beside the page that shows more."""
        await self.open("--faults", ledger="pbft:nodes=4")
        browser = self.browser
        await browser.waitForText("Transactions a second")
        self.assertEqual(await browser.evaluate("document.querySelectorAll('.alarms').length"), 0)
        token = json.loads((self.dataDir / "operator.json").read_text("ascii"))["token"]
        headers: Any = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for call, body in (("faults/stop", b'{"node": 3}'), ("faults/heal", b"{}")):
            answer = await self.daemon.call(f"/admin/operator/{call}", "POST", body, headers)
            self.assertEqual(answer["code"], 0)
            if call == "faults/heal":
                break
            await browser.waitForText("A node does not run · Group 1 · since")
            await browser.waitFor("document.querySelector('nav .count').textContent[0] === '1'")
            await browser.evaluate("document.querySelector('.alarms summary').focus()")
            await browser.press("Enter")
            await browser.waitForText("3 of 4 run, not: ")
            await self.judge("alarm")
            await self.unfold()
            await browser.tabTo("中文")
            await browser.press("Enter")
            await browser.waitForText("有节点未运行 · 群组 1 · 始于")
            await browser.waitFor(
                "document.querySelector('.alarms').textContent.includes('4 个中有 3 个在运行')"
            )
            for text, told in TOLD.items():
                self.assertEqual(await browser.evaluate(TELL % json.dumps(text)), told)
            await self.judge("alarm-chinese")
        await browser.waitFor(
            "!document.querySelector('.alarms') && !document.querySelector('.count')"
        )

    async def unfold(self) -> None:
        """On a phone, pages and alarms are a line each, and are opened by keyboard."""
        browser = self.browser
        await browser.resize(360, 740)
        seen = (
            "[...document.querySelectorAll('nav a, .alarms li')].some((e) => e.checkVisibility())"
        )
        self.assertFalse(await browser.evaluate(seen))
        height = "document.querySelector('header').getBoundingClientRect().height"
        self.assertLess(await browser.evaluate(height), 180)
        await browser.evaluate("document.querySelector('.skip').focus()")
        await browser.tabTo("☰\nOverview")
        await browser.press("Enter")
        await browser.tabTo("Topics")
        await browser.press("Enter")
        await browser.waitForText("Open a topic")
        self.assertFalse(await browser.evaluate(seen))
        await browser.evaluate("document.querySelector('.alarms .fold').focus()")
        await browser.press("Enter")
        self.assertTrue(await browser.evaluate(seen))
        self.assertLessEqual(
            await browser.evaluate("document.documentElement.scrollWidth - innerWidth"), 0
        )
        await browser.resize(WIDTHS[1])

    async def test_languageIsKept(self) -> None:
        """The reader chooses it, and finds it again with the page."""
        await self.open(page="#subscriptions")
        browser = self.browser
        await browser.waitForText("There are no webhooks.")
        await browser.tabTo("中文")
        await browser.press("Enter")
        await browser.waitForText("没有 Webhook。")
        await self.judge("chinese")
        await browser.open("about:blank")
        await browser.open(f"{self.daemon.base}/console#subscriptions")
        await browser.waitForText("没有 Webhook。")
        self.assertEqual(await browser.evaluate("document.documentElement.lang"), "zh-CN")
        await browser.tabTo("English")
        await browser.press("Enter")
        await browser.waitForText("There are no webhooks.")

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
        await browser.tabTo("orders/zurich")
        await browser.press("Enter")
        await browser.waitForText("Address")
        await browser.waitForText("Close")
        await browser.tabTo("Close orders/zurich")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("1 of 1 topics")

    async def test_topicsShowTheirActivity(self) -> None:
        """Events, the last of them, and live subscriptions; sorted by the keyboard."""
        await self.open(page="#topics")
        browser = self.browser
        for name, count in (("a", 1), ("b", 3), ("c", 0)):
            await self.publish(name, count)
        await browser.evaluate(
            "new EventSource('rest/follow?topic=%23')"  # a page of the broker may follow
        )
        row = "[...document.querySelectorAll('tbody tr')].map((each) => each.innerText)"
        await browser.waitFor(f"{row}.length === 3 && {row}.every((each) => /\\t1\\t/.test(each))")
        await browser.tabTo("Events")
        await browser.press("Enter")
        names = "[...document.querySelectorAll('tbody .name')].map((each) => each.innerText).join()"
        await browser.waitFor(f"{names} === 'b,a,c'")
        await browser.press("Enter")
        await browser.waitFor(f"{names} === 'c,a,b'")
        await browser.evaluate("window.stream = new EventSource('rest/follow?topic=c')")
        await browser.tabTo("Live subscriptions")
        await browser.press("Enter")
        await browser.waitFor(f"{names}[0] === 'c'")
        self.assertIsNone(await browser.evaluate("document.querySelector('.danger')"))
        await self.judge("topics")

    async def test_eventsAreSearched(self) -> None:
        """By text, extension and topic, a page at a time, as far as the log goes."""
        await self.open(page="#search")
        browser = self.browser
        await self.publish("orders/zurich", 120)
        await self.publish("orders/bern", 1)
        fields: dict[str, Any] = {"topic": "orders/bern", "content": "needle", "svc-unit": "Gram"}
        await self.daemon.call("/rest/publish", **fields)
        await browser.tabTo("Text in the content")
        await browser.type('"NUMBER": 7')
        await browser.press("Enter")
        await browser.waitForText("11 found, in 122 events")
        for name, value, text in (
            ("text", "", "100 found so far, in 100 events"),
            ("extension", "svc-unit=gram", "1 found, in 122 events"),
            ("topic", "orders/zurich", "0 found, in 120 events"),
        ):
            field = f"document.querySelector('[name={name}]')"
            await browser.evaluate(f"{field}.focus(), {field}.select()")
            await (
                browser.type(value)
                if value
                else browser.command("Input.dispatchKeyEvent", **_DELETE)
            )
            await browser.press("Enter")
            await browser.waitForText(text)
            if "so far" in text:
                await browser.tabTo("Search further")
                await browser.press("Enter")
                await browser.waitForText("122 found, in 122 events")
        await self.judge("search")

    async def test_droppedDocumentIsFoundByItsHash(self) -> None:
        """A file that is dropped or chosen is hashed in the browser: its hash is asked for, and
        nothing else of it is sent."""
        await self.open("--find", page="#search")
        browser = self.browser
        await self.daemon.call("/rest/open", topic="orders")
        fields: dict[str, Any] = {"topic": "orders", "content": "the contract"}
        await self.daemon.call("/rest/publish", **fields)
        await browser.waitForText("Is this document on the log?")
        await browser.evaluate(GIVE_FILES)
        await browser.evaluate("drop('contract.txt', 'the contract')")
        await browser.waitForText("contract.txt is on the log: 1 found")
        await browser.waitFor("document.querySelector('.events a.name').innerText === 'orders'")
        await browser.evaluate("choose('note.txt', 'another text')")
        await browser.waitForText("note.txt was not found")
        await browser.waitForText("That proves nothing")
        sent = json.loads(await browser.evaluate("JSON.stringify(sent)"))
        asked = [each for each in sent if "/rest/find" in each]
        hashes = [sha256(each).hexdigest() for each in (b"the contract", b"another text")]
        self.assertEqual(len(asked), 2)
        for text, hash in zip(asked, hashes, strict=True):
            self.assertIn(f"hash={hash}", text)
        for each in sent:
            self.assertNotIn("contract", each)
            self.assertNotIn("another", each)
        await self.judge("document")

    async def test_lostConnectionIsNoLastWord(self) -> None:
        """Reading on can be tried again, and an error of one page is not shown on another."""
        await self.open()
        browser = self.browser
        await self.publish("orders/zurich", 60)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText('"number":59')
        await browser.command("Network.enable")
        lost = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await browser.command("Network.emulateNetworkConditions", **lost)
        await browser.tabTo("More events")
        await browser.press("Enter")
        await browser.waitForText("The broker does not answer")
        await browser.command("Network.emulateNetworkConditions", **{**lost, "offline": False})
        await browser.tabTo("More events")
        await browser.press("Enter")
        await browser.waitForText('"number":0')
        await browser.command("Network.emulateNetworkConditions", **lost)
        await browser.evaluate("location.hash = '#event'")
        await browser.waitForText("dynamically imported module")
        await browser.command("Network.emulateNetworkConditions", **{**lost, "offline": False})
        await browser.evaluate("location.hash = '#topics'")
        await browser.waitForText("1 of 1 topics")
        await browser.waitFor("document.querySelector('.error') === null")

    async def test_badHeightsComeToRest(self) -> None:
        """A height that is no number is told, and nothing is asked for."""
        await self.open()
        browser = self.browser
        await browser.waitForText("Transactions a second")
        for given in ("abc", "-1", "1e3", "NaN", "9" * 16, ""):
            await browser.evaluate(f"location.hash = '#block?height={given}'")
            await browser.waitForText(f"“{given}” is no height of a block")
        asked = "performance.getEntriesByType('resource').map(({ name }) => name)"
        for name in await browser.evaluate(asked):
            self.assertNotIn("blockList", name)
        await self.publish("orders/zurich", 1)
        await browser.evaluate("location.hash = '#block?height=1'")
        await browser.waitForText("Header")
        self.assertEqual(browser.problems, [])

    async def test_unknownPagesAreTheOverview(self) -> None:
        """Also those whose names all objects have."""
        await self.open()
        browser = self.browser
        for name in ("nothing", "__proto__", "constructor", "toString"):
            await browser.open("about:blank")
            await browser.open(f"{self.daemon.base}/console#{name}")
            await browser.waitForText("Transactions a second")
            await browser.evaluate("location.hash = '#topics'")
            await browser.waitForText("Search")
            await browser.evaluate(f"location.hash = '#{name}'")
            await browser.waitForText("Transactions a second")
        self.assertEqual(browser.problems, [])

    async def test_pageOpenedInBackgroundIsReadOnceItIsSeen(self) -> None:
        """A page that cannot be seen asks for nothing."""
        await self.open()
        browser = self.browser
        await self.publish("orders/zurich", 1)
        await browser.open("about:blank")
        await browser.command(
            "Page.addScriptToEvaluateOnNewDocument",
            source="Object.defineProperty(document, 'hidden', { get: () => !window.isSeen })",
        )
        await browser.open(f"{self.daemon.base}/console#topics")
        await browser.waitForText("Search")
        asked = "performance.getEntriesByType('resource').filter(({ name }) => /list/.test(name))"
        self.assertEqual(await browser.evaluate(f"{asked}.length"), 0)
        await browser.evaluate(
            "window.isSeen = true, document.dispatchEvent(new Event('visibilitychange'))"
        )
        await browser.waitForText("1 of 1 topics")

    async def test_pageSurvivesARestart(self) -> None:
        """It keeps what it shows, says in one line that nobody answers, and goes on by itself."""
        await self.open(page="#topics", ledger="pbft:nodes=4", http=AGAIN)
        browser = self.browser
        await self.publish("orders/zurich", 1)
        await browser.evaluate("location.hash = '#overview'")
        height = "document.querySelector('.figure .value')?.innerText"
        await browser.waitFor(f"{height} === '2'")
        port = self.daemon.base.split(":")[2].split("/")[0]
        await self.daemon.stop()
        await browser.waitForText("The broker does not answer.")
        self.assertEqual(await browser.evaluate(height), "2")
        self.assertIsNone(await browser.evaluate("document.querySelector('.error')"))
        await self.judge("away", isAway=True)
        http = AGAIN.replace(":0:", f":{port}:")
        self.daemon = await self.start(ledger="pbft:nodes=4", http=http)
        await self.publish("orders/zurich", 1)
        await browser.waitFor(f"{height} === '3'")
        await browser.waitFor("!document.body.innerText.includes('The broker does not answer.')")

    async def test_timeOfAnAbsenceIsLeftOut(self) -> None:
        """The last minute of replicas shows nothing for the time in which the broker was away."""
        await self.open(page="#replicas", ledger="pbft:nodes=4", http=AGAIN)
        browser = self.browser
        lanes = "document.querySelectorAll('rect.lane').length"
        await browser.waitFor(f"{lanes} === 4")
        port = self.daemon.base.split(":")[2].split("/")[0]
        await self.daemon.stop()
        await browser.waitForText("The broker does not answer.")
        await browser.evaluate("{ const now = Date.now; Date.now = () => now() + 10000; }")
        http = AGAIN.replace(":0:", f":{port}:")
        self.daemon = await self.start(ledger="pbft:nodes=4", http=http)
        await browser.waitFor("!document.body.innerText.includes('The broker does not answer.')")
        await browser.waitFor(f"{lanes} === 8")

    async def test_topicShowsEventsAsTheyCome(self) -> None:
        """The log is read page by page, from an id on, in each format; new events are followed."""
        await self.open()
        browser = self.browser
        await self.publish("orders/basel", 0)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fbasel'")
        await browser.waitForText("No events.")
        await self.daemon.call("/rest/publish", topic="orders/basel", content="number one")
        await browser.waitForText("number one")
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
        fields: dict[str, Any] = {"topic": "orders/zurich", "content": "\u00e9", "svc-unit": "C"}
        await self.daemon.call("/rest/publish", **fields)
        await browser.waitForText("Events that have come: 1")
        await browser.waitForText("svc-unit C")
        await browser.waitFor("document.querySelector('.facts dd').innerText === '61'")
        await browser.tabTo("Pause")
        await browser.press("Enter")
        await self.daemon.call("/rest/publish", **{**fields, "content": "while paused"})
        await browser.waitForText("paused; 1 have come since")
        await browser.tabTo("Go on")
        await browser.press("Enter")
        await browser.waitForText("while paused")
        # What a browser would round or drop is shown as it was published, and no text as bytes.
        for content, shown in (
            ('{"id": 12345678901234567890}', '{"id": 12345678901234567890}'),
            ('{"paid": 1.10, "paid": 2}', '{"paid": 1.10, "paid": 2}'),
            ("a\0b", "000000  61 00 62"),
        ):
            await self.daemon.call("/rest/publish", **{**fields, "content": content})
            await browser.waitForText(shown)
        await self.judge("topic")
        choose = (
            "(name, value) => { const field = document.querySelector(name); field.value = value;"
            " field.dispatchEvent(new Event('change', { bubbles: true })); }"
        )
        await browser.evaluate(f"({choose})('.title select', 'hex')")
        await browser.waitForText("000000  c3 a9")
        await browser.evaluate(f"({choose})('[name=kind]', 'id')")
        await browser.tabTo("Event id or height")
        await browser.type("62")
        await browser.press("Enter")
        await browser.waitFor(f"{count} === 12")

    async def test_blockShowsWhoSignedIt(self) -> None:
        """A block is found in the list, with its signers, its events and its transactions."""
        await self.open(ledger="pbft:nodes=4", page="#blocks")
        browser = self.browser
        await self.publish("orders/zurich", 3)
        await browser.waitForText("Page 1 of 1")
        await browser.tabTo("Height, or hash of a block or a transaction")
        await browser.type("2")
        await browser.press("Enter")
        await browser.waitForText("nodes have signed in round")
        await browser.waitForText("3 are a quorum")
        await browser.waitForText("orders/zurich")
        signed = "document.body.innerText.match(/\\nsigned|\\tsigned/g)?.length >= 3"
        await browser.waitFor(signed)
        await self.judge("block")
        await browser.evaluate("location.hash = '#blocks'")
        await browser.waitForText("Page 1 of 1")
        await self.judge("blocks")
        await browser.tabTo("Height, or hash of a block or a transaction")
        await browser.type("nothing")
        await browser.press("Enter")
        await browser.waitForText("This is neither a height nor a hash.")

    async def test_proofIsVerifiedInThePage(self) -> None:
        """Each step is shown; what is not trusted is not proved; a checkpoint proves, too."""
        await self.open(ledger="pbft:nodes=4")
        browser = self.browser
        await self.publish("orders/zurich", 3)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText('"number":2')
        eventId = await browser.evaluate("document.querySelector('.event code').textContent")
        await browser.tabTo(eventId)
        await browser.press("Enter")
        await browser.waitForText("This is what this broker says its genesis is.")
        await browser.waitForText("It leads to the genesis that this broker has told.")
        await browser.waitForText("proved: this is what was published")
        self.assertEqual(
            await browser.evaluate("document.querySelectorAll('.steps .good').length"), 4
        )
        await self.judge("event")
        await browser.tabTo("Add to the bundle")
        await browser.press("Enter")
        await browser.waitForText("Remove from the bundle")
        await browser.waitForText(f"svcbroker proof bundle --url {self.daemon.base}/ {eventId}")
        await self.judge("basket")
        bundle = await browser.evaluate(_BUNDLE)
        found = Bundle.decode(b64decode(bundle))
        self.assertEqual(list(found.proofs), [eventId])
        found.verify(Policy.parse(found.policy))
        await browser.tabTo("Make a bundle")
        await browser.press("Enter")
        await browser.waitForText("Done.")
        field = "What you trust: the hash of the genesis, or a checkpoint, HEIGHT:HASH"
        checkpoint = (await self.daemon.call("/rest/checkpoint"))["checkpoint"]
        for trusted, text in (
            ("00" * 32, "it does not lead to"),
            (checkpoint, "No step rests on the word of this broker"),
        ):
            await browser.tabTo(field)
            await browser.evaluate("document.activeElement.select()")
            await browser.type(trusted)
            await browser.press("Enter")
            await browser.waitForText(text)
        shown = await browser.evaluate("document.querySelector('.steps').textContent")
        self.assertIn("leads to " + checkpoint, shown)
        self.assertEqual(browser.problems, [])

    async def test_erasedEventsHaveTheirLine(self) -> None:
        """On the pages of the topic, of the block, and of the proof."""
        await self.open(ledger="pbft:nodes=4")
        browser = self.browser
        await self.publish("orders/zurich", 2)
        page = await self.daemon.call("/rest/events", topic="orders/zurich")
        eventId = page["events"][0]["eventId"]
        command = ("-m", "svcbroker.commands", "erase", self.dataDir, "--reason", "request 17")
        erasing = self.spawn(sys.executable, *command, eventId)
        self.assertEqual(await erasing.exits(), 0)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText('"number":1')
        await browser.waitForText(": request 17")
        self.assertEqual(
            await browser.evaluate("document.querySelectorAll('.events .event').length"), 2
        )
        await self.judge("erased")
        await browser.evaluate(f"location.hash = '#block?height={eventId.split('-')[2]}'")
        await browser.waitForText("Block 2")
        await browser.waitForText(": request 17")
        await browser.waitForText("nodes have signed in round")
        await browser.evaluate(f"location.hash = '#event?id={eventId}'")
        await browser.waitForText("This is what this broker says its genesis is.")
        await browser.waitForText("with a content that was erased since")
        await browser.waitForText(": request 17")
        await self.judge("erased-event")

    async def test_receiptsAreShownWithTheTopic(self) -> None:
        """Who has signed up to which event, who is expected and silent, and what that proves."""
        await self.open(ledger="pbft:nodes=1")
        browser, topic = self.browser, "orders/zurich"
        await self.publish(topic, 3)
        page = await self.daemon.call("/rest/events", topic=topic)
        second = page["events"][1]["eventId"]
        makeKeyFile(self.root / "ann")
        for arguments in (
            ("topic", "recipients", topic, "ann,bob"),
            ("receipt", topic, second, *self.signing("ann")),
        ):
            code, _, errors = await self.outcomeOf(*arguments, "--url", self.daemon.base)
            self.assertEqual(code, 0, errors)
        chain = page["events"][0]["eventId"]
        for content in ("no receipt", f'{{"format": "svcbroker/receipt/1", "chain": "{chain}"}}'):
            await self.daemon.call("/rest/publish", topic="receipts/ann", content=content)
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText("Silence proves nothing")
        rows = await browser.evaluate(
            "[...document.querySelectorAll('section table tbody tr')].map((row) => row.innerText)"
        )
        found = [" ".join(each.split()) for each in rows]
        self.assertEqual(len(found), 2, found)
        self.assertIn(f"receipts/ann {second} processed", found[0])
        self.assertTrue(found[0].endswith(" 1"), found)
        self.assertIn("receipts/bob has signed nothing", found[1])
        await self.judge("receipts")

    def signing(self, name: str) -> tuple[object, ...]:
        """The options that sign receipts in the name of somebody."""
        return "--key", self.root / name, "--receipts-topic", f"receipts/{name}"

    async def test_closedEventsAreShownAsClosed(self) -> None:
        """With their size, on the pages of the topic and of the event."""
        await self.open(ledger="pbft:nodes=4")
        content = "age-encryption.org/v1 and more"
        closed: dict[str, Any] = {
            "topic": "orders/zurich",
            "svc-encrypted": "age",
            "content": content,
        }
        await self.daemon.call("/rest/open", topic="orders/zurich")
        sent = await self.daemon.call("/rest/publish", **closed)
        browser = self.browser
        for place in ("topic?name=orders%2Fzurich", f"event?id={sent['eventId']}"):
            await browser.evaluate(f"location.hash = '#{place}'")
            await browser.waitForText("closed to recipients, 30 bytes")
            shown = await browser.evaluate("document.body.innerText")
            self.assertNotIn(content, shown)
        self.assertEqual(browser.problems, [])

    async def give(self, name: str, text: str) -> None:
        """Choose a file in the field for identities."""
        await self.browser.evaluate(
            f"""(() => {{
                const transfer = new DataTransfer();
                transfer.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
                const input = document.querySelector("input[type=file]");
                input.files = transfer.files;
                input.dispatchEvent(new Event("change", {{ bubbles: true }}));
            }})()"""
        )

    async def fill(self, name: str, text: str) -> None:
        """Fill in a field of the form that publishes."""
        place = f"document.querySelector('textarea[name={name}]')"
        await self.browser.evaluate(f"void ({place}.value = {json.dumps(text)})")

    async def test_closedEventsAreMadeAndOpenedInThePage(self) -> None:
        """
        What the page closes the clients open, and the other way round. Neither a content nor the
        identity leaves the page.
        """
        needPackage("pyrage", "encryption")
        self.daemon = await self.start(ledger="pbft:nodes=4")
        at = urlsplit(self.daemon.base)
        relay = Relay(at.hostname or "", at.port or 0)
        listening = reactor.listenTCP(0, relay, interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        await self.daemon.call("/rest/open", topic="orders/zurich")
        self.browser = browser = Chromium()
        await browser.start()
        self.addCleanup(browser.stop)
        port = listening.getHost().port
        await browser.open(f"http://127.0.0.1:{port}{at.path}/console#topic?name=orders%2Fzurich")
        await browser.waitForText("Close to recipients")
        ours, theirs = '{"canary":"q9w2-closed ü"}', '{"canary":"q9w2-theirs"}'
        await self.fill("content", ours)
        await self.fill("recipients", "bank age1wrong")
        submit = "document.querySelector('textarea[name=content]').form.requestSubmit()"
        await browser.evaluate(submit)
        await browser.waitForText("A line is no recipient: age1…")
        await self.fill("recipients", f"# ours\nbank {RECIPIENT}\n")
        await browser.evaluate(submit)
        await browser.waitForText("final")
        with Client(self.daemon.base, identities=[IDENTITY], recipients=[RECIPIENT]) as client:
            [event] = await deferToThread(lambda: [*client.events("orders/zurich")])
            sent = await deferToThread(client.publish, "orders/zurich", theirs)
        self.assertEqual((type(event), event.content.decode()), (OpenedEvent, ours))
        self.assertEqual(event.extensions["svc-padding"], "spaces")
        with Client(self.daemon.base, recipients=[newIdentity()[1]]) as client:
            await deferToThread(client.publish, "orders/zurich", "canary q9w2-others")
        await browser.evaluate("location.hash = '#topics'")
        await browser.waitFor("!document.querySelector('textarea[name=content]')")
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText("Identity that opens closed events")
        await self.give("wrong.id", "nothing")
        await browser.waitForText("This is no file with identities")
        await self.give("bank.id", f"# mine\n{SECRET}\n")
        for text in ("q9w2-closed ü", "q9w2-theirs", "The identity does not open it."):
            await browser.waitForText(text)
        await self.judge("closed-topic")
        # It is not asked for again on the next page of this tab, and is forgotten on request.
        await browser.evaluate(f"location.hash = '#event?id={sent.eventId}'")
        await browser.waitForText("q9w2-theirs")
        await browser.waitForText("closed to recipients in the log,")
        await self.judge("closed-event")
        await browser.evaluate(
            "[...document.querySelectorAll('button')].find((each) =>"
            " each.textContent === 'Forget the identity').click()"
        )
        await browser.waitFor("!document.body.innerText.includes('q9w2-theirs')")
        passed = b"".join(relay.seen)
        self.assertTrue(isIn(b"age-encryption.org", passed))
        for secret in (
            b"q9w2-closed",
            b"q9w2-theirs",
            b"q9w2-others",
            SECRET.encode(),
            SECRET[20:50].encode(),
        ):
            self.assertFalse(isIn(secret, passed), secret)
        self.assertEqual(browser.problems, [])

    async def test_closedEventsThatAreDamagedStayClosed(self) -> None:
        """Each has its reason, none holds the page, and the others are opened."""
        await self.open(ledger="memory")
        vectors = json.loads(VECTORS.read_text("ascii"))
        await self.daemon.call("/rest/open", topic="a")
        bad = vectors["badContents"]
        with Client(self.daemon.base) as client:
            for each in [*bad, *vectors["contents"]]:
                content = b64decode(each["closed"])
                await deferToThread(client.publish, "a", content, each["extensions"])
        browser = self.browser
        await browser.evaluate("location.hash = '#topic?name=a'")
        await browser.waitForText("Identity that opens closed events")
        await self.give("bank.id", vectors["identity"])
        count = len(vectors["contents"])
        await browser.waitFor(
            "document.body.innerText.split('opened in this page').length - 1 === " + str(count)
        )
        reasons = "|".join(
            (
                "It is damaged, or no file of age",
                "The identity does not open it.",
                "Its header is too large.",
                "It is closed by something else than age.",
            )
        )
        await browser.waitFor(
            f"document.body.innerText.split(/{reasons}/).length - 1 === {len(bad)}"
        )
        self.assertEqual(browser.problems, [])

    async def test_subscriptionsAreManaged(self) -> None:
        """A webhook is paused and skips an event; the position of a session is reset."""
        await self.open("--webhook-allow=127.0.0.0/8", f"--mqtt={LOCAL}")
        browser = self.browser
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        await deferToThread(leaveSession, port, b"reader", b"orders/#")
        # No one listens there.
        gone = "http://127.0.0.1:1/hook"
        await self.daemon.call("/rest/open", topic="orders/zurich")
        await self.daemon.call("/rest/subscribe", topic="orders/#", url=gone)
        await self.publish("orders/zurich", 3)
        await browser.evaluate("location.hash = '#subscriptions'")
        await browser.waitForText("127.0.0.1:1")
        await browser.waitForText("failures")
        await browser.waitForText("blocks behind")
        await browser.waitFor("document.querySelectorAll('table').length === 3")
        await self.judge("clients")
        await browser.tabTo("Skip event 127.0.0.1:1")
        first = await browser.evaluate("document.querySelector('td:nth-child(6) code').textContent")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("Done.")
        await browser.waitFor(f"!document.body.innerText.includes({first!r})")
        await browser.tabTo("Pause 127.0.0.1:1")
        await browser.press("Enter")
        await browser.waitForText("paused")
        await browser.tabTo("Reset reader")
        await browser.press("Enter")
        await browser.waitForText("Resume at")
        await self.judge("reset")
        await browser.tabTo("Reset")
        await browser.press("Enter")
        await browser.waitForText("at the end")
        await browser.tabTo("Delete reader")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("There are none.")

    async def test_longListsTellThatThereIsMore(self) -> None:
        """No list looks complete that is not."""
        await self.open("--webhook-allow=127.0.0.0/8", f"--mqtt={LOCAL}")
        browser = self.browser
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        await self.daemon.call("/rest/open", topic="orders/zurich")
        for number in range(2):
            await deferToThread(leaveSession, port, b"reader%d" % number, b"orders/#")
            hook = f"http://127.0.0.1:1/{number}"
            await self.daemon.call("/rest/subscribe", topic="orders/#", url=hook)
        page = f"{self.daemon.base}/console#subscriptions"
        await browser.open("about:blank")
        await browser.open(page)
        await browser.waitForText("reader1")
        await browser.waitForText("127.0.0.1:1")
        found = "document.body.innerText.match(/There are more than these 1/g)?.length"
        self.assertIsNone(await browser.evaluate(found))
        await browser.command(
            "Page.addScriptToEvaluateOnNewDocument",
            source="""
            const whole = window.fetch;
            window.fetch = (url, options) =>
                whole(String(url).replace("limit=1000", "limit=1"), options);
            """,
        )
        await browser.open("about:blank")
        await browser.open(page)
        await browser.waitFor(f"{found} === 2")


class AccountTests(ConsoleTestCase):
    """
    The log-in.
    """

    async def test_accountLogsInByKeyboard(self) -> None:
        """It sees what it may see, and is asked to log in again when the session has ended."""
        accounts = self.root / "accounts.toml"
        accounts.write_text(
            f"""
            [accounts.ann]
            password = "{hashPassword(b"secret of ann")}"
            roles = ["orders"]
            [roles.orders]
            grants = ["open 1 orders/#", "publish 1 orders/#", "subscribe 1 orders/#"]
            """
        )
        await self.open(f"--accounts={accounts}")
        browser = self.browser
        await browser.waitFor("document.activeElement.name === 'name'")
        await self.judge("login")
        await browser.type("ann")
        await browser.press("Tab")
        await browser.type("wrong")
        await browser.press("Enter")
        await browser.waitForText("The account or the password is wrong.")
        await browser.type("secret of ann")
        await browser.press("Enter")
        await browser.waitForText("Log out")
        await browser.waitForText("are shown to accounts with the grant admin")
        links = "[...document.querySelectorAll('nav a')].map((each) => each.innerText)"
        shown = await browser.evaluate(links)
        self.assertIn("Topics", shown)
        self.assertNotIn("Blocks", shown)
        self.assertNotIn("Configuration", shown)
        await browser.evaluate("location.hash = '#topics'")
        await browser.waitForText("0 of 0 topics")
        await browser.tabTo("Name")
        await browser.type("orders/zurich")
        await browser.press("Enter")
        await browser.waitForText("1 of 1 topics")
        await browser.evaluate("location.hash = '#topic?name=orders%2Fzurich'")
        await browser.waitForText("Address")
        await browser.tabTo("Follow")
        await browser.press("Enter")
        await browser.waitForText("connected")
        browser.problems.clear()
        await self.judge("granted")
        # What is not granted is neither linked nor asked for: a refusal is an event.
        link = "document.querySelector('a[href^=\"#block\"]')"
        self.assertIsNone(await browser.evaluate(link))
        for page in ("block?height=1", "blocks", "replicas"):
            await browser.evaluate(f"location.hash = {page!r}")
            await browser.waitForText("are shown to accounts with the grant admin")
            await browser.evaluate("location.hash = '#search'")
            await browser.waitForText("Text in the content")
        self.assertEqual(browser.problems, [])
        # The session ends elsewhere.
        await browser.evaluate("fetch('console/session', { method: 'DELETE' })")
        await browser.evaluate("location.hash = '#topics'")
        await browser.waitForText("Password or token")


def leaveSession(port: int, clientId: bytes, filter: bytes) -> None:
    """Leave a session of MQTT 3.1.1 with a subscription behind."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
        name, topic = (len(each).to_bytes(2, "big") + each for each in (clientId, filter))
        connect = b"\x00\x04MQTT\x04\x00\x00\x3c" + name
        subscribe = b"\x00\x01" + topic + b"\x01"
        for kind, packet, answer in ((0x10, connect, 4), (0x82, subscribe, 5)):
            connection.sendall(bytes([kind, len(packet)]) + packet)
            connection.recv(answer, socket.MSG_WAITALL)
