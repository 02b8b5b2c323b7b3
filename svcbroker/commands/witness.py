"""
C{svcbroker net witness}: a witness of transparency logs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver

from ..archive import COPY_NAME
from ..chain import Malformed
from ..daemon.dependencies import LedgerThread
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..daemon.ports import serverEndpoint
from ..errors import BrokerError
from ..files import readFile
from ..ledgers.copy import CopyLedger, CopySettings
from ..net.deferreds import asDeferred
from ..net.settings import Endpoint
from ..proofs.tlog import EXECUTED, NONE, KeyType, Note, Party, Policy, VerifierKey
from ..proofs.witness import (
    KEY_NAME,
    ExecutedCopy,
    Seen,
    Witness,
    WitnessError,
    WitnessSite,
    describe,
    makeWitness,
    resumeWitness,
)
from ..storage import StorageError
from .arguments import DIRECTORY, FILE, jsonOption, makeCommand, options
from .clientcommand import clientCommand
from .commandline import Command
from .log import logKey
from .replicate import SOURCE_OPTIONS, copyContext, copySettings
from .terminal import CommandError, Console, Exit, showRecord

if TYPE_CHECKING:
    from ..client import Client

HELP: Final = """\
A witness cosigns the checkpoints of logs, as long as each has only grown. A verifier who wants its
cosignatures knows that the log shows the same history to all; a witness that executes has checked
what is in it, too.

