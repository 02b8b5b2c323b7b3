"""
The daemon's service: starts everything in order, and stops it in the reverse order.

The start binds the ports, locks the data directory, starts the ledgers and then the features. The
stop closes the ports, answers what was accepted, stops the ledgers, and unlocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    DeferredLock,
    TimeoutError,
    fail,
    maybeDeferred,
    succeed,
)
from twisted.internet.error import CannotListenError
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.failure import Failure

from ..errors import BrokerError
from ..files import newFile
from ..interfaces import ILedger, InvalidDescription, LedgerContext
from ..net.deferreds import asDeferred
from ..net.settings import ConfigError
from ..net.tls import CertificateReloader
from .dependencies import Dependencies, LedgerThread, StartError
from .directory import DataDirectoryError, lockDataDirectory
from .operating import OPERATOR_NAME, OperatorFileError
from .plan import GroupPlan, Plan, ledgerRefusal
from .ports import HTTP, TLS_TYPES, Port, PortPlan, listenRefusal

T = TypeVar("T")

Reload: TypeAlias = Callable[[], Deferred[Sequence[str]]]
"""Has the daemon read its files again; gives a line for each that cannot be used."""

_log = Logger()

CLOSE_SHARE = 0.2
"""The part of the time for a stop that the port has to close."""

DRAIN_SHARE = 0.5
"""The part of the time for a stop that clients have to take their answers."""


class IFeatures(Protocol):
    """
    All features, once the ledgers have started.

    @ivar factories: the protocol factory of each port, by the port's name.
    """

    @property
    def factories(self) -> Mapping[str, Any]: ...

    def reload(self) -> Deferred[Any]:
        """
        Read settings, accounts with their grants and limits, and secrets again.

        @raise ConfigError, InvalidDescription: they cannot be used. Nothing has changed.
        """

    def start(self) -> Deferred[Any]:
        """Start, before clients are accepted. A failed start leaves nothing open."""

    def drain(self) -> Deferred[Any]:
        """Answer what was accepted, then close; fires when that is done."""

    def stop(self) -> None:
        """Release everything, after the ledgers have stopped."""


class BrokerService(Service):
    """
    The broker as twistd runs it.

    @ivar address: where HTTP is served, C{host:port}, as it was bound; empty until then,
        and where HTTP is not served.
    """

    def __init__(
        self,
        plan: Plan,
        dependencies: Dependencies,
        makeFeatures: Callable[[Mapping[str, ILedger], str, Reload], IFeatures],
        makeObserver: Callable[[], ILogObserver] | None = None,
        reopenLog: Callable[[], object] = bool,
    ) -> None:
        """
        @param makeFeatures: makes all features of the started ledgers, L{address}, and L{reload}.
        @param makeObserver: makes the application's log observer, over which C{twistd --logger}
            wins; C{None} leaves it to twistd.
        @param reopenLog: opens the file of the log again, or raises C{OSError}.
        """
        self.address = ""
        self._plan = plan
        self._dependencies = dependencies
        self._makeFeatures = makeFeatures
        self._makeObserver = makeObserver
        self._reopenLog = reopenLog
        self._ports = [Port(each, dependencies.budgets) for each in plan.ports]
        self._starting: Deferred[None] | None = None
        self._ledgers: dict[str, ILedger] = {}
        self._threads: list[LedgerThread] = []
        self._features: IFeatures | None = None
        self._reloader: CertificateReloader | None = None
        self._reloading = DeferredLock()
        self._standing = AsyncExitStack()
        self._deadline: float | None = None

    def setServiceParent(self, parent: Any) -> None:
        """See C{IService}."""
        if self._makeObserver is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._makeObserver())
        super().setServiceParent(parent)

    # Start

    def privilegedStartService(self) -> None:
        """
        Bind the ports, before twistd gives up its privileges. No client is accepted yet.

        @raise StartError: a port cannot be had, or must not be opened without accounts.
        """
        super().privilegedStartService()
        self._dependencies.manager.starting("binding the ports")
        if self._plan.access.refusal:
            self._raiseFailure(fail(StartError(self._plan.access.refusal)))
        for port in self._ports:
            self._raiseFailure(port.bind().addErrback(self._explainPort, port.plan))

    def startService(self) -> None:
        """
        Start the ledgers and the features. A failure before the reactor runs is raised; a later
        one ends the process.

        @raise StartError: the daemon cannot start.
        """
        super().startService()
        self._starting = self._start()
        self._starting.addErrback(self._explain)
        self._raiseFailure(self._starting)
        # A signal before this ends the process at once: no client was accepted yet.
        self._dependencies.process.handleSignals(self.reload)
        self._starting.addErrback(self._failLater)

    @asDeferred
    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            # The last one pushed is undone first.
            for port in self._ports:
                stack.callback(port.abandon)
            stack.callback(lockDataDirectory(self._plan.dataDir).release)
            stack.push_async_callback(self._stopLedgers)
            for group in self._plan.groups:
                self._dependencies.manager.starting(f"opening group {group.id}")
                self._ledgers[group.id] = await self._startLedger(group)
            for port in self._ports:
                await port.bound()
                if port.plan.name == HTTP:
                    self.address = port.address
            self._dependencies.manager.starting("restoring subscriptions")
            features = self._makeFeatures(self._ledgers, self.address, self.reload)
            await features.start()
            self._features = features
            stack.push_async_callback(self._drain, features)
            for port in self._ports:
                port.factory.open(features.factories[port.plan.name])
            stack.push_async_callback(self._stopListening)
            self._startReloader(stack)
            for port in self._ports:
                port.resume()
            self._standing = stack.pop_all()
        self._dependencies.process.started(self._announce)

    def _startReloader(self, stack: AsyncExitStack) -> None:
        certificates = {
            port.plan.name.upper(): port.plan.certificates
            for port in self._ports
            if port.plan.certificates is not None
        }
        if certificates:
            reactor = self._dependencies.reactor
            thread = self._dependencies.makeThread(reactor, "certificates")
            self._reloader = CertificateReloader(certificates, reactor, thread.run)
            self._reloader.start()
            stack.push_async_callback(self._stopReloader, self._reloader, thread)

    async def _startLedger(self, group: GroupPlan) -> ILedger:
        dependencies = self._dependencies
        thread = dependencies.makeThread(dependencies.reactor, f"ledger-{group.id}")
        ledger = group.makeLedger(
            LedgerContext(
                group=group.id,
                directory=self._plan.dataDir / group.id,
                reactor=dependencies.reactor,
                now=dependencies.now,
                entropy=dependencies.entropy,
                runInThread=thread.run,
                runBriefly=thread.runBriefly,
                maxContent=self._plan.maxContent,
                turn=lambda: dependencies.budgets.work.lane().turn(isWrite=False),
            )
        )
        try:
            await ledger.start()
        except BrokerError as error:
            thread.stop()
            raise StartError(ledgerRefusal(group.id, error)) from error
        self._threads.append(thread)
        return ledger

    def reload(self) -> Deferred[Sequence[str]]:
        """
        Read again what may change while the daemon runs: accounts with their grants and limits,
        the grants of anonymous clients, the secrets of webhooks, the level of the log, and the
        certificates of endpoints; and open the file of the log again. Connections keep their
        certificates; what an account may do changes for them, too.

        @return: fires with a line for each file that cannot be used. Accounts and settings change
            together or not at all. Does not fail.
        """
        return self._reloading.run(self._reload)

    @asDeferred
    async def _reload(self) -> Sequence[str]:
        if not self.running or self._features is None:
            return []
        self._dependencies.manager.reloading()
        lines = await self._readAgain(self._features)
        self._dependencies.manager.reloaded("; ".join(lines))
        return lines

    async def _readAgain(self, features: IFeatures) -> Sequence[str]:
        lines: list[str] = []
        try:
            self._reopenLog()
        except OSError as error:
            lines.append(f"The log stays in the file that it had: {error}")
        try:
            await features.reload()
            _log.info("Accounts and settings were read again")
        except (ConfigError, InvalidDescription) as error:
            lines.append(f"Accounts and settings stay as they were: {error}")
        except Exception:
            _log.failure("Accounts and settings were not read again")
            lines.append("Accounts and settings were not read again; see the log")
        for line in lines:
            _log.error("{line}", line=line)
        if self._reloader is not None:
            lines.extend(await self._reloader.reload())
        return lines

    def _announce(self) -> None:
        if self._plan.hasFaults:
            _log.warn(
                "FAULTS ARE ON: users who may read {dataDir} can stop nodes and cut their network. "
                "Never run like this what others rely on.",
                dataDir=str(self._plan.dataDir.absolute()),
            )
        self._plan.access.announce()
        for port in self._ports:
            _log.info("{name} on {address}", name=port.plan.name.upper(), address=port.address)
        groups = ", ".join(f"{group.id} on {group.kind}" for group in self._plan.groups)
        others = " and ".join(port.plan.name.upper() for port in self._ports)
        _log.info(
            "svcbroker {version} serves {served}, data in {dataDir}, groups: {groups}",
            version=self._plan.version,
            served=f"{self.address}{self._plan.basePath}" if self.address else others or "nothing",
            dataDir=str(self._plan.dataDir.absolute()),
            groups=groups,
        )
        self._announceConsole()
        self._dependencies.manager.ready(self._describe)

    def _announceConsole(self) -> None:
        endpoint = next((port.plan.text for port in self._ports if port.plan.name == HTTP), "")
        url = consoleUrl(self.address, self._plan.basePath, endpoint)
        if url:
            _log.info("The console is at {url}", url=url)

    @asDeferred
    async def _describe(self) -> str:
        """The state of the daemon in a line, for the service manager."""
        groups = []
        for group, ledger in self._ledgers.items():
            health = await ledger.getHealth()
            if health.isReady:
                statistics = await ledger.getStatistics()
                groups.append(f"group {group} at block {statistics.height}")
            else:
                groups.append(f"group {group} is not ready: {health.reason}")
        return f"Serves {', '.join(groups)}"

    def _explain(self, failure: Failure) -> Failure:
        """Turn errors that an operator can mend into a L{StartError}."""
        if failure.check(DataDirectoryError, OperatorFileError, InvalidDescription):
            return Failure(StartError(str(failure.value)))
        return failure

    def _explainPort(self, failure: Failure, plan: PortPlan) -> Failure:
        # A UNIX socket's lock fails as such.
        if not failure.check(CannotListenError, OSError):
            return failure
        reason = getattr(failure.value, "socketError", failure.value)
        text = getattr(reason, "strerror", None) or str(reason)
        return Failure(StartError(listenRefusal(plan, text)))

    def _raiseFailure(self, pending: Deferred[Any]) -> None:
        """Raise the failure of C{pending}, if it has failed already."""
        failures: list[Failure] = []
        if pending.called and not pending.paused:
            pending.addErrback(failures.append)
        for failure in failures:
            if failure.check(StartError):
                self._dependencies.process.refuse(str(failure.value))
            failure.raiseException()

    def _failLater(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        if failure.check(StartError):
            self._fail(str(failure.value))
        else:
            _log.failure("The start failed", failure=failure)
            self._fail("the start failed for an unforeseen reason; see the log")

    # Stop

    def stopService(self) -> Deferred[None]:
        """
        Stop everything in order, within the configured time.

        @return: fires when everything has stopped, or when the time is over. Does not fail.
        """
        super().stopService()
        self._dependencies.manager.stopping()
        _log.info("Stopping")
        return self._stop().addErrback(self._stopFailed)

    @asDeferred
    async def _stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await self._starting
        await self._standing.aclose()
        _log.info("Stopped")

    def _stopFailed(self, failure: Failure) -> None:
        _log.failure("The stop failed", failure=failure)
        self._fail("the stop failed for an unforeseen reason; see the log")

    def _fail(self, message: str) -> None:
        self._dependencies.process.fail(message)

    async def _stopListening(self) -> None:
        stopping = {port.plan.name: port.stop() for port in self._ports}
        for name, pending in stopping.items():
            try:
                await self._within(pending, CLOSE_SHARE)
            except TimeoutError:
                _log.warn("The {name} port did not close in time", name=name)

    async def _stopReloader(self, reloader: CertificateReloader, thread: LedgerThread) -> None:
        self._reloader = None
        try:
            await self._within(reloader.stop(), CLOSE_SHARE)
        except TimeoutError:
            # Waiting for the thread would hang, too.
            _log.warn("The files of certificates are still being read")
        else:
            thread.stop()

    async def _drain(self, features: IFeatures) -> None:
        try:
            await self._within(features.drain(), DRAIN_SHARE)
        except TimeoutError:
            _log.warn("Some clients did not take their answers in time")

    async def _stopLedgers(self) -> None:
        # All at once; then wait for one after the other.
        stopping = {group: maybeDeferred(each.stop) for group, each in self._ledgers.items()}
        isHanging = False
        for group, pending in stopping.items():
            try:
                await self._within(pending, 1.0)
            except TimeoutError:
                isHanging = True
                self._fail(f"group {group} did not stop in time; answers may be lost")
            except Exception:
                _log.failure("Group {group} did not stop", group=group)
                self._fail(f"group {group} did not stop in order; see the log")
        if not isHanging:
            # A ledger that hangs would hang the end of its thread too.
            for thread in self._threads:
                thread.stop()
        if self._features is not None:
            for port in self._ports:
                port.factory.close()
            self._features.stop()

    async def _within(self, pending: Deferred[T], share: float) -> T:
        """
        Wait for a share of the time that is left.

        @raise TimeoutError: it took longer.
        """
        reactor = self._dependencies.reactor
        now = reactor.seconds()
        if self._deadline is None:
            self._deadline = now + self._plan.shutdownTimeout
        pending.addTimeout(max(0.0, self._deadline - now) * share, reactor)
        return await pending


TOKEN_SIZE: Final = 32
"""The number of unguessable bytes that prove an operator."""


def operatorUrl(address: str, basePath: str, endpoint: str) -> str:
    """
    The URL where this machine reaches HTTP, so that the other end sees a loopback address.

    @param address: where HTTP is listened on, C{host:port}.
    @param endpoint: the endpoint as the operator has written it.
    @return: the base address; empty where HTTP is on no loopback address.
    """
    host, _, port = address.rpartition(":")
    if host in {"[::]", "[::1]"}:
        host = "[::1]"
    elif host == "0.0.0.0":
        host = "127.0.0.1"
    elif not host.startswith("127."):
        return ""
    return f"{_schemeOf(endpoint)}://{host}:{port}{basePath}"


def consoleUrl(address: str, basePath: str, endpoint: str) -> str:
    """
    The URL of the console, for people at this machine; empty where HTTP has no address of its own.
    For the parameters see L{operatorUrl}.
    """
    if ":" not in address:
        return ""
    base = operatorUrl(address, basePath, endpoint)
    return f"{base or f'{_schemeOf(endpoint)}://{address}{basePath}'}/console"


def _schemeOf(endpoint: str) -> str:
    return "https" if endpoint.partition(":")[0] in TLS_TYPES else "http"


class OperatorFile:
    """
    The file in the data directory that says where a daemon is reached and what proves an operator.
    It is there while the daemon runs and holds the directory.

    @ivar token: what an operator has to show.
    """

    _log = Logger()

    def __init__(self, directory: Path, url: str, entropy: Callable[[int], bytes]) -> None:
        """
        @param directory: the data directory.
        @param url: the base address; empty where there is none.
        @param entropy: makes the token.
        """
        self.token = entropy(TOKEN_SIZE).hex()
        self._path = directory / OPERATOR_NAME
        self._url = url
        self._isWritten = False

    def start(self) -> Deferred[None]:
        """
        Write the file whole, for its owner only, in the place of an older one. The port is bound
        by now: who reads the file at once waits at most a moment.

        @raise OperatorFileError: it cannot be written.
        """
        made = self._path.with_name(OPERATOR_NAME + ".new")
        try:
            # One that a crash has left might have other rights.
            for path in (made, self._path):
                path.unlink(missing_ok=True)
            if not self._url:
                self._log.info("There is no operator.json: HTTP is on no loopback address")
                return succeed(None)
            with newFile(made) as file:
                file.write(json.dumps({"url": self._url, "token": self.token}).encode("utf-8"))
            made.replace(self._path)
            self._isWritten = True
        except OSError as error:
            raise OperatorFileError(
                f"data-dir: cannot write {self._path}: {error.strerror}"
            ) from error
        return succeed(None)

    def drain(self) -> Deferred[None]:
        """Remove the file, if it was written."""
        if self._isWritten:
            self._path.unlink(missing_ok=True)
        return succeed(None)
