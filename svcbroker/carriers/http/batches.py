"""
Calls of many connections that are made together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...access import Principal
from ...broker import Calls
from ...net.turns import EndOfTurn
from ...operations import Connection
from .plain import RequestHead

MAX_BATCH_BYTES: Final = 256 * 1024
"""
The most bytes of the bodies whose calls are made together: larger events may need several blocks,
and all are answered when the last of them is stored.
"""


class BatchCaller(Connection, Protocol):
    """A connection that calls come by."""

    def waitFor(self, made: Deferred[Any], head: RequestHead, principal: Principal) -> None:
        """Answer a request when its call has an outcome."""

    def succeeded(self, outcome: Any, head: RequestHead, principal: Principal) -> None:
        """
        A call has an outcome, for
        L{Endpoint.answerTo<svcbroker.carriers.http.routes.HttpEndpoint.answerTo>}.
        """

    def failed(self, failure: Failure, head: RequestHead, principal: Principal) -> None:
        """A call has failed."""


class BatchedCall(Struct, eq=False):
    """
    A call that is made by the end of the turn.

    @ivar caller: the connection that it came by.
    @ivar head: the head of its request.
    @ivar principal: who makes it.
    @ivar argument: the argument of the endpoint's call.
    @ivar size: the length of its request's body, in bytes.
    @ivar isCancelled: whether it is not made.
    """

    caller: BatchCaller
    head: RequestHead
    principal: Principal
    argument: Any
    size: int
    isCancelled: bool = False

    def cancel(self) -> None:
        """The client has left. A call that was made by then goes on."""
        self.isCancelled = True


class CallBatches:
    """
    Makes the calls of one turn of the reactor together, over all connections: most of what a lone
    publish costs is done once for all of them.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._turn = EndOfTurn(clock)
        self._calls: list[BatchedCall] = []

    @classmethod
    def of(cls, calls: Calls) -> CallBatches | None:
        """
        Those of a site.

        @return: C{None} where calls would wait for another turn of the reactor, or where each has a
            span of its own.
        """
        batches = cls(calls.broker.clock)
        return batches if batches._turn.isWithinTurn and not calls.broker.isTraced else None

    def add(self, call: BatchedCall) -> None:
        """Make a call by the end of this turn. Hot path."""
        if not self._calls:
            self._turn.add(self._makeAll)
        self._calls.append(call)

    def _makeAll(self) -> None:
        calls, self._calls = [each for each in self._calls if not each.isCancelled], []
        if len(calls) == 1:
            self._makeAlone(calls[0])
            return
        groups: dict[Any, list[BatchedCall]] = {}
        for call in calls:
            groups.setdefault((call.head.endpoint.callMany, call.principal), []).append(call)
        for (callMany, principal), group in groups.items():
            for part in _parts(group):
                if len(part) == 1:
                    # To make a batch of it would take longer.
                    self._makeAlone(part[0])
                    continue
                made = maybeDeferred(callMany, principal, [each.argument for each in part])
                made.addCallbacks(
                    self._answer, self._fail, callbackArgs=(part,), errbackArgs=(part,)
                )

    def _makeAlone(self, call: BatchedCall) -> None:
        head, principal, caller = call.head, call.principal, call.caller
        caller.waitFor(head.endpoint.make(principal, call.argument, caller), head, principal)

    def _answer(self, outcomes: Sequence[Any], calls: Sequence[BatchedCall]) -> None:
        for call, outcome in zip(calls, outcomes, strict=True):
            try:
                call.caller.succeeded(outcome, call.head, call.principal)
            except Exception:
                self._log.failure("A connection failed")

    def _fail(self, failure: Failure, calls: Sequence[BatchedCall]) -> None:
        for call in calls:
            call.caller.failed(failure, call.head, call.principal)


def _parts(calls: Sequence[BatchedCall]) -> Iterator[Sequence[BatchedCall]]:
    """Calls in their order, with at most L{MAX_BATCH_BYTES} in each part, or one alone."""
    start = size = 0
    for number, call in enumerate(calls):
        size += call.size
        if size > MAX_BATCH_BYTES and number > start:
            yield calls[start:number]
            start, size = number, call.size
    yield calls[start:]
