"""
Pages that show a broker at work: the commands of one section each are run, and have to print what
the page shows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import frozen
from twisted.internet.utils import getProcessOutputAndValue

from tests.needed import neededProgram

from .daemon import LOCAL, DaemonTestCase

DOCS = Path(__file__).parents[2] / "docs"
START = "svcbroker run"
ADDRESS = "127.0.0.1:8080"

_BLOCK = re.compile(r"^\.\. code-block:: console\n\n((?: {3}.*\n|\n)+)", re.MULTILINE)
_EVENT_ID = re.compile(r"\b[0-9a-f]{8}(-\d+-)\d+\b")


@frozen
class Shown:
    """
    A command that a page shows.

    @ivar command: what is typed; a line that ends in a backslash goes on in the next one.
    @ivar output: what the page says that it prints.
    """

    command: str
    output: str


def shownIn(page: str, title: str) -> list[Shown]:
    """The commands of one section of a page."""
    text = (DOCS / page).read_text("utf-8")
    start = re.search(rf"^{re.escape(title)}\n[=-]+\n", text, re.MULTILINE)
    assert start is not None, f"{page} has no section {title!r}"
    section = re.split(r"^[^\n]+\n[=-]+\n", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    found: list[list[str]] = []
    isOpen = False
    for block in _BLOCK.findall(section):
        for line in block.rstrip().splitlines():
            text = line.removeprefix("   ")
            if text.startswith("$ "):
                found.append([text.removeprefix("$ "), ""])
            else:
                found[-1][0 if isOpen else 1] += f"\n{text}"
            isOpen = text.endswith("\\") and (text.startswith("$ ") or isOpen)
    return [Shown(command, output.strip()) for command, output in found]


def normal(text: str) -> str:
    """A text without what differs from run to run: the chain and the heights in ids of events."""
    return _EVENT_ID.sub(r"CHAIN\1HEIGHT", text).strip()


class PageTests(DaemonTestCase):
    """
    One section of each page, from the start of a broker on.
    """

    async def test_sectionOfEmqxPrintsWhatItShows(self) -> None:
        """Publishing, reading from the first event, retained messages and shared subscriptions."""
        neededProgram("mosquitto_sub")
        await self.follow("coming-from.rst", "Try it with the clients that you have", 5)

    async def test_requestsOfWaysInPrintWhatTheyShow(self) -> None:
        """A record that comes twice is published once, and a refusal has status 200."""
        neededProgram("curl")
        await self.follow("ways-in.rst", "The requests of all recipes", 6)

    async def follow(self, page: str, title: str, atLeast: int) -> None:
        """Run each command of a section, and compare what it prints."""
        shown = shownIn(page, title)
        self.assertGreaterEqual(len(shown), atLeast)
        self.assertEqual(shown[0], Shown(START, ""))
        daemon = await self.start(f"--mqtt={LOCAL}", ledger="pbft:nodes=4")
        found = await daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)")
        address = daemon.base.removeprefix("http://").removesuffix("/svcbroker")
        script = "set -e -o pipefail\n"
        for each in shown[1:]:
            command = re.sub(r"\bmosquitto_(pub|sub)\b", rf"\g<0> -p {found[1]}", each.command)
            command = command.replace(ADDRESS, address)
            if re.fullmatch(r"[A-Z]\w*=\S+", command):
                script += command + "\n"
                continue
            output = await self.bash(script + command, daemon.base)
            self.assertEqual(normal(output), normal(each.output), each.command)
        self.assertEqual(await daemon.stop(), 0)

    async def bash(self, script: str, url: str) -> str:
        """What a script prints; it must succeed."""
        bash = neededProgram("bash")
        ours = f'svcbroker() {{ {self.python()} -m svcbroker.commands "$@"; }}\n'
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": self.environment["PYTHONPATH"],
            "SVCBROKER_URL": url,
            "XDG_CONFIG_HOME": str(self.root),
        }
        output, errors, code = await getProcessOutputAndValue(
            bash, ["-c", ours + script], env=environment, path=str(self.root)
        )
        self.assertEqual((code, errors.decode()), (0, ""), script)
        text: str = output.decode("utf-8")
        return text
