"""
Tests for the checks: from facts to findings, without a machine.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import parseAccounts
from svcbroker.commands.certificates import Authority
from svcbroker.daemon.config import makeConfig
from svcbroker.doctor import Finding, Level
from svcbroker.doctor._accounts import AccountFacts, checkAccounts, checkAnonymous
from svcbroker.doctor._certificates import CertificateFacts, checkCertificates
from svcbroker.doctor._chains import ChainFacts, checkChain
from svcbroker.doctor._clock import ClockFacts, checkClock
from svcbroker.doctor._configuration import ConfigurationFacts, checkConfiguration
from svcbroker.doctor._directory import DirectoryFacts, FileFacts, checkDirectory
from svcbroker.doctor._disk import DiskFacts, checkDisk
from svcbroker.doctor._endpoints import EndpointFacts, checkEndpoint
from svcbroker.doctor._limits import LimitFacts, checkLimits
from svcbroker.doctor._metadata import (
    MetadataFacts,
    SubscriptionFacts,
    WebhookFacts,
    checkMetadata,
)
from svcbroker.doctor._software import EngineFacts, SoftwareFacts, checkEngine, checkSoftware
from svcbroker.metrics import LastAudit

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
DAY = 86400.0
GIB = 1 << 30
DATA = Path("/var/lib/svcbroker")


class CheckTestCase(SynchronousTestCase):
    """
    A test of checks.
    """

    def findings(self, found: Iterable[Finding]) -> Sequence[Finding]:
        """Findings, each of which says what to do unless it is good."""
        kept = list(found)
        for each in kept:
            isGood = each.level is Level.GOOD
            self.assertEqual(isGood, not each.remedy, each)
            self.assertEqual(isGood, not each.meaning, each)
        return kept

    def good(self, found: Iterable[Finding], *words: str) -> None:
        """Nothing but good findings, the only or last of which has some words."""
        kept = self.findings(found)
        self.assertEqual({each.level for each in kept}, {Level.GOOD}, kept)
        for word in words:
            self.assertIn(word, kept[-1].text)

    def bad(self, level: Level, found: Iterable[Finding], *words: str) -> Finding:
        """The one finding that is not good, of a level and with some words."""
        (only,) = [each for each in self.findings(found) if each.level is not Level.GOOD]
        self.assertIs(only.level, level, only)
        for word in words:
            self.assertIn(word, f"{only.text}; {only.meaning}; {only.remedy}")
        return only

    def warns(self, found: Iterable[Finding], *words: str) -> Finding:
        """The one warning."""
        return self.bad(Level.WARNING, found, *words)

    def fails(self, found: Iterable[Finding], *words: str) -> Finding:
        """The one problem."""
        return self.bad(Level.PROBLEM, found, *words)


class ClockTests(CheckTestCase):
    """
    The clock.
    """

    def test_clockInStepIsGood(self) -> None:
        facts = ClockFacts(now=NOW, isSynchronised=True, maxError=0.05, lastBlocks={"1": NOW - 5})
        self.good(checkClock(facts), "kept in step, 0.05 seconds")

    def test_unknownSynchronisationIsGood(self) -> None:
        self.good(checkClock(ClockFacts(now=NOW)), "the kernel does not say")

    def test_unsynchronisedClockIsWarnedOf(self) -> None:
        self.warns(checkClock(ClockFacts(now=NOW, isSynchronised=False)), "timedatectl set-ntp")

    def test_clockBehindLastBlockIsAProblem(self) -> None:
        facts = ClockFacts(now=NOW, lastBlocks={"1": NOW + 7200})
        self.fails(checkClock(facts), "group 1", "2 hours ahead", "retention waits")

    def test_clockOf1970IsAProblem(self) -> None:
        self.fails(checkClock(ClockFacts(now=300.0)), "1970-01-01")

    def test_filesFromTheFutureAreWarnedOf(self) -> None:
        self.warns(checkClock(ClockFacts(now=NOW, lastChange=NOW + 60)), "was set back")

    def test_peerWithAnotherTimeIsWarnedOf(self) -> None:
        facts = ClockFacts(now=NOW, peers={"b2:8080": -30.0, "b3:8080": 1.0})
        self.warns(checkClock(facts), "b2:8080 is 30 seconds behind")


class DiskTests(CheckTestCase):
    """
    The disk.
    """

    def test_largeLocalDiskIsGood(self) -> None:
        facts = DiskFacts(
            path=DATA, fileSystem="ext4", free=500 * GIB, growth=GIB, syncs=[0.0002, 0.001, 0.0003]
        )
        self.good(checkDisk(facts), "a sync takes 0.30 ms, 1.00 ms at most")

    def test_disksEndIsForetold(self) -> None:
        facts = DiskFacts(path=DATA, free=12 * GIB, growth=GIB)
        self.warns(checkDisk(facts), "full in about 12 days", "--retain")

    def test_diskFullWithinADayIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, free=GIB, growth=2 * GIB)), "12 hours")

    def test_littleRoomIsWarnedOfWithoutGrowth(self) -> None:
        self.warns(checkDisk(DiskFacts(path=DATA, free=GIB // 4)), "256.0 MiB are free")
        self.fails(checkDisk(DiskFacts(path=DATA, free=GIB // 64)), "16.0 MiB are free")

    def test_networkFileSystemsAreProblems(self) -> None:
        for type in ("nfs4", "cifs", "fuse.sshfs"):
            facts = DiskFacts(path=DATA, fileSystem=type, free=500 * GIB)
            self.fails(checkDisk(facts), type, "--data-dir")

    def test_memoryIsNoDisk(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, fileSystem="tmpfs", free=9 * GIB)), "restarts")

    def test_containersLayerIsWarnedOf(self) -> None:
        self.warns(checkDisk(DiskFacts(path=DATA, fileSystem="overlay", free=9 * GIB)), "volume")

    def test_fileSystemWithoutRightsIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, fileSystem="vfat", free=9 * GIB)), "keys")

    def test_readOnlyMountIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, isReadOnly=True, free=9 * GIB)), "remount")

    def test_slowSyncIsWarnedOf(self) -> None:
        facts = DiskFacts(path=DATA, free=9 * GIB, syncs=[0.03, 0.04, 0.05])
        self.warns(checkDisk(facts), "40.00 ms", "SSD")

    def test_diskWithoutInodesIsAProblem(self) -> None:
        self.fails(checkDisk(DiskFacts(path=DATA, free=9 * GIB, freeFiles=3)), "inodes")


class LimitTests(CheckTestCase):
    """
    The limits of the process.
    """

    def test_usualLimitsAreGood(self) -> None:
        facts = LimitFacts(isDaemon=True, files=524288, backlog=4096, memory=2 * GIB)
        self.good(checkLimits(facts), "the daemon may have 65,536 open files, 2.0 GiB of memory")
        self.good(checkLimits(LimitFacts(isDaemon=False)), "any number of open files")

    def test_fewOpenFilesAreWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, files=1024)), "LimitNOFILE=65536")

    def test_usedUpFilesAreAProblem(self) -> None:
        facts = LimitFacts(isDaemon=True, files=8192, openFiles=8000)
        self.fails(checkLimits(facts), "has 8,000")

    def test_boundedFileSizeIsAProblem(self) -> None:
        self.fails(checkLimits(LimitFacts(isDaemon=True, fileSize=GIB)), "LimitFSIZE=infinity")

    def test_boundedAddressSpaceIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, addressSpace=GIB)), "MemoryMax=")

    def test_shortBacklogIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, backlog=128)), "net.core.somaxconn")

    def test_littleMemoryIsWarnedOf(self) -> None:
        self.warns(checkLimits(LimitFacts(isDaemon=True, memory=GIB // 8)), "128.0 MiB")

    def test_usedUpMemoryIsAProblem(self) -> None:
        facts = LimitFacts(isDaemon=True, memory=GIB, memoryUsed=GIB - 1024)
        self.fails(checkLimits(facts), "the kernel kills")


class EndpointTests(CheckTestCase):
    """
    The endpoints.
    """

    def check(
        self, daemon: int | None = None, hasAccounts: bool = True, **facts: object
    ) -> Iterable[Finding]:
        """The findings of an endpoint of HTTP."""
        made: EndpointFacts = EndpointFacts(**{"name": "http", "text": "tcp:8080", **facts})  # type: ignore[arg-type]
        return checkEndpoint(made, daemon, hasAccounts=hasAccounts)

    def test_freePortIsGood(self) -> None:
        self.good(self.check(bindError=0), "can be listened on")

    def test_daemonsOwnPortIsGood(self) -> None:
        used = self.check(7, bindError=errno.EADDRINUSE, listener=7, isBroker=True)
        self.good(used, "the daemon (process 7) listens on tcp:8080, and answers")

    def test_daemonThatDoesNotAnswerIsAProblem(self) -> None:
        used = self.check(7, bindError=errno.EADDRINUSE, listener=7, isBroker=False)
        self.fails(used, "does not answer /healthz")

    def test_portOfAnotherProgramIsAProblem(self) -> None:
        used = self.check(bindError=errno.EADDRINUSE, listener=9, listenerName="nginx")
        self.fails(used, "another program, process 9 (nginx), listens on tcp:8080", "--http")

    def test_portOfAnotherBrokerIsAProblem(self) -> None:
        used = self.check(bindError=errno.EADDRINUSE, listener=9, isBroker=True)
        self.fails(used, "another svcbroker")

    def test_listenerOfAnotherUserIsTakenForTheDaemon(self) -> None:
        self.good(self.check(7, bindError=errno.EADDRINUSE), "may not look at")

    def test_runningDaemonThatDoesNotListenIsWarnedOf(self) -> None:
        self.warns(self.check(7, bindError=0), "process 7", "other settings")

    def test_privilegedPortIsAProblem(self) -> None:
        self.fails(self.check(bindError=errno.EACCES), "CAP_NET_BIND_SERVICE")

    def test_addressOfAnotherMachineIsAProblem(self) -> None:
        self.fails(self.check(bindError=errno.EADDRNOTAVAIL), "ip address")

    def test_plainEndpointForOtherMachinesIsWarnedOf(self) -> None:
        self.warns(self.check(bindError=0, isLocal=False), "without TLS")
        self.good(self.check(bindError=0, isLocal=False, hasTLS=True))
        self.good(self.check(bindError=0, isLocal=False, hasAccounts=False))

    def test_socketOfSystemdIsNotTried(self) -> None:
        self.good(self.check(isInherited=True), "systemctl list-sockets")


class CertificateTests(CheckTestCase):
    """
    The certificates of endpoints.
    """

    def check(self, days: float = 0, names: Sequence[str] = (), **facts: object) -> list[Finding]:
        """
        The findings of a certificate for C{b.example} and C{*.c.example} that is good for 90 days.

        @param days: since it was made.
        """
        authority = Authority(datetime.fromtimestamp(NOW, UTC), 90)
        chain = [authority.server(["b.example", "*.c.example"])[0]]
        made = CertificateFacts(
            endpoint="mqtt",
            place=Path("/etc/tls"),
            chains=[chain],
            names=names,
            **facts,  # type: ignore[arg-type]
        )
        return list(checkCertificates(made, NOW + days * DAY))

    def test_freshCertificateIsGood(self) -> None:
        self.good(self.check(names=["b.example", "x.c.example"]), "b.example", "2027-02-20")

    def test_endedCertificateIsAProblem(self) -> None:
        self.fails(self.check(93), "has ended on 2027-02-20", "3 days ago", "svcbroker reload")

    def test_certificateThatEndsSoonIsWarnedOf(self) -> None:
        self.warns(self.check(80), "in 10 days")

    def test_certificateOfTheFutureIsAProblem(self) -> None:
        self.fails(self.check(-10), "is valid from", "timedatectl")

    def test_certificateForOtherNamesIsWarnedOf(self) -> None:
        self.warns(self.check(names=["b.example", "d.example"]), "not for d.example")

    def test_selfSignedCertificateIsWarnedOf(self) -> None:
        own = Authority(datetime.fromtimestamp(NOW, UTC), 90).certificate
        facts = CertificateFacts(endpoint="mqtt", place=Path("/etc/tls"), chains=[[own]])
        self.warns(checkCertificates(facts, NOW), "has signed itself")

    def test_readablePrivateKeyIsAProblem(self) -> None:
        self.fails(self.check(readableKeys=[Path("/etc/tls/key.pem")]), "chmod o= /etc/tls/key.pem")


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
        self.warns(self.check(ACCOUNTS.replace("m=65536", "m=4096")), "cheaper to guess")

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

    def test_positionThatExpiresSoonIsWarnedOf(self) -> None:
        old = SubscriptionFacts(id="s", unused=25)
        self.warns(self.check(subscriptions=[old], expiry=30), "removed after 30 days")
        self.good(self.check(subscriptions=[old]))


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
        self.fails(self.engine(error="/srv/e: no such file"), "svcbroker engine init")

    def test_unknownEngineIsAProblem(self) -> None:
        self.fails(self.engine(programError="it is of version 0.37"), "engine=")

    def test_readableValidatorKeyIsAProblem(self) -> None:
        self.fails(self.engine(readableKeys=[Path("/srv/e/k")]), "chmod go= /srv/e/k")

    def test_openRpcIsWarnedOf(self) -> None:
        self.warns(self.engine(rpc="tcp://0.0.0.0:26657"), "127.0.0.1:26657")
