"""
SUBSCRIBE and UNSUBSCRIBE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import SchedulerStopped
from twisted.python.failure import Failure

from ...broker import checkTopicFilter
from ...errors import (
    BrokerError,
    EventErased,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
    NodeBehind,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    PatternInvalid,
    QuotaExceeded,
    TopicBlank,
    TopicInvalid,
    TopicTooLong,
)
from ...interfaces import Action
from ...model import TAG, Event, EventFormat, Offset, parseOffset
from ...operations import ERASED
from .context import Context
from .delivery import RETAIN_FLAG, Delivery
from .fields import SUBSCRIBE_FAILURE, MalformedPacket, ProtocolError, ReasonCode
from .handshake import Handshake
from .kept import KeptSubscription
from .mqttsession import FILTER_BYTES, Session
from .output import IWire
from .packets import MQTT_5, Suback, Subscribe, TopicSubscription, Unsubscribe
from .sessions import Sessions
from .subscription import SessionSubscription, parseShare
from .wills import FULL

OFFSET: Final = "svc-offset"
FORMAT: Final = "svc-format"
TOMBSTONES: Final = "svc-erased"
FILTERS_AT_ONCE: Final = 8
"""The number of filters of a client between two looks at the time."""
STEPS_AT_ONCE: Final = 64
"""The most retained messages that are sent in the turn of the SUBSCRIBE."""

_FORMATS: Final = tuple(each.value for each in EventFormat)

_REASONS: Final[dict[type[BrokerError], ReasonCode]] = {
    TopicBlank: ReasonCode.TOPIC_FILTER_INVALID,
    TopicTooLong: ReasonCode.TOPIC_FILTER_INVALID,
    TopicInvalid: ReasonCode.TOPIC_FILTER_INVALID,
    PatternInvalid: ReasonCode.TOPIC_FILTER_INVALID,
    EventIdBlank: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventIdInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventIdTooLong: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventNotFound: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    HeightUnknown: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ParameterInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    LedgerUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    NodeBehind: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    NotAuthorized: ReasonCode.NOT_AUTHORIZED,
    QuotaExceeded: ReasonCode.QUOTA_EXCEEDED,
    Overloaded: ReasonCode.QUOTA_EXCEEDED,
}


@frozen(kw_only=True)
class _Asked:
    """
    The properties of a SUBSCRIBE, which hold for all its filters.

    @ivar offset: where to begin; C{None} where it is not given.
    @ivar format: the name of the format of events; empty where it is not given.
    @ivar hasTombstones: whether erased events are delivered too.
    """

    offset: Offset | None
    tag: str | None
    format: str
    hasTombstones: bool
    identifier: int


@frozen(kw_only=True)
class OpenedLog:
    """
    A granted subscription.

    @ivar isNew: whether the session did not have its filter before.
    """

    subscription: SessionSubscription
    asked: TopicSubscription
    isNew: bool


@frozen
class Granted:
    """
    The outcome of a SUBSCRIBE.

    @ivar reasons: a reason code for each filter, in their order.
    @ivar opened: the granted subscriptions, which are paused.
    @ivar error: the error of the last refusal.
    """

    reasons: list[int]
    opened: list[OpenedLog]
    error: BrokerError | None

    def suback(self, packet: Subscribe, handshake: Handshake) -> Suback:
        """
        The answer to the packet. [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.9.3-1] [MQTT5-3.8.4-1]
        [MQTT5-3.8.4-2]
        """
        reasons = self.reasons
        if handshake.version != MQTT_5:
            # [MQTT-3.9.3-2]
            reasons = [min(reason, SUBSCRIBE_FAILURE) for reason in reasons]
        suback = Suback(packet.packetId, tuple(reasons))
        return suback if self.error is None else handshake.explain(suback, self.error.message)


class Subscriber:
    """
    Carries out one client's SUBSCRIBE and UNSUBSCRIBE packets, one after the other.
    """

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        session: Session,
        *,
        version: int,
        isPlain: bool,
        remote: str,
        wire: IWire,
        failed: Callable[[Failure], None],
    ) -> None:
        """
        @param wire: says when there is time for more.
        @param failed: called when the log cannot be read.
        """
        self._wire = wire
        self._context = context
        self._sessions = sessions
        self._session = session
        self._version = version
        self._isPlain = isPlain
        self._remote = remote
        self._failed = failed
        # Subscriptions whose retained messages are being sent, or wait for that.
        self._replays: dict[SessionSubscription, OpenedLog] = {}
        self._filters = 0

    @property
    def isReplaying(self) -> bool:
        """Whether retained messages are being sent, or wait for that."""
        return bool(self._replays)

    def check(self, packet: Subscribe | Unsubscribe) -> None:
        """
        Check the form of the topic filters.

        @raise MalformedPacket: one is malformed [MQTT-4.7.1-2] [MQTT-4.7.1-3]
            [MQTT-4.7.3-1] [MQTT5-4.7.1-1] [MQTT5-4.7.1-2] [MQTT5-4.7.3-1].
        @raise ProtocolError: a shared subscription has the No Local option [MQTT5-3.8.3-4].
        """
        if isinstance(packet, Unsubscribe):
            for topicFilter in packet.topicFilters:
                _checkForm(topicFilter)
            return
        for asked in packet.subscriptions:
            isShared = _checkForm(asked.topicFilter)
            if isShared and asked.noLocal:
                raise ProtocolError("a shared subscription has the No Local option")

    async def subscribe(self, packet: Subscribe) -> Granted:
        """
        Subscribe to each filter in turn [MQTT-3.8.4-4] [MQTT5-3.8.4-5]. Refusals are reason
        codes, not errors.
        """
        granted = Granted([], [], None)
        try:
            asked = _readAsked(packet)
        except BrokerError as error:
            # [MQTT-3.8.4-5] [MQTT5-3.8.4-6]
            reasons: list[int] = [_reasonOf(error)] * len(packet.subscriptions)
            return Granted(reasons, [], error.with_traceback(None))
        for each in packet.subscriptions:
            await self.pace()
            if isinstance(granted.error, NodeBehind):
                # All have one offset. To wait for each of them would take too long.
                granted.reasons.append(_reasonOf(granted.error))
                continue
            try:
                granted.opened.append(await self._subscribeOne(each, asked))
            except BrokerError as error:
                granted.reasons.append(_reasonOf(error))
                granted = Granted(granted.reasons, granted.opened, error)
            except _QuotaExceeded:
                granted.reasons.append(ReasonCode.QUOTA_EXCEEDED)
            else:
                granted.reasons.append(each.qos)
        self._session.keep()
        return granted

    async def pace(self) -> None:
        """
        Look at the time once for L{FILTERS_AT_ONCE} filters, of whatever packets. Called before
        each is subscribed to, begun or removed.
        """
        self._filters += 1
        if self._filters % FILTERS_AT_ONCE == 0 and not self._wire.mayWork(isWrite=False):
            await self._wire.turn(isWrite=False)

    async def _subscribeOne(self, asked: TopicSubscription, common: _Asked) -> OpenedLog:
        session = self._session
        share = parseShare(asked.topicFilter)
        filter = asked.topicFilter if share is None else share.topicFilter
        groups = self._context.broker.groups
        checkTopicFilter(groups.find(session.principal, session.group)[1], filter)
        session.principal.requireAny(Action.SUBSCRIBE, session.group, filter)
        old = session.subscriptions.get(asked.topicFilter)
        isNew = old is None
        settings = self._context.settings
        if isNew and (
            len(session.subscriptions) >= settings.maxSubscriptions
            or session.filterBytes + len(asked.topicFilter) > settings.maxFilterBytes
        ):
            raise _QuotaExceeded
        if isNew and not session.counted.fits(FILTER_BYTES + len(asked.topicFilter)):
            raise Overloaded(FULL)
        if old is not None and (
            common.offset is not None
            or (common.tag, common.format) != (old.kept.tag, old.kept.format)
            or common.hasTombstones is not old.kept.hasTombstones
        ):
            self._sessions.removeSubscription(session, old)
            old = None
        isJoined = common.offset is None and common.tag is None and share is None
        # A message has one form, so subscriptions with different ones share no messages.
        isJoined = isJoined and not (common.format or common.hasTombstones)
        if old is not None:
            subscriptionId, isJoined = old.kept.subscriptionId, old.kept.isJoined
        elif isJoined and session.joinable is not None:
            subscriptionId = session.joinable.subscriptionId
        else:
            subscriptionId = self._sessions.newId()
        kept = KeptSubscription(
            topicFilter=asked.topicFilter,
            subscriptionId=subscriptionId,
            start=None if old is None else old.kept.start,
            qos=asked.qos,
            noLocal=asked.noLocal,
            retainAsPublished=asked.retainAsPublished,
            identifier=common.identifier,
            tag=common.tag,
            format=common.format,
            hasTombstones=common.hasTombstones,
            isJoined=isJoined,
        )
        if old is None:
            subscription = self._sessions.addSubscription(session, kept)
            try:
                await self.open(subscription, common.offset)
            except BrokerError:
                self._sessions.removeSubscription(session, subscription)
                raise
        else:
            # Other options; no message is lost [MQTT5-3.8.4-4].
            subscription = old
            session.change(old, kept)
        self._use(subscription)
        subscription.wait()
        return OpenedLog(subscription=subscription, asked=asked, isNew=isNew)

    async def open(self, subscription: SessionSubscription, offset: Offset | None = None) -> None:
        """
        Open a subscription of the log from its position on. It is paused.

        @param offset: where a new one begins; from now on by default.
        @raise BrokerError: the log refuses it.
        """
        self._use(subscription)
        if subscription.group is not None:
            await subscription.group.join(subscription, self._remote, offset)
            return
        assert subscription.reader is not None
        await subscription.reader.open(subscription, self._remote, offset)

    def _use(self, subscription: SessionSubscription) -> None:
        base = self._context.broker.source
        subscription.useVersion(self._version, isPlain=self._isPlain, base=base)

    def begin(self, opened: OpenedLog) -> None:
        """
        Resume a subscription, after its retained messages if it is to get them.

        Retained messages are sent like all history: in slices that all clients share, and no
        faster than the client reads. Those of one client are sent one subscription at a time.
        """
        delivery, subscription = self._session.delivery, opened.subscription
        if delivery is None:
            return
        handling = opened.asked.retainHandling
        isWanted = handling == 0 or (handling == 1 and opened.isNew)
        # [MQTT5-3.3.1-9] [MQTT5-3.3.1-10] [MQTT5-3.3.1-11]; section 4.8.2: never to shared ones.
        if not isWanted or subscription.group is not None:
            self._resume(subscription, delivery)
            return
        isRunning = bool(self._replays)
        self._replays.setdefault(subscription, opened)
        if isRunning:
            return
        steps = self._replayAll(delivery)
        # Most replays are short, and done before the client has the SUBACK.
        try:
            waiting = next(filter(None, islice(steps, STEPS_AT_ONCE)), None)
        except BrokerError:
            self._failed(Failure())
            return
        if self._replays:
            replay = self._context.cooperator.cooperate(chain((waiting,), steps)).whenDone()
            replay.addErrback(lambda failure: failure.trap(SchedulerStopped))
            replay.addErrback(self._failed)

    def _resume(self, subscription: SessionSubscription, delivery: Delivery) -> None:
        subscription.endWait()
        if delivery.isFlowing:
            subscription.resume()

    def _replayAll(self, delivery: Delivery) -> Iterator[Deferred[Any] | None]:
        """Send the retained messages of all waiting subscriptions, a message a step."""
        while self._replays and self._session.delivery is delivery:
            subscription, opened = next(iter(self._replays.items()))
            yield from self._replay(delivery, opened)
            del self._replays[subscription]
            if not self._replays:
                self._replays = {}  # An emptied one keeps its table.
            if self._session.delivery is delivery:
                self._resume(subscription, delivery)

    def _replay(self, delivery: Delivery, opened: OpenedLog) -> Iterator[Deferred[Any] | None]:
        subscription, session = opened.subscription, self._session
        index = self._context.retained[session.group]
        start = subscription.kept.start if opened.isNew else None
        failures: list[Failure] = []

        def send(event: Event) -> None:
            if subscription.kept.tag in (None, event.extensions.get(TAG)):
                # [MQTT-3.3.1-6] [MQTT-3.3.1-8]
                delivery.offer(subscription, event, RETAIN_FLAG, isFromLog=False)

        for eventId in index.match(subscription.topicFilter):
            if eventId is None:
                yield None
                continue
            if start is not None and eventId.height >= start[0] + (start[1] >= 0):
                continue  # the log delivers it
            sent = index.ledger.getEvent(eventId)
            sent.addCallbacks(send, failures.append)
            yield None if sent.called and not sent.paused else sent
            # What was erased is not retained any more.
            if failures and not (failure := failures.pop()).check(EventErased):
                failure.raiseException()
            if not delivery.hasRoom:
                yield delivery.room()
            isGone = session.subscriptions.get(subscription.kept.topicFilter) is not subscription
            if session.delivery is not delivery or isGone:
                return

    async def unsubscribe(self, packet: Unsubscribe) -> list[int]:
        """
        Unsubscribe from each filter in turn [MQTT-3.10.4-6] [MQTT5-3.10.4-6].

        @return: a reason code for each.
        """
        reasons: list[int] = []
        for topicFilter in packet.topicFilters:
            await self.pace()
            # [MQTT-3.10.4-1] [MQTT5-3.10.4-1]
            subscription = self._session.subscriptions.get(topicFilter)
            if subscription is None:
                reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
            else:
                self._sessions.removeSubscription(self._session, subscription)
                reasons.append(ReasonCode.SUCCESS)
        self._session.keep()
        return reasons


class _QuotaExceeded(Exception):
    """The session has too many subscriptions."""


def _reasonOf(error: BrokerError) -> ReasonCode:
    return _REASONS.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


def _readAsked(packet: Subscribe) -> _Asked:
    """
    Read the user properties and the subscription identifier.

    @raise BrokerError: one of them is malformed.
    """
    offset = tag = None
    hasTombstones = False
    format = ""
    for key, value in packet.properties.userProperties:
        if key == OFFSET:
            try:
                offset = parseOffset(value)
            except ParameterInvalid as error:
                raise ParameterInvalid(f"{OFFSET}: {error.message}") from None
        elif key == TAG:
            tag = value
        elif key == FORMAT:
            if value not in _FORMATS:
                raise ParameterInvalid(f"{FORMAT}: is not {' or '.join(_FORMATS)}")
            format = "" if value == EventFormat.SVC.value else value
        elif key == TOMBSTONES:
            try:
                hasTombstones = ERASED.type.fromJSON(value)
            except ParameterInvalid as error:
                raise ParameterInvalid(f"{TOMBSTONES}: {error.message}") from None
    return _Asked(
        offset=offset,
        tag=tag,
        format=format,
        hasTombstones=hasTombstones,
        identifier=next(iter(packet.properties.subscriptionIdentifiers), 0),
    )


def _checkForm(topicFilter: str) -> bool:
    """
    Check the form of a topic filter; return whether it is a shared one.

    @raise MalformedPacket: it is malformed.
    """
    try:
        share = parseShare(topicFilter)
    except ValueError as error:
        raise MalformedPacket(str(error)) from None
    levels = (topicFilter if share is None else share.topicFilter).split("/")
    if levels == [""]:
        raise MalformedPacket("a topic filter is empty")
    for number, level in enumerate(levels, 1):
        if "#" in level and (level != "#" or number != len(levels)):
            raise MalformedPacket("# is not the last level of a topic filter")
        if "+" in level and level != "+":
            raise MalformedPacket("+ is not a whole level of a topic filter")
    return share is not None
