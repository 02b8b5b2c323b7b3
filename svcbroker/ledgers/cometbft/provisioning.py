"""
Provisioning for commands: keys, configuration and genesis of a network of engines.

The engine's C{config.toml} has the settings that differ from CometBFT 0.38's defaults, or that must
not change when its defaults do. Homes are laid out for a new network, or for a node that joins one,
with their keys and the block that state sync trusts.

In the genesis ceremony each organisation makes a join request for its node (C{svcbroker net engine
init}) and sends it to the others. All of them assemble the same genesis from the same requests, in
any order.

No broker needs to run for it, and no module beside a running node imports it.

Many names: each document of a network has a record, a writer and a reader.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Struct, UnsetType, structs
from twisted.internet.defer import Deferred

from ... import chain
from ...model import TopicRule
from ...proofs.cometbft import (
    ED25519,
    BadAnswer,
    Base64,
    Instant,
    LightBlock,
    LightBlockInvalid,
    PublicKey,
    Trust,
    addressOf,
)
from ...storage import writeFile
from ._home import (
    CONFIG,
    GENESIS,
    MAX_SOCKET_PATH,
    NODE_KEY,
    POWER,
    PRIVATE_KEY,
    SEED_SIZE,
    SOCKET,
    VALIDATOR_KEY,
    VALIDATOR_STATE,
    AppState,
    EngineGenesis,
    EngineKeys,
    GenesisValidator,
    LayoutError,
    decodeGenesis,
    publicKey,
    readKeys,
)
from ._rpc import EngineError

_OVERHEAD: Final = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,50}")
_PORTS = range(1, 65536)
_LONGEST_HOST = 253


class ConfigInvalid(Exception):
    """Settings that an engine cannot run with. The text is one line for the operator."""


@frozen(kw_only=True)
class Address:
    """
    A host and a port.

    @ivar host: a name or an address.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen(kw_only=True)
class Peer:
    """
    Another engine.

    @ivar nodeId: its id: 40 hexadecimal digits.
    """

    nodeId: str
    address: Address

    def __str__(self) -> str:
        return f"{self.nodeId}@{self.address}"


@frozen(kw_only=True)
class StateSync:
    """
    State sync: how an engine without blocks starts from a snapshot.

    @ivar servers: the RPC addresses of at least two engines; their headers must agree.
    @ivar height: a trusted height.
    @ivar hash: the hash of its block.
    """

    servers: Sequence[Address]
    height: int
    hash: bytes


@frozen(kw_only=True)
class Tuning:
    """
    Timeouts and bounds of an engine, the same for all engines of a chain.

    @ivar commit: seconds that an engine waits after a block for late votes; the shortest time
        between two blocks.
    @ivar propose: seconds that an engine waits for a proposal.
    @ivar vote: seconds that an engine waits for more prevotes, and for more precommits, once it
        has those of two thirds without a decision. A round whose proposer is absent costs the
        others C{propose} and C{vote}.
    @ivar growth: seconds by which these times grow with each further round of a block. Engines that
        wait for a processor, and not for each other, get to times that are long enough in a few
        rounds, each of which costs them messages.
    @ivar flush: seconds that messages to a peer may wait to be sent together.
    @ivar gossip: seconds between checks of what a peer lacks.
    @ivar rate: the most bytes a second to and from a peer.
    @ivar transactions: the most transactions in the mempool.
    @ivar transactionBytes: the most bytes of them.
    @ivar maxTransaction: the largest transaction in bytes.
    @ivar emptyBlocks: whether blocks are made while the mempool is empty.
    """

    commit: float = 0.02
    propose: float = 0.06
    vote: float = 0.01
    growth: float = 0.2
    flush: float = 0.001
    gossip: float = 0.002
    rate: int = 64 * 1024 * 1024
    transactions: int = 5000
    transactionBytes: int = 256 * 1024 * 1024
    maxTransaction: int = 4 * 1024 * 1024
    emptyBlocks: bool = False


