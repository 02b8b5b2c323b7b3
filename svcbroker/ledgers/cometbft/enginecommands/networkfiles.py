"""
Files that the commands about engines read and write, their errors, and their common parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click

from ....commands.arguments import PATH, ParsedType
from ....commands.inputs import readBounded
from ....commands.terminal import CommandError, Console, Exit, showRecord
from ....model import TopicRule
from ...changedocuments import MAX_DOCUMENT, ChangeDocument, DocumentInvalid, readChange
from ..provisioning import (
    DEFAULT_PROFILE,
    GENESIS,
    MAX_JOIN_REQUEST,
    PROFILES,
    Address,
    ConfigInvalid,
    EngineGenesis,
    IdentityMissing,
    JoinRequest,
    JoinRequestInvalid,
    KeyFileDamaged,
    LayoutError,
    brokerSeed,
    decodeGenesis,
    ourGenesis,
    parseAddress,
    publicKey,
    readJoinRequest,
    readValidatorSeed,
)

JOIN_REQUEST_NAME: Final = "join-request.json"
MAX_GENESIS: Final = 16 * 1024 * 1024

T = TypeVar("T")


def loadJoinRequest(path: Path) -> JoinRequest:
    """
    Read a join request.

    @raise CommandError: it is invalid.
    """
    try:
        return readJoinRequest(readBounded(path, MAX_JOIN_REQUEST))
    except JoinRequestInvalid as error:
        raise CommandError(f"{path}: {error}", Exit.BAD) from None


def loadChange(path: Path) -> ChangeDocument:
    """
    Read a change, and verify its signatures.

    @raise CommandError: it is invalid.
    """
    try:
        return readChange(readBounded(path, MAX_DOCUMENT))
    except DocumentInvalid as error:
        raise CommandError(f"{path}: {error}", Exit.BAD) from None


def loadGenesis(path: Path) -> tuple[bytes, EngineGenesis]:
    """
    Read an engine's genesis file: its bytes, and its value.

    @raise CommandError: it is invalid.
    """
    data = readBounded(path, MAX_GENESIS)
    try:
        return data, decodeGenesis(data)
    except ValueError as error:
        raise CommandError(f"{path} is not the genesis of a network: {error}", Exit.BAD) from None


def chainOf(home: Path) -> bytes:
    """
    The id of the chain of an engine's home.

    @raise CommandError: it has no genesis.
    """
    path = home / GENESIS
    if not path.exists():
        raise CommandError(f"{home} has no genesis yet: see svcbroker net engine genesis")
    return ourGenesis(loadGenesis(path)[1]).chain


def seedOf(home: Path) -> bytes:
    """
    The private key of an engine's validator.

    @raise CommandError: it is missing or damaged.
    """
    try:
        seed = readValidatorSeed(home)
    except KeyFileDamaged as error:
        raise CommandError(str(error)) from None
    if seed is None:
        raise CommandError(f"{home} has no validator key")
    return seed


def brokerKey(dataDir: Path, group: str, entropy: Callable[[int], bytes]) -> bytes:
    """
    The public key of a broker on a group's chain; it is made if it does not exist.

    @param dataDir: the broker's data directory, which is made.
    @raise CommandError: it is damaged.
    """
    directory = dataDir / group
    for path in (dataDir, directory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return publicKey(brokerSeed(directory, entropy))
    except IdentityMissing as error:
        raise CommandError(str(error)) from None


def keyFrom(text: str, *, chain: str | None = None) -> bytes:
    """
    A validator's public key, from 64 hexadecimal digits or the join request of its node.

    @param chain: the name that the chain of a join request must have.
    @raise CommandError: the text is neither.
    """
    key = hexKey(text)
    if key is not None:
        return key
    request = loadJoinRequest(Path(text))
    if chain not in (None, request.chain):
        raise CommandError(f"{text} is a join request for the chain {request.chain}, not {chain}")
    return request.key


def hexKey(text: str) -> bytes | None:
    """A public key in hexadecimal digits; C{None} if the text is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return None
    return key if len(key) == 32 and len(text) == 64 else None


def tried(make: Callable[[], T]) -> T:
    """
    Call C{make}, and report its errors as those of the command.

    @raise CommandError: a home, a signature or a document is invalid.
    """
    try:
        return make()
    except (LayoutError, KeyFileDamaged) as error:
        raise CommandError(str(error)) from None
    except (JoinRequestInvalid, DocumentInvalid) as error:
        raise CommandError(str(error), Exit.BAD) from None


def showChange(console: Console, document: ChangeDocument, asJson: bool) -> None:
    """Show a change, and who has signed it."""
    current, following = document.current, document.following
    record = {
        "chain": document.chain.hex(),
        "generation": following.generation,
        "validators": [
            {
                "key": key.hex(),
                "isAdded": key in document.added,
                "isRemoved": key in document.removed,
                "hasSigned": key in document.signatures,
            }
            for key in [*current.keys, *document.added]
        ],
        "approvals": document.approvals,
        "neededApprovals": document.neededApprovals,
        "missing": [key.hex() for key in document.missing],
        "isComplete": document.isComplete,
    }
    showRecord(console, record, describeChange(document), asJson)


def describeChange(document: ChangeDocument) -> Sequence[str]:
    """A change in lines for people."""
    current, following = document.current, document.following
    lines = [
        f"change {following.generation} of chain {document.chain.hex()}: from "
        f"{len(current.keys)} to {len(following.keys)} validators"
    ]
    for key in [*current.keys, *document.added]:
        mark = "-" if key in document.removed else "+" if key in document.added else " "
        hasSigned = "signed" if key in document.signatures else "has not signed"
        lines.append(f"{mark} {key.hex()} {hasSigned}")
    missing = len(document.missing)
    if document.isComplete:
        lines.append("complete: it can be submitted")
    else:
        lines.append(
            f"approvals: {document.approvals} of the {document.neededApprovals} that are needed; "
            f"of the new set {missing} must still accept"
        )
    return lines


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


def _topicRule(text: str) -> TopicRule:
    try:
        return TopicRule(text)
    except ValueError:
        raise ValueError(f"is not published or utf8: {text!r}") from None


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
TOPICS: Final = click.option(
    "--topics",
    type=ParsedType("rule", _topicRule),
    default=TopicRule.PUBLISHED.value,
    show_default=True,
    metavar="RULE",
    help="The names that topics may have, the same for all nodes: published or utf8.",
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
