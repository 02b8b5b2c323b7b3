"""
L{Client}, which blocks, and L{AsyncClient}, for asyncio and trio: both perform the effects of
procedures over httpx.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import aclosing, closing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack
from urllib.parse import urlsplit

import anyio
import httpx

from ..files import openFile
from . import _effects
from ._core import Core, Options
from ._effects import (
    Delay,
    Deliver,
    Effect,
    Events,
    HttpRequest,
    HttpResponse,
    OpenStream,
    Procedure,
    ReadStream,
    Unreachable,
    answerTooLong,
    iterate,
    run,
)
from ._records import Event

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=15.0)
"""Streams are connections too, and may be many."""


def makeContext(options: Options, urls: Sequence[str] = ()) -> ssl.SSLContext:
    """
    The TLS context of a client's connections.

    @param urls: those that it is for, if they are known. Where none of them has TLS, the context
        has no authorities.
    @raise OSError: a file cannot be read.
    @raise ValueError: a file is not what it must be.
    """
    ca, certificate = options.get("ca"), options.get("certificate")
    key = options.get("certificateKey")
    for each in (ca, certificate, key):
        if each is not None:
            # The errors of the context name no file.
            openFile(each).close()
    isPlain = urls and all(urlsplit(each).scheme == "http" for each in urls)
    if isPlain and ca is None and certificate is None:
        # Reading the authorities of the system takes longer than a call.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except ssl.SSLError:
        raise ValueError(f"{ca} has no certificates in PEM") from None
    if certificate is not None:
        try:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
        except ssl.SSLError as error:
            names = " and ".join(str(each) for each in (certificate, key) if each is not None)
            raise ValueError(f"{names}: no certificate with its key in PEM: {error}") from None
    return context


def buildRequest(client: httpx.Client | httpx.AsyncClient, request: HttpRequest) -> httpx.Request:
    """A request as httpx has it."""
    return client.build_request(
        request.method,
        request.url,
        headers=request.headers,
        content=request.body or None,
        timeout=request.timeout,
    )


def answerOf(response: httpx.Response, body: bytes = b"") -> HttpResponse:
    """An answer of httpx."""
    return HttpResponse(status=response.status_code, headers=response.headers, body=body)


def failureOf(error: httpx.RequestError) -> Unreachable:
    """The error for a request without an answer."""
    isSent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    reason = str(error) or type(error).__name__
    return Unreachable(f"{Unreachable.text}: {reason}", isSent=isSent, isFinal=cause is not None)


P = ParamSpec("P")
T = TypeVar("T")


def _callBlocking(
    method: Callable[Concatenate[Core, P], Procedure[T]],
) -> Callable[Concatenate[Client, P], T]:
    """A call that returns its result."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._core, *args, **kwargs))

    return call


