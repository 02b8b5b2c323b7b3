"""
Operations called with the fields of a URL or a form, and answered with JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from ...broker import Broker
from ...errors import BrokerError
from ...operations import Incidents, Operation, bindText
from .encoding import encode, encodeError, parseFields


class TextCall:
    """
    One operation, tied to a broker.

    What it answers never fails: a failure is an answer too.
    """

    def __init__(self, operation: Operation, broker: Broker, incidents: Incidents) -> None:
        self._call = bindText(operation, broker)
        self._render = operation.result.render
        self._incidents = incidents

    def answer(self, text: bytes) -> Deferred[bytes]:
        """
        The JSON text that answers a call.

        @param text: the fields: C{name=value&...}.
        """
        try:
            answer = self._call(parseFields(text))
        except Exception:
            return succeed(self._fail(Failure()))
        answer.addCallbacks(self._succeed, self._fail)
        return answer

    def _succeed(self, result: Any) -> bytes:
        try:
            return encode(self._render(result))
        except Exception:
            return self._fail(Failure())

    def _fail(self, failure: Failure) -> bytes:
        error = failure.value
        if isinstance(error, BrokerError):
            return encodeError(error)
        if isinstance(error, CancelledError):
            raise error
        return encodeError(self._incidents.explain(failure))


def tie(
    operations: Iterable[Operation], broker: Broker, incidents: Incidents
) -> dict[str, TextCall]:
    """Tie operations to a broker, by their names."""
    return {each.name: TextCall(each, broker, incidents) for each in operations}
