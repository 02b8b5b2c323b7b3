"""
Subscriptions: readers of a group's log.

A L{Follower} reads a group's blocks once, for all; a L{Dispatcher} finds out whose filters they
match; a L{LogSubscription} hands its subscriber every event that is meant for it, from history
or live, and keeps nothing that the log keeps.
"""

from ._follower import Follower
from ._levels import LevelTree
from ._positions import (
    KeptPositions,
    MemoryPositions,
    StoredPosition,
    positionGroup,
)
from ._registry import Subscriptions

__all__ = [
    "Follower",
    "KeptPositions",
    "LevelTree",
    "MemoryPositions",
    "StoredPosition",
    "Subscriptions",
    "positionGroup",
]
