"""
The operator calls: every call that changes a broker or its ledgers, or tells of faults.

They are made with JSON, by users who may read the data directory, and are no part of the interface
for clients.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, Final, Literal

from attrs import evolve
from msgspec import Struct

from .. import chain, model
from ..errors import (
    EventHeld,
    EventIdBlank,
    NotAuthorized,
    ParameterInvalid,
    TopicNotFound,
    TransactionFailed,
)
from ..model import MAX_REASON
from ._adminqueries import ALARMS, HISTORY, INCIDENTS
from ._clients import CONNECTION_CALLS, DURABLE_CALLS
from ._declarations import GROUP, OFFSET_ERRORS, OMITTED, TOPIC_ERRORS, Operation, Parameter
from ._holdcalls import (
    HOLD_CALLS,
    MAX_EVENT_IDS,
    ErasurePreviewResult,
    EventIdsType,
    ReasonType,
    previewOf,
)
from ._results import envelope, recordOf
from ._types import FlagType, NumberType, OffsetType, ParameterType, TopicType
from ._webhookcalls import WEBHOOK_CALLS


class _BeforeType(OffsetType):
    """The end of a part of a topic: an event, or a time."""

    def fromJSON(self, value: object) -> model.EventId | model.Moment:
        offset = super().fromJSON(value)
        if not isinstance(offset, model.EventId | model.Moment):
            raise ParameterInvalid("is neither an event's id nor OFFSET_TIME: with a time")
        return offset


_EVENTS: Final = (
    Parameter(
        name="events",
        type=EventIdsType(),
        default=OMITTED,
        description=f"The ids of the events, at most {MAX_EVENT_IDS}.",
    ),
    Parameter(
        name="topic",
        type=TopicType(),
        default=OMITTED,
        description="A topic, open or closed, instead of events.",
    ),
    Parameter(
        name="first",
        type=NumberType(ParameterInvalid, 1),
        default=OMITTED,
        description="The sequence number of the topic's first event to erase; by default 1.",
    ),
    Parameter(
        name="last",
        type=NumberType(ParameterInvalid, 1),
        default=OMITTED,
        description="The sequence number of the topic's last event to erase.",
    ),
    Parameter(
        name="before",
        type=_BeforeType(),
        default=OMITTED,
        description="Instead of last: an event's id, or OFFSET_TIME: with a time. The topic's "
        "events before it are erased.",
    ),
)
_ERASING_ERRORS: Final = (
    *(EventIdBlank, *OFFSET_ERRORS, *TOPIC_ERRORS),
    *(TopicNotFound, NotAuthorized),
)

ERASE: Final = Operation(
    name="erase",
    summary="Erase the content of events, for good and on all nodes. The answer is how many events "
    "were named.",
    parameters=(
        GROUP,
        Parameter(
            name="reason",
            type=ReasonType(),
            description=f"Why, in at most {MAX_REASON} bytes. The chain keeps it, and readers of "
            "the events are shown it.",
        ),
        *_EVENTS,
        Parameter(
            name="exceptHeld",
            type=FlagType(),
            default=False,
            description="Whether to leave out events that are held. Otherwise nothing is erased "
            "where one of them is.",
        ),
    ),
    result=envelope(int),
    errors=(*_ERASING_ERRORS, EventHeld, TransactionFailed),
    method=lambda calls: calls.erasing.erase,
)
"""See L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""

_PREVIEW: Final = Operation(
    name="erase/preview",
    summary="Tell how many events an erasure would erase, and which of them are held.",
    parameters=(GROUP, *_EVENTS),
    result=envelope(ErasurePreviewResult, previewOf),
    errors=_ERASING_ERRORS,
    method=lambda calls: calls.erasing.preview,
    changedBy=(),
)


_MAX_NODES: Final = 1000
"""The most nodes and links that a call may name."""


def _number(value: object, highest: float) -> float:
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    # Not a number (NaN) is in no range.
    if not isNumber or not 0 <= value <= highest:  # type: ignore[operator]
        raise ParameterInvalid(f"is not a number from 0 to {highest:g}")
    return float(value)  # type: ignore[arg-type]


