"""
Checks of the configuration, of the software that it asks for (Python packages, and the program and
the home of a CometBFT engine), and of accounts: clients that cannot log in, grants that never
apply, and weak passwords.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from attrs import frozen
from OpenSSL import SSL

from ...access import DEFAULT_COST, Account, AccountTable, Grant, Grants, costOf, grantsOf
from ...access.authenticators.mosquitto import USUAL_ITERATIONS, PasswordHash, readPasswords
from ...carriers.http.feature import HttpOptions
from ...daemon.config import Config
from ...daemon.metrics import PORT as METRICS
from ...daemon.plan import endpointsOf
from ...interfaces import Action, InvalidDescription
from ...model import filterCovers
from ...net.addresses import isLoopback
from ...net.descriptions import absolutePath, readDescription
from ...net.findings import DAY, Finding, date, good, listed, problem, warning
from ...version import readVersion
from .endpointchecks import isName
from .machinechecks import isReadable

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


_ACCOUNTS = "accounts"

_TOKEN_ENDS_SOON = 14 * DAY
"""Seconds before the end of a token at which its client should have a new one."""


@frozen(kw_only=True)
class AccountFacts:
    """
    Facts about the accounts.

    @ivar file: their file.
    @ivar table: what it holds.
    @ivar isReadable: whether every user of this machine may read the file.
    @ivar groups: the groups that are served.
    @ivar takesCertificates: whether some endpoint asks clients for certificates.
    @ivar operatesLocally: whether users of this machine who may read the data directory can
        operate the daemon without an account.
    """

    file: Path
    table: AccountTable
    isReadable: bool = False
    groups: Collection[str]
    takesCertificates: bool = False
    operatesLocally: bool = True


@frozen(kw_only=True)
class PasswordFileFacts:
    """
    Facts about mosquitto's password file.

    @ivar error: why it cannot be used; empty where it can.
    @ivar users: how many it has.
    @ivar cheap: those whose hashes have fewer than L{USUAL_ITERATIONS}.
    @ivar isReadable: whether every user of this machine may read the file.
    """

    file: Path
    error: str = ""
    users: int = 0
    cheap: Collection[str] = ()
    isReadable: bool = False


def checkAccounts(facts: AccountFacts, now: float) -> Iterator[Finding]:
    """Check whether the accounts can be used, and what of them never applies."""
    found = [*_checkFile(facts), *_checkOperator(facts)]
    for account in facts.table.accounts.values():
        found.extend(_checkAccount(facts, account, now))
    if found:
        yield from found
        return
    yield good(_ACCOUNTS, f"{len(facts.table.accounts)} accounts in {facts.file}")


def _checkFile(facts: AccountFacts) -> Iterator[Finding]:
    if not facts.table.accounts:
        yield problem(
            _ACCOUNTS,
            f"{facts.file} has no account",
            "no client can log in",
            f"svcbroker admin account add --accounts {facts.file} NAME --role operator",
        )
    if facts.isReadable:
        yield _readable(facts.file)


def _readable(file: Path) -> Finding:
    return warning(
        _ACCOUNTS,
        f"every user of this machine may read {file}",
        "they can try passwords against the hashes in it",
        f"chmod o= {file}",
    )


def _checkOperator(facts: AccountFacts) -> Iterator[Finding]:
    grants = [account.identity.grants for account in facts.table.accounts.values()]
    groups = [
        group
        for group in facts.groups
        if not any(each.decide(Action.OPERATE, group, "", "").isGranted for each in grants)
    ]
    if facts.table.accounts and groups:
        rest = (
            "only a user of this machine who may read the data directory can"
            if facts.operatesLocally
            else "and HTTP is on no loopback address, so that no command can"
        )
        yield warning(
            _ACCOUNTS,
            f"no account may operate group {listed(groups)}",
            f"no one can reset subscriptions, retry webhooks or erase events by an account: {rest}",
            f"svcbroker admin account add --accounts {facts.file} NAME --role operator",
        )


def _checkAccount(facts: AccountFacts, account: Account, now: float) -> Iterator[Finding]:
    name, file = account.name, facts.file
    if not (account.password or account.tokens or account.certificate):
        yield warning(
            _ACCOUNTS,
            f"{name} has neither a password nor a token nor a certificate",
            "no client can log in as it",
            f"svcbroker admin account passwd --accounts {file} {name}; or: svcbroker admin "
            "account remove "
            f"--accounts {file} {name}",
        )
    if not account.roles:
        yield warning(
            _ACCOUNTS, f"{name} has no role", "it may do nothing", f"give it roles in {file}"
        )
    if account.certificate and not facts.takesCertificates:
        yield warning(
            _ACCOUNTS,
            f"{name} logs in by a certificate, and no endpoint asks clients for one",
            "it cannot log in so",
            'serve an endpoint such as mqtt = "mtls:8883:certs=DIRECTORY:clients=FILE" (docs/tls)',
        )
    for token in account.tokens:
        if token.expiresAt is not None and token.expiresAt - now < _TOKEN_ENDS_SOON:
            ended = token.expiresAt <= now
            yield warning(
                _ACCOUNTS,
                f"the token {token.label} of {name} {'has ended' if ended else 'ends'} on "
                f"{date(token.expiresAt)}",
                "a client that uses it is refused" + ("" if ended else " from then on"),
                f"svcbroker admin account token --accounts {file} {name}, give it to the client; "
                "then: "
                f"svcbroker admin account remove --accounts {file} {name} --token {token.label}",
            )
    if account.password and _work(costOf(account.password)) < _work(DEFAULT_COST):
        yield warning(
            _ACCOUNTS,
            f"the password of {name} is hashed at the cost of {costOf(account.password)}",
            f"it is cheaper to guess than at the usual {DEFAULT_COST}, and each refused log-in "
            "verifies a hash of every cost in the file",
            f"svcbroker admin account passwd --accounts {file} {name}",
        )
    if isinstance(account.identity.grants, Grants):
        yield from _checkGrants(facts, name, account.identity.grants.grants)


def _work(cost: str) -> int:
    values = dict(each.split("=") for each in cost.split(","))
    return int(values["m"]) * int(values["t"])


def _checkGrants(facts: AccountFacts, name: str, grants: Collection[Grant]) -> Iterator[Finding]:
    denied = [grant for grant in grants if grant.isDenied]
    for grant in grants:
        if grant.group != "*" and grant.group not in facts.groups:
            yield warning(
                _ACCOUNTS,
                f"{name}: {grant.line!r} is about group {grant.group}, which is not served",
                "the line never applies",
                f"correct the group in {facts.file} (served: {listed(sorted(facts.groups))})",
            )
        for other in () if grant.isDenied else denied:
            if _isCovered(grant, other):
                yield warning(
                    _ACCOUNTS,
                    f"{name}: {grant.line!r} is denied again by {other.line!r}",
                    "a line that denies wins: the grant never applies",
                    f"remove one of the two in {facts.file}; svcbroker admin account may says "
                    "what wins",
                )


def _isCovered(grant: Grant, denied: Grant) -> bool:
    return (
        denied.actions >= grant.actions
        and denied.group in ("*", grant.group)
        and filterCovers(denied.pattern, grant.pattern)
    )


def checkPasswordFile(facts: PasswordFileFacts) -> Iterator[Finding]:
    """Check that mosquitto's password file can be used and its passwords are hard to guess."""
    if facts.error:
        yield problem(
            _ACCOUNTS,
            facts.error,
            "the daemon does not start with it",
            "correct the line, or --auth",
        )
        return
    found = []
    if facts.isReadable:
        found.append(_readable(facts.file))
    if facts.cheap:
        found.append(
            warning(
                _ACCOUNTS,
                f"{facts.file} has hashes of fewer than {USUAL_ITERATIONS:,} iterations: of "
                f"{listed(sorted(facts.cheap))}",
                "they are cheap to guess; mosquitto_passwd makes no others",
                "give these users accounts: svcbroker admin account add --accounts FILE NAME",
            )
        )
    yield from found or [good(_ACCOUNTS, f"{facts.users} users in {facts.file}")]


