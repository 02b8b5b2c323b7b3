"""
Chromium, driven by the DevTools protocol over its pipe.

Where its headless shell is installed, that is what runs: the same engine without the windows around
a page, in half of the processor time.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import signal
import tempfile
from base64 import b64decode
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.fdesc import readFromFD
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.functional.daemon import TIMEOUT, reactor
from tests.needed import neededProgram

_KEYS: Final = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), "Space": (" ", 32, " ")}
_INTERVAL: Final = 0.05
_TO_BROWSER, _FROM_BROWSER = 3, 4

_ids = count(1)


class PageError(Exception):
    """A command of the protocol, or a script in the page, has failed."""


class _Process:
    """
    A process of Chromium, which ends with this one. The reactor does not know it, for it outlives
    tests.

    @ivar commands: where the protocol's commands are written.
    @ivar answers: where answers and events are read.
    @ivar unread: the begin of a message.
    """

    def __init__(self, program: str) -> None:
        profile = tempfile.mkdtemp(prefix="svcbroker-chromium-")
        atexit.register(shutil.rmtree, profile, ignore_errors=True)
        arguments = [
            *(program, "--headless", "--no-sandbox", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={profile}"),
            *("--lang=en", "about:blank"),
        ]
        (theirs, self.commands), (self.answers, ours) = os.pipe(), os.pipe()
        # Above the numbers that they get in the browser.
        ends = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (theirs, ours)]
        files: list[Any] = [
            (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)
        ]
        files += [(os.POSIX_SPAWN_DUP2, ends[0], _TO_BROWSER)]
        files += [(os.POSIX_SPAWN_DUP2, ends[1], _FROM_BROWSER)]
        environment = {**os.environ, "LANGUAGE": "en"}
        # The program may be a script that starts the browser: both are of one group.
        pid = os.posix_spawn(program, arguments, environment, file_actions=files, setpgroup=0)
        for each in (theirs, ours, *ends):
            os.close(each)
        os.set_blocking(self.answers, False)
        self.unread = b""

        def end() -> None:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

        atexit.register(end)


@cache
def _process(program: str) -> _Process:
    """The browser of all tests of this process: its start takes longer than most pages."""
    return _Process(program)


@implementer(IReadDescriptor)
class Chromium:
    """
    A browser with one page, whose cookies, storage and cache no other one has.

    @ivar problems: what the page has logged as errors: violations of its policy, scripts that
        failed, answers with an error status.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._waiting: dict[int, Deferred[Any]] = {}
        self._session = ""
        self._loaded: Deferred[None] = Deferred()
        self._dialog: Deferred[None] = Deferred()

    async def start(self) -> None:
        """
        Start it.

        @raise SkipTest: it is not installed.
        """
        shell = shutil.which("chromium-headless-shell")
        self._process = _process(shell or neededProgram("chromium"))
        reactor.addReader(self)
        made = await self.command("Target.createBrowserContext")
        self._context: str = made["browserContextId"]
        page = await self.command(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )
        attached = await self.command(
            "Target.attachToTarget", targetId=page["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.command(f"{domain}.enable")

    def stop(self) -> Deferred[None]:
        """Close its page, and forget what that has stored."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._session = ""
        try:
            await self.command("Target.disposeBrowserContext", browserContextId=self._context)
        finally:
            reactor.removeReader(self)

    def logPrefix(self) -> str:
        """See C{IReadDescriptor}."""
        return "Chromium"

    def fileno(self) -> int:
        """See C{IReadDescriptor}."""
        return self._process.answers

    def doRead(self) -> Any:
        """See C{IReadDescriptor}."""
        return readFromFD(self._process.answers, self._read)

    def connectionLost(self, reason: Failure) -> None:
        """The browser has ended. See C{IReadDescriptor}."""
        _process.cache_clear()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.errback(reason)

    def _read(self, data: bytes) -> None:
        *messages, self._process.unread = (self._process.unread + data).split(b"\0")
        for message in messages:
            self._received(json.loads(message))

    def _received(self, message: dict[str, Any]) -> None:
        if "id" in message:
            # A page that is gone may have been asked.
            waiting = self._waiting.pop(message["id"], None)
            if waiting is None:
                return
            if "error" in message:
                waiting.errback(PageError(message["error"]["message"]))
            else:
                waiting.callback(message["result"])
        elif message.get("sessionId") != self._session:
            return
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
        number = next(_ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        answer: Deferred[Any] = Deferred()
        self._waiting[number] = answer
        unsent = json.dumps(message).encode() + b"\0"
        while unsent:
            unsent = unsent[os.write(self._process.commands, unsent) :]
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
