"""
The processes that a benchmark starts: where they run, what they use, and that none is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import clock_gettime, perf_counter, sleep
from types import FrameType

CHECKOUT = Path(__file__).resolve().parent.parent
START_SECONDS = 90.0
"""How long a server may take until it listens."""
STOP_SECONDS = 60.0
"""How long it may take to end."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_CHILD_SUBREAPER = 36
_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LAST_CHANCE = 5.0


class Missing(Exception):
    """Something cannot be measured here. The text says why, and what to do."""


def separateCores() -> tuple[set[int], set[int]]:
    """
    The processors for the servers and for the load: one each where there are two or more.
    """
    cores = sorted(os.sched_getaffinity(0))
    return ({cores[0]}, {cores[-1]}) if len(cores) > 1 else (set(cores), set(cores))


def start(
    command: Sequence[str | Path],
    directory: Path,
    cores: set[int],
    extra: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """
    Start a process in a session of its own; what it says goes to C{log} in its directory.

    @param directory: where it runs; made where it is not there.
    @param cores: the processors that it may use.
    @param extra: what its environment has besides ours.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    with (directory / "log").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": path, **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


def stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End processes with all that is in their sessions, the one that was started last first."""
    for process in reversed(processes):
        _signal(process, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def familyOf(pids: Sequence[int]) -> Sequence[int]:
    """Processes and all that descend from them."""
    found = list(pids)
    for pid in found:
        with suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text("ascii").split())
    return found


def cpuOf(pid: int) -> float:
    """Seconds of processor time that a process has used, all its threads together."""
    # The clock of clock_getcpuclockid(3), which Python does not have: /proc counts in 10 ms.
    return clock_gettime(~pid << 3 | 2)


def memoryOf(pid: int) -> int:
    """Bytes of memory that a process has for itself now."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE


def busyOf(cores: set[int]) -> float:
    """Seconds for which some processors have been busy, whoever it was with."""
    total = 0
    for line in Path("/proc/stat").read_text("ascii").splitlines():
        name, _, rest = line.partition(" ")
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            ticks = [int(field) for field in rest.split()[:8]]
            total += sum(ticks) - ticks[3] - ticks[4]
    return total / _TICKS


def freePorts(count: int) -> Sequence[int]:
    """Ports where nothing listens, for servers that cannot say which one they were given."""
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()
    return ports


def awaitPorts(
    processes: Sequence[subprocess.Popen[str]], ports: Sequence[int], directory: Path
) -> None:
    """
    Wait until something listens everywhere.

    @param directory: where their log is.
    @raise Missing: it does not come to that; the processes have ended then.
    """
    deadline = perf_counter() + START_SECONDS
    waiting = list(ports)
    while waiting:
        try:
            socket.create_connection(("127.0.0.1", waiting[-1]), 1.0).close()
            waiting.pop()
            continue
        except OSError:
            sleep(0.05)
        if perf_counter() > deadline or any(each.poll() is not None for each in processes):
            for process in processes:
                _signal(process, signal.SIGKILL)
            log = (directory / "log").read_text("utf-8", "replace")
            raise Missing(f"it does not start: {log[-500:]}")


class Ended(Exception):
    """A signal ends the run. The text says which."""


@contextmanager
def household() -> Iterator[None]:
    """
    Leave no process behind: whatever happens inside, also SIGTERM, SIGINT and SIGHUP, all that
    descends from this process has ended when it is over.

    @raise Ended: a signal came.
    """
    # Whatever loses its parent becomes our child, so that it is found at the end.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def end(number: int, frame: FrameType | None) -> None:
        for each in _ENDINGS:
            signal.signal(each, signal.SIG_IGN)
        raise Ended(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in _ENDINGS}
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        _endDescendants()
        for number, handler in before.items():
            signal.signal(number, handler)


def _endDescendants() -> None:
    deadline = perf_counter() + _LAST_CHANCE
    while (left := familyOf([os.getpid()])[1:]) and perf_counter() < 2 * _LAST_CHANCE + deadline:
        number = signal.SIGTERM if perf_counter() < deadline else signal.SIGKILL
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        sleep(0.1)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    if left:
        print(f"processes that do not end: {left}", file=sys.stderr)
