"""
A node of a chain in memory, which keeps a contract's log, and may be wrong in many ways.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.protocols.policies import WrappingFactory
from twisted.trial.unittest import TestCase
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from svcbroker.ledgers.evm._contract import (
    LoggedBatch,
    LogState,
    allowedCall,
    attestedCall,
    batchTopic,
    bornCall,
    contractCode,
    stateCall,
    submitCall,
)
from svcbroker.ledgers.evm._ethereum import WORD, encodeRlp, keccak256, packBytes, word
from svcbroker.ledgers.evm._evmrpc import (
    DIALECTS,
    EvmError,
    EvmReason,
    EvmRpc,
    NodeDialect,
    quantity,
    todata,
    undata,
    unquantity,
)
from svcbroker.ledgers.evm._stateproof import decodeRlp
from svcbroker.net.deferreds import asDeferred
from tests.waiting import reactor, until

with suppress(ImportError):
    from coincurve import PublicKey

CHAIN_ID = 7
CONTRACT = b"\x0c" * 20
SENDER = b"\x05" * 20


@define
class FakeBlock:
    """
    A block of the chain.

    @ivar salt: what its hash differs by from that of another chain's.
    @ivar senders: the hashes of its transactions, and who has sent them.
    """

    number: int
    salt: str
    batches: list[LoggedBatch] = field(factory=list)
    senders: dict[bytes, bytes] = field(factory=dict)

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
    @ivar requests: the number of requests in which it was asked.
    @ivar ranges: the first and the last block of all logs that it was asked for.
    @ivar cut: the most blocks whose logs it gives, without a word about it.
    @ivar limit: the most blocks whose logs may be asked for.
    @ivar hidden: the numbers of batches that it leaves out of the logs.
    @ivar change: what it makes of logs before it gives them.
    @ivar keeps: the number of blocks whose states it keeps.
    @ivar gone: what it says of a state that it does not keep.
    @ivar fault: what it answers to everything, while it is set.
    @ivar standsAt: the last block that it has, where it has lost its chain: then it hands on no
        transactions.
    @ivar most: the most calls that it takes in one request.
    @ivar validators: who propose its blocks, in turn.
    @ivar tells: whether it tells them, and one more that proposes none.
    @ivar balance: the money that each account has.
    @ivar price: what gas costs.
    @ivar refusal: what it says to each transaction, while it is set.
    @ivar forgets: how many of the next transactions it takes and forgets.
    @ivar attested: the hashes that the brokers have attested, by height.
    @ivar syncing: what it answers to who asks whether it is catching up.
    """

    blocks: list[FakeBlock] = field(factory=lambda: [FakeBlock(0, "")])
    asked: list[str] = field(factory=list)
    requests: int = 0
    ranges: list[tuple[int, int]] = field(factory=list)
    cut: int | None = None
    limit: int | None = None
    hidden: set[int] = field(factory=set)
    change: Callable[[list[Any]], list[Any]] | None = None
    keeps: int | None = None
    gone: str = "missing trie node 0x12 (path )"
    fault: str = ""
    standsAt: int | None = None
    most: int = 1000
    attested: dict[int, bytes] = field(factory=dict)
    syncing: Any = False
    validators: list[bytes] = field(factory=lambda: [bytes([n]) * 20 for n in (1, 2, 3)])
    tells: bool = False
    balance: int = 0
    price: int = 0
    refusal: str = ""
    forgets: int = 0
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

    @property
    def last(self) -> int:
        """The number of the last block that it has."""
        last = len(self.blocks) - 1
        return last if self.standsAt is None else min(last, self.standsAt)

    def answer(self, method: str, parameters: Sequence[Any]) -> Any:
        """The result of a call; C{ValueError} with an error's text."""
        self.asked.append(method)
        if self.fault:
            raise ValueError(self.fault)
        found = getattr(self, method, None)
        if found is None:
            raise ValueError(f"the method {method} does not exist")
        return found(*parameters)

    def number(self, tag: str) -> int:
        """The number that a block's number or tag stands for."""
        if tag in ("latest", "finalized"):
            return self.last
        return unquantity(tag)

    def eth_chainId(self) -> str:
        return quantity(self.chainId)

    def eth_getCode(self, address: str, tag: str) -> str:
        return "0x" + (self.code if address == todata(CONTRACT) else "")

    def eth_getBlockByNumber(self, tag: str, isWhole: bool) -> Any:
        number = self.number(tag)
        if number > self.last:
            return None
        block = self.blocks[number]
        return {
            "number": quantity(number),
            "hash": todata(block.hash),
            "parentHash": todata(bytes(32)),
            "timestamp": quantity(block.time),
            "miner": todata(self.validators[number % len(self.validators)]),
        }

    def eth_call(self, call: dict[str, str], tag: str) -> str:
        number = self.number(tag)
        if self.keeps is not None and number <= len(self.blocks) - 1 - self.keeps:
            raise ValueError(self.gone)
        data = bytes.fromhex(call["data"][2:])
        if data == stateCall():
            state = self.stateAfter(number)
            return todata(word(state.count) + state.head)
        if data == bornCall():
            return todata(word(0) + word(self.blocks[0].time))
        if data[:4] == allowedCall(bytes(20))[:4]:
            return todata(word(1))
        if data == attestedCall(unword(data[4:])):
            return todata(self.attested.get(unword(data[4:]), bytes(WORD)))
        raise ValueError("execution reverted")

    def eth_getLogs(self, wanted: dict[str, Any]) -> list[Any]:
        first, last = self.number(wanted["fromBlock"]), self.number(wanted["toBlock"])
        self.ranges.append((first, last))
        last = min(last, self.last)
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
        return self.change(logs) if self.change is not None and logs else logs

    def qbft_getValidatorsByBlockNumber(self, tag: str) -> list[str]:
        if not self.tells:
            raise ValueError("Method not enabled")
        return [todata(each) for each in [*self.validators, b"\x99" * 20]]

    def eth_syncing(self) -> Any:
        return self.syncing

    def eth_gasPrice(self) -> str:
        return quantity(self.price)

    def eth_estimateGas(self, call: dict[str, str]) -> str:
        return quantity(2_000_000)

    def eth_getBalance(self, address: str, tag: str) -> str:
        return quantity(self.balance)

    def eth_getTransactionCount(self, address: str, tag: str) -> str:
        return quantity(self.nonceOf(undata(address), self.number(tag)))

    def nonceOf(self, address: bytes, number: int) -> int:
        """The number of an account's transactions in the blocks up to one."""
        blocks = self.blocks[: number + 1]
        return sum(sender == address for each in blocks for sender in each.senders.values())

    def eth_getTransactionReceipt(self, hash: str) -> Any:
        for block in self.blocks[: self.last + 1]:
            if undata(hash) in block.senders:
                return {"blockNumber": quantity(block.number), "status": "0x1"}
        return None

    def eth_sendRawTransaction(self, text: str) -> str:
        raw = undata(text)
        hash, sender, nonce, data = readTransaction(raw)
        if self.standsAt is not None or self.forgets:
            self.forgets = max(0, self.forgets - 1)
            return todata(hash)
        self.checkOffer(raw)
        if any(hash in block.senders for block in self.blocks):
            raise ValueError("already known")
        expected = self.nonceOf(sender, len(self.blocks) - 1)
        if nonce != expected:
            raise ValueError("nonce too low" if nonce < expected else "nonce is too far ahead")
        prefix = submitCall(b"")[:4]
        isBatch = data[:4] == prefix
        block = self.mine()
        block.senders[hash] = sender
        if isBatch:
            size = int.from_bytes(data[4 + WORD : 4 + 2 * WORD], "big")
            batch = data[4 + 2 * WORD :][:size]
            count = self.stateAfter(block.number).count + 1
            block.batches.append(LoggedBatch(count, sender, batch))
        return todata(hash)

    def checkOffer(self, raw: bytes) -> None:
        """Refuse a transaction that offers too little for gas, or more than its account has."""
        fields: Any = decodeRlp(raw)
        price, gas = (int.from_bytes(each, "big") for each in fields[1:3])
        if self.refusal:
            raise ValueError(self.refusal)
        if price < self.price:
            raise ValueError("transaction underpriced: gas price below the minimum")
        if price * gas > self.balance:
            raise ValueError("insufficient funds for gas * price + value")

    def reply(self, body: bytes) -> bytes:
        """The answer to a request, of one call or of several."""
        self.requests += 1
        asked = json.loads(body)
        calls = asked if isinstance(asked, list) else [asked]
        if len(calls) > self.most:
            told = {"code": -32600, "message": f"batch too large, {self.most} calls at most"}
            return json.dumps({"jsonrpc": "2.0", "id": None, "error": told}).encode()
        answers: list[Any] = []
        for call in calls:
            try:
                result = self.answer(call["method"], call["params"])
                answers.append({"jsonrpc": "2.0", "id": call["id"], "result": result})
            except ValueError as error:
                told = {"code": -32000, "message": str(error)}
                answers.append({"jsonrpc": "2.0", "id": call["id"], "error": told})
        # A node may answer in any order.
        answers.reverse()
        return json.dumps(answers if isinstance(asked, list) else answers[0]).encode()

    def serve(self, test: TestCase) -> ServedNode:
        """Serve it on this machine, until the end of a test."""
        return ServedNode(test, self)


