"""
Parameters that the commands about engines share.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from ...ledgers.cometbft.provisioning import (
    DEFAULT_PROFILE,
    PROFILES,
    Address,
    ConfigInvalid,
    parseAddress,
)
from .._arguments import PATH, ParsedType

DEFAULT_RPC: Final = "127.0.0.1:26657"


def _address(text: str) -> Address:
    try:
        return parseAddress(text)
    except ConfigInvalid as error:
        raise ValueError(str(error)) from None


def _profile(text: str) -> str:
    if text not in PROFILES:
        raise ValueError(f"is not {' or '.join(PROFILES)}: {text!r}")
    return text


def _absolute(text: str) -> Path:
    return Path(text).absolute()


ADDRESS: Final = ParsedType("address", _address)
HOME_TYPE: Final = ParsedType("home", _absolute)

HOME: Final = click.argument("home", type=HOME_TYPE)
FILE: Final = click.argument("path", metavar="FILE", type=PATH)
REQUESTS: Final = click.argument("requests", metavar="REQUEST...", nargs=-1, type=PATH)
OUTPUT: Final = click.option(
    "--output",
    "-o",
    type=PATH,
    required=True,
    metavar="FILE",
    help="The new file to write. It is needed.",
)
TIMEOUTS: Final = click.option(
    "--timeouts",
    type=ParsedType("profile", _profile),
    default=DEFAULT_PROFILE,
    show_default=True,
    metavar="PROFILE",
    help=f"The engines' timeouts, the same for all nodes: {' or '.join(PROFILES)}.",
)
NODE_OPTIONS: Final[tuple[Callable[..., object], ...]] = (
    click.option("--name", required=True, metavar="NAME", help="The node's name. It is needed."),
    click.option(
        "--p2p",
        type=ADDRESS,
        required=True,
        metavar="HOST:PORT",
        help="The address at which the other engines reach it. It is needed.",
    ),
    click.option(
        "--data-dir",
        type=PATH,
        required=True,
        metavar="DIR",
        help="The data directory of the broker beside it. It is needed.",
    ),
    click.option(
        "--group", default="1", show_default=True, metavar="ID", help="The broker's group."
    ),
)
"""Options of commands that make a node."""
LISTEN_OPTIONS: Final[tuple[Callable[..., object], ...]] = (
    click.option(
        "--listen",
        type=ADDRESS,
        metavar="HOST:PORT",
        help="Where the engine listens for peers. [default: 0.0.0.0, own port]",
    ),
    click.option(
        "--rpc",
        type=ADDRESS,
        default=DEFAULT_RPC,
        show_default=True,
        metavar="HOST:PORT",
        help="Where its RPC listens, for its broker alone.",
    ),
)
"""Options of commands that write an engine's configuration."""
