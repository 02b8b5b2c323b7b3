"""
The engine's JSON-RPC as bytes: calls out, answers in, and what went wrong.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec
from attrs import frozen
from msgspec import Raw, Struct

from ...proofs.cometbft import BadAnswer, makeDecoder
from . import _answers as answers

T = TypeVar("T")

MAX_BATCH: Final = 10
"""The most calls that the engine takes in one request."""

MAX_HEADERS: Final = 20
"""The most headers that it gives in one answer."""

MAX_PAGE: Final = 100
"""The most validators that it gives in one answer."""

_MAX_WORDS: Final = 300


class Reason(Enum):
    """Why an engine did not do what it was asked to."""

    UNREACHABLE = "unreachable"
    """There was no connection, or it was lost."""
    TIMEOUT = "timeout"
    """It gave no answer in time."""
    BAD_ANSWER = "bad answer"
    """It answered what no engine answers."""
    KNOWN = "known"
    """It has, or lately had, this very transaction already."""
    FULL = "full"
    """So much waits for a block that it takes no more."""
    TOO_LARGE = "too large"
    """The transaction is larger than it takes."""
    NO_SUCH_HEIGHT = "no such height"
    """It has no such block: not yet, or not any more."""
    REFUSED = "refused"
    """It says no in other words."""


_IN_DOUBT = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_ANSWER})


class EngineError(Exception):
    """
    An engine did not do what it was asked to.

    @ivar reason: why.
    @ivar words: in the engine's words, or ours.
    """

    def __init__(self, reason: Reason, words: str) -> None:
        self.reason = reason
        self.words = words[:_MAX_WORDS]
        super().__init__(f"{reason.value}: {self.words}")

    @property
    def isInDoubt(self) -> bool:
        """
        Whether the trouble was on the way, so that what was asked may have been done. Otherwise
        the engine has said no.
        """
        return self.reason in _IN_DOUBT


class _Error(Struct, frozen=True):
    """What JSON-RPC answers where something went wrong."""

    code: int
    message: str = ""
    data: Any = None


class _Answer(Struct, frozen=True):
    """One answer of JSON-RPC."""

    id: int | str | None = None
    result: Raw = Raw(b"null")
    error: _Error | None = None


_answer = msgspec.json.Decoder(_Answer)
_answers = msgspec.json.Decoder(list[_Answer])
_encoder = msgspec.json.Encoder()

# What the engine says, and what it means. The code is the same for all of it.
_MEANINGS: Final = (
    ("already exists in cache", Reason.KNOWN),
    ("mempool is full", Reason.FULL),
    ("considered as full", Reason.FULL),
    ("Tx too large", Reason.TOO_LARGE),
    ("tx pre check", Reason.TOO_LARGE),
    ("request body too large", Reason.TOO_LARGE),
    ("must be less than or equal to the current blockchain height", Reason.NO_SUCH_HEIGHT),
    ("is not available, lowest height is", Reason.NO_SUCH_HEIGHT),
    ("could not find results for height", Reason.NO_SUCH_HEIGHT),
)


@frozen
class Call(Generic[T]):
    """
    A call, and how its answer is read.

    @ivar method: the engine's name of it.
    @ivar parameters: by name.
    @ivar read: reads the result; raises L{BadAnswer}.
    """

    method: str
    parameters: Mapping[str, object]
    read: Callable[[bytes], T]


def _call(method: str, kind: type[T]) -> Callable[..., Call[T]]:
    """What makes calls of one kind. Parameters that are C{None} are left out."""
    read = makeDecoder(kind)

    def make(**parameters: object) -> Call[T]:
        given = {key: value for key, value in parameters.items() if value is not None}
        return Call(method, given, read)

    return make


status = _call("status", answers.Status)
netInfo = _call("net_info", answers.NetInfo)
genesis = _call("genesis", answers.GenesisAnswer)
consensusState = _call("dump_consensus_state", answers.ConsensusState)
mempool = _call("num_unconfirmed_txs", answers.Mempool)
_validators = _call("validators", answers.ValidatorsPage)
_params = _call("consensus_params", answers.ParamsAnswer)
_block = _call("block", answers.BlockAnswer)
_results = _call("block_results", answers.BlockResults)
_header = _call("header", answers.HeaderAnswer)
_commit = _call("commit", answers.CommitAnswer)
_blockchain = _call("blockchain", answers.Blockchain)
_tx = _call("tx", answers.TransactionAnswer)
_broadcast = makeDecoder(answers.Broadcast)


def validators(height: int | None = None, page: int = 1) -> Call[answers.ValidatorsPage]:
    """A page of the validators of a height; of the next one where it is left open."""
    return _validators(height=_number(height), page=str(page), per_page=str(MAX_PAGE))


def consensusParams(height: int | None = None) -> Call[answers.ParamsAnswer]:
    """What the validators have agreed on."""
    return _params(height=_number(height))


def block(height: int | None = None) -> Call[answers.BlockAnswer]:
    """A block; the newest where the height is left open."""
    return _block(height=_number(height))


def blockResults(height: int | None = None) -> Call[answers.BlockResults]:
    """What the application said of a block."""
    return _results(height=_number(height))


def header(height: int | None = None) -> Call[answers.HeaderAnswer]:
    """A header; the newest where the height is left open."""
    return _header(height=_number(height))


def commit(height: int | None = None) -> Call[answers.CommitAnswer]:
    """A header with the votes for it; the newest where the height is left open."""
    return _commit(height=_number(height))


def blockchain(lowest: int, highest: int) -> Call[answers.Blockchain]:
    """
    Blocks without their transactions, newest first.

    @raise ValueError: these are more than L{MAX_HEADERS}.
    """
    if not 0 <= highest - lowest < MAX_HEADERS:
        raise ValueError(f"at most {MAX_HEADERS} headers are answered at once")
    return _blockchain(minHeight=str(lowest), maxHeight=str(highest))


def transaction(hash: bytes) -> Call[answers.TransactionAnswer]:
    """A transaction and its path. Engines without an index, as ours are, refuse it."""
    return _tx(hash=b64encode(hash).decode("ascii"), prove=True)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def encodeCall(call: Call[Any]) -> bytes:
    """The body of a request with one call."""
    return _encoder.encode(_form(0, call))


def encodeBatch(calls: Sequence[Call[Any]]) -> bytes:
    """
    The body of a request with several calls.

    @raise ValueError: these are more than L{MAX_BATCH}, or none.
    """
    if not 0 < len(calls) <= MAX_BATCH:
        raise ValueError(f"1 to {MAX_BATCH} calls go into one request")
    return _encoder.encode([_form(index, call) for index, call in enumerate(calls)])


def _form(id: int, call: Call[Any]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": call.method, "params": call.parameters}


def encodeBroadcast(transaction: bytes) -> bytes:
    """The body of a request that hands in a transaction."""
    # Nothing of base64 needs an escape in JSON.
    return b'{"jsonrpc":"2.0","id":0,"method":"broadcast_tx_sync","params":{"tx":"%b"}}' % (
        b64encode(transaction)
    )


def decodeBroadcast(body: bytes) -> answers.Broadcast:
    """
    Read the answer to what L{encodeBroadcast} makes.

    @raise EngineError: the engine refused it, or this is no answer.
    """
    return _take(_one(body), _broadcast)


def decodeAnswer(call: Call[T], body: bytes) -> T:
    """
    Read the answer to one call.

    @raise EngineError: the engine refused it, or this is no answer.
    """
    return _take(_one(body), call.read)


def decodeBatch(calls: Sequence[Call[Any]], body: bytes) -> list[Any]:
    """
    Read the answers to several calls, in the order of the calls.

    @raise EngineError: the engine refused one, or there is no answer to one.
    """
    # An answer to a batch of one is no list. Neither is a refusal of the whole batch.
    try:
        found = [_one(body)] if body.lstrip()[:1] == b"{" else _answers.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EngineError(Reason.BAD_ANSWER, str(error)) from error
    byId = {answer.id: answer for answer in found}
    for answer in found:
        if answer.error is not None:
            raise _explain(answer.error)
    results = []
    for index, call in enumerate(calls):
        if index not in byId:
            raise EngineError(Reason.BAD_ANSWER, f"there is no answer to {call.method}")
        results.append(_take(byId[index], call.read))
    return results


def _one(body: bytes) -> _Answer:
    try:
        return _answer.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise EngineError(Reason.BAD_ANSWER, str(error)) from error


def _take(answer: _Answer, read: Callable[[bytes], T]) -> T:
    if answer.error is not None:
        raise _explain(answer.error)
    try:
        return read(bytes(answer.result))
    except BadAnswer as error:
        raise EngineError(Reason.BAD_ANSWER, str(error)) from error


def _explain(error: _Error) -> EngineError:
    words = error.data if isinstance(error.data, str) and error.data else error.message
    for sign, reason in _MEANINGS:
        if sign in words:
            return EngineError(reason, words)
    return EngineError(Reason.REFUSED, words)
