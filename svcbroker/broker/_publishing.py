"""
Publishing: one event, or many together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import (
    BrokerError,
    LedgerUnavailable,
    TopicNotFound,
    TransactionTimeout,
)
from ..interfaces import IBulkLedger, ILedger, Submission
from ..model import (
    PublishEvent,
    Receipt,
    Request,
    Topic,
    checkContent,
    checkExtensions,
    checkTopicName,
)
from ._gathering import Gathering
from ._groups import Groups, Limits
from ._values import Answer, Publication, SendResult, SendStatus, answerOf
from ._waiters import Waiters

_log = Logger()


@define(eq=False)
class _Part:
    """
    Those of some publishes that go to one ledger.

    @ivar places: where each of C{requests} stands among all.
    @ivar isOpen: whether a topic that was asked for is open.
    """

    ledger: ILedger
    places: list[int] = field(factory=list)
    requests: list[PublishEvent] = field(factory=list)
    isOpen: dict[str, bool] = field(factory=dict)


class _NotKnownYet(Exception):
    """Whether a topic is open has to be waited for."""


class Publishing:
    """
    Publishes events. What its methods do, their namesakes of
    L{Broker<svcbroker.broker.Broker>} tell.
    """

    def __init__(
        self, groups: Groups, waiters: Waiters, limits: Limits, clock: IReactorTime
    ) -> None:
        self._groups = groups
        self._waiters = waiters
        self._limits = limits
        ledgers = [groups.ledger(groupId) for groupId in groups]
        self._gatherings: dict[ILedger, Gathering] = {
            ledger: Gathering(ledger, clock, waiters)
            for ledger in ledgers
            if IBulkLedger.providedBy(ledger)
        }

    def flush(self, ledger: ILedger) -> None:
        """
        Submit what waits for the end of the turn. Called before anything else is submitted, so that
        the log has everything in the order of the calls.
        """
        gathering = self._gatherings.get(ledger)
        if gathering is not None:
            gathering.flush()

    def stop(self) -> None:
        """Let go of the clock. Called once, after the ledgers have stopped."""
        for gathering in self._gatherings.values():
            gathering.stop()

    def publish(
        self,
        groupId: str | None,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str],
        mayBeEmpty: bool,
    ) -> Deferred[SendResult]:
        # The hot one: callbacks, which cost half of what a coroutine does.
        try:
            ledger = self._groups.ledger(groupId)
            gathering = self._gatherings.get(ledger)
            isOpen = gathering is not None and topic in gathering.open
            if not isOpen:
                checkTopicName(topic)
            self._check(content, extensions, mayBeEmpty)
        except BrokerError as error:
            return fail(error)
        request = PublishEvent(topic=topic, content=content, extensions=extensions)
        if gathering is not None and isOpen:
            return gathering.publish(request)
        known = ledger.getTopic(topic)
        if not _isOpenNow(known):
            answer = Deferred.fromCoroutine(self._publishIfOpen(ledger, known, request))
        elif gathering is not None:
            gathering.open.add(topic)
            return gathering.publish(request)
        else:
            answer = self._waiters.wait(ledger.submit(request))
        answer.addCallbacks(_sent, _notSent, callbackArgs=(topic,), errbackArgs=(topic,))
        sent: Deferred[Any] = answer
        return sent

    async def _publishIfOpen(
        self, ledger: ILedger, known: Deferred[Topic | None], request: PublishEvent
    ) -> Receipt:
        found = await self._waiters.wait(known)
        if found is None or not found.isOpen:
            raise TopicNotFound()
        self.flush(ledger)
        return await self._waiters.wait(ledger.submit(request))

    def publishTogether(self, publications: Sequence[Publication]) -> Deferred[Sequence[Answer]]:
        answers: list[Answer | None] = [None] * len(publications)
        parts: dict[str | None, _Part] = {}
        try:
            for place, publication in enumerate(publications):
                try:
                    self._admit(place, publication, parts)
                except BrokerError as error:
                    answers[place] = error
        except _NotKnownYet:
            return Deferred.fromCoroutine(self._publishEach(publications))
        submitted = []
        for part in dict.fromkeys(parts.values()):
            if part.requests:
                self.flush(part.ledger)
                submission = submitTogether(part.ledger, part.requests)
                # All begin to wait now, so that the time is over for all at once. What is not known
                # by then, says so.
                waiting: Deferred[Any] = self._waiters.wait(submission.done)
                waiting.addErrback(lambda failure: failure.trap(TransactionTimeout))
                submitted.append((part, submission, waiting))
        return Deferred.fromCoroutine(self._settle(answers, submitted))

    def _admit(self, place: int, publication: Publication, parts: dict[str | None, _Part]) -> None:
        """
        Check one of many, and put it to those for its ledger.

        @raise BrokerError: it cannot be published.
        """
        part = parts.get(publication.groupId)
        if part is None:
            # A group may be called by several names.
            ledger = self._groups.ledger(publication.groupId)
            known = (each for each in parts.values() if each.ledger is ledger)
            part = parts[publication.groupId] = next(known, None) or _Part(ledger)
        topic, content, extensions = publication.topic, publication.content, publication.extensions
        isOpen = part.isOpen.get(topic)
        if isOpen is None:
            checkTopicName(topic)
        self._check(content, extensions, publication.mayBeEmpty)
        if isOpen is None:
            asked = part.ledger.getTopic(topic)
            if not asked.called or asked.paused or isinstance(asked.result, Failure):
                asked.addErrback(lambda failure: None)  # whoever asks again is told
                raise _NotKnownYet()
            isOpen = part.isOpen[topic] = _isOpenNow(asked)
        if not isOpen:
            raise TopicNotFound()
        part.places.append(place)
        part.requests.append(PublishEvent(topic=topic, content=content, extensions=extensions))

    def _check(self, content: bytes, extensions: Mapping[str, str], mayBeEmpty: bool) -> None:
        if content or not mayBeEmpty:
            checkContent(content, self._limits.maxContent)
        if extensions:
            checkExtensions(extensions)

    async def _settle(
        self,
        answers: list[Answer | None],
        submitted: Sequence[tuple[_Part, Submission, Deferred[Any]]],
    ) -> Sequence[Answer]:
        for part, submission, waiting in submitted:
            await waiting
            for place, request, outcome in zip(
                part.places, part.requests, submission.outcomes, strict=True
            ):
                answers[place] = answerOf(outcome, request.topic)
        # There is one for each by now.
        return cast("Sequence[Answer]", answers)

    async def _publishEach(self, publications: Sequence[Publication]) -> Sequence[Answer]:
        """Publish one after the other, without waiting for any before the last is submitted."""
        running = [
            self.publish(each.groupId, each.topic, each.content, each.extensions, each.mayBeEmpty)
            for each in publications
        ]
        answers: list[Answer] = []
        for one in running:
            try:
                answers.append(await one)
            except BrokerError as error:
                answers.append(error)
        return answers


def submitTogether(ledger: ILedger, requests: Sequence[Request]) -> Submission:
    """
    Submit requests that arrived together, to any ledger.

    @param requests: one or more.
    """
    if IBulkLedger.providedBy(ledger):
        return ledger.submitMany(requests)
    submission = Submission(len(requests))
    for place, request in enumerate(requests):
        ledger.submit(request).addBoth(partial(_settleOne, submission, place))
    return submission


def _settleOne(submission: Submission, place: int, outcome: Receipt | Failure) -> None:
    if isinstance(outcome, Receipt):
        submission.settle(place, [outcome])
    elif isinstance(outcome.value, BrokerError):
        submission.settle(place, [outcome.value])
    else:
        _log.failure("a ledger failed as none may", outcome)
        submission.settle(place, [LedgerUnavailable("the ledger failed")])


def _isOpenNow(known: Deferred[Topic | None]) -> bool:
    """Whether a topic is known to be open, without waiting."""
    if not known.called or known.paused:
        return False
    topic = known.result
    return isinstance(topic, Topic) and topic.isOpen


def _sent(receipt: Receipt, topic: str) -> SendResult:
    answer = answerOf(receipt, topic)
    if isinstance(answer, BrokerError):
        raise answer
    return answer


def _notSent(failure: Failure, topic: str) -> SendResult:
    failure.trap(TransactionTimeout)
    return SendResult(topic, SendStatus.TIMEOUT)
