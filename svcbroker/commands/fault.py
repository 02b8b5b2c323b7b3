"""
C{svcbroker fault}: bad days for a running daemon.
"""

from __future__ import annotations

from ._command import CommandError, CommandOptions, Console


class Options(CommandOptions):
    """
    The options of C{svcbroker fault}.
    """

    synopsis = "DATA-DIR show"


def run(options: Options, console: Console) -> int:
    """Do what was asked."""
    raise CommandError("not there yet")
