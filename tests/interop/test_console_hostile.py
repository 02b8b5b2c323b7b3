"""
Hostile names and contents in every view of the console: nothing of them is run.
"""

from __future__ import annotations

import json
import socket
import sys
from base64 import b64encode
from typing import Any, Final

from twisted.internet.threads import deferToThread

from svcbroker.access import hashPassword
from tests.functional.daemon import LOCAL, TIMEOUT

from .test_console import GIVE_FILES, ConsoleTestCase, leaveSession

_SCRIPT: Final = "<img src=x onerror=window.hit=1>"
TOPICS: Final = (
    _SCRIPT,
    '"><svg onload=window.hit=1>',
    "'\"><script>window.hit=1</script>",
    "javascript:window.hit=1",
    "__proto__",
    "constructor",
    "{count}$&$`",
    "&lt;b&gt;",
    "x" * 256,
)
CONTENTS: Final = (
    b"<!doctype html><script>window.hit=1</script>",
    b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=1'/>",
    b'{"__proto__": {"hit": 1}, "constructor": "<script>window.hit=1</script>"}',
    b"\x89PNG\r\n\x1a\n<script>window.hit=1</script>",
    "\u202egnp.exe \u2066\u200b".encode(),
    b"a\0b<script>window.hit=1</script>",
    b"\xff\xfe",
    b"W" * 20_000,
    b"[" * 5_000,
)
_RTL: Final = "\u202etxt.<b>hit"
_TYPES: Final = ("text/html", "image/svg+xml", "application/json", "image/png")
PAGES: Final = {
    "overview": "svcbroker 0",
    "topics": "javascript:window.hit=1",
    "search?topic=%23": "Search",
    "blocks": "Page 1 of",
    "replicas": "of the latest block",
    "subscriptions": "onerror",
    "accounts": "onerror",
    "checkpoints": "consistent",
    "operations": "svcbroker chain audit",
    "operations?events=<script>window.hit=1</script>": "svcbroker chain audit",
    "configuration": "Configuration file",
    "<script>window.hit=1</script>": "Overview",
    "topic?name=<script>window.hit=1</script>": "(error ",
    "block?height=<script>window.hit=1</script>": "is no height of a block",
    "event?id=<script>window.hit=1</script>": "no id of an event",
}
"""The views that take no name of something that is there, each with a text that it shows."""

_FOREIGN: Final = """
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const found = [
    ...all("main script, main iframe, main object, main [onload], main [onerror]"),
    ...all("main img").filter(({ src }) => !src.startsWith("data:image/")),
    ...all("a").filter(({ protocol }) => !["http:", "blob:"].includes(protocol)),
  ];
  return found.map((each) => each.outerHTML.slice(0, 200));
})()
"""


