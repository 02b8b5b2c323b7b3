"""
Processes in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.net.processes import IProcessReactor


class FakeProcess:
    """
    The transport of a process in memory.
    """

    pid = 4711

    def __init__(self, child: Any, arguments: Sequence[str]) -> None:
        self.child = child
        self.arguments = list(arguments)
        self.signals: list[str] = []
        self.isStdinOpen = True
        self.hasExited = False

    def closeStdin(self) -> None:
        """See C{IProcessTransport}."""
        self.isStdinOpen = False

    def signalProcess(self, name: str) -> None:
        """See C{IProcessTransport}."""
        if self.hasExited:
            raise ProcessExitedAlready
        self.signals.append(name)

    def end(self, status: int | None = 1, signal: int | None = None) -> None:
        """The process ends."""
        error = ProcessTerminated(status, signal) if status or signal else ProcessDone(0)
        self.child.processEnded(Failure(error))


@implementer(IProcessReactor)
class FakeReactor(Clock):
    """
    A clock that also makes processes in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[FakeProcess] = []
        self.options: list[Mapping[str, Any]] = []
        self.error: OSError | None = None

    def spawnProcess(
        self,
        processProtocol: Any,
        executable: Any,
        args: Any = (),
        env: Any = None,
        path: Any = None,
        uid: Any = None,
        gid: Any = None,
        usePTY: Any = 0,
        childFDs: Any = None,
    ) -> IProcessTransport:
        """See C{IReactorProcess}."""
        if self.error is not None:
            raise self.error
        process: Any = FakeProcess(processProtocol, args)
        self.processes.append(process)
        self.options.append({"env": env, "path": path, "executable": executable})
        processProtocol.makeConnection(process)
        transport: IProcessTransport = process
        return transport
