"""
The genesis ceremony of a network: the keys and the join request of each node, the genesis of them
all, and the attestation of a broker by a validator.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from ....chain import isUsableKey
from ....commands.arguments import PATH, jsonOption, makeCommand, options
from ....commands.terminal import CommandError, Console, Exit, showRecord
from ....files import writeNew
from ....model import TopicRule
from ..provisioning import (
    ATTESTATION_NAME,
    GENESIS,
    Address,
    ConfigInvalid,
    JoinRequest,
    NodePlan,
    assembleGenesis,
    attest,
    decodeGenesis,
    encodeAttestation,
    encodeJoinRequest,
    layOutJoining,
    makeJoinRequest,
    makeKeys,
    ourGenesis,
)
from .networkfiles import (
    HOME,
    JOIN_REQUEST_NAME,
    LISTEN_OPTIONS,
    NODE_OPTIONS,
    REQUESTS,
    TIMEOUTS,
    TOPICS,
    brokerKey,
    chainOf,
    hexKey,
    loadGenesis,
    loadJoinRequest,
    seedOf,
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
) -> int:
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
    return Exit.GOOD


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
) -> int:
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
    return Exit.GOOD


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
def attestCommand(console: Console, home: Path, broker: str, output: Path | None) -> int:
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
    return Exit.GOOD