def unword(data: bytes) -> int:
    """A number as the ABI has it."""
    return int.from_bytes(data[:WORD], "big")


def readTransaction(raw: bytes) -> tuple[bytes, bytes, int, bytes]:
    """The hash, the sender, the nonce and the data of a signed transaction."""
    fields: Any = decodeRlp(raw)
    nonce, data = int.from_bytes(fields[0], "big"), fields[5]
    recovery = (int.from_bytes(fields[6], "big") - 35) % 2
    signature = fields[7].rjust(32, b"\0") + fields[8].rjust(32, b"\0") + bytes([recovery])
    digest = keccak256(encodeRlp([*fields[:6], CHAIN_ID, 0, 0]))
    key = PublicKey.from_signature_and_message(signature, digest, hasher=None)
    sender = keccak256(key.format(compressed=False)[1:])[-20:]
    return keccak256(raw), sender, nonce, data


class ServedNode(Resource):
    """
    The JSON-RPC of a node, on a port of this machine.

    @ivar url: its address.
    @ivar delay: seconds until it answers; C{None}: it never does.
    @ivar change: makes what is sent of an answer.
    """

    isLeaf = True
    delay: float | None = 0.0

    def __init__(self, test: TestCase, node: FakeNode) -> None:
        super().__init__()
        self._node = node
        self._late: dict[Request, IDelayedCall | None] = {}
        self.change: Callable[[bytes], bytes] = lambda answer: answer
        site = Site(self)
        site.noisy = False
        self._factory = WrappingFactory(site)
        self._factory.noisy = False
        self._port = reactor.listenTCP(0, self._factory, interface="127.0.0.1")
        self.url = f"http://127.0.0.1:{self._port.getHost().port}"
        test.addCleanup(self._end)

    @property
    def waiting(self) -> int:
        """The number of requests whose clients wait for answers."""
        return len(self._late)

    @asDeferred
    async def _end(self) -> None:
        """Close all connections, and with them what was asked on them."""
        await maybeDeferred(self._port.stopListening)
        for connection in list(self._factory.protocols):
            connection.transport.abortConnection()
        await until(lambda: not self._factory.protocols)

    def render_POST(self, request: Any) -> bytes | int:
        body = request.content.read()
        if self.delay == 0:
            return self.change(self._node.reply(body))
        request.notifyFinish().addBoth(lambda _: self._forget(request))
        self._late[request] = None
        if self.delay is not None:
            self._late[request] = reactor.callLater(self.delay, self._answer, request, body)
        return NOT_DONE_YET

    def _answer(self, request: Request, body: bytes) -> None:
        request.write(self.change(self._node.reply(body)))
        request.finish()

    def _forget(self, request: Request) -> None:
        call = self._late.pop(request)
        if call is not None and call.active():
            call.cancel()


class FakeRpc(EvmRpc):
    """
    A client of nodes in memory.
    """

    def __init__(self, *nodes: FakeNode, dialect: NodeDialect = DIALECTS["auto"]) -> None:
        urls = [f"http://node{index}" for index in range(len(nodes))]
        super().__init__(None, urls, dialect, CHAIN_ID, CONTRACT)  # type: ignore[arg-type]
        self._nodes = nodes

    def close(self) -> Deferred[Any]:
        return succeed(None)

    async def _post(self, body: bytes, maxAnswer: int) -> bytes:
        node = self._nodes[self._index]
        if node.fault == "gone":
            self.leave()
            raise EvmError(EvmReason.UNREACHABLE, f"{self.url} cannot be reached")
        answer = node.reply(body)
        if len(answer) > maxAnswer:
            raise EvmError(EvmReason.TOO_LARGE, f"the answer has more than {maxAnswer} bytes")
        return answer
