"""
What clients are told when something goes wrong that nobody thought of.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

from twisted.logger import Logger
from twisted.python.failure import Failure

from ..errors import BrokerError, UnknownError


class Incidents:
    """
    Keeps causes in the log and gives clients a number to ask about them.
    """

    _log = Logger()

    def __init__(self, makeId: Callable[[], str] = lambda: token_hex(6)) -> None:
        """
        @param makeId: gives a new incident id.
        """
        self._makeId = makeId

    def explain(self, failure: Failure) -> BrokerError:
        """
        What a client is told of a failure: itself if it is a L{BrokerError}, otherwise an
        L{UnknownError<svcbroker.errors.UnknownError>} with an incident id, under which the log
        has the cause.
        """
        error = failure.value
        if isinstance(error, BrokerError):
            return error
        incident = self._makeId()
        self._log.failure("Incident {incident}", failure=failure, incident=incident)
        return UnknownError(f"unknown error, incident {incident}")
