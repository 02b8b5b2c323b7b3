"""
The private keys of a replica set that changes over time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...chain import ValidatorChange, ValidatorSet
from ...errors import LedgerUnavailable, ParameterInvalid
from ._keyfiles import SEED_SIZE, KeysDamaged, removeSeeds, writeSeeds
from ._keys import publicKey, signChange
from ._settings import MAX_NODES


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
