"""
What clients are told of failures that any call can have.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import (
    BrokerError,
    EventErased,
    GroupUnknown,
    LedgerUnavailable,
    NodeBehind,
    ParameterInvalid,
    TransactionTimeout,
    UnknownError,
)

COMMON_ERRORS: Final = (
    ParameterInvalid,
    GroupUnknown,
    LedgerUnavailable,
    NodeBehind,
    TransactionTimeout,
    UnknownError,
)
"""The errors that every operation can have."""


class Erasure(Struct, frozen=True):
    """
    When and why the content of an event was erased: the time of the block, in milliseconds since
    the epoch, the account of the operator who asked for it, the reason, and the hash of the
    transaction. Where the ledger tells it, there are the event's topic, and the sequence numbers of
    the first and the last of the consecutive events that were erased with it.
    """

    timestamp: int
    account: str
    reason: str
    transHash: str
    topic: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    last: int | UnsetType = UNSET


class ErrorRecord(Struct, frozen=True):
    """
    A failure, as REST and the admin queries answer it. Where the content of an event was erased, it
    says when and why.
    """

    code: Annotated[int, Meta(ge=100000, le=299999)]
    message: str
    erased: Erasure | UnsetType = UNSET


def erasureOf(error: BrokerError) -> Erasure | UnsetType:
    """When and why the content of an event was erased, where the error tells that."""
    if not isinstance(error, EventErased):
        return UNSET
    return Erasure(
        error.time,
        error.account,
        error.reason,
        f"0x{error.transaction.hex()}",
        error.topic or UNSET,
        error.first or UNSET,
        error.last or UNSET,
    )


class Incidents:
    """
    Logs unexpected failures under ids that clients are told.
    """

    _log = Logger()

    def __init__(self, makeId: Callable[[], str] = lambda: token_hex(6)) -> None:
        """
        @param makeId: gives a new incident id.
        """
        self._makeId = makeId

    def explain(self, failure: Failure) -> BrokerError:
        """
        The error that a client is told: the failure itself if it is a L{BrokerError}, otherwise an
        L{UnknownError<svcbroker.errors.UnknownError>} with an incident id, under which the log
        has the cause.
        """
        error = failure.value
        if isinstance(error, BrokerError):
            return error
        incident = self._makeId()
        self._log.failure("Incident {incident}", failure=failure, incident=incident)
        return UnknownError(f"unknown error, incident {incident}")
