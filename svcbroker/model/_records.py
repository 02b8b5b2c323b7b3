"""
Records: a ledger's blocks, nodes, measures and faults, and the configuration in force, as
followers and operators read them.

Many names: an answer to operators is made of several small records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from attrs import frozen
from msgspec import Struct

from ..histogram import Histogram
from ._events import Event

T = TypeVar("T")


MAX_DELAY: Final = 60.0
"""The longest that a message between nodes may be held up, in seconds."""


@frozen(kw_only=True)
class Page(Generic[T]):
    """
    A part of a list.

    @ivar total: how many items the whole list has, after filters.
    @ivar items: the part; empty beyond the end of the list.
    """

    total: int
    items: Sequence[T]


class Block(Struct, frozen=True, kw_only=True, gc=False):
    """
    A final block as a follower reads it.

    @ivar height: its height, from 1.
    @ivar timestamp: its time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar events: the events published in it, in order.
    @ivar erasures: the topics and the ranges of sequence numbers that erasures in it name. The
        chain may have refused some of them.
    """

    height: int
    timestamp: int
    hash: bytes
    events: Sequence[Event]
    erasures: Sequence[tuple[str, Sequence[tuple[int, int]]]] = ()


@frozen(kw_only=True)
class BlockRecord:
    """
    A final block as an operator sees it.

    @ivar height: its height, from 1.
    @ivar timestamp: its time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar sealer: the index of the node that proposed it.
    @ivar transactionCount: how many transactions are in it, refused ones included.
    """

    height: int
    timestamp: int
    hash: bytes
    sealer: int
    transactionCount: int


@frozen(kw_only=True)
class TransactionRecord:
    """
    A final transaction as an operator sees it.

    @ivar height: the height of its block.
    @ivar timestamp: its block's time in milliseconds since the epoch.
    @ivar hash: its hash: 32 bytes.
    @ivar sender: the address that sent it: 20 bytes.
    @ivar recipient: the address of the topic that it is about: 20 bytes.
    """

    height: int
    timestamp: int
    hash: bytes
    sender: bytes
    recipient: bytes


class NodeType(Enum):
    """The part of a node in its ledger."""

    SEALER = "sealer"
    """It takes part in deciding blocks."""
    OBSERVER = "observer"
    """It only follows."""


@frozen(kw_only=True)
class NodeRecord:
    """
    A node of a ledger, as that node itself says it stands.

    @ivar nodeId: its public key.
    @ivar name: its name where it has one.
    @ivar view: the view it is in: a count of leaders tried, which never falls.
    @ivar nodeType: what it does.
    @ivar height: the height of the last block it has decided or taken over.
    @ivar isActive: whether it runs.
    """

    nodeId: bytes
    name: str | None
    view: int
    nodeType: NodeType
    height: int
    isActive: bool


class HeldRange(Struct, frozen=True, kw_only=True):
    """
    Consecutive events of a topic that one hold keeps from being erased.

    @ivar case: the name of the hold.
    @ivar first: the sequence number of the first of them.
    @ivar last: that of the last.
    """

    case: str
    first: int
    last: int


@frozen(kw_only=True)
class ReleaseRecord:
    """
    The release of a hold.

    @ivar account: the account of the operator who asked for it; may be empty.
    @ivar reason: why.
    @ivar height: the height of its block.
    @ivar timestamp: the time of that block, in milliseconds since the epoch.
    @ivar hash: the hash of its transaction.
    """

    account: str
    reason: str
    height: int
    timestamp: int
    hash: bytes


@frozen(kw_only=True)
class HoldRecord:
    """
    A hold.

    @ivar case: its name.
    @ivar account: the account of the operator who asked for it; may be empty.
    @ivar reason: why.
    @ivar patterns: the patterns of topics that it holds.
    @ivar eventCount: or else how many events.
    @ivar events: these, where one hold alone was asked for: topics and sequence numbers.
    @ivar height: the height of its block.
    @ivar timestamp: the time of that block, in milliseconds since the epoch.
    @ivar hash: the hash of its transaction.
    @ivar release: its release; C{None} while it is in force.
    """

    case: str
    account: str
    reason: str
    patterns: Sequence[str]
    eventCount: int
    events: Sequence[tuple[str, int]]
    height: int
    timestamp: int
    hash: bytes
    release: ReleaseRecord | None = None


@frozen(kw_only=True)
class ReleasedPage:
    """
    Some of the holds that were released.

    @ivar items: they, the latest hold first.
    @ivar next: the place of the last of them, its height and its index in the block, before which
        there may be more; C{None} where there are no more.
    """

    items: Sequence[HoldRecord]
    next: tuple[int, int] | None


@frozen(kw_only=True)
class Statistics:
    """
    A ledger in three numbers.

    @ivar nodeCount: how many nodes it has.
    @ivar height: the height of its latest block.
    @ivar transactionCount: how many transactions are in its chain, refused ones included.
    """

    nodeCount: int
    height: int
    transactionCount: int


@frozen(kw_only=True)
class Health:
    """
    Whether a ledger makes progress.

    @ivar isReady: whether work that is submitted now can be expected to become final.
    @ivar reason: why not, in words for an operator; empty where it is ready.
    """

    isReady: bool
    reason: str = ""


@frozen(kw_only=True)
class ChainPart:
    """
    Some blocks of a chain that follow each other, with their certificates.

    @ivar stream: an export of them, as C{svcbroker chain import} reads it. Empty where the chain
        ends more than one block before the first that was asked for.
    @ivar last: the height of the last of them; below the first where there is none.
    @ivar height: the height of the last block that has a certificate, after they were read.
    @ivar tip: the height of the chain after they were read. On an engine's chain blocks come before
        their certificates.
    """

    stream: bytes
    last: int
    height: int
    tip: int


@frozen(kw_only=True)
class ChainMeasures:
    """
    The measures of a chain of others that orders the batches of a ledger.

    @ivar height: the number of its last final block.
    @ivar behind: how many of its final blocks were not read yet.
    @ivar underWay: how many transactions of this broker are in no final block of it.
    @ivar balance: what the broker's account has, in wei; C{None} before it is known.
    @ivar gasPrice: what the broker offers for gas, in wei.
    @ivar attested: the height of the newest block of ours that brokers have attested as it is here;
        0 where none is known.
    """

    height: int
    behind: int
    underWay: int
    balance: int | None
    gasPrice: int
    attested: int


@frozen(kw_only=True)
class LedgerMeasures:
    """
    The measures of a ledger now. C{None}: it has no such thing.

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
    @ivar refused: why a copy refuses what its original sends; empty where it does not.
    @ivar height: the height of the last block that this node of a network has executed.
    @ivar age: how long ago the ledger had, for all it knows, what the network has decided, in
        seconds.
    @ivar sync: how long storing and syncing a block took, in seconds.
    @ivar chain: the chain of others that orders its batches.

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
    refused: str = ""
    height: int | None = None
    age: float | None = None
    latency: Histogram | None = None
    sync: Histogram | None = None
    chain: ChainMeasures | None = None


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
    The measures of a group's ledger, and the disk that it is on. C{None}: it is not known.

    @ivar auditedAt: when the last scheduled audit ended, in seconds since the epoch.
    """

    ledger: LedgerMeasures | None
    disk: Disk | None
    auditedAt: float | None = None


@frozen(kw_only=True)
class NodeCondition:
    """
    The condition of a node.

    @ivar index: its index in its set.
    @ivar isRunning: whether it runs.
    @ivar isLeader: whether it leads at the height that it is about to decide, as it sees it.
    @ivar view: the view that it is in.
    @ivar height: the height of the latest block that it knows.
    """

    index: int
    isRunning: bool
    isLeader: bool
    view: int
    height: int


@frozen(kw_only=True)
class DoubleVote:
    """
    A node has signed two things of which it may sign only one.

    @ivar node: its index.
    @ivar height: the height that they were about.
    @ivar round: the round of that height.
    """

    node: int
    height: int
    round: int


@frozen(kw_only=True)
class FaultReport:
    """
    A set of nodes and its network, as they are now.

    @ivar nodes: the nodes by index.
    @ivar quorum: how many of them must work together.
    @ivar delay: the shortest and the longest time that a message takes, in seconds.
    @ivar loss: the share of messages that are lost, 0 to 1.
    @ivar duplication: the share of messages that arrive twice, 0 to 1.
    @ivar cut: pairs (from, to) of nodes between which nothing passes, in that direction.
    @ivar evidence: the latest contradictions, oldest first.
    """

    nodes: Sequence[NodeCondition]
    quorum: int
    delay: tuple[float, float]
    loss: float
    duplication: float
    cut: Collection[tuple[int, int]]
    evidence: Sequence[DoubleVote]


class SettingSource(Enum):
    """The source of a setting's value."""

    DEFAULT = "default"
    FILE = "file"
    COMMAND_LINE = "command line"


