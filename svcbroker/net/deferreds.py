"""
Coroutines behind interfaces that answer Deferreds.

A module of its own: every room that speaks Deferreds uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from ..errors import BrokerError

P = ParamSpec("P")
T = TypeVar("T")


def asDeferred(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Deferred[T]]:
    """
    Decorate an C{async def} so that calling it starts it at once and answers a Deferred.

    A coroutine that is forgotten never runs, and loses its error in silence; a forgotten Deferred
    has run, and logs its error. So the methods of our interfaces answer Deferreds.

    Cancelling the Deferred cancels what the coroutine waits for.
    """

    @wraps(function)
    def start(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return start


def cancelAll(running: Iterable[Deferred[Any]]) -> None:
    """Cancel what runs. That it was cancelled is no error."""
    for each in running:
        each.addErrback(lambda failure: failure.trap(CancelledError))
        each.cancel()


def asLeanDeferred(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Deferred[T]]:
    """
    Decorate an C{async def} as L{asDeferred} does, for what clients can have fail thousands of
    times a second. Errors that clients are told of have no traceback then: the frames of coroutines
    are in cycles with their errors, and the garbage collector would hold the reactor for them.
    """
    start = asDeferred(function)

    @wraps(function)
    def startLean(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return start(*args, **kwargs).addErrback(withoutTraceback)

    return startLean


def withoutTraceback(failure: Failure) -> Failure:
    """
    Drop the frames of an error that clients are told of, or of something that was cancelled because
    a client has left: they are in a cycle with it, and keep its connection.

    @return: the failure.
    """
    if isinstance(failure.value, (BrokerError, CancelledError)):
        failure.cleanFailure()
    return failure
