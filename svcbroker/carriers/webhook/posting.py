"""
The posting of events to receivers: its settings; their URLs; the bodies of requests and the meaning
of their answers, sans I/O; the headers that a client has added; and the poster that makes requests.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from attrs import field, frozen
from attrs.validators import ge, gt
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.web.http_headers import Headers

from ... import __version__
from ...errors import BrokerError, ParameterInvalid, UrlInvalid
from ...interfaces import Batch
from ...model import Event, EventFormat, InterfaceType
from ...net.deferreds import asDeferred
from ...net.endpoints import AddressPolicy, isHostName, normaliseHost, parseAddress
from ...net.metrics import Tracer
from ...net.pem import ClientIdentity
from ...operations import (
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    EVENT,
    cloudEventHeaders,
    cloudEvents,
    traceOf,
)
from .signing import SecretMissing, SigningKey, WebhookSigner

if TYPE_CHECKING:
    from ...net.http import HttpClient

_MOST_DOUBLINGS: Final = 30

MAX_REQUESTS: Final = 64
"""The most requests under way to webhooks at the same time."""


@frozen(kw_only=True)
class WebhookSettings:
    """
    The settings of webhooks.

    @ivar policy: where events may be sent.
    @ivar signer: signs them.
    @ivar timeout: how long a receiver may take for one event, from connecting to the end of its
        answer, in seconds.
    @ivar connections: the most requests under way, over all receivers. A quarter of them may go
        to one host and port.
    @ivar firstDelay: the delay after a first failure, in seconds; each further one doubles it.
    @ivar maxDelay: the longest delay, in seconds.
    @ivar maxWebhooks: the most webhooks that there may be.
    @ivar turn: for how many seconds a delivery may keep its slot while others wait.
    """

    policy: AddressPolicy = AddressPolicy()
    signer: WebhookSigner = field(factory=WebhookSigner)
    timeout: float = field(default=10.0, validator=gt(0))
    connections: int = field(default=MAX_REQUESTS, validator=ge(1))
    firstDelay: float = field(default=0.5, validator=gt(0))
    maxDelay: float = field(default=300.0, validator=gt(0))
    maxWebhooks: int = field(default=10_000, validator=ge(0))
    turn: float = field(default=1.0, validator=ge(0))

    @property
    def connectionsPerHost(self) -> int:
        """The most requests under way to one host and port."""
        return max(1, self.connections // 4)

    def delay(self, failures: int, retryAfter: float, random: Callable[[], float]) -> float:
        """
        The delay after failures in a row: doubled each time, spread over its upper half so that
        those that failed together are not retried together.

        @param failures: how many there were, from 1.
        @param retryAfter: the least that the receiver asks for; it gets no more than L{maxDelay}.
        @param random: gives a number of [0, 1).
        """
        longest = min(self.maxDelay, self.firstDelay * (1 << min(failures - 1, _MOST_DOUBLINGS)))
        return max(longest * (1 + random()) / 2, min(retryAfter, self.maxDelay))


MAX_URL: Final = 2048
"""The longest URL, in characters."""

_MAX_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 3986, without the user information and the fragment. What does not match is refused here,
# so that all parsers of URLs agree on the host.
_REST = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]+)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    rf"(?P<rest>(?:[/?]{_REST})?)",
    re.ASCII,
)
_CREDENTIALS = re.compile(r"[A-Za-z]+://[^/?#]*@")


@frozen(kw_only=True)
class WebhookTarget:
    """
    The URL that events are sent to.

    @ivar scheme: C{http} or C{https}.
    @ivar host: a name in lower case, or an address without brackets.
    @ivar port: the port.
    @ivar path: the path and the query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """C{host:port}: what may be shown and logged, unlike a path that may hold a secret."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL, always in the same form."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def isAddress(self) -> bool:
        """Whether the host is an address, so that there is nothing to resolve."""
        return parseAddress(self.host) is not None


def parseUrl(text: str) -> WebhookTarget:
    """
    Read a URL as a client gives it.

    @raise UrlInvalid: it is no URL of HTTP or HTTPS, or has what it must not have.
    """
    if len(text) > MAX_URL:
        raise UrlInvalid(f"url is longer than {MAX_URL} characters")
    if _CREDENTIALS.match(text):
        raise UrlInvalid("url must not have credentials in it")
    found = _URL.fullmatch(text)
    if found is None:
        raise UrlInvalid("url is not such as https://host.example:8443/path?query")
    scheme = found["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise UrlInvalid("url is neither http nor https")
    port = int(found["port"] or _DEFAULT_PORTS[scheme])
    if not 0 < port <= _MAX_PORT:
        raise UrlInvalid("url has no valid port")
    rest = found["rest"]
    return WebhookTarget(
        scheme=scheme,
        host=_host(found["host"]),
        port=port,
        path=rest if rest.startswith("/") else f"/{rest}",
    )


def _host(text: str) -> str:
    if text.startswith("["):
        address = parseAddress(text[1:-1])
        if not isinstance(address, IPv6Address):
            raise UrlInvalid("url has no valid IPv6 address")
        if address.ipv4_mapped is not None:
            # Python writes it as ::ffff:1.2.3.4 since 3.13. The URLs that are kept do not.
            number = int(address.ipv4_mapped)
            return f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"
        return str(address)
    host = normaliseHost(text)
    if parseAddress(host) is None and not isHostName(host):
        raise UrlInvalid("url has no valid host")
    return host


USER_AGENT: Final = f"svcbroker/{__version__}".encode("ascii")

MAX_ANSWER: Final = 64 * 1024
"""The longest body of a receiver's answer, in bytes."""

