"""
C{svcbroker engine init}: the keys of a node, and its join request.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
from msgspec.structs import asdict

from ...files import writeNew
from ...ledgers.cometbft.provisioning import (
    GENESIS,
    Address,
    ConfigInvalid,
    JoinRequest,
    encodeJoinRequest,
    makeJoinRequest,
    makeKeys,
)
from .._arguments import jsonOption, makeCommand, options
from .._command import CommandError, Console, Exit
from .._tables import showRecord
from ._files import JOIN_REQUEST_NAME, brokerKey, seedOf, tried
from ._parameters import HOME, NODE_OPTIONS, TIMEOUTS


def writeJoinRequest(
    home: Path,
    *,
    chain: str,
    timeouts: str,
    name: str,
    p2p: Address,
    dataDir: Path,
    group: str,
) -> JoinRequest:
    """
    Make a node's keys where they are missing, and write its join request.

    @param chain: the chain's name.
    @param timeouts: the name of the engines' timeouts.
    @param p2p: the address at which the other engines reach it.
    @param dataDir: the data directory of the broker beside it.
    @param group: the broker's group.
    @raise CommandError: it cannot be made.
    """
    if (home / JOIN_REQUEST_NAME).exists():
        raise CommandError(
            f"{home / JOIN_REQUEST_NAME} exists: remove it if the node needs another one"
        )
    try:
        keys = tried(lambda: makeKeys(home, os.urandom))
        request = makeJoinRequest(
            seedOf(home),
            keys,
            chain=chain,
            name=name,
            p2p=p2p,
            broker=brokerKey(dataDir, group, os.urandom),
            timeouts=timeouts,
            now=time.time(),
        )
    except ConfigInvalid as error:
        raise CommandError(str(error)) from None
    writeNew(home / JOIN_REQUEST_NAME, encodeJoinRequest(request), 0o644)
    return request


@makeCommand(
    f"""\
    Make a node's keys, and its join request for the others.

    Makes HOME with the keys of a node, the key of its broker in the data directory, and
    HOME/{JOIN_REQUEST_NAME}, which the other organisations need. Existing keys are kept.
    """
)
@options(
    HOME,
    click.option(
        "--chain",
        required=True,
        metavar="NAME",
        help="The chain's name: the same for all its nodes. It is needed.",
    ),
    *NODE_OPTIONS,
    TIMEOUTS,
    jsonOption(),
)
def command(
    console: Console,
    home: Path,
    chain: str,
    name: str,
    p2p: Address,
    data_dir: Path,
    group: str,
    timeouts: str,
    asJson: bool,
) -> int:
    """Make the keys and the join request."""
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine of a network already")
    request = writeJoinRequest(
        home, chain=chain, timeouts=timeouts, name=name, p2p=p2p, dataDir=data_dir, group=group
    )
    next = (
        f"Send {home / JOIN_REQUEST_NAME} to the other organisations, and assemble the genesis "
        "from all join requests: svcbroker engine genesis"
    )
    showRecord(console, asdict(request), [*describeJoinRequest(request), next], asJson)
    return Exit.GOOD


def describeJoinRequest(request: JoinRequest) -> list[str]:
    """A join request in lines for people."""
    return [
        f"chain      {request.chain}",
        f"node       {request.name}, {request.peer}",
        f"validator  {request.validator}",
        f"broker     {request.broker}",
        f"timeouts   {request.timeouts}",
    ]
