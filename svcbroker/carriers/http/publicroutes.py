"""
Routes for programs of other parties: liveness and readiness, for what watches the process; the
transparency log of a group, as C{c2sp.org/tlog-tiles} has it; and the public keys that sign
requests to webhooks, a set of JSON Web Keys (RFC 7517, RFC 8037) at a well-known path.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.server import Request

from ...access import Access, Principal
from ...broker import Calls
from ...errors import (
    BrokerError,
    EventNotFound,
    GroupUnknown,
    HeightUnknown,
    LedgerUnavailable,
    NoSuchCall,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    TransactionFailed,
    TransactionTimeout,
)
from ...model import Health, WebhookKey
from ...net.alarms import Alarm
from ...net.deferreds import asDeferred
from ...operations import LOG_PROOF, AlarmResult, alarmResults, bindText
from ...proofs import base64url
from .logins import Credentials
from .plain import parseFields
from .routes import (
    HttpRefusal,
    Route,
    connectionOf,
    encode,
    encodeError,
    principalOf,
    refuse,
    respond,
)


class GroupHealth(Struct, frozen=True):
    """Whether a group's ledger makes progress, and if not, why."""

    ready: bool
    reason: str


class Alive(Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(Struct, frozen=True):
    """Whether the broker can be given work, and what is wrong with it."""

    status: Literal["ready", "unavailable"]
    groups: dict[str, GroupHealth]
    alarms: list[AlarmResult]


_ALIVE = encode(Alive())


def readiness(
    groups: Mapping[str, Health], principal: Principal | None, alarms: Sequence[Alarm] = ()
) -> tuple[int, bytes]:
    """
    The HTTP status and the JSON text that tell of the groups' health, and of alarms.

    @param principal: who asks.
    """
    isReady = all(health.isReady for health in groups.values())
    record = Readiness(
        "ready" if isReady else "unavailable",
        {
            group: GroupHealth(health.isReady, health.reason)
            for group, health in groups.items()
            if principal is not None and principal.seesGroup(group)
        },
        alarmResults(alarms),
    )
    return http.OK if isReady else http.SERVICE_UNAVAILABLE, encode(record)


def healthRoutes(calls: Calls, access: Access) -> Iterator[Route]:
    """
    The routes C{/healthz} and C{/readyz}. Clients need no credentials; those who give some are told
    of the groups in which they may do something.
    """

    def healthz(request: Request) -> bytes:
        return respond(request, _ALIVE)

    async def answerReady(request: Any) -> bytes:
        principal = request.principal or access.anonymous
        groups = await calls.admin.getHealth()
        alarms = () if principal is None else await calls.admin.alarmsFor(principal)
        code, body = readiness(groups, principal, alarms)
        return respond(request, body, code)

    def readyz(request: Request) -> Deferred[bytes]:
        return Deferred.fromCoroutine(answerReady(request))

    for path, handler, credentials in (
        ("/healthz", healthz, Credentials.IGNORED),
        ("/readyz", readyz, Credentials.OPTIONAL),
    ):
        yield Route(path=path, methods=("GET",), handler=handler, credentials=credentials)


_TEXT: Final = b"text/plain; charset=utf-8"
_BYTES: Final = b"application/octet-stream"
_JSON: Final = b"application/json;charset=UTF-8"

_FRESH: Final = b"max-age=1"
"""For what changes with the chain. The broker signs a checkpoint once a second."""
_IMMUTABLE: Final = b"max-age=31536000, immutable"
"""For tiles. A shared cache keeps no answer to a request with credentials, unless told to."""

_MISSING: Final = (GroupUnknown, NoSuchCall, EventNotFound, HeightUnknown)
_UNAVAILABLE: Final = (Overloaded, LedgerUnavailable, TransactionTimeout, TransactionFailed)

_Answer = tuple[bytes, bytes, bytes]
"""The content type, the caching and the body of an answer."""


def logRoutes(prefix: str, calls: Calls) -> Iterator[Route]:
    """
    The routes of the logs. Failures have a status of HTTP of their own, unlike those of calls.

    @param prefix: the path above the ids of groups.
    """
    logs, prove = calls.transparency, bindText(LOG_PROOF, calls)

    async def checkpoint(principal: Principal, request: Request, groupId: str) -> _Answer:
        return _TEXT, _FRESH, await logs.checkpoint(principal, groupId)

    async def key(principal: Principal, request: Request, groupId: str) -> _Answer:
        answer = await logs.key(principal, groupId)
        return _JSON, _FRESH, encode(answer)

    async def tile(principal: Principal, request: Request, groupId: str, path: str) -> _Answer:
        data = await logs.tile(principal, groupId, path)
        if data is None:
            raise NoSuchCall("the log has no such tile yet")
        return _BYTES, _IMMUTABLE, data

    async def proof(principal: Principal, request: Request, groupId: str) -> _Answer:
        _, _, query = request.uri.partition(b"?")
        fields = {**parseFields(query), b"groupId": groupId.encode()}
        found = await prove(principal, fields, connectionOf(request))
        return _TEXT, _FRESH, found.encode()

    for path, answer in (
        ("checkpoint", checkpoint),
        ("keys", key),
        ("tile/<path:path>", tile),
        ("proof", proof),
    ):
        yield Route(path=f"{prefix}/<groupId>/{path}", methods=("GET",), handler=_handler(answer))


def _handler(
    answer: Callable[..., Awaitable[_Answer]],
) -> Callable[..., Deferred[bytes]]:
    @asDeferred
    async def handle(request: Request, **parts: Any) -> bytes:
        try:
            type, caching, body = await answer(principalOf(request), request, **parts)
        except BrokerError as error:
            return _respondError(request, error)
        request.setHeader(b"Content-Type", type)
        request.setHeader(b"Cache-Control", caching)
        request.setHeader(b"Content-Length", b"%d" % len(body))
        return body

    return handle


def _respondError(request: Request, error: BrokerError) -> bytes:
    if isinstance(error, (NotAuthenticated, NotAuthorized)):
        return respond(request, refuse(error))
    if isinstance(error, _MISSING):
        code = http.NOT_FOUND
    elif isinstance(error, _UNAVAILABLE):
        code = http.SERVICE_UNAVAILABLE
    else:
        code = http.BAD_REQUEST
    return respond(request, HttpRefusal(code, encodeError(error)))


KEYS_PATH: Final = "/.well-known/webhook-keys"
"""The path of the keys."""

_KEYS_FRESH: Final = b"max-age=300"


class JsonWebKey(Struct, frozen=True):
    """
    A public key.

    @ivar kid: its thumbprint (RFC 7638).
    @ivar x: the key, in URL-safe Base64.
    @ivar whpk: the key, as Standard Webhooks writes it.
    @ivar group: the group whose webhooks it signs for.
    @ivar eventId: the event by which the chain of that group certifies it.
    @ivar exp: when it signs no more, in seconds since the epoch, where another one has replaced it.
    """

    kid: str
    x: str
    whpk: str
    group: str
    eventId: str
    exp: int | UnsetType = UNSET
    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    alg: Literal["EdDSA"] = "EdDSA"
    use: Literal["sig"] = "sig"


class JsonWebKeys(Struct, frozen=True):
    """The keys that sign now."""

    keys: list[JsonWebKey]


def jsonWebKey(key: WebhookKey) -> JsonWebKey:
    """The record of a key."""
    x = base64url(key.key)
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return JsonWebKey(
        kid=base64url(sha256(members.encode()).digest()),
        x=x,
        whpk="whpk_" + b64encode(key.key).decode(),
        group=key.group,
        eventId=key.eventId,
        exp=UNSET if key.until is None else key.until // 1000,
    )


def webhookKeyRoutes(calls: Calls) -> Iterator[Route]:
    """The route of the keys. They are public: nobody needs credentials."""

    def keys(request: Request) -> bytes:
        request.setHeader(b"Cache-Control", _KEYS_FRESH)
        found = [jsonWebKey(each) for each in calls.webhooks.publicKeys()]
        return respond(request, encode(JsonWebKeys(found)))

    yield Route(path=KEYS_PATH, methods=("GET",), handler=keys, credentials=Credentials.IGNORED)
