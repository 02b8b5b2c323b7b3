"""
The engine's JSON-RPC, sans-io: calls, results and errors.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from attrs import frozen
from msgspec import Meta, Raw, Struct

from ...proofs.cometbft import (
    BadAnswer,
    Commit,
    EngineHeader,
    Hex,
    Natural,
    PublicKey,
    Validator,
    Wire,
    makeDecoder,
)
from ._enginelog import shortened

T = TypeVar("T")

MAX_BATCH: Final = 10
"""The most calls that the engine accepts in one request."""

MAX_PAGE: Final = 100
"""The most validators in one answer."""

_MAX_WORDS: Final = 1000


class Reason(Enum):
    """Why a call failed."""

    UNREACHABLE = "unreachable"
    """There was no connection, or it was lost."""
    TIMEOUT = "timeout"
    """There was no answer in time."""
    BAD_ANSWER = "bad answer"
    """It answered what no engine answers."""
    KNOWN = "known"
    """The transaction is in the engine's mempool or cache already."""
    FULL = "full"
    """The mempool is full."""
    TOO_LARGE = "too large"
    """The transaction is larger than the engine accepts."""
    NO_SUCH_HEIGHT = "no such height"
    """The engine does not have the block, not yet or not any more."""
    REFUSED = "refused"
    """Any other error of the engine."""


_IN_DOUBT = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_ANSWER})


class EngineError(Exception):
    """
    A call of an engine failed.

    @ivar reason: why.
    @ivar words: the engine's error text, or ours.
    """

    def __init__(self, reason: Reason, words: str) -> None:
        self.reason = reason
        self.words = shortened(words, _MAX_WORDS)
        super().__init__(f"{reason.value}: {self.words}")

    @property
    def isInDoubt(self) -> bool:
        """
        Whether the call may have been executed: it failed on the way. Otherwise the engine has
        refused it.
        """
        return self.reason in _IN_DOUBT


# Results: the fields that are read.

Round = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""A round; -1 stands for none."""


class Broadcast(Wire, frozen=True, kw_only=True):
    """
    The engine's answer to a transaction. It is not in a block yet.

    @ivar code: CheckTx's code; 0: the transaction waits for a block.
    @ivar log: CheckTx's text.
    @ivar hash: the engine's hash of the transaction.
    """

    code: Natural
    log: str = ""
    hash: Hex


class NodeInfo(Wire, frozen=True, kw_only=True):
    """
    An engine's description of itself.

    @ivar id: its id: 40 hexadecimal digits.
    @ivar moniker: its name.
    """

    id: str
    moniker: str


class SyncInfo(Wire, frozen=True, kw_only=True):
    """
    How far an engine is.

    @ivar catchingUp: whether it is still fetching blocks that its peers have decided.
    """

    latestBlockHeight: Natural
    earliestBlockHeight: Natural
    catchingUp: bool


class ValidatorInfo(Wire, frozen=True, kw_only=True):
    """
    An engine as a validator; an engine that is none has a key, too.
    """

    pubKey: PublicKey


class Status(Wire, frozen=True, kw_only=True):
    """The answer to C{status}."""

    nodeInfo: NodeInfo
    syncInfo: SyncInfo
    validatorInfo: ValidatorInfo


class ConnectedPeer(Wire, frozen=True, kw_only=True):
    """A connected peer."""

    nodeInfo: NodeInfo


class NetInfo(Wire, frozen=True, kw_only=True):
    """The answer to C{net_info}."""

    nPeers: Natural
    peers: tuple[ConnectedPeer, ...]


class ValidatorsPage(Wire, frozen=True, kw_only=True):
    """
    A page of the validators of a height.

    @ivar total: the number of validators on all pages.
    """

    blockHeight: Natural
    validators: tuple[Validator, ...]
    total: Natural


class SignedHeader(Wire, frozen=True, kw_only=True):
    """A header, and the votes that make its block final."""

    header: EngineHeader
    commit: Commit


class CommitAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{commit}. For the newest block it has the votes that this engine has seen."""

    signedHeader: SignedHeader


class RoundState(Wire, frozen=True, kw_only=True):
    """
    An engine's state in consensus.

    @ivar height: the height that it is deciding: one above its newest block.
    @ivar round: the round that it is in.
    """

    height: Natural
    round: Round


class PeerState(Wire, frozen=True, kw_only=True):
    """An engine's knowledge of a peer's state."""

    roundState: RoundState


class PeerStateInfo(Wire, frozen=True, kw_only=True):
    """
    A peer, with its state once that is known.

    @ivar nodeAddress: C{id@host:port}.
    """

    nodeAddress: str
    peerState: PeerState | None = None


class ConsensusState(Wire, frozen=True, kw_only=True):
    """The answer to C{dump_consensus_state}."""

    roundState: RoundState
    peers: tuple[PeerStateInfo, ...]


# Requests and answers of JSON-RPC.


class _Error(Struct, frozen=True):
    """An error of JSON-RPC."""

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

# The engine's error texts; it has one error code for all of them.
_MEANINGS: Final = (
    ("already exists in cache", Reason.KNOWN),
    ("mempool is full", Reason.FULL),
    ("considered as full", Reason.FULL),
    ("Tx too large", Reason.TOO_LARGE),
    ("tx pre check", Reason.TOO_LARGE),
    ("request body too large", Reason.TOO_LARGE),
    ("must be less than or equal to the current blockchain height", Reason.NO_SUCH_HEIGHT),
    ("is not available, lowest height is", Reason.NO_SUCH_HEIGHT),
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
    """A factory of calls of one method. Parameters that are C{None} are left out."""
    read = makeDecoder(kind)

    def make(**parameters: object) -> Call[T]:
        given = {key: value for key, value in parameters.items() if value is not None}
        return Call(method, given, read)

    return make


status = _call("status", Status)
netInfo = _call("net_info", NetInfo)
consensusState = _call("dump_consensus_state", ConsensusState)
_validators = _call("validators", ValidatorsPage)
_commit = _call("commit", CommitAnswer)
_broadcast = makeDecoder(Broadcast)


def validators(height: int | None = None, page: int = 1) -> Call[ValidatorsPage]:
    """A page of the validators of a height; of the next one where it is left open."""
    return _validators(height=_number(height), page=str(page), per_page=str(MAX_PAGE))


def commit(height: int | None = None) -> Call[CommitAnswer]:
    """A header with the votes for it; the newest where the height is left open."""
    return _commit(height=_number(height))


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


def decodeBroadcast(body: bytes) -> Broadcast:
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
    # The answer to a batch of one call is no list, nor is the refusal of a whole batch.
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
