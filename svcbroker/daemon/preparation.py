"""
The refusals of a start, found without a change: what prevents the daemon from listening, from using
its data directory, and from opening what is in it.

C{svcbroker run --check} and C{svcbroker doctor} ask L{findRefusals}. The daemon opens everything by
functions that make the same checks, so that the three agree: L{lockDataDirectory
<svcbroker.daemon.directory.lockDataDirectory>}, C{start} of each ledger, and
L{MetadataFile<svcbroker.storage.MetadataFile>}.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import maybeDeferred

from ..errors import BrokerError
from ..interfaces import ICheckedLedger, LedgerContext
from ..net.settings import ConfigError
from ..storage import StorageError, lookAtMetadata
from .config import Config
from .dependencies import StartError
from .directory import METADATA, DataDirectoryError, checkDataDirectory
from .plan import GroupPlan, Plan, makePlan
from .ports import findBindError, listenRefusal


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
