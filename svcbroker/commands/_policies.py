"""
What the commands share that check logs by a policy of trusted witnesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..chain import Malformed
from ..files import readFile
from ..tlog import Policy, Witnessed
from ._command import CommandError
from ._words import printable, quoted, timeText


def readPolicy(path: Path) -> Policy:
    """
    Read a file of C{c2sp.org/tlog-policy}.

    @raise CommandError: it is none.
    """
    try:
        return Policy.parse(readFile(path))
    except Malformed as error:
        raise CommandError(f"{path}: {error}") from None


def witnessedFields(witnessed: Witnessed) -> Mapping[str, Any]:
    """What a policy accepts of a checkpoint, for programs. Times are in milliseconds."""
    head = witnessed.head
    return {
        "log": {"origin": head.origin, "size": head.size, "root": head.root.hex()},
        "witnesses": [
            {"name": each.witness, "notLaterThan": each.until * 1000}
            for each in witnessed.cosignatures
        ],
        "executedBy": list(witnessed.executedBy),
        "quorumWarning": witnessed.policy.warning,
    }


def witnessedLines(witnessed: Witnessed) -> Iterator[tuple[str, str]]:
    """What a policy accepts of a checkpoint, for people: names of lines, and their texts."""
    head, count = witnessed.head, len(witnessed.cosignatures)
    yield "log", quoted(head.origin)
    yield "", f"checkpoint of size {head.size}, root {head.root.hex()}"
    if count:
        yield "", f"cosigned by {count} of the policy's witnesses"
    else:
        yield "", "no witness has cosigned it: this rests on the log's own key alone"
    for each in witnessed.cosignatures:
        seen = timeText(each.until * 1000)
        yield "seen by", f"{quoted(each.witness)} not later than {seen}"
    if count:
        yield from _executedLines(witnessed)
    if witnessed.policy.warning:
        yield "quorum", printable(witnessed.policy.warning)


def _executedLines(witnessed: Witnessed) -> Iterator[tuple[str, str]]:
    """Whether anybody has executed what was cosigned."""
    executed, asked = witnessed.executedBy, witnessed.policy.executing
    if executed:
        yield "executed by", f"{len(executed)} of {len(asked)}: {', '.join(map(quoted, executed))}"
        return
    yield "executed by", f"nobody: {PLAIN}"


PLAIN: Final = "these witnesses have seen that the log grows, and none of them has executed it"
"""The sentence about witnesses that see hashes only."""
