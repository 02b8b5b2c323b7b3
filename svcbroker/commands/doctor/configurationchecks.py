"""
Checks of the configuration, and of the software that it asks for: Python packages, and the program
and the home of a CometBFT engine.
"""

from __future__ import annotations

import platform
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from attrs import frozen
from OpenSSL import SSL

from ...carriers.http.feature import HttpOptions
from ...daemon.config import Config
from ...daemon.metrics import PORT as METRICS
from ...daemon.plan import endpointsOf
from ...files import readFile
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


@frozen(kw_only=True)
class EngineFacts:
    """
    Facts about a group's CometBFT engine.

    @ivar home: its home directory.
    @ivar error: why the home cannot be used; empty where it can.
    @ivar programError: what is wrong with its program; empty where nothing is, or where the
        broker does not run it.
    @ivar readableKeys: files of its private keys that others than their owner may read.
    @ivar rpc: where its RPC listens, as its configuration has it.
    @ivar application: where it looks for the broker, as its configuration has it.
    @ivar socket: where the broker listens for it.
    """

    group: str
    home: Path
    error: str = ""
    programError: str = ""
    readableKeys: Sequence[Path] = ()
    rpc: str = ""
    application: str = ""
    socket: str = ""


def checkEngine(facts: EngineFacts) -> Iterator[Finding]:
    """Check whether the engine of a group can run, and whether its keys are safe."""
    subject = f"engine of group {facts.group}"
    found = list(_findEngine(facts, subject))
    yield from found or [good(subject, f"its home is {facts.home}")]


def _findEngine(facts: EngineFacts, subject: str) -> Iterator[Finding]:
    if facts.error:
        yield problem(
            subject,
            facts.error,
            "the engine does not start, and the group has no blocks",
            "give its home=; a new one is made by: svcbroker net engine init, or join "
            "(docs/cometbft)",
        )
        return
    if facts.programError:
        yield problem(
            subject,
            facts.programError,
            "the engine does not start, or speaks another protocol than the broker",
            "build it (docs/cometbft), and give engine=",
        )
    for path in facts.readableKeys:
        yield problem(
            subject,
            f"others than its owner may read {path}",
            "with the validator's key one can vote twice in its name",
            f"chmod go= {path}",
        )
    if facts.application != facts.socket:
        yield problem(
            subject,
            f"it looks for the broker at {facts.application}, and the broker listens on "
            f"{facts.socket}",
            "the engine ends again and again, and the group has no blocks",
            f'proxy_app = "{facts.socket}" in {facts.home / "config/config.toml"}, or socket= in '
            "--ledger",
        )
    host = facts.rpc.removeprefix("tcp://").rpartition(":")[0]
    if facts.rpc.startswith("tcp://") and not isLoopback(host.strip("[]")):
        yield warning(
            subject,
            f"its RPC listens on {facts.rpc}",
            "every program that reaches it can submit transactions and slow the engine down",
            f'laddr = "tcp://127.0.0.1:26657" in [rpc] of {facts.home / "config/config.toml"}',
        )


COMETBFT: Final = "cometbft"
"""The kind of the ledger beside an engine."""


SOCKET: Final = "abci.sock"
"""The broker's socket in an engine's home, where the ledger names no other."""


_UNIX: Final = "unix://"


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


def readEngine(group: str, description: str, engineProblem: Callable[[Path], str]) -> EngineFacts:
    """
    Look at the home of a group's engine.

    @param engineProblem: tells what is wrong with an engine's program.
    """
    settings = readDescription(description).settings
    home, program = Path(settings.get("home", "")), settings.get("engine")
    config = home / "config/config.toml"
    try:
        engine = tomllib.loads(readFile(config).decode("utf-8"))
        rpc, application = str(engine["rpc"]["laddr"]), str(engine["proxy_app"])
        if application.startswith(_UNIX):
            application = _socketAt(Path(application.removeprefix(_UNIX)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is no configuration of CometBFT"
        return EngineFacts(group=group, home=home, error=f"{config} cannot be read: {reason}")
    keys = [home / "config" / name for name in ("priv_validator_key.json", "node_key.json")]
    return EngineFacts(
        group=group,
        home=home,
        programError="" if program is None else engineProblem(Path(program)),
        readableKeys=[path for path in keys if path.exists() and path.stat().st_mode & 0o077],
        rpc=rpc,
        application=application,
        socket=_socketAt(Path(settings.get("socket", home / SOCKET))),
    )


def _socketAt(path: Path) -> str:
    """A socket in the engine's notation, the same for each path that leads to it."""
    return f"{_UNIX}{path.resolve()}"


def _nameOf(requirement: str) -> str:
    return requirement.partition("[")[0].partition(">")[0].strip()


def _versionOf(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
