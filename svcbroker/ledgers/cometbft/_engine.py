"""
An engine as the broker's child process: its start, its end, its state in words, and its log; where
its program is found; and the checks of its home that C{svcbroker doctor} asks for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger, LogLevel

from ...files import readFile
from ...net.addresses import isLoopback
from ...net.findings import Finding, good, problem, warning
from ...net.processes import IProcessReactor, ProcessEnd, ProcessLimits, Supervisor
from ._home import SOCKET
from .abci import removeSocket

MAX_LINE: Final = 16 * 1024
"""Bytes of a line; what is longer comes in pieces. A trace of a crash is one line."""

# I[2026-11-20|16:30:09.277] Generated private validator      module=main keyFile=...
_LINE: Final = re.compile(r"([DIE])\[[^\]]*\] (.*)", re.DOTALL)
_MODULE: Final = re.compile(r" module=(\S+)")
_LEVELS: Final = {"D": "debug", "I": "info", "E": "error"}
# These modules log errors whenever a peer disconnects.
_PEERS: Final = frozenset({"p2p", "blocksync"})
# What an engine says of each broker that looks whether it is there.
_PROBED: Final = re.compile('Inbound Peer rejected .*err="auth failure: secret conn failed: EOF"')
# How the last line of a crash begins.
_ALARMS: Final = ("ERROR:", "panic:")
_FATAL: Final = "CONSENSUS FAILURE!!!"


@frozen(kw_only=True)
class LogLine:
    """
    @ivar level: C{debug}, C{info}, C{error}; C{warn} for an error that a peer may have made.
    @ivar text: the rest, without the time.
    @ivar module: the engine's module; empty where that is not known.
    @ivar isFatal: whether the engine has stopped taking part in consensus.
    """

    level: str
    text: str
    module: str = ""
    isFatal: bool = False


def readLine(text: str, *, isError: bool) -> LogLine:
    """
    Read a line of the plain format.

    @param isError: whether it came on the standard error, where only crashes write; it counts
        where the line has no level of its own.
    """
    found = _LINE.fullmatch(text)
    if found is None:
        isError = isError or text.startswith(_ALARMS)
        return LogLine(level="error" if isError else "info", text=text)
    # The message is padded with blanks, so that what follows stands in a column.
    message, gap, values = found[2].partition(" module=")
    said = message.rstrip(" ") + gap + values.rstrip(" ")
    module = _MODULE.search(gap + values)
    level = _LEVELS[found[1]]
    name = "" if module is None else module[1]
    if level == "error" and name in _PEERS:
        level = "warn"
    elif _PROBED.match(said):
        level = "debug"
    return LogLine(
        level=level,
        text=said,
        module=name,
        isFatal=level == "error" and message.startswith(_FATAL),
    )


def shortened(text: str, most: int) -> str:
    """
    The first words of a text, with an ellipsis where it has more than so many characters.
    """
    if len(text) <= most:
        return text
    words, _, _ = text[: most + 1].rpartition(" ")
    # A single word that is so long is cut all the same.
    return f"{words if len(words) > most // 2 else text[:most]} ..."


class LineSplitter:
    """
    Cuts what comes into lines of bounded length.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Take bytes; the lines that end in them, and pieces of one that is too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > MAX_LINE:
            lines.append(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]
        return [
            piece.decode("utf-8", "replace")
            for line in lines
            for piece in _pieces(line.rstrip(b"\r"))
        ]

    def rest(self) -> list[str]:
        """The bytes since the last line."""
        return self.feed(b"\n") if self._rest else []


def _pieces(line: bytes) -> list[bytes]:
    """A line cut into pieces of at most L{MAX_LINE}; none of an empty one."""
    return [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)]


CONNECTIONS: Final = 4
"""Connections that an engine has with its application: consensus, mempool, query, snapshots."""

