"""
Several brokers, one picture: this one and its peers, by what each calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime

from ..errors import (
    BrokerError,
    GroupUnknown,
    NodeUnavailable,
    Overloaded,
    ParameterInvalid,
)
from ..model import SubscriptionRecord
from ._neighbour import Neighbour
from ._peers import Identity, IPeer, PeerError
from ._subscriptions import ISubscriptionDirectory

T = TypeVar("T")

_MAX_QUOTED: Final = 300
_ROUNDS: Final = 2

# Of several failures, the one that is told: what the client can do something about first.
_RANKS = (ParameterInvalid, GroupUnknown, Overloaded, NodeUnavailable)


class Nodes:
    """
    This broker and those that it knows.

    A peer is asked for its name when somebody wants to know, not before, and not again within
    L{FRESH<svcbroker.broker._neighbour.FRESH>} seconds. What it said last holds while it is
    down; one that has never answered is called by the host and port of its URL. A peer that is
    this broker itself is left out. Peers that call themselves alike are one name in the list; if
    they turn out to be different brokers, asking for that name fails.

    @ivar identity: this broker.
    """

    def __init__(
        self,
        identity: Identity,
        subscriptions: ISubscriptionDirectory,
        peers: Iterable[IPeer],
        clock: IReactorTime,
        timeout: float,
    ) -> None:
        """
        @param subscriptions: those of this broker.
        @param timeout: how long an answer may take that needs other brokers, in seconds.
        """
        self.identity = identity
        self._subscriptions = subscriptions
        self._neighbours = [Neighbour(peer, identity, clock) for peer in peers]
        self._clock = clock
        self._timeout = timeout

    def listAddresses(self) -> Deferred[Sequence[str]]:
        """What all of them are called, this one first. Does not fail."""
        return Deferred.fromCoroutine(self._listAddresses())

    async def _listAddresses(self) -> Sequence[str]:
        await self._learn(self._stale(), self._deadline())
        named = (each.address or each.peer.name for each in self._others())
        return list(dict.fromkeys((self.identity.address, *named)))

    def listSubscriptions(
        self, group: str | None, addresses: Sequence[str]
    ) -> Deferred[Mapping[str, Sequence[SubscriptionRecord]]]:
        """
        The live subscriptions of nodes, by their addresses: of all that were asked for, or none.

        @param group: only those of this group; C{None} asks for all.
        @param addresses: the nodes; none at all means this one.
        @raise ParameterInvalid: no known node has one of the addresses.
        @raise GroupUnknown: one of the nodes does not serve the group.
        @raise Overloaded: one of the nodes is asked too often at the same time.
        @raise NodeUnavailable: one of the nodes gives no answer.
        """
        return Deferred.fromCoroutine(self._listSubscriptions(group, addresses))

    async def _listSubscriptions(
        self, group: str | None, addresses: Sequence[str]
    ) -> Mapping[str, Sequence[SubscriptionRecord]]:
        wanted = list(dict.fromkeys(addresses)) or [self.identity.address]
        if len(wanted) > 1 + len(self._neighbours):
            raise ParameterInvalid("nodeIp: there are fewer nodes than this")
        deadline = self._deadline()
        asking = [
            Deferred.fromCoroutine(self._outcome(group, address, deadline)) for address in wanted
        ]
        outcomes = await _together(asking)
        failed = [each for each in outcomes if isinstance(each, BrokerError)]
        if failed:
            _raise(failed)
        return {
            address: outcome
            for address, outcome in zip(wanted, outcomes, strict=True)
            if not isinstance(outcome, BrokerError)
        }

    async def _outcome(
        self, group: str | None, address: str, deadline: float
    ) -> Sequence[SubscriptionRecord] | BrokerError:
        try:
            return await self._subscriptionsOf(group, address, deadline)
        except BrokerError as error:
            return error

    async def _subscriptionsOf(
        self, group: str | None, address: str, deadline: float
    ) -> Sequence[SubscriptionRecord]:
        for _ in range(_ROUNDS):
            node = await self._find(address, deadline)
            if node is None:
                return await self._subscriptions.listSubscriptions(group)
            try:
                told, records = await node.peer.listSubscriptions(group, self._left(deadline))
            except PeerError as error:
                raise NodeUnavailable(f"node {address} {error}") from error
            except GroupUnknown:
                raise GroupUnknown(f"node {address} does not serve this group") from None
            except Overloaded:
                raise Overloaded(f"node {address} is asked too often, try again") from None
            if told != node.address:
                node.moved(told)
            if told == address:
                return records
            # What others are called may have changed with it.
            for each in self._neighbours:
                each.doubt()
        raise NodeUnavailable(f"node {address} changes its address again and again")

    async def _find(self, address: str, deadline: float) -> Neighbour | None:
        """
        Who has an address.

        @return: the peer; C{None} is this broker.
        @raise ParameterInvalid: nobody.
        @raise NodeUnavailable: that cannot be told.
        """
        found = self._called(address)
        if address == self.identity.address:
            if found:
                await self._settle(address, found, deadline)
            return None
        if not found:
            unnamed = self._unnamed(address)
            if len(unnamed) == 1:
                return unnamed[0]
            await self._learn(self._stale(), deadline)
            found = self._called(address)
            if not found:
                self._refuse(address)
        if len(found) > 1:
            return await self._settle(address, found, deadline)
        return found[0]

    async def _settle(
        self, address: str, found: Sequence[Neighbour], deadline: float
    ) -> Neighbour | None:
        """
        Who has an address that several seem to have: some may only have had it.

        @param found: the peers that seem to have it.
        """
        await self._learn(found, deadline)
        heard = [each for each in self._called(address) if each.isFresh and not each.trouble]
        instances = {each.instance for each in heard}
        if address == self.identity.address:
            instances.add(self.identity.instance)
        if len(instances) > 1:
            others = " and ".join(each.peer.name for each in heard)
            raise NodeUnavailable(
                f"node {address} is not one but several: give each broker an address of its own "
                f"(the peers at {others})"
            )
        if heard:
            return heard[0]
        if address == self.identity.address:
            return None
        raise NodeUnavailable(f"node {address} {found[0].trouble or 'has another address now'}")

    def _refuse(self, address: str) -> NoReturn:
        quoted = address[:_MAX_QUOTED]
        silent = [each for each in self._others() if each.address is None]
        if silent:
            # One of them may be the one.
            raise NodeUnavailable(
                f"no known node is {quoted}, and some have not told their address yet: "
                + "; ".join(f"{each.peer.name} {each.trouble}" for each in silent)
            )
        hints = [
            f"; the one that is reached at {each.peer.name} calls itself {each.address}"
            for each in self._others()
            if each.peer.name == address
        ]
        raise ParameterInvalid(f"no known node has this nodeIp: {quoted}{''.join(hints)}")

    def _stale(self) -> list[Neighbour]:
        return [each for each in self._others() if not each.isFresh]

    def _others(self) -> list[Neighbour]:
        return [each for each in self._neighbours if not each.isSelf]

    def _called(self, address: str) -> list[Neighbour]:
        """The peers that call themselves so, as far as it is known."""
        return [each for each in self._others() if each.address == address]

    def _unnamed(self, address: str) -> list[Neighbour]:
        """The peers that are called so for want of their own name."""
        return [
            each for each in self._others() if each.address is None and each.peer.name == address
        ]

    async def _learn(self, neighbours: Sequence[Neighbour], deadline: float) -> None:
        left = self._left(deadline)
        await _together([each.learn(left) for each in neighbours])

    def _deadline(self) -> float:
        return self._clock.seconds() + self._timeout

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.seconds())


async def _together(asking: Sequence[Deferred[T]]) -> list[T]:
    """Wait for all; being cancelled cancels them."""
    try:
        return await gatherResults(asking, consumeErrors=True)
    except FirstError as error:
        error.subFailure.raiseException()


def _raise(failed: Sequence[BrokerError]) -> NoReturn:
    """Raise what several failures come to."""
    for rank in _RANKS:
        alike = [each.message for each in failed if isinstance(each, rank)]
        if alike:
            raise rank("; ".join(alike))
    raise failed[0]
