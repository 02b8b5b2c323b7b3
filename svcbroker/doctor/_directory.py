"""
The data directory: its rights, its owner, and files that should not be there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ..daemon.memory import amountText
from ._findings import Finding, good, listed, problem, warning

_DIRECTORY = "data directory"

_LEFT = (".new", ".new-wal", ".new-shm", ".new-journal")
_COPY = ".backup"


@frozen
class FileFacts:
    """
    A file below the data directory.

    @ivar path: from the data directory on.
    @ivar mode: its rights, as the nine lowest bits.
    @ivar owner: the number of the user that owns it.
    """

    path: str
    mode: int
    owner: int
    size: int = 0


@frozen(kw_only=True)
class DirectoryFacts:
    """
    What is known of the data directory.

    @ivar exists: whether it is there, and a directory.
    @ivar error: why it cannot be looked at; empty where it can.
    @ivar mode: its rights.
    @ivar owner: the number of the user that owns it.
    @ivar ownerName: the name of that user.
    @ivar user: the number of the user that the daemon runs as; of the one who asks, where it does
        not run.
    @ivar userName: the name of that user.
    @ivar files: what is in it.
    @ivar groups: the groups that have a chain in it.
    @ivar served: the groups that are served.
    """

    path: Path
    exists: bool = True
    error: str = ""
    mode: int = 0o700
    owner: int = 0
    ownerName: str = "root"
    user: int = 0
    userName: str = "root"
    files: Sequence[FileFacts] = ()
    groups: Sequence[str] = ()
    served: Sequence[str] = ()


def checkDirectory(facts: DirectoryFacts) -> Iterator[Finding]:
    """Whether the daemon, and only the daemon, can use what is in its data directory."""
    path = facts.path
    if facts.error:
        yield problem(
            _DIRECTORY,
            f"{path} cannot be looked at: {facts.error}",
            "most of what follows is unknown",
            f"ask again as its owner: sudo -u {facts.ownerName} svcbroker doctor",
        )
        return
    if not facts.exists:
        yield warning(
            _DIRECTORY,
            f"{path} does not exist",
            "the daemon makes it, and begins a new chain for each group",
            "nothing, where the broker is new; else give the --data-dir of its data",
        )
        return
    found = [*_checkRights(facts), *_checkFiles(facts)]
    if found:
        yield from found
        return
    yield good(_DIRECTORY, f"{path} belongs to {facts.ownerName}, and no one else may read it")


def _checkRights(facts: DirectoryFacts) -> Iterator[Finding]:
    path = facts.path
    foreign = [each.path for each in facts.files if each.owner != facts.owner]
    if facts.owner != facts.user and facts.user:
        yield problem(
            _DIRECTORY,
            f"{path} belongs to {facts.ownerName}, and the broker would run as {facts.userName}",
            "the daemon cannot write there as that user",
            f"sudo -u {facts.ownerName} svcbroker doctor, if it runs as {facts.ownerName}; else: "
            f"chown -R {facts.userName}: {path}",
        )
    if foreign:
        yield problem(
            _DIRECTORY,
            f"{listed(foreign)} in {path} do not belong to {facts.ownerName}",
            "the daemon cannot write them: a command was run there as another user, or a backup "
            "was put back as one",
            f"chown -R {facts.ownerName}: {path}",
        )
    # A closed directory shuts off what is in it, whatever its files' own rights are.
    isOpen = bool(facts.mode & 0o055)
    keys = [each.path for each in facts.files if each.path.endswith(".key") and each.mode & 0o077]
    if isOpen and keys:
        yield problem(
            _DIRECTORY,
            f"others may read {listed(keys)} in {path}",
            "with the keys of the replicas one can sign another history of the chain",
            f"chmod -R go= {path}; if others use this machine, get new keys: svcbroker nodes "
            f"{path} rotate all",
        )
    elif facts.mode & 0o077:
        yield warning(
            _DIRECTORY,
            f"others than its owner have rights to {path}",
            "they may read events and the operator's token; the daemon takes the rights away at "
            "its next start",
            f"chmod -R go= {path}",
        )


def _checkFiles(facts: DirectoryFacts) -> Iterator[Finding]:
    path = facts.path
    left = [each for each in facts.files if each.path.endswith(_LEFT)]
    copies = [each for each in facts.files if each.path.endswith(_COPY)]
    if left:
        yield warning(
            _DIRECTORY,
            f"{listed([each.path for each in left])} in {path} were left by a crash or a full disk",
            "they only take room",
            "stop the broker, and remove them: rm "
            + " ".join(str(path / each.path) for each in left),
        )
    if copies:
        room = amountText(sum(each.size for each in copies))
        yield warning(
            _DIRECTORY,
            f"{listed([each.path for each in copies])} in {path} are copies from before an "
            f"upgrade, of {room}",
            "they take room, and keep events that were erased since",
            "once you would not go back to the release before: rm "
            + " ".join(str(path / each.path) for each in copies),
        )
    unserved = [group for group in facts.groups if group not in facts.served]
    if unserved:
        yield warning(
            _DIRECTORY,
            f"{path} has chains of the groups {listed(unserved)}, which are not served",
            "their clients are told that there is no such group",
            f"--group {unserved[0]} for each, beside the others; or move them away",
        )


def filesIn(directory: Path) -> Iterator[FileFacts]:
    """
    All files below a directory.

    @raise OSError: it cannot be read.
    """
    for folder, _, names in os.walk(directory, onerror=_raise):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # a running daemon has removed it
            if stat.S_ISREG(status.st_mode):
                mode = stat.S_IMODE(status.st_mode)
                relative = str(path.relative_to(directory))
                yield FileFacts(relative, mode, status.st_uid, status.st_size)


def _raise(error: OSError) -> None:
    raise error
