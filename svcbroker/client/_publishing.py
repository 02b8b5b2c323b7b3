"""
Publishing events once, in as many attempts as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from secrets import token_urlsafe
from typing import Any, Final

import msgspec

from ..errors import (
    BrokerError,
    ContentTooLarge,
    ParameterInvalid,
    QuotaExceeded,
    TopicNotFound,
    TransactionTimeout,
)
from ..model import checkExtensions
from ._answers import readAnswer
from ._attempts import Attempts, isRefused, isUncertain
from ._effects import Procedure
from ._errors import AnswerInvalid, Unreachable
from ._records import NewKey, Publication, Published, SendResult
from ._requests import Requests

MAX_BATCH: Final = 500
MAX_BATCH_SIZE: Final = 512 * 1024
"""The most events and bytes, of contents and extensions, of one request with several events."""

_sendResults = msgspec.json.Decoder(SendResult)


def batches(publications: Iterable[Publication]) -> Iterator[list[Publication]]:
    """Cut publications into batches for one request each."""
    batch: list[Publication] = []
    size = 0
    for each in publications:
        own = len(each.content) + sum(len(k) + len(v) for k, v in each.extensions.items())
        size += own
        if batch and (len(batch) == MAX_BATCH or size > MAX_BATCH_SIZE):
            yield batch
            batch, size = [], own
        batch.append(each)
    if batch:
        yield batch


def newKey() -> str:
    """
    An idempotency key: the time in milliseconds and random characters. Keys of the same time are
    neighbours in the index of a broker's store, so a block changes few of its pages.
    """
    return f"{time.time_ns() // 1_000_000:x}-{token_urlsafe(12)}"


class PublishBatch:
    """
    Events that are published together: those whose outcome is not final are sent again.
    """

    def __init__(
        self,
        requests: Requests,
        publications: Sequence[Publication],
        makeKey: Callable[[], str],
        sign: Callable[[Publication, str | None], Mapping[str, Any]] | None,
    ) -> None:
        """
        @param makeKey: makes idempotency keys.
        @param sign: makes the parameters of a signed publish, with its idempotency key; C{None}
            where no event is signed.
        """
        self._requests = requests
        # Parameters without which an event would be another one.
        self._needed = {
            name
            for each in publications
            for name, value in (
                ("idempotencyKey", each.idempotencyKey),
                ("expectedSequence", each.expectedSequence),
            )
            if value is not None and value is not NewKey.NEW
        }
        if sign is not None:
            self._needed.add("author")
        self._outcomes: list[Published | BrokerError] = [AnswerInvalid()] * len(publications)
        # Of those that wait, by their places.
        self._parameters: dict[int, dict[str, Any]] = {}
        for place, each in enumerate(publications):
            try:
                self._parameters[place] = _parameters(each, makeKey, sign)
            except BrokerError as error:
                self._outcomes[place] = error
        self._waiting = list(self._parameters)

    def run(self) -> Procedure[list[Published | BrokerError]]:
        """
        Publish the events.

        @return: the outcome of each.
        """
        attempts = self._requests.attempts()
        while self._waiting:
            count = len(self._waiting)
            error = yield from self._attempt(attempts)
            if error is not None:
                if len(self._waiting) < count:
                    attempts.progressed()
                if not isinstance(error, QuotaExceeded):
                    self._requests.forget(attempts.url)
                try:
                    yield from attempts.failed(error)
                except BrokerError:
                    break
        return self._outcomes

    def _attempt(self, attempts: Attempts) -> Procedure[BrokerError | None]:
        """
        Make one attempt.

        @return: why there has to be another one; C{None} where all outcomes are final.
        """
        try:
            known = yield from self._requests.parameters(attempts, "publish")
        except BrokerError as error:
            if isinstance(error, Unreachable):
                # It was asked for its parameters only.
                error = Unreachable(error.message, isSent=False, isFinal=error.isFinal)
            return self._settle([error] * len(self._waiting), isRepeatable=True)
        missing = self._needed - known
        if missing:
            refusal = ParameterInvalid(f"this broker knows no {min(missing)}")
            return self._settle([refusal] * len(self._waiting), isRepeatable=False)
        answers: Sequence[SendResult | BrokerError]
        try:
            if len(self._waiting) == 1:
                answers = [(yield from self._sendOne(attempts, self._waiting[0]))]
            else:
                answers = yield from self._sendMany(attempts)
        except BrokerError as error:
            answers = [error] * len(self._waiting)
        return self._settle(answers, isRepeatable="idempotencyKey" in known)

    def _sendOne(self, attempts: Attempts, place: int) -> Procedure[SendResult]:
        fields = dict(self._parameters[place])
        fields.update(fields.pop("extensions"))
        return readAnswer(
            (yield from self._requests.post(attempts, "publish", fields)), _sendResults
        )

    def _sendMany(self, attempts: Attempts) -> Procedure[list[SendResult | BrokerError]]:
        calls = [self._parameters[place] for place in self._waiting]
        try:
            outcomes = yield from self._requests.batch(attempts, "publish", calls)
        except ContentTooLarge:
            return (yield from self._sendEach(attempts))
        return [each if isinstance(each, BrokerError) else _resultOf(each) for each in outcomes]

    def _sendEach(self, attempts: Attempts) -> Procedure[list[SendResult | BrokerError]]:
        """Send events one by one, to a broker that takes small requests only."""
        answers: list[SendResult | BrokerError] = []
        for place in self._waiting:
            answer: SendResult | BrokerError
            try:
                answer = yield from self._sendOne(attempts, place)
            except BrokerError as error:
                answer = error
            answers.append(answer)
            outcome = self._outcomeOf(place, answer)
            if isinstance(outcome, BrokerError) and (isRefused(outcome) or isUncertain(outcome)):
                # The others come after it.
                rest = len(self._waiting) - len(answers)
                return answers + [Unreachable("not sent", isSent=False)] * rest
        return answers

    def _settle(
        self, answers: Sequence[SendResult | BrokerError], *, isRepeatable: bool
    ) -> BrokerError | None:
        """
        Take the answers to the events that wait.

        @param isRepeatable: whether events may be sent again that may have been published.
        @return: why there has to be another attempt.
        """
        again: BrokerError | None = None
        waiting, self._waiting = self._waiting, []
        for place, answer in zip(waiting, answers, strict=True):
            before, outcome = self._outcomes[place], self._outcomeOf(place, answer)
            isOpen = isinstance(before, BrokerError) and isUncertain(before)
            if not (isOpen and isinstance(outcome, BrokerError) and isRefused(outcome)):
                # Else it is still open whether an earlier attempt has published it.
                self._outcomes[place] = outcome
            if isinstance(outcome, BrokerError) and (
                isRefused(outcome)
                or (isRepeatable and self._keyAt(place) is not None and isUncertain(outcome))
            ):
                self._waiting.append(place)
                again = again or outcome
        return again

    def _outcomeOf(self, place: int, answer: SendResult | BrokerError) -> Published | BrokerError:
        if isinstance(answer, BrokerError):
            return answer
        if answer.status == "TIMEOUT":
            return TransactionTimeout()
        if answer.eventId is None:
            # ERROR: the topic was closed when the event's turn came. Other refusals have a code.
            return TopicNotFound()
        key = self._keyAt(place)
        return Published(topic=answer.topic, eventId=answer.eventId, idempotencyKey=key)

    def _keyAt(self, place: int) -> str | None:
        key: str | None = self._parameters[place].get("idempotencyKey")
        return key


def _resultOf(answer: msgspec.Raw) -> SendResult | BrokerError:
    try:
        return _sendResults.decode(answer)
    except msgspec.MsgspecError:
        return AnswerInvalid()


def _parameters(
    publication: Publication,
    makeKey: Callable[[], str],
    sign: Callable[[Publication, str | None], Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """
    The parameters of a publish, by the names of the interface.

    @raise BrokerError: its extensions are malformed.
    """
    checkExtensions(publication.extensions)
    if publication.idempotencyKey == "":
        # Brokers take an empty parameter for none.
        raise ParameterInvalid("idempotencyKey: is empty")
    given = publication.idempotencyKey
    key = makeKey() if given is NewKey.NEW else given
    parameters: dict[str, Any] = {
        "topic": publication.topic,
        "content": publication.content,
        "extensions": publication.extensions,
    }
    if key is not None:
        parameters["idempotencyKey"] = key
    if sign is not None:
        # Once: each attempt is the same event.
        parameters.update(sign(publication, key))
    if publication.expectedSequence is not None:
        parameters["expectedSequence"] = publication.expectedSequence
    return parameters
