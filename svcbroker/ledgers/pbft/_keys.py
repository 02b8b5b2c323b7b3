"""
The replicas' keys: signers that refuse to sign twice, the verification of signatures, the files of
the private keys, of which each is readable by its owner only, and the evidence of double signing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...chain import (
    Phase,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    verifySignature,
    votePayload,
)
from ...errors import LedgerUnavailable, ParameterInvalid
from ...files import readFile
from ...model import DoubleVote
from ...storage import syncFile, writeFile
from ._protocol import (
    Evidence,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    roundChangeDigest,
)

MAX_NODES: Final = 64
"""The most nodes of a chain."""

SIGNATURE_SIZE = 64

_CACHE_SIZE = 4096

VERIFIED_BYTES: Final = 2 * 512 * _CACHE_SIZE
"""The memory of the votes and of the signatures that were verified lately, in bytes."""

_SLOTS = {phase: phase for phase in Phase} | {Phase.PROPOSE: Phase.PREPARE}
"""A leader's proposal is its prepare, so the two phases must sign the same digest."""


class DoubleSign(Exception):
    """
    A replica tried to sign two different values for one height, round and phase. This is a bug in
    the replica; the signer has refused.
    """


class SignatureVerifier:
    """
    Verifies signatures of the replicas, each signature once in this process.

    @ivar keys: the public keys (32 bytes each) by the replicas' index.
    @ivar verified: votes that were verified before, or signed in this process. Every replica looks
        up every vote here.
    @ivar proposal: the last proposal that was verified, or signed in this process.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self.verified: set[PhaseVote] = set()
        self._signatures: set[tuple[int, bytes, bytes]] = set()
        self.proposal: Proposal | None = None

    def addVote(self, vote: PhaseVote) -> None:
        """Record a verified vote, or one that its owner has just signed in this process."""
        verified = self.verified
        if len(verified) >= _CACHE_SIZE:
            verified.clear()
        verified.add(vote)

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        """
        Whether a signature over a payload is a replica's.

        @param index: the index of the claimed signer; any number.
        """
        entry = (index, payload, signature)
        if entry in self._signatures:
            return True
        if not 0 <= index < len(self.keys):
            return False
        if not verifySignature(self.keys[index], payload, signature):
            return False
        if len(self._signatures) >= _CACHE_SIZE:
            self._signatures.clear()
        self._signatures.add(entry)
        return True


class ReplicaSigner:
    """
    The private key of one replica. It outlives restarts of the replica, and refuses to sign two
    different values for one height, round and phase.

    @ivar index: the replica's index.
    """

    def __init__(self, index: int, seed: bytes, chain: bytes, verifier: SignatureVerifier) -> None:
        """
        @param seed: the private key: 32 bytes.
        @param chain: the chain's id; it is part of every signed payload.
        """
        self.index = index
        # Six signatures are made for each block. libsodium computes them in two
        # thirds of OpenSSL's time (docs/decisions/cost-of-a-block.rst).
        _, self._secret = crypto_sign_seed_keypair(seed)
        self._chain = chain
        self._verifier = verifier
        # The digests by height, round and slot.
        self._signed: dict[tuple[int, int, Phase], bytes] = {}
        self._highest = 0

    def sign(self, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """
        Sign a digest for one height, round and phase.

        @return: the signature; Ed25519 gives the same one each time.
        @raise DoubleSign: another digest was signed for this height, round and phase. A proposal
            and a prepare count as one phase.
        """
        place = (height, round, _SLOTS[phase])
        if self._signed.setdefault(place, digest) != digest:
            raise DoubleSign(f"height {height}, round {round}, {phase.name}")
        if height > self._highest:
            self._highest = height
        payload = votePayload(phase, self._chain, height, round, digest)
        return crypto_sign(payload, self._secret)[:SIGNATURE_SIZE]

    def propose(
        self, height: int, round: int, block: ProposedBlock, justification: Sequence[RoundChange]
    ) -> Proposal:
        """
        Sign a proposal.

        @raise DoubleSign: as for L{sign}.
        """
        proposal = Proposal(
            sender=self.index,
            height=height,
            round=round,
            block=block,
            justification=justification,
            signature=self.sign(Phase.PROPOSE, height, round, block.header.hash),
        )
        self._verifier.proposal = proposal
        return proposal

    def vote(self, phase: Phase, height: int, round: int, digest: bytes) -> PhaseVote:
        """
        Sign a prepare or a commit.

        @raise DoubleSign: as for L{sign}.
        """
        vote = PhaseVote(
            phase=phase,
            sender=self.index,
            height=height,
            round=round,
            digest=digest,
            signature=self.sign(phase, height, round, digest),
        )
        self._verifier.addVote(vote)
        return vote

    def changeRound(
        self,
        height: int,
        round: int,
        prepared: PreparedCertificate | None,
        block: ProposedBlock | None,
    ) -> RoundChange:
        """
        Sign a round change.

        @raise DoubleSign: as for L{sign}.
        """
        digest = roundChangeDigest(prepared)
        return RoundChange(
            sender=self.index,
            height=height,
            round=round,
            prepared=prepared,
            block=block,
            signature=self.sign(Phase.ROUND_CHANGE, height, round, digest),
        )

    def nextRound(self, height: int) -> int:
        """The first round of a height after the last one with a signature."""
        return max((r + 1 for h, r, _ in self._signed if h == height), default=0)

    def forgetBelow(self, height: int) -> None:
        """
        Forget the signatures below a height. Only for heights that are final and stored: the
        replica never votes there again.
        """
        if self._highest < height:
            self._signed.clear()
        else:
            self._signed = {
                place: vote for place, vote in self._signed.items() if place[0] >= height
            }


def publicKey(seed: bytes) -> bytes:
    """The public key (32 bytes) of a private key."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signChange(
    chain: bytes, current: ValidatorSet, keys: Sequence[bytes], seeds: Sequence[bytes]
) -> ValidatorChange:
    """
    Make a change of the replica set, signed by all current and all future replicas.

    @param chain: the chain's id.
    @param keys: the public keys of the new set.
    @param seeds: all their private keys, in any order.
    """
    following = ValidatorSet(current.generation + 1, tuple(keys))
    payload = changePayload(chain, current, following)
    signatures = {
        publicKey(seed): Ed25519PrivateKey.from_private_bytes(seed).sign(payload) for seed in seeds
    }
    return ValidatorChange(
        following=following,
        approvals=[(index, signatures[key]) for index, key in enumerate(current.keys)],
        acceptances=[signatures[key] for key in keys],
    )


