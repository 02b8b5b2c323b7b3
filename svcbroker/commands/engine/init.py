"""
C{svcbroker engine init}: the keys of a node, and its join request.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

from twisted.python import usage

from ...ledgers.cometbft.provisioning import (
    DEFAULT_PROFILE,
    GENESIS,
    PROFILES,
    Address,
    ConfigInvalid,
    JoinRequest,
    encodeJoinRequest,
    makeJoinRequest,
    makeKeys,
    parseAddress,
)
from .._command import CommandError, Console, Exit
from .._options import CommandOptions
from ._files import JOIN_REQUEST_NAME, brokerKey, seedOf, tried, writeNew

TIMEOUTS: Final = [
    "timeouts",
    None,
    DEFAULT_PROFILE,
    f"The engines' timeouts, the same for all nodes: {' or '.join(PROFILES)}.",
]


class NodeOptions(CommandOptions):
    """
    Options of commands that make a node.
    """

    optParameters: list[list[Any]] = [
        ["name", None, None, "The node's name."],
        ["p2p", None, None, "The address at which the other engines reach it: HOST:PORT."],
        ["data-dir", None, None, "The data directory of the broker beside it."],
        ["group", None, "1", "The broker's group."],
    ]
    needed: tuple[str, ...] = ("name", "p2p", "data-dir")

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        for name in self.needed:
            if not self[name]:
                raise usage.UsageError(f"--{name} is needed")
        self["p2p"] = address(self["p2p"], "p2p")


class Options(NodeOptions):
    """
    The options of C{svcbroker engine init}.
    """

    synopsis = "--chain NAME --name NAME --p2p HOST:PORT --data-dir DIR [options] HOME"
    longdesc = (
        f"Makes HOME with the keys of a node, the key of its broker in the data directory, and "
        f"HOME/{JOIN_REQUEST_NAME}, which the other organisations need. Existing keys are kept."
    )
    optParameters: list[list[Any]] = [
        ["chain", None, None, "The chain's name: the same for all its nodes."],
        TIMEOUTS,
    ]
    needed = ("chain", *NodeOptions.needed)

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        self["timeouts"] = profile(self["timeouts"])

    def parseArgs(self, home: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"] = Path(home).absolute()


def address(text: str, option: str) -> Address:
    """
    Read the value of an option that is an address.

    @raise usage.UsageError: it is none.
    """
    try:
        return parseAddress(text)
    except ConfigInvalid as error:
        raise usage.UsageError(f"--{option}: {error}") from None


def profile(text: str) -> str:
    """
    Read the value of an option that names timeouts.

    @raise usage.UsageError: it is unknown.
    """
    if text not in PROFILES:
        raise usage.UsageError(f"--timeouts: is not {' or '.join(PROFILES)}: {text!r}")
    return text


def writeJoinRequest(options: NodeOptions, chain: str, timeouts: str) -> JoinRequest:
    """
    Make a node's keys where they are missing, and write its join request.

    @param chain: the chain's name.
    @param timeouts: the name of the engines' timeouts.
    @raise CommandError: it cannot be made.
    """
    home: Path = options["home"]
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
            name=options["name"],
            p2p=options["p2p"],
            broker=brokerKey(Path(options["data-dir"]), options["group"], os.urandom),
            timeouts=timeouts,
            now=time.time(),
        )
    except ConfigInvalid as error:
        raise CommandError(str(error)) from None
    writeNew(home / JOIN_REQUEST_NAME, encodeJoinRequest(request))
    return request


def run(options: Options, console: Console) -> int:
    """Make the keys and the join request."""
    home: Path = options["home"]
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine of a network already")
    request = writeJoinRequest(options, options["chain"], options["timeouts"])
    for line in describeJoinRequest(request):
        console.say(line)
    console.say(
        f"Send {home / JOIN_REQUEST_NAME} to the other organisations, and assemble the genesis "
        "from all join requests: svcbroker engine genesis"
    )
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
