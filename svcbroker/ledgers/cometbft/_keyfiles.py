"""
An engine's keys: the files that CometBFT reads them from.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ...proofs.cometbft import ED25519, BadAnswer, Base64, Wire, addressOf, makeDecoder
from ...storage import syncFile

SEED_SIZE = 32
_PRIVATE = "tendermint/PrivKeyEd25519"

NODE_KEY = Path("config/node_key.json")
VALIDATOR_KEY = Path("config/priv_validator_key.json")
VALIDATOR_STATE = Path("data/priv_validator_state.json")


class KeyFileDamaged(Exception):
    """A key file that cannot be used. The text is one line for the operator."""


class _PrivateKey(Wire, frozen=True, kw_only=True):
    """A private key: the seed, and the public key after it."""

    type: str
    value: Base64


class _KeyFile(Wire, frozen=True, kw_only=True):
    """What both kinds of key files have."""

    privKey: _PrivateKey


_decode = makeDecoder(_KeyFile)


@frozen(kw_only=True)
class EngineKeys:
    """
    Who an engine is.

    @ivar nodeId: how its peers know it: the first half of C{id@host:port}.
    @ivar validator: its public key as a validator: 32 bytes.
    """

    nodeId: str
    validator: bytes


def nodeIdOf(key: bytes) -> str:
    """The id of a node, from its public key."""
    return addressOf(key).hex()


def makeKeys(home: Path, entropy: Callable[[int], bytes]) -> EngineKeys:
    """
    Make an engine's keys, in files that only their owner can read. What is there already is
    kept, so that a start that was cut off can go on; so is above all what a validator has signed.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise OSError: they cannot be written.
    @raise KeyFileDamaged: a file that is there is no key.
    """
    for path in (home, home / "config", home / "data"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, encode in ((NODE_KEY, _nodeKeyFile), (VALIDATOR_KEY, _validatorKeyFile)):
        if not (home / path).exists():
            writeFile(home / path, encode(entropy(SEED_SIZE)), 0o600)
    if not (home / VALIDATOR_STATE).exists():
        writeFile(home / VALIDATOR_STATE, _json({"height": "0", "round": 0, "step": 0}), 0o600)
    return readKeys(home)


def readKeys(home: Path) -> EngineKeys:
    """
    Read the public halves of an engine's keys.

    @raise KeyFileDamaged: one is missing or is no key.
    """
    return EngineKeys(
        nodeId=nodeIdOf(_readPublic(home / NODE_KEY)),
        validator=_readPublic(home / VALIDATOR_KEY),
    )


def readValidatorSeed(home: Path) -> bytes | None:
    """
    Read the private key that an engine votes with; C{None} where it is not here.

    @raise KeyFileDamaged: it is here and is no key, or cannot be read.
    """
    path = home / VALIDATOR_KEY
    return _readSeed(path) if path.exists() else None


def _readPublic(path: Path) -> bytes:
    return publicKey(_readSeed(path))


def _readSeed(path: Path) -> bytes:
    try:
        key = _decode(path.read_bytes()).privKey
    except OSError:
        raise KeyFileDamaged(f"{path} cannot be read: put it back from a backup") from None
    except BadAnswer:
        key = None
    if key is None or key.type != _PRIVATE or len(key.value) != 2 * SEED_SIZE:
        raise KeyFileDamaged(f"{path} is not a key: put it back from a backup")
    seed = key.value[:SEED_SIZE]
    if publicKey(seed) != key.value[SEED_SIZE:]:
        raise KeyFileDamaged(f"{path} is damaged: put it back from a backup")
    return seed


def publicKey(seed: bytes) -> bytes:
    """The public key of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _privateKey(seed: bytes) -> dict[str, str]:
    return {"type": _PRIVATE, "value": _text(seed + publicKey(seed))}


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


def writeFile(path: Path, data: bytes, mode: int = 0o644) -> None:
    """
    Write a file, whole or not at all, and sync it.

    @param mode: who may read it.
    @raise OSError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(data)
        file.flush()
        os.fsync(handle)
    temporary.rename(path)
    syncFile(path.parent)
