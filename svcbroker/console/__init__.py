"""
The console: a page for the people who run a broker and write programs for it.

The page is static files: C{page}, and C{vendor} with what others have written. It makes the same
calls as every other client, by the account that has logged in. Beside these there is
C{console/bundle}: an evidence bundle of some events, which is made in a thread, one at a time and
of bounded size; C{svcbroker proof bundle} makes larger ones.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from attrs import define, field, frozen
from msgspec import Struct
from twisted.cred.credentials import ICredentials, UsernamePassword
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.http import CACHED
from twisted.web.server import Request

from ..access import ANYBODY, Access, Principal
from ..broker import Calls
from ..broker.features import Feature, RunningFeature, Services
from ..carriers.http import LogIns, Route
from ..carriers.http.logins import Credentials, portOf
from ..carriers.http.operator import Authorizer, callerOf
from ..carriers.http.plain import parseFields
from ..carriers.http.routes import encode, encodeError, explain, principalOf, respond
from ..errors import (
    BrokerError,
    EventErased,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    GroupUnknown,
    HeightUnknown,
    LedgerUnavailable,
    NoSuchCall,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
)
from ..interfaces import TOPIC_ACTIONS, Action, BearerToken
from ..model import EventId
from ..net.bounds import Bound, Sizing, amountText
from ..net.deferreds import asDeferred
from ..net.settings import NoSettings

if TYPE_CHECKING:
    from ..proofs.bundle import ErasureNote

MAX_EVENTS: Final = 50
"""The most events of a bundle for the page, which says so too."""
MAX_PROOFS: Final = 8 * 1024 * 1024
"""The most bytes of their proofs."""
COPIES: Final = 6
"""The copies of the proofs in memory meanwhile: in the page as Base64 of them, and in the file."""

_STATUS: Final[dict[type[BrokerError], int]] = {
    ParameterInvalid: http.BAD_REQUEST,
    EventIdInvalid: http.BAD_REQUEST,
    EventIdTooLong: http.BAD_REQUEST,
    EventNotFound: http.NOT_FOUND,
    GroupUnknown: http.NOT_FOUND,
    HeightUnknown: http.NOT_FOUND,
    LedgerUnavailable: http.SERVICE_UNAVAILABLE,
    Overloaded: http.SERVICE_UNAVAILABLE,
}


@define(eq=False)
class BundleMaker:
    """
    Makes bundles by the grants of those who ask.

    @ivar _run: runs work in a thread.
    """

    _calls: Calls
    _run: Callable[..., Deferred[bytes]]
    _isBusy: bool = field(default=False, init=False)

    def route(self, path: str) -> Route:
        """The route."""
        return Route(path=path, methods=("GET",), handler=self._respond)

    @asDeferred
    async def _respond(self, request: Any) -> bytes:
        principal = principalOf(request)
        try:
            fields = parseFields(request.uri.partition(b"?")[2])
            group = self._calls.broker.groups.resolve(
                principal, fields.get(b"groupId", b"").decode("utf-8", "replace")
            )
            data = await self.make(principal, group, _readIds(fields.get(b"events", b"")))
        except BrokerError as error:
            code = _STATUS.get(type(error), http.INTERNAL_SERVER_ERROR)
            return respond(request, explain(error, principal, encodeError), code)
        request.setHeader(b"Content-Type", b"application/zip")
        request.setHeader(b"Cache-Control", b"no-store")
        request.setHeader(b"Content-Length", b"%d" % len(data))
        return data

    async def make(self, principal: Principal, group: str, ids: Sequence[EventId]) -> bytes:
        """
        Make the bundle of some events.

        @raise Overloaded: another one is being made.
        @raise ParameterInvalid: the proofs are larger than L{MAX_PROOFS}.
        @raise EventNotFound: there is no such event, or the principal may not read it.
        """
        # Only for this: the daemon needs no bundles before.
        from ..proofs.bundle import Bundle

        if self._isBusy:
            raise Overloaded("another bundle is being made")
        self._isBusy = True
        try:
            key = await self._calls.transparency.key(principal, group)
            proofs, erasures = await self._gather(principal, group, ids)
            policy = f"log {key.key}\nquorum none\n".encode()
            bundle = Bundle(proofs=proofs, policy=policy, erasures=erasures)
            return await self._run(bundle.encode)
        finally:
            self._isBusy = False

    async def _gather(
        self, principal: Principal, group: str, ids: Sequence[EventId]
    ) -> tuple[Mapping[str, bytes], Mapping[str, ErasureNote]]:
        """The proofs of events, and what is known of the erasure of some."""
        from ..proofs.bundle import ErasureNote

        proofs: dict[str, bytes] = {}
        erasures: dict[str, ErasureNote] = {}
        size = 0
        lane = self._calls.broker.budgets.work.lane()
        for eventId in ids:
            # Each is a unit of work: fifty proofs take 150 ms.
            if not lane.begin(isWrite=False):
                await lane.turn(isWrite=False)
            proof = await self._calls.transparency.prove(principal, group, eventId)
            proofs[str(eventId)] = data = proof.encode()
            size += len(data)
            if size > MAX_PROOFS:
                raise ParameterInvalid(
                    f"events: their proofs have more than {MAX_PROOFS} bytes; svcbroker proof "
                    "bundle makes larger bundles"
                )
            try:
                await self._calls.broker.getEvent(principal, group, eventId)
            except EventErased as error:
                erasures[str(eventId)] = ErasureNote(
                    timestamp=error.time,
                    account=error.account,
                    reason=error.reason,
                    transHash=f"0x{error.transaction.hex()}",
                )
        lane.end()
        return proofs, erasures


def _readIds(text: bytes) -> Sequence[EventId]:
    """
    Read ids with commas between them.

    @raise ParameterInvalid: there are none, or too many.
    """
    ids = list(dict.fromkeys(filter(None, text.split(b","))))
    if not 1 <= len(ids) <= MAX_EVENTS:
        raise ParameterInvalid(f"events: give 1 to {MAX_EVENTS} ids, with commas between them")
    return [EventId.parse(each.decode("utf-8", "replace")) for each in ids]


INDEX: Final = "index.html"
ICON: Final = "icon.svg"

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""Nothing of another server, and nothing inline."""

