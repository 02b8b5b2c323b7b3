"""
The admin queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw
from msgspec.json import encode
from twisted.internet.defer import Deferred

from ..access import Principal
from ..broker import Broker
from ..errors import (
    NodeUnavailable,
    Overloaded,
    PageIndexInvalid,
    PageSizeInvalid,
    ParameterInvalid,
)
from ..net.deferreds import asDeferred
from ._declarations import Operation, Parameter
from ._measures import MEASURES
from ._parameters import GROUP, PAGE_SIZE
from ._results import (
    BLOCKS,
    NODES,
    STATISTICS,
    STRINGS,
    SUBSCRIPTIONS,
    TRANSACTIONS,
    VERSION,
    encodeSubscriptions,
)
from ._types import HashType, ListType, NumberType, ParameterType

_PAGE_ERRORS = (PageIndexInvalid, PageSizeInvalid)

_PAGE_NUMBER = Parameter(
    name="pageNumber",
    type=NumberType(PageIndexInvalid, 1),
    default=1,
    description="The page, counted from 1.",
)
_BLOCK_NUMBER = Parameter(
    name="blockNumber",
    type=NumberType(ParameterInvalid, 0),
    default=None,
    description="Only what is in the block of this height.",
)
_NODE_IP = Parameter(
    name="nodeIp",
    type=ListType(),
    default=(),
    description="Nodes' addresses as listNodes has them, with commas between them; absent means "
    "this node.",
)
# Not L{GroupType}: absent means all groups, not group 1.
_GROUP_FILTER = Parameter(
    name="groupId",
    type=ParameterType(),
    default=None,
    description="Only subscriptions of this group.",
)
_TRANSACTION_HASH = Parameter(
    name="transactionHash",
    type=HashType(),
    default=None,
    description="Only the transaction of this hash.",
)
_BLOCK_HASH = Parameter(
    name="pkHash", type=HashType(), default=None, description="Only the block of this hash."
)
_NODE_NAME = Parameter(
    name="nodeName", type=ParameterType(), default=None, description="Only nodes of this name."
)

LISTED_AT_ONCE: Final = 200
"""The number of subscriptions that are encoded between two looks at the time: a millisecond."""


def _listing(broker: Broker) -> Callable[..., Deferred[Raw]]:
    """Listing live subscriptions, encoded a few at a time: there may be hundred thousands."""

    @asDeferred
    async def list(principal: Principal, **given: Any) -> Raw:
        nodes = await broker.admin.listSubscriptions(principal, **given)
        lane = broker.budgets.work.lane()
        listed = []
        for address, live in nodes.items():
            pieces = []
            for start in range(0, len(live), LISTED_AT_ONCE):
                if not lane.begin(isWrite=False):
                    await lane.turn(isWrite=False)
                pieces.append(encodeSubscriptions(live[start : start + LISTED_AT_ONCE]))
            listed.append(b"%b:{%b}" % (encode(address), b",".join(pieces)))
        lane.end()
        return Raw(b"{%b}" % b",".join(listed))

    return list


QUERIES: Final = (
    Operation(
        name="listGroup",
        summary="List the groups.",
        result=STRINGS,
        method=lambda broker: broker.admin.listGroups,
    ),
    Operation(
        name="listNodes",
        summary="List the addresses of the brokers, this one first.",
        result=STRINGS,
        method=lambda broker: broker.admin.listAddresses,
    ),
    Operation(
        name="listSubscription",
        summary="List the live subscriptions of nodes.",
        parameters=(_NODE_IP, _GROUP_FILTER),
        result=SUBSCRIPTIONS,
        errors=(NodeUnavailable, Overloaded),
        method=_listing,
    ),
    Operation(
        name="getVersion",
        summary="Tell which broker this is.",
        result=VERSION,
        method=lambda broker: broker.admin.getVersion,
    ),
    Operation(
        name="group/general",
        summary="Tell a group's chain in numbers.",
        parameters=(GROUP,),
        result=STATISTICS,
        method=lambda broker: broker.admin.getStatistics,
    ),
    Operation(
        name="group/measures",
        summary="Tell how long publishes to a group take, what waits, and what is left of the "
        "disk.",
        parameters=(GROUP,),
        result=MEASURES,
        method=lambda broker: broker.admin.getMeasures,
    ),
    Operation(
        name="transaction/transList",
        summary="List the chain's transactions, newest first.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _TRANSACTION_HASH, _BLOCK_NUMBER),
        result=TRANSACTIONS,
        errors=_PAGE_ERRORS,
        method=lambda broker: broker.admin.listTransactions,
    ),
    Operation(
        name="block/blockList",
        summary="List the chain's blocks, newest first.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _BLOCK_HASH, _BLOCK_NUMBER),
        result=BLOCKS,
        errors=_PAGE_ERRORS,
        method=lambda broker: broker.admin.listBlocks,
    ),
    Operation(
        name="node/nodeList",
        summary="List a group's nodes in the order of their indexes.",
        parameters=(GROUP, _PAGE_NUMBER, PAGE_SIZE, _NODE_NAME),
        result=NODES,
        errors=_PAGE_ERRORS,
        method=lambda broker: broker.admin.listNodes,
    ),
)
