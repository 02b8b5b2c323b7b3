"""
The layout of engines' homes: those of a new network, and that of a node that joins one, with the
keys that are made for them and the block that state sync trusts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from attrs import frozen
from msgspec import UNSET
from twisted.internet.defer import Deferred

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
    Address,
    ConfigInvalid,
    EngineConfig,
    Peer,
    StateSync,
    Tuning,
    checkName,
    encodeConfig,
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
