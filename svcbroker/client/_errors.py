"""
The errors of the clients: those that a broker answers, rebuilt from their codes, and those that
only a client has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from ..errors import (
    TABLE,
    BrokerError,
    EventErased,
    NotAuthenticated,
    Overloaded,
    QuotaExceeded,
    SequenceConflict,
)

_SEQUENCE: Final = re.compile(r"it has ([0-9]+)$")
_CLASSES: Final[Mapping[int, type[BrokerError]]] = {each.code: each for each in TABLE}


MAX_ANSWER: Final = 256 * 1024 * 1024
"""The most bytes of an answer that is read. The longest are events and proofs with large contents;
a broker, or who pretends to be one, cannot take up all the memory."""


class Unreachable(BrokerError):
    """
    No broker has answered: connections were refused or lost, or answers did not come in time.

    @ivar isSent: whether the request may have arrived, so that it may have been executed.
    @ivar isFinal: whether trying again would not help: the broker's certificate is not trusted, or
        its answer is too long.
    """

    code, text = 300001, "the broker cannot be reached"

    def __init__(
        self, message: str | None = None, *, isSent: bool = True, isFinal: bool = False
    ) -> None:
        super().__init__(message)
        self.isSent = isSent
        self.isFinal = isFinal


def answerTooLong() -> Unreachable:
    """The error for an answer of more than L{MAX_ANSWER} bytes, which is not read."""
    return Unreachable(f"the answer is longer than {MAX_ANSWER} bytes", isFinal=True)


class AnswerInvalid(BrokerError):
    """An answer that is not one of a broker: another server is at this URL, or a proxy."""

    code, text = 300002, "the answer is not one of a broker"


class NotVerified(BrokerError):
    """
    An answer of a broker does not follow from what is trusted: the event is not in the log as it
    was answered, or the log is not a continuation of the one that this client has verified.
    """

    code, text = 300003, "the answer cannot be verified"


# pydoctor takes a pattern inside of an annotation for a type.
_HEX: Final = Meta(pattern=r"^0x([0-9a-f]{2})*\Z")


class ErasureAnswer(Struct):
    """
    Time and reason of an erasure, as the interface writes them. A broker of before does not tell
    which events were erased with it.
    """

    timestamp: int
    account: str
    reason: str
    transHash: Annotated[str, _HEX]
    topic: str = ""
    first: int = 0
    last: int = 0


def errorOf(
    code: int, message: str, retryAfter: float | None = None, erasure: ErasureAnswer | None = None
) -> BrokerError:
    """
    The error that a broker answered.

    @param code: its code; for one that is not known here, a L{BrokerError} with this code.
    @param retryAfter: the answer's header C{Retry-After}, in seconds.
    @param erasure: when and why the event was erased, where the answer says so.
    """
    if code == EventErased.code and erasure is not None:
        return EventErased(
            message,
            topic=erasure.topic,
            first=erasure.first,
            last=erasure.last,
            time=erasure.timestamp,
            account=erasure.account,
            reason=erasure.reason,
            transaction=bytes.fromhex(erasure.transHash.removeprefix("0x")),
        )
    if code == Overloaded.code and retryAfter is not None:
        return QuotaExceeded(message, retryAfter)
    if code == SequenceConflict.code:
        found = _SEQUENCE.search(message)
        return SequenceConflict(None if found is None else int(found[1]))
    known = _CLASSES.get(code)
    if known is not None:
        return known(message)
    error = BrokerError(message)
    error.code = code  # type: ignore[misc]  # of a broker that is newer than this client
    return error


def statusError(status: int, retryAfter: float | None) -> BrokerError:
    """
    The error for an answer that has no error of a broker in its body.

    @param status: its HTTP status.
    """
    message = f"HTTP status {status}"
    if status in (429, 503):
        return QuotaExceeded(message, retryAfter or 0.0)
    if status in (502, 504):
        return Unreachable(message)
    if status == 401:
        return NotAuthenticated(message)
    return AnswerInvalid(message)
