"""
HTTP as a feature of the daemon: the site on its port, settings and metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from prometheus_client.core import Metric
from twisted.internet.defer import Deferred, succeed

from ...broker import Answers, Calls, ClientConnection
from ...broker.features import (
    Feature,
    RunningFeature,
    Services,
    carrierMetrics,
    sessionMetrics,
)
from ...net.bounds import (
    CHECKED,
    CONNECTIONS,
    INPUT,
    LOGINS,
    NAMES,
    Bound,
    Sizing,
    within,
)
from ...net.budgets import ENTRY_BYTES
from ...net.findings import Finding, warning
from ...net.settings import Endpoint, Flag, List, Text, declareSetting
from ...operations import WEEVENT, WEEVENT_INTERFACE
from .connection import BrokerSite
from .logins import MAX_LOGGED, MAX_SESSIONS, LogIns
from .plain import MAX_REMEMBERED
from .settings import HttpSettings
from .site import makeSite

PORT: Final = "http"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.http"

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")


def hostName(text: str) -> str:
    """A host name or an address, without a port, in lower case."""
    if _HOST_NAME.fullmatch(text) is None:
        raise ValueError(f"is not a host name such as broker.example: {text!r}")
    return text.lower()


def origin(text: str) -> str:
    """An origin that browsers may call from, or C{*}."""
    if text == "*":
        return text
    parts = urlsplit(text)
    if (
        len(text) > 512
        or parts.scheme not in {"http", "https"}
        or not parts.netloc
        or text != f"{parts.scheme}://{parts.netloc}"
    ):
        raise ValueError(f"is neither * nor an origin such as https://example.com: {text!r}")
    return text


@frozen(kw_only=True)
class HttpOptions:
    """The settings of HTTP."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:8080:interface=127.0.0.1",
        "where HTTP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches HTTP off",
    )
    accessLog: bool = declareSetting(
        "access-log",
        Flag(),
        False,
        "log each HTTP request: method, path, status, size; never its query or body",
        shown="off",
    )
    corsOrigins: tuple[str, ...] = declareSetting(
        "cors-origin",
        List(of=Text(metavar="ORIGIN", normalise=origin)),
        (),
        "an origin whose pages may call the interface, or *; may be given more than once",
        shown="none",
    )
    hostNames: tuple[str, ...] = declareSetting(
        "host-name",
        List(of=Text(metavar="NAME", normalise=hostName)),
        (),
        "a name, beside localhost, by which clients reach HTTP on a loopback address, for example "
        "through a proxy; may be given more than once",
        shown="none",
    )


def settingsOf(options: HttpOptions, basePath: str) -> HttpSettings:
    """The settings of a site."""
    # A converter that is a generic class hides from mypy what it takes.
    corsOrigins: Any = options.corsOrigins
    hostNames: Any = options.hostNames
    return HttpSettings(
        basePath=basePath,
        accessLog=options.accessLog,
        corsOrigins=corsOrigins,
        hostNames=hostNames,
    )


def checkHttp(options: HttpOptions) -> Iterator[Finding]:
    """Whether pages of others can use the broker."""
    if "*" in options.corsOrigins:
        yield warning(
            "configuration",
            "cors-origin is *",
            "a page of any site can use the broker from the browser of a user who can reach it",
            "name the origins of your own pages: cors-origin = ['https://app.example.com']",
        )


class HttpFeature(RunningFeature):
    """The site with the interface, and with what other features serve there."""

    def __init__(self, options: HttpOptions, services: Services) -> None:
        self._settings = settingsOf(options, services.basePath)
        self._services = services
        self._sessions = LogIns(services.reactor, services.entropy, services.basePath)
        self._site: BrokerSite | None = None
        self.answers: Answers = {LogIns: self._sessions}

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        services, dialects = self._services, {}
        if services.dialect == WEEVENT.name:
            dialects[WEEVENT.basePath] = WEEVENT_INTERFACE
        self._site = makeSite(
            calls,
            self._settings,
            services.access,
            routes,
            operatorToken=services.operatorToken,
            dialects=dialects,
            sessions=self._sessions,
        )
        return {PORT: self._site}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        return () if self._site is None else (each.client() for each in self._site.channels)

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return 0 if self._site is None else len(self._site.channels)

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from carrierMetrics("http", self._services, self.connected())
        yield sessionMetrics("console", len(self._sessions))

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return succeed(None) if self._site is None else self._site.drain()


def httpBounds(options: HttpOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of HTTP's connections and log-ins."""
    yield Bound(name=INPUT, holders=[f"{_ROOM}.connection.IncompleteBody.content"])
    yield Bound(name=NAMES, holders=[f"{_ROOM}.fastpath.FastChannel._blocks"])
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.connection.BrokerSite.channels"])
    yield Bound(
        name=LOGINS,
        bytes=MAX_SESSIONS * ENTRY_BYTES,
        how=f"{MAX_SESSIONS:,} of the console",
        holders=within(f"{_ROOM}.logins.LogIns", "_sessions", "_counts"),
    )
    yield Bound(
        name=CHECKED,
        bytes=MAX_LOGGED * ENTRY_BYTES + MAX_REMEMBERED**2,
        how=f"{MAX_LOGGED:,} origins, and {MAX_REMEMBERED:,} heads of requests",
        holders=[f"{_ROOM}.plain._common", f"{_ROOM}.logins.OriginPolicy._logged"],
    )


FEATURE: Final = Feature(
    name="http",
    settings=HttpOptions,
    make=HttpFeature,
    checks=checkHttp,
    bounds=httpBounds,
)
