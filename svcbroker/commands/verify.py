"""
C{svcbroker verify}: check a proof, offline, with nothing but what one trusts already.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import click
from msgspec import to_builtins

from ..proofs import (
    MAX_PROOF_SIZE,
    AuthorFields,
    Checkpoint,
    ProofInvalid,
    ProvedEvent,
    ProvedGrowth,
    ProvedTopic,
    contentFields,
    formatOf,
    readCheckpoint,
    readGenesis,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
    verifyWitnessed,
)
from ..tlog import Policy
from ._arguments import CHAIN, PATH, UNEXPECTED, jsonOption, makeCommand, options
from ._command import CommandError, Console, Exit
from ._keys import readAuthors
from ._policies import readPolicy, witnessedFields, witnessedLines
from ._words import contentText, counted, quoted, timeText

Names: TypeAlias = Mapping[bytes, str]
"""The names of authors, by their public keys."""

_SIGNED = "PROVED: a quorum of this chain's validators has signed it."
_UNSIGNED = (
    "PROVED: it is in the trusted checkpoint's block or history. No validator's signature is here."
)

_LOGGED = "PROVED: it is in a log that the policy accepts."


def _readFile(path: Path) -> bytes:
    with path.open("rb") as file:
        return _read(file)


def _read(file: BinaryIO) -> bytes:
    # One byte more shows that it is too long.
    return file.read(MAX_PROOF_SIZE + 1)


def _trustedCheckpoint(value: str) -> Checkpoint:
    try:
        return Checkpoint.parse(value)
    except ValueError:
        pass
    path = Path(value)
    if not path.exists():
        raise CommandError(f"--checkpoint: {value!r} is neither HEIGHT:HASH nor a file")
    try:
        return readCheckpoint(_readFile(path))
    except ProofInvalid as error:
        raise CommandError(f"{path}: {error}") from None


@makeCommand(
    """\
    Check a proof offline, against a trusted genesis, checkpoint or policy.

    PROOF is a file with the answer of the operation proof, topicProof or consistency; - reads
    standard input. Say what you trust: the genesis, the chain (its hash), or a checkpoint that you
    have kept. For a consistency proof give --checkpoint twice, or once with --genesis.

    With --complete PROOF is a topic proof, and files with the proofs of all its events follow, one
    proof in each file or on each line, requested with trusted=HEIGHT of the topic proof's block.

    With --policy PROOF is a tlog-proof of an event, as svcbroker log prove writes it. No validator
    is trusted then, but the log's key and a quorum of witnesses, who tell when they have seen it.

    Exit codes: 0 proved, 1 not proved, 2 wrong usage.
    """
)
@options(
    click.argument("proof"),
    click.argument("events", metavar="[EVENT-PROOFS ...]", nargs=-1, type=PATH),
    click.option("--genesis", metavar="FILE", help="A file with the genesis that is trusted."),
    click.option(
        "--chain", type=CHAIN, metavar="HASH", help="The hash of the genesis that is trusted."
    ),
    click.option(
        "--checkpoint",
        "values",
        metavar="CHECKPOINT",
        multiple=True,
        help="A block that is trusted: HEIGHT:HASH, or a file that holds it. May come again.",
    ),
    click.option("--policy", type=PATH, metavar="FILE", help="The logs and witnesses trusted."),
    click.option(
        "--authors",
        type=PATH,
        metavar="FILE",
        help='A file with the names of authors: lines of NAME = "KEY". A KEY is 64 hexadecimal '
        "digits or the name of a PEM file.",
    ),
    click.option(
        "--complete",
        "isComplete",
        is_flag=True,
        help="Prove that the event proofs are those of all events of the topic.",
    ),
    jsonOption("Tell what is proved in JSON."),
)
def command(
    console: Console,
    proof: str,
    events: tuple[Path, ...],
    genesis: str | None,
    chain: bytes | None,
    values: tuple[str, ...],
    policy: Path | None,
    authors: Path | None,
    isComplete: bool,
    asJson: bool,
) -> int:
    """Check the proof, and tell what it proves."""
    if events and not isComplete:
        raise click.UsageError(UNEXPECTED, click.get_current_context())
    isOther = genesis is not None or chain is not None or bool(values) or isComplete
    if policy is not None and isOther:
        raise CommandError("--policy says all that is trusted: give it alone")
    if policy is None and not isOther:
        raise CommandError("what do you trust? Give --genesis, --chain, --checkpoint or --policy")
    if genesis is not None and chain is not None:
        raise CommandError("--genesis says which chain it is: leave out --chain")
    if len(values) > 2:
        raise CommandError("there are at most two checkpoints")
    checkpoints = [_trustedCheckpoint(value) for value in values]
    beginning, trusted = None, []
    if genesis is not None:
        path = Path(genesis)
        try:
            beginning = readGenesis(_readFile(path))
        except ProofInvalid as error:
            raise CommandError(f"{path}: {error}") from None
        chain = beginning.chain
        trusted.append(f"the genesis in {path}")
    elif chain is not None:
        trusted.append(f"chain {chain.hex()}")
    trusted += [f"checkpoint {checkpoint}" for checkpoint in checkpoints]
    names = None if authors is None else readAuthors(authors)
    witnesses = None
    if policy is not None:
        witnesses = readPolicy(policy)
        trusted.append(f"the policy in {policy}")
    data = _read(sys.stdin.buffer) if proof == "-" else _readFile(Path(proof))
    try:
        if witnesses is not None:
            found, lines = _witnessed(data, witnesses, names)
        elif (kind := formatOf(data)).startswith("svcbroker/consistency-proof"):
            if beginning is not None:
                checkpoints.append(Checkpoint.of(beginning.header()))
            found, lines = _growth(data, chain, checkpoints)
        elif isComplete or kind.startswith("svcbroker/topic-proof"):
            found, lines = _topic(data, chain, checkpoints, events if isComplete else None, names)
        else:
            found, lines = _event(data, chain, checkpoints, names)
    except ProofInvalid as error:
        if asJson:
            console.say(json.dumps({"proved": False, "reason": str(error)}))
        else:
            console.say(f"NOT PROVED: {quoted(str(error))}")
        return Exit.BAD
    # One operator has all keys of such a ledger.
    isOpen = (found.get("ledger") == "pbft" and not values) or found.get("witnesses") == []
    if asJson:
        notProved = ["that there is no other history"] if isOpen else []
        told = {"proved": True, **found, "trusted": trusted, "notProved": notProved}
        console.say(json.dumps(told))
        return Exit.GOOD
    for line in lines:
        console.say(line)
    for number, each in enumerate(trusted):
        console.say(_line("" if number else "trusted", quoted(each)))
    if isOpen:
        console.say(_line("not proved", "nothing here shows that there is no other history: trust"))
        console.say(_line("", "a checkpoint that was kept where the operator cannot change it"))
    return Exit.GOOD


def _witnessed(
    data: bytes, policy: Policy, names: Names | None
) -> tuple[Mapping[str, Any], Iterator[str]]:
    proved = verifyWitnessed(data, policy)
    found = {**eventFields(proved.event, names), **witnessedFields(proved.witnessed)}
    _, *lines = eventLines(proved.event, names)
    lines += [_line(*each) for each in witnessedLines(proved.witnessed)]
    return found, iter((_LOGGED, *lines))


def _event(
    data: bytes, chain: bytes | None, checkpoints: Sequence[Checkpoint], names: Names | None
) -> tuple[Mapping[str, Any], Iterator[str]]:
    proved = verifyProof(data, chain=chain, checkpoint=_only(checkpoints))
    return eventFields(proved, names), eventLines(proved, names)


def _only(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    if len(checkpoints) > 1:
        raise CommandError("two checkpoints are for a consistency proof, which this is not")
    return checkpoints[0] if checkpoints else None


def _topic(
    data: bytes,
    chain: bytes | None,
    checkpoints: Sequence[Checkpoint],
    events: Sequence[Path] | None,
    names: Names | None,
) -> tuple[Mapping[str, Any], Iterator[str]]:
    proved = verifyTopic(data, chain=chain, checkpoint=_only(checkpoints))
    if events is None:
        return topicFields(proved), topicLines(proved, names=names)
    found = verifyComplete(proved, (proof for path in events for proof in _proofsIn(path)))
    return topicFields(proved, found), topicLines(proved, found, names)


def _proofsIn(path: Path) -> Iterator[bytes]:
    """The proofs in a file: one on each line, or one on many lines."""
    with path.open("rb") as file:
        line = file.readline(MAX_PROOF_SIZE + 1)
        if not line.rstrip().endswith(b"}"):
            yield line + _read(file)
            return
        while line:
            if line.strip():
                yield line
            line = file.readline(MAX_PROOF_SIZE + 1)


def _growth(
    data: bytes, chain: bytes | None, checkpoints: list[Checkpoint]
) -> tuple[Mapping[str, Any], Iterator[str]]:
    if len(checkpoints) != 2:
        raise CommandError(
            "a consistency proof is about two blocks: give --checkpoint twice, or --genesis and "
            "one --checkpoint"
        )
    older, newer = sorted(checkpoints, key=lambda checkpoint: checkpoint.height)
    proved = verifyConsistency(data, older=older, newer=newer, chain=chain)
    return growthFields(proved), growthLines(proved)


def eventFields(proved: ProvedEvent, names: Names | None = None) -> Mapping[str, Any]:
    """
    What is proved of an event, for programs.

    @param names: of authors, by their public keys.
    """
    return {
        "eventId": proved.eventId,
        "topic": proved.topic,
        **({} if proved.content is None else contentFields(proved.content)),
        "extensions": dict(proved.extensions),
        **_authorFields(proved, names),
        "sequence": proved.sequence,
        "idempotencyKey": proved.idempotencyKey,
        "expectedSequence": proved.expectedSequence,
        "submitted": proved.submitted,
        "timestamp": proved.timestamp,
        "group": proved.group,
        "chain": proved.chain.hex(),
        "block": str(proved.block),
        **_signedFields(proved),
        "checkpoint": None if proved.checkpoint is None else str(proved.checkpoint),
    }


def _authorFields(proved: ProvedEvent, names: Names | None) -> Mapping[str, Any]:
    author = proved.author
    if author is None:
        return {"author": None}
    named = {} if names is None else {"authorName": names.get(author.key)}
    return {
        "author": author.key.hex(),
        **named,
        "signedAt": author.signedAt,
        "signature": author.signature.hex() or None,
    }


def _signedFields(proved: ProvedEvent | ProvedTopic) -> Mapping[str, Any]:
    return {
        "signed": None if proved.signed is None else str(proved.signed),
        "ledger": proved.ledger,
        "signers": [
            {"node": index, "publicKey": key.hex()} for index, key in proved.signers.items()
        ],
        "nodes": proved.nodes,
        "changes": proved.changes,
    }


def eventLines(proved: ProvedEvent, names: Names | None = None) -> Iterator[str]:
    """
    What is proved of an event, for people.

    @param names: of authors, by their public keys.
    """
    yield _UNSIGNED if proved.signed is None else _SIGNED
    yield _line("event", f"{proved.eventId}, the topic's event number {proved.sequence}")
    yield _line("topic", quoted(proved.topic))
    yield _line("content", _contentOf(proved))
    for name, value in sorted(proved.extensions.items()):
        yield _line("extension", f"{quoted(name)}: {quoted(value)}")
    yield from _authorLines(proved, names)
    if proved.idempotencyKey is not None:
        yield _line("idempotency", f"key {proved.idempotencyKey}")
    yield _line("submitted", f"{timeText(proved.submitted)} by the broker's clock")
    yield _line("block", f"{proved.block}")
    by = "" if proved.signed is None else ", a time that its validators accepted"
    yield _line("", f"of {timeText(proved.timestamp)}{by}")
    if proved.checkpoint is not None:
        yield _line("", f"in the history of block {proved.checkpoint}")
    yield from _signedLines(proved)


def _contentOf(proved: ProvedEvent) -> str:
    if proved.content is None:
        return "erased, or left out of this proof"
    return contentText(proved.content)


def _authorLines(proved: ProvedEvent, names: Names | None) -> Iterator[str]:
    author = proved.author
    if author is None:
        yield _line("author", "unsigned: no author has signed this event")
        return
    yield _line("author", _named(author.key, names))
    when = f"at {timeText(author.signedAt)} by the author's clock"
    if author.signature:
        yield _line("", f"the signature of this key holds; signed {when}")
    else:
        yield _line("", f"signed {when}")
        yield _line("", "its signature was removed with the content; the validators had checked it")


def _named(key: bytes, names: Names | None) -> str:
    """A public key, and its name where names are known."""
    if names is None:
        return f"key {key.hex()}"
    name = names.get(key)
    return f"key {key.hex()}, " + ("which has no name here" if name is None else quoted(name))


def _signedLines(proved: ProvedEvent | ProvedTopic) -> Iterator[str]:
    """The chain, and the validators that signed."""
    yield _line("chain", f"{proved.chain.hex()}, group {quoted(proved.group)}")
    if proved.signed is None:
        return
    which = "" if proved.signed == proved.block else f", block {proved.signed}"
    yield _line("signed by", f"{len(proved.signers)} of {proved.nodes} validators{which}")
    for index, key in proved.signers.items():
        yield _line("", f"validator {index}, key {key.hex()}")
    if proved.changes:
        times = "once" if proved.changes == 1 else f"{proved.changes} times"
        yield _line("", f"the set had changed {times}; the validators before signed each change")


def topicFields(
    proved: ProvedTopic, events: Sequence[ProvedEvent] | None = None
) -> Mapping[str, Any]:
    """What is proved of a topic, for programs."""
    authors = {}
    if proved.authors is not None:
        authors = {"authors": to_builtins(AuthorFields.of(proved.authors))}
    complete = {} if events is None else {"complete": [event.eventId for event in events]}
    return {
        "topic": proved.topic,
        "isOpen": proved.isOpen,
        "count": proved.count,
        "latest": proved.latest,
        **authors,
        **complete,
        "timestamp": proved.timestamp,
        "group": proved.group,
        "chain": proved.chain.hex(),
        "block": str(proved.block),
        **_signedFields(proved),
    }


def topicLines(
    proved: ProvedTopic,
    events: Sequence[ProvedEvent] | None = None,
    names: Names | None = None,
) -> Iterator[str]:
    """
    What is proved of a topic, for people.

    @param names: of authors, by their public keys.
    """
    if events is None:
        yield _SIGNED
    else:
        yield f"PROVED: complete: all {counted(proved.count, 'event')} of the topic."
    yield _line("topic", f"{quoted(proved.topic)}, {'open' if proved.isOpen else 'closed'}")
    yield _line("events", f"exactly {proved.count} up to this block")
    if proved.authors is not None:
        for what, keys in (("authors", proved.authors.authors), ("admins", proved.authors.admins)):
            for number, key in enumerate(keys):
                yield _line("" if number else what, _named(key, names))
    yield _line("block", str(proved.block))
    yield _line("", f"of {timeText(proved.timestamp)}, a time that its validators accepted")
    yield from _signedLines(proved)
    for event in events or ():
        yield _line(f"event {event.sequence}", f"{event.eventId} {_contentOf(event)}")


def growthFields(proved: ProvedGrowth) -> Mapping[str, Any]:
    """What is proved of two checkpoints, for programs."""
    return {
        "chain": proved.chain.hex(),
        "older": str(proved.older),
        "newer": str(proved.newer),
        "timestamp": proved.timestamp,
    }


def growthLines(proved: ProvedGrowth) -> Iterator[str]:
    """What is proved of two checkpoints, for people."""
    yield "PROVED: between these two checkpoints the log has only grown."
    yield _line("older", str(proved.older))
    yield _line("newer", str(proved.newer))
    yield _line("", f"of {timeText(proved.timestamp)}")
    yield _line("chain", proved.chain.hex())


def _line(name: str, text: str) -> str:
    return f"  {name:12} {text}"
