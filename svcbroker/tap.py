"""
The composition root of C{twistd svcbroker}. Only this module of the daemon picks the reactor, the
wall clock and the sources of randomness.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict
from twisted.application.service import IService
from twisted.logger import Logger
from twisted.python import usage

from .daemon.config import Config
from .daemon.dependencies import Dependencies
from .daemon.logs import LogFilter, observerMaker
from .daemon.memory import BudgetSizes, planMemory, usableMemory
from .daemon.options import ConfigOptions
from .daemon.plan import makePlan
from .daemon.process import TwistdProcess, raiseFileLimit
from .daemon.running import ConfigurationInForce, RunningFeatures, Start
from .daemon.service import BrokerService, Reload
from .daemon.systemd import findServiceManager
from .interfaces import ILedger
from .net.budgets import Budgets
from .net.settings import ConfigError


def _theReactor() -> Any:
    # Not at import: twistd has to look at --reactor first.
    from twisted.internet import reactor

    return reactor


class Options(ConfigOptions):
    """
    The command line. After parsing, C{self["config"]} is the whole configuration, and
    C{self["plan"]} what the service is to do.
    """

    def postOptions(self) -> None:
        """
        Read the configuration and plan the service, while a mistake can still be told as a usage
        error. See C{usage.Options}.
        """
        super().postOptions()
        try:
            self["plan"] = makePlan(self["config"], _theReactor())
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None


def makeService(options: Options) -> IService:
    """
    The service that twistd runs.
    """
    reactor = _theReactor()
    raiseFileLimit()
    config = options["config"]
    plan, memory = options["plan"], usableMemory()
    sizes, bounds = BudgetSizes.of(config, memory), planMemory(config, plan, memory)
    dependencies = Dependencies(
        reactor=reactor,
        now=time.time,
        entropy=os.urandom,
        random=random.random,
        process=TwistdProcess(reactor),
        manager=findServiceManager(os.environ, os.getpid(), reactor),
        budgets=Budgets.of(reactor, **asdict(sizes)),
    )
    inForce = ConfigurationInForce(
        *(config, options.sources(), options.file, dependencies.now, bounds.bounds, memory)
    )

    filter = LogFilter(config.logLevel)

    def readSettings() -> tuple[Config, Callable[[], None]]:
        read, sources = options.readConfig(), options.sources()

        def useSettings() -> None:
            filter.use(read.logLevel)
            inForce.reloaded(read, sources)

        return read, useSettings

    start = Start(
        config=config,
        plan=plan,
        dependencies=dependencies,
        inForce=inForce,
        readSettings=readSettings,
        arguments=options.arguments(),
    )

    def makeFeatures(
        ledgers: Mapping[str, ILedger], address: str, reload: Reload
    ) -> RunningFeatures:
        bounds.announce()
        for line in config.outdated:
            Logger().warn("{line}", line=line)
        return start.makeFeatures(ledgers, address, reload)

    twistd = getattr(options, "parent", None) or {}
    service: IService = BrokerService(
        plan,
        dependencies,
        makeFeatures,
        observerMaker(config, twistd, filter, reactor),
        filter.reopen,
    )
    return service
