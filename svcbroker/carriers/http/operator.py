"""
The operator calls: by POST, JSON in and out, from this machine, with the operator's token.

Who can read the data directory has the token and so may operate. A browser's page must not,
whatever it knows: it cannot set the header without being asked, says its origin, and reaches
us, by a name of its own that leads here, with that name in C{Host}. All of it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...broker import Broker
from ...errors import BrokerError, ContentTooLarge, NotAuthorized, ParameterInvalid
from ...operations import OPERATOR_CALLS, Incidents, Operation, bindJSON
from .encoding import encode, encodeError
from .request import BrokerRequest
from .resource import Route, respond

MAX_BODY: Final = 64 * 1024
"""The largest body of an operator call, in bytes."""
JSON_TYPE: Final = b"application/json"
_SCHEME = "bearer "
_PROXIED = (b"forwarded", b"x-forwarded-for", b"via")
_log = Logger()
_decoder = msgspec.json.Decoder()


def isLoopback(host: str) -> bool:
    """Whether an address, or a name that never means another machine, is this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


@frozen(kw_only=True)
class Caller:
    """
    What a request says of who sent it.

    @ivar peer: the address of the other end of the connection; empty where it has none.
    @ivar headers: the headers that matter, by their names in lower case.
    """

    peer: str
    headers: Mapping[bytes, bytes]


class Gate:
    """
    Tells operators from everybody else.
    """

    def __init__(self, token: str) -> None:
        """
        @param token: what operators have to know.
        """
        self._token = token.encode("ascii")

    def check(self, caller: Caller) -> None:
        """
        @raise NotAuthorized: this is no operator. The message says what is missing.
        """
        peer, headers = caller.peer, caller.headers
        if not isLoopback(peer):
            raise NotAuthorized("operator calls are taken from this machine only")
        if not isLoopback(_hostName(headers.get(b"host", b""))):
            raise NotAuthorized("the Host of an operator call is a loopback address or localhost")
        if b"origin" in headers:
            raise NotAuthorized("operator calls are not taken from web pages")
        if any(name in headers for name in _PROXIED):
            raise NotAuthorized("operator calls are not taken through proxies")
        given = headers.get(b"authorization", b"").decode("latin-1")
        if not given.lower().startswith(_SCHEME):
            raise NotAuthorized("operator calls need the token: Authorization: Bearer TOKEN")
        if not compare_digest(given[len(_SCHEME) :].strip().encode("latin-1"), self._token):
            raise NotAuthorized("this is not the token of this daemon")


def _hostName(host: bytes) -> str:
    try:
        return urlsplit("//" + host.decode("ascii")).hostname or ""
    except ValueError:
        return ""


def members(contentType: bytes, body: bytes) -> Mapping[str, object]:
    """
    The parameters that a body holds.

    @raise ParameterInvalid: it is no JSON object, or does not say so.
    @raise ContentTooLarge: it is too large.
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
    One operator call, tied to a broker.
    """

    def __init__(
        self, operation: Operation, broker: Broker, gate: Gate, incidents: Incidents
    ) -> None:
        self._name = operation.name
        self._known = {parameter.name for parameter in operation.parameters}
        self._call = bindJSON(operation, broker)
        self._render: Callable[[Any], Any] = operation.result.render
        self._gate = gate
        self._incidents = incidents

    async def answer(self, caller: Caller, contentType: bytes, body: bytes) -> bytes:
        """
        The JSON text that answers a call. A failure is an answer too.
        """
        try:
            self._gate.check(caller)
            given = members(contentType, body)
            for name in given:
                # Elsewhere these are ignored; but a fault that was mistyped would seem made.
                if name not in self._known:
                    raise ParameterInvalid(f"{name[:100]}: there is no such parameter")
            _log.info("Operator call {name}", name=self._name)
            return encode(self._render(await self._call(given)))
        except BrokerError as error:
            return encodeError(error)
        except CancelledError:
            raise
        except Exception:
            return encodeError(self._incidents.explain(Failure()))

    def handle(self, request: BrokerRequest) -> Deferred[bytes]:
        """Answer a request."""
        return Deferred.fromCoroutine(self._handle(request))

    async def _handle(self, request: BrokerRequest) -> bytes:
        headers = {
            name.lower(): b", ".join(values)
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        peer = getattr(request.getClientAddress(), "host", "")
        caller = Caller(peer=peer, headers=headers)
        contentType = headers.get(b"content-type", b"")
        return respond(request, await self.answer(caller, contentType, request.body()))


def routes(prefix: str, broker: Broker, token: str, incidents: Incidents) -> Iterator[Route]:
    """
    The routes of all operator calls.

    @param prefix: the path above them.
    @param token: what operators have to know.
    """
    gate = Gate(token)
    for operation in OPERATOR_CALLS:
        call = OperatorCall(operation, broker, gate, incidents)
        yield Route(path=f"{prefix}/{operation.name}", methods=("POST",), handler=call.handle)
