"""
The publish pipeline: the one way of an event from a carrier to a ledger.

A carrier gives L{Publication}s and a L{PublishPolicy}, and gets the outcome of each: a
L{SendResult}, or the error. Events are checked when they are given. Those that all carriers give in
one turn of the reactor enter a ledger as one submission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec
from attrs import evolve, frozen
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..access import Principal
from ..chain import isSignedBy, statement
from ..errors import (
    AuthorRefused,
    BrokerError,
    IdempotencyConflict,
    LedgerUnavailable,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    QuotaExceeded,
    SequenceConflict,
    SignatureInvalid,
    TopicNotFound,
    TransactionFailed,
    TransactionTimeout,
)
from ..interfaces import Action, ILedger, Submission, isDecidedByChain
from ..model import (
    Authorship,
    CloseTopic,
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Request,
    checkContent,
    checkExtensions,
    eventSize,
)
from ..net.budgets import WorkBudget
from ..net.metrics import Tracer
from ..net.turns import EndOfTurn
from ._groups import Groups, Limits, TimeoutQueue, checkTopic

_log = Logger()


class Publication(PublishEvent, frozen=True, kw_only=True):
    """
    An event to be published, as a carrier read it; nothing of it was checked yet.

    @ivar groupId: the group, as the client says it.
    """

    groupId: str | None = None


def authorshipOf(
    author: bytes | None, signature: bytes | None, signedAt: int | None
) -> Authorship | None:
    """
    The authorship of an event, by the parameters of its publish.

    @return: C{None} where there are no such parameters.
    @raise SignatureInvalid: there are some of the three, but not all.
    """
    if author is None and signature is None and signedAt is None:
        return None
    given = {"author": author, "signature": signature, "signedAt": signedAt}
    for name, value in given.items():
        if value is None:
            raise SignatureInvalid(f"{name}: a signed event needs it")
    assert author is not None
    assert signature is not None
    assert signedAt is not None
    return Authorship(key=author, signedAt=signedAt, signature=signature)


def makePublication(
    topic: str,
    groupId: str | None,
    content: bytes,
    extensions: Mapping[str, str],
    author: bytes | None = None,
    signature: bytes | None = None,
    signedAt: int | None = None,
    idempotencyKey: str | None = None,
    expectedSequence: int | None = None,
) -> Publication:
    """
    Make an event to be published of the parameters of its publish, which are in their order.

    @raise SignatureInvalid: there are not all three of author, signature and time.
    """
    return Publication(
        topic=topic,
        groupId=groupId,
        content=content,
        extensions=extensions,
        author=authorshipOf(author, signature, signedAt),
        idempotencyKey=idempotencyKey,
        expectedSequence=expectedSequence,
    )


@frozen(kw_only=True, eq=False)
class PublishPolicy:
    """
    The wishes of a carrier for its publishes. A carrier makes each once: calls of one turn with the
    same object are made together.

    @ivar carrier: the name of the carrier, for metrics.
    @ivar hasTimeout: whether an answer comes after the chain's time-out at the latest. Otherwise it
        comes when the outcome is known.
    @ivar opensTopics: whether publishing to a topic that is not open opens it. Otherwise it is
        refused.
    @ivar mayBeEmpty: whether an event may have no content.
    @ivar stopsAtRefusal: whether the events after a refused one are refused too, with its error.
    @ivar wantsResults: whether published events are answered with a L{SendResult}. Otherwise their
        outcome is C{None}, which costs nothing, and any other outcome is an error.
    @ivar isWhole: whether no event is published where the quotas of the account have no room for
        all. Otherwise the first are for which they have.
    @ivar own: the topics that only this carrier publishes to.
    @ivar isPaced: whether the carrier itself waits for L{REFUSAL_DELAY} before it reads on from a
        client over a quota. Otherwise the answer comes so much later.
    """

    carrier: str = "http"
    hasTimeout: bool = True
    opensTopics: bool = False
    mayBeEmpty: bool = False
    stopsAtRefusal: bool = False
    wantsResults: bool = True
    isWhole: bool = False
    isPaced: bool = False
    own: frozenset[str] = frozenset()


DEFAULT_POLICY: Final = PublishPolicy()
"""The policy of REST and JSON-RPC."""


class SendStatus(Enum):
    """The status of a publish."""

    SUCCESS = "SUCCESS"
    """The event is in a final block on stable storage."""
    TIMEOUT = "TIMEOUT"
    """The chain gave no answer in time. The event may still appear."""
    ERROR = "ERROR"
    """The chain executed the publish and refused it."""


class SendResult(Struct, frozen=True):
    """
    The outcome of a publish. There is an event id only with SUCCESS: that of the event that was
    published now, or by an earlier publish with the same idempotency key.
    """

    topic: str
    eventId: str | None
    status: SendStatus


Outcome: TypeAlias = SendResult | BrokerError
"""The result of a publish, as a client is told it."""

_SUCCESS: Final = SendStatus.SUCCESS
_DONE: Final = Execution.DONE
_PUBLISHED: Final = frozenset({Execution.DONE, Execution.PUBLISHED_BEFORE})
_ERRORS: Final[Mapping[Execution, type[BrokerError]]] = {
    Execution.TOPIC_NOT_FOUND: TopicNotFound,
    Execution.KEY_IN_USE: IdempotencyConflict,
    Execution.NO_AUTHOR: AuthorRefused,
}


def outcomeOf(request: Request, found: Receipt | BrokerError | None) -> Outcome:
    """
    The outcome of a publish.

    @param found: the receipt, or why it was not executed; C{None} where that is not known in time.
    """
    if not isinstance(found, Receipt):
        return SendResult(request.topic, None, SendStatus.TIMEOUT) if found is None else found
    if found.execution in _PUBLISHED:
        eventId = None if found.eventId is None else str(found.eventId)
        return SendResult(request.topic, eventId, _SUCCESS)
    if found.execution is Execution.TOPIC_NOT_FOUND:
        return SendResult(request.topic, None, SendStatus.ERROR)
    return _errorOf(request, found)


def refusalOf(request: Request, found: Receipt | BrokerError | None) -> BrokerError | None:
    """The error of a publish that is not in the log; C{None} where it is."""
    if not isinstance(found, Receipt):
        return LedgerUnavailable() if found is None else found
    return None if found.execution in _PUBLISHED else _errorOf(request, found)


def _errorOf(request: Request, receipt: Receipt) -> BrokerError:
    execution = receipt.execution
    if execution is Execution.KEY_IN_USE and receipt.eventId is not None:
        return IdempotencyConflict(
            f"idempotency key has published event {receipt.eventId}, which was erased: whether "
            "that had this content cannot be told"
        )
    if execution is Execution.OTHER_SEQUENCE:
        return SequenceConflict(receipt.sequence)
    isSigned = isinstance(request, PublishEvent) and request.author is not None
    if execution is Execution.REFUSED and isSigned:
        return SignatureInvalid()
    return _ERRORS.get(execution, TransactionFailed)()


def prepare(ledger: ILedger, principal: Principal, publication: Publication) -> Publication:
    """
    Check the signature of an event, and name the account that owns its idempotency key.

    @return: the event as it is submitted, with the version of the statement that is signed.
    @raise SignatureInvalid: the signature is not the author's.
    """
    author = publication.author
    if author is None:
        if publication.publisher == principal.name:
            return publication
        return msgspec.structs.replace(publication, publisher=principal.name)
    # A ledger that does not tell its chain checks signatures alone.
    if not ledger.chain:
        return publication
    expected = publication.expectedSequence
    # The signature tells which version was signed; most authors who expect a number sign version 2.
    for version in (1, 2) if expected is None else (2, 1):
        signed = statement(
            ledger.chain,
            publication.topic,
            publication.content,
            author.signedAt,
            publication.idempotencyKey,
            publication.extensions,
            version,
            expected,
        )
        if isSignedBy(author, signed):
            if version == author.statement:
                return publication
            author = msgspec.structs.replace(author, statement=version)
            return msgspec.structs.replace(publication, author=author)
    raise SignatureInvalid()


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

    def count(self, carrier: str, outcome: Outcome | None) -> None:
        """
        Count an event by its outcome.

        @param outcome: C{None} where it is in the log.
        """
        if isinstance(outcome, BrokerError):
            self.fail(carrier, outcome)
        elif outcome is None or outcome.status is SendStatus.SUCCESS:
            self.successes[carrier] += 1
        else:
            self.others[carrier, _OF_RESULTS[outcome.status]] += 1


MAX_TOGETHER: Final = 1000
"""The most events of several calls that are submitted together: they are in one block."""
MAX_TOGETHER_BYTES: Final = 256 * 1024
"""The most bytes of them: larger events may need several blocks, and all are answered when the last
of them is stored."""


Answered: TypeAlias = Callable[[Any], object]
"""A function that takes the outcomes of a call's events, or the C{Failure} of the call."""


