"""
Reading files of operators, as a whole.
"""

from __future__ import annotations

from pathlib import Path

from ..files import openFile
from ._command import CommandError


def readBounded(path: Path, limit: int) -> bytes:
    """
    The content of a file.

    @raise CommandError: it has more bytes than it may have.
    """
    with openFile(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise CommandError(f"{path} is larger than {limit} bytes")
    return data
