"""
Tests for the checks of configuration and data: from facts to findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from svcbroker.access import parseAccounts
from svcbroker.daemon.config import makeConfig
from svcbroker.doctor import Finding
from svcbroker.doctor._accounts import (
    AccountFacts,
    PasswordFileFacts,
    checkAccounts,
    checkAnonymous,
    checkPasswordFile,
)
from svcbroker.doctor._chains import ChainFacts, checkChain
from svcbroker.doctor._configuration import ConfigurationFacts, checkConfiguration
from svcbroker.doctor._directory import DirectoryFacts, FileFacts, checkDirectory
from svcbroker.doctor._metadata import (
    MetadataFacts,
    SubscriptionFacts,
    WebhookFacts,
    checkMetadata,
)
from svcbroker.metrics import LastAudit
from svcbroker.tlog import Policy, WitnessKey

from .support import DATA, DAY, GIB, NOW, CheckTestCase

ACCOUNTS = """
[accounts.ann]
password = "$argon2id$v=19$m=65536,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g"
roles = ["operator", "publisher"]
"""


class AccountTests(CheckTestCase):
    """
    The accounts and their grants.
    """

    def check(self, text: str, **facts: object) -> list[Finding]:
        """The findings of a file of accounts."""
        path = Path("/etc/accounts.toml")
        table = parseAccounts(text.encode(), path)
        made = AccountFacts(file=path, table=table, **{"groups": ["1"], **facts})  # type: ignore[arg-type]
        return list(checkAccounts(made, NOW))

    def also(self, text: str, **facts: object) -> list[Finding]:
        """The findings of an account beside one that is good."""
        return self.check(ACCOUNTS + text, **facts)

    def test_accountWithPasswordIsGood(self) -> None:
        self.good(self.check(ACCOUNTS), "1 accounts in /etc/accounts.toml")

    def test_fileWithoutAccountsIsAProblem(self) -> None:
        self.fails(self.check("[roles.r]\ngrants = []"), "account add --accounts")

    def test_readableFileIsWarnedOf(self) -> None:
        self.warns(self.check(ACCOUNTS, isReadable=True), "chmod o= /etc/accounts.toml")

    def test_missingOperatorIsWarnedOf(self) -> None:
        text = ACCOUNTS.replace('"operator", ', "")
        self.warns(self.check(text), "no account may operate group 1", "--role operator")

    def test_accountWithoutCredentialsIsWarnedOf(self) -> None:
        self.warns(self.also('[accounts.bob]\nroles = ["publisher"]'), "bob has neither")

    def test_accountWithoutRolesIsWarnedOf(self) -> None:
        self.warns(self.also(ACCOUNTS.splitlines()[2].join(["[accounts.bob]\n", ""])), "no role")

    def test_certificateWithoutEndpointIsWarnedOf(self) -> None:
        text = '[accounts.bob]\nroles = ["publisher"]\ncertificate = "bob"'
        self.warns(self.also(text), "mtls:")
        self.good(self.also(text, takesCertificates=True))

    def test_tokenThatEndsIsWarnedOf(self) -> None:
        token = f'tokens = [{{label = "t", sha256 = "{"1" * 64}", expires = %s}}]'
        text = f'[accounts.bob]\nroles = ["publisher"]\n{token}'
        self.warns(self.also(text % "2026-11-25"), "the token t of bob ends on 2026-11-25")
        self.warns(self.also(text % "2026-11-01"), "has ended on 2026-11-01")
        self.good(self.also(text % "2027-11-01"))

    def test_cheapPasswordIsWarnedOf(self) -> None:
        found = self.check(ACCOUNTS.replace("m=65536", "m=4096"))
        self.warns(found, "cheaper to guess", "a hash of every cost")

    def test_cheapPasswordsOfMosquittoAreWarnedOf(self) -> None:
        file = Path("/etc/mosquitto/passwords")
        self.good(checkPasswordFile(PasswordFileFacts(file=file, users=3)), "3 users in /etc/")
        facts = PasswordFileFacts(file=file, users=3, cheap=["bob", "ann"])
        self.warns(
            checkPasswordFile(facts),
            "has hashes of fewer",
            "iterations: of ann, bob",
            "account add",
        )
        facts = PasswordFileFacts(file=file, users=3, isReadable=True)
        self.warns(checkPasswordFile(facts), "chmod o= /etc/mosquitto/passwords")
        facts = PasswordFileFacts(file=file, error=f"{file}, line 3: is not UTF-8")
        self.fails(checkPasswordFile(facts), "line 3", "does not start")

    def test_grantOfUnknownGroupIsWarnedOf(self) -> None:
        text = '[roles.r]\ngrants = ["publish 7 a", "publish 1 a"]'
        found = self.check(ACCOUNTS.replace("publisher", "r") + text)
        self.warns(found, "'publish 7 a' is about group 7")

    def test_deniedGrantIsWarnedOf(self) -> None:
        text = '[roles.r]\ngrants = ["subscribe 1 a/b", "deny subscribe * a/#", "publish 1 a/b"]'
        found = self.check(ACCOUNTS.replace("publisher", "r") + text)
        self.warns(found, "'subscribe 1 a/b' is denied again by 'deny subscribe * a/#'")

    def test_anonymousOperatorsAreAProblem(self) -> None:
        self.fails(checkAnonymous(["operate *"], ["1"]), "--anonymous")
        self.assertEqual(list(checkAnonymous(["subscribe * #"], ["1"])), [])


class ConfigurationTests(CheckTestCase):
    """
    The configuration.
    """

    def check(self, **settings: object) -> Iterable[Finding]:
        """The findings of settings by name, with underscores for hyphens."""
        config = makeConfig({name.replace("_", "-"): each for name, each in settings.items()})
        return checkConfiguration(ConfigurationFacts(config=config))

    def test_defaultsAreGood(self) -> None:
        self.good(self.check(), "every setting can be used")

    def test_mistakesAreProblems(self) -> None:
        facts = ConfigurationFacts(config=makeConfig(), mistakes=["c.toml, line 3: htpp: no such"])
        self.fails(checkConfiguration(facts), "c.toml, line 3", "svcbroker run --check")

    def test_openPortWithoutAccountsIsAProblem(self) -> None:
        facts = ConfigurationFacts(
            config=makeConfig(), refusal="http: not on loopback: give accounts"
        )
        self.fails(checkConfiguration(facts), "svcbroker account add")

    def test_readableSecretsAreAProblem(self) -> None:
        facts = ConfigurationFacts(config=makeConfig(), readableSecrets=[Path("/etc/secrets")])
        self.fails(checkConfiguration(facts), "chmod go= /etc/secrets")

    def test_settingsForTryingAreWarnedOf(self) -> None:
        self.warns(self.check(faults=True), "faults is on")
        self.warns(self.check(log_level="debug"), "svcbroker reload")
        self.warns(self.check(cors_origin=["*"]), "a page of any site")
        self.warns(self.check(webhook_allow=["0.0.0.0/0"]), "inside your network")
        self.warns(self.check(http="", stomp="", mqtt=""), "all ports are off")

    def test_quorumsWithoutCommonWitnessAreWarnedOf(self) -> None:
        keys = [WitnessKey(f"{name}.example", name.encode() * 32).verifier.text for name in "abcd"]
        lines = [f"witness {name} {key}" for name, key in zip("abcd", keys, strict=True)]
        for count, isWarned in ((2, True), (3, False)):
            text = "\n".join([*lines, f"group g {count} a b c d", "quorum g"])
            policy = Policy.parse(text.encode())
            facts = ConfigurationFacts(config=makeConfig(), witnessPolicy=policy)
            if isWarned:
                said = "the quorum g is reached by a and b, and by c and d"
                self.warns(checkConfiguration(facts), said)
            else:
                self.good(checkConfiguration(facts))

    def test_nameOfAProxyMustBeKnown(self) -> None:
        self.warns(self.check(advertise="b.example:443"), "host-name = ['b.example']")
        self.good(self.check(advertise="b.example:443", host_name=["b.example"]))
        self.good(self.check(advertise="10.0.0.1:443"))


class DirectoryTests(CheckTestCase):
    """
    The data directory.
    """

    def check(self, *files: FileFacts, **facts: object) -> Iterable[Finding]:
        """The findings of a data directory."""
        return checkDirectory(DirectoryFacts(path=DATA, files=files, **facts))  # type: ignore[arg-type]

    def test_privateDirectoryIsGood(self) -> None:
        self.good(self.check(FileFacts("1/ledger.sqlite", 0o600, 0)), "belongs to root")

    def test_unknownDirectoryIsWarnedOf(self) -> None:
        self.warns(self.check(exists=False), "begins a new chain")

    def test_unreadableDirectoryIsAProblem(self) -> None:
        self.fails(self.check(error="Permission denied", ownerName="svc"), "sudo -u svc")

    def test_directoryOfAnotherUserIsAProblem(self) -> None:
        found = self.check(owner=7, ownerName="svc", user=8, userName="ann")
        self.fails(found, "would run as ann", "chown -R ann: /var/lib/svcbroker")

    def test_filesOfAnotherUserAreAProblem(self) -> None:
        found = self.check(FileFacts("notes.sqlite", 0o600, 0), owner=7, user=7, ownerName="svc")
        self.fails(found, "notes.sqlite", "chown -R svc: /var/lib/svcbroker")

    def test_readableKeysAreAProblem(self) -> None:
        key = FileFacts("1/keys/node0.key", 0o644, 0)
        self.fails(self.check(key, mode=0o755), "1/keys/node0.key", "svcbroker nodes", "rotate all")
        self.good(self.check(key, mode=0o700))

    def test_openDirectoryIsWarnedOf(self) -> None:
        self.warns(self.check(mode=0o750), "chmod -R go= /var/lib/svcbroker")

    def test_leftFilesAreWarnedOf(self) -> None:
        self.warns(self.check(FileFacts("operator.json.new", 0o600, 0)), "rm /var/lib/svcbroker")

    def test_copiesBeforeUpgradesAreWarnedOf(self) -> None:
        copy = FileFacts("1/ledger.sqlite.v3.backup", 0o600, 0, GIB)
        self.warns(self.check(copy), "from before an upgrade, of 1.0 GiB", "erased")

    def test_unservedGroupIsWarnedOf(self) -> None:
        self.warns(self.check(groups=["1", "2"], served=["1"]), "groups 2", "--group 2")


class ChainTests(CheckTestCase):
    """
    The chains.
    """

    def check(self, **facts: object) -> Iterable[Finding]:
        """The findings of the chain of group 1."""
        return checkChain(ChainFacts(group="1", **facts), str(DATA))  # type: ignore[arg-type]

    def test_wholeChainIsGood(self) -> None:
        self.good(self.check(height=1200, time=NOW), "1,200 blocks, the last of 2026-11-22")

    def test_newChainIsGood(self) -> None:
        self.good(self.check(exists=False), "the daemon begins one")
        self.assertEqual(list(self.check(exists=False, ledger="memory")), [])

    def test_olderFormatIsWarnedOf(self) -> None:
        self.warns(self.check(error="schema 3", isOlder=True), "cp -a /var/lib/svcbroker")

    def test_chainThatCannotBeOpenedIsAProblem(self) -> None:
        self.fails(self.check(error="schema 9, newer"), "the daemon does not start")

    def test_lostEndIsAProblem(self) -> None:
        self.fails(self.check(losses=["it ends at block 7"]), "it ends at block 7", "restore")

    def test_damagedKeyIsAProblem(self) -> None:
        self.fails(self.check(damage=["keys/node0.key: it is not a key"]), "from a backup")

    def test_evidenceOfDoubleSigningIsAProblem(self) -> None:
        self.fails(self.check(evidence="evidence.jsonl"), "evidence.jsonl", "rotate all")

    def test_copyIsNotContinued(self) -> None:
        self.fails(self.check(isCopy=True), "svcbroker promote /var/lib/svcbroker")
        self.good(self.check(isCopy=True, ledger="copy"))

    def test_chainOfAnotherLedgerIsAProblem(self) -> None:
        self.fails(self.check(height=3, isEngines=True), "decided by cometbft")


class MetadataTests(CheckTestCase):
    """
    The metadata store.
    """

    def check(self, **facts: object) -> Iterable[Finding]:
        """The findings of a metadata store."""
        return checkMetadata(MetadataFacts(dataDir=str(DATA), **facts))  # type: ignore[arg-type]

    def test_readersCloseToTheEndAreGood(self) -> None:
        facts = {"webhooks": [WebhookFacts(id="w")], "subscriptions": [SubscriptionFacts(id="s")]}
        self.good(self.check(**facts, expiry=30))

    def test_lastAuditIsTold(self) -> None:
        audit = LastAudit(isGood=True, endedAt=NOW - 5 * DAY, seconds=9.0, height=1200)
        self.good(self.check(audits={"1": audit}, now=NOW), "2026-11-17", "block 1,200")
        self.good(self.check(), "none is scheduled")
        late = self.check(audits={"1": audit}, now=NOW, auditEvery=DAY)
        self.warns(late, "not since", "every 24 hours")
        bad = LastAudit(isGood=False, endedAt=NOW, seconds=9.0, height=7, problem="block 3: x")
        self.fails(self.check(audits={"1": bad}, now=NOW), "is damaged: block 3: x")

    def test_damagedStoreIsAProblem(self) -> None:
        self.fails(self.check(error="it is cut short"), "it is cut short", "from a backup")
        self.fails(self.check(damage=["note one: changed"]), "note one")
        self.fails(self.check(lost="notes.sqlite is missing"), "remove notes.sqlite-last")

    def test_failingWebhookIsWarnedOf(self) -> None:
        hook = WebhookFacts(id="w", attempts=40, waits=3 * DAY)
        found = self.warns(self.check(webhooks=[hook]), "failed 40 times", "3 days old")
        self.assertIn("svcbroker webhook /var/lib/svcbroker list", found.remedy)
        self.good(self.check(webhooks=[WebhookFacts(id="w", attempts=2)]))

    def test_pausedWebhookIsWarnedOf(self) -> None:
        self.warns(self.check(webhooks=[WebhookFacts(id="w", isPaused=True)]), "resume w")

    def test_subscriptionFarBehindIsWarnedOf(self) -> None:
        far = SubscriptionFacts(id="s", blocks=9000, behind=9 * DAY)
        self.warns(self.check(subscriptions=[far]), "s (9 days, 9,000 blocks)", "delete STOMP s")

    def test_sessionIsDeletedByItsClientId(self) -> None:
        far = SubscriptionFacts(type="MQTT", id="meter 7", blocks=9000, behind=9 * DAY)
        self.warns(self.check(subscriptions=[far]), "meter 7 (9 days", "delete MQTT 'meter 7'")

    def test_positionThatExpiresSoonIsWarnedOf(self) -> None:
        old = SubscriptionFacts(id="s", unused=25)
        self.warns(self.check(subscriptions=[old], expiry=30), "removed after 30 days")
        self.good(self.check(subscriptions=[old]))
