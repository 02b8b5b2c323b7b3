"""
C{svcbroker chain replicate} and C{svcbroker chain promote}: a verified copy of the chains of
another broker, and going on with it where the original is gone.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredList, gatherResults
from twisted.internet.task import react
from twisted.logger import FileLogObserver, LogEvent, formatEvent, formatTime, globalLogBeginner

from ..archive import (
    KEYS_NAME,
    Copy,
    ImportRefused,
    PromotionRefused,
    StreamBroken,
    groupDirectory,
    promote,
    readCopy,
    takeOver,
)
from ..daemon.dependencies import LedgerThread
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..errors import LedgerUnavailable
from ..interfaces import InvalidDescription, LedgerContext
from ..ledgers.copy import (
    CopyLedger,
    CopyProgress,
    CopyRefusal,
    CopyRefused,
    CopySettings,
    readSettings,
)
from ..net.deferreds import asDeferred
from ..storage import StorageError
from .arguments import DATA_DIR, HEIGHT, PATH, jsonOption, makeCommand, options
from .terminal import CommandError, Console, Exit, showRecord

_SETTINGS: Final = {
    "user": "account",
    "password_file": "password-file",
    "token_file": "token-file",
    "ca": "ca",
    "cert": "certificate",
    "genesis": "genesis",
    "checkpoint": "checkpoint",
}
"""The setting of the ledger for each option."""


SOURCE_OPTIONS: Final = (
    click.option("--genesis", metavar="HASH", help="Copy no chain but the one of this genesis."),
    click.option(
        "--checkpoint", metavar="HEIGHT:HASH", help="Copy no chain that has not this block."
    ),
    click.option(
        "--user", metavar="NAME", help="The account to log in with; it needs the grant: copy."
    ),
    click.option("--password-file", metavar="FILE", help="A file with the account's password."),
    click.option("--token-file", metavar="FILE", help="A file with a token."),
    click.option("--ca", metavar="FILE", help="The authorities of the broker's certificate."),
    click.option("--cert", metavar="FILE", help="A certificate with its private key."),
)
"""The chain that is copied, and how to log in."""


def copySettings(url: str, given: Mapping[str, Any]) -> CopySettings:
    """
    The settings of a copy.

    @param given: the values of L{SOURCE_OPTIONS}.
    @raise CommandError: one is not allowed.
    """
    named = {_SETTINGS[name]: value for name, value in given.items() if value is not None}
    try:
        return readSettings({"url": url, **named})
    except InvalidDescription as error:
        raise CommandError(str(error)) from None


def copyContext(reactor: Any, directory: Path, group: str, thread: LedgerThread) -> LedgerContext:
    """
    The context of the copy of a group.

    @param directory: the data directory.
    """
    return LedgerContext(
        group=group,
        directory=directory / group,
        reactor=reactor,
        now=time.time,
        entropy=os.urandom,
        runInThread=thread.run,
        runBriefly=thread.runBriefly,
        maxContent=0,
    )


@makeCommand(
    """\
    Keep a verified copy of the chains of another broker.

    Copies into DATA-DIR what the broker at URL has, and then each block as it is decided, until
    Ctrl-C. Every block is checked as a node checks it before it is stored. A copy that was stopped,
    or has lost the connection, continues where it ended. For reads and subscriptions from the copy
    run the daemon with the ledger copy instead; to go on without the other broker see: svcbroker
    chain promote. Exit codes: 0 stopped, 1 a block does not hold or is of another chain, 2 it
    cannot start, 3 the validators have signed two histories of one chain.
    """
)
@options(
    click.argument("url", metavar="URL"),
    DATA_DIR,
    click.option(
        "--group",
        "groups",
        metavar="ID",
        multiple=True,
        default=("1",),
        show_default="1",
        help="The group. May come again.",
    ),
    click.option(
        "--once", is_flag=True, help="End as soon as the copy is up to date, or cannot be."
    ),
    *SOURCE_OPTIONS,
    jsonOption("Show at the end up to where each group was copied, as a line of JSON."),
)
def replicateCommand(
    console: Console,
    url: str,
    directory: Path,
    groups: Sequence[str],
    once: bool,
    asJson: bool,
    **given: Any,
) -> int:
    """Copy until a signal, a refusal, or the end."""
    settings = copySettings(url, given)
    try:
        lock = lockDataDirectory(directory)
    except DataDirectoryError as error:
        raise CommandError(str(error)) from None
    globalLogBeginner.beginLoggingTo(
        [FileLogObserver(sys.stderr, _line)], redirectStandardIO=False, discardBuffer=True
    )
    copying = _Copying(directory, settings, groups, isOnce=once)
    try:
        # It always ends so.
        with suppress(SystemExit):
            react(copying.run)
    finally:
        lock.release()
    if isinstance(copying.failure, LedgerUnavailable):
        raise CommandError(copying.failure.message)
    if isinstance(copying.failure, StorageError):
        raise CommandError(f"contents of erased events are still in the copy: {copying.failure}")
    if copying.failure is not None:
        raise copying.failure
    refusals = [each.progress.refused for each in copying.ledgers if each.progress.refused]
    for ledger in copying.ledgers:
        progress = ledger.progress
        record = {"group": ledger.group, "height": progress.height}
        line = f"group {ledger.group}: copied up to block {progress.height}"
        showRecord(console, record, [line], asJson)
    if not refusals and once:
        for ledger in copying.ledgers:
            if ledger.progress.reason:
                raise CommandError(ledger.progress.reason)
    return _codeOf(refusals)


def _line(event: LogEvent) -> str:
    """A line of the log; of other programs than this nothing."""
    if not event["log_namespace"].startswith("svcbroker."):
        return ""
    return f"{formatTime(event['log_time'])} {formatEvent(event)}\n"


def _codeOf(refusals: Sequence[CopyRefused]) -> int:
    if any(each.refusal is CopyRefusal.CONTRADICTION for each in refusals):
        return Exit.CONTRADICTION
    return Exit.BAD if refusals else Exit.GOOD


@define(eq=False)
class _Copying:
    """
    The ledgers that copy.

    @ivar failure: what has ended it; C{None} where it has ended by itself or by a signal.
    """

    _directory: Path
    _settings: CopySettings
    _groups: Sequence[str]
    _isOnce: bool = field(kw_only=True)
    ledgers: list[CopyLedger] = field(factory=list)
    failure: Exception | None = None
    _threads: list[LedgerThread] = field(factory=list)
    _done: list[Deferred[None]] = field(factory=list)

    def run(self, reactor: Any) -> Deferred[None]:
        """Copy. Fires when all ledgers have stopped, which a signal makes them do."""
        ended: Deferred[None] = Deferred()
        running = self._run(reactor)

        def end() -> Deferred[None]:
            running.cancel()
            return ended

        reactor.addSystemEventTrigger("before", "shutdown", end)
        return running.addBoth(lambda _: ended.callback(None))

    @asDeferred
    async def _run(self, reactor: Any) -> None:
        try:
            for group in self._groups:
                await self._start(reactor, group)
            await DeferredList(self._done)
            # A run that ends leaves no content of an erased event to the next one.
            for ledger in self.ledgers:
                await ledger.finishErasing()
        except CancelledError:
            pass
        except Exception as error:
            self.failure = error
        finally:
            await gatherResults([each.stop() for each in self.ledgers])
            for thread in self._threads:
                thread.stop()

    async def _start(self, reactor: Any, group: str) -> None:
        thread = LedgerThread(reactor, f"ledger-{group}")
        self._threads.append(thread)
        done: Deferred[None] = Deferred()
        self._done.append(done)

        def report(progress: CopyProgress) -> None:
            hasEnded = bool(progress.reason) or progress.behind == 0
            isDone = progress.refused is not None or (self._isOnce and hasEnded)
            if isDone and not done.called:
                done.callback(None)

        context = copyContext(reactor, self._directory, group, thread)
        ledger = CopyLedger(context, self._settings, report=report)
        await ledger.start()
        self.ledgers.append(ledger)


_TIMEOUT: Final = 5.0
"""Seconds that the original has to take a connection."""


@makeCommand(
    """\
    Continue with a copy, where the original is gone for good.

    Gives the copy in DATA-DIR the keys of the chain's replicas. Where the original's data directory
    is there, --original takes the blocks from it that were not copied yet, and moves the keys: the
    original cannot start any more, nothing is lost, and no height can be decided twice. Otherwise
    --keys takes them from a backup, and --accept-loss names the last block of the copy: what the
    original decided after it is lost. Stop the original first, and see to it that it never starts
    again. Afterwards the daemon gives all replicas new keys in its first block. Exit codes: 0
    promoted, 1 something does not hold, 2 wrong usage, or the original may be running.
    """
)
@options(
    DATA_DIR,
    click.option("--group", metavar="ID", default="1", show_default=True, help="The group."),
    click.option(
        "--original", metavar="DIR", type=PATH, help="The data directory of the stopped original."
    ),
    click.option("--keys", metavar="DIR", type=PATH, help="The replicas' keys, from a backup."),
    click.option(
        "--accept-loss",
        "height",
        type=HEIGHT,
        metavar="HEIGHT",
        help="Beside --keys: the last block of the copy.",
    ),
    click.option(
        "--original-is-stopped",
        "isStopped",
        is_flag=True,
        help="Beside --keys: do not look whether something answers at the original's URL.",
    ),
    jsonOption(),
)
def promoteCommand(
    console: Console,
    directory: Path,
    group: str,
    original: Path | None,
    keys: Path | None,
    height: int | None,
    isStopped: bool,
    asJson: bool,
) -> None:
    """Promote the copy."""
    if (original is None) == (keys is None):
        raise CommandError("give either --original or --keys")
    target = groupDirectory(directory, group)
    try:
        with _locked(target.parent):
            copy = readCopy(target)
            if original is not None:
                source = groupDirectory(original, group)
                with _locked(source.parent):
                    reserved = takeOver(target, source)
                    tip = promote(target, source / KEYS_NAME, reserved=reserved, mayRemove=True)
            elif keys is not None:
                if not isStopped:
                    _checkSilent(copy.original)
                _checkLoss(copy, height)
                tip = promote(target, keys)
    except PromotionRefused as error:
        raise CommandError(str(error), Exit.BAD) from None
    except (StreamBroken, ImportRefused, StorageError) as error:
        raise CommandError(str(error), Exit.BAD) from None
    ledger = f"pbft:{'accept-loss' if original is None else 'resume-at'}={tip.height}"
    start = f"svcbroker run --data-dir {target.parent} --ledger {ledger}"
    kept = "" if original is None else ", and has all of its blocks"
    lines = [
        f"group {group}: the copy of {copy.original} ends at block {tip}{kept}",
        f"start it by: {start}",
    ]
    record = {"group": group, "tip": str(tip), "ledger": ledger, "start": start}
    showRecord(console, record, lines, asJson)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    if not directory.is_dir():
        raise CommandError(f"{directory} is no directory")
    try:
        lock = lockDataDirectory(directory)
    except DataDirectoryError as error:
        raise CommandError(f"{error}: stop it first") from None
    try:
        yield
    finally:
        lock.release()


def _checkLoss(copy: Copy, height: int | None) -> None:
    """
    Have the operator name the last block.

    @raise CommandError: it is not named.
    """
    if height == copy.tip.height:
        return
    moment = datetime.fromtimestamp(copy.timestamp / 1000, UTC)
    raise CommandError(
        f"the copy ends at block {copy.tip}, of {moment:%Y-%m-%d %H:%M:%S} UTC: what the original "
        "has decided after it is lost, also what was answered SUCCESS. If its disk is left, give "
        f"--original; else --accept-loss {copy.tip.height}"
    )


def _checkSilent(original: str) -> None:
    """
    Make sure that nothing answers at the URL of the original.

    @raise CommandError: something does.
    """
    parts = urlsplit(original)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname, port), _TIMEOUT):
            pass
    except OSError:
        return
    raise CommandError(
        f"something answers at {original}: stop the original for good; if it is another program, "
        "give --original-is-stopped"
    )
