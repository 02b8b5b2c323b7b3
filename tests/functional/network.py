"""
C{svcbroker} commands as child processes, and networks of real engines that they make.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.defer import Deferred

from tests.directories import shortDirectory
from tests.ledgers.cometbft.realengine import cometbft

from .daemon import RUN, TIMEOUT, Daemon, DaemonTestCase, until

READY = r"nodes are ready"
_COMMANDS = ("-m", "svcbroker.commands")


def commandLines() -> Iterator[tuple[int, bytes]]:
    """The identifier and the command line of each process. Those that end meanwhile have none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        yield int(path.parent.name), words


def processesOf(directory: Path) -> list[str]:
    """The command lines of all processes that name a directory."""
    lines = [words for process, words in commandLines() if process != os.getpid()]
    texts = [words.replace(b"\0", b" ").decode("utf-8", "replace") for words in lines]
    return [text for text in texts if str(directory) in text]


class NetworkTestCase(DaemonTestCase):
    """
    A test of networks. What is still running at its end is killed.

    @cvar areBrokersForked: whether the brokers of a test network are forked, too. A test of their
        processes as such says no.
    """

    areBrokersForked = True

    timeout = 4 * TIMEOUT

    def setUp(self) -> None:
        super().setUp()
        self.engine = cometbft()
        self.directory = shortDirectory(self)
        self.environment["SVCBROKER_COMETBFT"] = self.engine

    async def command(self, *arguments: object, code: int = 0) -> str:
        """What a command writes; where it fails, its line of complaint."""
        status, output, errors = await self.outcomeOf(*arguments)
        self.assertEqual(status, code, (output, errors))
        told = errors if code else output
        self.assertEqual(told.count("\n") if code else 1, 1, told)
        return told

    async def startNetwork(self, *arguments: object) -> Daemon:
        """A test network that is ready; its first broker is what is called."""
        arguments = ("testnet", *arguments, self.directory / "net")
        program = ("-c", self.forkingBrokers()) if self.areBrokersForked else _COMMANDS
        # After all of it was told to end.
        self.addCleanup(self.gone)
        network = self.spawn(sys.executable, *program, *arguments)
        await network.protocol.waitFor(READY)
        network.base = self.base(0)
        return network

    def forkingBrokers(self) -> str:
        """The script of C{svcbroker}, with a C{twistd} beside its Python that forks brokers."""
        python = self.directory / "bin" / "python"
        if not python.exists():
            python.parent.mkdir()
            python.symlink_to(sys.executable)
            twistd = python.with_name("twistd")
            twistd.write_text(f'#!/bin/sh\nexec {self.python()} -c {shlex.quote(RUN)} "$@"\n')
            twistd.chmod(0o755)
        return (
            f"import sys; sys.executable = {str(python)!r}; "
            "from svcbroker.commands.commandline import main; main()"
        )

    def gone(self) -> Deferred[None]:
        """Fires when no process of the network is left."""
        return Deferred.fromCoroutine(until(lambda: processesOf(self.directory) == []))

    def node(self, number: int) -> Path:
        """The directory of a node of the test network."""
        return self.directory / "net" / f"node{number}"

    def brokerOf(self, number: int) -> int:
        """The process of a broker of the test network."""
        option = f"--config={self.node(number)}".encode()
        [process] = [process for process, words in commandLines() if option in words]
        return process

    def port(self, number: int, offset: int = 0) -> int:
        """A port of a node of the test network."""
        record = json.loads((self.directory / "net" / "testnet.json").read_text())
        first: int = record["basePort"]
        return first + 10 * number + offset

    def base(self, number: int) -> str:
        """The base address of a broker of the test network."""
        return f"http://127.0.0.1:{self.port(number)}/svcbroker"