LIMITS: Final = ProcessLimits(
    firstDelay=0.5, maxDelay=30.0, jitter=0.2, steady=60.0, endTimeout=10.0
)

BROKEN_ENDS: Final = 3
"""Ends in a row after which an engine is not expected to come back by itself."""

SETTLED: Final = 5.0
"""Seconds of life after which an engine that had ended so often is trusted again."""

MAX_REASON: Final = 1000
"""Characters of the engine's error that are repeated in a reason, in whole words."""

_FAILURES: Final = ("ERROR:", "panic:")
_FULL: Final = "no space left on device"
_ADVICE: Final = (
    (
        "is higher than core",
        "the engine has lost blocks that the broker has: put its data back, or move the group's "
        "ledger.sqlite away, and the node fetches both again",
    ),
    (
        _FULL,
        "free some space on the disk of the engine's home; the engine goes on then",
    ),
    (
        "panic:",
        "the engine's data may be damaged: remove its data directory except "
        "priv_validator_state.json, move the group's ledger.sqlite away, and the node fetches both "
        "again",
    ),
)
"""Remedies, by a part of the engine's error."""

_log = Logger()


class EngineState(Enum):
    """The state of an engine's process."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    WAITING = "waiting"


class Engine:
    """
    Keeps an engine running.

    It is running while it has a process, and all its connections with the application:
    L{connectionsChanged} is to be told of them. An engine that has lost one ends by itself; one
    that does not is ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        reactor: IProcessReactor,
        entropy: Callable[[], float],
        limits: ProcessLimits = LIMITS,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        sockets: Sequence[Path] = (),
        changed: Callable[[EngineState], object] = lambda state: None,
    ) -> None:
        """
        @param command: the path of the program, and its arguments.
        @param entropy: gives numbers from 0 to 1.
        @param environment: of the child; empty by default.
        @param directory: that the child works in.
        @param sockets: that it listens on. It does not start while those exist which it left when
            it was killed, so they are removed before.
        @param changed: told the state when it is another one.
        """
        self._process = Supervisor(
            "the engine",
            command,
            clock=reactor,
            limits=limits,
            launch=self._launch,
            output=self._outputReceived,
            ended=self._processEnded,
            changed=self._processChanged,
            random=entropy,
        )
        self._reactor = reactor
        self._endTimeout = limits.endTimeout
        self._environment = dict(environment or {})
        self._directory = directory
        self._sockets = list(sockets)
        self._changed = changed
        self._told = EngineState.STOPPED
        self._connections = 0
        self._wasConnected = False
        self._startedAt = 0.0
        self._error = ""
        self._errorAt = -1.0
        self._errorRank = 0
        self._watch: IDelayedCall | None = None
        self._output = LineSplitter()
        self._errors = LineSplitter()

    @property
    def state(self) -> EngineState:
        """The state of the process."""
        if not self._process.isRunning:
            isStopped = self._process.startsIn is None
            return EngineState.STOPPED if isStopped else EngineState.WAITING
        if self._process.isEnding:
            return EngineState.ENDING
        isConnected = self._connections >= CONNECTIONS
        return EngineState.RUNNING if isConnected else EngineState.STARTING

    @property
    def reason(self) -> str:
        """The reason for which it is not running, in words for an operator; empty where it is."""
        state = self.state
        if state is EngineState.RUNNING:
            return ""
        if state is EngineState.STOPPED:
            return "the engine is stopped"
        if state is EngineState.ENDING:
            return "the engine is ending"
        ends, left = self._process.ends, self._process.startsIn
        often = "once" if ends == 1 else f"{ends} times"
        ended = f"the engine has ended {often}, at last {self._process.lastEnd}" if ends else ""
        if ended and self._error:
            ended = f"{ended} ({self._error})"
        if left is not None:
            return f"{ended}; next start in {left:.1f} s"
        if self._wasConnected:
            return "the engine has lost the application"
        return f"{ended}; it is starting" if ended else "the engine is starting"

    @property
    def failure(self) -> str:
        """
        The reason for which the engine does not come back by itself; empty if it runs or may come
        back.
        """
        lives = self._reactor.seconds() - self._startedAt
        if self._process.ends < BROKEN_ENDS:
            return ""
        # A clock that was set back takes nothing from its life.
        if self.state is EngineState.RUNNING and not 0 <= lives < SETTLED:
            return ""
        advice = next((advice for sign, advice in _ADVICE if sign in self._error), "")
        reason = self.reason or "the engine has just been started again"
        return f"{reason}: {advice}" if advice else reason

    @property
    def pid(self) -> int | None:
        """The number of its process, where there is one."""
        return self._process.pid

    def start(self) -> None:
        """
        Start it, and start it again whenever it ends. The application should be listening.
        """
        self._process.start()

    def stop(self) -> Deferred[None]:
        """
        End it, in order if it can.

        @return: fires when there is no process any more.
        """
        return self._process.stop()

    def connectionsChanged(self, count: int) -> None:
        """
        The application has more connections than before, or less.
        """
        self._connections = count
        if count >= CONNECTIONS:
            self._wasConnected = True
            self._unwatch()
        elif self._wasConnected and self._process.isRunning and self._watch is None:
            # It sees that too, and ends by itself.
            self._watch = self._reactor.callLater(self._endTimeout, self._lost)
        self._tell()

    def _restart(self, why: str) -> None:
        """End it because it is of no use; it is started again as if it had ended by itself."""
        if self._process.isRunning and not self._process.isEnding:
            _log.error("The engine is ended: {why}", why=why)
            self._process.end()

    def _lost(self) -> None:
        self._watch = None
        self._restart("it has lost the application, and did not end by itself")

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _launch(self, child: ProcessProtocol, program: str, arguments: Sequence[str]) -> None:
        self._wasConnected = False
        self._startedAt = self._reactor.seconds()
        for path in self._sockets:
            removeSocket(path)
        transport = self._reactor.spawnProcess(
            child,
            program,
            arguments,
            env=self._environment,
            path=None if self._directory is None else str(self._directory),
        )
        transport.closeStdin()

    def _outputReceived(self, data: bytes, isError: bool) -> None:
        self._logLines((self._errors if isError else self._output).feed(data), isError)

    def _processEnded(self, end: ProcessEnd) -> None:
        self._logLines(self._output.rest(), False)
        self._logLines(self._errors.rest(), True)
        self._unwatch()

    def _processChanged(self) -> None:
        if self.state is EngineState.WAITING:
            _log.error("{reason}", reason=self.reason)
        self._tell()

    def _tell(self) -> None:
        state = self.state
        if state is not self._told:
            self._told = state
            self._changed(state)

    def _logLines(self, lines: Sequence[str], isError: bool) -> None:
        for text in lines:
            self._logLine(readLine(text, isError=isError))

    def _logLine(self, line: LogLine) -> None:
        # One that is told to end finds its own connections closed, and calls that errors.
        isHarmless = self._process.isEnding and line.level in ("warn", "error")
        level = "info" if isHarmless and not line.isFatal else line.level
        _log.emit(LogLevel.levelWithName(level), "{text}", text=line.text, module=line.module)
        if level == "error":
            self._noteError(line.text)
        if line.isFatal:
            # It lives on, and decides nothing any more.
            self._restart("it has given up consensus")

    def _noteError(self, text: str) -> None:
        """
        Keep the engine's first error since its start, or the one that it has ended with; a full
        disk before all others, which follow from it.
        """
        if _FULL in text:
            text, rank = f"the disk is full: {text}", 2
        else:
            rank = int(text.startswith(_FAILURES))
        if self._errorAt != self._startedAt or rank > self._errorRank:
            self._error = shortened(text, MAX_REASON)
            self._errorAt, self._errorRank = self._startedAt, rank


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