MAX_HEADERS: Final = 16
"""The most headers."""
MAX_SIZE: Final = 8192
"""The most characters of all names and values together: receivers take no more either."""

_DIGITS = 6
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])
_batchDecoder = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]])


_CONTENT_TYPE: Final = b"Content-Type"
_JSON: Final = {_CONTENT_TYPE: b"application/json"}
_CLOUD_EVENT: Final = {_CONTENT_TYPE: CLOUD_EVENT_TYPE.encode("ascii")}
_CLOUD_EVENTS: Final = {_CONTENT_TYPE: CLOUD_EVENTS_TYPE.encode("ascii")}


class Payload(msgspec.Struct, frozen=True):
    """
    The content of a request.

    @ivar headers: those that are part of it: the content type, and in binary mode the attributes of
        a CloudEvent.
    """

    body: bytes
    headers: Mapping[bytes, bytes]


class NotAcknowledged(Exception):
    """
    Events were not acknowledged. The text is a few words for the operator and for the account
    that made the webhook: no URL, no header, nothing that the receiver has written.

    @ivar retryAfter: how long the receiver asks to wait, in seconds; 0 where it does not.
    @ivar isAttempt: whether the receiver had its chance: it answered, or could not be reached.
    """

    def __init__(self, reason: str, retryAfter: int = 0, *, isAttempt: bool = True) -> None:
        super().__init__(reason)
        self.retryAfter = retryAfter
        self.isAttempt = isAttempt


def encodeEvents(events: Sequence[Event]) -> Sequence[bytes]:
    """The JSON text of each event, which is the same for all receivers."""
    return [_encoder.encode(EVENT.render(event)) for event in events]


def encodeBody(
    interfaceType: InterfaceType, subscriptionId: str, event: Event, text: bytes
) -> bytes:
    """
    The body of a delivery.

    @param subscriptionId: a UUID: it needs no escapes.
    @param text: what L{encodeEvents} gives for the event.
    """
    params = b'{"subscriptionId":"%b","event":%b}' % (subscriptionId.encode("ascii"), text)
    if interfaceType is not InterfaceType.JSON_RPC:
        return params
    return b'{"jsonrpc":"2.0","id":"%b","method":"onEvent","params":%b}' % (
        str(event.eventId).encode("ascii"),
        params,
    )


