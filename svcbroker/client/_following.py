"""
Following topics: one stream of events, over as many connections as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn
from urllib.parse import urlencode

import msgspec

from ..errors import BrokerError, HeightUnknown
from ._answers import checkResponse, readError
from ._attempts import Attempts, isRefused, isUncertain
from ._effects import Deliver, HttpRequest, Procedure, openStream, readStream
from ._errors import AnswerInvalid, Unreachable
from ._records import Event
from ._requests import Fields, Requests
from ._sse import Message, MessageParser

IDLE: Final = 45.0
"""How long a stream may be silent, in seconds. A broker sends a comment after 15."""
_MAX_REFUSAL: Final = 64 * 1024

_decoder = msgspec.json.Decoder(Event)


class Following:
    """
    One call of C{follow}.
    """

    def __init__(
        self,
        attempts: Attempts,
        fields: Fields,
        requests: Requests,
        verify: Callable[[list[Event]], Procedure[list[Event]]],
    ) -> None:
        """
        @param fields: the parameters of the request.
        @param requests: the client's, with its credentials and what it has seen.
        @param verify: verifies events before they are delivered.
        """
        self._attempts = attempts
        self._query = urlencode(fields)
        self._requests = requests
        self._verify = verify
        self._lastId: str | None = None

    def run(self) -> Procedure[NoReturn]:
        """
        Deliver events, each one once, without end.

        @raise BrokerError: the broker refuses the request, or no broker has answered in time.
        """
        while True:
            try:
                yield from self._stream()
            except BrokerError as error:
                # A position that a broker gave may be ahead of another broker's chain.
                isBehind = isinstance(error, HeightUnknown)
                if isBehind and self._lastId is None:
                    isBehind = bool(self._requests.seen)
                    self._requests.forgetSeen()
                if not (isBehind or isRefused(error) or isUncertain(error)):
                    raise
                yield from self._attempts.failed(error)

    def _stream(self) -> Procedure[NoReturn]:
        headers = {**self._requests.headers, "Accept": "text/event-stream"}
        if self._lastId is not None:
            headers["Last-Event-ID"] = self._lastId
        elif self._requests.seen:
            headers["svc-after"] = self._requests.seen
        response = yield from openStream(
            HttpRequest(
                method="GET",
                url=f"{self._attempts.url}/rest/follow?{self._query}",
                headers=headers,
                timeout=self._attempts.limit(IDLE),
            )
        )
        kind = response.headers.get("content-type", "")
        if response.status != 200 or not kind.startswith("text/event-stream"):
            body = b""
            while len(body) < _MAX_REFUSAL and (piece := (yield from readStream(IDLE))):
                body += piece
            checkResponse(response, body)
            raise AnswerInvalid()
        parser = MessageParser()
        while True:
            piece = yield from readStream(IDLE)
            if not piece:
                raise Unreachable("the stream has ended")
            messages = parser.receive(piece)
            if messages:
                yield from self._deliver(messages)
            # Also comments: the time without a connection begins when it is lost.
            self._attempts.succeeded()

    def _deliver(self, messages: list[Message]) -> Procedure[None]:
        events = [_event(each) for each in messages if each.type == "event"]
        if events:
            events = yield from self._verify(events)
        # Nothing may fail between this and the delivery: the stream would resume after the events.
        # A stream that resumes need not say again where.
        if messages[-1].lastId is not None:
            self._lastId = messages[-1].lastId
        if events:
            self._requests.saw(events[-1].eventId)
            yield Deliver(events)
        for message in messages:
            if message.type == "end":
                raise readError(message.data) or AnswerInvalid()


def _event(message: Message) -> Event:
    try:
        return _decoder.decode(message.data)
    except msgspec.MsgspecError as error:
        raise AnswerInvalid(f"an event of the stream is malformed: {error}") from None
