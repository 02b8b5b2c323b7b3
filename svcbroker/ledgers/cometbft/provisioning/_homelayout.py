"""
The layout of engines' homes: those of a new network, and that of a node that joins one, with the
keys that are made for them and the block that state sync trusts. And the genesis ceremony: join
requests of the first validators, and the genesis that follows from them.

Each organisation makes a join request for its node (C{svcbroker net engine init}) and sends it to
the others. All of them assemble the same genesis from the same requests, in any order.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Struct, UnsetType, structs
from twisted.internet.defer import Deferred

from .... import chain
from ....model import TopicRule
from ....proofs.cometbft import (
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
from ....storage import writeFile
from .._home import (
    CONFIG,
    GENESIS,
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
from .._rpc import EngineError
from ._engineconfig import (
    DEFAULT_PROFILE,
    PROFILES,
    Address,
    ConfigInvalid,
    EngineConfig,
    Peer,
    StateSync,
    Tuning,
    checkName,
    encodeConfig,
    parseAddress,
)


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
