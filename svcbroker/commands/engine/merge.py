"""
C{svcbroker engine merge}: merge the signatures of copies of a change.
"""

from __future__ import annotations

from pathlib import Path

import click

from ...files import writeNew
from ...ledgers.changing import mergeChanges
from .._arguments import PATH, jsonOption, makeCommand, options
from .._command import Console, Exit
from ._files import loadChange, showChange, tried
from ._parameters import OUTPUT


@makeCommand(
    """\
    Put the signatures of several copies of a change together.

    All FILEs must be copies of the same change, with any signatures.
    """
)
@options(
    click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH),
    OUTPUT,
    jsonOption(),
)
def command(console: Console, files: tuple[Path, ...], output: Path, asJson: bool) -> int:
    """Merge the copies."""
    merged = tried(lambda: mergeChanges([loadChange(path) for path in files]))
    writeNew(output, merged.encode(), 0o644)
    showChange(console, merged, asJson)
    return Exit.GOOD
