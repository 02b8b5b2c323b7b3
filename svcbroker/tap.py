"""
C{twistd svcbroker}: the composition root. Here, and in no other module of the daemon, the
reactor, the wall clock, randomness and the process itself are chosen.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from twisted.application.service import IService
from twisted.internet.error import ReactorNotRunning
from twisted.logger import ILogObserver, Logger
from twisted.python import usage
from twisted.python.components import Componentized

from .broker import Broker, Keeper, Limits
from .broker.subscriptions import KeptPositions, Subscriptions
from .carriers import mqtt
from .carriers.http import HttpSettings, makeSite
from .carriers.peers import makePeers
from .carriers.stomp import FrameLimits, StompFactory, StompSettings, webSocketRoute
from .carriers.webhook import (
    AddressPolicy,
    Signer,
    WebhookSettings,
    makeWebhooks,
    parseSecrets,
)
from .daemon._descriptors import raiseFileLimit
from .daemon._operatorfile import OperatorFile, operatorUrl
from .daemon._ports import PortPlan, serverEndpoint
from .daemon._serving import Carriers, Part
from .daemon._settings import Several, Switch
from .daemon.config import SETTINGS, Config, ConfigError, Setting, makeConfig, readFile
from .daemon.logs import jsonLogObserver, openLogFile
from .daemon.service import HTTP, BrokerService, GroupPlan, ICarrier, Plan, StartError, World
from .interfaces import ILedger, InvalidDescription
from .ledgers import describeLedgers, findLedgerFactories, parseDescription, readDescription
from .storage import NoteStore, StorageError
from .version import readVersion

NOTES = "notes.sqlite"
"""The file in the data directory that holds what subscriptions keep."""

STOMP = "stomp"
"""The name of the port of STOMP."""

MQTT = "mqtt"
"""The name of the port of MQTT."""

YOUNG_OBJECTS = 50_000
"""How many new objects the garbage collector waits for before it looks through them."""

_MAX_SECRETS_FILE = 64 * 1024


def _theReactor() -> Any:
    # Not before twistd has looked at --reactor.
    from twisted.internet import reactor

    return reactor


class Options(usage.Options):
    """
    The command line. After parsing, C{self["plan"]} is what the service is to do and
    C{self["config"]} the whole configuration.
    """

    synopsis = "[options]"
    longdesc = (
        "Every setting can also stand in a TOML file, under the same name. "
        "An option given here wins over the file."
    )

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Any] = {}
        self._file: dict[str, Any] = {}

    def opt_config(self, path: str) -> None:
        """A TOML file with settings."""
        try:
            self._file = readFile(Path(path))
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None

    def opt_help_ledger(self) -> None:
        """Show the ledgers there are, and their settings."""
        sys.stdout.write(describeLedgers(findLedgerFactories()))
        raise SystemExit(0)

    def give(self, setting: Setting, value: Any) -> None:
        """Take a setting from the command line."""
        if isinstance(setting.kind, Several):
            value = [*self._given.get(setting.name, []), value]
        self._given[setting.name] = value

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        try:
            config = makeConfig(self._file, self._given)
            self["config"] = config
            self["plan"] = makePlan(config, _theReactor())
            self["webhooks"] = makeWebhookSettings(config)
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None

    def opt_version(self) -> None:
        """Show the version."""
        sys.stdout.write(f"svcbroker {readVersion().version}\n")
        raise SystemExit(0)


def _option(setting: Setting) -> Callable[[Options, str], None]:
    def take(self: Options, text: str) -> None:
        try:
            self.give(setting, setting.kind.parse(text))
        except ValueError as error:
            raise usage.UsageError(f"{setting.name}: {error}") from None

    take.__doc__ = f"{setting.help} [{setting.kind.metavar}, default: {setting.default}]"
    return take


def _switch(setting: Setting, value: bool) -> Callable[[Options], None]:
    def turn(self: Options) -> None:
        self.give(setting, value)

    default = " (default)" if setting.default == ("on" if value else "off") else ""
    turn.__doc__ = (setting.help if value else f"turn --{setting.name} off") + default
    return turn


for _each in SETTINGS:
    _name = _each.name.replace("-", "_")
    if isinstance(_each.kind, Switch):
        setattr(Options, f"opt_{_name}", _switch(_each, True))
        setattr(Options, f"opt_no_{_name}", _switch(_each, False))
    else:
        setattr(Options, f"opt_{_name}", _option(_each))


def makePlan(config: Config, reactor: Any) -> Plan:
    """
    What the service is to do. Nothing is listened on or opened yet.

    @raise ConfigError: an endpoint or a ledger's description cannot be used.
    """
    ports = [
        _planPort(reactor, name, text)
        for name, text in ((HTTP, config.http), (STOMP, config.stomp), (MQTT, config.mqtt))
        if text
    ]
    groups = []
    for group in config.groups:
        description = config.ledger if group.ledger is None else group.ledger
        try:
            makeLedger = parseDescription(description)
        except InvalidDescription as error:
            name = "ledger" if group.ledger is None else f"group {group.id}"
            raise ConfigError(f"{name}: {error}") from error
        kind = readDescription(description).name
        groups.append(GroupPlan(id=group.id, kind=kind, makeLedger=makeLedger))
    return Plan(
        dataDir=config.dataDir,
        ports=ports,
        basePath=config.basePath,
        groups=groups,
        maxContent=config.maxContent,
        shutdownTimeout=config.shutdownTimeout,
        version=readVersion().version,
        hasFaults=config.faults,
    )


def makeWebhookSettings(config: Config) -> WebhookSettings:
    """
    What can be chosen about web hooks, with the secrets.

    @raise ConfigError: the file of the secrets cannot be used.
    """
    secrets: tuple[bytes, ...] = ()
    path = config.webhookSecretFile
    if path:
        try:
            with open(path, "rb") as file:
                secrets = parseSecrets(file.read(_MAX_SECRETS_FILE))
        except OSError as error:
            raise ConfigError(
                f"webhook-secret-file: cannot read {path}: {error.strerror}"
            ) from error
        except ValueError as error:
            raise ConfigError(f"webhook-secret-file: {path} {error}") from None
    return WebhookSettings(
        policy=AddressPolicy.allowing(config.webhookAllow),
        signer=Signer(secrets),
        timeout=config.webhookTimeout,
        maxDelay=config.webhookMaxDelay,
        connections=config.webhookConnections,
    )


def _planPort(reactor: Any, name: str, text: str) -> PortPlan:
    try:
        endpoint = serverEndpoint(reactor, text)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{name}: cannot use {text!r}: {reason}") from error
    return PortPlan(name=name, endpoint=endpoint, text=text)


class TwistdProcess:
    """
    The process, as twistd runs it.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._hasFailed = False

    def handleSignals(self) -> None:
        """
        Stop the reactor on SIGTERM and SIGINT: from now on, and again after reactor.run has
        installed handlers of its own. twistd ends a process that was stopped by one of those
        with the signal again, so that it could not exit with 0.
        """
        self._installHandlers()
        self._reactor.callWhenRunning(self._installHandlers)

    def _installHandlers(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._stop)

    def _stop(self) -> None:
        try:
            self._reactor.stop()
        except ReactorNotRunning:
            # It is stopping already.
            return

    def started(self, announce: Callable[[], None]) -> None:
        """See L{svcbroker.daemon.service.IProcess.started}."""
        # What was made by now lives as long as the process: the collector may skip it.
        gc.collect()
        gc.freeze()
        # What comes after lives as long as a publish takes, thousands at a time. Looking through
        # it again and again takes a tenth of the time, and finds nothing.
        gc.set_threshold(YOUNG_OBJECTS)
        # A turn after the start, when the signal handlers are ours again: who reads the
        # announcement may send a signal at once.
        self._reactor.callWhenRunning(self._reactor.callLater, 0, announce)

    def refuse(self, message: str) -> None:
        """See L{svcbroker.daemon.service.IProcess.refuse}."""
        self._log.critical("Cannot start: {message}", message=message)
        sys.excepthook = _tellInOneLine

    def fail(self, message: str) -> None:
        """See L{svcbroker.daemon.service.IProcess.fail}."""
        self._log.critical("{message}", message=message)
        if not self._hasFailed:
            self._hasFailed = True
            _tell(message)
            # The status of a process that ran its reactor is not ours to give otherwise.
            atexit.register(_exitBadly)
            self._stop()


