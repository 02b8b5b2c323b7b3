"""
C{svcbroker doctor}: looks at the configuration, the data directory and the machine of a broker,
and says what is wrong and what to do. Nothing is changed, and no lock is taken: a daemon may be
running.

Each module of checks has classes of facts, functions that read these, and functions from these to
findings, which look at nothing else. L{BrokerCheck} calls them all.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from attrs import define, evolve, field
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.task import Clock

from ...archive import groupsIn
from ...carriers.http.feature import HttpOptions
from ...daemon.config import SETTINGS, Config, makeConfig, readMistakes
from ...daemon.directory import LOCK_NAME
from ...daemon.features import FEATURES
from ...daemon.memory import boundsOf, machineMemory
from ...daemon.operating import OperatorFileError, readOperatorFile
from ...daemon.options import ConfigOptions
from ...daemon.plan import (
    AccessPlan,
    endpointsOf,
    findRefusals,
    makeAccessPlan,
    planGroup,
    planPort,
)
from ...daemon.ports import HTTP, PortPlan, findBindError
from ...daemon.process import WANTED_FILES
from ...ledgers import checkLedger
from ...net.findings import Finding, Level, good, problem, warning
from ...net.listeners import InheritedEndpoint
from ...net.pem import CertificateError
from ...net.settings import ConfigError
from ..arguments import jsonOption, options
from ..settingscommand import settingsCommand
from ..terminal import CommandError, Console, Exit, counted, printable
from .configurationchecks import (
    AccountFacts,
    ConfigurationFacts,
    checkAccounts,
    checkAnonymous,
    checkConfiguration,
    checkPasswordFile,
    checkSoftware,
    kindOf,
    readPasswordFile,
    readSoftware,
)
from .datachecks import (
    ChainFacts,
    DirectoryFacts,
    FileFacts,
    checkChain,
    checkDirectory,
    checkMetadata,
    filesIn,
    readChain,
    readData,
    readMetadata,
)
from .endpointchecks import (
    Ask,
    CertificateFacts,
    EndpointFacts,
    ServerAnswer,
    alarmFindings,
    askServer,
    checkCertificates,
    checkEndpoint,
    hasKey,
    isAlive,
    isName,
    isRoot,
    withoutWrappers,
)
from .machinechecks import (
    ClockFacts,
    DiskFacts,
    LimitFacts,
    LocalMachine,
    checkClock,
    checkDisk,
    checkLimits,
    isReadable,
    readSynchronisation,
    timeSyncs,
    userName,
)


@define(kw_only=True, slots=False)
class BrokerCheck:
    """
    A check of a broker. Nothing is changed, and no lock is taken.

    @ivar config: the settings that can be used.
    @ivar file: the file that they are from.
    @ivar mistakes: what is wrong with the others, in a line each.
    @ivar now: the wall clock: seconds since the epoch.
    """

    config: Config
    now: float
    file: Path | None = None
    mistakes: list[str] = field(factory=list)
    machine: LocalMachine = LocalMachine()
    ask: Ask = askServer

    def findings(self) -> Iterator[Finding]:
        """
        Everything that was found, subject by subject. An error in one of them is a finding.
        """
        told: list[Finding] = []
        for each in self._allFindings():
            told.append(each)
            yield each
        yield from self._checkStart([each for each in told if each.level is Level.PROBLEM])

    def _checkStart(self, told: Sequence[Finding]) -> Iterator[Finding]:
        """Check whether the daemon would start, by the function that C{run --check} asks."""
        refusals = list(findRefusals(self.config, Clock(), isRunning=self._daemon is not None))
        ports = [port.name for port in self._ports]
        subjects = [each.subject for each in told if each.subject in ports]
        texts = [text for each in told for text in (each.text, f"{each.subject}: {each.text}")]
        for text in refusals:
            # The finding about a port has said it already, in other words.
            if text.partition(":")[0] not in subjects and text not in texts:
                yield problem(
                    "start",
                    text,
                    "the daemon does not start",
                    "correct it; svcbroker run --check says whether it starts then",
                )
        if not refusals and not self.mistakes:
            yield good("start", "the daemon would start with these settings and these data")

    def _allFindings(self) -> Iterator[Finding]:
        for name, check in (
            ("software", self._checkSoftware),
            ("configuration", self._checkConfiguration),
            ("accounts", self._checkAccounts),
            ("endpoints", self._checkEndpoints),
            ("data directory", self._checkDirectory),
            ("chains", self._checkChains),
            ("metadata", self._checkMetadata),
            ("disk", self._checkDisk),
            ("limits", self._checkLimits),
            ("clock", self._checkClock),
            ("ledgers", self._checkLedgers),
        ):
            try:
                yield from check()
            except Exception as error:
                if isinstance(error, PermissionError) and self._directory.error:
                    continue  # The finding about the data directory has told it.
                yield warning(
                    name,
                    f"it could not be looked at: {type(error).__name__}: {error}",
                    "whether it is good is unknown",
                    f"ask again as the user of the daemon: sudo -u {self._directory.ownerName} "
                    "svcbroker doctor",
                )

    # What several subjects need

    @cached_property
    def _dataDir(self) -> Path:
        return self.config.dataDir.absolute()

    @cached_property
    def _daemon(self) -> int | None:
        """The number of the process that has the data directory."""
        return self.machine.lockHolder(self._dataDir / LOCK_NAME)

    @cached_property
    def _ports(self) -> Sequence[PortPlan]:
        """The endpoints that can be used; what is wrong with others is a mistake."""
        found = []
        for name, text in endpointsOf(self.config).items():
            try:
                found.append(planPort(Clock(), name, text))
            except ConfigError as error:
                self.mistakes.append(str(error))
        return found

    @cached_property
    def _access(self) -> AccessPlan:
        try:
            return makeAccessPlan(self.config, self._ports)
        except ConfigError as error:
            self.mistakes.append(str(error))
            return AccessPlan()

    @cached_property
    def _descriptions(self) -> Mapping[str, str]:
        """The description of each group's ledger."""
        return {
            group.id: self.config.ledger if group.ledger is None else group.ledger
            for group in self.config.groups
        }

    @cached_property
    def _chains(self) -> Mapping[str, tuple[ChainFacts, float]]:
        """Facts about each group's chain, and by how many bytes it grows in a day."""
        return {
            group: readChain(self._dataDir / group, kindOf(text), self.now)
            for group, text in self._descriptions.items()
        }

    @cached_property
    def _directory(self) -> DirectoryFacts:
        path, user = self._dataDir, self.machine.userOf(self._daemon)
        try:
            status = path.stat()
        except FileNotFoundError:
            return DirectoryFacts(path=path, exists=False)
        except OSError as error:
            return DirectoryFacts(path=path, error=error.strerror or str(error))
        owner, reason, groups = status.st_uid, "", list[str]()
        files: list[FileFacts] = []
        try:
            groups.extend(groupsIn(path))
            files.extend(filesIn(path))
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
        return DirectoryFacts(
            path=path,
            error=reason,
            mode=stat.S_IMODE(status.st_mode),
            owner=owner,
            ownerName=userName(owner),
            user=user,
            userName=userName(user),
            files=files,
            groups=groups,
            served=[*self._descriptions],
        )

    # Subjects

    def _checkSoftware(self) -> Iterator[Finding]:
        yield from checkSoftware(readSoftware())

    def _checkConfiguration(self) -> Iterator[Finding]:
        config, access = self.config, self._access
        for group in config.groups:
            try:
                planGroup(config, group)
            except ConfigError as error:
                self.mistakes.append(str(error))
        findings: list[Finding] = []
        for feature in FEATURES:
            try:
                read = feature.read(config.of(feature.settings))
            except ConfigError as error:
                self.mistakes.append(str(error))
            else:
                findings.extend(feature.checks(read))
        named = {name for feature in FEATURES for name in feature.secrets}
        files = [config.value(setting) for setting in SETTINGS if setting.name in named]
        secrets = [Path(text) for text in files if text]
        yield from checkConfiguration(
            ConfigurationFacts(
                config=config,
                file=self.file,
                mistakes=list(dict.fromkeys(self.mistakes)),
                readableSecrets=[path for path in secrets if isReadable(path)],
                refusal=access.refusal,
                findings=findings,
                isHttpLocal=any(port.name == HTTP and port.isLocal for port in self._ports),
            )
        )

    def _checkAccounts(self) -> Iterator[Finding]:
        access, groups = self._access, [*self._descriptions]
        if access.table is not None:
            yield from checkAccounts(
                AccountFacts(
                    file=access.file,
                    table=access.table,
                    isReadable=access.isReadable,
                    groups=groups,
                    takesCertificates=any("mtls:" in port.text for port in self._ports),
                    operatesLocally=bool(self.config.of(HttpOptions).endpoint),
                ),
                self.now,
            )
        for text in self.config.auth:
            passwords = readPasswordFile(text)
            if passwords is not None:
                yield from checkPasswordFile(passwords)
        yield from checkAnonymous(access.anonymous, groups)

    def _checkEndpoints(self) -> Iterator[Finding]:
        for port in self._ports:
            yield from checkEndpoint(
                self._askEndpoint(port),
                self._daemon,
                isDaemonKnown=not self._directory.error,
                hasAccounts=self._access.hasAccounts,
            )
            yield from self._checkCertificates(port)
        yield from self._askAlarms()

    def _askEndpoint(self, port: PortPlan) -> EndpointFacts:
        endpoint, isProxied = withoutWrappers(port.endpoint)
        hasTLS = port.certificates is not None
        bindError, listener, isBroker = findBindError(port), None, None
        if isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint) and endpoint._port:
            host, number = endpoint._interface, endpoint._port
            listener = self.machine.listener(host, number)
            if port.name == HTTP and bindError and not isProxied:
                isBroker = isAlive(self._askAt(host, number, hasTLS, "/healthz"))
        return EndpointFacts(
            name=port.name,
            text=port.text,
            # The proxy before a port of loopback is what others reach.
            isLocal=evolve(port, endpoint=endpoint).isLocal,
            isInherited=isinstance(endpoint, InheritedEndpoint),
            hasTLS=hasTLS,
            bindError=bindError,
            listener=listener,
            listenerName="" if listener is None else self.machine.programOf(listener),
            isBroker=isBroker,
        )

    def _askAt(self, host: str, port: int, hasTLS: bool, path: str) -> ServerAnswer | None:
        at = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        at = f"[{at}]" if ":" in at else at
        return self.ask(f"{'https' if hasTLS else 'http'}://{at}:{port}{path}", None, False)

    def _askAlarms(self) -> Iterator[Finding]:
        """The alarms of the running daemon itself."""
        if self._daemon is None:
            return
        try:
            operating = readOperatorFile(self._dataDir)
        except OperatorFileError:
            return
        headers = {"Authorization": f"Bearer {operating.token}"}
        url = f"{operating.url}/admin/operator/alarms/list"
        yield from alarmFindings(self.ask(url, headers, False, {}))

    def _checkCertificates(self, port: PortPlan) -> Iterator[Finding]:
        if port.certificates is None:
            return
        source = port.certificates.source
        try:
            chains, files = source.chains(), source.files()
        except (CertificateError, OSError):
            return  # a mistake of the configuration
        host = self.config.advertise.rpartition(":")[0].lower()
        names = {host, *self.config.of(HttpOptions).hostNames} if port.name == HTTP else {host}
        yield from checkCertificates(
            CertificateFacts(
                endpoint=port.name,
                place=files[0].parent if len(files) > 1 else files[0],
                chains=chains,
                names=sorted(name for name in names if name and isName(name)),
                readableKeys=[path for path in files if isReadable(path) and hasKey(path)],
                isRoot=isRoot,
            ),
            self.now,
        )

    def _checkDirectory(self) -> Iterator[Finding]:
        yield from checkDirectory(self._directory)

    def _checkChains(self) -> Iterator[Finding]:
        for facts, _ in self._chains.values():
            yield from checkChain(facts, str(self._dataDir))

    def _checkMetadata(self) -> Iterator[Finding]:
        chains = {group: facts for group, (facts, _) in self._chains.items() if facts.exists}
        facts = readMetadata(self._dataDir)
        yield from checkMetadata(facts)
        if facts.error or facts.damage:
            return
        with readData(self._dataDir, facts.records, chains, self.now) as data:
            for feature in FEATURES:
                yield from feature.dataChecks(self.config.of(feature.settings), data)

    def _checkDisk(self) -> Iterator[Finding]:
        path = self._dataDir
        while not path.exists():
            path = path.parent
        mount, room = self.machine.mountOf(path.resolve()), os.statvfs(path)
        yield from checkDisk(
            DiskFacts(
                path=path,
                fileSystem="" if mount is None else mount.type,
                isReadOnly=mount is not None and mount.isReadOnly,
                free=room.f_bavail * room.f_frsize,
                freeFiles=room.f_favail if room.f_files else None,
                growth=sum(growth for _, growth in self._chains.values()),
                syncs=timeSyncs(path),
            )
        )

    def _checkLimits(self) -> Iterator[Finding]:
        machine, daemon = self.machine, self._daemon
        memory, used = machine.memory(daemon)
        limits, table = machine.limits(daemon), self._access.table
        files = limits.get("files")
        yield from checkLimits(
            LimitFacts(
                isDaemon=daemon is not None,
                **limits,
                openFiles=None if daemon is None else machine.openFiles(daemon),
                backlog=machine.backlog(),
                memory=memory,
                memoryUsed=used,
                bounds=boundsOf(
                    self.config,
                    self._ports,
                    () if table is None else table.costs,
                    machineMemory() if memory is None else min(memory, machineMemory()),
                    WANTED_FILES if files is None else min(files, WANTED_FILES),
                ),
            )
        )

    def _checkClock(self) -> Iterator[Finding]:
        isSynchronised, maxError = readSynchronisation()
        changes = [path.stat().st_mtime for path in self._dataDir.glob("*.sqlite*")]
        yield from checkClock(
            ClockFacts(
                now=self.now,
                lastBlocks={
                    group: facts.time for group, (facts, _) in self._chains.items() if facts.time
                },
                lastChange=max(changes, default=None),
                isSynchronised=isSynchronised,
                maxError=maxError,
            )
        )

    def _checkLedgers(self) -> Iterator[Finding]:
        for group, text in self._descriptions.items():
            yield from checkLedger(group, text)


