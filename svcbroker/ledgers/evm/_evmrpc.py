"""
The client of a chain's JSON-RPC: calls, the dialects of nodes, and the reasons of errors.

Errors are told apart by their texts, since each kind of node has codes of its own.

Many names: each call of a node has a function that makes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar, cast

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import Deferred

from ...chain import Malformed
from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, Problem, makeClient
from .._jsonrpc import NoRpcAnswer, RpcAnswer, RpcCall, decodeAnswers, encodeCalls, postJson
from ._contract import LoggedBatch, batchTopic, contractCode
from ._ethereum import showAddress

T = TypeVar("T")

TIMEOUT: Final = 10.0
"""Seconds that a request may take."""

CONNECT_TIMEOUT: Final = 5.0
"""Seconds that connecting may take."""

MAX_ANSWER: Final = 32 * 1024 * 1024
"""The most bytes of an answer."""

_MAX_IDLE: Final = 8
_MAX_WORDS: Final = 300
_MILLISECONDS: Final = 10**11


class EvmReason(Enum):
    """The reason of a failed call."""

    UNREACHABLE = "unreachable"
    """No answer came."""
    BAD_ANSWER = "bad answer"
    """It answered what no node answers."""
    TOO_LARGE = "too large"
    """The answer, or the range of blocks asked for, is larger than permitted."""
    WRONG_CHAIN = "wrong chain"
    """It is a node of another chain."""
    NO_CONTRACT = "no contract"
    """The contract is not at its address."""
    KNOWN = "known"
    """The node has the transaction already."""
    NONCE_USED = "nonce used"
    """The chain has another transaction, or this one, with the nonce."""
    REPLACED = "replaced"
    """The node's pool has another transaction with the nonce."""
    NO_FUNDS = "no funds"
    """The account cannot pay for the gas."""
    UNDERPRICED = "underpriced"
    """The gas price is below what the node asks for."""
    NO_STATE = "no state"
    """The node does not keep the state after that block any more, or has not got it yet."""
    REFUSED = "refused"
    """Any other error of the node."""


_MEANINGS: Final[Sequence[tuple[str, EvmReason]]] = (
    (r"already known|already imported|known transaction|alreadyknown", EvmReason.KNOWN),
    (r"nonce too low|nonce is too low|below current nonce|nonce_too_low", EvmReason.NONCE_USED),
    (r"nonce has already been used|invalid nonce; expected", EvmReason.NONCE_USED),
    (r"replacement transaction|replacement tx", EvmReason.REPLACED),
    (r"insufficient funds|upfront cost exceeds", EvmReason.NO_FUNDS),
    (r"underpriced|gas price (too low|below)|less than block base fee", EvmReason.UNDERPRICED),
    (r"max fee per gas less|fee cap less|min(imum)? gas price", EvmReason.UNDERPRICED),
    (r"missing trie node|state .*not available|world ?state unavailable", EvmReason.NO_STATE),
    (r"historical state|header not found|unknown block|pruned|archive", EvmReason.NO_STATE),
    (r"block not found|state is not|indexing is in progress|current head", EvmReason.NO_STATE),
    # anvil, of a state that it does not keep.
    (r"block height is \d+ but requested", EvmReason.NO_STATE),
    (r"range|too many|more than|query returned|too large|limit exceeded", EvmReason.TOO_LARGE),
)


class EvmError(Exception):
    """
    A call of a node failed. The text is a line for the operator.

    @ivar reason: why.
    """

    def __init__(self, reason: EvmReason, words: str) -> None:
        self.reason = reason
        super().__init__(words[:_MAX_WORDS])

    @classmethod
    def ofNode(cls, words: str) -> EvmError:
        """The error that a node tells of."""
        for pattern, reason in _MEANINGS:
            if re.search(pattern, words, re.IGNORECASE):
                return cls(reason, words)
        return cls(EvmReason.REFUSED, words)


@frozen(kw_only=True)
class NodeDialect:
    """
    The bounds of a kind of node.

    @ivar batch: the most calls in one request.
    @ivar blocks: the most blocks whose logs are asked for together. Less is asked for where that is
        cut.
    """

    batch: int = 50
    blocks: int = 1000


