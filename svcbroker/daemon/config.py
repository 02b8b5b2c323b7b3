"""
The configuration: every setting once, with its type, its default and its help.

The command line's options, what a TOML file may hold and the table in the documentation are
all made from the fields of L{Config}.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from ..broker import RetentionRule
from ..operations import WEEVENT
from .declaring import ConfigError as ConfigError
from .declaring import Setting as Setting
from .declaring import declaredSettings
from .declaring import declareSetting as _setting
from .periods import Period, period
from .settings import (
    ON_HTTP,
    Choice,
    Endpoint,
    Flag,
    GroupSetting,
    List,
    Seconds,
    Table,
    Text,
    WholeNumber,
    advertised,
    allowedTarget,
    anyText,
    basePath,
    dialect,
    distinctGroups,
    distinctRules,
    filePath,
    grantLines,
    groupSetting,
    hostName,
    logOrigin,
    origin,
    retentionRule,
    someText,
    topicName,
)
from .traces import receiverUrl


@frozen(kw_only=True)
class Config:
    """
    Everything that an operator can choose. A bad value raises L{ConfigError}.

    What needs more than the value itself to be judged (whether an endpoint can be listened on,
    whether a ledger exists) is judged by C{tap.py}.
    """

    http: str = _setting(
        "http",
        Endpoint(),
        "tcp:8080:interface=127.0.0.1",
        "where HTTP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches HTTP off",
    )
    stomp: str = _setting(
        "stomp",
        Endpoint(),
        "tcp:61613:interface=127.0.0.1",
        "where STOMP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )
    mqtt: str = _setting(
        "mqtt",
        Endpoint(),
        "tcp:1883:interface=127.0.0.1",
        "where MQTT is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )
    metrics: str = _setting(
        "metrics",
        Endpoint(metavar="http|PORT|ENDPOINT"),
        ON_HTTP,
        "where /metrics is served for Prometheus: http, on the port of HTTP, to accounts with the "
        "grant metrics for all groups; an endpoint of its own, on loopback without a log-in; empty "
        "for nowhere",
    )
    accounts: str = _setting(
        "accounts",
        Text(metavar="FILE", normalise=anyText),
        "",
        "the file of the accounts; svcbroker account add makes it",
        shown="none",
    )
    auth: tuple[str, ...] = _setting(
        "auth",
        List(of=Text(metavar="DESCRIPTION", normalise=someText)),
        (),
        "a further authenticator of clients; see --help-auth; may be given more than once",
        shown="none",
    )
    anonymous: tuple[str, ...] = _setting(
        "anonymous",
        List(of=Text(metavar="GRANTS", normalise=someText), finish=grantLines),
        (),
        "what clients without credentials may do: grants such as 'subscribe 1 news/#', or "
        "built-in roles, with commas between them; may be given more than once",
        shown="none",
    )
    auditTopic: str = _setting(
        "audit-topic",
        Text(metavar="TOPIC", normalise=topicName),
        "$svc/audit",
        "the topic in which log-ins, refusals, operator calls and reloads are recorded where there "
        "are accounts; empty switches that off",
    )
    auditEvery: Period = _setting(
        "audit-every",
        Text(metavar="TIME", normalise=period, type=Period),
        Period(0),
        "how often all chains are audited beside their work, such as 24h; see svcbroker audit",
        shown="never",
    )
    logOrigin: str = _setting(
        "log-origin",
        Text(metavar="NAME", normalise=logOrigin),
        "",
        "broker.example/svcbroker names the transparency logs broker.example/svcbroker/log/GROUP",
        shown="svcbroker/ and the chain's id",
    )
    witnessPolicy: str = _setting(
        "witness-policy",
        Text(metavar="FILE", normalise=anyText),
        "",
        "the tlog-policy with the witnesses of the transparency logs, their URLs, and the quorum",
        shown="none",
    )
    witnessInterval: float = _setting(
        "witness-interval",
        Seconds(maximum=86400),
        60.0,
        "after how many seconds witnesses are asked again to cosign a log that has grown",
        shown="60",
    )
    mqttOpenTopics: bool = _setting(
        "mqtt-open-topics",
        Flag(),
        True,
        "open a topic with the first MQTT publish to it",
        shown="on",
    )
    basePath: str = _setting(
        "base-path",
        Text(metavar="PATH", normalise=basePath),
        "/svcbroker",
        "the context path in front of /rest, /admin, /jsonrpc, /stomp and /mqtt",
    )
    dialect: str = _setting(
        "dialect",
        Text(metavar="NAME", normalise=dialect),
        "",
        f"{WEEVENT.name}: serve clients of WeEvent 1.1, unchanged, at {WEEVENT.basePath}",
        shown="none",
    )
    dataDir: Path = _setting(
        "data-dir",
        Text(metavar="PATH", normalise=filePath, type=Path),
        Path("svcbroker-data"),
        "the directory of all that is kept; made when it is missing",
        shown="./svcbroker-data",
    )
    ledger: str = _setting(
        "ledger",
        Text(metavar="DESCRIPTION", normalise=someText),
        "pbft:nodes=4",
        "the ledger of groups that name none; see --help-ledger",
    )
    groups: tuple[GroupSetting, ...] = _setting(
        "group",
        List(
            of=Text(metavar="ID[=DESCRIPTION]", normalise=groupSetting, type=GroupSetting),
            finish=distinctGroups,
        ),
        (GroupSetting(id="1"),),
        "a group to serve, and its ledger; may be given more than once",
        shown="1",
    )
    maxContent: int = _setting(
        "max-content",
        WholeNumber(metavar="BYTES", minimum=1, maximum=64 * 1024 * 1024),
        1024 * 1024,
        "the largest content of an event",
    )
    maxUnsent: int = _setting(
        "max-unsent",
        WholeNumber(metavar="BYTES", minimum=0, maximum=1 << 40),
        0,
        "the most bytes of answers and deliveries that wait until clients read them, over all "
        "connections; one account, or one address of clients without one, may have a quarter",
        shown="256 MiB, or an eighth of the memory that the process may use where that is less",
    )
    maxPositions: int = _setting(
        "max-positions",
        WholeNumber(metavar="NUMBER", minimum=1, maximum=100_000),
        10_000,
        "the most durable subscriptions, and the most MQTT sessions, that one account, or without "
        "accounts the clients of one address, may have made",
    )
    positionExpiry: int = _setting(
        "position-expiry",
        WholeNumber(metavar="DAYS", minimum=0, maximum=3650),
        30,
        "how long the position of a durable subscription, or an MQTT session, is kept that no "
        "client uses; 0 for ever",
    )
    retain: tuple[RetentionRule, ...] = _setting(
        "retain",
        Table(
            of=Text(metavar="PATTERN=AGE", normalise=retentionRule, type=RetentionRule),
            finish=distinctRules,
        ),
        (),
        "how long the contents of events are kept, by the pattern of their topics, such as "
        "telemetry/#=90d; older ones are erased; may be given more than once",
        shown="for ever",
    )
    chainTimeout: float = _setting(
        "chain-timeout",
        Seconds(maximum=3600),
        10.0,
        "how long a call waits for the chain before it answers TIMEOUT",
        shown="10",
    )
    logFormat: str = _setting(
        "log-format",
        Choice(words=("auto", "text", "json", "journal")),
        "auto",
        "how the log is written: lines for people, JSON lines, or entries of systemd's journal; "
        "auto is journal where standard output goes to the journal, and text elsewhere",
    )
    logLevel: str = _setting(
        "log-level",
        Choice(words=("debug", "info", "warn", "error")),
        "info",
        "the least level that is logged; read again from the file of --config on SIGHUP",
    )
    traces: str = _setting(
        "traces",
        Text(metavar="URL", normalise=receiverUrl),
        "",
        "where spans of publishes and webhooks are sent: the URL of an OTLP/HTTP receiver, such as "
        "http://127.0.0.1:4318/v1/traces; needs svcbroker[tracing]",
        shown="none",
    )
    accessLog: bool = _setting(
        "access-log",
        Flag(),
        False,
        "log each HTTP request: method, path, status, size; never its query or body",
        shown="off",
    )
    corsOrigins: tuple[str, ...] = _setting(
        "cors-origin",
        List(of=Text(metavar="ORIGIN", normalise=origin)),
        (),
        "an origin whose pages may call the interface, or *; may be given more than once",
        shown="none",
    )
    hostNames: tuple[str, ...] = _setting(
        "host-name",
        List(of=Text(metavar="NAME", normalise=hostName)),
        (),
        "a name, beside localhost, by which clients reach HTTP on a loopback address, for example "
        "through a proxy; may be given more than once",
        shown="none",
    )
    webhookAllow: tuple[str, ...] = _setting(
        "webhook-allow",
        List(of=Text(metavar="NETWORK|HOST", normalise=allowedTarget)),
        (),
        "a network, address or host name that events may be sent to although it is not public; "
        "may be given more than once",
        shown="none",
    )
    webhookSecretFile: str = _setting(
        "webhook-secret-file",
        Text(metavar="PATH", normalise=anyText),
        "",
        "a file with the secrets that sign what is sent to webhooks, one a line; before it may "
        "stand a name and =, for webhooks that name it; NAME = certificate:PATH is a client "
        "certificate for webhooks",
        shown="none",
    )
    webhookTimeout: float = _setting(
        "webhook-timeout",
        Seconds(maximum=300),
        10.0,
        "how long the receiver of a webhook may take to acknowledge an event",
        shown="10",
    )
    webhookMaxDelay: float = _setting(
        "webhook-max-delay",
        Seconds(maximum=86400),
        300.0,
        "the longest time after which an event that was not acknowledged is sent again",
        shown="300",
    )
    faults: bool = _setting(
        "faults",
        Flag(),
        False,
        "let operators stop nodes and break the network between them, to try an application",
        shown="off",
    )
    advertise: str = _setting(
        "advertise",
        Text(metavar="HOST:PORT", normalise=advertised),
        "",
        "what this broker is called in listNodes",
        shown="where HTTP listens",
    )
    shutdownTimeout: float = _setting(
        "shutdown-timeout",
        Seconds(maximum=3600),
        30.0,
        "how long a stop may take before unfinished work is given up",
        shown="30",
    )
    outdated: tuple[str, ...] = field(default=(), eq=False)
    """Settings of earlier releases that were given and have no effect, a line each."""


SETTINGS: tuple[Setting, ...] = declaredSettings(Config)
"""Every setting, in the order in which help texts show them."""

_ASK_EACH: Final = "each broker answers for itself: ask the others at their own URLs"

OUTDATED: Final[Mapping[str, str]] = {
    "follow-timeout": "a client of follow may read nothing for 60 seconds",
    "max-levels": "a pattern has at most 128 levels",
    "peer": _ASK_EACH,
    "peer-credentials": _ASK_EACH,
    "peer-timeout": _ASK_EACH,
    "webhook-connections": "at most 64 events are under way to webhooks",
    "witness-blocks": "witnesses are asked after 1000 blocks",
}
"""Settings of earlier releases: they may still be given, and have no effect."""


def makeConfig(*sources: Mapping[str, Any]) -> Config:
    """
    A configuration from settings by name. Those that are L{OUTDATED} are told of in
    C{Config.outdated}.

    @param sources: settings by their names; a later source wins.
    @raise ConfigError: a name is unknown, or a value cannot be used.
    """
    attributes = {setting.name: setting.attribute for setting in SETTINGS}
    chosen: dict[str, Any] = {}
    outdated: dict[str, str] = {}
    for source in sources:
        for name, value in source.items():
            if name in OUTDATED:
                told = f"is no setting any more, and has no effect: {OUTDATED[name]}"
                outdated[name] = f"{name} {told}"
                continue
            if name not in attributes:
                nearest = get_close_matches(name, attributes, 1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise ConfigError(f"{name}: there is no such setting{hint}")
            chosen[attributes[name]] = value
    return Config(**chosen, outdated=tuple(outdated.values()))
