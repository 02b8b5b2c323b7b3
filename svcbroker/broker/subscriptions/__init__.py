"""
Subscriptions: readers of a group's log.

A L{Follower} reads a group's blocks once, for all; a L{Dispatcher} finds out whose filters they
match; a L{LogSubscription} hands its subscriber every event that is meant for it, from history
or live, and keeps nothing that the log keeps.
"""

from ._backlog import MAX_NAMED, Backlog, Holder, Survey, Total, WaitingEvents
from ._eventreading import MAX_SEARCH, EventPage, Places, checkLogIn
from ._follower import Follower, HistoryTurns
from ._positions import (
    POSITIONS,
    SECONDS_A_DAY,
    KeptPosition,
    KeptPositions,
    MemoryPositions,
    StoredPosition,
    decodePosition,
    positionGroup,
)
from ._registry import Subscriptions
from ._topictree import FilterTrie, LevelTree, TopicMatches

__all__ = [
    "MAX_NAMED",
    "MAX_SEARCH",
    "POSITIONS",
    "SECONDS_A_DAY",
    "Backlog",
    "EventPage",
    "FilterTrie",
    "Follower",
    "HistoryTurns",
    "Holder",
    "KeptPosition",
    "KeptPositions",
    "LevelTree",
    "MemoryPositions",
    "Places",
    "StoredPosition",
    "Subscriptions",
    "Survey",
    "TopicMatches",
    "Total",
    "WaitingEvents",
    "checkLogIn",
    "decodePosition",
    "positionGroup",
]
