"""
The engine's C{config.toml}: settings that differ from CometBFT 0.38's defaults, or that must not
change when its defaults do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from .._home import MAX_SOCKET_PATH

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