DIALECTS: Mapping[str, NodeDialect] = {
    "auto": NodeDialect(),
    "besu": NodeDialect(blocks=5000),
    "geth": NodeDialect(batch=100, blocks=2000),
    "fisco": NodeDialect(batch=8, blocks=10),
    "edge": NodeDialect(batch=20),
}
"""The dialects, by the value of the setting."""


class BlockInfo(Struct, frozen=True, rename="camel"):
    """
    A block of the chain.
    """

    number: str
    hash: str
    parentHash: str
    timestamp: str

    @property
    def height(self) -> int:
        """Its number."""
        return unquantity(self.number)

    @property
    def id(self) -> bytes:
        """Its hash."""
        return undata(self.hash, 32)

    @property
    def milliseconds(self) -> int:
        """Its time, in milliseconds since the epoch. Some chains tell it in seconds, some so."""
        time = unquantity(self.timestamp)
        return time if time > _MILLISECONDS else time * 1000


class SyncProgress(Struct, frozen=True, rename="camel"):
    """
    The answer of a node that is catching up with its chain.
    """

    currentBlock: str = "0x0"
    highestBlock: str = "0x0"


class LogInfo(Struct, frozen=True, rename="camel"):
    """
    A log of the contract.
    """

    topics: Sequence[str]
    data: str
    blockNumber: str
    blockHash: str
    logIndex: str
    removed: bool = False

    @property
    def height(self) -> int:
        """The number of its block."""
        return unquantity(self.blockNumber)

    def decode(self) -> LoggedBatch:
        """
        Read the batch that it is of.

        @raise Malformed: it is of none.
        """
        return LoggedBatch.decode([undata(each) for each in self.topics], undata(self.data))


class ReceiptInfo(Struct, frozen=True, rename="camel"):
    """
    The result of a transaction.
    """

    blockNumber: str
    status: str = "0x1"
    gasUsed: str = "0x0"
    contractAddress: str | None = None

    @property
    def height(self) -> int:
        """The number of its block."""
        return unquantity(self.blockNumber)

    @property
    def isDone(self) -> bool:
        """Whether it was not reverted."""
        return unquantity(self.status) == 1


def quantity(value: int) -> str:
    """A number as nodes write it."""
    return hex(value)


def unquantity(text: str) -> int:
    """
    Read a number.

    @raise Malformed: it is none.
    """
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,64}", text):
        raise Malformed(f"{text[:80]!r} is not a number in hexadecimal digits")
    return int(text, 16)


def undata(text: str, size: int | None = None) -> bytes:
    """
    Read bytes.

    @param size: how many there must be.
    @raise Malformed: they are none, or fewer or more.
    """
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        data = None
    if data is None or not text.startswith("0x") or size not in (None, len(data)):
        raise Malformed(f"{text[:80]!r} are not the bytes that were asked for")
    return data


def todata(data: bytes) -> str:
    """Bytes as nodes write them."""
    return "0x" + data.hex()


_text = msgspec.json.Decoder(str).decode
_block = msgspec.json.Decoder(BlockInfo | None).decode
_logs = msgspec.json.Decoder(list[LogInfo]).decode
_syncing = msgspec.json.Decoder(bool | SyncProgress).decode
_receipt = msgspec.json.Decoder(ReceiptInfo | None).decode


def _number(data: bytes) -> int:
    return unquantity(_text(data))


def _data(data: bytes) -> bytes:
    return undata(_text(data))


def _existing(data: bytes) -> BlockInfo:
    block: BlockInfo | None = _block(data)
    if block is None:
        raise EvmError(EvmReason.NO_STATE, "the node does not have that block")
    return block


def at(block: int | str) -> str:
    """A block's number, or its tag."""
    return block if isinstance(block, str) else quantity(block)


def chainIdCall() -> RpcCall[int]:
    """The chain's id."""
    return RpcCall("eth_chainId", (), _number)


