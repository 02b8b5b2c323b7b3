"""
Twisted's epoll reactor, without its logging context for each event, with a bound on the reads of a
turn, and with calls after them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from twisted.logger import Logger

_PRIVATE: Final = ("_selectables", "_poller", "_doReadOrWrite")

_log = Logger()

EVENTS_AT_ONCE: Final = 64
"""The number of connections that are read from and written to between two looks at the time."""

READING: Final = 0.016
"""After the first of them, for how long others are in one turn of the reactor, in seconds."""


def pollWithoutContext(reactor: Any) -> None:
    """
    Have Twisted's epoll reactor call what reads and writes directly, and give it C{callAfterReads},
    which L{EndOfTurn<svcbroker.net.turns.EndOfTurn>} uses, and the number of its turns so far,
    C{turns}, for L{WorkBudget<svcbroker.net.budgets.WorkBudget>}. Any other reactor stays as it is,
    and so does one of a Twisted that has other private attributes.

    Twisted makes a context of its old log for each read and each write, in which nothing here logs.
    This takes 2 µs: more than to receive a request, and to find its connection.

    @param reactor: the reactor, which may be running.
    """
    if sys.platform == "linux":
        from twisted.internet.epollreactor import EPollReactor

        if type(reactor) is EPollReactor and all(hasattr(reactor, name) for name in _PRIVATE):
            polling = _Polling(reactor)
            reactor.doIteration = polling.iterate  # type: ignore[method-assign]
            reactor.callAfterReads = polling.add  # type: ignore[attr-defined]
            reactor.turns = 0  # type: ignore[attr-defined]


class _Polling:
    """
    The way a reactor waits for events.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._calls: list[Callable[[], object]] = []

    def add(self, call: Callable[[], object]) -> None:
        """
        Make a call when everything that can be read now was read, without waiting for more. One
        that is added by such a call is made in the next turn.
        """
        self._calls.append(call)

    def iterate(self, timeout: float | None) -> None:
        """
        Wait for events, and handle them. See C{EPollReactor.doPoll}.

        @param timeout: how long to wait at the most, in seconds; C{None} for ever.
        """
        poll, seconds = self._reactor._poller.poll, self._reactor.seconds
        ready = poll(0 if self._calls else -1 if timeout is None else timeout, EVENTS_AT_ONCE)
        self._reactor.turns += 1
        end = 0.0
        while ready:
            self._handle(ready)
            if len(ready) < EVENTS_AT_ONCE:
                break
            now = seconds()
            end = end or now + READING
            # The kernel gives those first that it has not given before. A clock may be set back.
            ready = poll(0, EVENTS_AT_ONCE) if end - READING <= now < end else ()
        if self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                try:
                    call()
                except Exception:
                    _log.failure("A call after reads failed")

    def _handle(self, ready: Iterable[tuple[int, int]]) -> None:
        selectables, handle = self._reactor._selectables, self._reactor._doReadOrWrite
        for number, event in ready:
            selectable = selectables.get(number)
            # Otherwise it was closed by what was called before.
            if selectable is not None:
                try:
                    handle(selectable, number, event)
                except Exception:
                    _log.failure("A connection failed")
