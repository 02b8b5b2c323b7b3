"""
Offsets: the positions in a log that they stand for.
"""

from __future__ import annotations

from ...access import Principal
from ...errors import EventNotFound, HeightUnknown
from ...interfaces import Action, ILedger, topicOfEvent
from ...model import Edge, EventId, Moment, Offset, Position
from ._follower import Follower


async def locateOffset(follower: Follower, principal: Principal, offset: Offset) -> Position:
    """
    The position after which events begin that are read from an offset on.

    @param principal: who reads.
    @raise EventNotFound: the offset is the id of no event that the principal may read.
    @raise HeightUnknown: the offset is a block above the chain's next one.
    """
    ledger, following = follower.ledger, follower.committed + 1
    if offset is Edge.FIRST:
        return Position(1, -1)
    if isinstance(offset, Position):
        if offset.height > following:
            raise HeightUnknown("the offset names a block above the chain's height")
        return offset
    if isinstance(offset, Moment):
        return Position(await _firstNotBefore(ledger, offset, following), -1)
    if not isinstance(offset, EventId):
        return Position(following, -1)
    try:
        if not principal.isEverything:
            topic = await topicOfEvent(ledger, offset)
            if not principal.may(Action.SUBSCRIBE, ledger.group, topic):
                raise EventNotFound()
        return await ledger.locate(offset)
    except HeightUnknown:
        raise EventNotFound() from None


async def _firstNotBefore(ledger: ILedger, moment: Moment, following: int) -> int:
    """
    The height of the first block whose time is not before a moment. The times of a chain's blocks
    never fall, so a binary search finds it: 10 million blocks take 24 reads.

    Blocks that the ledger does not have (any more) count as older: they are the first ones of
    their chain.

    @param following: the height of the chain's next block, which is found where all are older.
    """
    low, high = 1, following
    while low < high:
        middle = (low + high) // 2
        page = await ledger.listBlocks(0, 1, height=middle)
        if page.items and page.items[0].timestamp >= moment.milliseconds:
            high = middle
        else:
            low = middle + 1
    return low