def syncingCall() -> RpcCall[bool | SyncProgress]:
    """Whether the node is catching up with its chain, and how far it is."""
    return RpcCall("eth_syncing", (), _syncing)


def codeCall(address: bytes) -> RpcCall[bytes]:
    """The code at an address."""
    return RpcCall("eth_getCode", (todata(address), "latest"), _data)


def blockCall(block: int | str) -> RpcCall[BlockInfo]:
    """A block, without its transactions."""
    return RpcCall("eth_getBlockByNumber", (at(block), False), _existing)


def contractCall(contract: bytes, data: bytes, block: int | str = "latest") -> RpcCall[bytes]:
    """A call of the contract, as its state after a block answers it."""
    call = {"to": todata(contract), "data": todata(data)}
    return RpcCall("eth_call", (call, at(block)), _data)


def estimateCall(sender: bytes, contract: bytes, data: bytes) -> RpcCall[int]:
    """The gas that a call of the contract would take."""
    call = {"from": todata(sender), "to": todata(contract), "data": todata(data)}
    return RpcCall("eth_estimateGas", (call,), _number)


def logsCall(contract: bytes, first: int, last: int) -> RpcCall[list[LogInfo]]:
    """The logs of batches in some blocks. Some nodes want each of these fields."""
    return RpcCall(
        "eth_getLogs",
        (
            {
                "address": todata(contract),
                "topics": [todata(batchTopic())],
                "fromBlock": quantity(first),
                "toBlock": quantity(last),
            },
        ),
        _logs,
    )


def nonceCall(address: bytes, block: int | str = "latest") -> RpcCall[int]:
    """The number of an account's transactions in the blocks up to one: its next nonce."""
    return RpcCall("eth_getTransactionCount", (todata(address), at(block)), _number)


def balanceCall(address: bytes) -> RpcCall[int]:
    """An account's balance."""
    return RpcCall("eth_getBalance", (todata(address), "latest"), _number)


def gasPriceCall() -> RpcCall[int]:
    """The price of gas that the node proposes."""
    return RpcCall("eth_gasPrice", (), _number)


def sendCall(raw: bytes) -> RpcCall[bytes]:
    """Hand in a transaction; its hash."""
    return RpcCall("eth_sendRawTransaction", (todata(raw),), _data)


def receiptCall(hash: bytes) -> RpcCall[ReceiptInfo | None]:
    """A transaction's result; C{None} where it is in no block."""
    return RpcCall("eth_getTransactionReceipt", (todata(hash),), _receipt)


