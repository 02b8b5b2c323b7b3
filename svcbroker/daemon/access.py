"""
Access control from the configuration: the authenticators, and whether it is safe to listen.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.logger import Logger

from ..access import (
    LOGIN_THREADS,
    UNLIMITED,
    Access,
    Accounts,
    AccountTable,
    AuditTrail,
    grantsOf,
    readAccounts,
)
from ..interfaces import (
    AuthenticatorContext,
    IAuthenticator,
    IAuthenticatorFactory,
    Identity,
    InvalidDescription,
    Quotas,
)
from ..net.budgets import WorkBudget
from ..net.descriptions import configureDescribed, describeFactories, findFactories
from ..net.settings import ConfigError
from .config import Config
from .dependencies import LedgerThread
from .ports import PortPlan

_log = Logger()


@frozen(kw_only=True)
class AccessPlan:
    """
    The access to the broker, as the configuration says.

    @ivar file: the file of the accounts.
    @ivar table: what it holds; C{None} where there is none.
    @ivar isReadable: whether every user of this machine may read the file.
    @ivar makers: make the other authenticators.
    @ivar anonymous: what clients without credentials are granted; empty for nothing.
    @ivar openPorts: the ports that are not on loopback.
    """

    file: Path = Path()
    table: AccountTable | None = None
    isReadable: bool = False
    makers: Sequence[Callable[[AuthenticatorContext], IAuthenticator]] = ()
    anonymous: Sequence[str] = ()
    openPorts: Sequence[PortPlan] = ()

    @property
    def hasAccounts(self) -> bool:
        """Whether clients can log in."""
        return self.table is not None or bool(self.makers)

    @property
    def refusal(self) -> str:
        """The reason why the daemon must not start, in a line; empty where it may."""
        if self.hasAccounts or self.anonymous or not self.openPorts:
            return ""
        port = self.openPorts[0]
        return (
            f"{port.name}: {port.text} is not known to be on loopback, and there are no accounts: "
            "give accounts with --accounts FILE (svcbroker admin account add makes it), or say "
            "with "
            "--anonymous GRANTS what every client may do"
        )

    def reread(self, anonymous: Sequence[str]) -> Identity | None:
        """
        The identity of clients without credentials by a configuration that was read again.

        @return: C{None} for nothing.
        @raise ConfigError: the daemon would start in another way, such as open to every client.
        """
        if not self.hasAccounts and bool(anonymous) is not bool(self.anonymous):
            raise ConfigError(
                "anonymous: without accounts, the first grant and the removal of the last one need "
                "a restart"
            )
        return _anonymousIdentity(anonymous)

    def describe(self) -> Iterator[str]:
        """Yield who may use the broker, in lines for people."""
        if self.table is not None:
            yield f"clients with one of {len(self.table.accounts)} accounts in {self.file}"
        if self.makers:
            yield f"clients known to {len(self.makers)} further authenticators"
        if self.anonymous:
            yield f"clients without credentials, granted {'; '.join(self.anonymous)}"
        elif not self.hasAccounts:
            yield "every client, as there are no accounts"

    def announce(self) -> None:
        """Log who may use the broker."""
        if self.isReadable:
            _log.warn("{file} can be read by every user of this machine", file=str(self.file))
        if self.anonymous:
            _log.warn(
                "Clients without credentials are granted: {grants}",
                grants="; ".join(self.anonymous),
            )
        elif not self.hasAccounts:
            _log.info(
                "There are no accounts: every client may do everything. All ports are on loopback"
            )

    def make(
        self,
        reactor: Any,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
        makeThread: Callable[..., LedgerThread],
        work: WorkBudget,
        audit: AuditTrail | None = None,
    ) -> AccessControl:
        """
        Make the authenticators, with threads of their own. For the other parameters see
        L{Dependencies<svcbroker.daemon.dependencies.Dependencies>}.

        @param audit: records log-ins and refusals.
        @param work: has the turns in which connections end.
        """
        authenticators: list[IAuthenticator] = []
        accounts: Accounts | None = None
        thread: LedgerThread | None = None
        quotas = _unlimited
        if self.hasAccounts:
            thread = makeThread(reactor, "logins", LOGIN_THREADS)
            context = AuthenticatorContext(
                reactor=reactor, now=now, entropy=entropy, runInThread=thread.run
            )
            if self.table is not None:
                accounts = Accounts(self.file, self.table, context)
                quotas = accounts.quotas
                authenticators.append(accounts)
            authenticators.extend(make(context) for make in self.makers)
        access = Access(
            authenticators,
            reactor,
            now,
            anonymous=_anonymousIdentity(self.anonymous),
            quotas=quotas,
            entropy=entropy,
            audit=audit,
            makeAll=work.makeAll,
        )
        return AccessControl(access, thread, accounts)


def _anonymousIdentity(grants: Sequence[str]) -> Identity | None:
    return Identity(name="", grants=grantsOf(grants)) if grants else None


def _unlimited(name: str) -> Quotas:
    return UNLIMITED


@frozen
class AccessControl:
    """
    The access control of a running daemon.

    @ivar access: who may use the broker.
    @ivar accounts: the accounts of the file; C{None} where there is none.
    """

    access: Access
    _thread: LedgerThread | None
    accounts: Accounts | None = None

    def stop(self) -> None:
        """Release everything. The last log-ins have been answered."""
        self.access.stop()
        if self._thread is not None:
            self._thread.stop()


def makeAccessPlan(config: Config, ports: Iterable[PortPlan]) -> AccessPlan:
    """
    Plan the access control. The file of the accounts is read.

    @raise ConfigError: the accounts or the description of an authenticator cannot be used.
    """
    table: AccountTable | None = None
    isReadable = False
    # twistd may go to another directory before the file is read again.
    file = Path(config.accounts).absolute()
    if config.accounts:
        try:
            table = readAccounts(file)
            isReadable = bool(file.stat().st_mode & stat.S_IROTH)
        except InvalidDescription as error:
            raise ConfigError(f"accounts: {error}") from error
    known = findFactories(IAuthenticatorFactory) if config.auth else []
    makers = []
    for text in config.auth:
        try:
            makers.append(configureDescribed("authenticator", text, known))
        except InvalidDescription as error:
            raise ConfigError(f"auth: {error}") from error
    return AccessPlan(
        file=file,
        table=table,
        isReadable=isReadable,
        makers=makers,
        anonymous=config.anonymous,
        openPorts=[port for port in ports if not port.isLocal],
    )


def describeAuthenticators() -> str:
    """The text of C{--help-auth}: each kind of authenticator, with its settings."""
    return describeFactories("An authenticator", findFactories(IAuthenticatorFactory))
