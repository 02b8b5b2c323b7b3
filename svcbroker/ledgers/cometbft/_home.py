"""
An engine's home directory as a broker reads it: genesis, keys, and configured peers.

L{svcbroker.ledgers.cometbft.provisioning} writes these files; the broker beside an engine writes
none of them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, UnsetType

from ...files import readFile
from ...model import TopicRule
from ...proofs.cometbft import (
    BadAnswer,
    Base64,
    Hex,
    Instant,
    Member,
    Natural,
    Power,
    PublicKey,
    Wire,
    addressOf,
    inOrder,
    makeDecoder,
)

CONFIG: Final = Path("config/config.toml")
GENESIS: Final = Path("config/genesis.json")
NODE_KEY: Final = Path("config/node_key.json")
VALIDATOR_KEY: Final = Path("config/priv_validator_key.json")
VALIDATOR_STATE: Final = Path("data/priv_validator_state.json")

SOCKET: Final = "abci.sock"
"""The application's socket in a home that this package has made."""

MAX_SOCKET_PATH: Final = 107
"""The most bytes that the path of a Unix socket can have."""

POWER: Final = 100
"""
The voting power of every validator of a new network: all votes are equal.

CometBFT 0.38 skips block sync if a validator has at least a third of the total power, in whole
numbers: of four or five validators with power 1 each has 4 // 3 = 1.
"""

POWERS: Final = (POWER, 1)
"""The voting powers that the validators of a network may have: networks of before have 1."""

SEED_SIZE: Final = 32
PRIVATE_KEY: Final = "tendermint/PrivKeyEd25519"


class LayoutError(Exception):
    """A home that cannot be read or laid out. The text is one line for the operator."""


class KeyFileDamaged(Exception):
    """A key file that cannot be used. The text is one line for the operator."""


class GenesisValidator(Wire, frozen=True, kw_only=True):
    """
    One of the first validators.

    @ivar name: for people; it decides nothing.
    """

    pubKey: PublicKey
    power: Power
    name: str = ""


class AppState(Wire, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The part of the engine's genesis that is this application's.

    @ivar topics: the rule of topics' names; absent for that of the published interface.
    """

    topics: Literal["utf8"] | UnsetType = UNSET

    @property
    def rule(self) -> TopicRule:
        """The rule of topics' names."""
        return TopicRule.PUBLISHED if self.topics is UNSET else TopicRule.UTF8


decodeAppState = makeDecoder(AppState)
"""Read an application's part. Raises L{BadAnswer}."""


class EngineGenesis(Wire, frozen=True, kw_only=True):
    """
    The engine's genesis: what all engines of a chain agree on before its first block.

    @ivar appHash: the application's hash before the first block.
    @ivar appState: the part that is this application's.
    """

    genesisTime: Instant
    chainId: str
    initialHeight: Natural = 1
    validators: tuple[GenesisValidator, ...]
    appHash: Hex = Hex()
    appState: AppState | None = None

    @property
    def topics(self) -> TopicRule:
        """The rule of topics' names."""
        return TopicRule.PUBLISHED if self.appState is None else self.appState.rule

    @property
    def members(self) -> tuple[Member, ...]:
        """The validators in the engine's order."""
        return inOrder(Member(each.pubKey.value, each.power) for each in self.validators)


decodeGenesis = makeDecoder(EngineGenesis)
"""Read a genesis file. Raises L{BadAnswer}."""


class _PrivateKey(Wire, frozen=True, kw_only=True):
    """A private key: the seed, and the public key after it."""

    type: str
    value: Base64


class _KeyFile(Wire, frozen=True, kw_only=True):
    """The fields that both kinds of key files have."""

    privKey: _PrivateKey


_decodeKeyFile = makeDecoder(_KeyFile)


@frozen(kw_only=True)
class EngineKeys:
    """
    The public halves of an engine's keys.

    @ivar nodeId: its id among its peers: the first half of C{id@host:port}.
    @ivar validator: its public key as a validator: 32 bytes.
    """

    nodeId: str
    validator: bytes


def publicKey(seed: bytes) -> bytes:
    """The public key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def readKeys(home: Path) -> EngineKeys:
    """
    Read the public halves of an engine's keys.

    @raise KeyFileDamaged: one is missing or is no key.
    """
    node, validator = (publicKey(_readSeed(home / path)) for path in (NODE_KEY, VALIDATOR_KEY))
    return EngineKeys(nodeId=addressOf(node).hex(), validator=validator)


def readValidatorSeed(home: Path) -> bytes | None:
    """
    Read the private key that an engine votes with; C{None} where it is not in this home.

    @raise KeyFileDamaged: the file is no key, or cannot be read.
    """
    path = home / VALIDATOR_KEY
    return _readSeed(path) if path.exists() else None


def _readSeed(path: Path) -> bytes:
    try:
        key = _decodeKeyFile(readFile(path)).privKey
    except OSError:
        raise KeyFileDamaged(f"{path} cannot be read: put it back from a backup") from None
    except BadAnswer:
        key = None
    if key is None or key.type != PRIVATE_KEY or len(key.value) != 2 * SEED_SIZE:
        raise KeyFileDamaged(f"{path} is not a key: put it back from a backup")
    seed = key.value[:SEED_SIZE]
    if publicKey(seed) != key.value[SEED_SIZE:]:
        raise KeyFileDamaged(f"{path} is damaged: put it back from a backup")
    return seed


def readGenesis(home: Path) -> EngineGenesis:
    """
    Read the genesis of the network that an engine belongs to.

    @raise LayoutError: this is not an engine's home.
    """
    path = home / GENESIS
    try:
        return decodeGenesis(readFile(path))
    except OSError:
        raise LayoutError(f"{path} cannot be read: is {home} an engine's home?") from None
    except BadAnswer as error:
        raise LayoutError(f"{path} is not the genesis of a network: {error}") from error


def namesOf(genesis: EngineGenesis) -> Mapping[str, bytes]:
    """
    The public keys of the first validators, by their names. Duplicate names are left out.
    """
    names = [validator.name for validator in genesis.validators]
    return {
        validator.name: validator.pubKey.value
        for validator in genesis.validators
        if validator.name and names.count(validator.name) == 1
    }


def readPeers(home: Path) -> Mapping[str, tuple[str, int]] | None:
    """
    Read the ids of the nodes that an engine keeps connections to, with host and port of each.

    @param home: its home directory.
    @return: C{None} where the configuration cannot be read, or does not list them.
    """
    found = {}
    try:
        text = readFile(home / CONFIG).decode("utf-8")
        peers: str = tomllib.loads(text)["p2p"]["persistent_peers"]
        for each in filter(None, peers.split(",")):
            node, _, place = each.strip().partition("@")
            host, _, port = place.rpartition(":")
            found[node] = (host.strip("[]"), int(port))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found or None


def readSignedHeight(home: Path) -> int:
    """
    Read the last height that an engine's validator has signed; 0 if it is unknown. The engine has
    the block before it, and mostly its own.

    @param home: its home directory.
    """
    try:
        return int(json.loads(readFile(home / VALIDATOR_STATE))["height"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0
