"""
C{svcbroker engine show}: show a change or a join request.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import asdict

from ...ledgers.changing import MAX_DOCUMENT
from .._arguments import jsonOption, makeCommand, options
from .._command import Console, Exit
from .._reading import readBounded
from .._tables import showRecord
from ._files import loadChange, loadJoinRequest, showChange
from ._parameters import FILE
from .init import describeJoinRequest


@makeCommand(
    """\
    Show a change or a join request, and who has signed.

    Every signature in it is checked.
    """
)
@options(FILE, jsonOption())
def command(console: Console, path: Path, asJson: bool) -> int:
    """Show the file."""
    if b'"svcbroker-join-request"' in readBounded(path, MAX_DOCUMENT)[:100]:
        request = loadJoinRequest(path)
        showRecord(console, asdict(request), describeJoinRequest(request), asJson)
    else:
        showChange(console, loadChange(path), asJson)
    return Exit.GOOD