Never restore the directory of a witness from a backup: it would no longer know what it has
cosigned. Resume it, or make a new one, with a key of its own.
"""

LISTEN: Final = "tcp:8090:interface=127.0.0.1"

_log = Logger()

_DIRECTORY: Final = click.argument("directory", metavar="DIRECTORY", type=DIRECTORY)

_LOG: Final = click.option(
    "--log", "keys", metavar="VKEY", multiple=True, help="The key of a log. May come again."
)
_LOGS: Final = click.option(
    "--logs",
    "path",
    metavar="FILE",
    type=FILE,
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

    With --copy it follows the chain of the log, executes every block in its own verified copy, and
    cosigns only what it has executed and found right. The name of its key ends in /executed. The
    keys of the log are those that the chain certifies; with --log or --logs, those of them that are
    named. What it finds wrong it keeps, and never signs past it.
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
    click.option(
        "--copy",
        "copied",
        metavar="DIR",
        type=DIRECTORY,
        help="Execute what is cosigned, in the copy in this directory.",
    ),
    click.option(
        "--from",
        "url",
        metavar="URL",
        help="The broker whose chain is copied. [default: the one that the copy is of]",
    ),
    click.option(
        "--group", metavar="ID", default="1", show_default=True, help="The group that is copied."
    ),
    *SOURCE_OPTIONS,
)
def _run(
    console: Console,
    directory: Path,
    name: str | None,
    keys: tuple[str, ...],
    path: Path | None,
    listen: str,
    copied: Path | None,
    url: str | None,
    group: str,
    **given: Any,
) -> int:
    logs = readLogs(keys, path)
    if not logs and copied is None:
        raise CommandError("give the logs with --log VKEY or --logs FILE")
    if copied is None and (url is not None or any(given.values())):
        raise CommandError("--from and what belongs to it is for --copy DIR")
    if name is not None and copied is not None:
        name = name.removesuffix(EXECUTED) + EXECUTED
    elif name is not None and name.endswith(EXECUTED):
        raise CommandError(f"--name: {EXECUTED} is for a witness that executes: give --copy DIR")
    with ExitStack() as stack:
        stack.enter_context(_locked(directory))
        source = None
        if copied is not None:
            stack.enter_context(_locked(copied))
            source = _Source(copied, group, _copySettings(copied, group, url, given))
        witness = stack.enter_context(closing(_openOrMake(directory, name, logs)))
        if witness.verifier.isExecuting != (source is not None):
            raise CommandError(
                f"--copy: the key of this witness is {witness.verifier.name}, which "
                + ("executes: give --copy DIR" if source is None else "does not execute")
            )
        return _Serving(witness, lambda: readLogs(keys, path), source, isGiven=bool(logs)).run(
            listen
        )


def _openOrMake(
    directory: Path, name: str | None, logs: Mapping[str, Sequence[VerifierKey]]
) -> Witness:
    """The witness of a directory, which is made where there is none."""
    if not (directory / KEY_NAME).exists():
        if name is None:
            raise CommandError("the witness has no key yet: give it a name with --name NAME")
        try:
            makeWitness(directory, name, os.urandom)
        except Malformed as error:
            raise CommandError(f"--name: {error}") from None
    witness = Witness.open(directory, logs, time.time)
    if name not in (None, witness.verifier.name):
        witness.close()
        raise CommandError(f"--name: the witness is called {witness.verifier.name}")
    return witness


def _copySettings(
    directory: Path, group: str, url: str | None, given: Mapping[str, Any]
) -> CopySettings:
    """The settings of the chain that is copied."""
    if url is None:
        try:
            url = readFile(directory / group / COPY_NAME).decode("utf-8").strip()
        except OSError:
            raise CommandError(f"--from: {directory} has no copy yet: give the URL") from None
    return copySettings(url, given)


@frozen
class _Source:
    """
    The chain that a witness executes.

    @ivar directory: the data directory of its copy.
    """

    directory: Path
    group: str
    settings: CopySettings


class _Serving:
    """
    A witness that runs, until a signal.
    """

    def __init__(
        self,
        witness: Witness,
        readAgain: Callable[[], Mapping[str, Sequence[VerifierKey]]],
        source: _Source | None,
        *,
        isGiven: bool,
    ) -> None:
        """
        @param isGiven: whether the keys of logs are given, and not those that a chain certifies.
        """
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._witness = witness
        self._readAgain = readAgain
        self._source = source
        self._isGiven = isGiven
        self._failure = ""
        self._executed: ExecutedCopy | None = None
        self._threads: list[LedgerThread] = []

    def run(self, listen: str) -> int:
        """Serve it."""
        try:
            endpoint = serverEndpoint(self._reactor, Endpoint().parse(listen))
        except ValueError as error:
            raise CommandError(f"--listen: {error}") from None
        globalLogBeginner.beginLoggingTo(
            [textFileLogObserver(sys.stdout)], redirectStandardIO=False
        )
        self._reactor.callWhenRunning(self._start, endpoint, listen)
        self._reactor.run()
        for thread in self._threads:
            thread.stop()
        if self._failure:
            raise CommandError(self._failure, Exit.BAD)
        return Exit.GOOD

    def _thread(self, name: str) -> LedgerThread:
        thread = LedgerThread(self._reactor, name)
        self._threads.append(thread)
        return thread

    @asDeferred
    async def _start(self, endpoint: Any, listen: str) -> None:
        signal.signal(signal.SIGHUP, lambda *ignored: self._reactor.callFromThread(self._readLogs))
        run = self._thread("witness").runBriefly
        if self._source is not None:
            # A log is witnessed once the executed chain certifies its key.
            self._witness.useLogs({})
            self._executed = self._follow(self._source, run)
        executed = self._executed
        site = WitnessSite(self._witness, run, executed).site(self._reactor)
        try:
            host = (await endpoint.listen(site)).getHost()
        except Exception as error:
            self._end(f"--listen: cannot listen on {listen}: {error}")
            return
        where = f"{getattr(host, 'host', '')}:{getattr(host, 'port', '')}"
        _log.info("Witness {key} on {where}", key=self._witness.verifier.text, where=where)
        for key in self._witness.verifiers[1:]:
            _log.info("It cosigns with {key}, too", key=key.text)
        if executed is None:
            return
        try:
            await executed.start()
        except BrokerError as error:
            self._end(f"--copy: {error.message}")
            return
        self._reactor.addSystemEventTrigger("before", "shutdown", executed.stop)

    def _follow(self, source: _Source, run: Callable[..., Deferred[Any]]) -> ExecutedCopy:
        """The copy of a witness that executes. It does not follow yet."""
        thread, audit = self._thread("copy"), self._thread("audit")
        context = copyContext(self._reactor, source.directory, source.group, thread)
        return ExecutedCopy(
            self._witness,
            run,
            lambda report: CopyLedger(context, source.settings, report=report),
            context.directory,
            self._reactor,
            audit.run,
            self._readAgain() if self._isGiven else None,
        )

    def _end(self, failure: str) -> None:
        self._failure = failure
        self._reactor.stop()

    def _readLogs(self) -> None:
        if not self._isGiven:
            _log.info("The logs are those that the chain certifies")
            return
        use = self._witness.useLogs if self._executed is None else self._executed.useLogs
        try:
            use(self._readAgain())
            _log.info("The logs were read again")
        except CommandError as error:
            _log.error("The logs stay as they were: {error}", error=str(error))


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
        type=FILE,
    ),
    _LOG,
    _LOGS,
    jsonOption(),
)
def _resume(
    console: Console,
    directory: Path,
    checkpoints: tuple[Path, ...],
    keys: tuple[str, ...],
    path: Path | None,
    asJson: bool,
) -> None:
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
    sizes = {origin: head.size for origin, head in sorted(heads.items())}
    lines = [f"log {origin}: continues from size {size}" for origin, size in sizes.items()]
    showRecord(console, {"sizes": sizes}, lines, asJson)


@makeCommand("Show the public key of a witness, as policies have it.")
@options(
    _DIRECTORY,
    click.option("--ml-dsa", "isMlDsa", is_flag=True, help="Show that of ML-DSA-44."),
    jsonOption(),
)
def _key(console: Console, directory: Path, isMlDsa: bool, asJson: bool) -> None:
    keys = _open(directory).verifiers
    if isMlDsa and len(keys) == 1:
        raise CommandError("--ml-dsa: this needs cryptography 48 or later")
    key = keys[isMlDsa].text
    showRecord(console, {"key": key}, [key], asJson)


@makeCommand(
    """\
    List what a witness has cosigned, the forks it has refused, and what it has found wrong.

    It also works while the witness runs. The exit code is 1 if a fork was refused, or something
    was found wrong.
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
        "wrongs": [
            {
                "chain": chain,
                "time": each.time * 1000,
                "reason": each.text,
                "checkpoint": None if each.note is None else each.note.encode().decode(),
            }
            for chain, each in witness.wrongs.items()
        ],
    }
    showRecord(console, record, describe(witness), asJson)
    if checkpoints and not asJson:
        signed = [each.note for each in (*witness.seen.values(), *witness.forks.values())]
        signed += [each.note for each in witness.wrongs.values() if each.note is not None]
        for note in signed:
            console.say("")
            console.output.write(note.encode().decode())
    return Exit.BAD if witness.forks or witness.wrongs else Exit.GOOD