@frozen(kw_only=True)
class RequestForm:
    """
    The form of a webhook's requests.

    @ivar interfaceType: RESTful or JsonRPC.
    @ivar format: how events are written. CloudEvents are the same for both interfaces.
    @ivar source: what the C{source} of CloudEvents begins with.
    @ivar isBatch: whether a body is an array of events.
    """

    interfaceType: InterfaceType
    subscriptionId: str
    format: EventFormat = EventFormat.SVC
    source: str = ""
    isBatch: bool = False

    @property
    def isCall(self) -> bool:
        """Whether a request is a call of JSON-RPC."""
        return self.interfaceType is InterfaceType.JSON_RPC and self.format is EventFormat.SVC

    def encode(self, batch: Batch) -> Iterable[Payload]:
        """The payload of each event alone. What is the same for all receivers is made once."""
        if self.format is EventFormat.SVC:
            texts = batch.encoded("webhook", encodeEvents)
            return (
                Payload(encodeBody(self.interfaceType, self.subscriptionId, event, text), _JSON)
                for event, text in zip(batch.events, texts, strict=True)
            )
        make = self._structured if self.format is EventFormat.CLOUD_EVENTS else self._binary
        return batch.encoded(("webhook", self.format.value), lambda _: make(batch))

    def _structured(self, batch: Batch) -> Sequence[Payload]:
        events = cloudEvents(batch, self.source)
        return [Payload(_encoder.encode(each), _CLOUD_EVENT) for each in events]

    def _binary(self, batch: Batch) -> Sequence[Payload]:
        return [
            Payload(event.content, cloudEventHeaders(event, self.source, batch.timestamp))
            for event in batch.events
        ]

    def join(self, payloads: Sequence[Payload]) -> Payload:
        """The payload of one request, of those of its events: in a batch an array."""
        if not self.isBatch:
            [payload] = payloads
            return payload
        body = b"[%b]" % b",".join(each.body for each in payloads)
        return Payload(body, _JSON if self.format is EventFormat.SVC else _CLOUD_EVENTS)


def checkStatus(status: int, retryAfter: str | None) -> None:
    """
    Check the status of an answer. Redirects are not followed.

    @param retryAfter: the header Retry-After.
    @raise NotAcknowledged: it is no 2xx.
    """
    if not 200 <= status <= 299:
        wait = retryAfter.strip() if retryAfter is not None else ""
        isNumber = wait.isascii() and wait.isdigit() and len(wait) <= _DIGITS
        raise NotAcknowledged(f"HTTP status {status}", int(wait) if isNumber else 0)


def checkAnswer(body: bytes, *, isBatch: bool = False) -> None:
    """
    Check the body of a 2xx answer to a JSON-RPC call. An empty one acknowledges, too.

    @param isBatch: whether it was a batch of calls, whose answer may be an array.
    @raise NotAcknowledged: it holds an error, or is no answer of JSON-RPC.
    """
    if not body.strip():
        return
    answer: Any
    try:
        answer = (_batchDecoder if isBatch else _decoder).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NotAcknowledged("the answer is not a JSON object") from None
    for each in answer if isinstance(answer, list) else (answer,):
        if each.get("error") is not None:
            raise NotAcknowledged("the answer is a JSON-RPC error")


@frozen(kw_only=True)
class WebhookReceiver:
    """
    The target of a webhook's events, and how they are sent.

    @ivar form: the form of requests.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar headers: more headers of each request. They may hold secrets.
    @ivar group: the group whose keys sign.
    """

    target: WebhookTarget
    form: RequestForm
    secret: str = ""
    certificate: str = ""
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    group: str = ""


async def _noKeys(group: str) -> Sequence[SigningKey]:
    return ()


