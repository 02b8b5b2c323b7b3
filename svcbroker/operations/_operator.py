"""
The operator calls: every call that changes a broker or its ledgers, or tells of faults.

They are made with JSON, by users who may read the data directory, and are no part of the interface
for clients.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from .. import chain, model
from ..errors import NotAuthorized, ParameterInvalid
from ._declarations import Operation, Parameter
from ._durable import DURABLE_CALLS
from ._erasing import ERASE
from ._parameters import GROUP
from ._results import envelope
from ._types import NumberType, ParameterType
from ._webhooks import WEBHOOK_CALLS

MAX_NODES: Final = 1000
"""The most nodes and links that a call may name."""


def _number(value: object, highest: float) -> float:
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    # Not a number (NaN) is in no range.
    if not isNumber or not 0 <= value <= highest:  # type: ignore[operator]
        raise ParameterInvalid(f"is not a number from 0 to {highest:g}")
    return float(value)  # type: ignore[arg-type]


def nodeIndex(value: object) -> int:
    """
    Read the index of a node.

    @raise ParameterInvalid: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_NODES:
        raise ParameterInvalid("is not the index of a node")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_NODES:
        raise ParameterInvalid(f"is not a list of {what}")
    return value


class NodeIndexType(ParameterType):
    """The index of a node."""

    def fromJSON(self, value: object) -> int:
        return nodeIndex(value)


class IslandsType(ParameterType):
    """Islands: lists of indexes of nodes."""

    def fromJSON(self, value: object) -> list[list[int]]:
        what = "lists of nodes"
        islands = [[nodeIndex(node) for node in _list(each, what)] for each in _list(value, what)]
        if sum(map(len, islands)) > MAX_NODES:
            raise ParameterInvalid("names too many nodes")
        return islands


class LinksType(ParameterType):
    """Links: pairs of indexes of nodes."""

    def fromJSON(self, value: object) -> list[tuple[int, int]]:
        links = []
        for link in _list(value, "pairs of nodes"):
            if not isinstance(link, list) or len(link) != 2:
                raise ParameterInvalid("is not a list of pairs of nodes")
            links.append((nodeIndex(link[0]), nodeIndex(link[1])))
        return links


class ShareType(ParameterType):
    """A share, 0 to 1."""

    def fromJSON(self, value: object) -> float:
        return _number(value, 1)


class DelayType(ParameterType):
    """A shortest and a longest time in seconds."""

    def fromJSON(self, value: object) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            raise ParameterInvalid("is not a shortest and a longest time")
        shortest, longest = (_number(each, model.MAX_DELAY) for each in value)
        if shortest > longest:
            raise ParameterInvalid("has a shortest time above the longest")
        return shortest, longest


class FaultyNode(Struct, frozen=True):
    """
    One node: whether it runs, whether it leads next as it sees it, the view that it is in, and the
    latest block that it knows.
    """

    index: int
    running: bool
    leader: bool
    pbftView: int
    blockNumber: int


class Evidence(Struct, frozen=True):
    """A node that has signed two things at a height and round of which it may sign only one."""

    node: int
    blockNumber: int
    round: int


class Faults(Struct, frozen=True):
    """
    A group's nodes and the network between them. A quorum of the nodes must work together. The
    delay is the shortest and the longest, in seconds; loss and duplication are shares, 0 to 1;
    nothing passes over the links in cut, which are pairs: from, to.
    """

    nodes: list[FaultyNode]
    quorum: int
    delay: list[float]
    loss: float
    duplication: float
    cut: list[list[int]]
    evidence: list[Evidence]


def faultsOf(report: model.FaultReport) -> Faults:
    """Make the record of a report."""
    return Faults(
        nodes=[
            FaultyNode(each.index, each.isRunning, each.isLeader, each.view, each.height)
            for each in report.nodes
        ],
        quorum=report.quorum,
        delay=list(report.delay),
        loss=report.loss,
        duplication=report.duplication,
        cut=sorted(list(link) for link in report.cut),
        evidence=[Evidence(each.node, each.height, each.round) for each in report.evidence],
    )