SEED_SIZE = 32
_SUFFIX = ".key"


class KeysDamaged(Exception):
    """A key file is missing or damaged. The text is one line for the operator."""


def makeSeeds(directory: Path, count: int, entropy: Callable[[int], bytes]) -> Sequence[bytes]:
    """
    Make the private keys of a new chain's replicas. Existing keys are kept, so an interrupted first
    start can be repeated.

    @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
    @raise OSError: a file cannot be written.
    @raise KeysDamaged: an existing file does not hold a key.
    """
    seeds: list[bytes] = []
    missing: dict[str, bytes] = {}
    for index in range(count):
        name = f"node{index}"
        path = directory / (name + _SUFFIX)
        seed = _readSeed(path) if path.exists() else missing.setdefault(name, entropy(SEED_SIZE))
        seeds.append(seed)
    writeSeeds(directory, missing)
    return seeds


def writeSeeds(directory: Path, seeds: Mapping[str, bytes]) -> None:
    """
    Write private keys to files of these names. They are on stable storage when this returns.

    @raise OSError: a file cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, seed in seeds.items():
        writeFile(directory / (name + _SUFFIX), f"{seed.hex()}\n".encode(), 0o600)


def loadSeeds(directory: Path, keys: Sequence[bytes]) -> Sequence[bytes]:
    """
    Read the private keys that belong to some public keys, in the order of those. The names of the
    files do not matter.

    @raise KeysDamaged: one is missing, or a file does not hold a key.
    """
    found = {key: seed for _, key, seed in _read(directory)}
    if not found:
        raise KeysDamaged(
            f"{directory} has no keys, so this chain can be read but not go on (an import brings "
            "none): put the key files of its nodes there, from a backup"
        )
    for index, key in enumerate(keys):
        if key not in found:
            raise KeysDamaged(
                f"{directory} has no key of node {index} ({key.hex()[:16]}...): put it back from "
                "a backup"
            )
    return [found[key] for key in keys]


def removeSeeds(directory: Path, keys: Collection[bytes]) -> None:
    """
    Remove the private keys that belong to some public keys.

    @raise OSError: one cannot be removed.
    """
    gone = [path for path, key, _ in _read(directory) if key in keys]
    for path in gone:
        path.unlink()
    if gone:
        syncFile(directory)


def _read(directory: Path) -> Iterator[tuple[Path, bytes, bytes]]:
    """Each key file with its public and its private key."""
    for path in sorted(directory.glob("*" + _SUFFIX)):
        seed = _readSeed(path)
        yield path, publicKey(seed), seed


def _readSeed(path: Path) -> bytes:
    try:
        seed = bytes.fromhex(readFile(path).decode("ascii"))
    except OSError:
        raise KeysDamaged(f"{path} cannot be read: put it back from a backup") from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise KeysDamaged(f"{path} is not a key: put it back from a backup")
    return seed


class KeyRing:
    """
    Stores the private keys of the current replicas, and makes those of their successors.

    A new key is on stable storage before it is used; an old key is removed once the change that
    replaced it is final.
    """

    _log = Logger()

    def __init__(
        self,
        directory: Path,
        chain: bytes,
        seeds: Sequence[bytes],
        entropy: Callable[[int], bytes],
        runInThread: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param directory: the directory of the key files.
        @param chain: the chain's id.
        @param seeds: the private keys of the current replicas.
        @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
        @param runInThread: runs blocking disk work.
        """
        self._directory = directory
        self._chain = chain
        self._seeds = {publicKey(seed): seed for seed in seeds}
        self._entropy = entropy
        self._runInThread = runInThread

    def seeds(self, validators: ValidatorSet) -> Sequence[bytes]:
        """The private keys of a validator set, by index."""
        return [self._seeds[key] for key in validators.keys]

    async def prepare(
        self, current: ValidatorSet, rotate: Sequence[int], count: int | None
    ) -> ValidatorChange:
        """
        Make a change of the validator set, and write the new private keys to disk.

        @param rotate: the indexes of the nodes that get new keys.
        @param count: the new number of nodes; C{None} to keep the current one.
        @raise ParameterInvalid: an index or the number of nodes is out of range, or nothing would
            change.
        @raise LedgerUnavailable: the keys cannot be written.
        """
        keys = list(current.keys)
        size = len(keys) if count is None else count
        if not 1 <= size <= MAX_NODES:
            raise ParameterInvalid(f"there may be 1 to {MAX_NODES} nodes")
        changing = set(rotate)
        if not changing <= set(range(min(size, len(keys)))):
            raise ParameterInvalid("there is no such node to give a new key to")
        if not changing and size == len(keys):
            raise ParameterInvalid("nothing would change")
        made: dict[str, bytes] = {}
        keys[size:] = []
        for index in sorted(changing | set(range(len(keys), size))):
            seed = self._entropy(SEED_SIZE)
            key = publicKey(seed)
            # A name of its own, so that it never overwrites a key that is in use.
            made[f"node{index}-{key.hex()[:16]}"] = seed
            keys[index : index + 1] = [key]
        try:
            await self._runInThread(writeSeeds, self._directory, made)
        except OSError as error:
            raise LedgerUnavailable(f"the new keys cannot be written: {error.strerror}") from error
        self._seeds.update((publicKey(seed), seed) for seed in made.values())
        return signChange(self._chain, current, keys, list(self._seeds.values()))

    async def retire(self, change: ValidatorChange) -> None:
        """
        Remove the keys that a final change has replaced.
        """
        gone = set(self._seeds) - set(change.following.keys)
        for key in gone:
            del self._seeds[key]
        try:
            await self._runInThread(removeSeeds, self._directory, gone)
        except (OSError, KeysDamaged):
            # Not an error: the next start tries again.
            self._log.failure("old keys could not be removed from {path}", path=self._directory)