class IPoster(Protocol):
    """Sends events to receivers."""

    def post(
        self, receiver: WebhookReceiver, events: Sequence[Event], payload: Payload
    ) -> Deferred[None]:
        """
        Make one request.

        @param events: the events in the payload; one, unless the receiver takes batches.
        @return: fires when the receiver has acknowledged them. Cancelling ends the request.
        @raise NotAcknowledged: it has not, whatever the reason.
        """


class Poster:
    """
    Sends events by HTTP.
    """

    def __init__(
        self,
        makeClient: Callable[[ClientIdentity | None], HttpClient],
        now: Callable[[], float],
        settings: WebhookSettings,
        tracer: Tracer | None = None,
        keys: Callable[[str], Awaitable[Sequence[SigningKey]]] = _noKeys,
    ) -> None:
        """
        @param makeClient: makes a client, which has connections of its own, and shows a
            certificate if it is given one.
        @param now: the wall clock: seconds since the epoch.
        @param tracer: is told of each request; C{None} for no spans.
        @param keys: gives the keys that sign the requests of a group; see
            L{WebhookKeys.current<svcbroker.carriers.webhook.signing.WebhookKeys.current>}.
        """
        self._keys = keys
        self._makeClient = makeClient
        self._clients: dict[str, tuple[ClientIdentity | None, HttpClient]] = {}
        self._now = now
        self._settings = settings
        self._tracer = tracer

    def close(self) -> Deferred[Any]:
        """Close idle connections. Called once, at the end."""
        return gatherResults([client.close() for _, client in self._clients.values()])

    def _clientOf(self, receiver: WebhookReceiver) -> HttpClient:
        """
        The client that shows a receiver's certificate, as it was read last.

        @raise NotAcknowledged: there is no such certificate now.
        """
        name = receiver.certificate
        certificate = self._settings.signer.secrets.certificates.get(name)
        if name and certificate is None:
            raise NotAcknowledged(f"the operator's file has no certificate {name}", isAttempt=False)
        used, client = self._clients.get(name, (None, None))
        if client is None or used is not certificate:
            if client is not None:
                client.close()
            client = self._makeClient(certificate)
            self._clients[name] = certificate, client
        return client

    def post(
        self, receiver: WebhookReceiver, events: Sequence[Event], payload: Payload
    ) -> Deferred[None]:
        """See L{IPoster.post}."""
        span = None
        if self._tracer is not None:
            span = self._tracer.delivering(receiver.target.authority, events)
        if span is None:
            return self._post(receiver, events, payload, _traceOfAll(events))
        return self._post(receiver, events, payload, span.headers).addBoth(span.end)

    @asDeferred
    async def _post(
        self,
        receiver: WebhookReceiver,
        events: Sequence[Event],
        payload: Payload,
        trace: Mapping[str, str],
    ) -> None:
        # Only for this: it imports treq, which brokers without webhooks do not need.
        from ...net.http import HttpError, Problem, discardBody, headerOf, readBody

        isCall = receiver.form.isCall
        isAcknowledged = False
        try:
            keys = await self._keysOf(receiver)
            answer = await self._clientOf(receiver).request(
                "POST",
                receiver.target.url,
                headers=self._headers(receiver, events, payload, trace, keys),
                data=payload.body,
                timeout=self._settings.timeout,
                maxBody=MAX_ANSWER,
            )
            try:
                checkStatus(answer.code, headerOf(answer, "Retry-After"))
            except NotAcknowledged:
                discardBody(answer)
                raise
            # To REST the status is the answer, whatever becomes of the body.
            isAcknowledged = not isCall
            told = await readBody(answer)
        except CancelledError:
            if not isAcknowledged:
                raise NotAcknowledged("was given up", isAttempt=False) from None
        except HttpError as error:
            if not isAcknowledged:
                isPermitted = error.problem is not Problem.NOT_PERMITTED
                hint = "" if isPermitted else " (see --webhook-allow)"
                raise NotAcknowledged(f"{error}{hint}", isAttempt=isPermitted) from None
        else:
            if isCall:
                checkAnswer(told, isBatch=receiver.form.isBatch)

    async def _keysOf(self, receiver: WebhookReceiver) -> Sequence[SigningKey]:
        """
        The keys that sign a request.

        @raise NotAcknowledged: the chain does not certify the first one now.
        """
        if not self._settings.signer.hasPublic:
            return ()
        try:
            return await self._keys(receiver.group)
        except BrokerError as error:
            raise NotAcknowledged(
                f"the key that signs is not certified yet: {error.message}", isAttempt=False
            ) from None

    def _headers(
        self,
        receiver: WebhookReceiver,
        events: Sequence[Event],
        payload: Payload,
        trace: Mapping[str, str],
        keys: Sequence[SigningKey],
    ) -> Headers:
        timestamp = b"%d" % self._now()
        # Of a batch the last one: who has taken it has all events up to there, also where other
        # events are in the batch the next time.
        eventId = str(events[-1].eventId).encode("ascii")
        headers = Headers(
            {
                **{name: [value] for name, value in payload.headers.items()},
                b"User-Agent": [USER_AGENT],
                b"webhook-id": [eventId],
                b"webhook-timestamp": [timestamp],
                b"X-Svc-Timestamp": [timestamp],
                b"X-Svc-Subscription-Id": [receiver.form.subscriptionId.encode("ascii")],
                b"X-Svc-Event-Id": [eventId],
            }
        )
        for text, content in trace.items():
            headers.addRawHeader(text.encode("ascii"), content.encode("ascii"))
        try:
            signatures = self._settings.signer.sign(
                receiver.secret, eventId, timestamp, payload.body, keys
            )
        except SecretMissing:
            raise NotAcknowledged(
                f"the operator's file has no secret {receiver.secret}", isAttempt=False
            ) from None
        for name, value in signatures:
            headers.addRawHeader(name, value)
        for text, content in receiver.headers.items():
            headers.setRawHeaders(text.encode("ascii"), [content.encode("ascii")])
        return headers


