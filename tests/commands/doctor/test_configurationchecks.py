"""
Tests for L{svcbroker.commands.doctor.configurationchecks}.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from svcbroker.broker.transparency.feature import TransparencySettings, checkTransparency
from svcbroker.commands.doctor.configurationchecks import (
    ConfigurationFacts,
    SoftwareFacts,
    checkConfiguration,
    checkSoftware,
)
from svcbroker.daemon.config import makeConfig
from svcbroker.daemon.features import FEATURES
from svcbroker.ledgers.cometbft._engine import EngineFacts, checkEngine
from svcbroker.net.findings import Finding
from svcbroker.proofs.tlog import Policy, WitnessKey

from .support import CheckTestCase


class SoftwareTests(CheckTestCase):
    """
    Python packages and engines.
    """

    def software(self, installed: str | None) -> Iterable[Finding]:
        """The findings where klein 24.8 is required."""
        return checkSoftware(
            SoftwareFacts(
                version="1.0",
                python="3.12.1",
                requirements=["klein>=24.8", "httpx[http2]>=0.27", "furo"],
                installed={"klein": installed},
                libraries={"SQLite": "3.40.1"},
            )
        )

    def test_newPackagesAreGood(self) -> None:
        self.good(self.software("24.10.0"), "svcbroker 1.0 on Python 3.12.1, SQLite 3.40.1")

    def test_oldPackageIsAProblem(self) -> None:
        self.fails(self.software("24.7"), "klein is of version 24.7", "pip install --upgrade")

    def test_absentPackageIsAProblem(self) -> None:
        self.fails(self.software(None), "klein is not installed")

    def engine(self, **facts: object) -> Iterable[Finding]:
        """The findings of an engine."""
        return checkEngine(EngineFacts(group="1", home=Path("/srv/e"), **facts))  # type: ignore[arg-type]

    def test_privateEngineIsGood(self) -> None:
        self.good(self.engine(rpc="tcp://127.0.0.1:26657"), "/srv/e")
        self.good(self.engine(rpc="unix:///srv/e/rpc.sock"))

    def test_homeWithoutConfigurationIsAProblem(self) -> None:
        self.fails(self.engine(error="/srv/e: no such file"), "svcbroker net engine init")

    def test_unknownEngineIsAProblem(self) -> None:
        self.fails(self.engine(programError="it is of version 0.37"), "engine=")

    def test_readableValidatorKeyIsAProblem(self) -> None:
        self.fails(self.engine(readableKeys=[Path("/srv/e/k")]), "chmod go= /srv/e/k")

    def test_engineThatLooksElsewhereIsAProblem(self) -> None:
        found = self.engine(application="kvstore", socket="unix:///srv/e/abci.sock")
        self.fails(found, 'proxy_app = "unix:///srv/e/abci.sock"')

    def test_openRpcIsWarnedOf(self) -> None:
        self.warns(self.engine(rpc="tcp://0.0.0.0:26657"), "127.0.0.1:26657")


class ConfigurationTests(CheckTestCase):
    """
    The configuration.
    """

    def check(self, **settings: object) -> Iterable[Finding]:
        """The findings of settings by name, with underscores for hyphens."""
        config = makeConfig({name.replace("_", "-"): each for name, each in settings.items()})
        findings = [
            finding
            for feature in FEATURES
            for finding in feature.checks(feature.read(config.of(feature.settings)))
        ]
        return checkConfiguration(ConfigurationFacts(config=config, findings=findings))

    def test_defaultsAreGood(self) -> None:
        self.good(self.check(), "every setting can be used")

    def test_outdatedSettingsAreWarnedOf(self) -> None:
        self.warns(self.check(peer=["b"]), "peer is no setting any more", "remove it")

    def test_mistakesAreProblems(self) -> None:
        facts = ConfigurationFacts(config=makeConfig(), mistakes=["c.toml, line 3: htpp: no such"])
        self.fails(checkConfiguration(facts), "c.toml, line 3", "svcbroker run --check")

    def test_openPortWithoutAccountsIsAProblem(self) -> None:
        facts = ConfigurationFacts(
            config=makeConfig(), refusal="http: not on loopback: give accounts"
        )
        self.fails(checkConfiguration(facts), "svcbroker admin account add")

    def test_readableSecretsAreAProblem(self) -> None:
        facts = ConfigurationFacts(config=makeConfig(), readableSecrets=[Path("/etc/secrets")])
        self.fails(checkConfiguration(facts), "chmod go= /etc/secrets")

    def test_settingsForTryingAreWarnedOf(self) -> None:
        self.warns(self.check(faults=True), "faults is on")
        self.warns(self.check(log_level="debug"), "svcbroker admin reload")
        self.warns(self.check(cors_origin=["*"]), "a page of any site")
        self.warns(self.check(webhook_allow=["0.0.0.0/0"]), "inside your network")
        self.warns(self.check(http="", stomp="", mqtt=""), "all ports are off")

    def test_quorumsWithoutCommonWitnessAreWarnedOf(self) -> None:
        keys = [WitnessKey(f"{name}.example", name.encode() * 32).verifier.text for name in "abcd"]
        lines = [f"witness {name} {key}" for name, key in zip("abcd", keys, strict=True)]
        for count, isWarned in ((2, True), (3, False)):
            text = "\n".join([*lines, f"group g {count} a b c d", "quorum g"])
            policy = Policy.parse(text.encode())
            findings = [*checkTransparency(TransparencySettings(policy=policy))]
            facts = ConfigurationFacts(config=makeConfig(), findings=findings)
            if isWarned:
                said = "the quorum g is reached by a and b, and by c and d"
                self.warns(checkConfiguration(facts), said)
            else:
                self.good(checkConfiguration(facts))

    def test_nameOfAProxyMustBeKnown(self) -> None:
        self.warns(self.check(advertise="b.example:443"), "host-name = ['b.example']")
        self.good(self.check(advertise="b.example:443", host_name=["b.example"]))
        self.good(self.check(advertise="10.0.0.1:443"))
