"""
A Python that has imported the broker, and forks a child for each program that it is to run.

L{.forking} runs this file. Its argument is the descriptor of the socket to which each request
makes a connection. It ends when its standard input does.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO

LIBRARIES = (
    "twisted.internet.default",
    "twisted.scripts.twistd",
    "svcbroker.tap",
    "svcbroker.ledgers.memory",
    "svcbroker.ledgers.pbft",
    "svcbroker.access.authenticators.mosquitto",
    "svcbroker.client",
    "svcbroker.commands.doctor",
    "svcbroker.commands.pub",
    "svcbroker.commands.reading",
    "svcbroker.commands.verify",
    "encodings.idna",
    "httpcore",
    "rich.console",
)
MAX_REQUEST = 1024 * 1024
REACTOR = "twisted.internet.reactor"


def importLibraries() -> None:
    """Import what programs take long to import, without the reactor, which no fork survives."""
    sys.modules[REACTOR] = ModuleType(REACTOR)
    for name in LIBRARIES:
        import_module(name)
    del sys.modules[REACTOR]
    gc.collect()
    gc.freeze()


def reap() -> None:
    """Wait for all children that have ended: only so is the time counted that they took."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve(listening: socket.socket) -> dict[str, Any]:
    """
    Fork a child for each request. It returns in the child, with the request.

    The files of a request are the standard ones of the child, and one to which the child's process
    identifier and exit status are written.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        waits: list[Any] = [listening, 0]
        ready, _, _ = select.select(waits, [], [])
        reap()
        if 0 in ready:
            os._exit(0)
        requests, _ = listening.accept()
        with requests:
            request, files, _, _ = socket.recv_fds(requests, MAX_REQUEST, 4)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    listening.close()
    *standard, report = files
    woken, waking = os.pipe()
    pid = os.fork()
    if pid:
        for file in standard:
            os.close(file)
        watch(pid, report, woken, waking)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for file in (report, woken, waking):
        os.close(file)
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    asked: dict[str, Any] = json.loads(request)
    return asked


def watch(pid: int, report: int, woken: int, waking: int) -> None:
    """
    Report a child and its end, and end. The child is killed once the report's reader has closed it.

    @param woken: the end of a pipe from which is read; C{waking} is the other one.
    """
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with suppress(BrokenPipeError):
        os.write(report, b"%d\n" % pid)
    ends = select.poll()
    ends.register(woken, select.POLLIN)
    ends.register(report, 0)
    status = None
    while status is None:
        ended, found = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = found
        elif any(file == report for file, _ in ends.poll()):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        else:
            os.read(woken, 100)
    with suppress(BrokenPipeError):
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def unbuffered(stream: TextIO) -> TextIO:
    """A stream to the same file, which keeps nothing back."""
    file = os.fdopen(stream.fileno(), "wb", buffering=0, closefd=False)
    return io.TextIOWrapper(file, stream.encoding, stream.errors, write_through=True)


def run(option: str, program: str, *arguments: str) -> None:
    """Do what Python does with these arguments."""
    if option == "-u":
        sys.stdout, sys.stderr = unbuffered(sys.stdout), unbuffered(sys.stderr)
        run(program, *arguments)
        return
    sys.path.insert(0, "")
    sys.argv = [option, *arguments]
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})


def end(status: int) -> None:
    """
    End as Python does, but without freeing what was imported: that takes as long as most commands.
    """
    python: Any = threading
    python._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    importLibraries()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    os.umask(asked["umask"])
    os.chdir(asked["path"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    try:
        run(*asked["arguments"])
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        end(ended.code or 0)
    end(0)
