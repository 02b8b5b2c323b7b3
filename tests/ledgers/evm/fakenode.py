"""
A node of a chain in memory, which keeps a contract's log, and may be wrong in many ways.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed

from svcbroker.ledgers.evm._contract import (
    LoggedBatch,
    LogState,
    batchTopic,
    bornCall,
    contractCode,
    stateCall,
)
from svcbroker.ledgers.evm._ethereum import WORD, packBytes, word
from svcbroker.ledgers.evm._evmrpc import (
    DIALECTS,
    Dialect,
    EvmError,
    EvmRpc,
    Reason,
    quantity,
    todata,
    unquantity,
)

CHAIN_ID = 7
CONTRACT = b"\x0c" * 20
SENDER = b"\x05" * 20


@define
class FakeBlock:
    """
    A block of the chain.

    @ivar salt: what its hash differs by from that of another chain's.
    """

    number: int
    salt: str
    batches: list[LoggedBatch] = field(factory=list)

    @property
    def hash(self) -> bytes:
        return sha256(f"{self.salt} {self.number}".encode()).digest()

    @property
    def time(self) -> int:
        return 1_700_000_000 + self.number


@define(eq=False)
class FakeNode:
    """
    A node whose chain has one contract, which was made in its first block.

    @ivar asked: the methods that it was asked.
    @ivar cut: the most blocks whose logs it gives, without a word about it.
    @ivar limit: the most blocks whose logs may be asked for.
    @ivar hidden: the numbers of batches that it leaves out of the logs.
    @ivar keeps: the number of blocks whose states it keeps.
    @ivar fault: what it answers to everything, while it is set.
    """

    blocks: list[FakeBlock] = field(factory=lambda: [FakeBlock(0, "")])
    asked: list[str] = field(factory=list)
    cut: int | None = None
    limit: int | None = None
    hidden: set[int] = field(factory=set)
    keeps: int | None = None
    fault: str = ""
    chainId: int = CHAIN_ID
    code: str = field(factory=lambda: contractCode().deployed)

    def mine(self, *datas: bytes, salt: str = "") -> FakeBlock:
        """Add a block with batches."""
        block = FakeBlock(len(self.blocks), salt)
        count = self.stateAfter(block.number - 1).count
        block.batches += [
            LoggedBatch(number, SENDER, data) for number, data in enumerate(datas, count + 1)
        ]
        self.blocks.append(block)
        return block

    def stateAfter(self, number: int) -> LogState:
        """The contract's state after a block."""
        state = LogState()
        for block in self.blocks[: number + 1]:
            for batch in block.batches:
                state = state.after(batch)
        return state

    def answer(self, method: str, parameters: Sequence[Any]) -> Any:
        """The result of a call; C{ValueError} with an error's text."""
        self.asked.append(method)
        if self.fault:
            raise ValueError(self.fault)
        return getattr(self, method)(*parameters)

    def number(self, tag: str) -> int:
        """The number that a block's number or tag stands for."""
        if tag in ("latest", "finalized"):
            return len(self.blocks) - 1
        return unquantity(tag)

    def eth_chainId(self) -> str:
        return quantity(self.chainId)

    def eth_getCode(self, address: str, tag: str) -> str:
        return "0x" + (self.code if address == todata(CONTRACT) else "")

    def eth_getBlockByNumber(self, tag: str, isWhole: bool) -> Any:
        number = self.number(tag)
        if number >= len(self.blocks):
            return None
        block = self.blocks[number]
        return {
            "number": quantity(number),
            "hash": todata(block.hash),
            "parentHash": todata(bytes(32)),
            "timestamp": quantity(block.time),
        }

    def eth_call(self, call: dict[str, str], tag: str) -> str:
        number = self.number(tag)
        if self.keeps is not None and number <= len(self.blocks) - 1 - self.keeps:
            raise ValueError("missing trie node 0x12 (path )")
        data = bytes.fromhex(call["data"][2:])
        if data == stateCall():
            state = self.stateAfter(number)
            return todata(word(state.count) + state.head)
        if data == bornCall():
            return todata(word(0) + word(self.blocks[0].time))
        raise ValueError("execution reverted")

    def eth_getLogs(self, wanted: dict[str, Any]) -> list[Any]:
        first, last = self.number(wanted["fromBlock"]), self.number(wanted["toBlock"])
        if self.limit is not None and last - first >= self.limit:
            raise ValueError("block range is too wide")
        if self.cut is not None:
            last = min(last, first + self.cut - 1)
        logs = []
        for block in self.blocks[first : last + 1]:
            for index, batch in enumerate(block.batches):
                if batch.number not in self.hidden:
                    logs.append(
                        {
                            "address": wanted["address"],
                            "topics": [
                                todata(batchTopic()),
                                todata(word(batch.number)),
                                todata(word(batch.sender)),
                            ],
                            "data": todata(word(WORD) + packBytes(batch.data)),
                            "blockNumber": quantity(block.number),
                            "blockHash": todata(block.hash),
                            "logIndex": quantity(index),
                            "removed": False,
                        }
                    )
        return logs


class FakeRpc(EvmRpc):
    """
    A client of nodes in memory.
    """

    def __init__(self, *nodes: FakeNode, dialect: Dialect = DIALECTS["auto"]) -> None:
        urls = [f"http://node{index}" for index in range(len(nodes))]
        super().__init__(None, urls, dialect, CHAIN_ID, CONTRACT)  # type: ignore[arg-type]
        self._nodes = nodes

    def close(self) -> Deferred[Any]:
        return succeed(None)

    async def _post(self, body: bytes) -> bytes:
        node = self._nodes[self._index]
        if node.fault == "gone":
            self.leave()
            raise EvmError(Reason.UNREACHABLE, f"{self.url} cannot be reached")
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        answers: list[Any] = []
        for call in calls:
            try:
                result = node.answer(call["method"], call["params"])
                answers.append({"jsonrpc": "2.0", "id": call["id"], "result": result})
            except ValueError as error:
                told = {"code": -32000, "message": str(error)}
                answers.append({"jsonrpc": "2.0", "id": call["id"], "error": told})
        # A node may answer in any order.
        answers.reverse()
        return json.dumps(answers if isinstance(asked, list) else answers[0]).encode()
