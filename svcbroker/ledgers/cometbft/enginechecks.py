"""
The engine's program, where it is found, and the checks of an engine's home that C{svcbroker doctor}
asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from ...files import readFile
from ...net.addresses import isLoopback
from ...net.findings import Finding, good, problem, warning
from ._home import SOCKET

ENGINE_VARIABLE: Final = "SVCBROKER_COMETBFT"
"""The variable of the environment that says where the engine is."""

VERSIONS: Final = "0.38."
"""The beginning of the versions of engines that this broker speaks with."""

_TIMEOUT = 20.0
_HOW = (
    "build it (tools/engines/build in a checkout of svcbroker, or: go install "
    "github.com/cometbft/cometbft/cmd/cometbft@v0.38.25), and say where it is with --engine or "
    f"in {ENGINE_VARIABLE}"
)
_UNIX: Final = "unix://"


class EngineNotFound(Exception):
    """There is no program of the engine, or it is of a version that we do not know."""


def findEngine(given: str | None, environment: Mapping[str, str]) -> Path:
    """
    The engine's program: what was given, what the environment names, or C{cometbft} on the path.

    @param given: what stands on the command line.
    @raise EngineNotFound: there is none, or it is of a version that we do not know.
    """
    named = given or environment.get(ENGINE_VARIABLE)
    path = shutil.which(named or "cometbft", path=environment.get("PATH", os.defpath))
    if path is None:
        there = f"{named} is no program" if named else "there is no cometbft on the PATH"
        raise EngineNotFound(f"{there}: {_HOW}")
    try:
        asked = subprocess.run(
            [path, "version"],
            capture_output=True,
            timeout=_TIMEOUT,
            env={"HOME": os.devnull},
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineNotFound(f"{path} does not tell its version: {error}") from None
    version = asked.stdout.decode("ascii", "replace").strip()
    if not version.removeprefix("v").startswith(VERSIONS):
        raise EngineNotFound(f"{path} is of version {version[:40]!r}, not {VERSIONS}x: {_HOW}")
    return Path(path).absolute()


@frozen(kw_only=True)
class EngineFacts:
    """
    Facts about a group's CometBFT engine.

    @ivar home: its home directory.
    @ivar error: why the home cannot be used; empty where it can.
    @ivar programError: what is wrong with its program; empty where nothing is, or where the
        broker does not run it.
    @ivar readableKeys: files of its private keys that others than their owner may read.
    @ivar rpc: where its RPC listens, as its configuration has it.
    @ivar application: where it looks for the broker, as its configuration has it.
    @ivar socket: where the broker listens for it.
    """

    group: str
    home: Path
    error: str = ""
    programError: str = ""
    readableKeys: Sequence[Path] = ()
    rpc: str = ""
    application: str = ""
    socket: str = ""


def checkEngine(facts: EngineFacts) -> Iterator[Finding]:
    """Check whether the engine of a group can run, and whether its keys are safe."""
    subject = f"engine of group {facts.group}"
    found = list(_findEngine(facts, subject))
    yield from found or [good(subject, f"its home is {facts.home}")]


def _findEngine(facts: EngineFacts, subject: str) -> Iterator[Finding]:
    if facts.error:
        yield problem(
            subject,
            facts.error,
            "the engine does not start, and the group has no blocks",
            "give its home=; a new one is made by: svcbroker net engine init, or join "
            "(docs/cometbft)",
        )
        return
    if facts.programError:
        yield problem(
            subject,
            facts.programError,
            "the engine does not start, or speaks another protocol than the broker",
            "build it (docs/cometbft), and give engine=",
        )
    for path in facts.readableKeys:
        yield problem(
            subject,
            f"others than its owner may read {path}",
            "with the validator's key one can vote twice in its name",
            f"chmod go= {path}",
        )
    if facts.application != facts.socket:
        yield problem(
            subject,
            f"it looks for the broker at {facts.application}, and the broker listens on "
            f"{facts.socket}",
            "the engine ends again and again, and the group has no blocks",
            f'proxy_app = "{facts.socket}" in {facts.home / "config/config.toml"}, or socket= in '
            "--ledger",
        )
    host = facts.rpc.removeprefix("tcp://").rpartition(":")[0]
    if facts.rpc.startswith("tcp://") and not isLoopback(host.strip("[]")):
        yield warning(
            subject,
            f"its RPC listens on {facts.rpc}",
            "every program that reaches it can submit transactions and slow the engine down",
            f'laddr = "tcp://127.0.0.1:26657" in [rpc] of {facts.home / "config/config.toml"}',
        )


def readEngineFacts(group: str, settings: Mapping[str, str]) -> EngineFacts:
    """Look at the program of a group's engine, and at its home."""
    home, program = Path(settings.get("home", "")), settings.get("engine")
    config, programError = home / "config/config.toml", ""
    try:
        if program is not None:
            findEngine(program, os.environ)
    except EngineNotFound as error:
        programError = str(error)
    try:
        engine = tomllib.loads(readFile(config).decode("utf-8"))
        rpc, application = str(engine["rpc"]["laddr"]), str(engine["proxy_app"])
        if application.startswith(_UNIX):
            application = _socketAt(Path(application.removeprefix(_UNIX)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is no configuration of CometBFT"
        return EngineFacts(group=group, home=home, error=f"{config} cannot be read: {reason}")
    keys = [home / "config" / name for name in ("priv_validator_key.json", "node_key.json")]
    return EngineFacts(
        group=group,
        home=home,
        programError=programError,
        readableKeys=[path for path in keys if path.exists() and path.stat().st_mode & 0o077],
        rpc=rpc,
        application=application,
        socket=_socketAt(Path(settings.get("socket", home / SOCKET))),
    )


def _socketAt(path: Path) -> str:
    """A socket in the engine's notation, the same for each path that leads to it."""
    return f"{_UNIX}{path.resolve()}"
