"""
What clients are told of failures that any call can have.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Annotated, Final

from msgspec import Meta, Struct
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import (
    BrokerError,
    GroupUnknown,
    LedgerUnavailable,
    ParameterInvalid,
    TransactionTimeout,
    UnknownError,
)

COMMON_ERRORS: Final = (
    ParameterInvalid,
    GroupUnknown,
    LedgerUnavailable,
    TransactionTimeout,
    UnknownError,
)
"""The errors that every operation can have."""


class ErrorRecord(Struct, frozen=True):
    """A failure, as REST and the admin queries answer it."""

    code: Annotated[int, Meta(ge=100000, le=299999)]
    message: str


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