def _nodeIndex(value: object) -> int:
    """
    Read the index of a node.

    @raise ParameterInvalid: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_NODES:
        raise ParameterInvalid("is not the index of a node")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_NODES:
        raise ParameterInvalid(f"is not a list of {what}")
    return value


class _NodeIndexType(ParameterType):
    """The index of a node."""

    def fromJSON(self, value: object) -> int:
        return _nodeIndex(value)


class _IslandsType(ParameterType):
    """Islands: lists of indexes of nodes."""

    def fromJSON(self, value: object) -> list[list[int]]:
        what = "lists of nodes"
        islands = [[_nodeIndex(node) for node in _list(each, what)] for each in _list(value, what)]
        if sum(map(len, islands)) > _MAX_NODES:
            raise ParameterInvalid("names too many nodes")
        return islands


class _LinksType(ParameterType):
    """Links: pairs of indexes of nodes."""

    def fromJSON(self, value: object) -> list[tuple[int, int]]:
        links = []
        for link in _list(value, "pairs of nodes"):
            if not isinstance(link, list) or len(link) != 2:
                raise ParameterInvalid("is not a list of pairs of nodes")
            links.append((_nodeIndex(link[0]), _nodeIndex(link[1])))
        return links


class _ShareType(ParameterType):
    """A share, 0 to 1."""

    def fromJSON(self, value: object) -> float:
        return _number(value, 1)


class _DelayType(ParameterType):
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


class EvidenceResult(Struct, frozen=True):
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
    evidence: list[EvidenceResult]


def _faultsOf(report: model.FaultReport) -> Faults:
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
        evidence=[EvidenceResult(each.node, each.height, each.round) for each in report.evidence],
    )


class _NodeIndexesType(ParameterType):
    """Indexes of nodes."""

    def fromJSON(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > _MAX_NODES:
            raise ParameterInvalid("is not a list of nodes")
        return tuple(map(_nodeIndex, value))


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


class ValidatorResult(Struct, frozen=True):
    """One node of a set: its public key, in hexadecimal digits."""

    index: int
    nodeId: str


class ValidatorsResult(Struct, frozen=True):
    """The nodes that decide the next block, after how many changes since the genesis."""

    changes: int
    nodes: list[ValidatorResult]


def _validatorsOf(nodes: chain.ValidatorSet) -> ValidatorsResult:
    """Make the record of a validator set."""
    return ValidatorsResult(
        changes=nodes.generation,
        nodes=[ValidatorResult(index, key.hex()) for index, key in enumerate(nodes.keys)],
    )


class Reloaded(Struct, frozen=True):
    """A line for each file that cannot be used: what it says stays as it was."""

    problems: list[str]


class ChangedSetting(Struct, frozen=True):
    """
    A setting to which the configuration file has given another value: the one in force and that of
    the file as text, several where it may be given more than once, and whether it takes a restart.
    Credentials in URLs and secrets are masked.
    """

    name: str
    before: list[str]
    after: list[str]
    needsRestart: bool


class ChangedAccount(Struct, frozen=True, rename={"name": "account"}):
    """
    An account that would be added, removed or changed, and what of it. The name is empty for the
    limits of all accounts that have none of their own.
    """

    name: str
    kind: Literal["added", "removed", "changed"]
    parts: list[str]


class ChangedCertificate(Struct, frozen=True):
    """
    A port whose certificates have changed, and when the first of the new ones expires, in
    milliseconds since the epoch.
    """

    port: str
    validUntil: int


class Difference(Struct, frozen=True):
    """The changes that a reload would make, and a line for each file that cannot be used."""

    settings: list[ChangedSetting]
    accounts: list[ChangedAccount]
    certificates: list[ChangedCertificate]
    problems: list[str]


class SettingInForce(Struct, frozen=True):
    """
    A setting: its values as text, several where it may be given more than once; the default in
    words; what has given it its value; and whether the configuration file had another value at the
    last reload, which takes a restart. Credentials in URLs and secrets are masked.
    """

    name: str
    values: list[str]
    default: str
    source: model.SettingSource
    help: str
    needsRestart: bool


class MemoryBound(Struct, frozen=True):
    """
    The memory that one kind may take: what it is; the most bytes; how the number comes about; and
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


class JobResult(
    Struct,
    frozen=True,
    rename={"startedAt": "startedTimestamp", "endedAt": "endedTimestamp", "isGood": "good"},
):
    """
    A command that the broker runs for operators: its name; the words that an operator would type;
    when it was started and has ended, in milliseconds since the epoch; whether it has ended well;
    and the last lines that it has written.
    """

    name: str
    command: list[str]
    startedAt: int
    endedAt: int | None
    isGood: bool
    output: list[str]


class JobsResult(Struct, frozen=True):
    """The last job of each name since the start of the broker, the newest first."""

    jobs: list[JobResult]


class RetentionResult(
    Struct,
    frozen=True,
    rename={"age": "seconds", "height": "blockNumber", "erased": "erasedCount"},
):
    """
    The progress of erasing old events of the topics that some patterns match: for how many seconds
    they are kept; the block up to which the log was searched; how many events were erased since
    the start of the broker; and why the last search failed, or an empty text.
    """

    patterns: list[str]
    age: int
    height: int
    erased: int
    problem: str


