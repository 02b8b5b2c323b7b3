"""
The page of a dispute, as its parties type it: on a broker and two witnesses.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue

from tests.needed import neededProgram, needPackage

from .daemon import AGAIN, LOCAL, STEP, TIMEOUT, Daemon, DaemonTestCase, reactor

PAGE = Path(__file__).parents[2] / "docs" / "story.rst"
BROKER = "127.0.0.1:8080"
WITNESS = re.compile(r"svcbroker (?:net )?witness run .*--listen (\d+)$")
INTERVAL = "--witness-interval=1"
"""Witnesses are asked at once, not after a minute."""

_BLOCK = re.compile(
    r"^\.\. code-block:: (console|text)\n\n((?: {3}.*\n|\n)+?)(?=\n*(?:\S|\Z))", re.MULTILINE
)
_NAMED = re.compile(r"\b[0-9a-f]{8}-\d+-\d+\b|\b[0-9a-f]{64}\b|\bage1[0-9a-z]{58}\b")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?"), "TIME"),
    (re.compile(r"\b([0-9a-f]{8}-\d+)-\d+\b"), r"\1-HEIGHT"),
    (re.compile(r"\b\d+:(?=[0-9a-f…])"), "HEIGHT:"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"\bage1[0-9a-z]{58}\b"), "RECIPIENT"),
    (re.compile(r"\+[0-9a-f]{8}\+[\w+/=…]+"), "+KEY"),
    (re.compile(r"\bsize \d+"), "size SIZE"),
    (re.compile(r"svcbroker \d\S* serves"), "svcbroker VERSION serves"),
)


@frozen
class Step:
    """
    A command of the page, or lines that the broker logs.

    @ivar command: what is typed; empty for lines of the broker's log.
    @ivar lines: what is shown of what it prints.
    """

    command: str
    lines: list[str]


def steps() -> Iterator[Step]:
    """What the page shows, in its order."""
    for kind, block in _BLOCK.findall(PAGE.read_text("utf-8")):
        lines = [line.removeprefix("   ") for line in block.rstrip().splitlines()]
        if kind == "text":
            yield Step("", lines)
            continue
        text = "\n".join(lines).replace("\\\n", "")
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *printed = part.rstrip().split("\n")
            yield Step(" ".join(command.split()), printed)


def report() -> bytes:
    """Corner's report: a PDF of one page."""
    text = b"BT /F1 14 Tf 40 90 Td (Box 4711: 9.7 degrees Celsius on arrival. Refused.) Tj ET"
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 420 180]/Contents 4 0 R"
        b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
    )
    # Bytes that no text has, by which programs tell that the file is binary.
    made, places = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj%s\nendobj\n" % (number, content)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    return made + (
        b"xref\n0 5\n0000000000 65535 f \n%strailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
        % (rows, len(made))
    )


def normal(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return " ".join(line.split())


class StoryTestCase(DaemonTestCase):
    """
    The parties of the page, on one machine.
    """

    timeout = 3 * TIMEOUT

    def setUp(self) -> None:
        super().setUp()
        self.broker: Daemon | None = None
        self.words: dict[str, str] = {}
        for program in ("bash", "python3", "tail"):
            neededProgram(program)
        needPackage("pyrage", "encryption")
        (self.root / "report.pdf").write_bytes(report())

    async def do(self, step: Step) -> None:
        """One step: what it prints has the lines that are shown, in their order."""
        command = step.command
        witness = WITNESS.match(command)
        if not command:
            assert self.broker is not None
            for line in step.lines:
                await self.broker.protocol.waitFor(self.pattern(line))
            return
        if witness is not None:
            output = await self.startWitness(command, witness[1])
        elif command.startswith("svcbroker run "):
            output = await self.startBroker(command)
        else:
            if re.search("witness list|proof bundle", command) and "frost-monday" not in command:
                await self.seen()
            output = await self.type(command)
        self.compare(step, output)

    def compare(self, step: Step, output: str) -> None:
        """Look for the lines, and keep which ids and keys stand for those of the page."""
        printed, start = output.splitlines(), 0
        for line in step.lines:
            wanted = re.compile(self.pattern(normal(line)))
            for place, found in enumerate(printed[start:], start + 1):
                if wanted.search(normal(found)):
                    named = zip(_NAMED.findall(line), _NAMED.findall(found), strict=False)
                    self.words.update(named)
                    # Witnesses stand in the order of their keys, which are drawn.
                    start = start if "cosigned by" in line else place
                    break
            else:
                self.fail(f"{step.command} does not print {line!r}, but: {output}")

    def pattern(self, line: str) -> str:
        """A regular expression for a line in which some words are left out."""
        return ".*".join(re.escape(" ".join(each.split())) for each in line.split("…"))

    async def startWitness(self, command: str, port: str) -> str:
        """Start a witness; what it logs once it is there, with the address of the page."""
        words = shlex.split(command.replace(f"--listen {port}", f"--listen {LOCAL}"))
        running = self.spawn(sys.executable, "-m", "svcbroker.commands", *words[1:])
        found = await running.protocol.waitFor(r"Witness \S+ on (127\.0\.0\.1:\d+)")
        self.words[f"127.0.0.1:{port}"] = found[1]
        return running.protocol.output.replace(found[1], f"127.0.0.1:{port}")

    async def startBroker(self, command: str) -> str:
        """Stop the broker that runs, and start the next one."""
        if self.broker is not None:
            self.assertEqual(await self.broker.stop(), 0)
        options = [f"--http={AGAIN}", "--mqtt=", "--stomp=", INTERVAL]
        words = [*shlex.split(command)[1:], *options]
        self.broker = await self.spawn(sys.executable, "-m", "svcbroker.commands", *words).serves()
        address = self.broker.base.removeprefix("http://").removesuffix("/svcbroker")
        return self.broker.protocol.output.replace(address, BROKER)

    async def seen(self) -> None:
        """Wait until each witness has signed the log as it is, or refuses it."""
        assert self.broker is not None
        while True:
            told = await self.broker.call("/rest/witnesses", groupId="1")
            if all(
                each["isRefusing"] or each["size"] == told["size"] for each in told["witnesses"]
            ):
                return
            await deferLater(reactor, STEP)

    async def type(self, command: str) -> str:
        """What a command prints, on both streams."""
        for word, value in self.words.items():
            command = command.replace(word, value)
        ours = f'svcbroker() {{ {self.python()} -m svcbroker.commands "$@"; }}\n'
        assert self.broker is not None
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": self.environment["PYTHONPATH"],
            "SVCBROKER_URL": self.broker.base,
            "XDG_CONFIG_HOME": str(self.root),
        }
        output, errors, code = await getProcessOutputAndValue(
            neededProgram("bash"), ["-c", ours + command], environment, str(self.root)
        )
        text: str = (output + errors).decode("utf-8")
        # What was found wrong ends a command with 1.
        isBad = bool(re.search("FORK REFUSED|NOT PROVED|are held and not erased", text))
        self.assertEqual(code, 1 if isBad else 0, (command, text))
        return text
