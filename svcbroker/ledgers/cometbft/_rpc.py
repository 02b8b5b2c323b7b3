"""
The client of an engine's RPC: calls, results and errors of its JSON-RPC, and the requests.

Many names: each answer of the engine that is read has a class.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta
from twisted.internet.defer import Deferred

from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, Problem, makeClient
from ...proofs.cometbft import (
    MAX_MEMBERS,
    BadAnswer,
    Commit,
    EngineHeader,
    Hex,
    LightBlock,
    LightBlockInvalid,
    Natural,
    PublicKey,
    Validator,
    Wire,
    makeDecoder,
    makeLightBlock,
    membersOf,
    validatorsHash,
)
from .._jsonrpc import NoRpcAnswer, RpcCall, RpcRefusal, decodeAnswers, encodeCalls, postJson
from ._engine import shortened

T = TypeVar("T")

MAX_BATCH: Final = 10
"""The most calls that the engine accepts in one request."""

MAX_PAGE: Final = 100
"""The most validators in one answer."""

_MAX_WORDS: Final = 1000


class Reason(Enum):
    """The reason of a failed call."""

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
    The progress of an engine.

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


class EngineSignedHeader(Wire, frozen=True, kw_only=True):
    """A header, and the votes that make its block final."""

    header: EngineHeader
    commit: Commit


class CommitAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{commit}. For the newest block it has the votes that this engine has seen."""

    signedHeader: EngineSignedHeader


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


def _call(method: str, kind: type[T]) -> Callable[..., RpcCall[T]]:
    """A factory of calls of one method. Parameters that are C{None} are left out."""
    read = makeDecoder(kind)

    def make(**parameters: object) -> RpcCall[T]:
        given = {key: value for key, value in parameters.items() if value is not None}
        return RpcCall(method, given, read)

    return make


statusCall = _call("status", Status)
netInfoCall = _call("net_info", NetInfo)
consensusStateCall = _call("dump_consensus_state", ConsensusState)
_validators = _call("validators", ValidatorsPage)
_commit = _call("commit", CommitAnswer)


def validatorsCall(height: int | None = None, page: int = 1) -> RpcCall[ValidatorsPage]:
    """A page of the validators of a height; of the next one where it is left open."""
    return _validators(height=_number(height), page=str(page), per_page=str(MAX_PAGE))


def commitCall(height: int | None = None) -> RpcCall[CommitAnswer]:
    """A header with the votes for it; the newest where the height is left open."""
    return _commit(height=_number(height))


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def encodeBatch(calls: Sequence[RpcCall[Any]]) -> bytes:
    """
    The body of a request with several calls.

    @raise ValueError: these are more than L{MAX_BATCH}, or none.
    """
    if not 0 < len(calls) <= MAX_BATCH:
        raise ValueError(f"1 to {MAX_BATCH} calls go into one request")
    return encodeCalls(calls)


def encodeBroadcast(transaction: bytes) -> bytes:
    """The body of a request that hands in a transaction."""
    # Nothing of base64 needs an escape in JSON.
    return b'{"jsonrpc":"2.0","id":0,"method":"broadcast_tx_sync","params":{"tx":"%b"}}' % (
        b64encode(transaction)
    )


_broadcast = RpcCall("broadcast_tx_sync", {}, makeDecoder(Broadcast))


def decodeBatch(calls: Sequence[RpcCall[Any]], body: bytes) -> list[Any]:
    """
    Read the answers to several calls, in the order of the calls.

    @raise EngineError: the engine refused one, or there is no answer to one.
    """
    try:
        answers = decodeAnswers(calls, body)
        for answer in answers:
            if answer.error is not None:
                raise _explain(answer.error)
        return [
            call.read(bytes(answer.result)) for call, answer in zip(calls, answers, strict=True)
        ]
    except (NoRpcAnswer, BadAnswer) as error:
        raise EngineError(Reason.BAD_ANSWER, str(error)) from error


def decodeBroadcast(body: bytes) -> Broadcast:
    """
    Read the answer to what L{encodeBroadcast} makes.

    @raise EngineError: the engine refused it, or this is no answer.
    """
    answer: Broadcast = decodeBatch([_broadcast], body)[0]
    return answer


def _explain(error: RpcRefusal) -> EngineError:
    words = error.detail or error.message
    for sign, reason in _MEANINGS:
        if sign in words:
            return EngineError(reason, words)
    return EngineError(Reason.REFUSED, words)


TIMEOUT: Final = 10.0
"""Seconds that a request may take; the engine gives up at the same time."""

MAX_ANSWER: Final = 192 * 1024 * 1024
"""The most bytes of an answer: that of the largest block there can be, in base64."""

MAX_LIGHT: Final = MAX_BATCH - 1
"""The most light blocks of one request, which may ask for their validators, too."""

MAX_BROADCAST_ANSWER: Final = 64 * 1024

MAX_IDLE: Final = 32
"""The most idle connections to an engine."""

CONNECT_TIMEOUT: Final = 5.0
"""Seconds that connecting may take."""

_REASONS: Final = {Problem.TIMEOUT: Reason.TIMEOUT, Problem.TOO_LARGE: Reason.BAD_ANSWER}


