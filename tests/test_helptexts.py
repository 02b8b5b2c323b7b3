"""
Tests for the stored help texts of the command line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import click
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.commandline import (
    HELP_TEXTS,
    PROGRAM,
    allCommands,
    main,
    makeGroup,
    storedHelp,
)

ROOT = Path(__file__).parents[1]


def runFresh(script: str) -> str:
    """
    What a script prints in a process of its own: click keeps of each command what another test may
    have made of it.
    """
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def differing() -> list[str]:
    """The commands whose own help text is not the stored one, in any of some widths."""
    found = []
    for width in (40, 78, 100):
        group = makeGroup()
        settings = {**group.context_settings, "terminal_width": width}
        root = click.Context(group, info_name=PROGRAM, **settings)
        for command, context in allCommands():
            words = context.command_path.split()[1:]
            own = click.Context(command, parent=root, info_name=" ".join(words))
            if words and storedHelp(words, root) != command.get_help(own):
                found.append(context.command_path)
    return found


class StoredHelpTests(SynchronousTestCase):
    """
    Tests for L{svcbroker.commands.commandline}.
    """

    def test_fileHasTheTextsOfTheCommands(self) -> None:
        """
        The stored file is the one that is made of the commands as they are.
        """
        made = runFresh("from tools.helptexts import describeAll; print(describeAll(), end='')")
        self.assertEqual(
            HELP_TEXTS.read_text("utf-8"), made, "help texts changed: run python -m tools.helptexts"
        )

    def test_storedTextsAreThoseOfTheCommandsInEveryWidth(self) -> None:
        """
        Each command's own help text, laid out for narrow and wide terminals, is what is shown.
        """
        self.assertEqual(runFresh("from tests.test_helptexts import *; print(differing())"), "[]\n")

    def test_helpImportsNeitherTwistedNorTheChain(self) -> None:
        """
        No module is imported for a help text that takes long to import.
        """
        for words in (["run", "--help"], ["help", "doctor"], ["audit", "-h"]):
            script = (
                "import sys; from svcbroker.commands.commandline import main; "
                f"code = main({words!r}); "
                "heavy = {'twisted', 'svcbroker.chain', 'svcbroker.model'}; "
                "sys.exit(code or sorted(heavy & set(sys.modules)) or 0)"
            )
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=False
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Usage: svcbroker", done.stdout)

    def test_wordsThatNameNoCommandAreRefusedAsBefore(self) -> None:
        """
        C{--help} behind an unknown word does not hide that it is unknown.
        """
        for words in (["audot", "--help"], ["chain", "audot", "--help"]):
            code, shown = self.shown(words)
            self.assertEqual((code, shown), (2, ""))

    def test_contentThatLooksLikeHelpIsContent(self) -> None:
        """
        Behind C{--}, the words of the option are an argument.
        """
        code, shown = self.shown(["get", "--", "--help"])
        self.assertEqual((code, shown), (2, ""))

    def shown(self, words: Sequence[str]) -> tuple[int, str]:
        """The exit code of a command line, and what it writes to standard output."""
        with patch("sys.stdout", StringIO()) as output, patch("sys.stderr", StringIO()):
            return main(words), output.getvalue()