PROFILES: Final[Mapping[str, Tuning]] = {
    "lan": Tuning(),
    "wan": Tuning(propose=2.0, vote=0.5, growth=0.5, rate=20 * 1024 * 1024),
}
"""
Timeouts by the name of the profile: C{lan} for round-trip times up to some 20 ms, C{wan} for up to
some 500 ms. In slower networks rounds get longer until one decides.
"""

DEFAULT_PROFILE: Final = "lan"


@frozen(kw_only=True)
class EngineConfig:
    """
    The configuration of one engine.

    @ivar name: its moniker.
    @ivar application: the path of the application's Unix socket, or the name of one of the
        engine's own examples.
    @ivar rpc: where its RPC listens: an address, or the path of a Unix socket. Any client that
        reaches it may submit transactions.
    @ivar p2p: where it listens for its peers.
    @ivar external: the address that its peers use, if it differs.
    @ivar peers: its persistent peers.
    @ivar stateSync: start from a snapshot; C{None}: from the first block.
    """

    name: str
    application: Path | str
    rpc: Address | Path
    p2p: Address
    external: Address | None = None
    peers: Sequence[Peer] = ()
    stateSync: StateSync | None = None
    tuning: Tuning = Tuning()


def checkName(name: str, what: str) -> str:
    """
    Check that a name is valid for the engine.

    @param what: what has the name, for the error text.
    @raise ConfigInvalid: it is not.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigInvalid(f"{what} has a name that is not 1 to 50 of [A-Za-z0-9._-]: {name!r}")
    return name


def parseAddress(text: str) -> Address:
    """
    Read C{host:port}, or C{[host]:port} where the host has colons.

    @raise ConfigInvalid: it is neither.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    isGood = 0 < len(host) <= _LONGEST_HOST and host.isascii() and host.isprintable()
    if not isGood or set(host) & set(' ,@"\\/[]') or not (port.isascii() and port.isdigit()):
        raise ConfigInvalid(f"{text[:300]!r} is not host:port")
    if len(port) > 5 or int(port) not in _PORTS:
        raise ConfigInvalid(f"{text[:300]!r} has no port from 1 to 65535")
    return Address(host=host, port=int(port))


def encodeConfig(config: EngineConfig) -> bytes:
    """
    The text of C{config.toml}.

    @raise ConfigInvalid: the engine would not run with it.
    """
    sections: Mapping[str, Mapping[str, object]] = {
        "": _top(config),
        "rpc": {
            "laddr": _at(config.rpc),
            # Transactions are sent in base64.
            "max_body_bytes": config.tuning.maxTransaction * 4 // 3 + _OVERHEAD,
            "max_open_connections": 900,
        },
        "p2p": _p2p(config),
        "mempool": _mempool(config),
        "statesync": _stateSync(config),
        "consensus": _consensus(config),
        # The store has its own index.
        "tx_index": {"indexer": "null"},
    }
    lines = ["# Made by svcbroker. Other settings have CometBFT's defaults."]
    for section, values in sections.items():
        lines.extend(["", f"[{section}]"] if section else [""])
        lines.extend(f"{key} = {_toml(value)}" for key, value in values.items())
    return "\n".join([*lines, ""]).encode("utf-8")


def _top(config: EngineConfig) -> dict[str, object]:
    """The settings that are in no section."""
    return {
        "proxy_app": (
            config.application if isinstance(config.application, str) else _at(config.application)
        ),
        "moniker": checkName(config.name, "a node"),
        # No line for each block: the broker knows of it.
        "log_level": "consensus:error,state:error,txindex:error,*:info",
        "log_format": "plain",
    }


def _p2p(config: EngineConfig) -> dict[str, object]:
    """The connections to other engines."""
    tuning = config.tuning
    return {
        "laddr": _at(config.p2p),
        "external_address": "" if config.external is None else str(config.external),
        "persistent_peers": ",".join(map(str, config.peers)),
        "unconditional_peer_ids": ",".join(peer.nodeId for peer in config.peers),
        "persistent_peers_max_dial_period": "5s",
        # Peers may have private addresses, and share one.
        "addr_book_strict": False,
        "allow_duplicate_ip": True,
        # The peers are configured; no others are discovered.
        "pex": False,
        "flush_throttle_timeout": _span(tuning.flush),
        "send_rate": tuning.rate,
        "recv_rate": tuning.rate,
    }


