"""
The plan of the service, made from the configuration before anything is opened: groups, ports, and
access with its authenticators, and whether it is safe to listen; and the refusals of a start, found
without a change: what prevents the daemon from listening, from using its data directory, and from
opening what is in it.

C{svcbroker run --check} and C{svcbroker doctor} ask L{findRefusals}. The daemon opens everything by
functions that make the same checks, so that the three agree: L{lockDataDirectory
<svcbroker.daemon.directory.lockDataDirectory>}, C{start} of each ledger, and
L{MetadataFile<svcbroker.storage.MetadataFile>}.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import maybeDeferred
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
from ..errors import BrokerError
from ..interfaces import (
    AuthenticatorContext,
    IAuthenticator,
    IAuthenticatorFactory,
    ICheckedLedger,
    Identity,
    ILedger,
    InvalidDescription,
    LedgerContext,
    Quotas,
)
from ..ledgers import parseDescription, readDescription
from ..net.budgets import WorkBudget
from ..net.descriptions import configureDescribed, describeFactories, findFactories
from ..net.settings import ConfigError, Endpoint
from ..storage import StorageError, lookAtMetadata
from ..version import readVersion
from .config import SETTINGS, Config, GroupSetting
from .dependencies import LedgerThread, StartError
from .directory import METADATA, DataDirectoryError, checkDataDirectory
from .features import FEATURES
from .ports import PortPlan, findBindError, listenRefusal, serverEndpoint

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


MAX_PORT: Final = 65535


@frozen(kw_only=True)
class GroupPlan:
    """
    A group to be served.

    @ivar id: its id.
    @ivar kind: the name of its kind of ledger, for the log.
    @ivar makeLedger: makes its ledger.
    """

    id: str
    kind: str
    makeLedger: Callable[[LedgerContext], ILedger]


@frozen(kw_only=True)
class Plan:
    """
    The plan of the service.

    @ivar dataDir: the data directory.
    @ivar ports: where to listen, C{http} being the first, if it is served at all.
    @ivar basePath: the context path, for the log.
    @ivar groups: the groups to serve.
    @ivar maxContent: the largest content of an event in bytes.
    @ivar shutdownTimeout: how long a stop may take, in seconds.
    @ivar version: the version, for the log.
    @ivar hasFaults: whether operators may make faults, for the log.
    @ivar access: who may use the broker.
    @ivar read: by the names of features, what they have read of the files of their settings.
    """

    dataDir: Path
    ports: Sequence[PortPlan]
    basePath: str
    groups: Sequence[GroupPlan]
    maxContent: int
    shutdownTimeout: float
    version: str
    hasFaults: bool = False
    access: AccessPlan = AccessPlan()
    read: Mapping[str, Any] = {}


def makePlan(config: Config, reactor: Any) -> Plan:
    """
    Plan the service. Nothing is listened on or opened yet.

    @raise ConfigError: an endpoint, a ledger's description, the accounts or another file cannot be
        used.
    """
    ports = [planPort(reactor, name, text) for name, text in endpointsOf(config).items()]
    _refuseSharedSockets(ports)
    return Plan(
        dataDir=config.dataDir,
        ports=ports,
        basePath=config.basePath,
        groups=[planGroup(config, group) for group in config.groups],
        maxContent=config.maxContent,
        shutdownTimeout=config.shutdownTimeout,
        version=readVersion().version,
        hasFaults=config.faults,
        access=makeAccessPlan(config, ports),
        read={each.name: each.read(config.of(each.settings)) for each in FEATURES},
    )


def endpointsOf(config: Config) -> Mapping[str, str]:
    """
    The endpoints that are listened on, by the names of their settings, C{http} being the first.
    """
    endpoints = {}
    for setting in SETTINGS:
        if isinstance(setting.kind, Endpoint):
            text = config.value(setting)
            if text and text not in setting.kind.others:
                endpoints[setting.name] = text
    return endpoints


def planGroup(config: Config, group: GroupSetting) -> GroupPlan:
    """
    Plan a group.

    @raise ConfigError: the description of its ledger cannot be used.
    """
    description = config.ledger if group.ledger is None else group.ledger
    try:
        makeLedger = parseDescription(description)
    except InvalidDescription as error:
        name = "ledger" if group.ledger is None else f"group {group.id}"
        raise ConfigError(f"{name}: {error}") from error
    kind = readDescription(description).name
    return GroupPlan(id=group.id, kind=kind, makeLedger=makeLedger)


def planPort(reactor: Any, name: str, text: str) -> PortPlan:
    """
    Plan a port. The files of certificates are read.

    @param name: the name of its setting.
    @raise ConfigError: the endpoint cannot be used.
    """
    try:
        endpoint = serverEndpoint(reactor, text)
    except ValueError as error:
        raise ConfigError(f"{name}: cannot use {text!r}: {error}") from error
    plan = PortPlan(name=name, endpoint=endpoint, text=text)
    number = getattr(plan.unwrapped, "_port", 0)
    if isinstance(number, int) and not 0 <= number <= MAX_PORT:
        raise ConfigError(f"{name}: cannot use {text!r}: a port is a number from 0 to {MAX_PORT}")
    return plan


def _refuseSharedSockets(ports: Sequence[PortPlan]) -> None:
    """Refuse a configuration in which two ports listen on one socket of systemd."""
    names: dict[int, str] = {}
    for port in ports:
        descriptor = port.inheritedSocket
        if descriptor in names:
            raise ConfigError(f"{port.name}: {port.text} is the socket of {names[descriptor]}, too")
        if descriptor is not None:
            names[descriptor] = port.name


def findRefusals(config: Config, reactor: Any, *, isRunning: bool = False) -> Iterator[str]:
    """
    Find everything for which the daemon would not start, in a line each that names the setting.
    Nothing is changed and no lock is taken.

    @param reactor: what endpoints and ledgers are made with. Nothing is started on it.
    @param isRunning: whether a daemon uses the data directory: the question is then what its next
        start would refuse, and the ports that are in use may be its own.
    """
    try:
        plan = makePlan(config, reactor)
    except ConfigError as error:
        yield str(error)
        return
    if plan.access.refusal:
        yield plan.access.refusal
    for port in plan.ports:
        number = findBindError(port)
        if number and not (isRunning and number == errno.EADDRINUSE):
            yield listenRefusal(port, os.strerror(number))
    if config.traces:
        yield from _findTracing()
    try:
        checkDataDirectory(plan.dataDir)
    except DataDirectoryError as error:
        yield str(error)
        return
    for group in plan.groups:
        yield from _lookAtLedger(plan, group, config, reactor)
    try:
        lookAtMetadata(plan.dataDir / METADATA)
    except StorageError as error:
        yield metadataRefusal(error)


def metadataRefusal(error: StorageError) -> str:
    """The refusal of a metadata store, in a line."""
    return f"data-dir: {error}"


def ledgerRefusal(group: str, error: BrokerError) -> str:
    """The refusal of a group's ledger, in a line."""
    return f"group {group}: {error.message}"


def _findTracing() -> Iterator[str]:
    from .traces import importExporter

    try:
        importExporter()
    except StartError as error:
        yield str(error)


def _lookAtLedger(plan: Plan, group: GroupPlan, config: Config, reactor: Any) -> Iterator[str]:
    context = LedgerContext(
        group=group.id,
        directory=plan.dataDir / group.id,
        reactor=reactor,
        now=lambda: 0.0,
        entropy=os.urandom,
        runInThread=maybeDeferred,
        maxContent=plan.maxContent,
    )
    try:
        ledger = ICheckedLedger(group.makeLedger(context), None)
        if ledger is not None:
            ledger.check()
    except BrokerError as error:
        yield ledgerRefusal(group.id, error)