class LedgerRequests:
    """
    Requests for one ledger, which wait for the end of the turn, and then for their outcomes.

    @ivar size: the bytes of the events' contents.
    @ivar submission: what they were submitted with; C{None} before.
    @ivar start: the index there of the first request.
    @ivar done: fires when the outcomes are known. The caller may cancel it.
    """

    __slots__ = ("done", "ledger", "requests", "size", "start", "submission")

    def __init__(self, ledger: ILedger) -> None:
        self.ledger = ledger
        self.requests: list[Request] = []
        self.size = 0
        self.submission: Submission | None = None
        self.start = 0
        self.done: Deferred[Any] = Deferred()

    @property
    def found(self) -> Sequence[Receipt | BrokerError | None]:
        """The ledger's answers to the requests; C{None} for each that is not known."""
        count = len(self.requests)
        if self.submission is None:
            return [None] * count
        found = self.submission.outcomes
        return found if len(found) == count else found[self.start : self.start + count]


class LedgerBatch(LedgerRequests):
    """
    The events of one call for one ledger, or those of L{SharedCall}.

    @ivar principal: who publishes them.
    @ivar policy: how.
    @ivar outcomes: those of all events of the call, into which those of these events are put.
    @ivar places: the index of each request's event in the call; C{None} for requests that open a
        topic.
    @ivar topics: topics that are open when the requests are executed, as far as is known.
    @ivar unknown: topics that are not open as far as this node knows; the chain decides.
    @ivar isWhole: whether every request is an event.
    @ivar callers: where the events are of several calls, of one event each: what is called with
        each outcome.
    """

    __slots__ = (
        *("principal", "policy", "outcomes", "group", "places"),
        *("topics", "unknown", "isWhole", "callers"),
    )

    def __init__(
        self,
        principal: Principal,
        policy: PublishPolicy,
        outcomes: list[Outcome | None],
        group: str,
        ledger: ILedger,
    ) -> None:
        super().__init__(ledger)
        self.principal = principal
        self.policy = policy
        self.outcomes = outcomes
        self.group = group
        self.places: list[int | None] = []
        self.topics: set[str] = set()
        self.unknown: set[str] = set()
        self.isWhole = True
        self.callers: list[tuple[int, Answered]] = []

    @property
    def eventCount(self) -> int:
        """The number of events."""
        return len(self.places) - (0 if self.isWhole else self.places.count(None))

    def add(self, place: int, publication: Publication) -> None:
        """Publish an event after the others."""
        self.places.append(place)
        self.requests.append(publication)
        self.size += len(publication.content)

    def fill(self, ended: Sequence[Outcome | None]) -> None:
        """Put the outcomes of the requests into those of the call."""
        if self.isWhole and len(ended) == len(self.outcomes):
            self.outcomes[:] = ended
            return
        for place, outcome in zip(self.places, ended, strict=True):
            if place is not None:
                self.outcomes[place] = outcome

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


