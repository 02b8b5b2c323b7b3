"""
Driving procedures in coroutines, of whatever framework performs the effects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeAlias, TypeVar

from ._effects import Deliver, Effect, Procedure
from ._records import Event

T = TypeVar("T")

Events: TypeAlias = AsyncGenerator[Event, None]
"""Events for C{async for}."""


class Performer(Protocol):
    """
    Performs the effects of one procedure.
    """

    async def perform(self, effect: Effect) -> Any:
        """Perform an effect, and return its outcome."""

    async def close(self) -> None:
        """Close the stream that is open."""


async def run(procedure: Procedure[T], performer: Performer) -> T:
    """Drive a procedure to its result."""
    outcome = None
    while True:
        try:
            effect = procedure.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        outcome = await performer.perform(effect)


async def iterate(procedure: Procedure[Any], performer: Performer) -> Events:
    """Drive a procedure, and yield the events that it delivers."""
    outcome = None
    try:
        while True:
            try:
                effect = procedure.send(outcome)
            except StopIteration:
                return
            if isinstance(effect, Deliver):
                for event in effect.events:
                    yield event
                outcome = None
            else:
                outcome = await performer.perform(effect)
    finally:
        await performer.close()