_HERE = Path(__file__).parent
_TYPES: Final = {
    ".html": "text/html;charset=UTF-8",
    ".css": "text/css;charset=UTF-8",
    ".js": "text/javascript;charset=UTF-8",
    ".mjs": "text/javascript;charset=UTF-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    # Sessions count in requests of the page alone: see L{isOfOwnPage}.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # Kept, and asked for again each time: after an upgrade, pages and scripts must fit.
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept-Encoding"),
)
_ACCEPTS_GZIP: Final = re.compile(rb"(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?:0\.0*[1-9]|1))", re.I)


@frozen
class File:
    """
    One file, which is compressed once, at the first request.

    @ivar type: its content type.
    """

    type: str
    body: bytes = field(repr=False)
    _tag: str = field(init=False)

    @_tag.default
    def _makeTag(self) -> str:
        return sha256(self.body).hexdigest()[:32]

    @cached_property
    def _zipped(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    def respond(self, request: Request) -> bytes:
        """Answer a request with it, or with 304 where the browser has it. Called by Klein."""
        headers = request.responseHeaders
        for name, value in _HEADERS:
            headers.setRawHeaders(name, [value])
        isZipped = _ACCEPTS_GZIP.search(request.getHeader(b"accept-encoding") or b"") is not None
        tag = f'"{self._tag}-gzip"' if isZipped else f'"{self._tag}"'
        if request.setETag(tag.encode("ascii")) is CACHED:
            return b""
        body = self._zipped if isZipped else self.body
        if isZipped:
            headers.setRawHeaders("Content-Encoding", ["gzip"])
        headers.setRawHeaders("Content-Type", [self.type])
        headers.setRawHeaders("Content-Length", [str(len(body))])
        return body


def readFiles() -> Mapping[str, File]:
    """Read all files, by their paths below the console's."""
    files = {}
    for folder, prefix in (("page", ""), ("vendor", "vendor/")):
        for path in sorted((_HERE / folder).iterdir()):
            if path.suffix in _TYPES:
                files[prefix + path.name] = File(_TYPES[path.suffix], path.read_bytes())
    return files


_JSON = b"application/json"


class LogInForm(Struct, forbid_unknown_fields=True):
    """
    The fields of the form: the name and the password of an account, or a token alone: that of an
    account, or, where there are no accounts, that of the operator.
    """

    name: str
    password: str


class User(Struct, frozen=True):
    """
    By whom the page makes its calls.

    @ivar account: the name of the account; empty for anonymous clients; C{None} where calls are
        refused without a log-in.
    @ivar hasAccounts: whether the broker has accounts, so that one can log in.
    @ivar hasSession: whether the user has logged in by the form, and so can log out. Where there
        are no accounts, that is by the token of the operator.
    @ivar groups: the ids of the groups in which the user may do something, in their order.
    @ivar actions: the actions that are granted in each of them, for the group or for some of its
        topics. The page asks for nothing else: a refusal is an event of the audit trail.
    """

    account: str | None
    hasAccounts: bool
    hasSession: bool
    groups: list[str]
    actions: dict[str, list[str]]


class WebConsole:
    """
    The page and its sessions at C{{base}/console}.

    The files are sent to everybody: they are the same for each broker, and show nothing but what
    the calls of the page are answered. Those need a principal and its grants, as everywhere.
    """

    def __init__(
        self,
        basePath: str,
        access: Access,
        sessions: LogIns,
        groups: Iterable[str],
        operatorToken: str | None = None,
    ) -> None:
        """
        @param access: who may log in.
        @param groups: the ids of all groups.
        @param operatorToken: the token of the operator calls, by which operators of this machine
            log in where there are no accounts; C{None} where there are no operator calls.
        """
        self._path = f"{basePath}/console"
        self._access = access
        self._sessions = sessions
        self._groups = groups
        self._authorizer = None if operatorToken is None else Authorizer("", operatorToken)

    def routes(self) -> Iterator[Route]:
        """The routes, for the table of the site."""
        files = readFiles()
        yield self._route("", files[INDEX].respond, isLinked=True)
        yield self._route("/", _sendTo("../console"), isLinked=True)
        for name, file in files.items():
            if name != INDEX:
                yield self._route(f"/{name}", file.respond)
        yield self._route("/session", self._session, methods=("GET", "POST", "DELETE"))
        yield from self._entries(files[ICON])

    def _entries(self, icon: File) -> Iterator[Route]:
        """
        The addresses that people type, which send browsers to the page: without it they would ask
        for a password in a window of their own. Relative, since a proxy may serve another path.
        """
        base = self._path.removesuffix("/console")
        last = base.rpartition("/")[2]
        entries = {"/": f"{base[1:]}/console".lstrip("/"), f"{base}/": "console"}
        if base:
            entries[base] = f"{last}/console"
        for path, place in entries.items():
            yield self._routeAt(path, _sendTo(place), isLinked=True)
        for place in {"", base}:
            yield self._routeAt(f"{place}/favicon.ico", icon.respond)

    def _route(
        self,
        path: str,
        handler: Any,
        methods: tuple[str, ...] = ("GET",),
        isLinked: bool = False,
    ) -> Route:
        return self._routeAt(self._path + path, handler, methods, isLinked)

    def _routeAt(
        self,
        path: str,
        handler: Any,
        methods: tuple[str, ...] = ("GET",),
        isLinked: bool = False,
    ) -> Route:
        return Route(
            path=path,
            methods=methods,
            handler=handler,
            credentials=Credentials.IGNORED,
            isLinked=isLinked,
        )

    @asDeferred
    async def _session(self, request: Any) -> bytes:
        """Tell of the session of a user, begin it, or end it."""
        request.setHeader("Cache-Control", "no-store")
        try:
            if request.method == b"POST":
                return respond(request, encode(await self._logIn(request)))
            if request.method == b"DELETE":
                self._logOut(request)
                return respond(request, None)
            return respond(request, encode(await self._show(request)))
        except (NotAuthenticated, NotAuthorized) as error:
            # Not 401, which would need a challenge. This is no call, but a form.
            return respond(request, encodeError(error), http.FORBIDDEN)
        except NoSuchCall as error:
            return respond(request, encodeError(error), http.NOT_FOUND)
        except ParameterInvalid as error:
            return respond(request, encodeError(error), http.BAD_REQUEST)
        except BrokerError as error:
            return respond(request, encodeError(error), http.SERVICE_UNAVAILABLE)

    async def _logIn(self, request: Any) -> User:
        credentials = _readForm(request)
        if self._access.isOpen:
            principal = self._logInOperator(request, credentials)
        else:
            address = getattr(request.channel.getPeer(), "host", "")
            principal = await self._access.login(credentials, address)
        # The session that the browser had is over.
        self._sessions.end(request.sessionToken or b"")
        self._setCookie(request, self._sessions.begin(principal))
        return self._user(principal, hasSession=True)

    def _logInOperator(self, request: Any, credentials: ICredentials) -> Principal:
        if self._authorizer is None or not isinstance(credentials, BearerToken):
            raise NoSuchCall("this broker has no accounts")
        self._authorizer.checkLogIn(callerOf(request), credentials.token)
        return ANYBODY

    def _logOut(self, request: Any) -> None:
        if request.sessionToken is not None:
            self._sessions.end(request.sessionToken)
            self._setCookie(request, b"")

    async def _show(self, request: Any) -> User:
        principal = request.sessionPrincipal()
        if principal is not None:
            return self._user(principal, hasSession=True)
        if self._access.isOpen:
            return self._user(ANYBODY)
        try:
            # By a certificate, or as an anonymous client.
            principal = await request.channel.authenticator.logIn(None)
        except NotAuthenticated:
            # From now on, calls are refused without the browser's own dialog. A cookie that is
            # there stays: another page may have asked.
            if request.sessionToken is None:
                self._setCookie(request, b"")
            return User(None, hasAccounts=True, hasSession=False, groups=[], actions={})
        return self._user(principal)

    def _user(self, principal: Principal, *, hasSession: bool = False) -> User:
        groups = [group for group in self._groups if principal.seesGroup(group)]
        # Operator calls are refused without an account, and where there are none, without a log-in.
        mayOperate = hasSession or bool(principal.name)
        return User(
            principal.name,
            hasAccounts=not self._access.isOpen,
            hasSession=hasSession,
            groups=groups,
            actions={group: _actions(principal, group, mayOperate) for group in groups},
        )

    def _setCookie(self, request: Any, token: bytes) -> None:
        cookie = self._sessions.cookie(token, portOf(request.channel), request.isSecure())
        request.setHeader("Set-Cookie", cookie)


def _actions(principal: Principal, group: str, mayOperate: bool) -> list[str]:
    """The actions that are granted for a group, or for some of its topics."""

    def isGranted(action: Action) -> bool:
        if action in TOPIC_ACTIONS:
            return principal.mayAny(action, group)
        return principal.may(action, group) and (action is not Action.OPERATE or mayOperate)

    return [each.value for each in Action if isGranted(each)]


def _readForm(request: Any) -> ICredentials:
    """
    Read the form of a log-in.

    @raise ParameterInvalid: it is malformed.
    """
    contentType = request.getHeader(b"content-type") or b""
    if contentType.partition(b";")[0].strip().lower() != _JSON:
        raise ParameterInvalid("the content type must be application/json")
    try:
        form = msgspec.json.decode(request.content.read(), type=LogInForm)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ParameterInvalid("this is no log-in") from None
    if form.name:
        return UsernamePassword(form.name.encode("utf-8"), form.password.encode("utf-8"))
    return BearerToken(form.password)


def _sendTo(place: str) -> Callable[[Request], bytes]:
    """Make what sends browsers to another place, relative to where they are."""

    def send(request: Request) -> bytes:
        request.setResponseCode(http.PERMANENT_REDIRECT)
        request.setHeader("Location", place)
        request.setHeader("Content-Length", "0")
        return b""

    return send


class ConsoleFeature(RunningFeature):
    """The console on the site of HTTP."""

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._services = services
        self._thread = services.makeThread(services.reactor, "bundles")

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        services = self._services
        console = WebConsole(
            *(services.basePath, services.access, calls.answers[LogIns]),
            *(services.broker.groups, services.operatorToken),
        )
        bundles = BundleMaker(calls, self._thread.run)
        return [*console.routes(), bundles.route(f"{services.basePath}/console/bundle")]

    def release(self) -> None:
        """See L{RunningFeature}."""
        self._thread.stop()


def consoleBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of the bundle that is being made."""
    yield Bound(
        name="bundles for the console",
        bytes=COPIES * MAX_PROOFS,
        how=f"one is made at a time, of proofs of at most {amountText(MAX_PROOFS)}",
    )


FEATURE: Final = Feature(name="console", make=ConsoleFeature, bounds=consoleBounds)
