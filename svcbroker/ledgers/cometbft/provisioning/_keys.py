"""
New keys for an engine, in the files that CometBFT reads.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ....proofs.cometbft import ED25519, addressOf
from ....storage import writeFile
from .._home import (
    NODE_KEY,
    PRIVATE_KEY,
    SEED_SIZE,
    VALIDATOR_KEY,
    VALIDATOR_STATE,
    EngineKeys,
    publicKey,
    readKeys,
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
