"""
The page of the command line, and the table of commands.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.commands.commandline import makeGroup
from svcbroker.commands.terminal import Exit
from tests.commands.test_main import leaves

PAGE = Path(svcbroker.__file__).parents[1] / "docs" / "commands.rst"


class PageTests(SynchronousTestCase):
    def test_pageHasEveryCommandAndExitCode(self) -> None:
        text = PAGE.read_text("utf-8")
        for path, _ in leaves(makeGroup()):
            self.assertIn(f"``svcbroker {' '.join(path)}``", text)
        codes = text.partition("exit codes\n")[2]
        for code in Exit:
            self.assertRegex(codes, rf"[ ,]{code.value}\b")
