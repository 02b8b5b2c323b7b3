"""
The validators of a chain, where its nodes tell them: QBFT and IBFT of Besu and of GoQuorum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from attrs import frozen
from msgspec import Struct

from ...net.deferreds import asDeferred
from .._jsonrpc import RpcCall
from ._evmrpc import EvmError, EvmRpc, undata, unquantity

METHODS: Final = (
    "qbft_getValidatorsByBlockNumber",
    "ibft_getValidatorsByBlockNumber",
    "istanbul_getValidators",
)
"""The calls by which kinds of nodes tell the validators."""

MAX_VALIDATORS: Final = 128
"""The most validators that are shown."""

MAX_LOOKED: Final = 64
"""The most blocks whose proposers are looked at."""

_addresses = msgspec.json.Decoder(list[str]).decode


class _Proposed(Struct, frozen=True):
    """A block, and who has proposed it."""

    number: str
    miner: str


_proposed = msgspec.json.Decoder(_Proposed | None).decode


def _readAddresses(data: bytes) -> Sequence[bytes]:
    return [undata(each, 20) for each in _addresses(data)[:MAX_VALIDATORS]]


@frozen(kw_only=True)
class Validator:
    """
    A validator.

    @ivar proposed: the number of the newest block that it has proposed, of those looked at; 0 for
        none.
    """

    address: bytes
    proposed: int


class Validators:
    """
    What the nodes tell of the validators.

    @ivar known: all of them; empty where the nodes tell none.
    """

    def __init__(self, rpc: EvmRpc) -> None:
        self._rpc = rpc
        self._generation = -1
        self._method = ""
        self.known: Sequence[Validator] = ()

    @asDeferred
    async def look(self, newest: int) -> None:
        """
        Ask who they are, and who has proposed the last blocks.

        @param newest: the number of the last block.
        @raise EvmError: the chain does not answer.
        """
        methods = METHODS if self._generation != self._rpc.generation else [self._method]
        calls = [RpcCall(each, ("latest",), _readAddresses) for each in methods if each]
        generation = self._rpc.generation
        answers = await self._rpc.tryAll(calls)
        told = [
            (call.method, found)
            for call, found in zip(calls, answers, strict=True)
            if not isinstance(found, EvmError) and found
        ]
        self._generation, self._method = generation, told[0][0] if told else ""
        if not told:
            self.known = ()
            return
        addresses = told[0][1]
        first = max(1, newest + 1 - min(MAX_LOOKED, 2 * len(addresses)))
        blocks: list[RpcCall[Any]] = [
            RpcCall("eth_getBlockByNumber", (hex(number), False), _proposed)
            for number in range(first, newest + 1)
        ]
        proposed: dict[bytes, int] = {}
        for block in await self._rpc.tryAll(blocks):
            if isinstance(block, _Proposed):
                proposed[undata(block.miner, 20)] = unquantity(block.number)
        self.known = [Validator(address=each, proposed=proposed.get(each, 0)) for each in addresses]
