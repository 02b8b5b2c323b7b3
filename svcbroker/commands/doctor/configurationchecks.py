"""
Checks of the configuration, and of the software that it asks for: Python packages, and the program
and the home of a CometBFT engine.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from attrs import frozen
from OpenSSL import SSL

from ...carriers.http.feature import HttpOptions
from ...daemon.config import Config
from ...daemon.metrics import PORT as METRICS
from ...daemon.plan import endpointsOf
from ...interfaces import InvalidDescription
from ...net.addresses import isLoopback
from ...net.descriptions import readDescription
from ...net.findings import Finding, good, problem, warning
from ...version import readVersion
from .endpointchecks import isName

_CONFIGURATION = "configuration"


@frozen(kw_only=True)
class ConfigurationFacts:
    """
    Facts about the configuration.

    @ivar config: the settings that can be used, with defaults for the others.
    @ivar file: the file that they are from; C{None} where they are from the command line alone.
    @ivar mistakes: what is wrong with the others, in a line each.
    @ivar readableSecrets: files of secrets that every user of this machine may read.
    @ivar refusal: why the daemon would not start without accounts; empty where it would.
    @ivar isHttpLocal: whether HTTP is served on loopback only.
    @ivar findings: those of features.
    """

    config: Config
    file: Path | None = None
    mistakes: Sequence[str] = ()
    readableSecrets: Sequence[Path] = ()
    refusal: str = ""
    isHttpLocal: bool = True
    findings: Sequence[Finding] = ()


def checkConfiguration(facts: ConfigurationFacts) -> Iterator[Finding]:
    """Check whether the daemon takes the configuration, and whether it is one for production."""
    found = [*_checkMistakes(facts), *_checkSettings(facts.config), *_checkHosts(facts)]
    found += facts.findings
    if found:
        yield from found
        return
    where = "the command line and defaults" if facts.file is None else str(facts.file)
    yield good(_CONFIGURATION, f"{where}: every setting can be used")


def _checkMistakes(facts: ConfigurationFacts) -> Iterator[Finding]:
    for text in facts.mistakes:
        yield problem(
            _CONFIGURATION,
            text,
            "the daemon does not start",
            "correct it; svcbroker run --check reads it",
        )
    if facts.refusal:
        yield problem(
            _CONFIGURATION,
            facts.refusal.partition(": give accounts")[0],
            "the daemon does not start: every program that reaches the port could do everything",
            "svcbroker admin account add --accounts /etc/svcbroker/accounts.toml NAME --role "
            "everything, "
            "and --accounts with that file (docs/accounts); or listen on loopback only",
        )
    for path in facts.readableSecrets:
        yield problem(
            _CONFIGURATION,
            f"every user of this machine may read {path}, which has secrets",
            "any of them can pretend to be this broker",
            f"chmod go= {path}; if others use this machine, change the secrets, too",
        )


def _checkSettings(config: Config) -> Iterator[Finding]:
    for line in config.outdated:
        yield warning(_CONFIGURATION, line, "it is read and ignored", "remove it")
    if config.faults:
        yield warning(
            _CONFIGURATION,
            "faults is on",
            "operators can stop replicas and cut their network",
            "remove faults, and restart; it is for trying an application",
        )
    if config.logLevel == "debug":
        yield warning(
            _CONFIGURATION,
            "log-level is debug",
            "the log grows by much more than anyone reads, and every event costs more",
            'log-level = "info"; then: svcbroker admin reload DATA-DIR',
        )
    if not any(name != METRICS for name in endpointsOf(config)):
        yield warning(
            _CONFIGURATION, "all ports are off", "no client can reach the broker", "give --http"
        )


def _checkHosts(facts: ConfigurationFacts) -> Iterator[Finding]:
    config = facts.config
    host = config.advertise.rpartition(":")[0]
    isReachedByName = bool(host) and isName(host) and not isLoopback(host)
    if (
        facts.isHttpLocal
        and isReachedByName
        and host.lower() not in config.of(HttpOptions).hostNames
    ):
        yield warning(
            _CONFIGURATION,
            f"advertise is {config.advertise}, HTTP is on loopback, and host-name has no {host}",
            "requests that a proxy passes on with that name are refused (403)",
            f"host-name = ['{host.lower()}']",
        )


_SOFTWARE = "software"

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*>=\s*([0-9.]+)\s*$")
_NUMBERS = re.compile(r"[0-9]+")


@frozen(kw_only=True)
class SoftwareFacts:
    """
    Facts about the software.

    @ivar version: that of svcbroker.
    @ivar python: the version of Python.
    @ivar requirements: what svcbroker requires, such as C{klein>=24.8}; others are ignored.
    @ivar installed: the versions of what is installed, by the names in the requirements; those
        that are absent have none.
    @ivar libraries: the versions of libraries in C, by name, for the reader.
    """

    version: str
    python: str
    requirements: Sequence[str] = ()
    installed: Mapping[str, str | None] = {}
    libraries: Mapping[str, str] = {}


def checkSoftware(facts: SoftwareFacts) -> Iterator[Finding]:
    """Check whether Python packages are as new as they must be."""
    isGood = True
    for requirement in facts.requirements:
        found = _REQUIREMENT.match(requirement)
        if found is None or found[1] not in facts.installed:
            continue
        name, least, version = found[1], found[2], facts.installed[found[1]]
        if version is None or _numbers(version) < _numbers(least):
            isGood = False
            have = "is not installed" if version is None else f"is of version {version}"
            yield problem(
                _SOFTWARE,
                f"{name} {have}, and {least} or later is required",
                "the daemon may fail at any place that needs it",
                f"pip install --upgrade '{name}>={least}', in the environment of svcbroker",
            )
    if isGood:
        libraries = "".join(f", {name} {version}" for name, version in facts.libraries.items())
        yield good(_SOFTWARE, f"svcbroker {facts.version} on Python {facts.python}{libraries}")


def _numbers(version: str) -> list[int]:
    return [int(each) for each in _NUMBERS.findall(version)]


_DISTRIBUTION: Final = "svcbroker"


def readSoftware() -> SoftwareFacts:
    """Read the versions of the software that svcbroker runs on."""
    try:
        requirements = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        requirements = []  # a checkout
    plain = [each for each in requirements if ";" not in each]
    openssl = SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode("ascii", "replace").split()
    return SoftwareFacts(
        version=readVersion().version,
        python=platform.python_version(),
        requirements=plain,
        installed={name: _versionOf(name) for name in map(_nameOf, plain)},
        libraries={"SQLite": sqlite3.sqlite_version, "OpenSSL": openssl[1]},
    )


def kindOf(description: str) -> str:
    """The kind of ledger that a description names; empty where it names none."""
    try:
        return readDescription(description).name
    except InvalidDescription:
        return ""


def _nameOf(requirement: str) -> str:
    return requirement.partition("[")[0].partition(">")[0].strip()


def _versionOf(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
