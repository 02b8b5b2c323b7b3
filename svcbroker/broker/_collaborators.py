"""
The interfaces of what the broker depends on (live subscriptions, webhooks and other brokers), and
its answers where the ledger's own values are not the whole answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import Interface

from ..access import Principal
from ..errors import EventErased, EventNotFound, PageIndexInvalid
from ..interfaces import Action, Batch
from ..model import (
    DurablePage,
    Edge,
    Event,
    EventFormat,
    EventId,
    InterfaceType,
    Offset,
    Owner,
    Page,
    SubscriptionRecord,
    WebhookKey,
    WebhookPage,
)

T = TypeVar("T")

DEFAULT_READ: Final = 100
"""The most events that C{events} answers, where the client does not say."""
MAX_READ: Final = 1000
"""The most events that C{events} answers."""
MAX_WAIT: Final = 30
"""The longest time that C{events} waits for an event, in seconds."""

DEFAULT_PAGE_SIZE: Final = 10
MAX_PAGE_SIZE: Final = 99
MAX_PAGE_NUMBER: Final = 10**15
"""The highest page that can be asked for. No chain comes near; every JSON reader can hold it."""


def readable(event: Deferred[Event], principal: Principal, group: str) -> Deferred[Event]:
    """
    An event that was asked for by its id, as far as a principal may read it.

    @raise EventNotFound: the principal may not.
    """

    def check(topic: str) -> None:
        if not principal.may(Action.SUBSCRIBE, group, topic):
            raise EventNotFound()

    def found(event: Event) -> Event:
        check(event.topic)
        return event

    def failed(failure: Failure) -> Failure:
        if isinstance(failure.value, EventErased):
            check(failure.value.topic)
        return failure

    return event.addCallbacks(found, failed)


@frozen(kw_only=True)
class NumberedPage(Generic[T]):
    """
    One page of a long list, as it was asked for.

    @ivar page: what is on it.
    @ivar index: its number, as it was asked.
    @ivar size: the most items that it could have, as it was applied.
    """

    page: Page[T]
    index: int
    size: int


@frozen(kw_only=True)
class ReadRequest:
    """
    A request for a part of a group's log.

    @ivar group: the id of the group.
    @ivar filter: a topic or a pattern.
    @ivar offset: where reading begins.
    @ivar limit: the most events to read, 1 to L{MAX_READ}.
    @ivar tag: only events whose extension C{svc-tag} equals it; C{None} for all.
    @ivar wait: how long to wait for an event where there is none, in seconds.
    @ivar isReverse: whether the newest events come first: those before the offset, and of an
        offset that is a height, those up to the end of this block.
    @ivar hasTombstones: whether erased events are read too; otherwise they are left out.
    @ivar remote: the address of the client, as L{peerText<svcbroker.net.addresses.peerText>} gives
        it.
    """

    group: str
    filter: str
    offset: Offset
    limit: int = DEFAULT_READ
    tag: str | None = None
    wait: float = 0
    isReverse: bool = False
    hasTombstones: bool = False
    remote: str = ""


@frozen(kw_only=True)
class ReadPage:
    """
    Some events of a group's log.

    @ivar batches: the events, in the order in which they were asked for.
    @ivar next: where the next page begins: an event's id, or a block's height.
    @ivar isAtEnd: whether everything was read: up to the end of the log, or in reverse up to its
        beginning. Otherwise there may be more events.
    @ivar leftOut: how many erased events were left out.
    """

    batches: Sequence[Batch]
    next: EventId | int
    isAtEnd: bool
    leftOut: int = 0


def appliedSize(asked: int) -> int:
    """The page size that is applied when this one is asked for."""
    return asked if 1 <= asked <= MAX_PAGE_SIZE else DEFAULT_PAGE_SIZE


def pageOffset(index: int, first: int, size: int) -> int:
    """
    The number of items before a page.

    @param index: the page's number.
    @param first: the number of the first page.
    @param size: the page size that is applied.
    @raise PageIndexInvalid: there can be no such page.
    """
    if not first <= index <= MAX_PAGE_NUMBER:
        raise PageIndexInvalid()
    return (index - first) * size


# Methods of a zope.interface take no "self".
# ruff: noqa: N805


class ISubscriptionDirectory(Interface):
    """
    The live subscriptions of this node, and what is read without one.
    """

    def readEvents(principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        """
        Read events of a group's log, for C{events}. Called by the broker. Cancelling it ends the
        reading.

        @param principal: who reads. It gets what it may read.
        @raise NotAuthorized: the principal may read nothing that the filter matches.
        @raise NotAuthenticated: its account went meanwhile.
        @raise TopicBlank, TopicTooLong, TopicInvalid, PatternInvalid: this is no filter.
        @raise TopicNotFound: the filter is a plain topic that was never opened.
        @raise EventNotFound, HeightUnknown: the offset is no place in the log.
        @raise NodeBehind: the offset is a place that this node has not reached, nor in the time
            that the call has waited.
        @raise QuotaExceeded: too many calls wait for events, in all or of this client.
        @raise LedgerUnavailable: the log cannot be read.
        """

    def reach(
        principal: Principal, groupId: str | None, eventId: EventId, remote: str
    ) -> Deferred[None]:
        """
        Wait, for a bounded time, until this node has the block of an event that another node has
        told of. Called by the broker for calls that name one. Cancelling it ends the wait.

        @param remote: the client's address.
        @raise NotAuthorized, GroupUnknown: see L{Groups.resolve}.
        @raise HeightUnknown: no other node can have such a block.
        @raise NodeBehind: this node does not have it in time.
        @raise QuotaExceeded: too many calls wait, in all or of this client.
        """

    def listSubscriptions(
        principal: Principal, group: str | None
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        """
        The live subscriptions, for C{listSubscription}. Called by the broker, once a query.

        @param principal: who asks. It is told of its own, and in groups that it may operate of
            those of others too.
        @param group: only those of this group; C{None} asks for all.
        """


class IDurableSubscriptions(Interface):
    """
    Subscriptions of one protocol that outlive the connections of their clients: the durable ones
    of STOMP by their ids, the sessions of MQTT by their client ids. Called by the operations and
    operator calls about them. Where an owner is given, those of others are as if they were not.

    Those that a client uses now are only listed: the client would not notice a change, or make
    the subscription again at once.
    """

    def listDurable(group: str, after: str, limit: int, owner: Owner | None) -> DurablePage:
        """
        A page of a group, those in use included.

        @param after: only ids greater than this one.
        @param limit: the most to answer, 1 or more. There may be fewer though there is a next page.
        @param owner: only those of this owner; C{None} for all.
        """

    def resetDurable(group: str, id: str, offset: Offset, owner: Owner | None) -> Deferred[None]:
        """
        Have a subscription, or all of a session but its shared ones, resume at an offset. It is on
        stable storage once this fires.

        @raise SubscriptionNotFound: there is no such one in the group.
        @raise SubscriptionExists: a client uses it now.
        @raise EventNotFound, HeightUnknown: the offset is no place in the log.
        """

    def deleteDurable(group: str, ids: Sequence[str], owner: Owner | None) -> Deferred[int]:
        """
        End subscriptions or sessions, and forget where they stand.

        @return: fires with how many were ended, once that is on stable storage. They are fewer if
            clients came back meanwhile.
        @raise SubscriptionNotFound: there is no such one in the group. None is ended.
        @raise SubscriptionExists: a client uses one now. None is ended.
        """


@frozen(kw_only=True)
class WebhookRequest:
    """
    A request to send events to a URL: the parameters of C{subscribe}.

    @ivar interfaceType: the form of the events: RESTful or JsonRPC.
    @ivar topic: topics or patterns, each valid.
    @ivar groupId: the id of a group that is served.
    @ivar subscriptionId: a UUID in its canonical form; C{None} has one made.
    @ivar url: the receiver.
    @ivar offset: where it starts.
    @ivar tag: only events whose C{svc-tag} equals it.
    @ivar headers: more headers of each request.
    @ivar secret: the name of the operator's secret that signs.
    @ivar batch: the most events in a request; C{None} sends each alone, and not in an array.
    @ivar batchSeconds: how long the first event of a batch waits for others.
    @ivar maxAttempts: how often an event is tried; C{None} has no end.
    @ivar deadLetter: the topic that an event is published to after that; C{None} for the webhook's
        own.
    @ivar format: how events are written.
    @ivar certificate: the name of the operator's certificate that is shown to the receiver.
    @ivar hasTombstones: whether erased events are sent too.
    """

    interfaceType: InterfaceType
    topic: tuple[str, ...]
    groupId: str
    subscriptionId: str | None = None
    url: str
    offset: Offset = Edge.LAST
    tag: str | None = None
    headers: Mapping[str, str] = field(factory=dict)
    secret: str | None = None
    batch: int | None = None
    batchSeconds: int | None = None
    maxAttempts: int | None = None
    deadLetter: str | None = None
    format: EventFormat = EventFormat.SVC
    certificate: str | None = None
    hasTombstones: bool = False


@frozen(kw_only=True)
class JobReport:
    """
    A command that the broker runs for an operator.

    @ivar name: what it is called, such as C{audit}.
    @ivar command: what an operator would type.
    @ivar startedAt: when it was started, in milliseconds since the epoch.
    @ivar endedAt: when it has ended; C{None} while it runs.
    @ivar isGood: whether it has ended with status 0.
    @ivar output: the last lines that it has written.
    """

    name: str
    command: tuple[str, ...]
    startedAt: int
    endedAt: int | None = None
    isGood: bool = False
    output: tuple[str, ...] = ()


class IJobs(Interface):
    """
    Commands that the broker runs for its operators. Called by the operator calls about jobs.
    """

    def start(name: str) -> None:
        """
        Start a command.

        @param name: C{audit}, C{backup} or C{doctor}.
        @raise svcbroker.errors.ParameterInvalid: there is no such job, or one runs.
        """

    def reports() -> Sequence[JobReport]:
        """The jobs since the start of the broker, the last of each name, the newest first."""


@frozen(kw_only=True)
class RetentionReport:
    """
    The progress of erasing the old events of a group, of the topics with one age.

    @ivar patterns: the patterns of these topics.
    @ivar age: how many seconds their events are kept.
    @ivar height: the block up to which the log was searched.
    @ivar erased: how many events were erased since the start of the broker.
    @ivar problem: why the last search failed; empty if it did not.
    """

    patterns: tuple[str, ...]
    age: int
    height: int
    erased: int
    problem: str


class IRetention(Interface):
    """
    Rules by which events are erased when they are old. Called by the operator call about them.
    """

    def reports(group: str) -> Sequence[RetentionReport]:
        """
        The progress by each rule, the shortest age first; none where nothing is erased.

        @param group: the id of a group that is served.
        """


class IWebhooks(Interface):
    """
    Subscriptions whose events are sent to a URL. Called by the operations and operator calls of
    the same names.
    """

    def subscribe(principal: Principal, request: WebhookRequest) -> Deferred[str]:
        """
        Send events to a URL from now on, also after the broker has started again.

        Calling it again with the same id and otherwise the same parameters, the offset aside,
        changes nothing and answers the id again, so that a call whose answer was lost can be
        repeated, and a receiver may subscribe whenever it starts.

        Cancelling the answer does not undo it.

        @param principal: who asks; events are sent as long as it may read them.
        @param request: what is sent, and where.
        @return: the subscription's id. It is on stable storage by then.
        @raise NotAuthorized: the principal may read none of it, or may not publish dead letters
            there.
        @raise ParameterInvalid: a header may not be set, there is no such secret or
            certificate, dead letters would be sent by the webhook itself, or options do not fit
            together.
        @raise UrlInvalid: events cannot be sent there, or may not be.
        @raise SubscriptionExists: the id is in use by another subscription.
        @raise TopicNotFound: a plain topic does not exist.
        @raise EventNotFound, HeightUnknown: the offset is no place in the log.
        @raise Overloaded: there are too many webhooks, or too many are being made.
        """

    def unSubscribe(principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """
        Send no more, and forget where the subscription stands.

        @param principal: who asks: the account that made it, or one that may operate its group.
        @param subscriptionId: a UUID in its canonical form.
        @return: C{True}. It is on stable storage by then.
        @raise SubscriptionNotFound: there is no such webhook.
        """

    def listWebhooks(
        principal: Principal,
        groupId: str,
        subscriptionId: str | None,
        after: str | None,
        limit: int,
    ) -> Deferred[WebhookPage]:
        """
        A page of the webhooks of a group that the principal has made, or all of them for one that
        may operate the group.

        @param subscriptionId: only this one.
        @param after: only those with a greater id.
        """

    def pauseWebhook(principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """
        Send nothing, also after restarts, until L{resumeWebhook} is called. The request under way
        is finished. Pausing a paused one changes nothing. This and the calls below are for those
        who may call L{unSubscribe}.

        @return: C{True}. It is on stable storage by then.
        @raise SubscriptionNotFound: there is no such webhook.
        """

    def resumeWebhook(principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """
        Send again, at once.

        @return: C{True}. It is on stable storage by then.
        @raise SubscriptionNotFound: there is no such webhook.
        """

    def retryWebhook(principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """
        Make the next attempt now, rather than when it is due. Where none is waited for it changes
        nothing.

        @return: C{True}.
        @raise SubscriptionNotFound: there is no such webhook.
        """

    def skipEvent(principal: Principal, subscriptionId: str, eventId: EventId) -> Deferred[bool]:
        """
        Go on after the oldest event that waits, as if it were acknowledged. An attempt that is
        under way may still succeed.

        @param eventId: the event's id, so that no other is skipped.
        @return: C{True}.
        @raise SubscriptionNotFound: there is no such webhook.
        @raise EventNotFound: this is not the oldest event that waits, as far as is known.
        """

    def replayDeadLetter(
        principal: Principal, subscriptionId: str, eventId: EventId
    ) -> Deferred[bool]:
        """
        Send the event of a dead letter once more.

        @param eventId: the id of the dead letter.
        @return: whether the receiver has acknowledged it.
        @raise SubscriptionNotFound: there is no such webhook.
        @raise EventNotFound: this is no dead letter of the webhook, or the account that made the
            webhook may not read the event.
        @raise EventErased: the event was erased.
        @raise Overloaded: too many requests to webhooks are under way.
        """

    def publicKeys() -> Sequence[WebhookKey]:
        """The keys that sign requests now, those of all groups, the newest of each group last."""

    def rotateKey(
        principal: Principal, groupId: str, overlap: int
    ) -> Deferred[Sequence[WebhookKey]]:
        """
        Sign with another key from now on, and with those before it for some time more.

        @param overlap: for how many seconds.
        @return: the keys that sign the requests of the group now, the newest last. They are on
            stable storage by then, and the chain certifies them.
        @raise ParameterInvalid: the ledger of the group certifies no keys, or too many sign now.
        @raise LedgerUnavailable: the ledger did not certify the key.
        """
