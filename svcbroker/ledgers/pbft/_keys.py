"""
The replicas' keys: files, signers that refuse to contradict themselves, and verification.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from ...chain import Phase, votePayload

SEED_SIZE = 32
_CACHE_SIZE = 4096


class DoubleSign(Exception):
    """
    A replica was about to sign two different things for one height, round and phase. It never
    does; that it tried is a bug in the replica.
    """


class KeysDamaged(Exception):
    """Key files that cannot be used. The text is one line for the operator."""


class Verifier:
    """
    Verifies the replicas' signatures, each of them once in this process.

    @ivar keys: the public keys (32 bytes each) by the replicas' index.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self._known: set[tuple[int, bytes, bytes]] = set()
        self._public = [Ed25519PublicKey.from_public_bytes(key) for key in keys]

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        """
        Whether a signature is that of a replica under a payload.

        @param index: the replica that is said to have signed; any number.
        """
        entry = (index, payload, signature)
        if entry in self._known:
            return True
        if not 0 <= index < len(self._public):
            return False
        try:
            self._public[index].verify(signature, payload)
        except InvalidSignature:
            return False
        self._remember(entry)
        return True

    def vouch(self, index: int, payload: bytes, signature: bytes) -> None:
        """
        Take note of a signature that was just made by its owner in this process: there is
        nothing to verify.
        """
        self._remember((index, payload, signature))

    def _remember(self, entry: tuple[int, bytes, bytes]) -> None:
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known.add(entry)


class Signer:
    """
    One replica's private key. It outlives the replica's crashes, and it signs no two different
    things for one height, round and phase.

    @ivar index: the replica's index.
    """

    def __init__(self, index: int, seed: bytes, chain: bytes, verifier: Verifier) -> None:
        """
        @param seed: the private key: 32 bytes.
        @param chain: the chain's id; it is part of all that is signed.
        """
        self.index = index
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._chain = chain
        self._verifier = verifier
        self._signed: dict[tuple[int, int, Phase], tuple[bytes, bytes]] = {}

    def sign(self, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """
        Vote.

        @raise DoubleSign: another digest was signed for this height, round and phase.
        """
        place = (height, round, phase)
        before = self._signed.get(place)
        if before is not None:
            if before[0] != digest:
                raise DoubleSign(f"height {height}, round {round}, {phase.name}")
            return before[1]
        payload = votePayload(phase, self._chain, height, round, digest)
        signature = self._key.sign(payload)
        self._signed[place] = (digest, signature)
        self._verifier.vouch(self.index, payload, signature)
        return signature

    def nextRound(self, height: int) -> int:
        """The first round of a height from which on nothing was signed."""
        return max((r + 1 for h, r, _ in self._signed if h == height), default=0)

    def forgetBelow(self, height: int) -> None:
        """
        Forget what was signed below a height. Only for heights that are final and stored: the
        replica never votes there again.
        """
        self._signed = {place: vote for place, vote in self._signed.items() if place[0] >= height}


def publicKey(seed: bytes) -> bytes:
    """The public key (32 bytes) of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def loadSeeds(directory: Path, count: int) -> Sequence[bytes]:
    """
    Read the replicas' private keys.

    @raise KeysDamaged: one is missing or is not a key.
    """
    return [_readSeed(_path(directory, index)) for index in range(count)]


def makeSeeds(directory: Path, count: int, entropy: Callable[[int], bytes]) -> Sequence[bytes]:
    """
    Make the replicas' private keys and write them to files that only their owner can read.
    Keys that are there already are kept, so that a start that was cut off can go on.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise OSError: they cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    seeds: list[bytes] = []
    for index in range(count):
        path = _path(directory, index)
        if path.exists():
            seeds.append(_readSeed(path))
            continue
        seed = entropy(SEED_SIZE)
        temporary = path.with_suffix(".new")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(seed.hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        seeds.append(seed)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return seeds


def _path(directory: Path, index: int) -> Path:
    return directory / f"node{index}.key"


def _readSeed(path: Path) -> bytes:
    try:
        seed = bytes.fromhex(path.read_text("ascii"))
    except OSError:
        raise KeysDamaged(f"{path} cannot be read: put it back from a backup") from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise KeysDamaged(f"{path} is not a key: put it back from a backup")
    return seed
