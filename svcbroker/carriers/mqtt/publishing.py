"""
From MQTT publishes to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, fail

from ...errors import (
    BrokerError,
    ContentTooLarge,
    ExtensionsTooLarge,
    LedgerUnavailable,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
)
from ...interfaces import ILedger
from ...model import (
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Topic,
    checkExtensions,
    checkTopicName,
)
from .messages import extensionsOf
from .packets import Publish, Will
from .properties import NO_PROPERTIES
from .reasons import ReasonCode
from .retained import RetainedIndex
from .settings import MqttSettings

_REMEMBERED_TOPICS: Final = 10_000

_REASONS: Final[dict[type[BrokerError], ReasonCode]] = {
    TopicBlank: ReasonCode.TOPIC_NAME_INVALID,
    TopicTooLong: ReasonCode.TOPIC_NAME_INVALID,
    TopicInvalid: ReasonCode.TOPIC_NAME_INVALID,
    TopicNotFound: ReasonCode.TOPIC_NAME_INVALID,
    ContentTooLarge: ReasonCode.QUOTA_EXCEEDED,
    ExtensionsTooLarge: ReasonCode.QUOTA_EXCEEDED,
    Overloaded: ReasonCode.QUOTA_EXCEEDED,
    NotAuthorized: ReasonCode.NOT_AUTHORIZED,
    LedgerUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    TransactionFailed: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ParameterInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def publishReason(error: BrokerError) -> ReasonCode:
    """
    What PUBACK and PUBREC say of a refusal. Section 3.4.2.1 of MQTT 5.
    """
    return _REASONS.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


class Publisher:
    """
    Publishes into the log of one group, for all clients of the group.

    Messages enter the log in the order of the calls [MQTT-4.6.0-5] [MQTT5-4.6.0-5]. There is
    no time-out: an answer comes when the event is final, or when it is sure that it will not be.
    """

    def __init__(
        self,
        ledger: ILedger,
        retained: RetainedIndex,
        settings: MqttSettings,
        now: Callable[[], float],
    ) -> None:
        """
        @param retained: knows the retained messages of the log.
        @param now: the wall clock: seconds since the epoch.
        """
        self._ledger = ledger
        self._retained = retained
        self._settings = settings
        self._now = now
        # Topics that were open when they were last published to.
        self._open: set[str] = set()

    def publish(self, message: Publish | Will, publisher: str | None = None) -> Deferred[Receipt]:
        """
        Publish a message.

        @param publisher: the mark of the publisher, where somebody will look for it.
        @return: fires when the event is final and on stable storage; fails with a
            L{BrokerError} when it is not going to be.
        """
        topic = message.topic
        extensions = extensionsOf(message, self._now, publisher)
        try:
            if topic not in self._open:
                checkTopicName(topic)
            if len(message.payload) > self._settings.maxContent:
                raise ContentTooLarge()
            if message.retain and message.payload:
                self._checkRetained(topic)
            if message.properties is not NO_PROPERTIES:
                checkExtensions(extensions)
        except BrokerError as error:
            return fail(error)
        request = PublishEvent(topic=topic, content=message.payload, extensions=extensions)
        if topic not in self._open:
            return self._publishFirst(request)
        answer = self._ledger.submit(request)
        answer.addCallback(self._check, request)
        return answer

    def _checkRetained(self, topic: str) -> None:
        isFull = len(self._retained) >= self._settings.maxRetained
        if isFull and not self._retained.has(topic):
            raise Overloaded("there are too many retained messages")

    def _publishFirst(self, request: PublishEvent) -> Deferred[Receipt]:
        """Publish to a topic that may have to be opened."""
        known = self._ledger.getTopic(request.topic)
        if not self._isOpen(known):
            if self._settings.openTopics:
                # Not waited for, so that nothing overtakes: the log executes them in this order,
                # and opening an open topic changes nothing.
                self._openTopic(request.topic)
            elif known.called:
                return fail(TopicNotFound())
        answer = self._ledger.submit(request)
        answer.addCallback(self._check, request)
        return answer

    @staticmethod
    def _isOpen(known: Deferred[Topic | None]) -> bool:
        """Whether a topic is known to be open, without waiting."""
        found: list[Topic | None] = []
        known.addCallbacks(found.append, lambda failure: None)
        return any(topic is not None and topic.isOpen for topic in found)

    def _openTopic(self, topic: str) -> None:
        # If this fails, what follows it fails too, and tells.
        self._ledger.submit(OpenTopic(topic=topic)).addErrback(lambda failure: None)

    def _check(self, receipt: Receipt, request: PublishEvent) -> Receipt | Deferred[Receipt]:
        topic = request.topic
        if receipt.execution is Execution.DONE:
            if topic not in self._open:
                if len(self._open) >= _REMEMBERED_TOPICS:
                    self._open.clear()
                self._open.add(topic)
            return receipt
        if receipt.execution is not Execution.TOPIC_NOT_FOUND:
            raise TransactionFailed()
        wasOpen = topic in self._open
        self._open.discard(topic)
        if not (wasOpen and self._settings.openTopics):
            raise TopicNotFound()
        # Somebody has closed it since.
        return self._publishFirst(request)
