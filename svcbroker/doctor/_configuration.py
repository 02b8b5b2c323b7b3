"""
The configuration: mistakes in it, and settings that should not be left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ..daemon.config import Config
from ..net.addresses import isLoopback
from ..tlog import Policy
from ._certificates import isName
from ._findings import Finding, good, problem, warning

_CONFIGURATION = "configuration"


@frozen(kw_only=True)
class ConfigurationFacts:
    """
    What is known of the configuration.

    @ivar config: the settings that can be used, with defaults for the others.
    @ivar file: the file that they are from; C{None} where they are from the command line alone.
    @ivar mistakes: what is wrong with the others, in a line each.
    @ivar readableSecrets: files of secrets that every user of this machine may read.
    @ivar refusal: why the daemon would not start without accounts; empty where it would.
    @ivar isHttpLocal: whether HTTP is served on loopback only.
    @ivar witnessPolicy: the policy of the witnesses; C{None} where there is none.
    """

    config: Config
    file: Path | None = None
    mistakes: Sequence[str] = ()
    readableSecrets: Sequence[Path] = ()
    refusal: str = ""
    isHttpLocal: bool = True
    witnessPolicy: Policy | None = None


def checkConfiguration(facts: ConfigurationFacts) -> Iterator[Finding]:
    """Whether the daemon takes the configuration, and whether it is one for production."""
    found = [*_checkMistakes(facts), *_checkSettings(facts.config), *_checkHosts(facts)]
    found += _checkWitnesses(facts)
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
            "svcbroker account add --accounts /etc/svcbroker/accounts.toml NAME --role everything, "
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
            'log-level = "info"; then: svcbroker reload DATA-DIR',
        )
    if "*" in config.corsOrigins:
        yield warning(
            _CONFIGURATION,
            "cors-origin is *",
            "a page of any site can use the broker from the browser of a user who can reach it",
            "name the origins of your own pages: cors-origin = ['https://app.example.com']",
        )
    for text in config.webhookAllow:
        if text in ("0.0.0.0/0", "::/0"):
            yield warning(
                _CONFIGURATION,
                f"webhook-allow is {text}",
                "a client that may subscribe can have the broker send requests to any service "
                "inside your network",
                "name the networks or hosts of your receivers only",
            )
    if not (config.http or config.stomp or config.mqtt):
        yield warning(
            _CONFIGURATION, "all ports are off", "no client can reach the broker", "give --http"
        )


def _checkHosts(facts: ConfigurationFacts) -> Iterator[Finding]:
    config = facts.config
    host = config.advertise.rpartition(":")[0]
    isReachedByName = bool(host) and isName(host) and not isLoopback(host)
    if facts.isHttpLocal and isReachedByName and host.lower() not in config.hostNames:
        yield warning(
            _CONFIGURATION,
            f"advertise is {config.advertise}, HTTP is on loopback, and host-name has no {host}",
            "requests that a proxy passes on with that name are refused (403)",
            f"host-name = ['{host.lower()}']",
        )


def _checkWitnesses(facts: ConfigurationFacts) -> Iterator[Finding]:
    policy = facts.witnessPolicy
    if policy is not None and policy.warning:
        yield warning(
            _CONFIGURATION,
            f"witness-policy: {policy.warning}",
            "honest witnesses can cosign two histories of the log, each with a quorum",
            f"a larger number in the line of the group {policy.quorum}",
        )
