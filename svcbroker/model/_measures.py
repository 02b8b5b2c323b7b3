"""
What a ledger tells of itself for metrics.
"""

from __future__ import annotations

from attrs import frozen

from ..histogram import Histogram


@frozen(kw_only=True)
class LedgerMeasures:
    """
    What a ledger tells of itself now. C{None}: it has no such thing.

    @ivar waiting: how many transactions of this broker wait to become final.
    @ivar waitingBytes: their size, as it is bounded.
    @ivar oldest: how long the first of them has waited, in seconds; 0 where none waits.
    @ivar replicas: how many replicas of this broker take part in deciding.
    @ivar running: how many of them run.
    @ivar viewChanges: how often a leader was replaced since the chain began. It never falls.
    @ivar latency: how long transactions took from their submission until they were final and on
        stable storage, in seconds.
    @ivar behind: how many blocks a copy is behind what the original had when it last answered.
    @ivar silence: how long ago the original of a copy has last answered, in seconds.
    @ivar height: the height of the last block that this node of a network has executed.
    @ivar age: how long ago the ledger had, for all it knows, what the network has decided, in
        seconds.
    @ivar sync: how long storing and syncing a block took, in seconds.

    The ledger goes on adding to the histograms.
    """

    waiting: int
    waitingBytes: int
    oldest: float
    replicas: int | None = None
    running: int | None = None
    viewChanges: int | None = None
    behind: int | None = None
    silence: float | None = None
    height: int | None = None
    age: float | None = None
    latency: Histogram | None = None
    sync: Histogram | None = None


@frozen(kw_only=True)
class Disk:
    """
    The disk of the data directory, in bytes.

    @ivar free: what is left for the daemon.
    """

    free: int
    size: int


@frozen(kw_only=True)
class GroupMeasures:
    """
    What a group's ledger tells of itself, and the disk that it is on. C{None}: it is not known.
    """

    ledger: LedgerMeasures | None
    disk: Disk | None
