"""
Waiting for blocks that other nodes of the network have, and this one does not have yet.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime

from ...access import Principal
from ...errors import NodeBehind
from ...model import EventId, Offset, Position
from ._follower import Follower
from ._places import Places

WAIT: Final = 10.0
"""The seconds that a call waits for a block that this node does not have yet."""

MAX_CALLS: Final = 1000
"""The most calls that wait for a block at the same time; one account or address has a share."""


class HeightWaits:
    """
    Calls that wait until this node has a block.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._places = Places(MAX_CALLS, "calls that wait for a block")
        self._waiting: dict[Deferred[None], None] = {}
        self._isDrained = False

    async def reachOffset(
        self, follower: Follower, principal: Principal, offset: Offset, remote: str
    ) -> None:
        """Wait as L{reach} does until an offset can be located."""
        if isinstance(offset, EventId):
            await self.reach(follower, principal, offset.height, remote)
        elif isinstance(offset, Position):
            # Before the chain's next block is a place, too.
            await self.reach(follower, principal, offset.height - 1, remote)

    async def reach(
        self, follower: Follower, principal: Principal, height: int, remote: str
    ) -> None:
        """
        Wait until this node has the block of a height. A ledger that only this node has is not
        waited for: nobody else can have told of a block above its height.

        @param remote: the client's address; only so many of its calls may wait.
        @raise NodeBehind: it does not have the block in L{WAIT} seconds, or is about to stop.
        @raise QuotaExceeded: too many calls wait, in all or of this client.
        """
        if height <= follower.committed or not follower.isOfNetwork:
            return
        if self._isDrained:
            raise NodeBehind()
        place = self._places.take(principal, remote)
        reached = follower.awaitHeight(height)
        self._waiting[reached] = None
        reached.addTimeout(WAIT, self._reactor)
        try:
            await reached
        except TimeoutError:
            raise NodeBehind(
                f"this node has blocks up to {follower.committed}, and {height} was not there "
                f"within {WAIT:g} seconds: try again, or ask another node"
            ) from None
        finally:
            del self._waiting[reached]
            self._places.release(place)
            follower.forgetHeight(height, reached)
        # Many may have waited for one block.
        await follower.turns.turn()

    def drain(self) -> Deferred[None]:
        """Refuse all calls that wait, and those that would wait from now on."""
        self._isDrained = True
        for waiting in tuple(self._waiting):
            waiting.errback(NodeBehind())
        return succeed(None)
