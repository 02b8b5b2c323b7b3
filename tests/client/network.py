"""
Brokers in memory, which lose requests, answers and connections as a test says.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from svcbroker.client import Event, Options, Unreachable
from svcbroker.client._core import Core
from svcbroker.client._effects import (
    Delay,
    Deliver,
    Effect,
    HttpRequest,
    HttpResponse,
    OpenStream,
    Procedure,
    ReadStream,
)
from svcbroker.errors import (
    BrokerError,
    ContentTooLarge,
    EventNotFound,
    IdempotencyConflict,
    Overloaded,
    TopicNotFound,
)

URL = "http://broker.example/svcbroker"
OTHER = "https://other.example:8443/svcbroker"

LOST = ("not sent", "lost before", "lost after", "timeout before", "timeout after")
REFUSED = ("overloaded", "too large", "status 429", "status 503", "status 502 after")
FATES = ("answered", *LOST, *REFUSED)
"""What can become of a request. Before and after its execution."""


def json200(document: Any, **headers: str) -> HttpResponse:
    """An answer with JSON."""
    return HttpResponse(status=200, headers=headers, body=json.dumps(document).encode())


class Broker:
    """
    A broker, with the log of the network.

    @ivar log: the events.
    @ivar fates: what becomes of the coming publishes; after that they are answered.
    @ivar requests: the requests that it has received.
    @ivar isReachable: whether it is.
    @ivar parameters: the parameters of its publishes.
    @ivar quota: how many events of a request it takes; the others are refused for L{retryAfter}.
    """

    def __init__(self, log: list[Event] | None = None) -> None:
        self.log: list[Event] = [] if log is None else log
        self.keys: dict[str, Event] = {}
        self.topics = {"orders/new"}
        self.fates: list[str] = []
        self.requests: list[HttpRequest] = []
        self.isReachable = True
        self.parameters = ["topic", "groupId", "content", "extensions"]
        self.parameters += ["idempotencyKey", "expectedSequence"]
        self.page = 3
        self.quota = 1000
        self.retryAfter = 1.5
        self.refusal: BrokerError | None = None

    def answer(self, request: HttpRequest) -> HttpResponse | Unreachable:
        """Answer a request."""
        if not self.isReachable:
            return Unreachable("refused", isSent=False)
        self.requests.append(request)
        parts = urlsplit(request.url)
        name = parts.path.rpartition("/")[2]
        if name == "openrpc.json":
            parameters = [{"name": each} for each in self.parameters]
            return json200({"methods": [{"name": "publish", "params": parameters}]})
        if self.refusal is not None:
            return json200({"code": self.refusal.code, "message": self.refusal.message})
        query = parts.query or request.body.decode("ascii")
        if name == "jsonrpc":
            return self._lossy(request, json.loads(request.body))
        fields = dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))
        if name == "publish":
            content = fields["content"].encode("utf-8", "surrogateescape")
            params: dict[str, Any] = {**fields, "content": b64encode(content)}
            params["extensions"] = {k: v for k, v in fields.items() if k.startswith("svc-")}
            return self._lossy(request, params)
        return json200(getattr(self, f"rest_{name}")(fields))

    def _lossy(self, request: HttpRequest, given: Any) -> HttpResponse | Unreachable:
        fate = self.fates.pop(0) if self.fates else "answered"
        if fate == "not sent":
            return Unreachable(isSent=False)
        if fate == "lost before":
            return Unreachable()
        if fate == "overloaded":
            return self._failed(given, 200101)
        if fate == "too large" and isinstance(given, list):
            return self._failed([{}], ContentTooLarge.code)
        if fate in ("status 429", "status 503"):
            headers = {"retry-after": "7"}
            return HttpResponse(status=int(fate[-3:]), headers=headers, body=b"busy")
        if fate == "timeout before":
            return self._timedOut(given)
        answer = self._executed(given)
        if fate == "lost after":
            return Unreachable()
        if fate == "status 502 after":
            return HttpResponse(status=502, headers={}, body=b"<html>")
        return self._timedOut(given) if fate == "timeout after" else json200(answer)

    def _failed(self, given: Any, code: int) -> HttpResponse:
        if isinstance(given, list):
            error = {"code": -32050, "message": "busy", "data": {"message": "", "code": code}}
            if len(given) % 2:
                # Of all the request.
                return json200({"jsonrpc": "2.0", "id": None, "error": error})
            return json200([{"jsonrpc": "2.0", "id": each["id"], "error": error} for each in given])
        return json200({"code": code, "message": "busy"})

    def _timedOut(self, given: Any) -> HttpResponse:
        result = {"topic": "orders/new", "eventId": None, "status": "TIMEOUT"}
        if isinstance(given, list):
            return json200(
                [{"jsonrpc": "2.0", "id": each["id"], "result": result} for each in given]
            )
        return json200(result)

    def _executed(self, given: Any) -> Any:
        if not isinstance(given, list):
            answer = self._publish(given)
            return answer if "status" in answer else {"code": answer["code"], "message": ""}
        answers = []
        for number, call in enumerate(given):
            answer = self._publish(call["params"]) if number < self.quota else self._over()
            if "status" in answer:
                answers.append({"jsonrpc": "2.0", "id": call["id"], "result": answer})
            else:
                error = {"code": -32000, "message": "", "data": {"message": "", **answer}}
                answers.append({"jsonrpc": "2.0", "id": call["id"], "error": error})
        return answers

    def _over(self) -> dict[str, Any]:
        return {"code": Overloaded.code, "retryAfter": self.retryAfter}

    def _publish(self, params: Any) -> dict[str, Any]:
        if params["topic"] not in self.topics:
            return {"code": TopicNotFound.code}
        key = params.get("idempotencyKey") if "idempotencyKey" in self.parameters else None
        content = b64decode(params["content"])
        event = self.keys.get(key) if key is not None else None
        if event is not None and event.content != content:
            return {"code": IdempotencyConflict.code}
        if event is None:
            event = self.append(params["topic"], content, params["extensions"])
            if key is not None:
                self.keys[key] = event
        return {"topic": event.topic, "eventId": event.eventId, "status": "SUCCESS"}

    def append(self, topic: str, content: bytes, extensions: dict[str, str]) -> Event:
        """Append an event to the log: two in each block."""
        number = len(self.log) + 1
        eventId = f"00000000-{number}-{(number + 1) // 2}"
        event = Event(topic=topic, content=content, extensions=extensions, eventId=eventId)
        self.log.append(event)
        return event

    def after(self, offset: str) -> int:
        """The index of the first event behind an offset."""
        if offset.startswith("OFFSET_"):
            return 0 if offset == "OFFSET_FIRST" else len(self.log)
        if offset.isdigit():
            return sum(each.height < int(offset) for each in self.log)
        return int(offset.split("-")[1])

    def rest_open(self, fields: dict[str, str]) -> bool:
        self.topics.add(fields["topic"])
        return True

    def rest_close(self, fields: dict[str, str]) -> Any:
        if fields["topic"] not in self.topics:
            return {"code": TopicNotFound.code, "message": "no"}
        self.topics.discard(fields["topic"])
        return True

    def rest_exist(self, fields: dict[str, str]) -> bool:
        return fields["topic"] in self.topics

    def rest_getEvent(self, fields: dict[str, str]) -> Any:
        found = [each for each in self.log if each.eventId == fields["eventId"]]
        if not found:
            return {"code": EventNotFound.code, "message": "no such event"}
        return record(found[0])

    def rest_events(self, fields: dict[str, str]) -> Any:
        start = self.after(fields["from"])
        end = min(len(self.log), start + min(int(fields["limit"]), self.page))
        following = self.log[end - 1].eventId if end else "1"
        return {
            "events": [record(each) for each in self.log[start:end]],
            "next": following if end > start else fields["from"],
            "atEnd": end == len(self.log),
        }

    def stream(self, request: HttpRequest) -> bytes:
        """What is sent to a follower."""
        fields = dict(parse_qsl(urlsplit(request.url).query))
        offset = request.headers.get("Last-Event-ID", fields["from"])
        start = self.after(offset)
        place = offset if "-" in offset else str((start + 2) // 2)
        sent = [f"retry: 1000\nid: {place}\n\n"]
        for each in self.log[start:]:
            data = json.dumps({**record(each), "timestamp": 5, "futureField": []})
            sent.append(f"id: {each.eventId}\nevent: event\ndata: {data}\n\n:\n\n")
        return "".join(sent).encode()


def record(event: Event) -> dict[str, Any]:
    """An event on the wire."""
    return {
        "topic": event.topic,
        "content": b64encode(event.content).decode(),
        "extensions": event.extensions,
        "eventId": event.eventId,
    }


class Network:
    """
    Performs the effects of procedures.

    @ivar brokers: the brokers by their base URLs.
    @ivar time: the time, which passes with delays only.
    @ivar delays: the delays.
    @ivar connections: how each coming stream is sent: pieces of these sizes, and then it is lost.
        After that they are sent whole, and end.
    """

    def __init__(self, *urls: str) -> None:
        log: list[Event] = []
        self.brokers = {url: Broker(log) for url in urls or (URL,)}
        self.broker = next(iter(self.brokers.values()))
        self.time = 100.0
        self.delays: list[float] = []
        self.connections: list[Sequence[int]] = []
        self._pieces: Iterator[bytes | Unreachable] = iter(())
        self._keys = 0

    def core(self, options: Options | None = None) -> Core:
        """A client's core."""

        def makeKey() -> str:
            self._keys += 1
            return f"key-{self._keys}"

        return Core(
            list(self.brokers),
            options or {},
            now=lambda: self.time,
            random=lambda: 1.0,
            makeKey=makeKey,
        )

    def run(self, procedure: Procedure[Any], outcome: Any = None) -> Any:
        """
        The result of a procedure.

        @param outcome: that of its last effect, if it was begun.
        """
        try:
            while True:
                outcome = self.perform(procedure.send(outcome))
        except StopIteration as stop:
            return stop.value

    def take(self, procedure: Procedure[Any], count: int = 1 << 30) -> list[Event]:
        """The first events that a procedure delivers."""
        events: list[Event] = []
        outcome = None
        try:
            while len(events) < count:
                effect = procedure.send(outcome)
                if isinstance(effect, Deliver):
                    events += effect.events
                    outcome = None
                else:
                    outcome = self.perform(effect)
        except StopIteration:
            pass
        return events

    def perform(self, effect: Effect) -> Any:
        """Perform an effect."""
        if isinstance(effect, Delay):
            self.delays.append(effect.seconds)
            self.time += effect.seconds
            return None
        if isinstance(effect, ReadStream):
            return next(self._pieces, b"")
        request = effect.request if isinstance(effect, OpenStream) else effect
        assert isinstance(request, HttpRequest)
        [broker] = [each for url, each in self.brokers.items() if request.url.startswith(url)]
        self.time += 0.001
        if not isinstance(effect, OpenStream):
            return broker.answer(request)
        if not broker.isReachable:
            return Unreachable(isSent=False)
        broker.requests.append(request)
        if broker.refusal is not None:
            refusal = {"code": broker.refusal.code, "message": broker.refusal.message}
            self._pieces = iter([json.dumps(refusal).encode()])
            return HttpResponse(status=200, headers={"content-type": "application/json"})
        self._pieces = self._cut(broker.stream(request))
        headers = {"content-type": "text/event-stream;charset=UTF-8"}
        return HttpResponse(status=200, headers=headers)

    def _cut(self, data: bytes) -> Iterator[bytes | Unreachable]:
        if not self.connections:
            yield data
            return
        for size in self.connections.pop(0):
            if data[:size]:
                yield data[:size]
            data = data[size:]
        yield Unreachable()
