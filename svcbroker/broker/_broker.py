"""
The use cases: topics and their authors, publishing, reading events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime

from ..access import Principal
from ..chain import authorsStatement, isUsableKey, verifySignature
from ..errors import (
    AuthorRefused,
    BrokerError,
    ParameterInvalid,
    SignatureInvalid,
    TopicNotFound,
    TransactionFailed,
)
from ..interfaces import Action, ILedger, IMeasuredLedger, INetworkLedger, isDecidedByChain, submit
from ..model import (
    AuthorChange,
    AuthorSet,
    ChangeAuthors,
    CloseTopic,
    Event,
    EventId,
    Execution,
    OpenTopic,
    Receipt,
    Topic,
)
from ..net.budgets import Budgets
from ..net.deferreds import asDeferred
from ..net.metrics import Tracer
from ._collaborators import (
    ISubscriptionDirectory,
    NumberedPage,
    ReadPage,
    ReadRequest,
    appliedSize,
    pageOffset,
    readable,
)
from ._groups import DEFAULT_GROUP, Groups, Limits, TimeoutQueue, checkTopic, listVisible
from ._pipeline import (
    DEFAULT_POLICY,
    Outcome,
    Publication,
    Publishing,
    PublishPolicy,
    TracedPublishing,
)


def authorSetOf(
    known: Topic | None, authors: Sequence[bytes] | None, admins: Sequence[bytes] | None
) -> AuthorSet | None:
    """
    The authors that a topic is opened with.

    @param known: the topic, if it was opened before.
    @return: C{None} where there is no parameter for them.
    @raise ParameterInvalid: there are admins and no authors, or a key of a new topic is not usable.
    @raise AuthorRefused: the topic has others.
    """
    if authors is None:
        if admins is not None:
            raise ParameterInvalid("admins: there are no authors")
        return None
    wanted = AuthorSet(authors=tuple(authors), admins=tuple(admins or ()))
    if known is None:
        _checkKeys(wanted)
    else:
        current = known.authors
        if current is None or (current.authors, current.admins) != (wanted.authors, wanted.admins):
            raise AuthorRefused("topic exists and has other authors")
    return wanted


def _checkKeys(wanted: AuthorSet, current: AuthorSet | None = None) -> None:
    """
    Check the keys of a set of authors that a topic does not have yet.

    @param current: the topic's authors, whose keys are not checked.
    @raise ParameterInvalid: nobody can sign with one of them, or everybody can.
    """
    known = () if current is None else (*current.authors, *current.admins)
    for name, keys in (("authors", wanted.authors), ("admins", wanted.admins)):
        for key in keys:
            if key not in known and not isUsableKey(key):
                raise ParameterInvalid(
                    f"{name}: {key.hex()} is not a usable Ed25519 key: not canonical, of low "
                    "order, or no point of the curve"
                )


def _isDone(known: Topic | None, following: AuthorSet, admin: bytes) -> bool:
    """
    Whether a topic has a set of authors already.

    @param known: the topic, if it was opened before.
    @param admin: the key that wants to change its authors to this set.
    @raise TopicNotFound, AuthorRefused, ParameterInvalid: it cannot get this set.
    """
    if known is None or not known.isOpen:
        raise TopicNotFound()
    current = known.authors
    if current == following:
        return True
    if current is None:
        raise AuthorRefused("topic has no authors: it gets them when it is opened first")
    if admin not in current.admins:
        raise AuthorRefused("this key may not change the authors of the topic")
    if following.generation != current.generation + 1:
        raise ParameterInvalid(f"generation: the next one is {current.generation + 1}")
    _checkKeys(following, current)
    return False


class TopicAuthors:
    """
    Changes of the authors of topics. They are authorised by signatures; the account only needs the
    right to open the topic.
    """

    def __init__(self, groups: Groups, timeouts: TimeoutQueue) -> None:
        self._groups = groups
        self._timeouts = timeouts

    @asDeferred
    async def change(
        self,
        principal: Principal,
        groupId: str | None,
        topic: str,
        generation: int,
        authors: Sequence[bytes],
        admin: bytes,
        signature: bytes,
        admins: Sequence[bytes] = (),
    ) -> bool:
        """
        Change who may publish to a topic. Always C{True}; the same change again changes nothing.

        @param generation: that of the new set: one more than that of the current set.
        @param authors: the public keys of those who may publish, rising.
        @param admins: those of the keys that may change the set, rising.
        @param admin: the public key of an admin of the current set.
        @param signature: its signature of the change.
        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise TopicNotFound: there is no such open topic.
        @raise AuthorRefused: the topic has no authors, or this key may not change them.
        @raise ParameterInvalid: the current set has another generation.
        @raise SignatureInvalid: the signature is not the admin's.
        @raise TransactionFailed: the chain refused.
        """
        group, ledger = self._groups.find(principal, groupId)
        checkTopic(ledger, topic)
        principal.require(Action.OPEN, group, topic)
        following = AuthorSet(generation=generation, authors=tuple(authors), admins=tuple(admins))
        isDecided = isDecidedByChain(ledger)
        if not isDecided and _isDone(ledger.topicState(topic), following, admin):
            return True
        # A ledger that does not tell its chain checks signatures alone.
        if ledger.chain and not verifySignature(
            admin, authorsStatement(ledger.chain, topic, following), signature
        ):
            raise SignatureInvalid("signature is not that of the admin")
        change = AuthorChange(following=following, admin=admin, signature=signature)
        request = ChangeAuthors(topic=topic, change=change)
        receipt = await self._timeouts.wait(submit(ledger, request))
        if receipt.execution is Execution.TOPIC_NOT_FOUND:
            raise TopicNotFound()
        if receipt.execution is Execution.REFUSED:
            # This node is as far as the receipt now.
            if isDecided and _isDone(ledger.topicState(topic), following, admin):
                return True
            raise SignatureInvalid("signature is not the admin's, or another change was first")
        if receipt.execution is not Execution.DONE:
            raise TransactionFailed()
        return True


class Broker:
    """
    A publish/subscribe broker over the ledgers of its groups.

    Every method answers with a Deferred, which fails with a
    L{BrokerError<svcbroker.errors.BrokerError>} for whatever a client is to be told. Apart
    from what is named at a method, any of them may fail with C{GroupUnknown}, C{Overloaded},
    C{LedgerUnavailable} and, publish aside, C{TransactionTimeout}. The group is looked up
    before anything else is checked, only C{list} looks at its paging first.

    Every call is made by a principal, which is given first, and fails with C{NotAuthorized}
    where that is not granted what it asks for. What it may not read looks as if it were not there.

    Cancelling an answer only ends the waiting for it: what was submitted to a ledger
    stays submitted.

    @ivar groups: the groups that it serves.
    @ivar limits: what it takes.
    @ivar clock: how it measures time.
    @ivar budgets: what all connections share.
    @ivar isTraced: whether a tracer is told of each publish.
    @ivar meter: counts publishes.
    @ivar turn: the end of a turn of the reactor, at which what was published in it is submitted.
    @ivar subscriptions: the live subscriptions.
    @ivar timeouts: bound how long calls wait for the chain.
    """

    def __init__(
        self,
        ledgers: Mapping[str, ILedger],
        clock: IReactorTime,
        limits: Limits,
        subscriptions: ISubscriptionDirectory,
        *,
        source: str = "/svcbroker",
        tracer: Tracer | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """
        @param ledgers: the ledger of each group, by the group's id, in the operator's order.
        @param subscriptions: what C{events} reads.
        @param source: what the C{source} of CloudEvents begins with: the base path.
        @param tracer: is told of publishes; C{None} for no spans.
        @param budgets: what all connections share; C{None} makes them.
        """
        self.groups = Groups(ledgers)
        self._networks: Mapping[str, IMeasuredLedger] = {
            group: IMeasuredLedger(ledger)
            for group, ledger in ledgers.items()
            if INetworkLedger.providedBy(ledger) and IMeasuredLedger.providedBy(ledger)
        }
        self.limits = limits
        self.clock = clock
        self.budgets = Budgets.of(clock) if budgets is None else budgets
        self.subscriptions = subscriptions
        self.source = source
        self.isTraced = tracer is not None
        self.timeouts = TimeoutQueue(clock, limits.chainTimeout)
        self._publishing = (
            Publishing(self.groups, limits, clock, self.budgets.work)
            if tracer is None
            else TracedPublishing(self.groups, limits, clock, self.budgets.work, tracer)
        )
        self.meter, self.turn = self._publishing.meter, self._publishing.turn

    @property
    def hasNetworks(self) -> bool:
        """Whether a group has a ledger that other nodes have, too."""
        return any(INetworkLedger.providedBy(ledger) for _, ledger in self.groups.items())

    def stop(self) -> None:
        """Let go of the clock. Called once, after the ledgers have stopped."""
        self.budgets.stop()
        self._publishing.stop()
        self.timeouts.stop()

    def open(
        self,
        principal: Principal,
        groupId: str | None,
        topic: str,
        authors: Sequence[bytes] | None = None,
        admins: Sequence[bytes] | None = None,
    ) -> Deferred[bool]:
        """
        Create a topic, or open it again. Always C{True}; opening an open topic changes nothing.

        @param authors: the public keys of those who may publish to it, rising; C{None} for
            everybody. An existing topic must have the same ones.
        @param admins: those of the keys that may change the authors, rising.
        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise ParameterInvalid: there are admins and no authors.
        @raise AuthorRefused: the topic exists and has other authors.
        @raise TransactionFailed: the chain refused.
        """
        return maybeDeferred(self._open, principal, groupId, topic, authors, admins)

    def _open(
        self,
        principal: Principal,
        groupId: str | None,
        topic: str,
        authors: Sequence[bytes] | None,
        admins: Sequence[bytes] | None,
    ) -> Deferred[bool]:
        group, ledger = self.groups.find(principal, groupId)
        checkTopic(ledger, topic)
        self.require(principal, Action.OPEN, group, topic)
        # What this node knows of the topic may be old by then.
        isUndecided = self._publishing.isUndecided(ledger, topic)
        known = None if isUndecided else ledger.topicState(topic)
        wanted = authorSetOf(known, authors, admins)
        if known is not None and known.isOpen:
            return succeed(True)
        request = OpenTopic(topic=topic, authors=wanted)
        return self._publishing.change(ledger, request).addCallback(_opened, request)

    def close(self, principal: Principal, groupId: str | None, topic: str) -> Deferred[bool]:
        """
        Close an open topic. What was published to it stays.

        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise TopicNotFound: there is no such open topic.
        @raise TransactionFailed: the chain refused.
        """
        return maybeDeferred(self._close, principal, groupId, topic)

    def _close(self, principal: Principal, groupId: str | None, topic: str) -> Deferred[bool]:
        group, ledger = self.groups.find(principal, groupId)
        checkTopic(ledger, topic)
        self.require(principal, Action.CLOSE, group, topic)
        if not self._publishing.isUndecided(ledger, topic):
            _openTopic(ledger, topic)
        request = CloseTopic(topic=topic)
        return self._publishing.change(ledger, request).addCallback(_closed)

    def require(self, principal: Principal, action: Action, group: str, topic: str) -> None:
        """
        Refuse to publish to a topic, to open it or to close it where that is not granted, or where
        only the broker itself may. Called by carriers for what is published later.

        @param group: the id of a group.
        @raise NotAuthorized: it is not granted.
        """
        principal.require(action, group, topic)
        if topic in self.limits.reservedTopics:
            principal.refuse(action, group, topic)

    def exist(self, principal: Principal, groupId: str | None, topic: str) -> Deferred[bool]:
        """
        Whether there is such an open topic, as far as the principal may know.

        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        """
        return maybeDeferred(self._exist, principal, groupId, topic)

    def _exist(self, principal: Principal, groupId: str | None, topic: str) -> bool:
        group, ledger = self.groups.find(principal, groupId)
        checkTopic(ledger, topic)
        known = ledger.topicState(topic)
        return known is not None and known.isOpen and principal.sees(group, topic)

    def publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy = DEFAULT_POLICY,
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> Deferred[Sequence[Any]]:
        """
        Publish events that were asked for together: the only way in, for every carrier. They enter
        the log in their order, each group's apart, and after everything that was asked for before.

        Fires with the outcomes, in the order of the events, when all are known, or at the chain's
        time-out where the policy has one. It does not fail: an event's outcome is its
        L{SendResult<svcbroker.broker.SendResult>}, or the error why it is not in the log, as far as
        is known:

          - C{TopicBlank}, C{TopicTooLong}, C{TopicInvalid}: this is no topic's name.
          - C{ContentBlank}, C{ContentTooLarge}: this cannot be an event's content.
          - C{ExtensionKeyInvalid}, C{ExtensionsTooLarge}: these cannot be an event's extensions.
          - C{TopicNotFound}: there is no such open topic.
          - C{TransactionFailed}: the chain refused.
          - C{QuotaExceeded}: the account has used up its rate. Nothing was submitted.
          - C{SignatureInvalid}: the signature is not the author's. Nothing was submitted.
          - C{AuthorRefused}: the topic takes events of certain authors only.
          - C{IdempotencyConflict}: the idempotency key was used for another event.
          - C{SequenceConflict}: the topic has another sequence number than the expected one.

        A time-out of the chain is no error but C{TIMEOUT}, since the event may still appear; so is
        C{ERROR}, where the topic was closed while the publish waited. An event that was published
        before with its idempotency key has the outcome that it had then.

        @param principal: who publishes.
        @param publications: the events, of any groups.
        @param policy: what the carrier wants of publishing.
        @param refused: called before this returns where a check has refused events: with the
            outcomes so far, C{None} where there is none. For carriers that must know it at once.
        """
        return self._publishing.publish(principal, publications, policy, refused)

    def publishInTurn(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        answered: Callable[[Any], object],
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> None:
        """
        Publish events as L{publish} does. Where there is one, it is published together with those
        of all connections that publish one in this turn of the reactor, for the same account and
        with the same policy: most of what a publish costs is done once for all of them. It is in
        the log after everything that its connection has published before.

        @param answered: called once, with the outcomes that L{publish} fires with, or with its
            C{Failure}; before this returns where all are refused at once.
        """
        self._publishing.publishInTurn(principal, publications, policy, answered, refused)

    def freshness(self, groupId: str | None) -> tuple[int, float] | None:
        """
        The height of a group's ledger on this node, and how many seconds ago the node had, for all
        it knows, what the others have.

        @return: C{None} where there is no such group, or only this broker has its ledger.
        """
        ledger = self._networks.get(groupId or DEFAULT_GROUP)
        if ledger is None:
            return None
        measures = ledger.measure()
        if measures.height is None or measures.age is None:
            return None
        return measures.height, measures.age

    def reach(
        self, principal: Principal, groupId: str | None, eventId: EventId, remote: str
    ) -> Deferred[None]:
        """
        Wait, for a bounded time, until this node has executed the block of an event: one that a
        client has seen, maybe at another node.

        @param remote: the address of the client, of which only so many calls may wait.
        @raise HeightUnknown: no other node can have such a block.
        @raise NodeBehind: this node does not have it in time.
        @raise QuotaExceeded: too many calls wait, in all or of this client.
        """
        return self.subscriptions.reach(principal, groupId, eventId, remote)

    def getEvent(
        self, principal: Principal, groupId: str | None, eventId: EventId
    ) -> Deferred[Event]:
        """
        One event, of a closed topic too.

        @raise EventNotFound: there is no such event, or the principal may not read it.
        @raise EventErased: its content was erased.
        @raise HeightUnknown: its block is above the chain's height.
        """
        try:
            group, ledger = self.groups.find(principal, groupId)
        except BrokerError as error:
            return fail(error)
        event = self.timeouts.wait(ledger.getEvent(eventId))
        return event if principal.isEverything else readable(event, principal, group)

    def readEvents(self, principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        """
        Events of a topic, or of all topics that a pattern matches, in the order of the log or in
        reverse. Events of closed topics are read too.

        @param request: what to read. Its group is the id of one that is served.
        @raise ParameterInvalid: in reverse there is nothing to wait for.
        @raise BrokerError: as L{ISubscriptionDirectory.readEvents} does.
        """
        if request.isReverse and request.wait:
            return fail(ParameterInvalid("wait: in reverse, there is no event to wait for"))
        return self.subscriptions.readEvents(principal, request)

    @asDeferred
    async def list(
        self, principal: Principal, pageIndex: int, pageSize: int, groupId: str | None
    ) -> NumberedPage[Topic]:
        """
        Open topics in the order of their creation: those that the principal may know of.

        @param pageIndex: the page, from 0.
        @param pageSize: 1 to 99; anything else means 10.
        @raise PageIndexInvalid: there can be no such page.
        """
        size = appliedSize(pageSize)
        offset = pageOffset(pageIndex, 0, size)
        _, ledger = self.groups.find(principal, groupId)
        if principal.isEverything:
            page = await self.timeouts.wait(ledger.listTopics(offset, size))
        else:
            given = (offset, size, self.timeouts, self.budgets.work)
            page = await listVisible(principal, ledger, *given)
        return NumberedPage(page=page, index=pageIndex, size=size)

    def state(self, principal: Principal, groupId: str | None, topic: str) -> Deferred[Topic]:
        """
        The state of an open topic by the chain.

        @raise TopicBlank, TopicTooLong, TopicInvalid: this is no topic's name.
        @raise TopicNotFound: there is no such open topic, or the principal may not know of it.
        """
        return maybeDeferred(self._state, principal, groupId, topic)

    def _state(self, principal: Principal, groupId: str | None, topic: str) -> Topic:
        group, ledger = self.groups.find(principal, groupId)
        checkTopic(ledger, topic)
        if not principal.sees(group, topic):
            raise TopicNotFound()
        return _openTopic(ledger, topic)


def _opened(receipt: Receipt, request: OpenTopic) -> bool:
    if receipt.execution is Execution.REFUSED and request.authors is not None:
        raise AuthorRefused("topic exists and has other authors")
    if receipt.execution is not Execution.DONE:
        raise TransactionFailed()
    return True


def _closed(receipt: Receipt) -> bool:
    if receipt.execution is Execution.TOPIC_NOT_FOUND:
        raise TopicNotFound()
    if receipt.execution is not Execution.DONE:
        raise TransactionFailed()
    return True


def _openTopic(ledger: ILedger, topic: str) -> Topic:
    known = ledger.topicState(topic)
    if known is None or not known.isOpen:
        raise TopicNotFound()
    return known
