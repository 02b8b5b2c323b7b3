"""
REST: operations by GET and POST.

By GET the parameters are in the query string. By POST they are in the query string, in an
C{application/x-www-form-urlencoded} body, or in both, and then the query string's come first.
Of several parameters of one name the first counts; names that an operation does not know are
ignored. A body of another type is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred, succeed

from ...broker import Broker
from ...errors import BrokerError, QueryTooLong
from ...operations import OPERATIONS, Incidents
from .encoding import encodeError, formBody
from .request import BrokerRequest
from .resource import Route, respond
from .textcalls import TextCall, tie

MAX_PUBLISH_QUERY: Final = 1024
"""The longest query string of a publish by GET, in bytes."""


class RestCall:
    """
    One operation over REST.
    """

    def __init__(self, name: str, call: TextCall) -> None:
        self._call = call
        self._maxQuery = MAX_PUBLISH_QUERY if name == "publish" else None

    def answer(
        self, isPost: bool, query: bytes, contentType: bytes | None, body: bytes
    ) -> Deferred[bytes]:
        """
        The JSON text that answers a request.

        @param isPost: whether the method is POST; otherwise there is no body.
        @param query: the query string, as it was sent.
        @param contentType: the type of the body.
        """
        if isPost:
            try:
                form = formBody(contentType, body)
            except BrokerError as error:
                return succeed(encodeError(error))
            return self._call.answer(query + b"&" + form if query else form)
        if self._maxQuery is not None and len(query) > self._maxQuery:
            return succeed(encodeError(QueryTooLong()))
        return self._call.answer(query)

    def handle(self, request: BrokerRequest) -> Deferred[bytes]:
        """Answer a request."""
        isPost = request.method == b"POST"
        body = request.body() if isPost else b""
        contentType = request.getHeader(b"content-type") if body else None
        answer = self.answer(isPost, request.query, contentType, body)
        answer.addCallback(partial(respond, request))
        return answer


def routes(prefix: str, broker: Broker, incidents: Incidents) -> Iterator[Route]:
    """
    The routes of all operations.

    @param prefix: the path above them.
    """
    for name, call in tie(OPERATIONS, broker, incidents).items():
        yield Route(
            path=f"{prefix}/{name}",
            methods=("GET", "POST"),
            handler=RestCall(name, call).handle,
            isDirect=True,
        )
