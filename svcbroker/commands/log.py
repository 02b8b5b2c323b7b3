"""
C{svcbroker admin log}: the transparency log of a group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..files import readFile, writeNew
from .arguments import EVENT, jsonOption, options
from .clientcommand import askedBroker, clientCommand, connectedCommand
from .commandline import Command
from .terminal import CommandError, Console, Exit, counted, showRecord

if TYPE_CHECKING:
    from ..client import Client


def logKey(console: Console, client: Client, genesis: str | None) -> dict[str, Any]:
    """
    The answer of a broker about the key of its log. With a genesis the chain has to certify it.

    @param genesis: the file of the genesis that is trusted.
    @raise CommandError: the chain does not certify the key.
    """
    from ..proofs import ProofInvalid, readGenesis, verifyProof

    told: dict[str, Any] = json.loads(client.readLog("keys"))
    if genesis is None:
        console.warn("the key is what the broker tells: give --genesis to have it proved")
        return told
    try:
        chain = readGenesis(readFile(genesis)).chain
    except ProofInvalid as error:
        raise CommandError(f"--genesis: {genesis}: {error}") from None
    try:
        proved = verifyProof(client.proof(told["eventId"]), chain=chain)
        record = json.loads(proved.content or b"{}")
        if (record["origin"], record["key"]) != (told["origin"], told["key"]):
            raise ProofInvalid("the event certifies another key")
        if proved.topic != "$svc/log":
            raise ProofInvalid(f"the event is one of the topic {proved.topic}")
    except (ProofInvalid, ValueError, LookupError, TypeError) as error:
        raise CommandError(f"NOT PROVED: {error}", Exit.BAD) from None
    return told


@clientCommand(
    """\
    Show the public key of the log, and check that the chain certifies it.

    Say what you trust: the genesis that you have kept. Without it, the key is what the broker
    tells. What is written is a policy file that trusts the log alone: add the witnesses that you
    trust, and name them in place of none.

    \b
    svcbroker admin log key --genesis genesis.json > policy
    svcbroker verify event.tlog-proof --policy policy
    """
)
@options(
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    jsonOption("Tell all of it in JSON."),
)
def _key(console: Console, client: Client, genesis: str | None, asJson: bool) -> None:
    told = logKey(console, client, genesis)
    showRecord(console, told, [f"log {told['key']}", "quorum none"], asJson)


@clientCommand(
    """\
    Get the proof that an event is in the log: a tlog-proof with the newest checkpoint.

    svcbroker verify --policy checks it, offline. With --topic-proof it is the proof that the block
    of a topic proof, which you have, is in the log.

    \b
    svcbroker admin log prove 7ba3f518-1-1 --output event.tlog-proof
    """
)
@options(
    click.argument("event", type=EVENT, required=False),
    click.option("--topic-proof", "topic", metavar="FILE", help="A topic proof."),
    click.option("--output", metavar="FILE", help="Write it to this new file."),
)
def _prove(
    console: Console, client: Client, event: str | None, topic: str | None, output: str | None
) -> None:
    from urllib.parse import quote

    if (event is None) == (topic is None):
        raise CommandError("give an event or --topic-proof FILE")
    if topic is not None:
        proof = _proveTopic(client, topic)
    else:
        proof = client.readLog(f"proof?eventId={quote(event or '', safe='')}")
    if output is None:
        console.output.write(proof.decode())
    else:
        writeNew(output, proof)


def _proveTopic(client: Client, path: str) -> bytes:
    """
    The proof that the block of a topic proof is in the log, from its checkpoint and tiles.

    @raise CommandError: it is not, or not yet.
    """
    from ..chain import Malformed, historyPath
    from ..proofs import ProofInvalid, blockOfTopic
    from ..proofs.tlog import LogProof, Note, Tiles, TreeHead, neededTiles

    data = readFile(path)
    try:
        block = blockOfTopic(data)
    except ProofInvalid as error:
        raise CommandError(f"--topic-proof: {path}: {error}") from None
    try:
        note = Note.decode(client.readLog("checkpoint"))
        size = TreeHead.parse(note.text).size
        if size <= block.height:
            raise CommandError(
                f"the topic proof is of block {block.height}, and the newest checkpoint has size "
                f"{size}: wait until one is cosigned that has the block",
                Exit.BAD,
            )
        tiles = {
            each: client.readLog(f"tile/{each.path}") for each in neededTiles(size, block.height)
        }
        way = tuple(historyPath(block.height, size, Tiles(tiles).source))
        proof = LogProof(index=block.height, path=way, checkpoint=note, extra=data)
        proof.check(block.hash)
    except Malformed as error:
        raise CommandError(f"NOT PROVED: {error}", Exit.BAD) from None
    return proof.encode()


def _source(given: Mapping[str, Any]) -> AbstractContextManager[Client | None]:
    """The broker that is asked; none where a data directory is read."""
    return nullcontext() if given["data_dir"] is not None else askedBroker(given)


@connectedCommand(
    """\
    Write the log as files: the checkpoint, the tiles and the entries.

    Any web server can serve DIRECTORY as the log. What is there already is not read again, so the
    same command, once an hour for example, writes what is new. It is refused when the log has not
    grown from what is in DIRECTORY. With --data-dir that data directory is read, and no broker is
    asked. One may be running on it.

    \b
    svcbroker admin log export /srv/www/log
    """,
    _source,
)
@options(click.argument("directory"))
def _export(console: Console, client: Client | None, directory: str) -> None:
    from ..archive import LogRefused, LogUnreadable, exportLog, storedLog
    from ..storage import StorageError
    from .chainfiles import onlyGroup

    target = Path(directory)
    try:
        if client is not None:
            head, count = exportLog(client.readLog, target)
        else:
            given = click.get_current_context().params
            dataDir = given["data_dir"]
            with storedLog(dataDir, given["group"] or onlyGroup(dataDir)) as read:
                head, count = exportLog(read, target)
    except LogRefused as error:
        raise CommandError(f"{error}", Exit.BAD) from None
    except (LogUnreadable, StorageError) as error:
        raise CommandError(f"{error}") from None
    console.warn(f"{head.origin}: size {head.size}, {counted(count, 'file')} written")


COMMANDS: Final = (
    Command("key", "Show the public key of the log, and check it.", command=_key),
    Command("prove", "Get the proof that an event is in the log.", command=_prove),
    Command("export", "Write the log as files for a web server.", command=_export),
)
HELP: Final = (
    "The log has the hashes of the chain's headers, which strangers can follow and witnesses "
    "cosign. docs/transparency.rst says more."
)