EVIDENCE_NAME = "evidence.jsonl"
"""The file's name in the directory of a chain."""


class _Signed(msgspec.Struct, frozen=True):
    """
    A signed vote or proposal: what L{votePayload<svcbroker.chain.votePayload>} needs, in hex.
    """

    phase: str
    digest: str
    signature: str

    @classmethod
    def of(cls, message: PhaseVote | Proposal) -> _Signed:
        """The signed part of a message."""
        return cls(message.phase.name, message.digest.hex(), message.signature.hex())


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: two signatures of one key that contradict each other."""

    chain: str
    key: str
    node: int
    height: int
    round: int
    first: _Signed
    second: _Signed


class EvidenceFile:
    """
    Keeps the first evidence against each key: one is proof enough, and bounds the file.

    @ivar contradictions: what the file holds, oldest first.
    """

    _log = Logger()

    def __init__(
        self, directory: Path, chain: bytes, runInThread: Callable[..., Deferred[Any]]
    ) -> None:
        """
        Read the file of a chain. What cannot be read is logged and ignored.

        @param directory: the chain's directory.
        @param runInThread: runs blocking disk work.
        """
        self._path = directory / EVIDENCE_NAME
        self._chain = chain
        self._runInThread = runInThread
        self._keys: set[str] = set()
        self.contradictions: list[DoubleVote] = []
        try:
            for line in readFile(self._path).splitlines() if self._path.exists() else ():
                self._note(msgspec.json.decode(line, type=_Record))
        except (OSError, msgspec.DecodeError):
            self._log.failure("{path} is damaged", path=self._path)

    def add(self, key: bytes, evidence: Evidence) -> None:
        """
        Write evidence against a key, unless there is some already. A failure is logged: evidence is
        not worth stopping the ledger for.
        """
        if key.hex() in self._keys:
            return
        first, second = evidence.first, evidence.second
        record = _Record(
            chain=self._chain.hex(),
            key=key.hex(),
            node=first.sender,
            height=first.height,
            round=first.round,
            first=_Signed.of(first),
            second=_Signed.of(second),
        )
        self._note(record)
        writing = self._runInThread(_append, self._path, msgspec.json.encode(record) + b"\n")
        writing.addErrback(lambda failure: self._log.failure("evidence was not written", failure))

    def _note(self, record: _Record) -> None:
        self._keys.add(record.key)
        self.contradictions.append(
            DoubleVote(node=record.node, height=record.height, round=record.round)
        )


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