def _records(seen: Mapping[str, Seen]) -> list[dict[str, Any]]:
    """The tree heads of logs that a witness has seen, for JSON."""
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
    """The files of a witness."""
    try:
        return Witness.read(directory)
    except WitnessError as error:
        raise CommandError(str(error)) from None


_INVITATION: Final = """\
# Invitation to witness the log {origin}
#
# This file is a policy (c2sp.org/tlog-policy): programs read its last lines, people read these.
#
# We ask you to run a small program that signs how this log grows. It sees sizes and hashes, and no
# event. With the signatures of others, nobody can be shown another history, not even by us.
#
#   pip install svcbroker
#   svcbroker net witness run ./witness --name YOUR.DOMAIN/witness --logs THIS-FILE --listen 8090
#
# Please send us the key that it prints after "Witness", and the URL at which our broker reaches it.
#{executing}
# Please answer us, too:
#
#   1. Who can log in on that machine, and who holds the key?
#   2. Is the directory ever restored from a backup, or the machine from a snapshot? Never do that.
#   3. Where do you publish your key, so that readers get it from you and not from us?
#   4. Who is told when it says FORK REFUSED, answers 422, or is away for a day?
#   5. Will you publish a refusal? We cannot ask you not to.
#   6. How long before its end will you announce it?
#   7. Will you keep the checkpoints as long as these events have to convince somebody?

"""
_EXECUTING: Final = """
# To look at every event as well, and sign only what you have executed and found right, ask us for
# an account with the grant "copy", and add:
#
#   --copy ./copy --from {url} --genesis {genesis} --user ACCOUNT
#"""
_MAJORITY: Final = "majority"


