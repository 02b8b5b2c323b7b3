"""
README's quick start and the tutorial on the real daemon: each command is run as it stands there,
and has to print what the page shows. Only values that differ from run to run may differ.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field, frozen
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest

from .daemon import LOCAL, OFF, SERVES, Daemon, DaemonTestCase

ROOT = Path(__file__).parents[2]
RUN = ".venv/bin/svcbroker run --pidfile svcbroker.pid"
START = ".venv/bin/twistd -n svcbroker"
KILL = "kill -9 $(cat svcbroker.pid)"
COMMAND = ".venv/bin/svcbroker"
ADDRESS = "127.0.0.1:8080"
MQTT_PORT = "-p 1883"
PROGRAMS = ("bash", "curl", "python3", "base64")
PUBLISHER = "mosquitto_pub"
SUBSCRIBER = "mosquitto_sub"
"""Not on every machine. The tutorial only reads with it, so its other steps can be run without."""

_MARKDOWN = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_RST = re.compile(r"^\.\. code-block:: (sh|json|text)\n\n((?: {3}.*\n|\n)+)", re.MULTILINE)
_HASH = re.compile(r"\b(?:0x)?[0-9a-f]{40,64}\b")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\+0000|\.\d{3})?"), "TIME"),
    # Any quorum may be the one that signs.
    (re.compile(r"validator \d, key [0-9a-f]{64}"), "VALIDATOR AND KEY"),
    (re.compile(r'("createdTimestamp": ?)\d+'), r"\1TIME"),
    (re.compile(r"svcbroker \d\S* serves"), "svcbroker VERSION serves"),
    (re.compile(r"data in \S+/svcbroker-data,"), "data in DIRECTORY,"),
)


@frozen
class Step:
    """
    A command of the tour.

    @ivar command: what is typed.
    @ivar output: what README says that it prints.
    """

    command: str
    output: str


@define(eq=False)
class Normaliser:
    """
    Takes out of a text what differs from run to run. Hashes and addresses become numbers, in the
    order in which they first occur: the same one stays the same throughout the tour.
    """

    _numbers: dict[str, int] = field(factory=dict)

    def __call__(self, text: str) -> str:
        for pattern, name in _VARYING:
            text = pattern.sub(name, text)
        text = _HASH.sub(self._number, text)
        return text.strip()

    def _number(self, found: re.Match[str]) -> str:
        return f"HASH{self._numbers.setdefault(found[0], len(self._numbers))}"


def readSteps(text: str, blocks: re.Pattern[str]) -> Iterator[Step]:
    """
    The steps of a page, in order.

    @param blocks: matches the kind and the content of each block of code.
    """
    command = ""
    for kind, body in blocks.findall(text):
        body = textwrap.dedent(body)
        if kind != "sh":
            yield Step(command, body)
            command = ""
            continue
        if command:
            yield Step(command, "")
        command = body.strip()
    assert not command, "the page ends in a command whose output is not shown"


class PageTests(DaemonTestCase):
    """
    Pages whose commands readers type.
    """

    brokerUrl = ""
    """Where commands find the broker, for it is not at its default address here."""

    def require(self, *programs: str) -> None:
        """Skip the test where a program is not installed."""
        missing = [name for name in programs if shutil.which(name) is None]
        if missing:
            raise SkipTest(f"not installed: {', '.join(missing)}")

    async def test_quickStartPrintsWhatReadmeShows(self) -> None:
        """From the start of a broker to a kill, and on."""
        self.require(*PROGRAMS, PUBLISHER)
        text = (ROOT / "README.md").read_text("utf-8")
        tested = text.partition("-->\n")[2].partition("<!-- end of the quick start -->")
        await self.follow(list(readSteps(tested[0], _MARKDOWN)), atLeast=7)

    async def test_tutorialPrintsWhatItShows(self) -> None:
        """From an empty directory to a kill, and on."""
        self.require(*PROGRAMS)
        text = (ROOT / "docs" / "tutorial.rst").read_text("utf-8")
        # Its environment is activated.
        ours = re.compile(r"(^|\| )svcbroker(?= [a-z])", re.MULTILINE)
        steps = [
            Step(ours.sub(rf"\1{COMMAND}", step.command), step.output)
            for step in readSteps(text, _RST)
        ]
        if shutil.which(SUBSCRIBER) is None:
            steps = [step for step in steps if not step.command.startswith(SUBSCRIBER)]
        await self.follow(steps, atLeast=15)

    async def test_secureExampleNeedsTheAccountAndTheCertificate(self) -> None:
        """It publishes and subscribes by MQTT over TLS, so it needs mosquitto's clients."""
        self.require("bash", SUBSCRIBER)
        text = (ROOT / "README.md").read_text("utf-8").partition("\n## Secure, in five lines\n")[2]
        lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
        self.assertEqual(len(lines), 5)
        start = next(line for line in lines if line.startswith(START))
        for line in lines[: lines.index(start)]:
            script = line.replace(COMMAND, f"{self.python()} -m svcbroker.commands")
            await self.bash(f"{script} 2>/dev/null")
        options = start.removeprefix(START).replace(":8883", ":0").split()
        daemon = await self.run_([f"--http={LOCAL}", *options], twistd=["-n"]).serves()
        port = (await daemon.protocol.waitFor(r"MQTT on \[::\]:(\d+)"))[1]
        [publish, subscribe] = [line.replace("8883", port) for line in lines[-2:]]
        await self.bash(publish)
        self.assertEqual(await self.bash(subscribe), "21.5\n")
        await self.bash(f"! {publish.replace('correct', 'wrong')} 2>/dev/null")
        await self.bash(f"! {publish.replace('--cafile tls/ca.pem', '--insecure')} 2>/dev/null")

    async def follow(self, steps: list[Step], atLeast: int) -> None:
        """Do every step, and compare what it prints. The daemon is killed and started once."""
        self.assertGreaterEqual(len(steps), atLeast)
        self.assertEqual(sum(step.command in (RUN, START) for step in steps), 2)
        said, shown = Normaliser(), Normaliser()
        prelude = ""
        daemon: Daemon | None = None
        for step in steps:
            if step.command in (RUN, START):
                self.assertIsNone(daemon)
                daemon = await self.started(step.command).serves()
                port = (await daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1]
                address = daemon.base.removeprefix("http://").removesuffix("/svcbroker")
                lines = daemon.protocol.output.splitlines()
                ready = next(line for line in lines if SERVES.search(line))
                ready = ready.replace(address, ADDRESS)
                if step.output:
                    self.assertEqual(shown(ready), said(step.output))
                continue
            if re.fullmatch(r"\w+=\S+", step.command):
                prelude += step.command + "\n"
                continue
            script = (prelude + step.command).replace(ADDRESS, address)
            self.brokerUrl = daemon.base if daemon is not None else ""
            script = script.replace(COMMAND, f"{self.python()} -m svcbroker.commands")
            script = script.replace(MQTT_PORT, f"-p {port}")
            script = script.replace(f"{PUBLISHER} -t", f"{PUBLISHER} -p {port} -t")
            output = (await self.bash(script)).replace(address, ADDRESS)
            if step.command == KILL:
                assert daemon is not None
                self.assertEqual(await daemon.exits(), -signal.SIGKILL)
                daemon = None
            self.assertEqual(shown(output), said(step.output), step.command)
        assert daemon is not None
        self.assertEqual(await daemon.stop(), 0)

    def started(self, command: str) -> Daemon:
        """The daemon that a command starts, on free ports."""
        options = [f"--http={LOCAL}", f"--mqtt={LOCAL}", "--data-dir=svcbroker-data"]
        if command == START:
            return self.run_(options, twistd=["-n"])
        words = command.removeprefix(COMMAND).split()
        return self.spawn(sys.executable, "-m", "svcbroker.commands", *words, *OFF[:1], *options)

    async def bash(self, script: str) -> str:
        """What a script prints; it must succeed."""
        result: tuple[bytes, bytes, int] = await getProcessOutputAndValue(
            shutil.which("bash"),
            ["-c", script],
            # Neither a proxy nor somebody's curlrc may have a say.
            env={
                # PYTHONPATH may have the library of this Python, which no other one can use.
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "LC_ALL": "C.UTF-8",
                "PYTHONPATH": self.environment["PYTHONPATH"],
                "SVCBROKER_URL": self.brokerUrl,
                "XDG_CONFIG_HOME": str(self.root),
            },
            path=str(self.root),
        )
        output, errors, code = result
        self.assertEqual((code, errors.decode()), (0, ""), script)
        return output.decode("utf-8")
