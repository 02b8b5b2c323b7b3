"""
Commands run in the process of a test, and such that ask a daemon, with a double in its place.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands import main, operatorcommand


class CommandTestCase(SynchronousTestCase):
    """
    Runs commands in this process.
    """

    def run_(self, *words: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        """The exit code of a command, and what it writes to standard output and standard error."""
        output, errors = io.StringIO(), io.StringIO()
        if stdin is not None:
            self.patch(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self.patch(sys, "stdout", output)
        self.patch(sys, "stderr", errors)
        code = main([*map(str, words)])
        self.assertNotIn("unforeseen", errors.getvalue())
        return code, output.getvalue(), errors.getvalue()

    def good(self, *words: object, stdin: bytes | None = None) -> str:
        """What a command writes that succeeds."""
        code, output, errors = self.run_(*words, stdin=stdin)
        self.assertEqual((code, errors), (0, ""), words)
        return output

    def refused(self, *words: object, stdin: bytes | None = None) -> str:
        """The line that says why a command line is wrong."""
        code, output, errors = self.run_(*words, stdin=stdin)
        self.assertEqual((code, output), (2, ""), words)
        [line] = errors.splitlines()
        return line


class DaemonDouble:
    """A daemon that notes operator calls."""

    group: str | None = None

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        self.calls.append((name, given))
        return self.answer(name, given)

    def answer(self, name: str, given: dict[str, Any]) -> Any:
        """The answer to a call."""
        return True


class OperatorTestCase(CommandTestCase):
    """
    Runs commands that ask a daemon.

    @ivar daemon: the daemon that answers: it has C{call}.
    @ivar given: the options of the last one that say which daemon is asked.
    @ivar word: the argument that does.
    """

    daemon: Any

    def run_(self, *words: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        @contextmanager
        def operated(
            given: Mapping[str, Any], environment: Mapping[str, str], word: str | None
        ) -> Iterator[Any]:
            self.given, self.word = given, word
            self.daemon.group = given["group"]
            yield self.daemon

        self.patch(operatorcommand, "operated", operated)
        return super().run_(*words, stdin=stdin)