class SharedCall:
    """
    The calls of one turn that publish one event each, for one account and with one policy: most of
    what a call costs is done once for all of them.

    @ivar outcomes: those of all events.
    @ivar parts: the events by the name of their group.
    """

    __slots__ = ("outcomes", "parts")

    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []
        self.parts: dict[str | None, LedgerBatch] = {}


def _together(batches: Sequence[LedgerRequests]) -> Iterator[Sequence[LedgerRequests]]:
    """Requests for one ledger, in their order, as they are submitted together."""
    start = count = size = 0
    for number, batch in enumerate(batches):
        count += len(batch.requests)
        size += batch.size
        if number > start and (count > MAX_TOGETHER or size > MAX_TOGETHER_BYTES):
            yield batches[start:number]
            start, count, size = number, len(batch.requests), batch.size
    yield batches[start:]


class Publishing:
    """
    Checks events and submits them: at the end of the turn of the reactor in which they are given,
    so that those of all connections are one submission. Where calls would wait for another turn,
    they are submitted at once.

    The log has everything in the order of the calls, opening and closing of topics included. Single
    events of one account that come by several connections in one turn may be before those of others
    in that turn.

    @ivar meter: counts them.
    @ivar turn: the end of the turn, in which others may still publish.
    """

    def __init__(
        self, groups: Groups, limits: Limits, clock: IReactorTime, work: WorkBudget
    ) -> None:
        """
        @param work: counts the events that are with the ledgers.
        """
        self.meter = PublishMeter()
        self.turn = EndOfTurn(clock)
        self._work = work
        self._groups = groups
        self._waiting: list[LedgerRequests] = []
        # Those of this turn that further calls may join.
        self._shared: dict[tuple[Principal, PublishPolicy], SharedCall] = {}
        # How many requests that open or close a topic wait, or are with its ledger.
        self._changing: Counter[tuple[ILedger, str]] = Counter()
        self._timeouts = {
            ledger: TimeoutQueue(clock, limits.chainTimeout) for _, ledger in groups.items()
        }
        self._refusals = TimeoutQueue(clock, REFUSAL_DELAY)
        self._maxContent = limits.maxContent
        self._reserved = limits.reservedTopics
        self._checkedExtensions: object = None

    def stop(self) -> None:
        """Cancel the timers. Called once, after the ledgers have stopped."""
        self.submitAll()
        self.turn.stop()
        for timeouts in (*self._timeouts.values(), self._refusals):
            timeouts.stop()

    def publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> Deferred[Any]:
        """See L{Broker.publish<svcbroker.broker.Broker.publish>}."""
        usage, count = principal.usage, len(publications)
        # What is published after this call must not join what was published before.
        self._shared.clear()
        outcomes: list[Outcome | None] = [None] * count
        if not usage.limitsPublishes:
            return self._publish(principal, publications, policy, outcomes, refused)
        sizes = list(map(eventSize, publications))
        taken, error = usage.spend(sizes, isWhole=policy.isWhole)
        if error is not None:
            outcomes[taken:] = [error] * (count - taken)
            self.meter.fail(policy.carrier, error, count - taken)
        done = self._publish(principal, publications[:taken], policy, outcomes, refused)
        if usage.quotas.inflight is not None:
            done.addBoth(usage.answered, taken)
        if error is not None and not policy.isPaced:
            done.addCallback(self._refuseLater)
        return done

    def publishInTurn(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        answered: Answered,
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> None:
        """See L{Broker.publishInTurn<svcbroker.broker.Broker.publishInTurn>}."""
        isOne = len(publications) == 1 and self.turn.isWithinTurn
        if isOne and not principal.usage.limitsPublishes:
            self._join(principal, publications[0], policy, answered, refused)
        else:
            self.publish(principal, publications, policy, refused).addBoth(answered)

    def _join(
        self,
        principal: Principal,
        publication: Publication,
        policy: PublishPolicy,
        answered: Answered,
        refused: Callable[[Sequence[Outcome | None]], object] | None,
    ) -> None:
        """Publish one event together with those of other calls of this turn. Hot path."""
        key = (principal, policy)
        shared = self._shared.get(key) or SharedCall()
        outcomes, known = shared.outcomes, shared.parts.get(publication.groupId)
        place, before = len(outcomes), 0 if known is None else len(known.requests)
        try:
            part = self._admit(principal, place, publication, shared.parts, policy, outcomes)
        except BrokerError as error:
            self.meter.fail(policy.carrier, error)
            found = [error.with_traceback(None)]
            if refused is not None:
                refused(found)
            answered(found)
            return
        except Exception as error:
            self.meter.fail(policy.carrier, error)
            answered(Failure())
            return
        # Where nothing is published, the end of the turn may not be waited for.
        self._shared[key] = shared
        outcomes.append(None)
        self._work.submitted(len(part.requests) - before)
        if not part.callers:
            self._waitForEvents(part)
            part.done.addBoth(_tell, part)
        part.callers.append((place, answered))
        if len(part.requests) >= MAX_TOGETHER or part.size > MAX_TOGETHER_BYTES:
            del self._shared[key]

    def change(self, ledger: ILedger, request: OpenTopic | CloseTopic) -> Deferred[Receipt]:
        """
        Open or close a topic, after everything that was asked for before.

        @return: fires with the receipt, or fails with the error why it was not executed.
        """
        self._shared.clear()
        batch = LedgerRequests(ledger)
        batch.requests.append(request)
        self._changing[ledger, request.topic] += 1
        self._wait(batch)
        if not self.turn.isWithinTurn:
            self.submitAll()
        if not batch.done.called:
            self._timeouts[ledger].limit(batch.done)
        return batch.done.addCallback(_onlyReceipt, batch)

    def isUndecided(self, ledger: ILedger, topic: str) -> bool:
        """
        Whether the chain alone knows if a topic is open when it executes the next request: this
        node may be behind, or the topic is being opened or closed.
        """
        return (ledger, topic) in self._changing or isDecidedByChain(ledger)

    def _refuseLater(self, outcomes: Any) -> Deferred[Any]:
        """
        @return: fires with C{outcomes} after L{REFUSAL_DELAY}.
        """
        later: Deferred[Any] = Deferred()
        self._refusals.limit(later)
        return later.addErrback(_refuse, outcomes)

    def _publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        outcomes: list[Outcome | None],
        refused: Callable[[Sequence[Outcome | None]], object] | None,
    ) -> Deferred[Any]:
        """
        Publish events for which quotas have room.

        @param outcomes: those of all events of the call, these first; has those that are refused by
            a quota, and gets the others.
        """
        hasRefused = len(publications) < len(outcomes)
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
                part.size += len(publication.content)
                continue
            try:
                part = self._admit(principal, place, publication, parts, policy, outcomes)
                like = publication
            except BrokerError as error:
                hasRefused = True
                outcomes[place] = error.with_traceback(None)
                if policy.stopsAtRefusal:
                    rest = len(publications) - place
                    outcomes[place : place + rest] = [error] * rest
                    self.meter.fail(policy.carrier, error, rest)
                    break
                self.meter.fail(policy.carrier, error)
            except Exception as error:
                self.meter.fail(policy.carrier, error, len(publications))
                return fail()
        batches = [each for each in dict.fromkeys(parts.values()) if each.requests]
        done = self._submit(batches, outcomes)
        if hasRefused and refused is not None:
            refused(outcomes)
        return done

    def _admit(
        self,
        principal: Principal,
        place: int,
        publication: Publication,
        parts: dict[str | None, LedgerBatch],
        policy: PublishPolicy,
        outcomes: list[Outcome | None],
    ) -> LedgerBatch:
        """
        Check an event and add it to those for its ledger, which are returned.

        @raise BrokerError: it cannot be published.
        """
        part = parts.get(publication.groupId)
        if part is None:
            # A group has several names: "1" is also the absent and the blank one.
            group, ledger = self._groups.find(principal, publication.groupId)
            known = [each for each in parts.values() if each.ledger is ledger] if parts else ()
            part = known[0] if known else LedgerBatch(principal, policy, outcomes, group, ledger)
            parts[publication.groupId] = part
        topic = publication.topic
        if not principal.isEverything:
            principal.require(Action.PUBLISH, part.group, topic)
        isOpen = True
        if topic in part.topics:
            self._checkEvent(publication, policy)
        else:
            if topic in self._reserved and topic not in policy.own:
                principal.refuse(Action.PUBLISH, part.group, topic)
            isOpen = self._check(part.ledger, publication, policy)
            if not isOpen:
                isOpen = self._leaveToChain(part, topic)
            elif publication.idempotencyKey is None:
                part.topics.add(topic)
        if publication.author is not None or publication.idempotencyKey is not None:
            publication = prepare(part.ledger, principal, publication)
        if not isOpen:
            part.open(topic)
        part.add(place, publication)
        return part

    def _leaveToChain(self, part: LedgerBatch, topic: str) -> bool:
        """
        Whether the chain is to decide if a topic is open that is not, as far as this node knows.
        Otherwise it is opened.

        @raise BrokerError: nothing can be published to it.
        """
        mayOpen = part.policy.opensTopics
        if self.isUndecided(part.ledger, topic):
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
        Check an event, and tell whether its topic is open as far as this node knows, or was open
        when the event may have been published before.

        @raise BrokerError: it cannot be published.
        """
        try:
            state = ledger.topicState(publication.topic)
        except BrokerError:
            # What is wrong with the event comes first: trying again would not help.
            checkTopic(ledger, publication.topic)
            self._checkEvent(publication, policy)
            raise
        if state is None or not state.isOpen:
            checkTopic(ledger, publication.topic)
        self._checkEvent(publication, policy)
        if publication.idempotencyKey is not None:
            # If it was published before, the chain answers that, whatever the topic is now.
            return state is not None
        if state is None or not state.isOpen or (ledger, publication.topic) in self._changing:
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
        self, batches: Sequence[LedgerBatch], outcomes: list[Outcome | None]
    ) -> Deferred[Any]:
        """
        Submit the events of a call by the end of the turn.

        @return: fires with C{outcomes} when those of these events are there.
        """
        for batch in batches:
            # Hot path: the budget of time is told here, without a callback of its own.
            self._work.submitted(len(batch.requests))
            self._waitForEvents(batch)
        if not self.turn.isWithinTurn:
            self.submitAll()
        if len(batches) == 1:
            return batches[0].done
        return Deferred.fromCoroutine(_complete(outcomes, batches))

    def _waitForEvents(self, batch: LedgerBatch) -> None:
        """Submit events by the end of the turn, where calls are made then."""
        self._wait(batch)
        batch.done.addBoth(self._answered, batch)
        if batch.policy.hasTimeout:
            # The ledger answers in the order of the calls.
            self._timeouts[batch.ledger].limit(batch.done)

    def _wait(self, batch: LedgerRequests) -> None:
        """Submit requests by the end of the turn, where calls are made then."""
        if not self._waiting and self.turn.isWithinTurn:
            self.turn.addLast(self.submitAll)
        self._waiting.append(batch)

    def submitAll(self) -> None:
        """Submit what waits for the end of the turn."""
        waiting, self._waiting = self._waiting, []
        self._shared.clear()
        ledgers: dict[ILedger, list[LedgerRequests]] = {}
        for batch in waiting:
            ledgers.setdefault(batch.ledger, []).append(batch)
        for ledger, batches in ledgers.items():
            for together in _together(batches):
                self._submitTogether(ledger, together)

    def _submitTogether(self, ledger: ILedger, batches: Sequence[LedgerRequests]) -> None:
        """Give a ledger the requests of batches as one submission."""
        requests: Sequence[Request] = batches[0].requests
        if len(batches) > 1:
            requests = [request for batch in batches for request in batch.requests]
        try:
            submission = ledger.submitMany(requests)
        except Exception:
            _log.failure("A ledger raised an error, which its contract does not allow")
            error = LedgerUnavailable("the ledger failed")
            submission = Submission.refused(len(requests), error)
        start = 0
        for batch in batches:
            batch.submission, batch.start = submission, start
            start += len(batch.requests)
        submission.done.addBoth(self._settle, batches)

    def _settle(self, result: Any, batches: Sequence[LedgerRequests]) -> None:
        """Tell the batches of a submission that it has ended, where they still wait for that."""
        if self._changing:
            self._changed(batches)
        for batch in batches:
            if not batch.done.called:
                # A ledger never fails it.
                batch.done.callback(result if isinstance(result, Failure) else None)

    def _changed(self, batches: Sequence[LedgerRequests]) -> None:
        """The chain has opened and closed topics, whether that is still waited for or not."""
        changing = self._changing
        for batch in batches:
            for request in () if isinstance(batch, LedgerBatch) else batch.requests:
                if isinstance(request, OpenTopic | CloseTopic):
                    key = (batch.ledger, request.topic)
                    changing[key] -= 1
                    if not changing[key]:
                        del changing[key]

    def _answered(
        self, result: Any, batch: LedgerBatch
    ) -> Failure | Sequence[Outcome | None] | Deferred[Any]:
        """
        Put the outcomes of events where they belong.

        @param result: a failure where they are not waited for any more.
        @return: those of the whole call, or what fires with them.
        """
        policy, outcomes, requests = batch.policy, batch.outcomes, batch.requests
        self._work.settled(len(requests), isShared=bool(batch.callers))
        # Outcomes that are unknown at the time-out are TIMEOUT.
        if isinstance(result, Failure) and not result.check(TransactionTimeout):
            self.meter.fail(policy.carrier, result.value, batch.eventCount)
            return result
        found = batch.found
        if _areDone(found):
            # Hot path: everything is in the log.
            self.meter.successes[policy.carrier] += batch.eventCount
            if policy.wantsResults:
                batch.fill(
                    [
                        SendResult(request.topic, str(receipt.eventId), _SUCCESS)
                        for request, receipt in zip(requests, found, strict=True)
                    ]
                )
            return outcomes
        ended: Sequence[Outcome | None]
        if policy.wantsResults:
            ended = [_known(outcomeOf(*each), batch) for each in zip(requests, found, strict=True)]
        else:
            ended = list(map(refusalOf, requests, found))
        batch.fill(ended)
        again = self._openAgain(batch, found)
        # Those that are published again are counted then.
        counted = {place for place in batch.places if place is not None}.difference(again.places)
        for place, outcome in zip(batch.places, ended, strict=True):
            if place in counted:
                self.meter.count(policy.carrier, outcome)
        return self._submit([again], outcomes) if again.requests else outcomes

    def _openAgain(
        self, batch: LedgerBatch, found: Sequence[Receipt | BrokerError | None]
    ) -> LedgerBatch:
        """
        Events of which the topics were closed after the events were checked, to be published once
        more, as far as the principal may open the topics.

        @param found: what the ledger has answered.
        """
        principal, group, policy = batch.principal, batch.group, batch.policy
        once = evolve(policy, opensTopics=False)
        again = LedgerBatch(principal, once, batch.outcomes, group, batch.ledger)
        if not policy.opensTopics:
            return again
        for place, request, receipt in zip(batch.places, batch.requests, found, strict=True):
            if (
                place is not None
                and isinstance(request, Publication)
                and isinstance(receipt, Receipt)
                and receipt.execution is Execution.TOPIC_NOT_FOUND
                and principal.may(Action.OPEN, group, request.topic)
            ):
                again.open(request.topic)
                again.add(place, request)
                batch.outcomes[place] = None
        return again


def _onlyReceipt(_: object, batch: LedgerRequests) -> Receipt:
    """The receipt of a single request."""
    [found] = batch.found
    if isinstance(found, Receipt):
        return found
    raise LedgerUnavailable() if found is None else found


def _tell(result: Any, batch: LedgerBatch) -> None:
    """Tell each call that has joined others its outcome."""
    outcomes = batch.outcomes
    for place, answered in batch.callers:
        try:
            answered(result if isinstance(result, Failure) else [outcomes[place]])
        except Exception:
            _log.failure("A carrier failed to answer a publish")


def _refuse(failure: Failure, outcomes: Any) -> Any:
    failure.trap(TransactionTimeout)
    return outcomes


def _known(outcome: Outcome, batch: LedgerBatch) -> Outcome:
    """
    The outcome of a publish, of which the topic may not have been open when it was submitted.
    TopicNotFound, if it was not when it was executed, either.
    """
    if isinstance(outcome, BrokerError) or outcome.topic not in batch.unknown:
        return outcome
    return TopicNotFound() if outcome.status is SendStatus.ERROR else outcome


def _areDone(found: Sequence[Receipt | BrokerError | None]) -> TypeGuard[Sequence[Receipt]]:
    done = Execution.DONE
    for receipt in found:
        if not isinstance(receipt, Receipt) or receipt.execution is not done:
            return False
    return True


async def _complete(
    outcomes: list[Outcome | None], batches: Sequence[LedgerBatch]
) -> Sequence[Outcome | None]:
    for batch in batches:
        await batch.done
    return outcomes


class TracedPublishing(Publishing):
    """
    Publishing that tells a tracer of each call, from its acceptance to its outcomes. A broker
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

    def publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> Deferred[Any]:
        """See L{Publishing.publish}."""
        span = self._tracer.publishing(policy.carrier, publications)
        done = super().publish(principal, publications, policy, refused)
        return done if span is None else done.addBoth(span.end)

    def publishInTurn(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
        answered: Answered,
        refused: Callable[[Sequence[Outcome | None]], object] | None = None,
    ) -> None:
        """Publish each call alone: it has a span of its own."""
        self.publish(principal, publications, policy, refused).addBoth(answered)
