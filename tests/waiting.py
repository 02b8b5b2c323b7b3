"""
Waiting for a condition that other programs bring about, or for what a clock has due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import Clock, deferLater

reactor: Any = _reactor

STEP, LONGEST_STEP, GROWTH = 0.01, 0.1, 1.25
"""Seconds between the first two looks at something that will come, between two late ones, and how
many times as long each step is as the one before: looks take processors from what is to come."""

TIMEOUT = 300.0
"""Seconds after which what should come from another program counts as missing; machines that run
tests may be slow."""


async def until(isTrue: Callable[[], Any]) -> None:
    """Wait until something is true; it may give a coroutine."""
    end = reactor.seconds() + TIMEOUT
    step = STEP
    while True:
        found = isTrue()
        if found if isinstance(found, bool) else await found:
            return
        if reactor.seconds() > end:
            raise AssertionError("it does not come")
        await deferLater(reactor, step)
        step = min(step * GROWTH, LONGEST_STEP)


def passTurns(clock: Clock, most: int) -> None:
    """
    Make the calls that are due, and those that follow from them, as turns of a reactor would.

    @param most: the turns after which it ends, though calls may be due.
    """
    for _ in range(most):
        now = clock.seconds()
        if not any(each.getTime() <= now for each in clock.calls):
            return
        clock.advance(0)
