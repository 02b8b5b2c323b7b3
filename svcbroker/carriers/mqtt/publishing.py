"""
From MQTT publishes to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

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
from ...interfaces import ILedger, Submission
from ...model import (
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Request,
    checkExtensions,
    checkTopicName,
)
from .fields import NO_PROPERTIES
from .messages import extensionsOf
from .packets import Publish, Will
from .reasons import ReasonCode
from .retained import RetainedIndex
from .settings import MqttSettings

_log = Logger()

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


Refused: TypeAlias = Mapping[int, BrokerError]
"""Why messages are not going to be in the log, by their number among those added together."""


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

    @ivar open: topics that were open when they were last published to.
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
        self.ledger = ledger
        self.settings = settings
        self.now = now
        self.open: set[str] = set()
        self._retained = retained

    def publish(self, message: Publish | Will, publisher: str | None = None) -> Deferred[None]:
        """
        Publish a message.

        @param publisher: the mark of the publisher, where somebody will look for it.
        @return: fires when the event is final and on stable storage; fails with a
            L{BrokerError} when it is not going to be.
        """
        together = self.gather()
        try:
            together.add(message, publisher)
        except BrokerError as error:
            return fail(error)

        def check(refused: Refused) -> None:
            for error in refused.values():
                raise error

        published: Deferred[Any] = together.submit()
        published.addCallback(together.refused)
        published.addCallback(check)
        return published

    def gather(self) -> Together:
        """Messages that are to be published together, of which there are none yet."""
        return Together(self)

    def checkRetained(self, topic: str) -> None:
        """
        @raise Overloaded: the topic cannot have a retained message.
        """
        isFull = len(self._retained) >= self.settings.maxRetained
        if isFull and not self._retained.has(topic):
            raise Overloaded("there are too many retained messages")

    def isOpen(self, topic: str) -> bool | None:
        """Whether a topic is open; C{None} where that is not known without waiting."""
        try:
            state = self.ledger.topicState(topic)
        except LedgerUnavailable:
            return None
        return state is not None and state.isOpen

    def remember(self, topics: Iterable[str]) -> None:
        """These topics are open."""
        if len(self.open) >= _REMEMBERED_TOPICS:
            self.open.clear()
        self.open.update(topics)


class Together:
    """
    Messages on their way to the log that came together: one call of the ledger for all.

    @ivar size: how many bytes their payloads have together.
    """

    __slots__ = ("_new", "_publisher", "_requests", "size")

    def __init__(self, publisher: Publisher) -> None:
        self.size = 0
        self._publisher = publisher
        self._requests: list[Request] = []
        # Topics that are open only if what comes before their messages opens them, or somebody.
        self._new: set[str] | None = None

    def add(self, message: Publish | Will, mark: str | None) -> None:
        """
        Publish a message after all others.

        @param mark: the mark of the publisher, where somebody will look for it.
        @raise BrokerError: it cannot be published. The others can.
        """
        publisher, topic, payload = self._publisher, message.topic, message.payload
        isNew = topic not in publisher.open
        if isNew:
            checkTopicName(topic)
        size = len(payload)
        if size > publisher.settings.maxContent:
            raise ContentTooLarge()
        if message.retain and payload:
            publisher.checkRetained(topic)
        extensions = extensionsOf(message, publisher.now, mark)
        if message.properties is not NO_PROPERTIES:
            checkExtensions(extensions)
        if isNew:
            self._checkNew(topic)
        self.size += size
        self._requests.append(PublishEvent(topic=topic, content=payload, extensions=extensions))

    def _checkNew(self, topic: str) -> None:
        """See to it that a topic is open that may not be."""
        if self._new is None:
            self._new = set()
        elif topic in self._new:
            return
        isOpen = self._publisher.isOpen(topic)
        if not isOpen:
            if self._publisher.settings.openTopics:
                # Not waited for, so that nothing overtakes: the log executes them in this order,
                # and opening an open topic changes nothing. If it fails, what follows it fails
                # too, and tells.
                self._requests.append(OpenTopic(topic=topic))
            elif isOpen is not None:
                raise TopicNotFound()
        self._new.add(topic)

    def submit(self) -> Deferred[Submission]:
        """
        Have them published. Called once, when there is one at least.

        @return: fires when it is known what has become of each, for L{refused}. Never fails.
        """
        try:
            return self._publisher.ledger.submitMany(self._requests).done
        except Exception:
            _log.failure("A ledger raised an error, which its contract does not allow")
            return Submission.refused(len(self._requests), LedgerUnavailable()).done

    def refused(self, submission: Submission) -> Refused | Deferred[Refused]:
        """
        Those that are not going to be in the log. Some may be on their way there once more.

        @param submission: what L{submit} fired with.
        """
        # The hot one: everything is in the log.
        for outcome in submission.outcomes:
            if not isinstance(outcome, Receipt) or outcome.execution is not Execution.DONE:
                return self._refusedOf(submission.outcomes)
        if self._new:
            self._publisher.remember(self._new)
        return {}

    def _refusedOf(
        self, outcomes: Sequence[Receipt | BrokerError | None]
    ) -> Refused | Deferred[Refused]:
        publisher, new = self._publisher, self._new or set()
        refused: dict[int, BrokerError] = {}
        closed: dict[int, PublishEvent] = {}
        publishes = [
            (request, outcome)
            for request, outcome in zip(self._requests, outcomes, strict=True)
            if isinstance(request, PublishEvent)
        ]
        for number, (request, outcome) in enumerate(publishes):
            topic = request.topic
            if not isinstance(outcome, Receipt):
                refused[number] = LedgerUnavailable() if outcome is None else outcome
            elif outcome.execution is Execution.DONE:
                publisher.remember((topic,))
            elif outcome.execution is not Execution.TOPIC_NOT_FOUND:
                refused[number] = TransactionFailed()
            elif publisher.settings.openTopics and (topic in publisher.open or topic not in new):
                # Somebody has closed it since.
                closed[number] = request
            else:
                refused[number] = TopicNotFound()
        publisher.open.difference_update([request.topic for request in closed.values()])
        return self._repeat(closed, refused) if closed else refused

    def _repeat(self, closed: Mapping[int, PublishEvent], refused: Refused) -> Deferred[Refused]:
        """Publish some again, to topics that are opened again."""
        again = Together(self._publisher)
        for request in closed.values():
            again._checkNew(request.topic)
            again._requests.append(request)
        numbers = list(closed)

        def merge(more: Refused) -> Refused:
            return {**refused, **{numbers[number]: error for number, error in more.items()}}

        repeated: Deferred[Any] = again.submit()
        repeated.addCallback(again.refused)
        repeated.addCallback(merge)
        return repeated