def _traceOfAll(events: Sequence[Event]) -> Mapping[str, str]:
    """The trace context of a request. One with events of several traces belongs to none."""
    first, *others = map(traceOf, events)
    return first if all(other == first for other in others) else {}


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
_VALUE = re.compile(r"[!-~]([\t -~]*[!-~])?", re.ASCII)
# Of HTTP itself (the framing of a message, the connection, what the receiver believes of the
# sender) and those of the broker.
_FORBIDDEN = frozenset(
    (
        *("host", "content-length", "content-type", "content-encoding", "transfer-encoding"),
        *("connection", "keep-alive", "te", "trailer", "upgrade", "expect", "http2-settings"),
        *("accept-encoding", "date", "user-agent", "via", "forwarded"),
    )
)
_FORBIDDEN_PREFIXES = ("webhook-", "ce-", "x-svc-", "proxy-", "x-forwarded-")


def checkHeaders(headers: Mapping[str, str]) -> Mapping[str, str]:
    """
    Check the headers that are to be added to each request.

    @return: the headers, their names in lower case and in order.
    @raise ParameterInvalid: one may not be set, or is no header. The message holds no value.
    """
    if len(headers) > MAX_HEADERS:
        raise ParameterInvalid(f"headers: there are more than {MAX_HEADERS}")
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_SIZE:
        raise ParameterInvalid(f"headers: they have more than {MAX_SIZE} characters together")
    checked = {}
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise ParameterInvalid("headers: one of the names is not that of a header")
        key = name.lower()
        if key in _FORBIDDEN or key.startswith(_FORBIDDEN_PREFIXES):
            raise ParameterInvalid(f"headers: {key} is set by the broker alone")
        if key in checked:
            raise ParameterInvalid(f"headers: {key} is there twice")
        if _VALUE.fullmatch(value) is None:
            raise ParameterInvalid(f"headers: the value of {key} is empty or not plain ASCII")
        checked[key] = value
    return dict(sorted(checked.items()))
