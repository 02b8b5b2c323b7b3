"""
The blocking client, over httpx.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

import httpx

from . import _errors
from ._core import Core
from ._effects import (
    Delay,
    Deliver,
    Effect,
    HttpRequest,
    HttpResponse,
    OpenStream,
    Procedure,
    ReadStream,
)
from ._errors import Unreachable, answerTooLong
from ._httpx import LIMITS, answerOf, buildRequest, failureOf, makeContext
from ._options import Options
from ._records import Event

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    method: Callable[Concatenate[Core, P], Procedure[T]],
) -> Callable[Concatenate[Client, P], T]:
    """A call that returns its result."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._core, *args, **kwargs))

    return call


def _iterate(
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
        self._http = httpx.Client(verify=makeContext(options), limits=LIMITS)

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
        performer = _Performer(self._http)
        outcome = None
        try:
            while True:
                outcome = performer.perform(procedure.send(outcome))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _iterate(self, procedure: Procedure[Any]) -> Generator[Event, None, None]:
        performer = _Performer(self._http)
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


class _Performer:
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
                if len(body) > _errors.MAX_ANSWER:
                    return answerTooLong()
        return answerOf(response, bytes(body))

    def close(self) -> None:
        """Close the stream that is open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
