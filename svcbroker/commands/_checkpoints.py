"""
Checkpoints that an operator has kept.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ..proofs import Checkpoint, ProofInvalid, readCheckpoint
from ._command import CommandError
from ._reading import readBounded

MAX_SIZE: Final = 64 * 1024 * 1024
"""The largest file of checkpoints, in bytes."""


def readCheckpoints(
    values: Sequence[str], groups: Collection[str], wanted: Collection[str]
) -> Mapping[str, Sequence[Checkpoint]]:
    """
    What C{--checkpoint} names, by group.

    @param values: each is HEIGHT:HASH, or a file with one to a line, or with what the operation
        C{checkpoint} answered to a line.
    @param groups: the groups that there are.
    @param wanted: those that are looked at; empty for all. Checkpoints of others are left out.
    @raise CommandError: a value is neither, does not tell its group, or is a file of more than
        L{MAX_SIZE}: what is left out would not be compared.
    """
    found: dict[str, list[Checkpoint]] = {}
    for value in values:
        for line, text in _lines(value):
            try:
                checkpoint, group = readCheckpoint(text), _group(text)
            except ProofInvalid as error:
                raise CommandError(f"--checkpoint: {line}: {error}") from None
            if group is None:
                only = wanted or groups
                if len(only) != 1:
                    raise CommandError(
                        f"--checkpoint: {line}: which of the groups is it of? Give --group"
                    )
                (group,) = only
            if not wanted or group in wanted:
                found.setdefault(group, []).append(checkpoint)
    return found


def _lines(value: str) -> Iterator[tuple[str, bytes]]:
    try:
        Checkpoint.parse(value)
    except ValueError:
        pass
    else:
        yield value, value.encode("ascii")
        return
    path = Path(value)
    if not path.is_file():
        raise CommandError(f"--checkpoint: {value!r} is neither HEIGHT:HASH nor a file")
    lines = readBounded(path, MAX_SIZE).splitlines()
    if not any(map(bytes.strip, lines)):
        # Nothing would be compared, and the chain would look good.
        raise CommandError(f"--checkpoint: {path} is empty")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{path}, line {number}", line


def _group(text: bytes) -> str | None:
    """The group that an answer of the operation says it is of."""
    if text.lstrip()[:1] != b"{":
        return None
    document = json.loads(text)
    document = document.get("result", document)
    group = document.get("group")
    return group if isinstance(group, str) else None
