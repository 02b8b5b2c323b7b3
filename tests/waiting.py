"""
Waiting for a condition that other programs bring about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater

reactor: Any = _reactor

STEP = 0.01
"""Seconds between two looks at something that will come."""

TIMEOUT = 300.0
"""Seconds after which what should come from another program counts as missing; machines that run
tests may be slow."""


async def until(isTrue: Callable[[], Any]) -> None:
    """Wait until something is true; it may give a coroutine."""
    end = reactor.seconds() + TIMEOUT
    while True:
        found = isTrue()
        if found if isinstance(found, bool) else await found:
            return
        if reactor.seconds() > end:
            raise AssertionError("it does not come")
        await deferLater(reactor, STEP)
