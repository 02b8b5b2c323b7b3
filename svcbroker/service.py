"""
The daemon's one service: starts everything in order, and stops it in the reverse order.

Bind, lock the data directory, start the ledgers, let clients in. Then back: stop listening,
answer what was accepted, stop the ledgers, unlock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from attrs import field, frozen
from twisted.application.service import Service
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    TimeoutError,
    maybeDeferred,
    succeed,
)
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    ILoggingContext,
    IProtocol,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ._addresses import addressText
from ._datadir import DataDirectoryError, lockDataDirectory
from ._threads import LedgerThread
from .errors import BrokerError
from .interfaces import ILedger, LedgerContext

T = TypeVar("T")

_log = Logger()

CLOSE_SHARE = 0.2
"""The part of the time for a stop that the port has to close."""

DRAIN_SHARE = 0.5
"""The part of the time for a stop that clients have to take their answers."""


class StartError(Exception):
    """
    The daemon cannot start. The text is one line for the operator.
    """


class ICarrier(Protocol):
    """
    What serves clients once the ledgers stand.

    @ivar factory: makes a protocol for each connection.
    """

    @property
    def factory(self) -> Any: ...

    def start(self) -> Deferred[Any]:
        """Begin, before clients are let in. Who fails leaves nothing behind."""

    def drain(self) -> Deferred[Any]:
        """Answer what was accepted, then close; fires when that is done."""

    def stop(self) -> None:
        """Let go of everything, after the ledgers have stopped."""


class IProcess(Protocol):
    """
    What the service may do to the process that it lives in.
    """

    def handleSignals(self) -> None:
        """From now on, signals end the process in order."""

    def started(self, announce: Callable[[], None]) -> None:
        """Everything stands. Calls C{announce} once the reactor runs."""

    def refuse(self, message: str) -> None:
        """A L{StartError} with this text is about to be raised: see that it is told in a line."""

    def fail(self, message: str) -> None:
        """Tell the operator in one line, and end the process with a status that says so."""


@frozen(kw_only=True)
class GroupPlan:
    """
    A group to be served.

    @ivar id: its id.
    @ivar kind: the name of its kind of ledger, for the log.
    @ivar makeLedger: makes its ledger.
    """

    id: str
    kind: str
    makeLedger: Callable[[LedgerContext], ILedger]


@frozen(kw_only=True)
class Plan:
    """
    What the service is to do.

    @ivar dataDir: the data directory.
    @ivar endpoint: where to listen; C{None} listens nowhere.
    @ivar endpointText: the endpoint as the operator wrote it.
    @ivar basePath: the context path, for the log.
    @ivar groups: the groups to serve.
    @ivar maxContent: the largest content of an event in bytes.
    @ivar shutdownTimeout: how long a stop may take, in seconds.
    @ivar version: the version, for the log.
    """

    dataDir: Path
    endpoint: IStreamServerEndpoint | None
    endpointText: str
    basePath: str
    groups: Sequence[GroupPlan]
    maxContent: int
    shutdownTimeout: float
    version: str


@frozen(kw_only=True)
class World:
    """
    What comes from outside the program.

    @ivar reactor: the reactor.
    @ivar now: the wall clock, seconds since the epoch.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar process: the process.
    @ivar makeThread: makes the thread of a ledger, given the reactor and a name.
    """

    reactor: Any
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    process: IProcess
    makeThread: Callable[[Any, str], LedgerThread] = field(default=LedgerThread)


@implementer(IProtocolFactory, ILoggingContext)
class Door:
    """
    Stands in front of a carrier: nobody gets in before it is opened.
    """

    def __init__(self) -> None:
        self._factory: Any = None

    def logPrefix(self) -> str:
        """What the port calls itself in the log."""
        return "HTTP"

    def doStart(self) -> None:
        """The port listens. The carrier starts when the door opens."""

    def doStop(self) -> None:
        """The port listens no more. The carrier is still answering."""

    def open(self, factory: Any) -> None:
        """Let clients in to C{factory}."""
        factory.doStart()
        self._factory = factory

    def close(self) -> None:
        """Stop the factory. Called once, after L{open}."""
        self._factory.doStop()

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:
        """See C{IProtocolFactory}."""
        if self._factory is None:
            return None
        protocol: IProtocol | None = self._factory.buildProtocol(addr)
        return protocol


class BrokerService(Service):
    """
    The broker as twistd runs it.

    @ivar address: where HTTP is served, C{host:port}, as it was really bound; empty before and
        without.
    """

    def __init__(
        self,
        plan: Plan,
        world: World,
        makeCarrier: Callable[[Mapping[str, ILedger], str], ICarrier],
    ) -> None:
        """
        @param makeCarrier: given the started ledgers and L{address}, makes what serves clients.
        """
        self.address = ""
        self._plan = plan
        self._world = world
        self._makeCarrier = makeCarrier
        self._door = Door()
        self._listening: Deferred[IListeningPort] | None = None
        self._starting: Deferred[None] | None = None
        self._ledgers: dict[str, ILedger] = {}
        self._threads: list[LedgerThread] = []
        self._carrier: ICarrier | None = None
        self._standing = AsyncExitStack()
        self._deadline: float | None = None

    # Start

    def privilegedStartService(self) -> None:
        """
        Bind the port, before twistd gives up its privileges. Nobody is served yet.

        @raise StartError: the port cannot be had.
        """
        super().privilegedStartService()
        if self._plan.endpoint is not None:
            self._listening = self._plan.endpoint.listen(self._door)
            self._listening.addCallbacks(_pause, self._explain)
            self._raiseFailure(self._listening)

    def startService(self) -> None:
        """
        Do the rest. What goes wrong before the reactor runs is raised; what goes wrong later
        ends the process.

        @raise StartError: the daemon cannot start.
        """
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._explain)
        self._raiseFailure(self._starting)
        # A signal before this ends the process at once, which is as well: nobody was served.
        self._world.process.handleSignals()
        self._starting.addErrback(self._failLater)

    async def _start(self) -> None:
        async with AsyncExitStack() as stack:
            # What is pushed last is undone first.
            stack.callback(self._abandonPort)
            stack.callback(lockDataDirectory(self._plan.dataDir).release)
            stack.push_async_callback(self._stopLedgers)
            for group in self._plan.groups:
                self._ledgers[group.id] = await self._startLedger(group)
            port = None if self._listening is None else await self._listening
            if port is not None:
                self.address = addressText(port.getHost())
            carrier = self._makeCarrier(self._ledgers, self.address)
            await carrier.start()
            self._carrier = carrier
            stack.push_async_callback(self._drain, carrier)
            self._door.open(carrier.factory)
            stack.push_async_callback(self._stopListening)
            if port is not None:
                _resume(port)
                self._listening = succeed(port)
            self._standing = stack.pop_all()
        self._world.process.started(self._announce)

    async def _startLedger(self, group: GroupPlan) -> ILedger:
        world = self._world
        thread = world.makeThread(world.reactor, f"ledger-{group.id}")
        ledger = group.makeLedger(
            LedgerContext(
                group=group.id,
                directory=self._plan.dataDir / group.id,
                reactor=world.reactor,
                now=world.now,
                entropy=world.entropy,
                runInThread=thread.run,
                maxContent=self._plan.maxContent,
            )
        )
        try:
            await ledger.start()
        except BrokerError as error:
            thread.stop()
            raise StartError(f"group {group.id}: {error.message}") from error
        self._threads.append(thread)
        return ledger

    def _announce(self) -> None:
        groups = ", ".join(f"{group.id} on {group.kind}" for group in self._plan.groups)
        _log.info(
            "svcbroker {version} serves {http}{basePath}, data in {dataDir}, groups: {groups}",
            version=self._plan.version,
            http=self.address or "nothing",
            basePath=self._plan.basePath if self.address else "",
            dataDir=str(self._plan.dataDir.absolute()),
            groups=groups,
        )

    def _explain(self, failure: Failure) -> Failure:
        """What an operator can do something about becomes a L{StartError}."""
        if failure.check(CannotListenError):
            reason = getattr(failure.value, "socketError", None)
            text = getattr(reason, "strerror", None) or str(reason)
            return Failure(StartError(f"http: cannot listen on {self._plan.endpointText}: {text}"))
        if failure.check(DataDirectoryError):
            return Failure(StartError(str(failure.value)))
        return failure

    def _raiseFailure(self, pending: Deferred[Any]) -> None:
        """Raise what C{pending} has failed with already, if it has."""
        failures: list[Failure] = []
        if pending.called and not pending.paused:
            pending.addErrback(failures.append)
        for failure in failures:
            if failure.check(StartError):
                self._world.process.refuse(str(failure.value))
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
        Stop all of it, in order, within the time that the configuration gives.

        @return: fires when everything stands still, or when the time is over. Does not fail.
        """
        super().stopService()
        _log.info("Stopping")
        return Deferred.fromCoroutine(self._stop()).addErrback(self._stopFailed)

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
        self._world.process.fail(message)

    def _abandonPort(self) -> None:
        """
        Close the port where it still is open, since the start failed. Does not wait, so that a
        failure before the reactor runs can be raised then.
        """
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.addCallback(lambda port: port.stopListening())
            listening.addErrback(lambda failure: _log.failure("The port did not close", failure))

    async def _stopListening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.addCallback(lambda port: port.stopListening())
        try:
            await self._within(listening, CLOSE_SHARE)
        except TimeoutError:
            _log.warn("The port did not close in time")

    async def _drain(self, carrier: ICarrier) -> None:
        try:
            await self._within(carrier.drain(), DRAIN_SHARE)
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
            # Whatever hangs in a ledger would hang its thread's end too.
            for thread in self._threads:
                thread.stop()
        if self._carrier is not None:
            self._door.close()
            self._carrier.stop()

    async def _within(self, pending: Deferred[T], share: float) -> T:
        """
        Wait for a share of the time that is left.

        @raise TimeoutError: it took longer.
        """
        reactor = self._world.reactor
        now = reactor.seconds()
        if self._deadline is None:
            self._deadline = now + self._plan.shutdownTimeout
        pending.addTimeout(max(0.0, self._deadline - now) * share, reactor)
        return await pending


def _pause(port: IListeningPort) -> IListeningPort:
    # Who connects now waits in the kernel's queue. A port of another kind has the closed door.
    if isinstance(port, FileDescriptor):
        port.stopReading()
    return port


def _resume(port: IListeningPort) -> None:
    if isinstance(port, FileDescriptor):
        port.startReading()
