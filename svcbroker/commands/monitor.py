"""
C{svcbroker proof monitor}: follows a log from outside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
import httpx

from ..chain import Malformed
from ..client._httpx import makeContext
from ..client._requests import authorization, checkUrl
from ..files import readFile, writeNew
from ..proofs.tlog import (
    MAX_NOTE_SIZE,
    FetchFailed,
    LogContradiction,
    LogMonitor,
    LogReport,
    Note,
    Policy,
)
from ..storage import writeFile
from .arguments import FILE, Decimal, jsonOption, makeCommand, options
from .clientcommand import FIELD_OPTIONS, askTerminal, settingsOf
from .terminal import CommandError, Console, Exit, printable, showRecord, timeText

TIMEOUT: Final = 30.0
"""Seconds that an answer may take."""
MAX_ANSWER: Final = MAX_NOTE_SIZE
"""No answer is longer, in bytes: a tile has 8 KiB."""


@makeCommand(
    """\
    Follow a log from outside, and say so when it does not only grow.

    URL is that of a log with tiles: for a broker, http://HOST:PORT/svcbroker/log/GROUP. Its
    checkpoint has to be signed by a log of the policy, its tiles have to make the signed root, and
    what was verified before has to be the beginning of it. The witnesses of the policy that have a
    URL are asked what they have seen.

    Ends with exit code 1 as soon as something contradicts; what was signed is evidence, and is
    written to --evidence. With --once, it is also 1 where something else is not good.
    """
)
@options(
    click.argument("url", metavar="URL"),
    click.option(
        "--policy",
        "policyPath",
        metavar="FILE",
        required=True,
        type=FILE,
        help="Whom to trust: the log's key, its witnesses and their quorum.",
    ),
    click.option(
        "--state",
        metavar="FILE",
        type=FILE,
        help="Keeps the last verified checkpoint. Without it each run begins anew.",
    ),
    click.option(
        "--evidence",
        metavar="FILE",
        type=FILE,
        help="A new file for the checkpoints that contradict. [default: standard output]",
    ),
    click.option("--once", is_flag=True, help="Check once, and end."),
    click.option(
        "--interval",
        type=Decimal(min=1, max=86400),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="The time between two checks.",
    ),
    *FIELD_OPTIONS[:-1],
    jsonOption("Show each check as a line of JSON."),
)
def command(
    console: Console,
    url: str,
    policyPath: Path,
    state: Path | None,
    evidence: Path | None,
    once: bool,
    interval: float,
    asJson: bool,
    **given: Any,
) -> int:
    """Follow a log."""
    policy = _readPolicy(policyPath)
    if policy.warning:
        console.warn(f"--policy: {printable(policy.warning)}")
    settings = settingsOf({**given, "group": None, "timeout": TIMEOUT}, {}, os.environ, askTerminal)
    try:
        base = checkUrl(url)
        headers = authorization(
            settings.get("user"), settings.get("password"), settings.get("token")
        )
    except ValueError as error:
        raise CommandError(str(error)) from None
    with ExitStack() as stack:
        client = stack.enter_context(_client(settings, headers))
        # A witness is not given the credentials of the log.
        stranger = stack.enter_context(_client({**settings, "certificate": None}, {}))
        monitor = LogMonitor(
            policy,
            _fetcher(client, base),
            lambda witness: _fetcher(stranger, witness.url),
            None if state is None or not state.exists() else _readState(state),
        )
        while True:
            isGood = _checkOnce(console, monitor, state, evidence, asJson)
            if isGood is None:
                return Exit.BAD
            if once:
                return Exit.GOOD if isGood else Exit.BAD
            time.sleep(interval)


def _checkOnce(
    console: Console,
    monitor: LogMonitor,
    state: Path | None,
    evidence: Path | None,
    asJson: bool,
) -> bool | None:
    """
    Check, and say what was found.

    @return: whether all is good; C{None} where something contradicts.
    """
    now = timeText(int(time.time() * 1000))
    try:
        report = monitor.check()
    except FetchFailed as error:
        console.warn(f"{now}  {error}")
        return False
    except LogContradiction as error:
        console.warn(f"{now}  CONTRADICTION: {error}")
        data = b"\n".join(note.encode() for note in error.checkpoints)
        _keepEvidence(console, data, evidence)
        return None
    if state is not None and monitor.known is not None:
        writeFile(state, monitor.known.encode())
    record = {
        "origin": report.head.origin,
        "size": report.head.size,
        "witnesses": [{"name": each.name, "size": each.size} for each in report.witnesses],
        "complaints": [str(each) for each in report.complaints],
    }
    showRecord(console, record, [f"{now}  {describe(report)}"], asJson)
    for complaint in report.complaints:
        console.warn(f"{now}  {complaint}")
    console.output.flush()
    return not report.complaints


def _keepEvidence(console: Console, data: bytes, path: Path | None) -> None:
    """Write what contradicts to a new file, or where that is not possible to standard output."""
    if path is not None:
        try:
            writeNew(path, data)
        except OSError as error:
            console.warn(f"--evidence: {path}: {error.strerror}")
        else:
            console.warn(f"what the log has signed is in {path}")
            return
    console.output.write(data.decode())


def describe(report: LogReport) -> str:
    """Format a finding in a line."""
    seen = [
        f"{each.name} {each.size} at {timeText(each.time * 1000)}"
        for each in report.witnesses
        if each.size is not None
    ]
    return "; ".join([f"{report.head.origin} has size {report.head.size}", *seen])


def _readPolicy(path: Path) -> Policy:
    try:
        policy = Policy.parse(readFile(path))
    except Malformed as error:
        raise CommandError(f"--policy: {path}: {error}") from None
    if not policy.logs:
        raise CommandError(f"--policy: {path} has no log line")
    return policy


def _readState(path: Path) -> Note:
    try:
        return Note.decode(readFile(path))
    except Malformed as error:
        raise CommandError(f"--state: {path} is not a checkpoint: {error}") from None


def _client(settings: Any, headers: Any) -> httpx.Client:
    try:
        context = makeContext(settings)
    except ValueError as error:
        raise CommandError(str(error)) from None
    return httpx.Client(headers=headers, verify=context, timeout=TIMEOUT)


def _fetcher(client: httpx.Client, url: str) -> Callable[[str], bytes]:
    base = url.rstrip("/")

    def fetch(path: str) -> bytes:
        where = f"{base}/{path}"
        try:
            with client.stream("GET", where) as response:
                if response.status_code != httpx.codes.OK:
                    raise FetchFailed(f"{where}: the answer has status {response.status_code}")
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_ANSWER:
                        raise FetchFailed(f"{where}: the answer is too long")
                return bytes(body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchFailed(f"{where}: {error or type(error).__name__}") from None

    return fetch
