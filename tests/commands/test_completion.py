"""
Completion of commands and options, as shells ask for it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import svcbroker
from svcbroker.commands.commandline import COMPLETE, SHELLS

ROOT = Path(svcbroker.__file__).parents[1]
COMMAND = (sys.executable, "-m", "svcbroker.commands")


class CompletionTests(SynchronousTestCase):
    """
    The real commands.
    """

    def complete(self, *words: str) -> list[str]:
        """What bash offers for the last of some words."""
        environment = {
            "PYTHONPATH": str(ROOT),
            "COMP_WORDS": " ".join(["svcbroker", *words]),
            "COMP_CWORD": str(len(words)),
            COMPLETE: "bash_complete",
        }
        output = subprocess.run(COMMAND, env=environment, check=True, capture_output=True).stdout
        return [line.partition(",")[2] for line in output.decode().splitlines()]

    def test_commandsAreCompleted(self) -> None:
        self.assertEqual(self.complete("acc"), ["account"])
        self.assertEqual(self.complete("account", "pa"), ["passwd"])

    def test_optionsAreCompleted(self) -> None:
        """Those of operators' commands, too, at any depth."""
        self.assertEqual(self.complete("verify", "--gen"), ["--genesis"])
        self.assertEqual(self.complete("engine", "init", "--p"), ["--p2p"])
        self.assertEqual(self.complete("--tr"), ["--traceback"])
        self.assertEqual(self.complete("run", "--mq"), ["--mqtt", "--mqtt-open-topics"])
        self.assertEqual(self.complete("bench", "--over", "s"), ["stomp"])

    def test_actionsBehindDaemonsAreCompleted(self) -> None:
        """A data directory or a URL may stand before them."""
        for before in ((), ("data/",), ("http://127.0.0.1:8080/svcbroker",)):
            self.assertEqual(self.complete("subscription", *before, "re"), ["reset"])
            self.assertEqual(self.complete("nodes", *before, "rotate", "--dat"), ["--data-dir"])

    def test_shellsTakeTheScripts(self) -> None:
        """Each shell that is installed can parse its script."""
        tried = 0
        for shell in SHELLS:
            script = subprocess.run(
                [*COMMAND, "completion", shell], cwd=ROOT, check=True, capture_output=True
            ).stdout
            self.assertIn(COMPLETE.encode(), script)
            program = shutil.which(shell)
            if program is not None:
                subprocess.run([program, "-n"], input=script, check=True, capture_output=True)
                tried += 1
        if not tried:
            raise SkipTest("neither bash, zsh nor fish is installed")
