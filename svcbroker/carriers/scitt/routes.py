"""
The resources of a transparency service, by the SCITT Reference API
(draft-ietf-scitt-scrapi-11), and the Transparent Statements of its entries.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from math import ceil
from typing import Any, Final, TypeAlias

import cbor2
from attrs import frozen
from twisted.web import http
from twisted.web.server import Request

from ...errors import (
    BrokerError,
    ContentTooLarge,
    LedgerUnavailable,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    QuotaExceeded,
)
from ...net.deferreds import asDeferred
from ...proofs import base64url
from ...proofs.scitt import ANCHORS_TYPE, POLICY_TYPE, SignedStatement, StatementRefused, encodeKeys
from ..http.logins import CHALLENGES, Credentials
from ..http.plain import parseFields
from ..http.routes import Route, principalOf
from .scittservice import EntryReceipt, ScittService

COSE: Final = b"application/cose"
CBOR: Final = b"application/cbor"
_BYTES: Final = b"application/octet-stream"
STATEMENT: Final = b"application/scitt-statement+cose"
PROBLEM: Final = b"application/concise-problem-details+cbor"

KEYS: Final = "/.well-known/scitt-keys"
"""The path of the keys, below that of the service."""

RETRY_AFTER: Final = 1
"""After how many seconds clients may ask again for what is being done."""

_SIZE: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FRESH: Final = b"max-age=300"
_NO_STORE: Final = b"no-store"


@frozen(kw_only=True)
class Reply:
    """An answer."""

    code: int = http.OK
    type: bytes = COSE
    body: bytes = b""
    headers: Mapping[bytes, bytes] = {}


_Resource: TypeAlias = Callable[..., Awaitable[Reply] | Reply]


def problem(
    code: int, title: str, detail: str, headers: Mapping[bytes, bytes] | None = None
) -> Reply:
    """An error: Concise Problem Details (RFC 9290)."""
    body = cbor2.dumps({-1: title, -2: detail})
    return Reply(code=code, type=PROBLEM, body=body, headers=headers or {})


def problemOf(error: Exception) -> Reply:
    """The answer to a failure that clients are told of."""
    if isinstance(error, StatementRefused):
        return problem(http.BAD_REQUEST, error.title, str(error))
    assert isinstance(error, BrokerError)
    text, later = error.message, {b"Retry-After": b"%d" % RETRY_AFTER}
    if isinstance(error, NotAuthenticated):
        return problem(
            http.UNAUTHORIZED, "Unauthorized", text, {b"WWW-Authenticate": CHALLENGES[0]}
        )
    if isinstance(error, NotAuthorized):
        return problem(http.FORBIDDEN, "Forbidden", text)
    if isinstance(error, ContentTooLarge):
        return problem(http.REQUEST_ENTITY_TOO_LARGE, "Payload Too Large", text)
    if isinstance(error, QuotaExceeded):
        later = {b"Retry-After": b"%d" % max(1, ceil(error.retryAfter))}
        return problem(429, "Too Many Requests", text, later)
    if isinstance(error, (LedgerUnavailable, Overloaded)):
        return problem(http.SERVICE_UNAVAILABLE, "Service Unavailable", text, later)
    title = "Invalid locator" if isinstance(error, ParameterInvalid) else "Rejected"
    return problem(http.BAD_REQUEST, title, text)


def scittRoutes(prefix: str, service: ScittService) -> Iterator[Route]:
    """
    The routes of a service.

    @param prefix: the path above them.
    """
    resources = _Resources(prefix, service)
    for path, methods, isPublic in (
        (KEYS, {"GET": resources.keys}, True),
        (f"{KEYS}/<kid>", {"GET": resources.key}, True),
        ("/entries", {"POST": resources.register}, False),
        ("/entries/<id>", {"GET": resources.receipt}, False),
        ("/entries/<id>/statement", {"GET": resources.statement}, False),
        ("/consistency/<size>", {"GET": resources.consistency}, False),
        ("/policy", {"GET": resources.policy}, False),
        ("/anchors", {"GET": resources.anchors}, False),
        ("/tile/<path:path>", {"GET": resources.tile}, False),
    ):
        yield Route(
            path=prefix + path,
            methods=_METHODS,
            handler=_handler(methods),
            credentials=Credentials.IGNORED if isPublic else Credentials.REQUIRED,
        )


class _Resources:
    """
    The answers to requests.
    """

    def __init__(self, prefix: str, service: ScittService) -> None:
        self._prefix = prefix
        self._service = service

    async def register(self, request: Request) -> Reply:
        """Register the statement that is the body."""
        assert request.content is not None
        kind = (request.getHeader(b"content-type") or b"").partition(b";")[0].strip().lower()
        if kind not in (COSE, STATEMENT):
            return problem(
                http.UNSUPPORTED_MEDIA_TYPE,
                "Unsupported Media Type",
                f"a statement is sent as {COSE.decode()}",
            )
        isEarlier = _isEarlier(request)
        found = await self._service.register(principalOf(request), request.content.read())
        if isEarlier:
            return Reply(code=http.SEE_OTHER, headers=self._location(found, request))
        if found.receipt is None:
            headers = {**self._location(found), b"Retry-After": b"%d" % RETRY_AFTER}
            return Reply(code=http.ACCEPTED, headers=headers)
        return Reply(code=http.CREATED, body=found.receipt, headers=self._location(found))

    async def receipt(self, request: Request, id: str) -> Reply:
        """A new receipt of an entry."""
        found = await self._find(request, id)
        if isinstance(found, Reply):
            return found
        assert found.receipt is not None
        return Reply(body=found.receipt, headers=self._location(found))

    async def statement(self, request: Request, id: str) -> Reply:
        """The Transparent Statement of an entry, with a new receipt."""
        found = await self._find(request, id)
        if isinstance(found, Reply):
            return found
        return _transparent(found)

    async def policy(self, request: Request) -> Reply:
        """The Transparent Statement with the policy."""
        return _transparent(await self._service.document(principalOf(request), POLICY_TYPE))

    async def anchors(self, request: Request) -> Reply:
        """The Transparent Statement with the trust anchors."""
        return _transparent(await self._service.document(principalOf(request), ANCHORS_TYPE))

    async def tile(self, request: Request, path: str) -> Reply:
        """A tile."""
        data = await self._service.tile(principalOf(request), path)
        if data is None:
            return problem(http.NOT_FOUND, "Not Found", "the tree has no such tile yet")
        return Reply(type=_BYTES, body=data, headers={b"Cache-Control": _FRESH})

    async def consistency(self, request: Request, size: str) -> Reply:
        """A receipt that the tree has everything that one of a size has."""
        receipt = await self._service.growth(principalOf(request), _sizeOf(size))
        headers = {b"Cache-Control": _NO_STORE}
        if receipt is None:
            return Reply(code=http.NO_CONTENT, headers=headers)
        return Reply(body=receipt, headers=headers)

    async def _find(self, request: Request, id: str) -> EntryReceipt | Reply:
        """An entry with its receipt, or the answer where there is none."""
        try:
            name = bytes.fromhex(id)
        except ValueError:
            name = b""
        if len(name) != 32 or name.hex() != id:
            return problem(
                http.BAD_REQUEST, "Invalid locator", "an entry is named by its SHA-256 in hex"
            )
        given = parseFields(_queryOf(request)).get(b"size")
        size = None if given is None else _sizeOf(given.decode("latin-1"))
        found = await self._service.receipt(principalOf(request), name, size)
        if found is None:
            tree = "" if size is None else f" in the tree of {size}"
            return problem(http.NOT_FOUND, "Not Found", f"there is no such entry{tree}")
        if found.receipt is None:
            headers = {b"Retry-After": b"%d" % RETRY_AFTER, b"Cache-Control": _NO_STORE}
            if not _isEarlier(request):
                return Reply(code=http.NO_CONTENT, headers=headers)
            headers |= {b"Location": request.uri}
            return Reply(code=http.FOUND, headers=headers)
        return found

    def _location(
        self, found: EntryReceipt, request: Request | None = None
    ) -> Mapping[bytes, bytes]:
        """
        The header with the place of an entry.

        @param request: one whose query is kept.
        """
        path = f"{self._prefix}/entries/{found.id.hex()}".encode()
        return {b"Location": path + (b"" if request is None else b"?" + _queryOf(request))}

    def keys(self, request: Request) -> Reply:
        """All keys: a COSE_KeySet."""
        return _ofKeys(encodeKeys(self._service.publicKeys()))

    def key(self, request: Request, kid: str) -> Reply:
        """The key of a name, in URL-safe Base64."""
        for each in self._service.publicKeys():
            if base64url(each.kid) == kid:
                return _ofKeys(each.encode())
        return problem(http.NOT_FOUND, "No such key", "the service has no key of this kid")


def _transparent(found: EntryReceipt) -> Reply:
    """The answer with the Transparent Statement of an entry."""
    assert found.receipt is not None
    body = SignedStatement.decode(found.content).withReceipts([found.receipt])
    return Reply(type=STATEMENT, body=body)


def _sizeOf(text: str) -> int:
    """
    The size of a tree.

    @raise ParameterInvalid: it is none.
    """
    if _SIZE.fullmatch(text) is None:
        raise ParameterInvalid("size: a tree is named by its size")
    return int(text)


def _queryOf(request: Request) -> bytes:
    return request.uri.partition(b"?")[2]


def _isEarlier(request: Request) -> bool:
    """Whether a client is of the drafts up to -10, which redirect: it names its version."""
    return b"api-version" in parseFields(_queryOf(request))


def _ofKeys(body: bytes) -> Reply:
    return Reply(type=CBOR, body=body, headers={b"Cache-Control": _FRESH})


def _handler(methods: Mapping[str, _Resource]) -> Callable[..., Any]:
    """The handler of the requests of a path, by their methods."""

    @asDeferred
    async def handle(request: Request, **parts: Any) -> bytes:
        method = request.method.decode("latin-1")
        resource = methods.get("GET" if method == "HEAD" else method)
        try:
            if resource is None:
                allow = ", ".join(sorted(methods)).encode()
                reply = problem(
                    *(http.NOT_ALLOWED, "Method Not Allowed", "the path is not served by it"),
                    {b"Allow": allow},
                )
            else:
                answer = resource(request, **parts)
                reply = answer if isinstance(answer, Reply) else await answer
        except (BrokerError, StatementRefused) as error:
            reply = problemOf(error)
        return _respond(request, reply)

    return handle


def _respond(request: Request, reply: Reply) -> bytes:
    request.setResponseCode(reply.code)
    for name, value in reply.headers.items():
        request.setHeader(name, value)
    if reply.body:
        request.setHeader(b"Content-Type", reply.type)
    if reply.code != http.NO_CONTENT:
        request.setHeader(b"Content-Length", b"%d" % len(reply.body))
    return reply.body
