"""
C{svcbroker witness}: a witness of transparency logs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from twisted.internet.defer import Deferred
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver

from ..chain import Malformed
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..daemon.ports import serverEndpoint
from ..daemon.settings import Endpoint
from ..daemon.threads import LedgerThread
from ..files import readFile
from ..storage import StorageError
from ..tlog import KeyType, Note, Policy, VerifierKey
from ..witness import (
    KEY_NAME,
    Seen,
    Witness,
    WitnessError,
    WitnessSite,
    describe,
    makeWitness,
    resumeWitness,
)
from ._arguments import jsonOption, makeCommand, options
from ._command import Command, CommandError, Console, Exit
from ._tables import showRecord

HELP: Final = """\
A witness cosigns the checkpoints of logs, as long as each has only grown. A verifier who wants its
cosignatures knows that the log shows the same history to all.

Never restore the directory of a witness from a backup: it would no longer know what it has
cosigned. Resume it, or make a new one, with a key of its own.
"""

LISTEN: Final = "tcp:8090:interface=127.0.0.1"

_log = Logger()

_DIRECTORY: Final = click.argument(
    "directory", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False)
)

_LOG: Final = click.option(
    "--log", "keys", metavar="VKEY", multiple=True, help="The key of a log. May come again."
)
_LOGS: Final = click.option(
    "--logs",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A policy file with the keys of logs. A running witness reads it again on SIGHUP.",
)


def readLogs(keys: Sequence[str], path: Path | None) -> Mapping[str, Sequence[VerifierKey]]:
    """
    The keys of the logs to witness, by their origins.

    @param keys: vkeys.
    @param path: a policy file whose logs are meant, too.
    @raise CommandError: they cannot be used.
    """
    found = []
    for text in keys:
        try:
            found.append(VerifierKey.parse(text))
        except Malformed as error:
            raise CommandError(f"--log: {error}") from None
    if path is not None:
        try:
            found += [each.key for each in Policy.parse(readFile(path)).logs]
        except OSError as error:
            raise CommandError(f"--logs: cannot read {path}: {error.strerror}") from None
        except Malformed as error:
            raise CommandError(f"--logs: {path}: {error}") from None
    logs: dict[str, list[VerifierKey]] = {}
    for key in found:
        if key.type is not KeyType.ED25519:
            raise CommandError(f"--log: the key of {key.name} is not one of a log")
        logs.setdefault(key.name, []).append(key)
    return logs


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        lock = lockDataDirectory(directory)
    except DataDirectoryError as error:
        raise CommandError(str(error).replace("data-dir: ", "")) from None
    try:
        yield
    except (WitnessError, StorageError) as error:
        raise CommandError(str(error), Exit.BAD) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    finally:
        lock.release()


@makeCommand(
    """\
    Run a witness, until Ctrl-C. The first run makes its key.

    The first run needs a name for the key. Give partners the key that it prints, for their
    policies, and the URL at which the witness is reached.
    """
)
@options(
    _DIRECTORY,
    click.option(
        "--name",
        metavar="NAME",
        help="The name of the key that is made, such as example.com/witness.",
    ),
    _LOG,
    _LOGS,
    click.option(
        "--listen",
        metavar="PORT|ENDPOINT",
        default=LISTEN,
        show_default=True,
        help="Where it is served.",
    ),
)
def _run(
    console: Console,
    directory: Path,
    name: str | None,
    keys: tuple[str, ...],
    path: Path | None,
    listen: str,
) -> int:
    logs = readLogs(keys, path)
    if not logs:
        raise CommandError("which logs? give them with --log VKEY or --logs FILE")
    with _locked(directory):
        if not (directory / KEY_NAME).exists():
            if name is None:
                raise CommandError("the witness has no key yet: give it a name with --name NAME")
            try:
                makeWitness(directory, name, os.urandom)
            except Malformed as error:
                raise CommandError(f"--name: {error}") from None
        witness = Witness.open(directory, logs, time.time)
        try:
            if name not in (None, witness.verifier.name):
                raise CommandError(f"--name: the witness is called {witness.verifier.name}")
            return _serve(console, witness, listen, lambda: readLogs(keys, path))
        finally:
            witness.close()


def _serve(console: Console, witness: Witness, listen: str, readAgain: Any) -> int:
    from twisted.internet import reactor as theReactor

    reactor: Any = theReactor
    try:
        endpoint = serverEndpoint(reactor, Endpoint().parse(listen))
    except ValueError as error:
        raise CommandError(f"--listen: {error}") from None
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
    thread = LedgerThread(reactor, "witness")
    failures: list[str] = []

    def listening(port: Any) -> None:
        host = port.getHost()
        where = f"{getattr(host, 'host', '')}:{getattr(host, 'port', '')}"
        _log.info("Witness {key} on {where}", key=witness.verifier.text, where=where)

    def failed(failure: Any) -> None:
        failures.append(f"--listen: cannot listen on {listen}: {failure.value}")
        reactor.stop()

    def reload(*ignored: object) -> None:
        try:
            witness.useLogs(readAgain())
            _log.info("The logs were read again")
        except CommandError as error:
            _log.error("The logs stay as they were: {error}", error=str(error))

    def begin() -> None:
        site = WitnessSite(witness, thread.runBriefly).site(reactor)
        listened: Deferred[Any] = endpoint.listen(site)
        listened.addCallbacks(listening, failed)
        signal.signal(signal.SIGHUP, lambda *ignored: reactor.callFromThread(reload))

    reactor.callWhenRunning(begin)
    reactor.run()
    thread.stop()
    if failures:
        raise CommandError(failures[0], Exit.BAD)
    return Exit.GOOD


@makeCommand(
    """\
    Resume a witness whose files do not show what it has cosigned last.

    Each CHECKPOINT is a file with the last checkpoint of a log that this witness has cosigned, such
    as the log itself serves it. The witness's own signature on it shows that it continues all that
    was cosigned before. Take the largest that anybody has: where the record of the last write is
    lost, too, nothing else shows that a checkpoint is the last one.
    """
)
@options(
    _DIRECTORY,
    click.argument(
        "checkpoints",
        metavar="CHECKPOINT...",
        nargs=-1,
        type=click.Path(path_type=Path, dir_okay=False),
    ),
    _LOG,
    _LOGS,
)
def _resume(
    console: Console,
    directory: Path,
    checkpoints: tuple[Path, ...],
    keys: tuple[str, ...],
    path: Path | None,
) -> int:
    logs = readLogs(keys, path)
    signed = []
    for each in checkpoints:
        try:
            signed.append(Note.decode(readFile(each)))
        except OSError as error:
            raise CommandError(f"CHECKPOINT: cannot read {each}: {error.strerror}") from None
        except Malformed as error:
            raise CommandError(f"CHECKPOINT: {each}: {error}") from None
    with _locked(directory):
        heads = resumeWitness(directory, logs, signed)
    for origin, head in sorted(heads.items()):
        console.say(f"log {origin}: goes on from size {head.size}")
    return Exit.GOOD


@makeCommand("Show the public key of a witness, as policies have it.")
@options(_DIRECTORY)
def _key(console: Console, directory: Path) -> int:
    console.say(_open(directory).verifier.text)
    return Exit.GOOD


@makeCommand(
    """\
    List what a witness has cosigned, and the forks it has refused.

    It also works while the witness runs. The exit code is 1 if a fork was refused.
    """
)
@options(
    _DIRECTORY,
    click.option("--checkpoints", is_flag=True, help="Show the checkpoints themselves, too."),
    jsonOption("Show all of it as a line of JSON."),
)
def _list(console: Console, directory: Path, checkpoints: bool, asJson: bool) -> int:
    witness = _open(directory)
    record = {
        "key": witness.verifier.text,
        "logs": _records(witness.seen),
        "forks": _records(witness.forks),
    }
    showRecord(console, record, describe(witness), asJson)
    if checkpoints and not asJson:
        for seen in (*witness.seen.values(), *witness.forks.values()):
            console.say("")
            console.output.write(seen.note.encode().decode())
    return Exit.BAD if witness.forks else Exit.GOOD


def _records(seen: Mapping[str, Seen]) -> list[dict[str, Any]]:
    """What a witness has seen of logs, for JSON."""
    return [
        {
            "origin": origin,
            "size": each.head.size,
            "root": each.head.root.hex(),
            "time": each.time * 1000,
            "checkpoint": each.note.encode().decode(),
        }
        for origin, each in seen.items()
    ]


def _open(directory: Path) -> Witness:
    """What a witness has on disk."""
    try:
        return Witness.read(directory)
    except WitnessError as error:
        raise CommandError(str(error)) from None


COMMANDS: Final = (
    Command("run", "Run a witness, until Ctrl-C. The first run makes its key.", command=_run),
    Command("resume", "Resume a witness whose files were lost or damaged.", command=_resume),
    Command("key", "Show the public key of a witness.", command=_key),
    Command("list", "List what a witness has cosigned, and the forks refused.", command=_list),
)