@frozen(kw_only=True)
class SettingRecord:
    """
    A setting, without secrets.

    @ivar name: its name, on the command line and in the configuration file.
    @ivar values: its value as text; several where it may be given more than once.
    @ivar default: the default in words.
    @ivar help: what it means.
    @ivar needsRestart: whether the configuration file had another value at the last reload, which
        takes a restart.
    """

    name: str
    values: Sequence[str]
    default: str
    source: SettingSource
    help: str
    needsRestart: bool


@frozen(kw_only=True)
class SettingChange:
    """
    A setting to which the configuration file has given another value.

    @ivar name: its name.
    @ivar before: the value that is in force as text, without secrets; several where it may be given
        more than once.
    @ivar after: that of the file, likewise.
    @ivar needsRestart: whether it takes a restart; otherwise a reload applies it.
    """

    name: str
    before: Sequence[str]
    after: Sequence[str]
    needsRestart: bool


@frozen(kw_only=True)
class AccountChange:
    """
    An account that the file of accounts has otherwise than before.

    @ivar name: its name; empty for the limits of all that have none of their own.
    @ivar kind: C{added}, C{removed} or C{changed}.
    @ivar parts: what of it has changed, such as C{grants}.
    """

    name: str
    kind: str
    parts: Sequence[str] = ()


