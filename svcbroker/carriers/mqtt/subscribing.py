"""
SUBSCRIBE and UNSUBSCRIBE.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from ...errors import (
    BrokerError,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    LedgerUnavailable,
    NotAuthorized,
    TopicBlank,
    TopicInvalid,
    TopicTooLong,
)
from ...model import TAG, Offset, checkFilter, parseOffset
from .context import Context
from .delivery import Delivery
from .frames import RETAIN_FLAG
from .packets import Subscribe, TopicSubscription, Unsubscribe
from .reasons import MalformedPacket, ProtocolError, ReasonCode
from .session import Session
from .sessions import Sessions
from .subscription import KeptSubscription, SessionSubscription, parseShare

OFFSET: Final = "svc-offset"

_REASONS: Final[dict[type[BrokerError], ReasonCode]] = {
    TopicBlank: ReasonCode.TOPIC_FILTER_INVALID,
    TopicTooLong: ReasonCode.TOPIC_FILTER_INVALID,
    TopicInvalid: ReasonCode.TOPIC_FILTER_INVALID,
    EventIdBlank: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventIdInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventIdTooLong: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    EventNotFound: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    HeightUnknown: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    LedgerUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    NotAuthorized: ReasonCode.NOT_AUTHORIZED,
}


@frozen(kw_only=True)
class _Asked:
    """
    The properties of a SUBSCRIBE, which hold for all its filters.

    @ivar offset: where to begin; C{None} where it is not given.
    """

    offset: Offset | None
    tag: str | None
    identifier: int


@frozen(kw_only=True)
class Opened:
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
    opened: list[Opened]
    error: BrokerError | None


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
        remote: str,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._session = session
        self._version = version
        self._remote = remote

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
            return Granted([_reasonOf(error)] * len(packet.subscriptions), [], error)
        for each in packet.subscriptions:
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

    async def _subscribeOne(self, asked: TopicSubscription, common: _Asked) -> Opened:
        session = self._session
        share = parseShare(asked.topicFilter)
        checkFilter(asked.topicFilter if share is None else share.topicFilter)
        old = session.subscriptions.get(asked.topicFilter)
        isNew = old is None
        if isNew and len(session.subscriptions) >= self._context.settings.maxSubscriptions:
            raise _QuotaExceeded
        if old is not None and (common.offset is not None or common.tag != old.kept.tag):
            self._sessions.removeSubscription(session, old)
            old = None
        kept = KeptSubscription(
            topicFilter=asked.topicFilter,
            subscriptionId=self._sessions.newId() if old is None else old.kept.subscriptionId,
            start=None if old is None else old.kept.start,
            qos=asked.qos,
            noLocal=asked.noLocal,
            retainAsPublished=asked.retainAsPublished,
            identifier=common.identifier,
            tag=common.tag,
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
            old.change(kept)
        subscription.useVersion(self._version)
        subscription.isWaiting = True
        return Opened(subscription=subscription, asked=asked, isNew=isNew)

    async def open(self, subscription: SessionSubscription, offset: Offset | None = None) -> None:
        """
        Open a subscription of the log from its position on. It is paused.

        @param offset: where a new one begins; from now on by default.
        @raise BrokerError: the log refuses it.
        """
        subscription.useVersion(self._version)
        if subscription.group is not None:
            await subscription.group.join(subscription, self._remote, offset)
            return
        core = await self._context.subscriptions.subscribe(
            subscription.request(self._remote, offset), subscription
        )
        if self._session.delivery is None:
            # The connection has ended meanwhile.
            core.close()
            return
        subscription.opened(core)

    async def begin(self, opened: Opened) -> None:
        """
        Send the retained messages of a subscription, then resume it.

        @raise BrokerError: the log cannot be read.
        """
        delivery, subscription = self._session.delivery, opened.subscription
        handling = opened.asked.retainHandling
        isWanted = handling == 0 or (handling == 1 and opened.isNew)
        # [MQTT5-3.3.1-9] [MQTT5-3.3.1-10] [MQTT5-3.3.1-11]; section 4.8.2: never to shared ones.
        if delivery is not None and isWanted and subscription.group is None:
            await self._sendRetained(delivery, opened)
        if self._session.delivery is delivery and delivery is not None:
            subscription.isWaiting = False
            if delivery.isFlowing:
                subscription.resume()

    async def _sendRetained(self, delivery: Delivery, opened: Opened) -> None:
        subscription, session = opened.subscription, self._session
        index = self._context.retained[session.group]
        start = subscription.kept.start if opened.isNew else None
        for eventId in index.match(subscription.topicFilter):
            if start is not None and eventId.height >= start[0] + (start[1] >= 0):
                continue  # the log delivers it
            event = await index.ledger.getEvent(eventId)
            isGone = session.subscriptions.get(subscription.kept.topicFilter) is not subscription
            if session.delivery is not delivery or isGone:
                return
            if subscription.kept.tag in (None, event.extensions.get(TAG)):
                # [MQTT-3.3.1-6] [MQTT-3.3.1-8]
                delivery.offer(subscription, event, RETAIN_FLAG, isFromLog=False)
                await delivery.room()

    def unsubscribe(self, packet: Unsubscribe) -> list[int]:
        """
        Unsubscribe from each filter in turn [MQTT-3.10.4-6] [MQTT5-3.10.4-6].

        @return: a reason code for each.
        """
        reasons: list[int] = []
        for topicFilter in packet.topicFilters:
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

    @raise BrokerError: the offset is malformed.
    """
    offset = tag = None
    for key, value in packet.properties.userProperties:
        if key == OFFSET:
            offset = parseOffset(value)
        elif key == TAG:
            tag = value
    return _Asked(
        offset=offset, tag=tag, identifier=next(iter(packet.properties.subscriptionIdentifiers), 0)
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