def _mempool(config: EngineConfig) -> dict[str, object]:
    """The transactions that wait for a block."""
    tuning = config.tuning
    return {
        "type": "flood",
        # Batches that were executed meanwhile, or whose sponsor has left, must leave the mempool:
        # the engine makes blocks as long as it is not empty.
        "recheck": True,
        "size": tuning.transactions,
        "max_txs_bytes": tuning.transactionBytes,
        "cache_size": 4 * tuning.transactions,
        "max_tx_bytes": tuning.maxTransaction,
    }


def _consensus(config: EngineConfig) -> dict[str, object]:
    """The times of consensus."""
    tuning = config.tuning
    return {
        "timeout_propose": _span(tuning.propose),
        "timeout_propose_delta": _span(tuning.growth),
        "timeout_prevote": _span(tuning.vote),
        "timeout_prevote_delta": _span(tuning.growth),
        "timeout_precommit": _span(tuning.vote),
        "timeout_precommit_delta": _span(tuning.growth),
        "timeout_commit": _span(tuning.commit),
        "create_empty_blocks": tuning.emptyBlocks,
        "create_empty_blocks_interval": "0s",
        "peer_gossip_sleep_duration": _span(tuning.gossip),
    }


def _stateSync(config: EngineConfig) -> dict[str, object]:
    """The start from a snapshot of others, where it is asked for."""
    sync = config.stateSync
    if sync is None:
        return {"enable": False}
    if len(sync.servers) < 2:
        raise ConfigInvalid("state sync needs the addresses of two engines' RPC at least")
    return {
        "enable": True,
        "rpc_servers": ",".join(map(str, sync.servers)),
        "trust_height": sync.height,
        "trust_hash": sync.hash.hex().upper(),
        # Ten years: a chain with no block for longer than that could not be joined.
        "trust_period": f"{10 * 365 * 86400}s",
        "discovery_time": "5s",
        # Four chunks are fetched at once, over a connection that may be slow.
        "chunk_request_timeout": "30s",
    }


def _at(place: Address | Path) -> str:
    """An address or a socket in the engine's notation."""
    if isinstance(place, Address):
        return f"tcp://{place}"
    if len(bytes(place)) > MAX_SOCKET_PATH:
        raise ConfigInvalid(
            f"the path of a socket is longer than {MAX_SOCKET_PATH} bytes, which no system takes: "
            f"{place}"
        )
    return f"unix://{place}"