@frozen(kw_only=True)
class CertificateChange:
    """
    The certificates of a port whose files have changed.

    @ivar port: the name of the port.
    @ivar validUntil: when the first of the new ones expires, in milliseconds since the epoch.
    """

    port: str
    validUntil: int


@frozen(kw_only=True)
class ReloadDifference:
    """
    The changes that a reload would make.

    @ivar problems: a line for each file that cannot be used. What it says would stay as it is.
    """

    settings: Sequence[SettingChange]
    accounts: Sequence[AccountChange]
    certificates: Sequence[CertificateChange]
    problems: Sequence[str]


@frozen(kw_only=True)
class BoundRecord:
    """
    The most memory of one kind.

    @ivar name: what takes it, in a few words.
    @ivar bytes: how many bytes, of all together, or of one.
    @ivar how: how the number comes about.
    @ivar each: C{each} where the bytes are those of one, of which there are as many as are stored
        or as clients have made; else empty.
    """

    name: str
    bytes: int
    how: str
    each: str = ""


@frozen(kw_only=True)
class ConfigurationReport:
    """
    All settings as they are in force.

    @ivar bounds: how much memory each kind may take.
    @ivar memory: what the process may use, in bytes; 0 where that is not known.
    @ivar file: the path of the configuration file; empty without one.
    @ivar startedAt: when the broker started, in milliseconds since the epoch.
    @ivar reloadedAt: when files were last read again; C{None} where they were not.
    """

    settings: Sequence[SettingRecord]
    file: str
    startedAt: int
    reloadedAt: int | None
    bounds: Sequence[BoundRecord] = ()
    memory: int = 0
