"""
C{svcbroker proof contradict}: show that the validators of a chain have signed what cannot both be
true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from ..archive import ExportedHeaders, StreamBroken
from ..files import openFile, readFile
from ..proofs import (
    MAX_PROOF_SIZE,
    Checkpoint,
    Contradiction,
    ContradictionFields,
    ProofInvalid,
    Side,
    SignedTree,
    Statement,
    contradictionDocument,
    readStatement,
    verifyContradiction,
)
from ..proofs.tlog import Policy, VerifierKey
from .arguments import PATH, UNEXPECTED, makeCommand, options
from .inputs import readPolicy
from .terminal import CommandError, Console, Exit, quoted


@makeCommand(
    """\
    Show that two statements of one chain cannot both be true.

    FIRST and SECOND are files with event proofs, topic proofs or exports, or checkpoints
    (HEIGHT:HASH, or a file that holds it). With --policy they may be tlog-proofs or checkpoints of
    a transparency log, too. If the validators of one chain, or its log, have signed both, and not
    both can be true, a JSON document that shows it is written to standard output, and what it
    shows to standard error. --check verifies such a document.

    Exit codes: 0 there is a contradiction, 1 there is none, 2 wrong usage, or an input that is not
    valid by itself.
    """
)
@options(
    click.argument("files", metavar="FIRST SECOND | --check DOCUMENT", nargs=-1),
    click.option(
        "--check",
        "isCheck",
        is_flag=True,
        help="Verify a document that this command has written.",
    ),
    click.option(
        "--policy", type=PATH, metavar="FILE", help="The keys of transparency logs and witnesses."
    ),
)
def command(console: Console, files: tuple[str, ...], isCheck: bool, policy: Path | None) -> int:
    """Find a contradiction, or check one."""
    if len(files) != (1 if isCheck else 2):
        raise click.UsageError(UNEXPECTED, click.get_current_context())
    if isCheck:
        return _check(Path(files[0]), console)
    keys = [] if policy is None else keysOf(readPolicy(policy))
    first, second = (_input(each, keys) for each in files)
    document = _compare(first, second)
    if document is None:
        console.warn("NO CONTRADICTION: both can be true, as far as they can be compared.")
        return Exit.BAD
    data = msgspec.json.encode(document)
    for line in contradictionLines(verifyContradiction(data)):
        console.warn(line)
    console.say(msgspec.json.format(data, indent=1).decode("utf-8"))
    return Exit.GOOD


def _check(path: Path, console: Console) -> int:
    try:
        found = verifyContradiction(readFile(path, MAX_PROOF_SIZE))
    except ProofInvalid as error:
        console.say(f"NOT SHOWN: {quoted(str(error))}")
        return Exit.BAD
    for line in contradictionLines(found):
        console.say(line)
    return Exit.GOOD


def keysOf(policy: Policy) -> Sequence[VerifierKey]:
    """The keys of a policy."""
    return [each.key for each in (*policy.logs, *policy.witnesses.values())]


def _input(name: str, keys: Sequence[VerifierKey]) -> Statement | ExportedHeaders:
    """
    Read an argument, and verify the signatures in it.
    """
    path = Path(name)
    try:
        try:
            return readStatement(str(Checkpoint.parse(name)).encode("ascii"))
        except ValueError:
            pass
        with openFile(path) as file:
            isExport = ExportedHeaders.isExport(file.read(100))
        if isExport:
            return ExportedHeaders(path)
        return readStatement(readFile(path, MAX_PROOF_SIZE), keys)
    except (ProofInvalid, StreamBroken) as error:
        raise CommandError(f"{path}: {error}") from None


def _compare(
    first: Statement | ExportedHeaders, second: Statement | ExportedHeaders
) -> ContradictionFields | None:
    height = _difference(first, second)
    try:
        one, other = (
            each if isinstance(each, Statement) else _at(each, height) for each in (first, second)
        )
    except (ProofInvalid, StreamBroken) as error:
        raise CommandError(f"the export cannot be used: {error}") from None
    if one is None or other is None:
        return None
    if not any(each.chain or each.tree for each in (one, other)):
        raise CommandError("two checkpoints have no signatures: give a proof or an export of one")
    return contradictionDocument(one, other)


def _at(export: ExportedHeaders, height: int | None) -> Statement | None:
    """Read a block of an export, with its signatures verified."""
    if height is None:
        return None
    return readStatement(msgspec.json.encode(export.prove(height)))


def _difference(
    first: Statement | ExportedHeaders, second: Statement | ExportedHeaders
) -> int | None:
    """The height at which an export has another block than something else says, if there is one."""
    match first, second:
        case Statement(), ExportedHeaders():
            statement, export = first, second
        case ExportedHeaders(), Statement():
            statement, export = second, first
        case ExportedHeaders(), ExportedHeaders() if first.genesis == second.genesis:
            return first.firstDifference(second)
        case _:
            return None
    if statement.chain not in (None, export.genesis.chain):
        return None
    # A block that was signed itself shows more than one that a later header names.
    different = [
        (not claim.isDirect, claim.block.height)
        for claim in statement.claims
        if export.checkpoint(claim.block.height) not in (None, claim.block)
    ]
    if different:
        return min(different)[1]
    # The next header after a checkpoint of a log has the root of that size.
    sizes = [each.size for each in statement.roots if isinstance(each.signed, SignedTree)]
    return max((each for each in sizes if export.checkpoint(each) is not None), default=None)


def contradictionLines(found: Contradiction) -> Iterator[str]:
    """Format a contradiction for people."""
    yield f"CONTRADICTION: {_HEADLINES[found.kind]}"
    if found.chain:
        yield _line("chain", f"{found.chain.hex()}, group {quoted(found.group)}")
    yield from _sideLines("first", found.first)
    yield from _sideLines("second", found.second)
    isLogged = all(isinstance(each.signed, SignedTree) for each in (found.first, found.second))
    if isLogged and not found.isDoubleSigning:
        yield _line("", "this log has signed both; witnesses that only see that it grows may have")
        yield _line("", "cosigned it and kept their rules. Compare the log's key")
        return
    for number, key in enumerate(found.keys):
        yield _line("" if number else "signed both", f"key {key.hex()}")
    if found.isDoubleSigning and isLogged:
        yield _line("", "each of these keys has signed two histories of one size: compare the keys")
    elif found.isDoubleSigning:
        yield _line("", "each of these keys has signed two blocks in one round")
    elif found.keys:
        yield _line("", "not in one round of one height, so these votes alone do not show which of")
        yield _line("", "these keys broke the rules")
    else:
        yield _line("signed both", "no key")


_HEADLINES = {
    "block": "two different blocks of one height.",
    "event": "two events of which only one can be there.",
    "topic": "a topic with two different numbers of events.",
    "root": "two different histories of one size.",
}


def _sideLines(name: str, side: Side) -> Iterator[str]:
    yield _line(name, side.says)
    signed = side.signed
    if signed is None:
        yield _line("", "a checkpoint, without signatures: it counts if it is known to be of this")
        yield _line("", "chain, and against the party that published it")
    elif isinstance(signed, SignedTree):
        yield _line("", f"signed by the log {quoted(signed.log.text)}")
        yield _line("", f"checkpoint of size {signed.head.size}, root {signed.head.root.hex()}")
        for each in signed.witnesses:
            yield _line("", f"cosigned by {quoted(each.text)}")
    else:
        who = f"{len(signed.signers)} of {len(signed.validators.keys)} validators"
        yield _line("", f"signed by {who}, block {signed.block}, round {signed.round}")


def _line(name: str, text: str) -> str:
    return f"  {name:13}{text}"
