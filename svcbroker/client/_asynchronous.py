"""
The client for asyncio and trio, over httpx.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

import anyio
import httpx

from . import _errors
from ._core import Core
from ._driving import Events, iterate, run
from ._effects import Delay, Effect, HttpRequest, HttpResponse, OpenStream, Procedure, ReadStream
from ._errors import Unreachable, answerTooLong
from ._httpx import LIMITS, answerOf, buildRequest, failureOf, makeContext
from ._options import Options

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    method: Callable[Concatenate[Core, P], Procedure[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A call that is awaited."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(method(self._core, *args, **kwargs), _Performer(self._http))

    return call


def _iterate(
    method: Callable[Concatenate[Core, P], Procedure[Any]],
) -> Callable[Concatenate[AsyncClient, P], Events]:
    """A call that returns an asynchronous iterator of events."""

    @wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Events:
        return iterate(method(self._core, *args, **kwargs), _Performer(self._http))

    return call


class AsyncClient:
    """
    A client of a broker, or of several brokers of one network, for asyncio and trio.

    C{events} and C{follow} return asynchronous iterators, for C{async for}; the connection of
    C{follow} is closed with its iterator. Disconnect the client, or use it as an asynchronous
    context manager.
    """

    def __init__(self, *urls: str, **options: Unpack[Options]) -> None:
        """
        @param urls: the base URLs of the brokers, such as C{http://127.0.0.1:8080/svcbroker}.
        @param options: see L{Options<svcbroker.client.Options>}.
        @raise ValueError: a URL or an option is malformed.
        @raise OSError: a file cannot be read.
        """
        self._core = Core(urls, options)
        self._http = httpx.AsyncClient(verify=makeContext(options), limits=LIMITS)

    publish = _call(Core.publish)
    publishMany = _call(Core.publishMany)
    open = _call(Core.open)
    close = _call(Core.close)
    exist = _call(Core.exist)
    state = _call(Core.state)
    topics = _call(Core.topics)
    getEvent = _call(Core.getEvent)
    events = _iterate(Core.events)
    follow = _iterate(Core.follow)
    proof = _call(Core.proof)
    checkpoint = _call(Core.checkpoint)
    genesis = _call(Core.genesis)
    readLog = _call(Core.readLog)

    async def disconnect(self) -> None:
        """Close all connections. The client cannot be used any more."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.disconnect()


class _Performer:
    """
    Performs the effects of one procedure. See L{Performer<svcbroker.client._driving.Performer>}.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._stream: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes]

    async def perform(self, effect: Effect) -> Any:
        """Perform an effect, and return its outcome."""
        try:
            if isinstance(effect, HttpRequest):
                return await self._request(effect)
            if isinstance(effect, ReadStream):
                return await anext(self._pieces, b"")
            if isinstance(effect, OpenStream):
                await self.close()
                self._stream = await self._http.send(
                    buildRequest(self._http, effect.request), stream=True
                )
                self._pieces = self._stream.aiter_raw()
                return answerOf(self._stream)
        except httpx.RequestError as error:
            return failureOf(error)
        assert isinstance(effect, Delay)
        await anyio.sleep(effect.seconds)
        return None

    async def _request(self, request: HttpRequest) -> HttpResponse | Unreachable:
        response = await self._http.send(buildRequest(self._http, request), stream=True)
        body = bytearray()
        reading: Any = response.aiter_bytes()
        async with aclosing(response), aclosing(reading):
            async for piece in reading:
                body += piece
                if len(body) > _errors.MAX_ANSWER:
                    return answerTooLong()
        return answerOf(response, bytes(body))

    async def close(self) -> None:
        """Close the stream that is open."""
        if self._stream is not None:
            # Left to the garbage collector, it would be closed by the event loop, or not at all.
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()
            await self._stream.aclose()
            self._stream = None
