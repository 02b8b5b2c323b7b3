"""
Attestations: the hashes of our blocks that brokers put into the contract, so that brokers whose
executions differ find out, and verifiers need no broker's word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

from ...chain import Header
from ...net.deferreds import asDeferred
from ._contract import attestCall, attestedCall
from ._evmrpc import EvmRpc, contractCall

HOUR: Final = 3600 * 1000
"""Milliseconds after which a block is attested, however few there were."""

RECENT: Final = 1000
"""The most blocks of the chain that a block of ours may be behind to be attested by this broker."""

_MAX_WAITING: Final = 16
_PROBED: Final = 3


class Attestations:
    """
    The attestations of one broker.

    @ivar agreed: the height of the newest block whose hash more than two thirds of the accounts
        have attested as it is here; 0 where none is known.
    @ivar fault: why the chain here is not that of the others; empty where it is, so far as is
        known.
    """

    _log = Logger()

    def __init__(
        self, rpc: EvmRpc, contract: bytes, interval: int, call: Callable[[bytes], object]
    ) -> None:
        """
        @param interval: the blocks between two attestations; 0 for none. All brokers of a contract
            have the same, so that they attest the same blocks.
        @param call: calls the contract.
        """
        self._rpc = rpc
        self._contract = contract
        self._interval = interval
        self._call = call
        self._waiting: dict[int, bytes] = {}
        self.agreed = 0
        self.fault = ""

    def begin(self, height: int, hashOf: Callable[[int], bytes]) -> None:
        """
        Look for attestations of before the start.

        @param height: that of the last block.
        @param hashOf: gives the hash of a block.
        """
        if self._interval:
            last = height - height % self._interval
            for each in range(last, max(0, last - _PROBED * self._interval), -self._interval):
                self._waiting[each] = hashOf(each)

    def executed(self, header: Header, before: int, behind: int) -> None:
        """
        Attest a block, where that is due. All brokers attest the same ones.

        @param before: the time of the block before it, in milliseconds since the epoch.
        @param behind: how many blocks of the chain were not read yet.
        """
        isDue = self._interval and (
            not header.height % self._interval or header.timestamp // HOUR != before // HOUR
        )
        if not isDue or behind > RECENT:
            return
        self._call(attestCall(header.height, header.hash))
        self._waiting[header.height] = header.hash
        while len(self._waiting) > _MAX_WAITING:
            del self._waiting[min(self._waiting)]

    @asDeferred
    async def compare(self) -> None:
        """
        Compare the hashes here with those that the brokers have attested.

        @raise EvmError: the chain does not answer.
        """
        heights = sorted(self._waiting)
        if not heights:
            return
        calls = [contractCall(self._contract, attestedCall(height)) for height in heights]
        for height, found in zip(heights, await self._rpc.askAll(calls), strict=True):
            if found == self._waiting.get(height):
                self.agreed = max(self.agreed, height)
                del self._waiting[height]
            elif any(found):
                self.fault = (
                    f"block {height} has hash {self._waiting[height].hex()} here, and the brokers "
                    f"of this chain have attested {found.hex()}: audit this group"
                )
                self._log.error("{fault}", fault=self.fault)
                del self._waiting[height]