_WIDTH = 7


class DoctorOptions(ConfigOptions):
    """
    The settings of a daemon, of which some may be wrong.
    """

    def postOptions(self) -> None:
        """
        Read the settings that can be used; what is wrong with others is for the findings. See
        C{usage.Options}.
        """
        settings: dict[str, Any] = {}
        self["mistakes"] = []
        if self.file is not None:
            try:
                settings, mistakes = readMistakes(self.file)
            except ConfigError as error:
                self["mistakes"].append(str(error))
            else:
                self["mistakes"].extend(map(str, mistakes.values()))
                settings = {name: settings[name] for name in settings if name not in mistakes}
        try:
            self["config"] = makeConfig(settings, self._given)
        except ConfigError as error:
            raise CommandError(str(error)) from None


@settingsCommand(
    """\
    Say what is wrong with a broker and its machine, and what to do.

    Give it the options of the daemon, such as --config or --data-dir, and run it as the daemon's
    user. The daemon may run or not; nothing is changed, and no lock is taken. It says what it has
    looked at, whether that is good, and what to do where it is not. It takes only a quick look at
    chains: svcbroker chain audit reads all of them.

    Exit codes: 0 no problem was found, 1 a problem was found, 2 wrong usage.
    """,
    DoctorOptions,
)
@options(
    jsonOption("Write each finding and the summary as a line of JSON."),
    click.option("--strict", "isStrict", is_flag=True, help="Exit with 1 for warnings, too."),
    click.option("--quiet", "-q", "isQuiet", is_flag=True, help="Do not show what is good."),
)
def command(console: Console, settings: Any, asJson: bool, isStrict: bool, isQuiet: bool) -> int:
    """Check the broker, and write the findings."""
    config: Config = settings["config"]
    check = BrokerCheck(
        config=config,
        now=time.time(),
        file=settings.file,
        mistakes=settings["mistakes"],
    )
    counts: Counter[Level] = Counter()
    for finding in check.findings():
        counts[finding.level] += 1
        if asJson:
            console.sayJson(_fields(finding))
        elif finding.level is not Level.GOOD or not isQuiet:
            _tell(finding, console)
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    if asJson:
        summary = {"problems": problems, "warnings": warnings, "good": counts[Level.GOOD]}
        console.sayJson(summary)
    else:
        console.say(f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    return Exit.BAD if problems or (warnings and isStrict) else Exit.GOOD


def _tell(finding: Finding, console: Console) -> None:
    text = printable(f"{finding.subject}: {finding.text}")
    console.say(f"{finding.level.value:{_WIDTH}}  {text}")
    for line in filter(None, (finding.meaning, finding.remedy)):
        mark = "-> " if line == finding.remedy else ""
        console.say(f"{'':{_WIDTH}}    {mark}{printable(line)}")


def _fields(finding: Finding) -> dict[str, str]:
    return {
        "level": finding.level.value,
        "subject": finding.subject,
        "finding": finding.text,
        "meaning": finding.meaning,
        "remedy": finding.remedy,
    }
