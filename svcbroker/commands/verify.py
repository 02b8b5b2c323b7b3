"""
C{svcbroker verify}: check a proof, offline, with nothing but what one trusts already.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from twisted.python import usage

from ..proofs import (
    MAX_PROOF_SIZE,
    Checkpoint,
    ProofInvalid,
    ProvedEvent,
    ProvedGrowth,
    contentFields,
    formatOf,
    readCheckpoint,
    readGenesis,
    verifyConsistency,
    verifyProof,
)
from ._command import CommandError, CommandOptions, Console, Exit
from ._words import contentText, quoted, timeText


class Options(CommandOptions):
    """
    The options of C{svcbroker verify}.
    """

    synopsis = (
        "[options] PROOF (--genesis FILE | --chain HASH | --checkpoint CHECKPOINT)"
        " [--checkpoint CHECKPOINT]"
    )
    longdesc = (
        "PROOF is a file with what the operation proof or consistency has answered; - reads "
        "standard input. Say what you trust: the genesis, the chain (its hash), or a checkpoint "
        "that you have kept: HEIGHT:HASH, or a file that holds it. For a consistency proof give "
        "--checkpoint twice, or once with --genesis. Exit codes: 0 proved, 1 not proved, 2 wrong "
        "usage."
    )
    optParameters = [
        ["genesis", None, None, "A file with the genesis that is trusted."],
        ["chain", None, None, "The hash of the genesis that is trusted."],
    ]
    optFlags = [["json", None, "Tell what is proved in JSON."]]

    def __init__(self) -> None:
        super().__init__()
        self["checkpoints"] = []

    def opt_checkpoint(self, value: str) -> None:
        """A block that is trusted: HEIGHT:HASH, or a file that holds it."""
        self["checkpoints"].append(value)

    def parseArgs(self, proof: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["proof"] = proof

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if not (self["genesis"] or self["chain"] or self["checkpoints"]):
            raise usage.UsageError("what do you trust? Give --genesis, --chain or --checkpoint")
        if self["genesis"] and self["chain"]:
            raise usage.UsageError("--genesis says which chain it is: leave out --chain")
        if len(self["checkpoints"]) > 2:
            raise usage.UsageError("there are at most two checkpoints")
        if self["chain"] is not None:
            self["chain"] = _hash(self["chain"])


def _hash(text: str) -> bytes:
    digits = text.removeprefix("0x")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if len(value) != 32 or len(digits) != 64:
        raise usage.UsageError("--chain: a hash has 64 hexadecimal digits")
    return value


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


def run(options: Options, console: Console) -> int:
    """Check the proof, and tell what it proves."""
    checkpoints = [_trustedCheckpoint(value) for value in options["checkpoints"]]
    chain, trusted = options["chain"], []
    if options["genesis"]:
        path = Path(options["genesis"])
        try:
            genesis = readGenesis(_readFile(path))
        except ProofInvalid as error:
            raise CommandError(f"{path}: {error}") from None
        chain = genesis.chain
        trusted.append(f"the genesis in {path}")
    elif chain is not None:
        trusted.append(f"chain {chain.hex()}")
    trusted += [f"checkpoint {checkpoint}" for checkpoint in checkpoints]
    name = options["proof"]
    data = _read(sys.stdin.buffer) if name == "-" else _readFile(Path(name))
    try:
        if formatOf(data).startswith("svcbroker/consistency-proof"):
            if options["genesis"]:
                checkpoints.append(Checkpoint.of(genesis.header()))
            found, lines = _growth(data, chain, checkpoints)
        else:
            found, lines = _event(data, chain, checkpoints)
    except ProofInvalid as error:
        if options["json"]:
            console.say(json.dumps({"proved": False, "reason": str(error)}))
        else:
            console.say(f"NOT PROVED: {quoted(str(error))}")
        return Exit.BAD
    if options["json"]:
        console.say(json.dumps({"proved": True, **found, "trusted": trusted}))
        return Exit.GOOD
    for line in lines:
        console.say(line)
    for number, each in enumerate(trusted):
        console.say(_line("" if number else "trusted", quoted(each)))
    return Exit.GOOD


def _event(
    data: bytes, chain: bytes | None, checkpoints: list[Checkpoint]
) -> tuple[Mapping[str, Any], Iterator[str]]:
    if len(checkpoints) > 1:
        raise CommandError("two checkpoints are for a consistency proof; this is of an event")
    proved = verifyProof(data, chain=chain, checkpoint=checkpoints[0] if checkpoints else None)
    return eventFields(proved), eventLines(proved)


def _growth(
    data: bytes, chain: bytes | None, checkpoints: list[Checkpoint]
) -> tuple[Mapping[str, Any], Iterator[str]]:
    if len(checkpoints) != 2:
        raise CommandError(
            "a consistency proof is about two blocks: give --checkpoint twice, or --genesis and "
            "one --checkpoint"
        )
    older, newer = sorted(checkpoints, key=lambda checkpoint: checkpoint.height)
    proved = verifyConsistency(data, older=older, newer=newer)
    if chain is not None and proved.chain != chain:
        raise ProofInvalid(f"it is of chain {proved.chain.hex()}, which is not the trusted one")
    return growthFields(proved), growthLines(proved)


def eventFields(proved: ProvedEvent) -> Mapping[str, Any]:
    """What is proved of an event, for programs."""
    return {
        "eventId": proved.eventId,
        "topic": proved.topic,
        **contentFields(proved.content),
        "extensions": dict(proved.extensions),
        "sequence": proved.sequence,
        "submitted": proved.submitted,
        "timestamp": proved.timestamp,
        "group": proved.group,
        "chain": proved.chain.hex(),
        "block": str(proved.block),
        "signers": [
            {"node": index, "publicKey": key.hex()} for index, key in proved.signers.items()
        ],
        "nodes": proved.nodes,
        "changes": proved.changes,
        "checkpoint": None if proved.checkpoint is None else str(proved.checkpoint),
    }


def eventLines(proved: ProvedEvent) -> Iterator[str]:
    """What is proved of an event, for people."""
    yield "PROVED: this event is in the log."
    yield _line("event", f"{proved.eventId}, the topic's event number {proved.sequence}")
    yield _line("topic", quoted(proved.topic))
    yield _line("content", contentText(proved.content))
    for name, value in sorted(proved.extensions.items()):
        yield _line("extension", f"{quoted(name)}: {quoted(value)}")
    yield _line("submitted", f"{timeText(proved.submitted)} by the broker's clock")
    yield _line("block", f"{proved.block}")
    yield _line("", f"of {timeText(proved.timestamp)}, a time that its signers found plausible")
    yield _line("chain", f"{proved.chain.hex()}, group {quoted(proved.group)}")
    yield _line("signed by", f"{len(proved.signers)} of {proved.nodes} nodes")
    for index, key in proved.signers.items():
        yield _line("", f"node {index}, key {key.hex()}")
    if proved.changes:
        times = "once" if proved.changes == 1 else f"{proved.changes} times"
        yield _line("", f"the nodes had changed {times}; those before signed each change")
    if proved.checkpoint is not None:
        yield _line("vouched for", f"by block {proved.checkpoint}, too")


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
    return f"  {name:13}{text}"
