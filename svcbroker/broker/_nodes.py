"""
This broker and its peers, by the addresses that the operator gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

from twisted.internet.defer import FirstError, gatherResults

from ..access import Principal
from ..errors import (
    BrokerError,
    GroupUnknown,
    NodeUnavailable,
    Overloaded,
    ParameterInvalid,
)
from ..interfaces import Action
from ..model import SubscriptionRecord
from ..net.deferreds import asDeferred
from ._dependencies import IPeer, ISubscriptionDirectory, PeerError

_MAX_QUOTED: Final = 300

# Of several failures, the one that is told: what the client can do something about first.
_RANKS = (ParameterInvalid, GroupUnknown, Overloaded, NodeUnavailable)


class Nodes:
    """
    This broker and those that it knows.

    @ivar addresses: what all of them are called, this one first. A peer with this broker's
        address is left out, so the list of peers may be the same on every broker.
    """

    def __init__(
        self,
        address: str,
        subscriptions: ISubscriptionDirectory,
        peers: Iterable[IPeer],
        timeout: float,
    ) -> None:
        """
        @param address: what this broker is called.
        @param subscriptions: those of this broker.
        @param timeout: how long an answer may take that needs other brokers, in seconds.
        """
        self._address = address
        self._subscriptions = subscriptions
        self._peers = {peer.name: peer for peer in peers if peer.name != address}
        self._timeout = timeout
        self.addresses: Sequence[str] = [address, *self._peers]

    @asDeferred
    async def listSubscriptions(
        self, principal: Principal, group: str | None, addresses: Sequence[str]
    ) -> Mapping[str, Sequence[SubscriptionRecord]]:
        """
        The live subscriptions of nodes, by their addresses: of all that were asked for, or none.
        Of other nodes they are told only where the principal may operate all groups asked for,
        since those do not tell whose they are.

        @param group: only those of this group; C{None} asks for all.
        @param addresses: the nodes; none at all means this one.
        @raise ParameterInvalid: no known node has one of the addresses.
        @raise GroupUnknown: one of the nodes does not serve the group.
        @raise Overloaded: one of the nodes is asked too often at the same time.
        @raise NodeUnavailable: one of the nodes gives no answer.
        """
        wanted = list(dict.fromkeys(addresses)) or [self._address]
        if len(wanted) > len(self.addresses):
            raise ParameterInvalid("nodeIp: there are fewer nodes than this")
        asking = [self._outcome(principal, group, address) for address in wanted]
        try:
            outcomes = await gatherResults(asking, consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()
        failed = [each for each in outcomes if isinstance(each, BrokerError)]
        if failed:
            _raise(failed)
        return {
            address: outcome
            for address, outcome in zip(wanted, outcomes, strict=True)
            if not isinstance(outcome, BrokerError)
        }

    @asDeferred
    async def _outcome(
        self, principal: Principal, group: str | None, address: str
    ) -> Sequence[SubscriptionRecord] | BrokerError:
        """The subscriptions of a node, or why there is no answer."""
        try:
            if address == self._address:
                return await self._subscriptions.listSubscriptions(principal, group)
            principal.require(Action.OPERATE, group or "*")
            peer = self._peers.get(address)
            if peer is None:
                quoted = address[:_MAX_QUOTED]
                return ParameterInvalid(f"no known node has this nodeIp: {quoted}")
            return await peer.listSubscriptions(group, self._timeout)
        except PeerError as error:
            return NodeUnavailable(f"node {address} {error}")
        except GroupUnknown:
            return GroupUnknown(f"node {address} does not serve this group")
        except Overloaded:
            return Overloaded(f"node {address} is asked too often, try again")
        except BrokerError as error:
            return error


def _raise(failed: Sequence[BrokerError]) -> NoReturn:
    """Raise what several failures come to."""
    for rank in _RANKS:
        alike = [each.message for each in failed if isinstance(each, rank)]
        if alike:
            raise rank("; ".join(alike))
    raise failed[0]