_JOBS = envelope(JobsResult, lambda reports: JobsResult(recordOf(list[JobResult])(reports)))
_VALIDATORS = envelope(ValidatorsResult, _validatorsOf)
_FAULTS = envelope(Faults, _faultsOf)
_NODE = Parameter(name="node", type=_NodeIndexType(), description="The index of the node.")
_NETWORK = (
    Parameter(
        name="delay",
        type=_DelayType(),
        default=None,
        description="The shortest and the longest time that a message takes, ``[0.1, 0.5]``, in "
        "seconds, 60 at most. Where they differ, messages overtake each other.",
    ),
    Parameter(
        name="loss",
        type=_ShareType(),
        default=None,
        description="The share of messages that are lost, 0 to 1.",
    ),
    Parameter(
        name="duplication",
        type=_ShareType(),
        default=None,
        description="The share of messages that arrive twice, 0 to 1.",
    ),
    Parameter(
        name="islands",
        type=_IslandsType(),
        default=None,
        description="Nodes between which nothing passes, ``[[0, 1], [2, 3]]``. Those on no island "
        "are together on one more. An empty list ends a cut.",
    ),
    Parameter(
        name="links",
        type=_LinksType(),
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
                type=_NodeIndexesType(),
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
        method=lambda calls: calls.operator.changeNodes,
        changedBy=("rotate", "count"),
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
        method=lambda calls: calls.operator.submitChange,
    ),
    Operation(
        name="faults/show",
        summary="Tell how a group's nodes and their network are.",
        parameters=(GROUP,),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda calls: calls.operator.showFaults,
        changedBy=(),
    ),
    Operation(
        name="faults/stop",
        summary="Stop a node. Stopping a stopped one changes nothing.",
        parameters=(GROUP, _NODE),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda calls: calls.operator.stopNode,
    ),
    Operation(
        name="faults/start",
        summary="Let a stopped node go on. Starting a running one changes nothing.",
        parameters=(GROUP, _NODE),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda calls: calls.operator.startNode,
    ),
    Operation(
        name="faults/network",
        summary="Change the network between the nodes. Parameters that are absent change nothing.",
        parameters=(GROUP, *_NETWORK),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda calls: calls.operator.setNetwork,
    ),
    Operation(
        name="faults/heal",
        summary="Let every node run, and make the network what it was at the start.",
        parameters=(GROUP,),
        result=_FAULTS,
        errors=(NotAuthorized,),
        method=lambda calls: calls.operator.heal,
    ),
    Operation(
        name="reload",
        summary="Read accounts, secrets and certificates again.",
        result=envelope(Reloaded, lambda problems: Reloaded([*problems])),
        method=lambda calls: calls.operator.reload,
    ),
    Operation(
        name="reload/preview",
        summary="Tell what a reload would change: settings, accounts and certificates. Nothing "
        "changes.",
        result=envelope(Difference, recordOf(Difference)),
        method=lambda calls: calls.operator.previewReload,
        changedBy=(),
    ),
    Operation(
        name="configuration",
        summary="Tell the settings as they are in force, and when files were last read again.",
        result=envelope(Configuration, recordOf(Configuration)),
        method=lambda calls: calls.operator.showConfiguration,
        changedBy=(),
    ),
    # As the admin queries, with the token of the data directory.
    evolve(ALARMS, name="alarms/list"),
    evolve(HISTORY, name="history/show"),
    evolve(INCIDENTS, name="incidents/list"),
    Operation(
        name="jobs/list",
        summary="List the commands that the broker runs for operators, or has run since its start.",
        result=_JOBS,
        method=lambda calls: calls.operator.listJobs,
        changedBy=(),
    ),
    Operation(
        name="jobs/start",
        summary="Audit all chains, back the data directory up, or look for what is wrong as "
        "svcbroker doctor does, now. One job runs at a time.",
        parameters=(
            Parameter(
                name="name",
                type=ParameterType(),
                description="What is to be done: audit, backup or doctor. A backup goes to a new "
                "directory below that of the data with -backups after its name.",
            ),
        ),
        result=_JOBS,
        method=lambda calls: calls.operator.startJob,
    ),
    Operation(
        name="retention/list",
        summary="Tell how long contents are kept, and how far older ones are erased.",
        parameters=(GROUP,),
        result=envelope(list[RetentionResult], recordOf(list[RetentionResult])),
        method=lambda calls: calls.operator.listRetention,
        changedBy=(),
    ),
    ERASE,
    _PREVIEW,
    *HOLD_CALLS,
    *CONNECTION_CALLS,
    *DURABLE_CALLS,
    *WEBHOOK_CALLS,
)
"""Every operator call; its name is its path below C{/admin/operator/}."""