def checkAnonymous(lines: Iterable[str], groups: Iterable[str]) -> Iterator[Finding]:
    """Check whether clients without credentials may do what only operators should."""
    grants = grantsOf(lines)
    isOperator = any(
        grants.decide(action, group, "", "").isGranted
        for action in (Action.OPERATE, Action.ADMIN)
        for group in groups
    )
    if isOperator:
        yield problem(
            _ACCOUNTS,
            "clients without credentials may operate the broker (--anonymous)",
            "every program that reaches a port can reset subscriptions and erase events",
            "svcbroker admin account add --accounts FILE NAME --role operator, and take the "
            "grant away "
            "from --anonymous",
        )


_MOSQUITTO: Final = "mosquitto"


def readPasswordFile(text: str) -> PasswordFileFacts | None:
    """
    Read the facts about mosquitto's password file.

    @param text: the description of an authenticator.
    @return: C{None} where it is of another kind.
    """
    try:
        description = readDescription(text)
        path = absolutePath(description.settings.get("passwords", ""))
    except (InvalidDescription, ValueError):
        return None  # a mistake of the configuration
    if description.name != _MOSQUITTO:
        return None
    hashes: Mapping[str, PasswordHash] = {}
    error = ""
    try:
        hashes = readPasswords(path)
    except InvalidDescription as invalid:
        error = str(invalid)
    cheap = [name for name, each in hashes.items() if each.iterations < USUAL_ITERATIONS]
    return PasswordFileFacts(
        file=path, error=error, users=len(hashes), cheap=cheap, isReadable=isReadable(path)
    )
