"""
The private keys of a set of replicas whose members change.
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
    Keeps the private keys of the nodes that decide, and makes those of the ones to come.

    A new key is on stable storage before anybody may vote with it; an old one is removed once
    nobody will ask for it any more.
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
        @param directory: where the key files are.
        @param chain: the chain's id.
        @param seeds: the private keys of the nodes that decide.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param runInThread: runs blocking disk work.
        """
        self._directory = directory
        self._chain = chain
        self._seeds = {publicKey(seed): seed for seed in seeds}
        self._entropy = entropy
        self._runInThread = runInThread

    def seeds(self, validators: ValidatorSet) -> Sequence[bytes]:
        """The private keys of a set of nodes, by index."""
        return [self._seeds[key] for key in validators.keys]

    async def prepare(
        self, current: ValidatorSet, rotate: Sequence[int], count: int | None
    ) -> ValidatorChange:
        """
        Make a change of the set of nodes and the keys that it takes.

        @param rotate: the indexes of the nodes that get new keys.
        @param count: how many nodes there are to be; C{None} for as many as there are.
        @raise ParameterInvalid: there is no such node, nothing would change, or the number of
            nodes is out of range.
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
            # Never the name of another key: that one may be about to decide.
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
        Remove the keys that a change, which is final, has put out of use.
        """
        gone = set(self._seeds) - set(change.following.keys)
        for key in gone:
            del self._seeds[key]
        try:
            await self._runInThread(removeSeeds, self._directory, gone)
        except (OSError, KeysDamaged):
            # They are of no use to anybody who has not the chain before the change.
            self._log.failure("old keys could not be removed from {path}", path=self._directory)
