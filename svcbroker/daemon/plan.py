"""
The plan of the service, made from the configuration before anything is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from ..interfaces import ILedger, InvalidDescription, LedgerContext
from ..ledgers import parseDescription, readDescription
from ..net.settings import ConfigError, Endpoint
from ..version import readVersion
from .access import AccessPlan, makeAccessPlan
from .config import SETTINGS, Config, GroupSetting
from .features import FEATURES
from .ports import PortPlan, serverEndpoint

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