class NodeIndexesType(ParameterType):
    """Indexes of nodes."""

    def fromJSON(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > MAX_NODES:
            raise ParameterInvalid("is not a list of nodes")
        return tuple(map(nodeIndex, value))


class ChangeType(ParameterType):
    """A change of the nodes, with its signatures."""

    def fromJSON(self, value: object) -> chain.ValidatorChange:
        if not isinstance(value, str):
            raise ParameterInvalid("is not a string")
        try:
            return chain.ValidatorChange.decode(a2b_base64(value, strict_mode=True))
        except ValueError:
            raise ParameterInvalid("is not Base64") from None
        except chain.Malformed as error:
            raise ParameterInvalid(f"is not a change: {error}") from None


class Validator(Struct, frozen=True):
    """One node of a set: its public key, in hexadecimal digits."""

    index: int
    nodeId: str


class Validators(Struct, frozen=True):
    """The nodes that decide the next block, after how many changes since the genesis."""

    changes: int
    nodes: list[Validator]


def validatorsOf(nodes: chain.ValidatorSet) -> Validators:
    """Make the record of a validator set."""
    return Validators(
        changes=nodes.generation,
        nodes=[Validator(index, key.hex()) for index, key in enumerate(nodes.keys)],
    )


class Reloaded(Struct, frozen=True):
    """A line for each file that cannot be used: what it says stays as it was."""

    problems: list[str]


def reloadedOf(problems: Sequence[str]) -> Reloaded:
    """Make the record of a reload."""
    return Reloaded(list(problems))


class SettingInForce(Struct, frozen=True):
    """
    A setting: its values as text, several where it may be given more than once; the default in
    words; what has given it its value; and whether the configuration file had another value at the
    last reload, which takes a restart. Credentials in URLs and secrets are masked.
    """

    name: str
    values: list[str]
    default: str
    source: Literal["default", "file", "command line"]
    help: str
    needsRestart: bool


class MemoryBound(Struct, frozen=True):
    """
    How much memory one kind may take: what it is; the most bytes; how the number comes about; and
    C{each}, where it is for one of those that are stored or that clients have made, and is not in
    the sum.
    """

    name: str
    bytes: int
    how: str
    each: str


class Configuration(Struct, frozen=True):
    """
    All settings as they are in force; the path of the configuration file, which is empty without
    one; when the broker was started, and when files were last read again, in milliseconds since
    the epoch; how much memory each kind may take; and how many bytes the process may use.
    """

    settings: list[SettingInForce]
    file: str
    startedAt: int
    reloadedAt: int | None
    bounds: list[MemoryBound]
    memory: int


def configurationOf(report: model.ConfigurationReport) -> Configuration:
    """Make the record of a configuration."""
    return Configuration(
        settings=[
            SettingInForce(
                name=each.name,
                values=list(each.values),
                default=each.default,
                source=each.source.value,
                help=each.help,
                needsRestart=each.needsRestart,
            )
            for each in report.settings
        ],
        file=report.file,
        startedAt=report.startedAt,
        reloadedAt=report.reloadedAt,
        bounds=[
            MemoryBound(name=each.name, bytes=each.bytes, how=each.how, each=each.each)
            for each in report.bounds
        ],
        memory=report.memory,
    )


_VALIDATORS = envelope(Validators, validatorsOf)
_FAULTS = envelope(Faults, faultsOf)
_NODE = Parameter(name="node", type=NodeIndexType(), description="The index of the node.")
_NETWORK = (
    Parameter(
        name="delay",
        type=DelayType(),
        default=None,
        description="The shortest and the longest time that a message takes, ``[0.1, 0.5]``, in "
        "seconds, 60 at most. Where they differ, messages overtake each other.",
    ),
    Parameter(
        name="loss",
        type=ShareType(),
        default=None,
        description="The share of messages that are lost, 0 to 1.",
    ),
    Parameter(
        name="duplication",
        type=ShareType(),
        default=None,
        description="The share of messages that arrive twice, 0 to 1.",
    ),
    Parameter(
        name="islands",
        type=IslandsType(),
        default=None,
        description="Nodes between which nothing passes, ``[[0, 1], [2, 3]]``. Those on no island "
        "are together on one more. An empty list ends a cut.",
    ),
    Parameter(
        name="links",
        type=LinksType(),
        default=None,
        description="Single links over which nothing passes, in one direction: ``[[0, 1]]`` is "
        "from 0 to 1. Islands and links replace, together, what was cut before.",
    ),
)

OPERATOR_CALLS: Final = (
    Operation(
        name="validators",
        summary="Give nodes new keys, change how many there are, or just tell which they are.",
        parameters=(
            GROUP,
            Parameter(
                name="rotate",
                type=NodeIndexesType(),
                default=(),
                description="The indexes of the nodes that get new keys, ``[0, 2]``.",
            ),
            Parameter(
                name="count",
                type=NumberType(ParameterInvalid, 1),
                default=None,
                description="How many nodes there are to be.",
            ),
        ),
        result=_VALIDATORS,
        method=lambda broker: broker.operator.changeNodes,
    ),
    Operation(
        name="validators/submit",
        summary="Hand in a change of the nodes that all whom it concerns have signed.",
        parameters=(
            GROUP,
            Parameter(
                name="change",
                type=ChangeType(),
                description="The change as the chain takes it, with its signatures, in Base64.",
            ),
        ),
        result=_VALIDATORS,
        method=lambda broker: broker.operator.submitChange,
    ),
    Operation(
        name="faults/show",
        summary="Tell how a group's nodes and their network are.",
        parameters=(GROUP,),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda broker: broker.operator.showFaults,
    ),
    Operation(
        name="faults/stop",
        summary="Stop a node. Stopping a stopped one changes nothing.",
        parameters=(GROUP, _NODE),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda broker: broker.operator.stopNode,
    ),
    Operation(
        name="faults/start",
        summary="Let a stopped node go on. Starting a running one changes nothing.",
        parameters=(GROUP, _NODE),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda broker: broker.operator.startNode,
    ),
    Operation(
        name="faults/network",
        summary="Change the network between the nodes. Parameters that are absent change nothing.",
        parameters=(GROUP, *_NETWORK),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda broker: broker.operator.setNetwork,
    ),
    Operation(
        name="faults/heal",
        summary="Let every node run, and make the network what it was at the start.",
        parameters=(GROUP,),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda broker: broker.operator.heal,
    ),
    Operation(
        name="reload",
        summary="Read accounts, secrets and certificates again.",
        parameters=(),
        result=envelope(Reloaded, reloadedOf),
        method=lambda broker: broker.operator.reload,
    ),
    Operation(
        name="configuration",
        summary="Tell the settings as they are in force, and when files were last read again.",
        parameters=(),
        result=envelope(Configuration, configurationOf),
        method=lambda broker: broker.operator.showConfiguration,
    ),
    ERASE,
    *DURABLE_CALLS,
    *WEBHOOK_CALLS,
)
"""Every operator call; its name is its path below C{/admin/operator/}."""