def _span(seconds: float) -> str:
    """A duration in the engine's notation."""
    microseconds = round(seconds * 1_000_000)
    milliseconds, rest = divmod(microseconds, 1000)
    return f"{microseconds}us" if rest else f"{milliseconds}ms"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if not text.isprintable():
        raise ConfigInvalid(f"this cannot be written in the engine's configuration: {text!r}")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def makeKeys(home: Path, entropy: Callable[[int], bytes]) -> EngineKeys:
    """
    Make an engine's keys, in files that only their owner can read. Files that exist are kept, so
    that an interrupted run can be repeated; above all the validator's signing state is kept.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise OSError: they cannot be written.
    @raise KeyFileDamaged: a file exists and is no key.
    """
    for path in (home, home / "config", home / "data"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, encode in ((NODE_KEY, _nodeKeyFile), (VALIDATOR_KEY, _validatorKeyFile)):
        if not (home / path).exists():
            writeFile(home / path, encode(entropy(SEED_SIZE)), 0o600)
    if not (home / VALIDATOR_STATE).exists():
        writeFile(home / VALIDATOR_STATE, _json({"height": "0", "round": 0, "step": 0}), 0o600)
    return readKeys(home)


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _privateKey(seed: bytes) -> dict[str, str]:
    return {"type": PRIVATE_KEY, "value": _text(seed + publicKey(seed))}


def _nodeKeyFile(seed: bytes) -> bytes:
    return _json({"priv_key": _privateKey(seed)})


def _validatorKeyFile(seed: bytes) -> bytes:
    public = publicKey(seed)
    return _json(
        {
            "address": addressOf(public).hex().upper(),
            "pub_key": {"type": ED25519, "value": _text(public)},
            "priv_key": _privateKey(seed),
        }
    )


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


MAX_BLOCK_BYTES: Final = 100 * 1024 * 1024
"""The largest block that the engine can be told to accept."""

_EVIDENCE_BYTES: Final = 1024 * 1024


@frozen(kw_only=True)
class NodePlan:
    """
    The home and the addresses of one engine.

    @ivar home: its home directory.
    @ivar name: its name.
    @ivar rpc: where its RPC listens: an address, or the path of a Unix socket.
    @ivar p2p: where it listens for its peers.
    @ivar external: the address that its peers use, if it differs.
    @ivar socket: the application's socket; by default C{abci.sock} in its home.
    @ivar power: the voting power of its validator.
    """

    home: Path
    name: str
    rpc: Address | Path
    p2p: Address
    external: Address | None = None
    socket: Path | str | None = None
    power: int = POWER

    @property
    def application(self) -> Path | str:
        """The application's socket."""
        return self.home.absolute() / SOCKET if self.socket is None else self.socket

    def peer(self, keys: EngineKeys) -> Peer:
        """The engine as its peers see it."""
        return Peer(nodeId=keys.nodeId, address=self.external or self.p2p)


@frozen(kw_only=True)
class NetworkPlan:
    """
    A new network of engines.

    @ivar chainId: the engine's name of the chain: 1 to 50 of C{[A-Za-z0-9._-]}.
    @ivar created: the genesis time; engines wait for it.
    @ivar nodes: the validators.
    @ivar blockBytes: the most bytes of a block.
    @ivar topics: the rule of topics' names.
    """

    chainId: str
    created: Instant
    nodes: Sequence[NodePlan]
    blockBytes: int = 8 * 1024 * 1024
    tuning: Tuning = Tuning()
    topics: TopicRule = TopicRule.PUBLISHED


def layOutNetwork(plan: NetworkPlan, entropy: Callable[[int], bytes]) -> Sequence[EngineKeys]:
    """
    Make the home directories of a new network.

    The genesis is written last, and a home that has one is left alone. An interrupted run can be
    repeated: existing keys are kept.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @return: the engines' keys, in the order of the plan.
    @raise LayoutError: a home is in use, the plan is invalid, or a file cannot be written.
    """
    try:
        return _layOutNetwork(plan, entropy)
    except ConfigInvalid as error:
        raise LayoutError(str(error)) from error
    except OSError as error:
        raise LayoutError(f"cannot write {error.filename}: {error.strerror}") from error


def _layOutNetwork(plan: NetworkPlan, entropy: Callable[[int], bytes]) -> Sequence[EngineKeys]:
    checkName(plan.chainId, "the chain")
    if not plan.nodes:
        raise LayoutError("a network has one node at least")
    if not 1024 <= plan.blockBytes <= MAX_BLOCK_BYTES:
        raise LayoutError(f"a block has 1024 to {MAX_BLOCK_BYTES} bytes, not {plan.blockBytes}")
    for node in plan.nodes:
        _checkUnused(node.home)
        # All errors are raised before anything is written.
        encodeConfig(_configOf(node, (), plan.tuning))
    keys = [makeKeys(node.home, entropy) for node in plan.nodes]
    peers = [node.peer(each) for node, each in zip(plan.nodes, keys, strict=True)]
    genesis = encodeGenesis(
        EngineGenesis(
            genesisTime=plan.created,
            chainId=plan.chainId,
            validators=tuple(
                makeValidator(each.validator, node.power, node.name)
                for node, each in zip(plan.nodes, keys, strict=True)
            ),
            appState=AppState(topics="utf8" if plan.topics is TopicRule.UTF8 else UNSET),
        ),
        plan.blockBytes,
    )
    for index, node in enumerate(plan.nodes):
        others = [peer for number, peer in enumerate(peers) if number != index]
        config = _configOf(node, others, plan.tuning)
        writeFile(node.home / CONFIG, encodeConfig(config))
    for node in plan.nodes:
        writeFile(node.home / GENESIS, genesis)
    return keys


def layOutJoining(
    node: NodePlan,
    genesis: bytes,
    peers: Sequence[Peer],
    entropy: Callable[[int], bytes],
    *,
    stateSync: StateSync | None = None,
    tuning: Tuning | None = None,
) -> EngineKeys:
    """
    Make the home directory of a new engine of an existing network. It follows as a full node
    until the chain makes it a validator.

    @param genesis: the network's genesis file, as the others have it.
    @param peers: engines to connect to.
    @param stateSync: start from a snapshot instead of the first block.
    @return: the engine's keys.
    @raise LayoutError: the home is in use, the plan is invalid, or a file cannot be written.
    """
    try:
        decodeGenesis(genesis)
        _checkUnused(node.home)
        config = _configOf(node, peers, tuning or Tuning(), stateSync)
        text = encodeConfig(config)
        keys = makeKeys(node.home, entropy)
        writeFile(node.home / CONFIG, text)
        writeFile(node.home / GENESIS, genesis)
    except BadAnswer as error:
        raise LayoutError(f"this is not the genesis of a network: {error}") from error
    except ConfigInvalid as error:
        raise LayoutError(str(error)) from error
    except OSError as error:
        raise LayoutError(f"cannot write {error.filename}: {error.strerror}") from error
    return keys


def _checkUnused(home: Path) -> None:
    if (home / GENESIS).exists():
        raise LayoutError(f"{home} is the home of an engine already")


def _configOf(
    node: NodePlan,
    peers: Sequence[Peer],
    tuning: Tuning,
    stateSync: StateSync | None = None,
) -> EngineConfig:
    return EngineConfig(
        name=node.name,
        application=node.application,
        rpc=node.rpc,
        p2p=node.p2p,
        external=node.external,
        peers=peers,
        stateSync=stateSync,
        tuning=tuning,
    )


# The genesis file.


def makeValidator(key: bytes, power: int, name: str = "") -> GenesisValidator:
    """
    @param key: an Ed25519 public key.
    """
    return GenesisValidator(
        pubKey=PublicKey(type=ED25519, value=Base64(key)), power=power, name=name
    )


def encodeGenesis(genesis: EngineGenesis, blockBytes: int) -> bytes:
    """
    The genesis file.

    @param blockBytes: the most bytes that a block may have, all of it.
    """
    document: dict[str, Any] = {
        "genesis_time": str(genesis.genesisTime),
        "chain_id": genesis.chainId,
        "initial_height": str(genesis.initialHeight),
        "consensus_params": {
            "block": {"max_bytes": str(blockBytes), "max_gas": "-1"},
            "evidence": {
                "max_age_num_blocks": "100000",
                "max_age_duration": str(48 * 3600 * 10**9),
                "max_bytes": str(min(_EVIDENCE_BYTES, blockBytes)),
            },
            "validator": {"pub_key_types": ["ed25519"]},
            "version": {"app": "0"},
            "abci": {"vote_extensions_enable_height": "0"},
        },
        "validators": [
            {
                "address": addressOf(each.pubKey.value).hex().upper(),
                "pub_key": {
                    "type": each.pubKey.type,
                    "value": b64encode(each.pubKey.value).decode("ascii"),
                },
                "power": str(each.power),
                "name": each.name,
            }
            for each in genesis.validators
        ],
        "app_hash": genesis.appHash.hex().upper(),
    }
    if genesis.topics is not TopicRule.PUBLISHED:
        document["app_state"] = {"topics": genesis.topics.value}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


class TrustMissing(Exception):
    """No trusted block could be established. The text is one line for the operator."""


class LightSource(Protocol):
    """An engine that light blocks are fetched from."""

    def lightBlock(self, height: int) -> Deferred[LightBlock]:
        """The light block of a height."""


async def askTrust(genesis: EngineGenesis, sources: Sequence[LightSource]) -> Trust:
    """
    Establish trust in the first block of a chain from its genesis: the first validators have
    signed it.

    @param sources: engines; all are asked, and must agree.
    @raise TrustMissing: one does not answer, or its answer is not valid.
    """
    beginning = Trust.beginning(genesis.chainId, genesis.genesisTime, genesis.members)
    found: list[Trust] = []
    for number, source in enumerate(sources, 1):
        try:
            found.append(beginning.follow(await source.lightBlock(1)))
        except EngineError as error:
            raise TrustMissing(
                f"engine {number} does not have the first block ({error}): use another engine, or "
                "give a trusted block"
            ) from error
        except LightBlockInvalid as error:
            raise TrustMissing(
                f"the first block of engine {number} does not follow from the genesis: {error}"
            ) from error
    if len({trust.hash for trust in found}) != 1:
        raise TrustMissing("the engines have different first blocks: do not join")
    return found[0]


MAX_JOIN_REQUEST: Final = 16 * 1024
"""The most bytes that a request has."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a block, in a network that begins with a genesis ceremony."""

_TAG = b"svcbroker/join-request\x01"
_MILLISECONDS = 1_000_000

T = TypeVar("T")


class JoinRequestInvalid(Exception):
    """A request that cannot be used. The text is one line for the operator."""


class JoinRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The public keys and the address of a node, signed by its validator (the C{gentx} of other
    networks).

    @ivar chain: the engines' name of the chain that it is made for.
    @ivar name: the node's name.
    @ivar nodeId: the engine's id among its peers.
    @ivar p2p: the address at which they reach it, C{host:port}.
    @ivar validator: its public key as a validator, in hexadecimal digits.
    @ivar broker: the public key of the broker beside it, in hexadecimal digits.
    @ivar timeouts: the name of the profile of timeouts, the same for all nodes.
    @ivar made: when it was made, in milliseconds since the epoch.
    @ivar topics: the rule of topics' names, the same for all nodes; absent for that of the
        published interface.
    @ivar signature: the validator's signature over all other fields.
    """

    kind: Literal["svcbroker-join-request"] = "svcbroker-join-request"
    chain: str
    name: str
    nodeId: str
    p2p: str
    validator: str
    broker: str
    timeouts: str
    made: int
    topics: Literal["utf8"] | UnsetType = UNSET
    signature: str

    @property
    def key(self) -> bytes:
        """The validator's public key."""
        return bytes.fromhex(self.validator)

    @property
    def peer(self) -> Peer:
        """The engine as its peers see it."""
        return Peer(nodeId=self.nodeId, address=parseAddress(self.p2p))

    @property
    def tuning(self) -> Tuning:
        """The engine's timeouts and bounds."""
        return PROFILES[self.timeouts]

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return _TAG + msgspec.json.encode(structs.replace(self, signature=""))


def makeJoinRequest(
    seed: bytes,
    keys: EngineKeys,
    *,
    chain: str,
    name: str,
    p2p: Address,
    broker: bytes,
    timeouts: str = DEFAULT_PROFILE,
    topics: TopicRule = TopicRule.PUBLISHED,
    now: float,
) -> JoinRequest:
    """
    The request of a node.

    @param seed: the validator's private key.
    @param broker: the public key of the broker beside it.
    @param timeouts: the name of one of L{PROFILES}.
    @param topics: the rule of topics' names.
    @param now: seconds since the epoch.
    @raise ConfigInvalid: a name cannot be one.
    """
    request = JoinRequest(
        chain=checkName(chain, "the chain"),
        name=checkName(name, "the node"),
        nodeId=keys.nodeId,
        p2p=str(p2p),
        validator=publicKey(seed).hex(),
        broker=broker.hex(),
        timeouts=timeouts,
        made=int(now * 1000),
        topics="utf8" if topics is TopicRule.UTF8 else UNSET,
        signature="",
    )
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(request.payload)
    return structs.replace(request, signature=signature.hex())


def encodeJoinRequest(request: JoinRequest) -> bytes:
    """The file of a join request."""
    return msgspec.json.format(msgspec.json.encode(request), indent=2) + b"\n"


def readJoinRequest(data: bytes) -> JoinRequest:
    """
    Read a request, and make sure that the validator's owner has made it.

    @raise JoinRequestInvalid: it is none, or was changed.
    """
    if len(data) > MAX_JOIN_REQUEST:
        raise JoinRequestInvalid(f"is larger than {MAX_JOIN_REQUEST} bytes")
    try:
        request = msgspec.json.decode(data, type=JoinRequest)
        checkName(request.chain, "the chain")
        checkName(request.name, "the node")
        parseAddress(request.p2p)
        key, signature = _digits(request.validator, 32), _digits(request.signature, 64)
        _digits(request.broker, 32)
        _digits(request.nodeId, 20)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JoinRequestInvalid(f"is not a join request: {error}") from None
    except (ConfigInvalid, ValueError) as error:
        raise JoinRequestInvalid(str(error)) from None
    if request.timeouts not in PROFILES:
        raise JoinRequestInvalid(f"has unknown timeouts: {request.timeouts[:50]!r}")
    if not 0 <= request.made < 2**53:
        raise JoinRequestInvalid("was made at no time")
    if not chain.verifySignature(key, request.payload, signature):
        raise JoinRequestInvalid("was changed after it was made: its signature does not hold")
    return request


def _digits(text: str, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size or value.hex() != text:
        raise ValueError(f"has no {size} bytes in hexadecimal digits where they should be")
    return value


@frozen(kw_only=True)
class GenesisCeremony:
    """
    The beginning of a network. It follows from the join requests alone, in any order.

    @ivar genesis: the engines' genesis file.
    @ivar requests: the join requests, in the engine's order of the validators.
    """

    genesis: bytes
    requests: Sequence[JoinRequest]


def assembleGenesis(requests: Iterable[JoinRequest]) -> GenesisCeremony:
    """
    Assemble the genesis of a network.

    @param requests: those of all its first validators; duplicates of one are accepted.
    @raise JoinRequestInvalid: they do not fit together.
    """
    distinct = {request.signature: request for request in requests}.values()
    ordered = sorted(distinct, key=lambda request: addressOf(request.key))
    if not 1 <= len(ordered) <= chain.MAX_VALIDATORS:
        raise JoinRequestInvalid(f"a network has 1 to {chain.MAX_VALIDATORS} validators")
    timeouts = {request.timeouts for request in ordered}
    if len(timeouts) > 1:
        raise JoinRequestInvalid(
            f"the join requests have several timeouts: {', '.join(sorted(timeouts))}"
        )
    if len({request.topics for request in ordered}) > 1:
        raise JoinRequestInvalid("some join requests have topics=utf8, and others do not")
    names = {request.chain for request in ordered}
    if len(names) > 1:
        raise JoinRequestInvalid(
            f"the join requests are for several chains: {', '.join(sorted(names))}"
        )
    for what, read in _DISTINCT:
        _checkDistinct(ordered, what, read)
    genesis = EngineGenesis(
        genesisTime=Instant(max(request.made for request in ordered) * _MILLISECONDS),
        chainId=ordered[0].chain,
        validators=tuple(makeValidator(request.key, POWER, request.name) for request in ordered),
        appState=AppState(topics=ordered[0].topics),
    )
    return GenesisCeremony(genesis=encodeGenesis(genesis, BLOCK_BYTES), requests=ordered)


def _checkDistinct(
    requests: Sequence[JoinRequest], what: str, read: Callable[[JoinRequest], object]
) -> None:
    seen: dict[object, JoinRequest] = {}
    for request in requests:
        other = seen.setdefault(read(request), request)
        if other is not request:
            raise JoinRequestInvalid(
                f"{other.name} and {request.name} have the same {what}: each node makes its own "
                "join request, and the latest of it counts"
            )


_DISTINCT: Final[Sequence[tuple[str, Callable[[JoinRequest], object]]]] = (
    ("validator's key", lambda request: request.validator),
    ("node's key", lambda request: request.nodeId),
    ("broker's key", lambda request: request.broker),
    ("name", lambda request: request.name),
    ("address", lambda request: request.p2p),
)


def ourGenesis(genesis: EngineGenesis) -> chain.Genesis:
    """The genesis of this chain, which follows from the engine's."""
    return chain.Genesis(
        group=genesis.chainId,
        created=genesis.genesisTime // _MILLISECONDS,
        validators=tuple(member.key for member in genesis.members),
        topics=genesis.topics,
    )
