"""
Log-ins: from the credentials of clients to principals.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final
from weakref import ReferenceType, WeakValueDictionary, ref

from attrs import evolve, field, frozen
from twisted.cred.credentials import ICredentials, IUsernamePassword, UsernamePassword
from twisted.cred.error import LoginFailed, UnauthorizedLogin
from twisted.cred.portal import IRealm, Portal
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import Interface, implementer

from ..errors import BrokerError, NotAuthenticated, Overloaded
from ..interfaces import (
    AccountToken,
    Action,
    ClientCertificate,
    GrantLine,
    IAuthenticator,
    IClientCertificate,
    Identity,
    Quotas,
)
from ..net.bounds import LOGINS as LOGINS_BOUND
from ..net.bounds import Bound, amountText, within
from ..net.budgets import ENTRY_BYTES
from ..net.deferreds import asDeferred, asLeanDeferred
from ..net.tls import peerCertificate
from ..net.turns import MakeAll, makeAtOnce
from ._audittrail import HTTP, MAX_LOGINS, MAX_PENDING, AuditTrail
from ._logins import (
    LOGIN_THREADS,
    MAX_REMEMBERED,
    Authenticators,
    HttpLogins,
    LoginLimits,
    LoginQueue,
)
from ._principal import ANYBODY, UNLIMITED, Admission, Principal, Usage

COUNTED: Final = ("connections", "subscriptions", "inflight")
"""The quotas of which uses are counted for each account, by their names."""

LOGINS: Final = ("success", "failed", "overloaded")
"""The ends of a log-in."""

_MAX_RECENT: Final = 10_000
"""Of how many accounts the rates are kept that no connection uses."""

CHECK_BYTES: Final = 64 * 1024 * 1024
"""The memory that verifying a password takes where no account has one."""


@implementer(IRealm)
class Access:
    """
    Authenticates clients: the authenticators, and the principals of all clients.

    Carriers call L{login} with the credentials of a client, and act by the principal that it
    gives. Where there are no accounts, L{anonymous} is L{ANYBODY}, and nobody logs in.

    @ivar isOpen: whether there are no accounts, so that everybody may do everything.
    @ivar turns: when carriers handle what clients send that have not logged in.
    @ivar anonymous: the principal of clients without credentials; C{None} where they are refused.
    @ivar logins: how many log-ins were checked, by carrier and one of L{LOGINS}.
    @ivar refusals: how often something was not granted, by the name of the action; C{any} where
        nothing at all was granted in the group.
    @ivar exceeded: how often a quota was exceeded, by its name.
    @ivar recall: see L{HttpLogins.recall}.
    @ivar loginHttp: see L{HttpLogins.login}.
    """

    _log = Logger()

    def __init__(
        self,
        authenticators: Sequence[IAuthenticator],
        clock: IReactorTime,
        now: Callable[[], float],
        *,
        anonymous: Identity | None = None,
        quotas: Callable[[str], Quotas] = lambda name: UNLIMITED,
        entropy: Callable[[int], bytes] = os.urandom,
        limits: LoginLimits | None = None,
        audit: AuditTrail | None = None,
        makeAll: MakeAll = makeAtOnce,
    ) -> None:
        """
        @param clock: for quotas and log-ins.
        @param now: the wall clock: seconds since the epoch.
        @param anonymous: what clients without credentials may do; C{None} refuses them.
        @param quotas: gives the quotas of an account that has none of its own, by its name.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param audit: records log-ins and refusals.
        @param makeAll: makes the calls that end connections: see
            L{WorkBudget.makeAll<svcbroker.net.budgets.WorkBudget.makeAll>}.
        """
        self.logins: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.exceeded: Counter[str] = Counter()
        self._authenticators = authenticators
        self._clock = clock
        self._now = now
        self._quotas = quotas
        self._audit = audit
        self._makeAll = makeAll
        self._portal = Portal(self, [Authenticators(authenticators)])
        # By the account's name; the client id, or "" where its grants do not depend on it; and the
        # credential, or the identity where that holds for some credentials alone.
        self._principals: WeakValueDictionary[tuple[str, str, Identity | str], Principal]
        self._principals = WeakValueDictionary()
        self._usages: WeakValueDictionary[str, Usage] = WeakValueDictionary()
        # Rates that were used up stay used up when all connections of an account have closed.
        self._recent: OrderedDict[str, Usage] = OrderedDict()
        # A principal that nothing uses any more goes before its credentials expire: some issuers
        # give a new token for each request.
        self._expiries: dict[ReferenceType[Principal], IDelayedCall] = {}
        self._queue = LoginQueue(clock, limits)
        self.turns = self._queue.turns
        self._http = HttpLogins(self.login, self.turns, clock, entropy(32))
        self.recall = self._http.recall
        self.loginHttp = self._http.login
        self.isOpen = not authenticators and anonymous is None
        self.anonymous: Principal | None = None
        if self.isOpen:
            self.anonymous = ANYBODY
        else:
            self.changeAnonymous(anonymous)

    @asDeferred
    async def start(self) -> None:
        """
        Start the authenticators.

        @raise InvalidDescription: one of them cannot be used.
        """
        for authenticator in self._authenticators:
            await authenticator.start()

    def stop(self) -> None:
        """Release everything."""
        for call in self._expiries.values():
            call.cancel()
        self._expiries.clear()
        self.turns.stop()
        for authenticator in self._authenticators:
            authenticator.stop()

    @asLeanDeferred
    async def login(
        self, credentials: ICredentials, address: str, clientId: str = "", carrier: str = HTTP
    ) -> Principal:
        """
        Log in.

        @param credentials: C{IUsernamePassword}, L{IBearerToken<svcbroker.interfaces.IBearerToken>}
            or L{IClientCertificate<svcbroker.interfaces.IClientCertificate>}.
        @param address: the client's IP address; empty where it has none.
        @param clientId: the MQTT client id.
        @param carrier: how the client is connected, for the audit trail.
        @raise NotAuthenticated: the credentials are not valid.
        @raise Overloaded: too many log-ins are being checked.
        """
        try:
            principal = await self._login(credentials, address, clientId)
        except BrokerError as error:
            self._loginFailed(error, credentials, address, carrier)
            raise
        self.logins[carrier, "success"] += 1
        self.loggedIn(principal, address, carrier)
        return principal

    async def _login(self, credentials: ICredentials, address: str, clientId: str) -> Principal:
        quick, check = credentials, _refuse
        if IUsernamePassword.providedBy(credentials):
            quick = accountToken(credentials)

            def check() -> Deferred[Principal]:
                return self._check(credentials, clientId)

        try:
            return await self._check(quick, clientId)
        except LoginFailed as error:
            # See asLeanDeferred.
            error.__traceback__ = None
            # No one can guess certificates. Passwords have not been looked at yet, and answers to
            # all others may be slowed down.
            if IClientCertificate.providedBy(credentials):
                raise NotAuthenticated() from None
        try:
            return await self._queue.check(address, check)
        except LoginFailed as error:
            error.__traceback__ = None
            raise NotAuthenticated() from None

    def loggedIn(self, principal: Principal, address: str, carrier: str) -> None:
        """
        Record a log-in in the audit trail. Called by HTTP too, once a connection, for credentials
        that were checked on another one.
        """
        if self._audit is not None and principal.name:
            self._audit.loggedIn(principal.name, address, carrier)

    def _loginFailed(
        self, error: BrokerError, credentials: Any, address: str, carrier: str
    ) -> None:
        self.logins[carrier, "overloaded" if isinstance(error, Overloaded) else "failed"] += 1
        if self._audit is None:
            return
        name = ""
        if IUsernamePassword.providedBy(credentials):
            name = credentials.username.decode("utf-8", "replace")
            if self._identify(name) is None:
                name = ""
        self._audit.loginFailed(name, address, carrier, error)

    def _check(self, credentials: Any, clientId: str) -> Deferred[Principal]:
        found: Any = self._portal.login(credentials, clientId, IPrincipal)
        principal: Deferred[Principal] = found.addCallback(itemgetter(1))
        return principal

    @asLeanDeferred
    async def admit(
        self,
        credentials: ICredentials | None,
        address: str,
        ended: Callable[[], object],
        clientId: str = "",
        *,
        carrier: str,
    ) -> Admission:
        """
        Log a connection in. Called by carriers whose connections keep their log-in.

        @param credentials: see L{credentialsOf<svcbroker.access.credentialsOf>}.
        @param ended: called when the account goes or the log-in expires: the connection closes.
        @param carrier: how the client is connected, for the audit trail.
        @raise NotAuthenticated: the credentials are not valid, or there are none and none are not
            enough.
        @raise QuotaExceeded: the account has as many connections as it may have.
        @raise Overloaded: too many log-ins are being checked.
        """
        principal = self.anonymous
        if credentials is not None and not self.isOpen:
            try:
                principal = await self.login(credentials, address, clientId, carrier)
            except NotAuthenticated:
                # A certificate is shown unasked.
                if principal is None or not IClientCertificate.providedBy(credentials):
                    raise
        if principal is None:
            error = NotAuthenticated()
            self._loginFailed(error, credentials, address, carrier)
            raise error
        principal = self.forClient(principal, clientId)
        principal.usage.take("connections")
        return Admission(principal, principal.onEnd(ended))

    def requestAvatar(
        self, avatarId: Any, mind: Any, *interfaces: Any
    ) -> tuple[Any, Principal, Callable[[], None]]:
        """
        See C{IRealm}: the principal of an L{Identity<svcbroker.interfaces.Identity>}. Called by the
        portal.

        @param mind: the MQTT client id.
        """
        if IPrincipal not in interfaces:
            raise NotImplementedError()
        return IPrincipal, self._principal(avatarId, mind), lambda: None

    def forClient(self, principal: Principal, clientId: str) -> Principal:
        """The principal of the same account for an MQTT client."""
        if principal is ANYBODY:
            return principal
        return self._principal(principal.identity, clientId)

    def find(self, name: str) -> Principal | None:
        """
        The principal of an account by its name, for webhooks and sessions that are kept.

        @param name: empty for clients without credentials.
        @return: C{None} where there is no such account, or none without its credentials.
        """
        if not name:
            return self.anonymous
        identity = self._identify(name)
        return None if identity is None else self._principal(identity, "")

    def identities(self) -> Mapping[str, Identity]:
        """
        All accounts by their names: those that authenticators list, and those that are logged in.
        Empty is the name of clients without credentials, where these may log in.
        """
        live = (each for each in self._principals.values() if not each.isRevoked)
        found = {each.name: each.identity for each in live}
        if self.isOpen or self.anonymous is None:
            found.pop("", None)
        for authenticator in self._authenticators:
            for name in authenticator.names():
                identity = self._identify(name)
                if identity is not None:
                    found[name] = identity
        return found

    def status(self, identity: Identity) -> AccountStatus:
        """An account as it is now."""
        usage = self._usages.get(identity.name)
        return AccountStatus(
            name=identity.name,
            grants=identity.grants,
            quotas=self._quotasOf(identity),
            used={each: 0 if usage is None else usage.used(each) for each in COUNTED},
        )

    async def readAgain(self) -> Sequence[Callable[[], None]]:
        """
        Read the files of all authenticators again.

        @return: what applies them. Dropping it changes nothing.
        @raise InvalidDescription: one of them is not valid.
        """
        return [await authenticator.reload() for authenticator in self._authenticators]

    @asDeferred
    async def reload(self) -> None:
        """
        Read accounts, grants and limits again. Rights of running connections change at once;
        those of accounts that are gone end, and so do those that have logged in by a password, a
        token or a certificate that is gone.

        @raise InvalidDescription: a file of an authenticator is not valid. Nothing has changed.
        """
        changes = await self.readAgain()
        principals = [each for each in self._principals.values() if not each.isRevoked]
        before = {each: self._identify(each.name) for each in principals}
        for change in changes:
            change()
        self._http.forget()
        # Thousands may have logged in.
        await self._makeAll(partial(self._revise, each, before[each]) for each in principals)

    def _revise(self, principal: Principal, account: Identity | None) -> None:
        """
        Give a principal what its account has now.

        @param account: what it had before.
        """
        old = principal.identity
        if principal.isRevoked:
            return
        if not principal.name:
            # No authenticator knows it: see changeAnonymous.
            principal.usage.limit(self._quotasOf(old))
            return
        # The log-in of an account by a token that expires. Where the credentials say what is
        # granted, they last as long as they do.
        isOfAccount = account is not None and _asLoggedIn(account, old) == old
        if old.expiresAt is not None and not isOfAccount:
            return
        identity = self._identify(principal.name)
        if identity is None:
            self._end(principal)
        elif old.credential in old.credentials - identity.credentials:
            self._end(principal, "does not have the credential of some log-ins any more")
        else:
            principal.usage.limit(self._quotasOf(identity))
            if account != identity or not isOfAccount:
                self._update(principal, _asLoggedIn(identity, old))

    def changeAnonymous(self, identity: Identity | None) -> None:
        """
        Change what clients without credentials may do, at once and for their connections too.
        Not called where L{isOpen}.

        @param identity: C{None} refuses them: their connections end.
        """
        for principal in list(self._principals.values()):
            if principal.name or principal.isRevoked or principal.identity == identity:
                continue
            if identity is None:
                self._end(principal)
            else:
                self._update(principal, identity)
        self.anonymous = None if identity is None else self._principal(identity, "")

    def _update(self, principal: Principal, identity: Identity) -> None:
        """Change what the connections of a principal may do."""
        if identity.grants.dependsOnClient and not principal.identity.grants.dependsOnClient:
            # They share a principal, and log in again, each by its client id.
            self._end(principal, "needs the client id now")
        else:
            principal.update(identity)

    def _identify(self, name: str) -> Identity | None:
        for authenticator in self._authenticators:
            identity = authenticator.identify(name)
            if identity is not None:
                return identity
        return None

    def _quotasOf(self, identity: Identity) -> Quotas:
        return self._quotas(identity.name) if identity.quotas is None else identity.quotas

    def _principal(self, identity: Identity, clientId: str) -> Principal:
        name = identity.name
        clientId = clientId if identity.grants.dependsOnClient else ""
        shown = identity.credential if identity.expiresAt is None else identity
        key = (name, clientId, shown)
        principal = self._principals.get(key)
        if principal is None or principal.isRevoked:
            usage = self._usages.get(name)
            if usage is None:
                usage = Usage(UNLIMITED, self._clock.seconds, partial(self._exceeded, name))
                self._usages[name] = usage
            usage.limit(self._quotasOf(identity))
            if usage.limitsPublishes:
                self._recent[name] = usage
                self._recent.move_to_end(name)
                if len(self._recent) > _MAX_RECENT:
                    self._recent.popitem(last=False)
            principal = Principal(identity, usage, clientId, self._refused)
            self._principals[key] = principal
        elif principal.identity != identity:
            principal.usage.limit(self._quotasOf(identity))
            principal.update(identity)
        self._limitTime(principal, identity)
        return principal

    def _refused(self, principal: Principal, action: Action | None, group: str, topic: str) -> None:
        self.refusals["any" if action is None else action.value] += 1
        if self._audit is not None:
            self._audit.refused(principal.name, action, group, topic)

    def _exceeded(self, name: str, quota: str) -> None:
        self.exceeded[quota] += 1
        if self._audit is not None:
            self._audit.exceeded(name, quota)

    def _limitTime(self, principal: Principal, identity: Identity) -> None:
        """End a log-in when its credentials expire."""
        reference = ref(principal, self._forgetExpiry)
        if identity.expiresAt is not None and reference not in self._expiries:
            delay = max(0.0, identity.expiresAt - self._now())
            self._expiries[reference] = self._clock.callLater(delay, self._expire, reference)

    def _forgetExpiry(self, reference: ReferenceType[Principal]) -> None:
        call = self._expiries.pop(reference, None)
        if call is not None and call.active():
            call.cancel()

    def _expire(self, reference: ReferenceType[Principal]) -> None:
        principal = reference()
        if principal is not None:
            self._end(principal, "has a log-in that has expired")

    def _end(self, principal: Principal, reason: str = "is gone") -> None:
        self._forgetExpiry(ref(principal))
        name = principal.name or "anonymous"
        self._log.info("The account {name} {reason}: its connections end", name=name, reason=reason)
        principal.revoke(self._makeAll)


def credentialsOf(transport: Any, name: bytes | None, password: bytes | None) -> Any:
    """
    The credentials of a connection that logs in inside its protocol.

    @param transport: the connection. Its client's certificate counts where there is neither name
        nor password.
    @return: C{ICredentials}; C{None} where there are none.
    """
    if name is not None or password is not None:
        return UsernamePassword(name or b"", password or b"")
    certificate = peerCertificate(transport)
    if certificate is None:
        return None
    return ClientCertificate(certificate.commonName, certificate.fingerprint)


def accountToken(credentials: Any) -> AccountToken:
    """
    A name and a password as a name and a token.

    @param credentials: C{IUsernamePassword}.
    """
    # What is not UTF-8 is no name and no token.
    name, token = (
        each.decode("utf-8", "replace") if isinstance(each, bytes) else each
        for each in (credentials.username, credentials.password)
    )
    return AccountToken(name, token)


@frozen(kw_only=True)
class AccountStatus:
    """
    An account as operators see it: grants, quotas, and present use. It has no secret.

    @ivar name: its name; empty for clients without credentials.
    @ivar grants: its L{IGrants<svcbroker.interfaces.IGrants>}.
    @ivar used: how much it uses of each of L{COUNTED}.
    """

    name: str
    grants: Any = field(repr=False)
    quotas: Quotas
    used: Mapping[str, int]

    def lines(self, group: str | None) -> Sequence[GrantLine]:
        """The lines of its grants that are about a group; C{None} for all."""
        lines: Sequence[GrantLine] = self.grants.describe(group)
        return lines


class IPrincipal(Interface):
    """The interface of what a log-in gives: a L{Principal}."""


def _asLoggedIn(identity: Identity, loggedIn: Identity) -> Identity:
    """The identity of an account, for a log-in that there is."""
    return evolve(identity, expiresAt=loggedIn.expiresAt, credential=loggedIn.credential)


def _refuse() -> Deferred[Principal]:
    return fail(UnauthorizedLogin())


def accessBounds(costs: Sequence[str]) -> Iterator[Bound]:
    """
    The memory of log-ins, of accounts and of the audit trail.

    @param costs: what verifying the passwords costs, see L{AccountTable}.
    """
    if costs:
        check = max(map(_checkBytes, costs))
        yield Bound(
            name="passwords being verified",
            bytes=LOGIN_THREADS * check,
            how=f"{LOGIN_THREADS} at a time, of {amountText(check)}",
        )
    limits = LoginLimits()
    entries = MAX_REMEMBERED + limits.addresses + limits.waiting + _MAX_RECENT
    yield Bound(
        name=LOGINS_BOUND,
        bytes=ENTRY_BYTES * entries,
        how=f"{MAX_REMEMBERED:,} credentials, {limits.addresses:,} addresses with failures, "
        f"{limits.waiting:,} that wait, {_MAX_RECENT:,} accounts",
        holders=(
            *within("svcbroker.access._logins.HttpLogins", "_known", "_checks"),
            *within("svcbroker.access._logins.LoginQueue", "_failures", "_waiting"),
            "svcbroker.access._access.Access._recent",
        ),
    )
    yield Bound(
        name="the audit trail",
        bytes=ENTRY_BYTES * (MAX_LOGINS + 2 * MAX_PENDING),
        how=f"{MAX_LOGINS:,} log-ins, {MAX_PENDING:,} records that are not written",
        holders=within("svcbroker.access._audittrail.AuditTrail", "_logins", "_counts", "_single"),
    )
    yield Bound(
        name="an account whose clients are connected",
        bytes=2048,
        how="about, and what it was asked for lately: some hundred bytes for each topic",
        each="each",
        holders=(
            *within("svcbroker.access._access.Access", "_principals", "_usages", "_expiries"),
            *within("svcbroker.access._principal.Principal", "_answers", "_endings", "_groups"),
            "svcbroker.access._principal.Principal.onEnd.<locals>.forget.kept",
            *within("svcbroker.access._principal.Usage", "_counts", "_buckets"),
        ),
    )


def _checkBytes(cost: str) -> int:
    """The memory that verifying a password takes, by the parameters of its hash, in KiB there."""
    parameters = dict(each.split("=", 1) for each in cost.split(",") if "=" in each)
    return int(parameters["m"]) * 1024 if "m" in parameters else CHECK_BYTES
