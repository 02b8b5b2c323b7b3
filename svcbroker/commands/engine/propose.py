"""
C{svcbroker engine propose}: propose a change of the validators, still without signatures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...chain import ValidatorSet
from ...files import writeNew
from ...ledgers.changing import proposeChange
from ...ledgers.cometbft.provisioning import GENESIS, engineOrder
from .._arguments import jsonOption, options
from .._command import CommandError, Console, Exit
from .._daemon import DAEMON, Daemon, operatorCommand
from ._files import chainOf, keyFrom, loadGenesis, showChange, tried
from ._parameters import HOME, OUTPUT


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
def command(
    console: Console,
    daemon: Daemon,
    home: Path,
    output: Path,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    asJson: bool,
) -> int:
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
    return Exit.GOOD


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
