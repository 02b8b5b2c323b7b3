"""
The routes of the console: its files, and the sessions of its users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from twisted.cred.credentials import ICredentials, UsernamePassword
from twisted.web import http
from twisted.web.server import Request

from ..access import ANYBODY, Access, Principal
from ..broker import Calls
from ..broker.features import Feature, RunningFeature, Services
from ..carriers.http import LogIns, Route
from ..carriers.http.logins import Credentials, portOf
from ..carriers.http.operator import Authorizer, callerOf
from ..carriers.http.routes import encode, encodeError, respond
from ..errors import BrokerError, NoSuchCall, NotAuthenticated, NotAuthorized, ParameterInvalid
from ..interfaces import TOPIC_ACTIONS, Action, BearerToken
from ..net.bounds import Bound, Sizing, amountText
from ..net.deferreds import asDeferred
from ..net.settings import NoSettings
from ._bundles import COPIES, MAX_PROOFS, BundleMaker
from ._files import ICON, INDEX, File, readFiles

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
