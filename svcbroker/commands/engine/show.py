"""
C{svcbroker engine show}: show a change or a join request.
"""

from __future__ import annotations

from pathlib import Path

from ...ledgers.changing import MAX_DOCUMENT
from .._arguments import makeCommand, options
from .._command import Console, Exit
from ._files import describeChange, loadChange, loadJoinRequest, readBounded
from ._parameters import FILE
from .init import describeJoinRequest


@makeCommand(
    """\
    Show a change or a join request, and who has signed.

    Every signature in it is checked.
    """
)
@options(FILE)
def command(console: Console, path: Path) -> int:
    """Show the file."""
    if b'"svcbroker-join-request"' in readBounded(path, MAX_DOCUMENT)[:100]:
        lines = describeJoinRequest(loadJoinRequest(path))
    else:
        lines = [*describeChange(loadChange(path))]
    for line in lines:
        console.say(line)
    return Exit.GOOD
