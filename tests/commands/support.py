"""
Commands that ask a daemon, with a double in its place.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import main, operatorcommand


class OperatorTestCase(SynchronousTestCase):
    """
    Runs commands.

    @ivar given: the options of the last one that say which daemon is asked.
    @ivar word: the argument that does.
    """

    def command(self, daemon: Any, *words: str) -> tuple[int, str, str]:
        """
        Run a command.

        @param daemon: has C{call}.
        @return: the exit code, and what is written to standard output and to standard error.
        """

        @contextmanager
        def operated(
            given: Mapping[str, Any], environment: Mapping[str, str], word: str | None
        ) -> Iterator[Any]:
            self.given, self.word = given, word
            daemon.group = given["group"]
            yield daemon

        output, errors = io.StringIO(), io.StringIO()
        self.patch(operatorcommand, "operated", operated)
        self.patch(sys, "stdout", output)
        self.patch(sys, "stderr", errors)
        code = main(words)
        self.assertNotIn("unforeseen", errors.getvalue())
        return code, output.getvalue(), errors.getvalue()

    def good(self, daemon: Any, *words: str) -> str:
        """What a command writes that succeeds."""
        code, output, errors = self.command(daemon, *words)
        self.assertEqual((code, errors), (0, ""), words)
        return output

    def refused(self, daemon: Any, *words: str) -> str:
        """The line that says why a command line is wrong."""
        code, output, errors = self.command(daemon, *words)
        self.assertEqual((code, output), (2, ""), words)
        [line] = errors.splitlines()
        return line
