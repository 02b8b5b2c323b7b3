"""
The client of an engine's RPC.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers

from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, Problem, makeClient, readBody
from ...proofs.cometbft import (
    MAX_MEMBERS,
    LightBlock,
    LightBlockInvalid,
    Validator,
    makeLightBlock,
    membersOf,
    validatorsHash,
)
from . import _calls as calls
from ._calls import Broadcast, Call, CommitAnswer, EngineError, NetInfo, Reason, Status

T = TypeVar("T")

TIMEOUT: Final = 10.0
"""How long a request may take, in seconds; the engine gives up at the same time."""

MAX_ANSWER: Final = 192 * 1024 * 1024
"""The most bytes of an answer: that of the largest block there can be, in base64."""

MAX_LIGHT: Final = calls.MAX_BATCH - 1
"""The most light blocks of one request, which may ask for their validators, too."""

MAX_BROADCAST_ANSWER: Final = 64 * 1024

MAX_IDLE: Final = 32
"""The most idle connections to an engine."""

CONNECT_TIMEOUT: Final = 5.0
"""How long connecting may take, in seconds."""

_HEADERS: Final = Headers({b"Content-Type": [b"application/json"]})
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
            answer = await self._client.request(
                *("POST", self._url),
                headers=_HEADERS,
                data=body,
                timeout=self._timeout,
                maxBody=maxAnswer,
            )
            return await readBody(answer)
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
        posted = self._post(calls.encodeBroadcast(transaction), MAX_BROADCAST_ANSWER)
        return posted.addCallback(calls.decodeBroadcast)

    def ask(self, call: Call[T]) -> Deferred[T]:
        """
        Make one call of L{svcbroker.ledgers.cometbft._calls}.
        """
        posted = self._post(calls.encodeCall(call), self._maxAnswer)
        return posted.addCallback(lambda body: calls.decodeAnswer(call, body))

    def askAll(self, batch: Sequence[Call[Any]]) -> Deferred[list[Any]]:
        """
        Make some calls in one request: 1 to L{MAX_BATCH<calls.MAX_BATCH>}. The engine answers
        them one after the other; it may decide a block in between.

        @return: fires with the results in the order of the calls; one that is refused fails all.
        """
        posted = self._post(calls.encodeBatch(batch), self._maxAnswer)
        return posted.addCallback(lambda body: calls.decodeBatch(batch, body))

    def status(self) -> Deferred[Status]:
        """The engine's identity and height."""
        return self.ask(calls.status())

    def netInfo(self) -> Deferred[NetInfo]:
        """The engine's connected peers."""
        return self.ask(calls.netInfo())

    def commit(self, height: int | None = None) -> Deferred[CommitAnswer]:
        """A header with the votes for it; by default the newest."""
        return self.ask(calls.commit(height))

    @asDeferred
    async def validators(self, height: int | None = None) -> Sequence[Validator]:
        """
        All validators of a height, in the engine's order; by default of the next height.
        """
        found: list[Validator] = []
        page = 1
        while True:
            answer = await self.ask(calls.validators(height, page))
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
        asked: list[Call[Any]] = [calls.commit(height) for height in heights]
        # Another request may bring the set before this one is answered.
        isFirst = self._nodes is None
        if isFirst:
            asked.append(calls.validators(heights[0]))
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