def invitation(origin: str, key: str, executing: str, witnesses: Sequence[Party]) -> str:
    """
    The file for partners: a letter in comments, and a policy.

    @param key: the vkey of the log.
    @param executing: the paragraph on a witness that executes, or nothing.
    @param witnesses: those who have accepted. More than half of them are the quorum.
    """
    lines = [f"log {key}"]
    lines += [f"witness {each.name} {each.key.text} {each.url}" for each in witnesses]
    if witnesses:
        names = " ".join(each.name for each in witnesses)
        lines += [f"group {_MAJORITY} {len(witnesses) // 2 + 1} {names}", f"quorum {_MAJORITY}"]
    else:
        lines += ["quorum none"]
    text = _INVITATION.format(origin=origin, executing=executing)
    return text + "".join(f"{line}\n" for line in lines)


def readAccepted(given: Sequence[str]) -> list[Party]:
    """
    The witnesses of a command line, each with a name of its own.

    @param given: of each its vkey, a blank, and its URL.
    @raise CommandError: they cannot be used.
    """
    found: list[Party] = []
    taken = {NONE, _MAJORITY}
    for text in given:
        vkey, _, url = text.partition(" ")
        if not url.startswith(("https://", "http://")) or " " in url:
            raise CommandError(f"--witness: expected 'VKEY URL', not {text!r}")
        try:
            key = VerifierKey.parse(vkey)
        except Malformed as error:
            raise CommandError(f"--witness: {error}") from None
        if not key.isWitness:
            raise CommandError(f"--witness: the key of {key.name} is not one of a witness")
        name = key.name.partition(".")[0]
        if name in taken:
            name = key.name
        if name in taken:
            raise CommandError(f"--witness: {name} is there twice")
        taken.add(name)
        found.append(Party(name, key, url))
    return found


@clientCommand(
    """\
    Write what a partner needs to witness the log: a letter, which is a policy file, too.

    It has the key of the log, the command to run, and the questions that the partner should answer.
    The partner gives it to svcbroker net witness run as --logs. Run it again with the --witness of
    each who has accepted: then it is the policy for your broker (--witness-policy) and for those
    who verify. More than half of the witnesses are its quorum.

    \b
    svcbroker net witness invite --genesis genesis.json > invitation
    svcbroker net witness invite --genesis genesis.json --witness "$VKEY $URL" > policy
    """
)
@options(
    click.option("--genesis", metavar="FILE", help="The genesis that is trusted."),
    click.option(
        "--public-url",
        "publicUrl",
        metavar="URL",
        help="The broker's URL as partners reach it: invites them to execute the log, too.",
    ),
    click.option(
        "--witness",
        "accepted",
        metavar="'VKEY URL'",
        multiple=True,
        help="A witness who has accepted. May come again.",
    ),
)
def _invite(
    console: Console,
    client: Client,
    genesis: str | None,
    publicUrl: str | None,
    accepted: tuple[str, ...],
) -> None:
    witnesses = readAccepted(accepted)
    told = logKey(console, client, genesis)
    executing = ""
    if publicUrl is not None:
        fields = readFile(genesis) if genesis is not None else client.genesis()
        executing = _EXECUTING.format(url=publicUrl, genesis=json.loads(fields)["chain"])
    console.output.write(invitation(told["origin"], told["key"], executing, witnesses))


COMMANDS: Final = (
    Command("invite", "Write what a partner needs to witness the log.", command=_invite),
    Command(
        "run",
        "Run a witness, until Ctrl-C. The first run makes its key.",
        command=_run,
        example="svcbroker net witness run ./witness --name alba.example/witness --logs policy",
    ),
    Command(
        "resume",
        "Resume a witness whose files were lost or damaged.",
        command=_resume,
        example="svcbroker net witness resume ./witness checkpoint",
    ),
    Command(
        "key",
        "Show the public key of a witness.",
        command=_key,
        example="svcbroker net witness key ./witness",
    ),
    Command(
        "list",
        "List what a witness has cosigned, and the forks refused.",
        command=_list,
        example="svcbroker net witness list ./witness --json",
    ),
)
