"""
C{svcbroker promote}: going on with a copy.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

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
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..storage import StorageError
from ._arguments import DATA_DIR, HEIGHT, PATH, makeCommand, options
from ._command import CommandError, Console, Exit

_TIMEOUT: Final = 5.0
"""Seconds that the original has to take a connection."""


@makeCommand(
    """\
    Go on with a copy, where the original is gone for good.

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
)
def command(
    console: Console,
    directory: Path,
    group: str,
    original: Path | None,
    keys: Path | None,
    height: int | None,
    isStopped: bool,
) -> int:
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
    console.say(f"group {group}: the copy of {copy.original} ends at block {tip}")
    console.say(
        f"start it by: svcbroker run --data-dir {target.parent} "
        f"--ledger pbft:accept-loss={tip.height}"
    )
    return Exit.GOOD


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
