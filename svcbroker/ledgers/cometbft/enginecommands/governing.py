"""
Governing a network: changes of the validators, which are proposed, shown, signed, merged and
submitted.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from ....chain import ValidatorSet
from ....commands.arguments import PATH, jsonOption, makeCommand, options
from ....commands.inputs import readBounded
from ....commands.operatorcommand import DAEMON, Daemon, operatorCommand
from ....commands.terminal import CommandError, Console, Exit, counted, showRecord
from ....files import writeNew
from ....proofs.cometbft import engineOrder
from ....storage import writeFile
from .._home import GENESIS
from .genesisceremony import describeJoinRequest
from .networkfiles import (
    FILE,
    HOME,
    MAX_DOCUMENT,
    OUTPUT,
    chainOf,
    keyFrom,
    loadChange,
    loadGenesis,
    loadJoinRequest,
    mergeChanges,
    proposeChange,
    seedOf,
    showChange,
    tried,
)


@operatorCommand(
    """\
    Propose a change of the validators.

    Reads the current validators from the daemon. A KEY is a validator's public key, or its first
    digits for --remove; a REQUEST is the file of a node's join request.
    """
)
@options(
    HOME,
    DAEMON,
    OUTPUT,
    click.option(
        "--add",
        "added",
        metavar="KEY|REQUEST",
        multiple=True,
        help="A validator to add. May come again.",
    ),
    click.option(
        "--remove",
        "removed",
        metavar="KEY|REQUEST",
        multiple=True,
        help="A validator to remove. May come again.",
    ),
    jsonOption(),
)
def proposeCommand(
    console: Console,
    daemon: Daemon,
    home: Path,
    output: Path,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    asJson: bool,
) -> None:
    """Propose the change."""
    if not (added or removed):
        raise CommandError("--add or --remove is needed")
    chain = chainOf(home)
    name = loadGenesis(home / GENESIS)[1].chainId
    add = [keyFrom(text, chain=name) for text in added]
    current = readSet(daemon.call("validators", groupId=daemon.group))
    remove = [_keyIn(current, text) for text in removed]
    document = tried(
        lambda: proposeChange(chain, current, add=add, remove=remove, order=engineOrder)
    )
    writeNew(output, document.encode(), 0o644)
    showChange(console, document, asJson)


def readSet(answer: Any) -> ValidatorSet:
    """
    The validator set in a daemon's answer.

    @raise CommandError: the answer is no valid set.
    """
    try:
        keys = tuple(bytes.fromhex(node["nodeId"]) for node in answer["nodes"])
        made = ValidatorSet(answer["changes"], keys)
        return ValidatorSet.decode(made.encoded)
    except Exception as error:
        raise CommandError(f"the daemon's answer is no validator set: {error}") from None


def _keyIn(current: ValidatorSet, text: str) -> bytes:
    found = [key for key in current.keys if len(text) >= 8 and key.hex().startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise CommandError(f"more than one validator begins with {text}")
    if Path(text).is_file():
        return keyFrom(text)
    raise CommandError(f"there is no validator {text}, and no join request of that name")


@makeCommand(
    """\
    Show a change or a join request, and who has signed.

    Every signature in it is checked.
    """
)
@options(FILE, jsonOption())
def showCommand(console: Console, path: Path, asJson: bool) -> None:
    """Show the file."""
    if b'"svcbroker-join-request"' in readBounded(path, MAX_DOCUMENT)[:100]:
        request = loadJoinRequest(path)
        showRecord(console, to_builtins(request), describeJoinRequest(request), asJson)
    else:
        showChange(console, loadChange(path), asJson)


@makeCommand(
    """\
    Sign a change of the validators, with this node's key.

    Adds the signature of this node's validator to the change in FILE: its approval if it is in the
    current set, and its acceptance if it is in the following set. Read the change before you sign
    it: svcbroker net engine show
    """
)
@options(HOME, FILE, jsonOption())
def signCommand(console: Console, home: Path, path: Path, asJson: bool) -> None:
    """Sign the change."""
    document = loadChange(path)
    chain = chainOf(home)
    if document.chain != chain:
        raise CommandError(
            f"it is a change of chain {document.chain.hex()}, this node is on {chain.hex()}",
            Exit.BAD,
        )
    signed = tried(lambda: document.sign(seedOf(home)))
    writeFile(path, signed.encode())
    showChange(console, signed, asJson)


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
def mergeCommand(console: Console, files: tuple[Path, ...], output: Path, asJson: bool) -> None:
    """Merge the copies."""
    merged = tried(lambda: mergeChanges([loadChange(path) for path in files]))
    writeNew(output, merged.encode(), 0o644)
    showChange(console, merged, asJson)


@operatorCommand(
    """\
    Submit a change with enough signatures to a running daemon.

    Any broker of the network can submit it, also more than once: it is executed once. The engines
    use the new set from the second block after it.
    """
)
@options(DAEMON, FILE, jsonOption("Show the daemon's answer as it is."))
def submitCommand(console: Console, daemon: Daemon, path: Path, asJson: bool) -> None:
    """Submit the change."""
    change = tried(loadChange(path).toChange)
    answer = daemon.call(
        "validators/submit",
        groupId=daemon.group,
        change=b64encode(change.encode()).decode("ascii"),
    )
    nodes, changes = counted(len(answer["nodes"]), "validator"), answer["changes"]
    lines = [
        f"{nodes}, after {counted(changes, 'change')}",
        *(node["nodeId"] for node in answer["nodes"]),
    ]
    showRecord(console, answer, lines, asJson)
