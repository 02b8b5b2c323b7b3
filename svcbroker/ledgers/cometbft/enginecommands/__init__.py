"""
C{svcbroker net engine}: the engines of a CometBFT network of several organisations, and the
ceremonies of that. One is of its genesis: the keys and the join request of each node, the genesis
of them all, the attestation of a broker by a validator, and the home of a node that joins later.
The other is of a change of the validators, which is proposed, shown, signed, merged and submitted.
"""

from __future__ import annotations

import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click
from msgspec import to_builtins
from twisted.internet.defer import Deferred, TimeoutError

from ....chain import ValidatorSet, isUsableKey
from ....commands.arguments import PATH, ParsedType, jsonOption, makeCommand, options
from ....commands.clientcommand import runReactor
from ....commands.commandline import Command
from ....commands.inputs import readBounded
from ....commands.operatorcommand import DAEMON, Daemon, operatorCommand
from ....commands.terminal import CommandError, Console, Exit, counted, showRecord
from ....files import writeNew
from ....model import TopicRule
from ....proofs.cometbft import engineOrder
from ....storage import writeFile
from .._batch import ATTESTATION_NAME, attest, encodeAttestation
from .._home import GENESIS, EngineGenesis, decodeGenesis
from .._rpc import connectEngine
from ..provisioning import (
    Address,
    ConfigInvalid,
    JoinRequest,
    NodePlan,
    StateSync,
    TrustMissing,
    askTrust,
    assembleGenesis,
    encodeJoinRequest,
    layOutJoining,
    makeJoinRequest,
    makeKeys,
    ourGenesis,
)
from .networkfiles import (
    ADDRESS,
    FILE,
    HOME,
    JOIN_REQUEST_NAME,
    LISTEN_OPTIONS,
    MAX_DOCUMENT,
    NODE_OPTIONS,
    OUTPUT,
    REQUESTS,
    TIMEOUTS,
    TOPICS,
    brokerKey,
    chainOf,
    hexKey,
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


def writeJoinRequest(
    home: Path,
    *,
    chain: str,
    timeouts: str,
    topics: TopicRule,
    name: str,
    p2p: Address,
    dataDir: Path,
    group: str,
) -> JoinRequest:
    """
    Make a node's keys where they are missing, and write its join request.

    @param chain: the chain's name.
    @param timeouts: the name of the engines' timeouts.
    @param topics: the rule of topics' names.
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
            topics=topics,
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
    TOPICS,
    jsonOption(),
)
def initCommand(
    console: Console,
    home: Path,
    chain: str,
    name: str,
    p2p: Address,
    data_dir: Path,
    group: str,
    timeouts: str,
    topics: TopicRule,
    asJson: bool,
) -> None:
    """Make the keys and the join request."""
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine of a network already")
    request = writeJoinRequest(
        home,
        chain=chain,
        timeouts=timeouts,
        topics=topics,
        name=name,
        p2p=p2p,
        dataDir=data_dir,
        group=group,
    )
    next = (
        f"Send {home / JOIN_REQUEST_NAME} to the other organisations, and assemble the genesis "
        "from all join requests: svcbroker net engine genesis"
    )
    showRecord(console, to_builtins(request), [*describeJoinRequest(request), next], asJson)


def describeJoinRequest(request: JoinRequest) -> list[str]:
    """A join request in lines for people."""
    topics = [f"topics     {request.topics}"] if request.topics else []
    return [
        f"chain      {request.chain}",
        f"node       {request.name}, {request.peer}",
        f"validator  {request.validator}",
        f"broker     {request.broker}",
        f"timeouts   {request.timeouts}",
        *topics,
    ]


_CLOCK_TOLERANCE = 60.0


def planHome(
    home: Path, name: str, p2p: Address, *, listen: Address | None, rpc: Address
) -> NodePlan:
    """
    The plan of an engine's home.

    @param p2p: the address that its peers use.
    """
    own = Address(host="0.0.0.0", port=p2p.port)
    return NodePlan(home=home, name=name, rpc=rpc, p2p=listen or own, external=p2p)


@makeCommand(
    """\
    Assemble the genesis from the join requests of all first nodes.

    Every organisation runs this with the join requests of all, in any order, and compares the
    output with the others: the network can begin when it is the same. Writes the genesis and the
    configuration of the engine into HOME.
    """
)
@options(HOME, REQUESTS, *LISTEN_OPTIONS, jsonOption())
def genesisCommand(
    console: Console,
    home: Path,
    requests: tuple[Path, ...],
    listen: Address | None,
    rpc: Address,
    asJson: bool,
) -> None:
    """Assemble the genesis, and lay out the home."""
    if not (home / JOIN_REQUEST_NAME).exists():
        raise CommandError(f"{home} has no {JOIN_REQUEST_NAME}: see svcbroker net engine init")
    own = loadJoinRequest(home / JOIN_REQUEST_NAME)
    given = [own, *map(loadJoinRequest, requests)]
    ceremony = tried(lambda: assembleGenesis(given))
    plan = planHome(home, own.name, own.peer.address, listen=listen, rpc=rpc)
    peers = [request.peer for request in ceremony.requests if request != own]
    keys = tried(
        lambda: layOutJoining(plan, ceremony.genesis, peers, os.urandom, tuning=own.tuning)
    )
    if keys.validator != own.key or keys.nodeId != own.nodeId:
        raise CommandError(
            f"{home / JOIN_REQUEST_NAME} is not the join request of the keys in {home}", Exit.BAD
        )
    genesis = decodeGenesis(ceremony.genesis)
    if genesis.genesisTime / 1e9 > time.time() + _CLOCK_TOLERANCE:
        console.warn(
            f"the engine will wait until {genesis.genesisTime}: the clock of a node that made a "
            "join request is ahead"
        )
    record = {
        "chain": genesis.chainId,
        "chainId": ourGenesis(genesis).chain.hex(),
        "genesis": sha256(ceremony.genesis).hexdigest(),
        "validators": [
            {
                "key": request.validator,
                "name": request.name,
                "p2p": request.p2p,
                "isThisNode": request == own,
            }
            for request in ceremony.requests
        ],
    }
    showRecord(console, record, _describe(record), asJson)


def _describe(record: Mapping[str, Any]) -> Iterator[str]:
    """Format an assembled genesis in lines for people."""
    yield f"chain      {record['chain']}, {record['chainId']}"
    yield f"genesis    SHA-256 {record['genesis']}"
    for each in record["validators"]:
        mark = ", this node" if each["isThisNode"] else ""
        yield f"validator  {each['key']} {each['name']}, {each['p2p']}{mark}"
    yield "All of this must be the same at every organisation, except the mark of this node."


@makeCommand(
    f"""\
    Let a broker send to the chain: sign an attestation of it.

    REQUEST is the join request of the broker's node, KEY the broker's public key; a broker without
    an attestation tells its key in its log and in readyz. Put the output into the broker's data
    directory, in the group's directory, as {ATTESTATION_NAME}. It is valid as long as this node is
    a validator.
    """
)
@options(
    HOME,
    click.argument("broker", metavar="REQUEST|KEY"),
    click.option(
        "--output",
        "-o",
        type=PATH,
        metavar="FILE",
        help="Write it to a new file. [default: standard output]",
    ),
)
def attestCommand(console: Console, home: Path, broker: str, output: Path | None) -> None:
    """Sign the attestation."""
    chain = chainOf(home)
    key = hexKey(broker)
    if key is None:
        request = loadJoinRequest(Path(broker))
        name = loadGenesis(home / GENESIS)[1].chainId
        if request.chain != name:
            raise CommandError(
                f"the join request is for the chain {request.chain}, not {name}", Exit.BAD
            )
        key = bytes.fromhex(request.broker)
    if not isUsableKey(key):
        raise CommandError(f"the broker's key {key.hex()} is not a usable Ed25519 key")
    data = encodeAttestation(attest(seedOf(home), chain, key))
    if output is None:
        console.say(data.decode("ascii").rstrip("\n"))
    else:
        writeNew(output, data, 0o644)


_TRUST = re.compile(r"([1-9][0-9]{0,18}):([0-9a-fA-F]{64})")
_ANSWER = 10.0
_ALL = 60.0


def _trust(text: str) -> tuple[int, bytes]:
    found = _TRUST.fullmatch(text)
    if found is None:
        raise ValueError("is not HEIGHT:HASH with 64 hexadecimal digits")
    return int(found[1]), bytes.fromhex(found[2])


@makeCommand(
    """\
    Make the home of a new node of an existing network.

    REQUESTs are the join requests of nodes that the new one connects to. It follows the network,
    and votes once it has been made a validator (svcbroker net engine propose). Its broker may send
    once a validator has attested it (svcbroker net engine attest).
    """
)
@options(
    HOME,
    REQUESTS,
    click.option(
        "--genesis",
        "genesisFile",
        type=PATH,
        required=True,
        metavar="FILE",
        help="The network's genesis file, as the others have it. It is needed.",
    ),
    *NODE_OPTIONS,
    *LISTEN_OPTIONS,
    click.option(
        "--state-sync",
        "servers",
        type=ADDRESS,
        metavar="HOST:PORT",
        multiple=True,
        help="Start from a snapshot, verified by the RPC of this engine; give it at least twice.",
    ),
    click.option(
        "--trust",
        type=ParsedType("block", _trust),
        metavar="HEIGHT:HASH",
        help="A trusted block. [default: the first block, which the genesis proves]",
    ),
    jsonOption(),
)
def joinCommand(
    console: Console,
    home: Path,
    requests: tuple[Path, ...],
    genesisFile: Path,
    name: str,
    p2p: Address,
    data_dir: Path,
    group: str,
    listen: Address | None,
    rpc: Address,
    servers: tuple[Address, ...],
    trust: tuple[int, bytes] | None,
    asJson: bool,
) -> None:
    """Lay out the home."""
    if not requests:
        raise CommandError("the join request of at least one node to connect to is needed")
    if len(servers) == 1:
        raise CommandError("--state-sync: two engines must agree: give another one")
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine already")
    data, genesis = loadGenesis(genesisFile)
    members = [loadJoinRequest(path) for path in requests]
    for request in members:
        if request.chain != genesis.chainId:
            raise CommandError(
                f"the join request of {request.name} is for {request.chain}, not {genesis.chainId}"
            )
    sync = _stateSync(servers, trust, genesis)
    timeouts = {request.timeouts for request in members}
    if len(timeouts) > 1:
        raise CommandError(f"the join requests have several timeouts: {', '.join(timeouts)}")
    own = writeJoinRequest(
        home,
        chain=genesis.chainId,
        timeouts=timeouts.pop(),
        topics=genesis.topics,
        name=name,
        p2p=p2p,
        dataDir=data_dir,
        group=group,
    )
    peers = [request.peer for request in members]
    plan = planHome(home, own.name, own.peer.address, listen=listen, rpc=rpc)
    tried(lambda: layOutJoining(plan, data, peers, os.urandom, stateSync=sync, tuning=own.tuning))
    lines = describeJoinRequest(own)
    if sync is not None:
        lines.append(f"trusts     block {sync.height}, {sync.hash.hex()}")
    lines.append(f"Send {home / JOIN_REQUEST_NAME} to a validator, which attests the broker.")
    trusted = None if sync is None else f"{sync.height}:{sync.hash.hex()}"
    showRecord(console, {**to_builtins(own), "trusted": trusted}, lines, asJson)


def _stateSync(
    servers: tuple[Address, ...], trust: tuple[int, bytes] | None, genesis: EngineGenesis
) -> StateSync | None:
    if not servers:
        return None
    height, hash = trust or _ask(genesis, servers)
    return StateSync(servers=servers, height=height, hash=hash)


def _ask(genesis: EngineGenesis, servers: Sequence[Address]) -> tuple[int, bytes]:
    """Ask a network that runs for its genesis, and check it."""

    async def ask(reactor: Any) -> tuple[int, bytes]:
        engines = [connectEngine(reactor, f"http://{each}", _ANSWER) for each in servers]
        asking = Deferred.fromCoroutine(askTrust(genesis, engines))
        trust = await asking.addTimeout(_ALL, reactor)
        return trust.height, trust.hash

    try:
        return runReactor(ask)
    except TrustMissing as error:
        raise CommandError(f"--state-sync: {error}", Exit.BAD) from None
    except TimeoutError:
        raise CommandError("--state-sync: the engines do not answer") from None


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


_NODE: Final = "--name alba --p2p alba.example:26656 --data-dir /var/lib/svcbroker"

COMMANDS: Final[tuple[Command, ...]] = tuple(
    Command.of(name, command, f"svcbroker net engine {name} {example}")
    for name, command, example in (
        ("init", initCommand, f"/var/lib/engine --chain consortium {_NODE}"),
        ("genesis", genesisCommand, "/var/lib/engine bern.json corner.json"),
        ("join", joinCommand, f"/var/lib/engine bern.json --genesis genesis.json {_NODE}"),
        ("attest", attestCommand, "/var/lib/engine corner.json --output attestation.json"),
        ("propose", proposeCommand, "/var/lib/engine --add corner.json --output change.json"),
        ("sign", signCommand, "/var/lib/engine change.json"),
        ("merge", mergeCommand, "alba.json bern.json --output change.json"),
        ("show", showCommand, "change.json"),
        ("submit", submitCommand, "change.json --data-dir /var/lib/svcbroker"),
    )
)
"""The commands about engines, in the order in which a network needs them."""


HELP: Final = (
    "A HOME is an engine's home directory. Private keys stay in it; what these commands print and "
    "write elsewhere is public."
)
