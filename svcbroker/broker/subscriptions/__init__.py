"""
Subscriptions: readers of a group's log.

A L{Follower} reads a group's blocks once, for all; a L{Dispatcher} finds out whose filters they
match; a L{LogSubscription} hands its subscriber every event that is meant for it, from history
or live, and keeps nothing that the log keeps.
"""

from ._backlog import Holder
from ._eventreading import MAX_SEARCH, EventPage, Places, checkLogIn
from ._follower import HistoryTurns
from ._positions import POSITIONS, SECONDS_A_DAY, KeptPositions, decodePosition
from ._registry import Subscriptions
from ._topictree import FilterTrie, LevelTree, TopicMatches