class EngineRpc:
    """
    Calls of one engine.

    Every method's Deferred may fail with L{EngineError}, whose C{reason} says whether the engine
    has refused, or could not be reached. Nothing is tried twice.
    """

    def __init__(
        self,
        client: HttpClient,
        url: str,
        timeout: float = TIMEOUT,
        maxAnswer: int = MAX_ANSWER,
    ) -> None:
        """
        @param client: makes requests; in the daemon, what L{connectEngine} makes it with.
        @param url: the engine's RPC, such as C{http://127.0.0.1:26657}.
        @param timeout: how long a request may take, in seconds.
        @param maxAnswer: the most bytes that an answer may have.
        """
        self._client = client
        self._url = url
        self._timeout = timeout
        self._maxAnswer = maxAnswer
        self._nodes: tuple[bytes, Sequence[Validator]] | None = None

    @asDeferred
    async def _post(self, body: bytes, maxAnswer: int) -> bytes:
        """
        Send a request.

        @return: fires with the answer's body, whatever its status: the engine explains itself
            there. Cancelling ends the request.
        @raise EngineError: there is no answer, or it is too large.
        """
        try:
            return await postJson(self._client, self._url, body, self._timeout, maxAnswer)
        except HttpError as error:
            reason = _REASONS.get(error.problem, Reason.UNREACHABLE)
            raise EngineError(reason, error.detail) from error

    def close(self) -> Deferred[Any]:
        """Close the connections that are kept."""
        return self._client.close()

    def broadcast(self, transaction: bytes) -> Deferred[Broadcast]:
        """
        Broadcast a transaction (C{broadcast_tx_sync}).

        @return: fires after CheckTx; with code 0, the transaction is in the mempool.
        @raise EngineError: L{Reason.KNOWN}: it is in the mempool already, or in a block; if the
            error C{isInDoubt}, it may be.
        """
        posted = self._post(encodeBroadcast(transaction), MAX_BROADCAST_ANSWER)
        return posted.addCallback(decodeBroadcast)

    def ask(self, call: RpcCall[T]) -> Deferred[T]:
        """
        Make one call of L{svcbroker.ledgers.cometbft._rpc}.
        """
        return self.askAll([call]).addCallback(lambda results: results[0])

    def askAll(self, batch: Sequence[RpcCall[Any]]) -> Deferred[list[Any]]:
        """
        Make some calls in one request: 1 to L{MAX_BATCH<MAX_BATCH>}. The engine answers
        them one after the other; it may decide a block in between.

        @return: fires with the results in the order of the calls; one that is refused fails all.
        """
        posted = self._post(encodeBatch(batch), self._maxAnswer)
        return posted.addCallback(lambda body: decodeBatch(batch, body))

    def status(self) -> Deferred[Status]:
        """The engine's identity and height."""
        return self.ask(statusCall())

    def netInfo(self) -> Deferred[NetInfo]:
        """The engine's connected peers."""
        return self.ask(netInfoCall())

    def commit(self, height: int | None = None) -> Deferred[CommitAnswer]:
        """A header with the votes for it; by default the newest."""
        return self.ask(commitCall(height))

    @asDeferred
    async def validators(self, height: int | None = None) -> Sequence[Validator]:
        """
        All validators of a height, in the engine's order; by default of the next height.
        """
        found: list[Validator] = []
        page = 1
        while True:
            answer = await self.ask(validatorsCall(height, page))
            if page == 1:
                # A block may be decided between two pages.
                height, total = answer.blockHeight, answer.total
            found.extend(answer.validators)
            if len(found) >= total:
                return found
            if not answer.validators or len(found) > MAX_MEMBERS:
                raise EngineError(Reason.BAD_ANSWER, "the list of validators does not end")
            page += 1

    def lightBlock(self, height: int) -> Deferred[LightBlock]:
        """
        The light block of a height, unverified.
        """
        return self.lightBlocks([height]).addCallback(lambda blocks: blocks[0])

    @asDeferred
    async def lightBlocks(self, heights: Sequence[int]) -> Sequence[LightBlock]:
        """
        The light blocks of 1 to L{MAX_LIGHT} heights, in order, in one request, unverified.
        """
        # For each answer the engine recomputes the validators' proposer priorities since the last
        # change, so the set is fetched once and not for each block.
        asked: list[RpcCall[Any]] = [commitCall(height) for height in heights]
        # Another request may bring the set before this one is answered.
        isFirst = self._nodes is None
        if isFirst:
            asked.append(validatorsCall(heights[0]))
        answers = await self.askAll(asked)
        try:
            if isFirst:
                page = answers.pop()
                self._nodes = await self._setOf(heights[0], page.validators, page.total)
            blocks = []
            for height, commit in zip(heights, answers, strict=True):
                signed = commit.signedHeader
                if self._nodes is None or self._nodes[0] != signed.header.validatorsHash:
                    self._nodes = await self._setOf(height)
                blocks.append(makeLightBlock(signed.header, signed.commit, self._nodes[1]))
        except LightBlockInvalid as error:
            raise EngineError(Reason.BAD_ANSWER, str(error)) from error
        return blocks

    async def _setOf(
        self, height: int, found: Sequence[Validator] = (), total: int = 1
    ) -> tuple[bytes, Sequence[Validator]]:
        """The validator set of a height, with its hash."""
        if len(found) < total:
            found = await self.validators(height)
        return validatorsHash(membersOf(found)), found


def connectEngine(reactor: Any, place: str | Path, timeout: float = TIMEOUT) -> EngineRpc:
    """
    A client of an engine over the network. It connects when it is asked something.

    @param place: the engine's RPC: a URL such as C{http://127.0.0.1:26657}, or the path of a Unix
        socket.
    @param timeout: how long a request may take, in seconds.
    """
    path = place if isinstance(place, Path) else None
    # A transaction may have arrived though its request failed, so none is sent twice.
    client = makeClient(
        reactor, maxBody=MAX_ANSWER, keep=MAX_IDLE, connectTimeout=CONNECT_TIMEOUT, path=path
    )
    return EngineRpc(client, "http://localhost" if isinstance(place, Path) else place, timeout)