class EvmRpc:
    """
    Calls of one of a chain's nodes; of the next one after it did not answer.

    Every Deferred may fail with L{EvmError}. Nothing is tried twice.

    @ivar generation: a number that changes when another connection is used: nodes may differ in
        what they have.
    """

    def __init__(
        self,
        client: HttpClient,
        urls: Sequence[str],
        dialect: NodeDialect,
        chainId: int | None = None,
        contract: bytes = b"",
    ) -> None:
        """
        @param urls: one or several nodes of one chain.
        @param chainId: what each of them has to answer; C{None} for any.
        @param contract: the contract that each of them has to have; empty for none.
        """
        self._client = client
        self._urls = urls
        self._index = 0
        self._dialect = dialect
        self._most = dialect.batch
        self._chainId = chainId
        self._contract = contract
        self._isChecked = False
        self.generation = 0

    @property
    def url(self) -> str:
        """The node that is asked."""
        return self._urls[self._index]

    def close(self) -> Deferred[Any]:
        """Close the connections that are kept."""
        return self._client.close()

    def leave(self) -> None:
        """Ask the next node from now on, as this one is not whole."""
        self._index = (self._index + 1) % len(self._urls)
        self._most = self._dialect.batch
        self._isChecked = False
        self.generation += 1

    @asDeferred
    async def ask(self, call: RpcCall[T]) -> T:
        """
        Make one call.

        @return: fires with what the call reads.
        """
        [result] = await self.askAll([call])
        return cast("T", result)

    @asDeferred
    async def askAll(self, calls: Sequence[RpcCall[Any]]) -> list[Any]:
        """
        Make some calls, in as few requests as the dialect allows.

        @return: fires with the results in the order of the calls; one that is refused fails all.
        """
        results = await self.tryAll(calls)
        for result in results:
            if isinstance(result, EvmError):
                raise result
        return results

    @asDeferred
    async def tryAll(self, calls: Sequence[RpcCall[Any]], maxAnswer: int = MAX_ANSWER) -> list[Any]:
        """
        Make some calls, each of which may be refused.

        @param maxAnswer: the most bytes of an answer to a request.
        @return: fires with a result or an L{EvmError} for each.
        """
        if not self._isChecked:
            await self._check()
        return await self._requestAll(calls, maxAnswer)

    async def _requestAll(
        self, calls: Sequence[RpcCall[Any]], maxAnswer: int = MAX_ANSWER
    ) -> list[Any]:
        results: list[Any] = []
        while len(results) < len(calls):
            results += await self._request(calls[len(results) :][: self._most], maxAnswer)
        return results

    async def _check(self) -> None:
        calls: list[RpcCall[Any]] = [chainIdCall()]
        if self._contract:
            calls.append(codeCall(self._contract))
        answers = await self._requestAll(calls)
        for answer in answers:
            if isinstance(answer, EvmError):
                raise answer
        if self._chainId not in (None, answers[0]):
            found, wanted = answers[0], self._chainId
            self.leave()
            raise EvmError(
                EvmReason.WRONG_CHAIN, f"it is a node of chain {found}, and not of chain {wanted}"
            )
        if self._contract and answers[1].hex() != contractCode().deployed:
            what = "another contract" if answers[1] else "no contract"
            self.leave()
            raise EvmError(
                EvmReason.NO_CONTRACT, f"there is {what} at {showAddress(self._contract)}"
            )
        self._isChecked = True

    async def _request(self, calls: Sequence[RpcCall[Any]], maxAnswer: int) -> list[Any]:
        """The results of some calls, or of the first of them where the node takes no more."""
        body = await self._post(encodeCalls(calls), maxAnswer)
        try:
            answers = decodeAnswers(calls, body)
        except NoRpcAnswer as error:
            raise self._bad(str(error)) from error
        if len(calls) > 1 and answers[0].error and all(each is answers[0] for each in answers):
            # The whole request was refused: some nodes take few calls in one.
            self._most = max(1, len(calls) // 2)
            return await self._request(calls[: self._most], maxAnswer)
        return [self._read(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def _read(self, call: RpcCall[Any], answer: RpcAnswer) -> Any:
        if answer.error is not None:
            return EvmError.ofNode(f"{answer.error.message} {answer.error.detail}".strip())
        try:
            return call.read(answer.result)
        except EvmError as error:
            return error
        except (Malformed, ValueError) as error:
            return self._bad(f"{call.method}: {error}")

    def _bad(self, words: str) -> EvmError:
        return EvmError(EvmReason.BAD_ANSWER, f"{self.url} answered with no answer: {words}")

    async def _post(self, body: bytes, maxAnswer: int) -> bytes:
        url = self.url
        try:
            return await postJson(self._client, url, body, TIMEOUT, maxAnswer)
        except HttpError as error:
            if error.problem is Problem.TOO_LARGE:
                raise EvmError(EvmReason.TOO_LARGE, str(error)) from error
            if url == self.url:
                self.leave()
            raise EvmError(EvmReason.UNREACHABLE, f"{url} {error}") from error


def connectChain(
    reactor: Any,
    urls: Sequence[str],
    dialect: NodeDialect,
    chainId: int | None = None,
    contract: bytes = b"",
) -> EvmRpc:
    """
    A client of a chain's nodes over the network. For the parameters see L{EvmRpc}.
    """
    # A request that failed on a kept connection is made again by whoever has asked.
    client = makeClient(
        reactor,
        maxBody=MAX_ANSWER,
        keep=_MAX_IDLE,
        connectTimeout=CONNECT_TIMEOUT,
    )
    return EvmRpc(client, urls, dialect, chainId, contract)
