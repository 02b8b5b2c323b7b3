"""
The operator calls: those that change something. They are made with JSON, by who may read the
data directory, and are no part of the interface for clients.
"""

from __future__ import annotations

from typing import Final

from ..errors import NotAuthorized
from ._declarations import Operation
from ._faultvalues import (
    DelayKind,
    Faults,
    LinksKind,
    NodeKind,
    NodesKind,
    ShareKind,
    faultsOf,
)
from ._nodevalues import NODE_CALLS
from ._operations import GROUP
from ._parameters import Parameter
from ._results import envelope

_FAULTS = envelope(Faults, faultsOf)
_NODE = Parameter(name="node", kind=NodeKind(), description="The index of the node.")
_NETWORK = (
    Parameter(
        name="delay",
        kind=DelayKind(),
        default=None,
        description="The shortest and the longest time that a message takes, ``[0.1, 0.5]``, in "
        "seconds, 60 at most. Where they differ, messages overtake each other.",
    ),
    Parameter(
        name="loss",
        kind=ShareKind(),
        default=None,
        description="The share of messages that are lost, 0 to 1.",
    ),
    Parameter(
        name="duplication",
        kind=ShareKind(),
        default=None,
        description="The share of messages that arrive twice, 0 to 1.",
    ),
    Parameter(
        name="islands",
        kind=NodesKind(),
        default=None,
        description="Nodes between which nothing passes, ``[[0, 1], [2, 3]]``. Those on no island "
        "are together on one more. An empty list ends a cut.",
    ),
    Parameter(
        name="links",
        kind=LinksKind(),
        default=None,
        description="Single links over which nothing passes, in one direction: ``[[0, 1]]`` is "
        "from 0 to 1. Islands and links replace, together, what was cut before.",
    ),
)

_FAULT_CALLS: Final = (
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
        summary="Change the network between the nodes. What is not given stays as it is.",
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
)

OPERATOR_CALLS: Final = (*NODE_CALLS, *_FAULT_CALLS)
"""Every operator call; its name is its path below C{/admin/operator/}."""
