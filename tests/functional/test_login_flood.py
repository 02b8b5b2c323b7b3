"""
Thousands of log-ins with wrong passwords at a time, and what they do to others.
"""

from __future__ import annotations

import resource
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol

from svcbroker.access import hashPassword

from .daemon import LOCAL, DaemonTestCase, reactor
from .test_hostile_load import INNOCENT, WARM_UP, WINDOWS, Wire

ATTEMPTS = 3_600
"""Log-ins at a time. The program that makes them, and the daemon, need as many open files."""

SPARE = 500
"""Files that a program opens beside."""

FLOOD = Path(__file__).with_name("flood.py")

LOG_INS = 5
"""Log-ins of a known account from another address during the flood."""

SERVED_BY = ATTEMPTS // 2
"""
How many attempts are answered when a log-in and a publish are that have come behind all of them. In
one turn of the reactor, nearly all would be refused before; the last ones wait for their checks.
"""


class LoginFloodTests(DaemonTestCase):
    async def test_attemptsHoldNobodyElse(self) -> None:
        self.allowFiles(ATTEMPTS + SPARE)
        file = self.root / "accounts.toml"
        roles = 'roles = ["publisher", "subscriber"]'
        hashes = {name: hashPassword(name.encode()) for name in ("ann", "bob")}
        file.write_text(
            "".join(
                f'[accounts.{name}]\npassword = "{hash}"\n{roles}\n'
                for name, hash in hashes.items()
            )
        )
        daemon = await self.start(
            *("--accounts", str(file), f"--stomp={LOCAL}", f"--mqtt={LOCAL}"),
        )
        ports = [daemon.base.split(":")[2].split("/")[0]]
        for name in ("STOMP", "MQTT"):
            ports.append((await daemon.protocol.waitFor(rf"{name} on 127\.0\.0\.1:(\d+)"))[1])
        headers: Any = {"Authorization": basic("bob")}
        await daemon.call("/rest/open", topic="innocent", headers=headers)
        # Its log-in is remembered: it is no guest of the queue.
        innocent = self.spawn(
            sys.executable, INNOCENT, ports[0], daemon.process.pid, "innocent", basic("bob")
        )
        await innocent.protocol.waitFor(rf"(?:.*\n){{{WARM_UP}}}")
        flood = self.spawn(sys.executable, FLOOD, ATTEMPTS, daemon.process.pid, *ports)
        for name in ("log-in", "publish"):
            served = await flood.protocol.waitFor(rf"{name} after (\d+)")
            self.assertLess(int(served[1]), SERVED_BY, name)
        # On a busy machine the flood may be over before all of these, which wait for each other.
        for _ in range(LOG_INS):
            await self.logIn(int(ports[1]), "ann")
        done = len(innocent.protocol.output.splitlines())
        await innocent.protocol.waitFor(rf"(?:.*\n){{{done + WINDOWS}}}")
        await flood.protocol.waitFor(f"answered {ATTEMPTS}")

    def allowFiles(self, count: int) -> None:
        """Let programs that are started from now on open so many files."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        if before[0] < count:
            if before[1] < count:
                raise SkipTest(f"a process may open {before[1]} files, and {count} are needed")
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)

    async def logIn(self, port: int, name: str) -> None:
        """Log in by STOMP from 127.0.0.2. None of these is remembered."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", port, bindAddress=("127.0.0.2", 0))
        wire: Wire = await connectProtocol(endpoint, Wire())
        wire.send(f"CONNECT\naccept-version:1.2\nlogin:{name}\npasscode:{name}\n\n\0".encode())
        await wire.receives(b"CONNECTED")
        wire.transport.loseConnection()


def basic(name: str) -> str:
    """The header of an account, whose password is its name."""
    return "Basic " + b64encode(f"{name}:{name}".encode()).decode()
