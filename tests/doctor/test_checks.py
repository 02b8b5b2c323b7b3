"""
Tests for the checks of the machine: from facts to findings.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from svcbroker.commands.certificates import Authority
from svcbroker.daemon.memory import Bound, MemoryTable
from svcbroker.doctor import Finding
from svcbroker.doctor._certificates import CertificateFacts, checkCertificates
from svcbroker.doctor._clock import ClockFacts, checkClock
from svcbroker.doctor._disk import DiskFacts, checkDisk
from svcbroker.doctor._endpoints import EndpointFacts, checkEndpoint
from svcbroker.doctor._limits import LimitFacts, checkLimits
from svcbroker.doctor._software import EngineFacts, SoftwareFacts, checkEngine, checkSoftware

from .support import DATA, DAY, GIB, NOW, CheckTestCase


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
        self.warns(checkDisk(DiskFacts(path=DATA, free=GIB // 4)), "256 MiB are free")
        self.fails(checkDisk(DiskFacts(path=DATA, free=GIB // 64)), "16 MiB are free")

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
        self.warns(checkLimits(LimitFacts(isDaemon=True, memory=GIB // 8)), "128 MiB")

    def test_usedUpMemoryIsAProblem(self) -> None:
        facts = LimitFacts(isDaemon=True, memory=GIB, memoryUsed=GIB - 1024)
        self.fails(checkLimits(facts), "the kernel kills")

    def test_moreThanMemoryIsWarnedOf(self) -> None:
        """All bounds together may be more than the process may use."""
        bounds = (
            Bound(name="x", bytes=GIB, how="y="),
            Bound(name="z", bytes=9, how="", each="each"),
        )
        for memory, isOver in ((GIB, False), (GIB - 1, True)):
            table = MemoryTable(bounds=bounds, memory=memory)
            facts = LimitFacts(isDaemon=True, bounds=table)
            if isOver:
                self.warns(checkLimits(facts), "the largest bound is x, 1.0 GiB (y=)")
            else:
                self.good(checkLimits(facts), "it takes at most 1.0 GiB")


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

    def test_listenerOfAnotherUserMayBeTheDaemon(self) -> None:
        self.good(self.check(7, bindError=errno.EADDRINUSE), "may not look at")

    def test_listenerBesideAnUnreadableDirectoryIsLeftOpen(self) -> None:
        facts = EndpointFacts(
            name="http", text="tcp:8080", bindError=errno.EADDRINUSE, isBroker=True
        )
        found = checkEndpoint(facts, None, isDaemonKnown=False, hasAccounts=True)
        self.good(found, "a svcbroker listens on tcp:8080; whether it is this one is unknown")

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

    def test_engineThatLooksElsewhereIsAProblem(self) -> None:
        found = self.engine(application="kvstore", socket="unix:///srv/e/abci.sock")
        self.fails(found, 'proxy_app = "unix:///srv/e/abci.sock"')

    def test_openRpcIsWarnedOf(self) -> None:
        self.warns(self.engine(rpc="tcp://0.0.0.0:26657"), "127.0.0.1:26657")
