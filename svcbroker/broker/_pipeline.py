"""
The publish pipeline: the one way from a carrier to a ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from attrs import define, evolve, field
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..access import Principal
from ..errors import (
    AuthorRefused,
    BrokerError,
    LedgerUnavailable,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    QuotaExceeded,
    SignatureInvalid,
    TopicNotFound,
    TransactionTimeout,
)
from ..interfaces import Action, ILedger, Submission, isDecidedByChain
from ..model import (
    Execution,
    OpenTopic,
    Receipt,
    Request,
    checkContent,
    checkExtensions,
    checkTopicName,
    eventSize,
)
from ..net.budgets import WorkBudget
from ..net.tracing import Tracer
from ._brokervalues import Answer, PublishOutcome, SendStatus, answerOf, answersOf, refusalOf
from ._groups import Groups, Limits, TimeoutQueue
from ._publication import DEFAULT_POLICY, Publication, PublishBatch, PublishPolicy, prepare

REFUSAL_DELAY: Final = 0.25
"""
The delay of the answer to a publish over a quota, in seconds. A client that publishes again as soon
as it is refused has the broker refuse four a second on each connection, not thousands.
"""

# The first class that an error is of counts.
_STATUSES: Final[Mapping[type[Exception], str]] = {
    QuotaExceeded: "quota",
    Overloaded: "overloaded",
    NotAuthorized: "denied",
    NotAuthenticated: "denied",
    LedgerUnavailable: "unavailable",
    BrokerError: "refused",
    CancelledError: "cancelled",
}
_OF_RESULTS: Final = {
    SendStatus.SUCCESS: "success",
    SendStatus.TIMEOUT: "timeout",
    SendStatus.ERROR: "refused",
}
STATUSES: Final = tuple(dict.fromkeys((*_OF_RESULTS.values(), *_STATUSES.values(), "failed")))
"""The outcomes that a publish may have."""


@define(eq=False)
class LedgerBatch:
    """
    The events of one call for one ledger.

    @ivar principal: who publishes them.
    @ivar places: the index of each request's event in the call; C{None} for requests that open a
        topic.
    @ivar topics: topics that are open when the requests are executed, as far as is known.
    @ivar unknown: topics that are not open as far as this node knows; the chain decides.
    @ivar isWhole: whether every request is an event.
    """

    principal: Principal
    group: str
    ledger: ILedger
    places: list[int | None] = field(factory=list)
    requests: list[Request] = field(factory=list)
    topics: set[str] = field(factory=set)
    unknown: set[str] = field(factory=set)
    isWhole: bool = True

    @property
    def eventCount(self) -> int:
        """The number of events."""
        return len(self.places) - (0 if self.isWhole else self.places.count(None))

    def add(self, place: int, request: Request) -> None:
        """Publish an event after the others."""
        self.places.append(place)
        self.requests.append(request)

    def open(self, topic: str) -> None:
        """
        Open a topic before the next event. It is not waited for, so that nothing overtakes the
        event. Opening an open topic changes nothing; if opening fails, the event is refused.
        """
        if topic not in self.topics:
            self.topics.add(topic)
            self.isWhole = False
            self.places.append(None)
            self.requests.append(OpenTopic(topic=topic))


class PublishMeter:
    """
    Counts publishes by what became of them. Hot path: a success costs one addition for each call of
    a carrier.

    @ivar successes: events that are in the log, by carrier.
    @ivar others: all other events, by carrier and one of L{STATUSES}.
    """

    def __init__(self) -> None:
        self.successes: Counter[str] = Counter()
        self.others: Counter[tuple[str, str]] = Counter()

    def counts(self, carrier: str) -> Iterator[tuple[tuple[str, str], int]]:
        """
        All counts of a carrier, those of 0 included: by it and one of L{STATUSES}.

        @param carrier: that of L{PublishPolicy<svcbroker.broker.PublishPolicy>}.
        """
        for status in STATUSES:
            isSuccess = status == _OF_RESULTS[SendStatus.SUCCESS]
            key = (carrier, status)
            yield key, self.successes[carrier] if isSuccess else self.others[key]

    def fail(self, carrier: str, error: BaseException | None, count: int = 1) -> None:
        """Count events that are not in the log, as far as is known."""
        status = next((s for kind, s in _STATUSES.items() if isinstance(error, kind)), "failed")
        self.others[carrier, status] += count

    def answer(self, carrier: str, answer: Answer | None) -> None:
        """
        Count an event by its answer.

        @param answer: C{None} where it is in the log.
        """
        if isinstance(answer, BrokerError):
            self.fail(carrier, answer)
        elif answer is None or answer.status is SendStatus.SUCCESS:
            self.successes[carrier] += 1
        else:
            self.others[carrier, _OF_RESULTS[answer.status]] += 1


class Publishing:
    """
    Checks events and submits them.

    Every call is submitted before it returns, so the log has everything in the order of the
    calls, opening and closing of topics included. Nothing is collected here: the ledger lets
    what is submitted in one turn of the reactor share a block.

    @ivar meter: counts them.
    """

    _log = Logger()

    def __init__(
        self, groups: Groups, limits: Limits, clock: IReactorTime, work: WorkBudget
    ) -> None:
        """
        @param work: counts the events that are with the ledgers.
        """
        self.meter = PublishMeter()
        self._work = work
        self._groups = groups
        # A ledger answers in the order of the calls.
        self._timeouts = {
            ledger: TimeoutQueue(clock, limits.chainTimeout) for _, ledger in groups.items()
        }
        self._refusals = TimeoutQueue(clock, REFUSAL_DELAY)
        self._maxContent = limits.maxContent
        self._reserved = limits.reservedTopics
        self._checkedExtensions: object = None

    def stop(self) -> None:
        """Cancel the timers. Called once, after the ledgers have stopped."""
        for timeouts in (*self._timeouts.values(), self._refusals):
            timeouts.stop()

    def publishOne(
        self, principal: Principal, publication: Publication
    ) -> Deferred[PublishOutcome]:
        """See L{Broker.publishOne<svcbroker.broker.Broker.publishOne>}."""
        # Hot path: no list and no dictionary, since most calls of REST publish one event.
        usage = principal.usage
        try:
            group, ledger = self._groups.find(principal, publication.groupId)
            if not principal.isEverything:
                principal.require(Action.PUBLISH, group, publication.topic)
            if publication.topic in self._reserved:
                principal.refuse(Action.PUBLISH, group, publication.topic)
            isOpen = self._check(ledger, publication, DEFAULT_POLICY)
            if not isOpen and not isDecidedByChain(ledger):
                raise TopicNotFound()
            if usage.limitsPublishes:
                usage.spendOne(eventSize(publication))
        except QuotaExceeded as error:
            self.meter.fail(DEFAULT_POLICY.carrier, error)
            return self._refuseLater(Failure())
        except Exception as error:
            self.meter.fail(DEFAULT_POLICY.carrier, error)
            return fail()
        if publication.author is not None or publication.idempotencyKey is not None:
            try:
                publication = prepare(ledger, principal, publication)
            except SignatureInvalid as error:
                self.meter.fail(DEFAULT_POLICY.carrier, error)
                if usage.quotas.inflight is not None:
                    usage.answered(None, 1)
                return fail()
        published = (publication,)
        done: Deferred[Any] = self._submit(ledger, published, DEFAULT_POLICY).done
        if usage.quotas.inflight is not None:
            done.addBoth(usage.answered, 1)
        answer: Deferred[PublishOutcome] = done.addCallbacks(
            self._answerOne,
            self._failOne,
            callbackArgs=published,
            errbackArgs=published,
        )
        return answer if isOpen else answer.addCallback(_notFound)

    def publish(
        self, principal: Principal, publications: Sequence[Publication], policy: PublishPolicy
    ) -> PublishBatch:
        """See L{Broker.submit<svcbroker.broker.Broker.submit>}."""
        usage, count = principal.usage, len(publications)
        if not usage.limitsPublishes:
            return self._publish(principal, publications, policy)
        sizes = list(map(eventSize, publications))
        taken, error = usage.spend(sizes, isWhole=policy.isWhole)
        batch = self._publish(principal, publications[:taken], policy)
        if usage.quotas.inflight is not None:
            batch.done.addBoth(usage.answered, taken)
        if error is None:
            return batch
        self.meter.fail(policy.carrier, error, count - taken)
        refused: list[Answer | None] = [error] * (count - taken)
        batch.done.addCallback(lambda answers: [*answers, *refused])
        if not policy.isPaced:
            batch.done.addCallback(self._refuseLater)
        return PublishBatch([*batch.answers, *refused], hasRefused=True, done=batch.done)

    def _answerOne(self, submission: Submission, publication: Publication) -> PublishOutcome:
        self._work.settled(1)
        [outcome] = submission.outcomes
        if isinstance(outcome, Receipt) and outcome.execution is Execution.DONE:
            self.meter.successes["http"] += 1
            return PublishOutcome(publication.topic, SendStatus.SUCCESS, outcome.eventId)
        answer = answerOf(publication, outcome)
        self.meter.answer(DEFAULT_POLICY.carrier, answer)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def _failOne(self, failure: Failure, publication: Publication) -> PublishOutcome:
        self._work.settled(1)
        carrier = DEFAULT_POLICY.carrier
        if not failure.check(TransactionTimeout):
            self.meter.fail(carrier, failure.value)
            return failure  # type: ignore[return-value]
        answer = PublishOutcome(publication.topic, SendStatus.TIMEOUT)
        self.meter.answer(carrier, answer)
        return answer

    def _refuseLater(self, answer: Any) -> Deferred[Any]:
        """
        @return: fires with C{answer}, which may be a failure, after L{REFUSAL_DELAY}.
        """
        later: Deferred[Any] = Deferred()
        self._refusals.limit(later)
        return later.addErrback(_refuse, answer)

    def _publish(
        self, principal: Principal, publications: Sequence[Publication], policy: PublishPolicy
    ) -> PublishBatch:
        answers: list[Answer | None] = [None] * len(publications)
        hasRefused = False
        parts: dict[str | None, LedgerBatch] = {}
        maxContent = self._maxContent
        like: Publication | None = None
        part: Any = None
        for place, publication in enumerate(publications):
            # Hot path: an event that differs from the one before it in its content alone.
            if (
                like is not None
                and publication.topic == like.topic
                and publication.extensions == like.extensions
                and publication.groupId == like.groupId
                and publication.author is None
                # To a closed topic an event with a key is submitted, and one without is not.
                and (publication.idempotencyKey is not None or like.idempotencyKey is None)
                and 0 < len(publication.content) <= maxContent
            ):
                if publication.idempotencyKey is not None:
                    publication = prepare(part.ledger, principal, publication)
                part.places.append(place)
                part.requests.append(publication)
                continue
            try:
                part = self._admit(principal, place, publication, parts, policy)
                like = publication
            except BrokerError as error:
                hasRefused = True
                answers[place] = error
                if policy.stopsAtRefusal:
                    count = len(answers) - place
                    answers[place:] = [error] * count
                    self.meter.fail(policy.carrier, error, count)
                    break
                self.meter.fail(policy.carrier, error)
            except Exception as error:
                self.meter.fail(policy.carrier, error, len(answers))
                return PublishBatch(answers, hasRefused, fail())
        waiting = [
            self._publishPart(part, answers, policy)
            for part in dict.fromkeys(parts.values())
            if part.requests
        ]
        isOne = len(waiting) == 1
        done = waiting[0] if isOne else Deferred.fromCoroutine(_complete(answers, waiting))
        return PublishBatch(answers, hasRefused, done)

    def _admit(
        self,
        principal: Principal,
        place: int,
        publication: Publication,
        parts: dict[str | None, LedgerBatch],
        policy: PublishPolicy,
    ) -> LedgerBatch:
        """
        Check an event and add it to those for its ledger, which are returned.

        @raise BrokerError: it cannot be published.
        """
        part = parts.get(publication.groupId)
        if part is None:
            # A group has several names: "1" is also the absent and the blank one.
            group, ledger = self._groups.find(principal, publication.groupId)
            known = (each for each in parts.values() if each.ledger is ledger)
            part = parts[publication.groupId] = next(known, None) or LedgerBatch(
                principal, group, ledger
            )
        topic = publication.topic
        if not principal.isEverything:
            principal.require(Action.PUBLISH, part.group, topic)
        isOpen = True
        if topic in part.topics:
            self._checkEvent(publication, policy)
        else:
            if topic in self._reserved:
                principal.refuse(Action.PUBLISH, part.group, topic)
            isOpen = self._check(part.ledger, publication, policy)
            if not isOpen:
                isOpen = self._leaveToChain(part, topic, policy)
            elif publication.idempotencyKey is None:
                part.topics.add(topic)
        if publication.author is not None or publication.idempotencyKey is not None:
            publication = prepare(part.ledger, principal, publication)
        if not isOpen:
            part.open(topic)
        part.add(place, publication)
        return part

    def _leaveToChain(self, part: LedgerBatch, topic: str, policy: PublishPolicy) -> bool:
        """
        Whether the chain is to decide if a topic is open that is not, as far as this node knows.
        Otherwise it is opened.

        @raise BrokerError: nothing can be published to it.
        """
        mayOpen = policy.opensTopics
        if isDecidedByChain(part.ledger):
            if mayOpen and part.principal.may(Action.OPEN, part.group, topic):
                return False
            part.unknown.add(topic)
            return True
        if not mayOpen:
            raise TopicNotFound()
        part.principal.require(Action.OPEN, part.group, topic)
        return False

    def _check(self, ledger: ILedger, publication: Publication, policy: PublishPolicy) -> bool:
        """
        Check an event, and tell whether its topic is open, or was open when the event may have been
        published before.

        @raise BrokerError: it cannot be published.
        """
        try:
            state = ledger.topicState(publication.topic)
        except BrokerError:
            # What is wrong with the event comes first: trying again would not help.
            checkTopicName(publication.topic)
            self._checkEvent(publication, policy)
            raise
        if state is None or not state.isOpen:
            checkTopicName(publication.topic)
        self._checkEvent(publication, policy)
        if publication.idempotencyKey is not None:
            # If it was published before, the chain answers that, whatever the topic is now.
            return state is not None
        if state is None or not state.isOpen:
            return False
        if state.authors is not None and not isDecidedByChain(ledger):
            author = publication.author
            if author is None or author.key not in state.authors.authors:
                raise AuthorRefused()
        return True

    def _checkEvent(self, publication: Publication, policy: PublishPolicy) -> None:
        size = len(publication.content)
        if size > self._maxContent or not (size or policy.mayBeEmpty):
            checkContent(publication.content, self._maxContent)
        extensions = publication.extensions
        # A carrier may give many events the same object.
        if extensions and extensions is not self._checkedExtensions:
            checkExtensions(extensions)
            self._checkedExtensions = extensions

    def _submit(
        self, ledger: ILedger, requests: Sequence[Request], policy: PublishPolicy
    ) -> Submission:
        """
        Give a ledger what is to be published.

        @return: its outcomes. Whoever handles them calls C{settled} of the budget of time.
        """
        try:
            submission = ledger.submitMany(requests)
        except Exception:
            self._log.failure("A ledger raised an error, which its contract does not allow")
            error = LedgerUnavailable("the ledger failed")
            submission = Submission.refused(len(requests), error)
        # Hot path: whoever handles the outcomes counts them, without a callback of its own.
        self._work.submitted(len(requests))
        if policy.hasTimeout:
            self._timeouts[ledger].limit(submission.done)
        return submission

    def _publishPart(
        self, part: LedgerBatch, answers: list[Answer | None], policy: PublishPolicy
    ) -> Deferred[Any]:
        """
        Submit events.

        @return: fires with C{answers}, when those to the events are there.
        """
        submission = self._submit(part.ledger, part.requests, policy)

        def answer(result: Any) -> Any:
            self._work.settled(len(part.requests))
            # Outcomes that are unknown at the time-out are answered with TIMEOUT.
            if isinstance(result, Failure):
                result.trap(TransactionTimeout)
            return self._answer(part, submission.outcomes, answers, policy)

        return submission.done.addBoth(answer)

    def _answer(
        self,
        part: LedgerBatch,
        outcomes: Sequence[Receipt | BrokerError | None],
        answers: list[Answer | None],
        policy: PublishPolicy,
    ) -> Sequence[Answer | None] | Deferred[Any]:
        """
        Answer the events of a part.

        @return: C{answers}, where the last answer is there; otherwise fires with them when it is.
        """
        found: Sequence[Answer | None]
        isDone = _areDone(outcomes)
        if isDone:
            self.meter.successes[policy.carrier] += part.eventCount
        if policy.wantsResults:
            found = answersOf(part.requests, outcomes)
            if part.unknown:
                found = [_asUnknown(answer, part.unknown) for answer in found]
        elif isDone:
            # Hot path: everything is in the log.
            return answers
        else:
            found = list(map(refusalOf, part.requests, outcomes))
        if part.isWhole and len(found) == len(answers):
            answers[:] = found
        else:
            for place, answer in zip(part.places, found, strict=True):
                if place is not None:
                    answers[place] = answer
        if isDone:
            return answers
        closed = []
        if policy.opensTopics:
            closed = [number for number, each in enumerate(outcomes) if _isTopicClosed(each)]
        again = self._openAgain(part, closed, answers)
        # Those that are published again are counted then.
        counted = {place for place in part.places if place is not None}.difference(again.places)
        answered = zip(part.places, found, strict=True)
        for place, answer in answered:
            if place in counted:
                self.meter.answer(policy.carrier, answer)
        if not again.requests:
            return answers
        return self._publishPart(again, answers, evolve(policy, opensTopics=False))

    def _openAgain(
        self, part: LedgerBatch, numbers: Sequence[int], answers: list[Answer | None]
    ) -> LedgerBatch:
        """
        Events of which the topics were closed after the events were checked, to be published once
        more, as far as the principal may open the topics.

        @param numbers: their indexes among the requests of C{part}.
        """
        principal, group = part.principal, part.group
        again = LedgerBatch(principal, group, part.ledger)
        for number in numbers:
            place, request = part.places[number], part.requests[number]
            if place is not None and principal.may(Action.OPEN, group, request.topic):
                again.open(request.topic)
                again.add(place, request)
                answers[place] = None
        return again


def _refuse(failure: Failure, answer: Any) -> Any:
    failure.trap(TransactionTimeout)
    return answer


def _notFound(result: PublishOutcome) -> PublishOutcome:
    """
    The answer to a publish to a topic that was not open when it was submitted.

    @raise TopicNotFound: nor was it when it was executed.
    """
    if result.status is SendStatus.ERROR:
        raise TopicNotFound()
    return result


def _asUnknown(answer: Answer, unknown: Set[str]) -> Answer:
    """The same as L{_notFound} for an answer among others."""
    if isinstance(answer, BrokerError) or answer.topic not in unknown:
        return answer
    return TopicNotFound() if answer.status is SendStatus.ERROR else answer


def _isTopicClosed(outcome: Receipt | BrokerError | None) -> bool:
    return isinstance(outcome, Receipt) and outcome.execution is Execution.TOPIC_NOT_FOUND


def _areDone(outcomes: Sequence[Receipt | BrokerError | None]) -> bool:
    done = Execution.DONE
    for outcome in outcomes:
        if not isinstance(outcome, Receipt) or outcome.execution is not done:
            return False
    return True


async def _complete(
    answers: list[Answer | None], waiting: Sequence[Deferred[Any]]
) -> Sequence[Answer | None]:
    for part in waiting:
        await part
    return answers


class TracedPublishing(Publishing):
    """
    Publishing that tells a tracer of each call, from its acceptance to its answers. A broker
    without a tracer publishes without this class, so that it pays nothing.
    """

    def __init__(
        self,
        groups: Groups,
        limits: Limits,
        clock: IReactorTime,
        work: WorkBudget,
        tracer: Tracer,
    ) -> None:
        super().__init__(groups, limits, clock, work)
        self._tracer = tracer

    def publishOne(
        self, principal: Principal, publication: Publication
    ) -> Deferred[PublishOutcome]:
        """See L{Publishing.publishOne}."""
        span = self._tracer.publishing(DEFAULT_POLICY.carrier, (publication,))
        done = super().publishOne(principal, publication)
        return done if span is None else done.addBoth(span.end)

    def publish(
        self, principal: Principal, publications: Sequence[Publication], policy: PublishPolicy
    ) -> PublishBatch:
        """See L{Publishing.publish}."""
        span = self._tracer.publishing(policy.carrier, publications)
        batch = super().publish(principal, publications, policy)
        if span is not None:
            batch.done.addBoth(span.end)
        return batch
