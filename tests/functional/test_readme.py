"""
README's tour, as it stands there, on the real daemon: each command is run, and what it prints is
what README says that it prints. Only what must differ from run to run may differ.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field, frozen
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SkipTest

import svcbroker

from .daemon import LOCAL, Daemon, DaemonTestCase

README = Path(__file__).parents[2] / "README.md"
OURS = os.pathsep.join(
    filter(None, [str(Path(svcbroker.__file__).parent.parent), os.getenv("PYTHONPATH")])
)
START = ".venv/bin/twistd -n svcbroker"
KILL = "kill -9 $(cat twistd.pid)"
COMMAND = ".venv/bin/svcbroker"
ADDRESS = "127.0.0.1:8080"
MQTT_PORT = "-p 1883"
PROGRAMS = ("bash", "curl", "python3", "base64")
SUBSCRIBER = "mosquitto_sub"
"""Not on every machine. Its steps only read, so the others do without them."""

_BLOCK = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HASH = re.compile(r"\b(?:0x)?[0-9a-f]{40,64}\b")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\+0000|\.\d{3})?"), "TIME"),
    # Any quorum may be the one that signs.
    (re.compile(r"node \d, key [0-9a-f]{64}"), "NODE AND KEY"),
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


def readTour(text: str) -> Iterator[Step]:
    """The steps of the tour, in order."""
    tour = text.partition("\n## A tour\n")[2].partition("<!-- end of the tour -->")[0]
    command = ""
    for kind, body in _BLOCK.findall(tour):
        if kind != "sh":
            yield Step(command, body)
            command = ""
            continue
        if command:
            yield Step(command, "")
        command = body.strip()
    assert not command, "the tour ends in a command whose output is not shown"


class ReadmeTests(DaemonTestCase):
    """
    The tour in README.
    """

    async def test_tourPrintsWhatReadmeSays(self) -> None:
        """Every command of the tour prints what README says."""
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise SkipTest(f"not installed: {', '.join(missing)}")
        steps = list(readTour(README.read_text("utf-8")))
        self.assertGreater(len(steps), 15)
        self.assertEqual([step.command for step in steps].count(START), 2)
        if shutil.which(SUBSCRIBER) is None:
            steps = [step for step in steps if not step.command.startswith(SUBSCRIBER)]
        said, shown = Normaliser(), Normaliser()
        prelude = ""
        daemon: Daemon | None = None
        for step in steps:
            if step.command == START:
                self.assertIsNone(daemon)
                daemon = await self.run_(
                    [f"--http={LOCAL}", f"--mqtt={LOCAL}", "--data-dir=svcbroker-data"],
                    twistd=["-n"],
                ).serves()
                port = (await daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1]
                address = daemon.base.removeprefix("http://").removesuffix("/svcbroker")
                ready = daemon.protocol.output.splitlines()[-1].replace(address, ADDRESS)
                if step.output:
                    self.assertEqual(shown(ready), said(step.output))
                continue
            if re.fullmatch(r"\w+=\S+", step.command):
                prelude += step.command + "\n"
                continue
            script = (prelude + step.command).replace(ADDRESS, address)
            script = script.replace(COMMAND, f"{sys.executable} -m svcbroker.commands")
            script = script.replace(MQTT_PORT, f"-p {port}")
            output = (await self.bash(script)).replace(address, ADDRESS)
            if step.command == KILL:
                assert daemon is not None
                self.assertEqual(await daemon.exits(), -signal.SIGKILL)
                daemon = None
            self.assertEqual(shown(output), said(step.output), step.command)
        assert daemon is not None
        self.assertEqual(await daemon.stop(), 0)

    async def bash(self, script: str) -> str:
        """What a script prints; it must succeed."""
        result: tuple[bytes, bytes, int] = await getProcessOutputAndValue(
            shutil.which("bash"),
            ["-c", script],
            # Neither a proxy nor somebody's curlrc may have a say.
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONPATH": OURS},
            path=str(self.root),
        )
        output, errors, code = result
        self.assertEqual((code, errors.decode()), (0, ""), script)
        return output.decode("utf-8")
