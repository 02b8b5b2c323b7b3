"""
Chromium, driven by the DevTools protocol over its pipe.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from itertools import count
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests.functional.daemon import TIMEOUT, reactor
from tests.needed import neededProgram

_KEYS: Final = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), "Space": (" ", 32, " ")}
_INTERVAL: Final = 0.05
_TO_BROWSER, _FROM_BROWSER = 3, 4


class PageError(Exception):
    """A command of the protocol, or a script in the page, has failed."""


class Chromium(ProcessProtocol):
    """
    A browser with one page.

    @ivar problems: what the page has logged as errors: violations of its policy, scripts that
        failed, answers with an error status.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.ended: Deferred[None] = Deferred()
        self._ids = count(1)
        self._unread = b""
        self._waiting: dict[int, Deferred[Any]] = {}
        self._session = ""
        self._loaded: Deferred[None] = Deferred()
        self._dialog: Deferred[None] = Deferred()

    async def start(self, profile: Path) -> None:
        """
        Start it.

        @raise SkipTest: it is not installed.
        """
        program = neededProgram("chromium")
        self.process = reactor.spawnProcess(
            self,
            program,
            [
                *(program, "--headless", "--no-sandbox", "--disable-dev-shm-usage"),
                *("--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={profile}"),
                *("--lang=en", "about:blank"),
            ],
            env={**os.environ, "LANGUAGE": "en"},
            childFDs={0: "w", 1: "r", 2: "r", _TO_BROWSER: "w", _FROM_BROWSER: "r"},
        )
        while not (pages := await self._pages()):
            await deferLater(reactor, _INTERVAL)
        attached = await self.command("Target.attachToTarget", targetId=pages[0], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")

    async def _pages(self) -> list[str]:
        targets = await self.command("Target.getTargets")
        return [each["targetId"] for each in targets["targetInfos"] if each["type"] == "page"]

    def stop(self) -> Deferred[None]:
        """End it."""
        self.process.signalProcess("KILL")
        return self.ended

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if childFD == _FROM_BROWSER:
            *messages, self._unread = (self._unread + data).split(b"\0")
            for message in messages:
                self._received(json.loads(message))

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)

    def _received(self, message: dict[str, Any]) -> None:
        if "id" in message:
            waiting = self._waiting.pop(message["id"])
            if "error" in message:
                waiting.errback(PageError(message["error"]["message"]))
            else:
                waiting.callback(message["result"])
        elif message["method"] == "Page.loadEventFired":
            if not self._loaded.called:
                self._loaded.callback(None)
        elif message["method"] == "Page.javascriptDialogOpening":
            self._dialog.callback(None)
        elif message["method"] == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.problems.append(f"{details['text']} {thrown}")
        elif message["method"] == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] == "error":
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    async def command(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        answer: Deferred[Any] = Deferred()
        self._waiting[number] = answer
        self.process.writeToChild(_TO_BROWSER, json.dumps(message).encode() + b"\0")
        return await answer.addTimeout(TIMEOUT, reactor)

    async def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self._loaded = Deferred()
        await self.command("Page.navigate", url=url)
        await self._loaded.addTimeout(TIMEOUT, reactor)

    async def resize(self, width: int, height: int = 900) -> None:
        """Give the window a size."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def emulate(self, **features: str) -> None:
        """Have the page see features of media: C{prefers_color_scheme="dark"}."""
        named = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        await self.command("Emulation.setEmulatedMedia", features=named)

    async def evaluate(self, script: str) -> Any:
        """
        The value of an expression in the page, which is awaited.

        @raise PageError: it fails.
        """
        answer = await self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise PageError(answer["exceptionDetails"].get("exception", {}).get("description"))
        return answer["result"].get("value")

    async def waitFor(self, script: str) -> Any:
        """The value of an expression in the page, once that is true."""
        until = reactor.seconds() + TIMEOUT
        while reactor.seconds() < until:
            value = await self.evaluate(script)
            if value:
                return value
            await deferLater(reactor, _INTERVAL)
        shown = await self.evaluate("document.body.innerText")
        raise PageError(f"never true: {script}; {self.problems}; the page shows: {shown}")

    async def waitForText(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.waitFor(f"document.body.innerText.includes({json.dumps(text)})")

    async def press(self, key: str, waits: bool = True) -> None:
        """
        Press a key: Tab, Enter or Space.

        @param waits: whether to wait until the page has handled it. A dialog holds it up.
        """
        name, code, text = _KEYS[key]
        pressed = {
            "key": name,
            "code": key,
            "windowsVirtualKeyCode": code,
        }
        for type, more in (("keyDown", {"text": text}), ("keyUp", {})):
            pressing = self.command("Input.dispatchKeyEvent", type=type, **pressed, **more)
            if waits:
                await pressing
            else:
                Deferred.fromCoroutine(pressing)

    async def accept(self) -> None:
        """Say yes to the dialog that is open, or opens now."""
        await self._dialog.addTimeout(TIMEOUT, reactor)
        self._dialog = Deferred()
        await self.command("Page.handleJavaScriptDialog", accept=True)

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
        await self.command("Input.insertText", text=text)

    async def tabTo(self, name: str) -> None:
        """Press Tab until the focus is on what has a text, a label or a name."""
        for _ in range(200):
            await self.press("Tab")
            if await self.evaluate(_FOCUSED) == name:
                return
        raise PageError(f"the keyboard does not reach {name!r}")

    async def screenshot(self, path: Path, height: int | None = None) -> None:
        """
        Write a picture of the page into a file.

        @param height: how much of it, from its top; C{None} for the whole.
        """
        size = (await self.command("Page.getLayoutMetrics"))["cssContentSize"]
        height = size["height"] if height is None else height
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1}
        shot = await self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(b64decode(shot["data"]))


_FOCUSED: Final = """
(({ activeElement: it }) => it.getAttribute("aria-label")
  ?? (it.labels?.length
    ? [...it.labels[0].childNodes].find((each) => each.nodeType === Node.TEXT_NODE).data.trim()
    : it.innerText.trim())
)(document)
"""
