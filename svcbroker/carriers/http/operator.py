"""
The operator calls: by POST, JSON in and out, from this machine with the operator's token, or from
anywhere for accounts that may operate.

The token is in the data directory: a user who can read that may operate. A page in a browser must
not, even if it knows the token. Such a request has the page's C{Origin}, or, by DNS rebinding, a
C{Host} that is no loopback name; both are refused. The console is an exception: its requests have
the cookie of a session, which counts in requests of the broker's own pages only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hmac import compare_digest
from typing import Any, Final

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import Request

from ...access import ANYBODY, AuditTrail, Principal
from ...broker import Calls
from ...errors import (
    BrokerError,
    ContentTooLarge,
    NotAuthenticated,
    NotAuthorized,
    ParameterInvalid,
    UnknownError,
)
from ...net.addresses import isLoopback
from ...operations import OPERATOR_CALLS, Connection, Incidents, Operation, bindJSON
from .logins import hostName
from .routes import HttpEndpoint, Route, encodeError, explain, principalOf, respond, resultEncoder

MAX_BODY: Final = 64 * 1024
"""The largest body of an operator call, in bytes."""
JSON_TYPE: Final = b"application/json"
_SCHEME = b"bearer"
_PROXIED = (b"forwarded", b"x-forwarded-for", b"via")
_log = Logger()
_decoder = msgspec.json.Decoder()


@frozen(kw_only=True)
class Caller:
    """
    The sender of a request, as the request tells.

    @ivar peer: the address of the other end of the connection; empty where it has none.
    @ivar headers: the headers that matter, by their names in lower case.
    """

    peer: str
    headers: Mapping[bytes, bytes]


class Authorizer:
    """
    Decides which requests are an operator's.
    """

    def __init__(self, prefix: str, token: str) -> None:
        """
        @param prefix: the path above all operator calls.
        @param token: what operators of this machine have to know.
        """
        self._prefix = f"{prefix}/".encode("ascii")
        self._token = token.encode("ascii")

    def knows(self, path: bytes, authorization: bytes | None) -> bool:
        """Whether a request is an operator call with the token."""
        return path.startswith(self._prefix) and self._isToken(authorization or b"")

    def _isToken(self, authorization: bytes) -> bool:
        scheme, _, token = authorization.partition(b" ")
        return scheme.lower() == _SCHEME and compare_digest(token.strip(), self._token)

    def check(self, caller: Caller, principal: Principal) -> None:
        """
        Check all but what the principal may do.

        @raise NotAuthenticated: the caller is anonymous.
        @raise NotAuthorized: the caller is no operator. The message says what is missing.
        """
        headers = caller.headers
        if principal is not ANYBODY:
            if not principal.name:
                raise NotAuthenticated("operator calls need an account")
            if b"origin" in headers:
                raise NotAuthorized("operator calls are not taken from web pages")
            return
        self._checkPlace(caller)
        if b"origin" in headers:
            raise NotAuthorized("operator calls are not taken from web pages")
        given = headers.get(b"authorization", b"")
        if given.partition(b" ")[0].lower() != _SCHEME:
            raise NotAuthorized("operator calls need the token: Authorization: Bearer TOKEN")
        if not self._isToken(given):
            raise NotAuthorized("this is not the token of this daemon")

    def checkLogIn(self, caller: Caller, token: str) -> None:
        """
        Check a log-in of the console by the token, which begins a session.

        @raise NotAuthorized: the caller is not on this machine.
        @raise NotAuthenticated: this is not the token.
        """
        self._checkPlace(caller)
        if not compare_digest(token.encode("utf-8", "replace"), self._token):
            raise NotAuthenticated("this is not the token of this daemon")

    def _checkPlace(self, caller: Caller) -> None:
        headers = caller.headers
        if not isLoopback(caller.peer):
            raise NotAuthorized("operator calls are taken from this machine only")
        if not isLoopback(hostName(headers.get(b"host", b""))):
            raise NotAuthorized("the Host of an operator call is a loopback address or localhost")
        if any(name in headers for name in _PROXIED):
            raise NotAuthorized("operator calls are not taken through proxies")


def callerOf(request: Request) -> Caller:
    """The sender of a request."""
    headers = {
        name.lower(): b", ".join(values)
        for name, values in request.requestHeaders.getAllRawHeaders()
    }
    return Caller(peer=getattr(request.getClientAddress(), "host", ""), headers=headers)


def members(contentType: bytes, body: bytes) -> Mapping[str, object]:
    """
    Read the parameters in a body.

    @raise ParameterInvalid: the body is no JSON object, or its type is not L{JSON_TYPE}.
    @raise ContentTooLarge: the body has more than L{MAX_BODY} bytes.
    """
    if contentType.partition(b";")[0].strip().lower() != JSON_TYPE:
        raise ParameterInvalid(f"the content type must be {JSON_TYPE.decode('ascii')}")
    if len(body) > MAX_BODY:
        raise ContentTooLarge(f"an operator call has at most {MAX_BODY} bytes")
    try:
        value = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ParameterInvalid("the body is not JSON") from None
    if not isinstance(value, dict):
        raise ParameterInvalid("the body is not a JSON object")
    return value


class OperatorCall:
    """
    One operator call, tied to a broker: an endpoint behind the L{Authorizer}.

    The fast path does not serve it, since what authorizes a request is in its headers and its
    connection.
    """

    def __init__(
        self, operation: Operation, calls: Calls, authorizer: Authorizer, incidents: Incidents
    ) -> None:
        self._name = operation.name
        self._isRead = operation.isRead
        self._known = {parameter.name for parameter in operation.parameters}
        self._call = bindJSON(operation, calls)
        self._groups = calls.broker.groups
        self._audit = calls.audit
        self._authorizer = authorizer
        self._endpoint = HttpEndpoint(
            method="POST",
            path=operation.name,
            parse=self._parse,
            call=self._makeCall,
            encode=resultEncoder(operation),
            incidents=incidents,
        )

    def handle(self, request: Any) -> bytes | Deferred[bytes]:
        """Answer a request."""
        principal = principalOf(request)
        try:
            if not request.isOfSession:
                self._authorizer.check(callerOf(request), principal)
        except BrokerError as error:
            return respond(request, explain(error, principal, encodeError))
        return self._endpoint.handle(request)

    def _parse(self, query: bytes, contentType: bytes | None, body: bytes) -> Mapping[str, object]:
        given = members(contentType or b"", body)
        for name in given:
            # Other calls ignore these; but a fault that was mistyped would seem made.
            if name not in self._known:
                raise ParameterInvalid(f"{name[:100]}: there is no such parameter")
        return given

    def _makeCall(
        self, principal: Principal, given: Mapping[str, object], connection: Connection
    ) -> Deferred[Any]:
        if self._isRead(given):
            return self._call(principal, given, connection)
        account = principal.name or "this machine"
        _log.info("Operator call {name} of {account}", name=self._name, account=account)
        if self._audit is None:
            return self._call(principal, given, connection)
        called = maybeDeferred(self._call, principal, given, connection)
        return called.addBoth(self._record, self._audit, principal, given)

    def _record(
        self, result: Any, audit: AuditTrail, principal: Principal, given: Mapping[str, Any]
    ) -> Any:
        """Record the call in the audit trail."""
        error: BrokerError | None = None
        if isinstance(result, Failure):
            error = result.value if isinstance(result.value, BrokerError) else UnknownError()
        try:
            group = self._groups.resolve(ANYBODY, given.get("groupId"))
            # The logs do not show whether there is a group in which nothing is granted.
            group = group if principal.seesGroup(group) else ""
        except (BrokerError, AttributeError, TypeError):
            # The call has failed for that.
            group = ""
        audit.operatorCalled(principal.name, group, self._name, error)
        return result


def operatorRoutes(
    prefix: str, calls: Calls, authorizer: Authorizer, incidents: Incidents
) -> Iterator[Route]:
    """
    The routes of all operator calls.

    @param prefix: the path above them.
    """
    for operation in OPERATOR_CALLS:
        call = OperatorCall(operation, calls, authorizer, incidents)
        yield Route(path=f"{prefix}/{operation.name}", methods=("POST",), handler=call.handle)
