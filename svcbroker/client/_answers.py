"""
Reading the answers of brokers.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..errors import BrokerError
from ._effects import MAX_DIGITS, HttpResponse
from ._errors import AnswerInvalid, Erasure, errorOf, statusError

T = TypeVar("T")


class _Failure(msgspec.Struct):
    code: int
    message: str
    erased: Erasure | None = None


class _RpcData(msgspec.Struct):
    # The protocol's own errors have no code of the broker.
    code: int = AnswerInvalid.code
    retryAfter: float | None = None


class _RpcFailure(msgspec.Struct):
    message: str
    data: _RpcData = msgspec.field(default_factory=_RpcData)


class RpcAnswer(msgspec.Struct):
    """The answer to one call of JSON-RPC."""

    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: _RpcFailure | None = None


_failures = msgspec.json.Decoder(_Failure)
_rpcAnswer = msgspec.json.Decoder(RpcAnswer)
_rpcAnswers = msgspec.json.Decoder(list[RpcAnswer])


def readError(body: bytes, retryAfter: float | None = None) -> BrokerError | None:
    """The error that a body tells of; C{None} where it tells of none."""
    try:
        failure = _failures.decode(body)
    except msgspec.MsgspecError:
        return None
    return errorOf(failure.code, failure.message, retryAfter, failure.erased)


def readDocument(response: HttpResponse) -> bytes:
    """
    Read the result of a call by REST that is kept as it is.

    @raise BrokerError: the call failed.
    """
    checkResponse(response, response.body)
    return response.body


def checkResponse(response: HttpResponse, body: bytes) -> None:
    """
    Check that an answer is not a failure.

    @raise BrokerError: it is.
    """
    error = readError(body, response.retryAfter)
    if error is None and response.status != 200:
        error = statusError(response.status, response.retryAfter)
    if error is not None:
        raise error


def readAnswer(response: HttpResponse, decoder: msgspec.json.Decoder[T]) -> T:
    """
    Read the result of a call by REST.

    @raise BrokerError: the call failed.
    """
    if response.status == 200:
        try:
            return decoder.decode(response.body)
        except msgspec.MsgspecError:
            pass
    checkResponse(response, response.body)
    raise AnswerInvalid()


def readBatch(response: HttpResponse, count: int) -> list[msgspec.Raw | BrokerError]:
    """
    Read the results of a batch of JSON-RPC whose ids are 0, 1, and so on.

    @param count: how many calls it had.
    @return: the result or the error of each call.
    @raise BrokerError: all of it failed.
    """
    try:
        answers = _rpcAnswers.decode(response.body)
    except msgspec.MsgspecError:
        checkResponse(response, response.body)
        raise _refusalOf(response.body) from None
    outcomes: list[Any] = [None] * count
    for answer in answers:
        if answer.id is not None and 0 <= answer.id < count:
            outcomes[answer.id] = _outcomeOf(answer)
    if None in outcomes:
        raise AnswerInvalid("calls of a batch were not answered")
    return outcomes


def _outcomeOf(answer: RpcAnswer) -> msgspec.Raw | BrokerError:
    error = answer.error
    if error is None:
        return answer.result
    retryAfter = error.data.retryAfter
    if retryAfter is not None and not 0 <= retryAfter < 10**MAX_DIGITS:
        retryAfter = None
    return errorOf(error.data.code, error.message, retryAfter)


def _refusalOf(body: bytes) -> BrokerError:
    """Why all of a batch was refused: one answer instead of a list."""
    try:
        outcome = _outcomeOf(_rpcAnswer.decode(body))
    except msgspec.MsgspecError:
        return AnswerInvalid()
    return outcome if isinstance(outcome, BrokerError) else AnswerInvalid()
