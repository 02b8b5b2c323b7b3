"""
The engine's genesis file.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from ...proofs.cometbft import (
    ED25519,
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

MAX_CHAIN_ID = 50
"""The most bytes that the engine takes as a chain's name."""

MAX_BLOCK_BYTES = 100 * 1024 * 1024
"""The largest block that the engine can be told to take."""

_EVIDENCE_BYTES = 1024 * 1024


class GenesisValidator(Wire, frozen=True, kw_only=True):
    """
    One of the first validators.

    @ivar name: for people; it decides nothing.
    """

    pubKey: PublicKey
    power: Power
    name: str = ""


class Genesis(Wire, frozen=True, kw_only=True):
    """
    What all engines of a chain agree on before its first block.

    @ivar appHash: what the application says before the first block.
    """

    genesisTime: Instant
    chainId: str
    initialHeight: Natural = 1
    validators: tuple[GenesisValidator, ...]
    appHash: Hex = Hex()

    @property
    def members(self) -> tuple[Member, ...]:
        """The validators in the engine's order."""
        return inOrder(Member(each.pubKey.value, each.power) for each in self.validators)


decodeGenesis = makeDecoder(Genesis)
"""Read a genesis file. Raises L{BadAnswer}."""


def makeValidator(key: bytes, power: int, name: str = "") -> GenesisValidator:
    """
    @param key: an Ed25519 public key.
    """
    return GenesisValidator(
        pubKey=PublicKey(type=ED25519, value=Base64(key)), power=power, name=name
    )


def encodeGenesis(genesis: Genesis, blockBytes: int, appState: Any = None) -> bytes:
    """
    The genesis file.

    @param blockBytes: the most bytes that a block may have, all of it.
    @param appState: what the application is given at the beginning: any JSON.
    """
    document = {
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
    if appState is not None:
        document["app_state"] = appState
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