def _tell(message: str) -> None:
    # sys.stderr belongs to the log by now.
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"svcbroker: {message}\n")
        sys.__stderr__.flush()


def _tellInOneLine(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if isinstance(error, StartError):
        _tell(str(error))
    else:
        sys.__excepthook__(kind, error, traceback)


def _exitBadly() -> None:
    for stream in (sys.stdout, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(1)


class _LoggingService(BrokerService):
    """
    Brings its own log observer to the application; C{twistd --logger} wins over it.
    """

    def __init__(self, makeObserver: Callable[[], ILogObserver] | None, *args: Any) -> None:
        super().__init__(*args)
        self._makeObserver = makeObserver

    def setServiceParent(self, parent: Any) -> None:
        """See C{IService}."""
        if self._makeObserver is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._makeObserver())
        super().setServiceParent(parent)


def _observerMaker(config: Config, twistd: Mapping[str, Any]) -> Callable[[], ILogObserver] | None:
    """
    What makes the log observer; C{None} leaves it to twistd.

    @param twistd: twistd's own options.
    """
    if config.logFormat == "text" or twistd.get("syslog"):
        return None
    name = twistd.get("logfile") or ("-" if twistd.get("nodaemon", True) else "twistd.log")
    if name == "-":
        return lambda: jsonLogObserver(sys.stdout)
    return lambda: jsonLogObserver(openLogFile(Path(name).absolute()))


def makeService(options: Options) -> IService:
    """
    The service that twistd runs.
    """
    config: Config = options["config"]
    reactor = _theReactor()
    raiseFileLimit()

    # A converter that is a generic class hides from mypy what it takes.
    corsOrigins: Any = config.corsOrigins
    settings = HttpSettings(
        basePath=config.basePath,
        accessLog=config.accessLog,
        corsOrigins=corsOrigins,
        door=config.httpDoor,
    )

    world = World(
        reactor=reactor,
        now=time.time,
        entropy=os.urandom,
        process=TwistdProcess(reactor),
    )

    def makeCarrier(ledgers: Mapping[str, ILedger], address: str) -> ICarrier:
        thread = world.makeThread(reactor, "notes")
        try:
            notes = NoteStore.open(config.dataDir / NOTES)
            keeper = Keeper(notes, reactor, thread.run)
        except StorageError as error:
            thread.stop()
            raise StartError(f"data-dir: {error}") from error
        subscriptions = Subscriptions(
            ledgers, reactor, world.now, world.entropy, KeptPositions(keeper)
        )
        webhooks = makeWebhooks(
            reactor,
            subscriptions,
            keeper,
            options["webhooks"],
            now=world.now,
            entropy=world.entropy,
            random=random.random,
        )
        peers = makePeers(reactor, config.peers)
        broker = Broker(
            ledgers,
            reactor,
            Limits(
                maxContent=config.maxContent,
                chainTimeout=config.chainTimeout,
                peerTimeout=config.peerTimeout,
            ),
            nodeAddress=config.advertise or address,
            version=readVersion(),
            subscriptions=subscriptions,
            webhooks=webhooks,
            hasFaults=config.faults,
            instance=world.entropy(16).hex(),
            peers=peers.all,
        )
        stomp = StompFactory(
            broker,
            subscriptions,
            world.entropy,
            version=readVersion().version,
            settings=StompSettings(frames=FrameLimits(maxBody=config.maxContent)),
        )
        mqttContext = mqtt.makeContext(
            ledgers,
            subscriptions,
            keeper,
            reactor,
            world.now,
            world.entropy,
            mqtt.MqttSettings(openTopics=config.mqttOpenTopics, maxContent=config.maxContent),
        )
        mqttCarrier = mqtt.MqttCarrier(mqttContext)
        mqttFactory = mqtt.MqttFactory(mqttCarrier)
        routes = [
            webSocketRoute(stomp, settings.basePath, settings.corsOrigins),
            mqtt.webSocketRoute(mqttFactory, settings.basePath, settings.corsOrigins),
        ]
        url = operatorUrl(address, settings.basePath, config.http)
        operatorFile = OperatorFile(config.dataDir, url, world.entropy)
        site = makeSite(broker, settings, routes, operatorToken=operatorFile.token)
        return Carriers(
            factories={HTTP: site, STOMP: stomp, MQTT: mqttFactory},
            parts=[
                Part(drain=site.drain),
                Part(drain=peers.drain),
                Part(drain=stomp.drain),
                Part(start=mqttCarrier.start, drain=mqttCarrier.drain),
                Part(start=webhooks.start, drain=webhooks.stop),
                Part(start=operatorFile.start, drain=operatorFile.drain),
            ],
            broker=broker,
            subscriptions=subscriptions,
            keeper=keeper,
            release=thread.stop,
        )

    twistd = getattr(options, "parent", None) or {}
    service: IService = _LoggingService(
        _observerMaker(config, twistd), options["plan"], world, makeCarrier
    )
    return service