class HostileTests(ConsoleTestCase):
    """
    A broker whose clients and accounts would like to run a script in the page of an operator.
    """

    async def test_nothingHostileRunsInAnyView(self) -> None:
        """Nor makes a page wider than a phone, nor is the state of the page changed."""
        await self.begin()
        ids = await self.publishHostile()
        browser = self.browser
        await browser.resize(390)
        for page, text in PAGES.items():
            await self.look(page, text)
        for topic in TOPICS:
            await self.look(f"topic?name={topic.replace('&', '%26')}", "Address")
        for eventId in ids:
            await self.look(f"event?id={eventId}", "The proof")
            await self.look(f"block?height={eventId.split('-')[2]}", "nodes have signed")
        await self.look(f"event?id={self.erased}", "with a content that was erased since")
        await self.look(f"event?id={self.closed}", "closed to recipients, 95 bytes")
        await self.look("topic?name=receipted", "Silence proves nothing")
        await self.search()
        await self.drop()
        await self.operate()

    async def begin(self) -> None:
        """Start a daemon with hostile accounts, and log in."""
        self.accounts = accounts = self.root / "accounts.toml"
        hashed = hashPassword(b"secret")
        name = "<img_src=x_onerror=window.hit=1>"
        accounts.write_text(
            f"""
            [accounts.root]
            password = "{hashed}"
            roles = ["everything"]
            [accounts."{name}"]
            password = "{hashed}"
            roles = ["<script>window.hit=1</script>"]
            [accounts.__proto__]
            password = "{hashed}"
            [roles."<script>window.hit=1</script>"]
            grants = ["publish * {_SCRIPT}"]
            """
        )
        await self.open(
            *(f"--accounts={accounts}", "--anonymous=everything", f"--mqtt={LOCAL}"),
            *("--webhook-allow=127.0.0.0/8", "--find"),
            ledger="pbft:nodes=4",
        )
        browser = self.browser
        await browser.waitForText("Log in")
        await browser.tabTo("Log in")
        await browser.press("Enter")
        await browser.waitFor("document.activeElement.name === 'name'")
        await browser.type("root")
        await browser.press("Tab")
        await browser.type("secret")
        await browser.press("Enter")
        await browser.waitForText("Log out")

    async def publishHostile(self) -> list[str]:
        """Publish and subscribe with hostile names; the ids of the events of all contents."""
        ids = []
        for topic in TOPICS:
            await self.daemon.call("/rest/open", topic=topic)
            await self.daemon.rpc(
                "publish", topic=topic, content="eA==", extensions={"svc-tag": _RTL}
            )
        for number, content in enumerate(CONTENTS):
            type = _TYPES[number % len(_TYPES)]
            attributes = {"id": _SCRIPT, "source": "/", "specversion": "1.0", "type": _RTL}
            cloud = json.dumps({**attributes, "datacontenttype": type})
            fields: dict[str, Any] = {
                "topic": TOPICS[number],
                "content": b64encode(content).decode(),
                "extensions": {"svc-tag": _SCRIPT, "svc-ce": cloud, "svc-__proto__": "x" * 2000},
                "idempotencyKey": _SCRIPT.replace(" ", "_") + str(number),
            }
            answer = await self.daemon.rpc("publish", **fields)
            ids.append(answer["result"]["eventId"])
        await self.subscribeHostile()
        self.closed = await self.publishMore()
        self.erased = ids.pop()
        command = ("-m", "svcbroker.commands", "erase", self.dataDir, "--reason", _SCRIPT + _RTL)
        erasing = self.spawn(sys.executable, *command, self.erased)
        self.assertEqual(await erasing.exits(), 0, erasing.protocol.errors)
        return ids

    async def publishMore(self) -> str:
        """What is no receipt, for a topic with recipients; the id of a closed event."""
        await self.daemon.call("/rest/open", topic="receipted")
        expected = ",".join((_SCRIPT, TOPICS[1], "__proto__"))
        command = ("topic", "recipients", "receipted", expected, "--url", self.daemon.base)
        code, _, errors = await self.outcomeOf(*command)
        self.assertEqual(code, 0, errors)
        topic = f"receipts/{_SCRIPT}"
        receipt = json.dumps({"format": "svcbroker/receipt/1", "chain": _SCRIPT, "event": _RTL})
        await self.daemon.call("/rest/open", topic=topic)
        await self.daemon.call("/rest/publish", topic=topic, content=receipt)
        age = b"age-encryption.org/v1\n-> " + _SCRIPT.encode() + b"\n\n--- " + _SCRIPT.encode()
        closed = {"topic": "receipted", "content": b64encode(age).decode()}
        answer = await self.daemon.rpc("publish", **closed, extensions={"svc-encrypted": "age"})
        return str(answer["result"]["eventId"])

    async def subscribeHostile(self) -> None:
        """A webhook, a session that was left behind, and a client that is connected."""
        url = "http://127.0.0.1:1/<script>window.hit=1</script>"
        await self.daemon.call(
            "/rest/subscribe", topic=_SCRIPT, url=url, maxAttempts=1, deadLetter=TOPICS[1]
        )
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        await deferToThread(leaveSession, port, _SCRIPT.encode(), _SCRIPT.encode())
        client = await deferToThread(connect, port, (_SCRIPT + _RTL).encode())
        self.addCleanup(client.close)

    async def look(self, page: str, text: str) -> None:
        """Show a page, and look at what has become of it."""
        browser = self.browser
        await browser.evaluate(f"location.hash = {json.dumps(page)}")
        await browser.waitForText(text)
        await self.unharmed(page)

    async def unharmed(self, page: str) -> None:
        """Nothing was run or made of what is shown."""
        browser = self.browser
        self.assertEqual(await browser.evaluate(_FOREIGN), [], page)
        self.assertIsNone(await browser.evaluate("window.hit ?? {}.hit ?? null"), page)
        wide = await browser.evaluate("document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wide, 0, page)
        self.assertEqual(browser.problems, [], page)

    async def search(self) -> None:
        """Search for extensions whose names all objects have."""
        browser = self.browser
        await browser.evaluate("location.hash = '#search'")
        await browser.waitForText("Extension")
        for name, text in (
            ("__proto__", "0 found"),
            ("svc-__proto__=x", f"{len(CONTENTS)} found"),
        ):
            field = "document.querySelector('[name=extension]')"
            await browser.evaluate(f"{field}.focus(), {field}.select()")
            await browser.type(name)
            await browser.press("Enter")
            await browser.waitForText(text)
        await self.unharmed("search")

    async def drop(self) -> None:
        """A document with a hostile name and content, which is on the log."""
        browser, content = self.browser, CONTENTS[0].decode()
        await browser.evaluate(GIVE_FILES)
        await browser.evaluate(f"drop({json.dumps(_SCRIPT + _RTL)}, {json.dumps(content)})")
        await browser.waitForText("is on the log: 1 found")
        await self.unharmed("document")

    async def operate(self) -> None:
        """The doctor, and the difference of a reload, with accounts of hostile names."""
        browser = self.browser
        await browser.evaluate("location.hash = '#operations'")
        for button, text in (("Look now", "done: "), ("Show what would change", _SCRIPT)):
            await browser.tabTo(button)
            await browser.press("Enter")
            await browser.waitForText(text)
            await self.unharmed(button)
            self.accounts.write_text(f'[accounts."{_SCRIPT}"]\nroles = ["{_RTL}"]\n')


def connect(port: int, clientId: bytes) -> socket.socket:
    """A client of MQTT 3.1.1 that has connected and subscribed."""
    client = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    name, topic = (len(each).to_bytes(2, "big") + each for each in (clientId, _SCRIPT.encode()))
    connect = b"\x00\x04MQTT\x04\x02\x00\x00" + name
    subscribe = b"\x00\x01" + topic + b"\x00"
    for kind, packet, answer in ((0x10, connect, 4), (0x82, subscribe, 5)):
        client.sendall(bytes([kind, len(packet)]) + packet)
        client.recv(answer, socket.MSG_WAITALL)
    return client