def _iterateBlocking(
    method: Callable[Concatenate[Core, P], Procedure[Any]],
) -> Callable[Concatenate[Client, P], Generator[Event, None, None]]:
    """A call that returns an iterator of events."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Event, None, None]:
        return self._iterate(method(self._core, *args, **kwargs))

    return call


class Client:
    """
    A client of a broker, or of several brokers of one network, whose calls block. Several threads
    may use it at the same time.

    C{events} and C{follow} return iterators; the connection of C{follow} is closed with its
    iterator. Close the client, or use it as a context manager.
    """

    def __init__(self, *urls: str, **options: Unpack[Options]) -> None:
        """
        @param urls: the base URLs of the brokers, such as C{http://127.0.0.1:8080/svcbroker}.
        @param options: see L{Options<svcbroker.client.Options>}.
        @raise ValueError: a URL or an option is malformed.
        @raise OSError: a file cannot be read.
        """
        self._core = Core(urls, options)
        self._http = httpx.Client(verify=makeContext(options, urls), limits=LIMITS)

    publish = _callBlocking(Core.publish)
    publishMany = _callBlocking(Core.publishMany)
    open = _callBlocking(Core.open)
    close = _callBlocking(Core.close)
    exist = _callBlocking(Core.exist)
    state = _callBlocking(Core.state)
    topics = _callBlocking(Core.topics)
    getEvent = _callBlocking(Core.getEvent)
    find = _callBlocking(Core.find)
    events = _iterateBlocking(Core.events)
    follow = _iterateBlocking(Core.follow)
    receipt = _callBlocking(Core.receipt)
    proof = _callBlocking(Core.proof)
    topicProof = _callBlocking(Core.topicProof)
    checkpoint = _callBlocking(Core.checkpoint)
    genesis = _callBlocking(Core.genesis)
    readLog = _callBlocking(Core.readLog)

    def disconnect(self) -> None:
        """Close all connections. The client cannot be used any more."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.disconnect()

    def _run(self, procedure: Procedure[T]) -> T:
        performer = _BlockingPerformer(self._http)
        outcome = None
        try:
            while True:
                outcome = performer.perform(procedure.send(outcome))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _iterate(self, procedure: Procedure[Any]) -> Generator[Event, None, None]:
        performer = _BlockingPerformer(self._http)
        outcome = None
        try:
            while True:
                effect = procedure.send(outcome)
                if isinstance(effect, Deliver):
                    yield from effect.events
                    outcome = None
                else:
                    outcome = performer.perform(effect)
        except StopIteration:
            return
        finally:
            performer.close()


class _BlockingPerformer:
    """
    Performs the effects of one procedure.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._stream: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def perform(self, effect: Effect) -> Any:
        """Perform an effect, and return its outcome."""
        try:
            if isinstance(effect, HttpRequest):
                return self._request(effect)
            if isinstance(effect, ReadStream):
                return next(self._pieces, b"")
            if isinstance(effect, OpenStream):
                self.close()
                self._stream = self._http.send(
                    buildRequest(self._http, effect.request), stream=True
                )
                self._pieces = self._stream.iter_raw()
                return answerOf(self._stream)
        except httpx.RequestError as error:
            return failureOf(error)
        assert isinstance(effect, Delay)
        time.sleep(effect.seconds)
        return None

    def _request(self, request: HttpRequest) -> HttpResponse | Unreachable:
        response = self._http.send(buildRequest(self._http, request), stream=True)
        body = bytearray()
        with closing(response):
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _effects.MAX_ANSWER:
                    return answerTooLong()
        return answerOf(response, bytes(body))

    def close(self) -> None:
        """Close the stream that is open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _callAsync(
    method: Callable[Concatenate[Core, P], Procedure[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A call that is awaited."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run(method(self._core, *args, **kwargs), _AsyncPerformer(self._http))

    return call


def _iterateAsync(
    method: Callable[Concatenate[Core, P], Procedure[Any]],
) -> Callable[Concatenate[AsyncClient, P], Events]:
    """A call that returns an asynchronous iterator of events."""

    @wraps(method)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Events:
        return iterate(method(self._core, *args, **kwargs), _AsyncPerformer(self._http))

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
        self._http = httpx.AsyncClient(verify=makeContext(options, urls), limits=LIMITS)

    publish = _callAsync(Core.publish)
    publishMany = _callAsync(Core.publishMany)
    open = _callAsync(Core.open)
    close = _callAsync(Core.close)
    exist = _callAsync(Core.exist)
    state = _callAsync(Core.state)
    topics = _callAsync(Core.topics)
    getEvent = _callAsync(Core.getEvent)
    find = _callAsync(Core.find)
    events = _iterateAsync(Core.events)
    follow = _iterateAsync(Core.follow)
    receipt = _callAsync(Core.receipt)
    proof = _callAsync(Core.proof)
    topicProof = _callAsync(Core.topicProof)
    checkpoint = _callAsync(Core.checkpoint)
    genesis = _callAsync(Core.genesis)
    readLog = _callAsync(Core.readLog)

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


class _AsyncPerformer:
    """
    Performs the effects of one procedure. See L{Performer<svcbroker.client._effects.Performer>}.
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
                if len(body) > _effects.MAX_ANSWER:
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
