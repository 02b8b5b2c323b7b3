"""
A witness: cosigns the checkpoints of logs, as long as each has only grown (c2sp.org/tlog-witness).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from attrs import evolve

from ...chain import EMPTY_ROOT, Malformed
from ...files import readFile
from ...storage import StorageError, writeFile
from ..tlog import (
    AddCheckpoint,
    CheckpointRefused,
    MlDsaWitnessKey,
    Note,
    SignatureRefused,
    TreeHead,
    VerifierKey,
    WitnessKey,
    checkCheckpoint,
)
from ._statefile import (
    FORK,
    LOG,
    OWN,
    STATE_NAME,
    WRONG,
    Rows,
    Seen,
    WitnessError,
    WitnessState,
    Wrong,
    openRows,
    readLast,
    replaceState,
    seenIn,
    writesIn,
)

KEY_NAME: Final = "witness.key"
"""The file of the private key."""
SEED_SIZE: Final = 32
EVIDENCE_PERIOD: Final = 60
"""A refused fork of a log is stored at most once in this many seconds."""


class Witness:
    """
    A witness with its state on disk. Every call may block on the disk; one thread at a time.

    @ivar verifier: its public key.
    @ivar verifiers: all of them: this one, and that of ML-DSA where the library has it.
    @ivar seen: the last cosigned checkpoint of each log, by origin.
    @ivar forks: the last refused fork of each log that tried one, by origin.
    @ivar wrongs: what was found wrong with chains that it has executed, by their ids in digits.
    """

    def __init__(
        self,
        keys: Sequence[WitnessKey | MlDsaWitnessKey],
        state: WitnessState | None,
        rows: Rows,
        logs: Mapping[str, Sequence[VerifierKey]],
        now: Callable[[], float],
    ) -> None:
        """
        Private: call L{open} or L{read}.
        """
        self.verifiers = [each.verifier for each in keys]
        self.verifier = self.verifiers[0]
        self.seen: dict[str, Seen] = {}
        self.forks: dict[str, Seen] = {}
        self.wrongs: dict[str, Wrong] = {}
        self._keys = keys
        self._state = state
        self._logs = logs
        self._now = now
        self._origins: dict[str, str] = {}
        for (kind, name), value in rows.items():
            if kind == LOG:
                self._add(name, Seen.decode(value))
            elif kind == FORK:
                self.forks[name] = Seen.decode(value)
            elif kind == WRONG:
                self.wrongs[name] = Wrong.decode(value)

    @classmethod
    def open(
        cls,
        directory: Path,
        logs: Mapping[str, Sequence[VerifierKey]],
        now: Callable[[], float],
    ) -> Self:
        """
        Open a witness that was made by L{makeWitness}. Nobody else may have it open.

        @param logs: the keys of the logs to witness, by their origins.
        @param now: the wall clock: seconds since the epoch.
        @raise WitnessError: there is none, or its files are not those of one witness.
        """
        state = WitnessState.open(directory)
        try:
            return cls(_readKeys(directory, state.rows), state, state.rows, logs, now)
        except BaseException as error:
            state.close()
            if isinstance(error, Malformed):
                raise WitnessError(f"{directory / STATE_NAME} is damaged: {error}") from None
            raise

    @classmethod
    def read(cls, directory: Path) -> Self:
        """
        Read what a witness has on disk, also while it runs. It cannot cosign.

        @raise WitnessError: there is none, or its files are not those of one witness.
        """
        path = directory / STATE_NAME
        if not path.exists():
            raise WitnessError(f"{path} is missing")
        try:
            file = openRows(path, isReading=True)
            try:
                rows = file.load()
            finally:
                file.close()
            return cls(_readKeys(directory, rows), None, rows, {}, lambda: 0.0)
        except (StorageError, Malformed) as error:
            raise WitnessError(str(error)) from None

    def useLogs(self, logs: Mapping[str, Sequence[VerifierKey]]) -> None:
        """Witness these logs from now on. What was cosigned of others is still known."""
        self._logs = logs

    def checkRequest(self, data: bytes) -> Seen:
        """
        Check that a log has signed a checkpoint, and that it continues what was cosigned last.

        @param data: the body of the request.
        @return: the checkpoint, without a cosignature, and the time of one that is made now.
        @raise CheckpointRefused: it is not to be cosigned. A fork is stored.
        @raise svcbroker.storage.StorageError: that cannot be stored.
        """
        try:
            request = AddCheckpoint.decode(data)
        except Malformed as error:
            raise CheckpointRefused(400, str(error)) from None
        latest = self.seen.get(request.checkpoint.text.partition("\n")[0])
        # A clock that is set back does not make later checkpoints older.
        time = max(int(self._now()), 1, latest.time if latest else 0)
        try:
            head, note = checkCheckpoint(request, self._logs, latest.head if latest else None)
        except CheckpointRefused as refusal:
            if refusal.status == FORKED:
                self._keepFork(request.checkpoint, time)
            raise
        return Seen(head=head, time=time, note=note)

    def addCheckpoint(self, data: bytes, executed: TreeHead | None = None) -> str:
        """
        Cosign a checkpoint. It is on disk before its cosignature exists outside of this call.

        @param data: the body of the request.
        @param executed: what a witness whose key says that it executes has executed.
        @return: the lines of the cosignatures.
        @raise CheckpointRefused: it is not cosigned.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        checked = self.checkRequest(data)
        if self.verifier.isExecuting and executed != checked.head:
            raise CheckpointRefused(503, "this witness has not executed the log up to there")
        text, time = checked.note.text, checked.time
        cosignatures = [key.cosign(text, time) for key in self._keys]
        seen = evolve(checked, note=checked.note.signedBy(*cosignatures))
        self._write({(LOG, seen.head.origin): seen.encode()})
        self._add(seen.head.origin, seen)
        return "".join(each.line for each in cosignatures)

    def keepWrong(self, chain: str, text: str, note: Note | None = None) -> Wrong:
        """
        Store what was found wrong with a chain. The first finding stays.

        @param chain: the chain's id, in digits, and what of it where the blocks are right.
        @param text: one sentence.
        @param note: a checkpoint that its log has signed.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        if chain not in self.wrongs:
            wrong = Wrong(time=max(int(self._now()), 1), text=text, note=note)
            self._write({(WRONG, chain): wrong.encode()})
            self.wrongs[chain] = wrong
        return self.wrongs[chain]

    def latest(self, originHash: str) -> Seen | None:
        """
        The last cosigned checkpoint of a log.

        @param originHash: the SHA-256 of its origin, in hexadecimal digits.
        """
        origin = self._origins.get(originHash)
        return None if origin is None else self.seen[origin]

    def close(self) -> None:
        """Close the files."""
        if self._state is not None:
            self._state.close()

    def _write(self, changes: Rows) -> None:
        assert self._state is not None
        self._state.write(changes)

    def _add(self, origin: str, seen: Seen) -> None:
        self.seen[origin] = seen
        self._origins[sha256(origin.encode()).hexdigest()] = origin

    def _keepFork(self, note: Note, time: int) -> None:
        """Store a checkpoint that its log has signed and that is not what the log was."""
        head = TreeHead.parse(note.text)
        known = self.forks.get(head.origin)
        if known is None or time - known.time >= EVIDENCE_PERIOD:
            fork = Seen(head=head, time=time, note=note)
            self._write({(FORK, head.origin): fork.encode()})
            self.forks[head.origin] = fork


FORKED: Final = 422
"""The status with which a checkpoint is refused that does not continue what was cosigned."""


def makeWitness(directory: Path, name: str, entropy: Callable[[int], bytes]) -> VerifierKey:
    """
    Make a witness in a directory, where there is none yet.

    @param directory: the directory; it exists.
    @param name: the name of its key, by which others call it.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @return: its public key.
    @raise WitnessError: there is one already, or a part of one.
    @raise Malformed: the name is none.
    @raise OSError: the directory cannot be written.
    """
    keyPath = directory / KEY_NAME
    if keyPath.exists():
        raise WitnessError(f"{keyPath} exists already")
    seed = entropy(SEED_SIZE)
    key = WitnessKey(name, seed).verifier
    # The key comes last: with a key but without a state, a witness does not run.
    WitnessState.make(directory, key.text)
    writeFile(keyPath, f"{seed.hex()}\n".encode(), 0o600)
    return key


def resumeWitness(
    directory: Path, logs: Mapping[str, Sequence[VerifierKey]], checkpoints: Sequence[Note]
) -> Mapping[str, TreeHead]:
    """
    Give a witness whose database was lost what it has cosigned last, from checkpoints that have its
    own cosignature: with it, the witness had found that they continue all that it had cosigned
    before. Nobody may have its files open.

    @param logs: the keys of the logs, by their origins.
    @param checkpoints: signed by their logs, and cosigned by this witness.
    @return: what is taken for cosigned last, by origin.
    @raise WitnessError: they do not show what was cosigned last of each log.
    @raise svcbroker.storage.StorageError: the files cannot be written.
    @raise OSError: likewise.
    """
    last, _ = readLast(directory)
    rows = _rowsLeft(directory)
    if last is not None:
        rows = {**rows, OWN: last.key.encode()}
    if OWN not in rows:
        raise WitnessError(
            f"{directory} has nothing left of what this witness has cosigned: make a new one, with "
            "a key of its own"
        )
    key = _readKeys(directory, rows)[0].verifier
    given = _largest(_checkedOwn(key, note, logs) for note in checkpoints)
    kept = {name: seen for name, seen in seenIn(rows).items() if _isOwn(key, seen.note)}
    origins = {*(last.logs if last else ()), *(name for kind, name in rows if kind == LOG)}
    resumed = _largest([*given.values(), *kept.values()])
    for origin in sorted({*origins, *given}):
        found, size, root = resumed.get(origin), 0, EMPTY_ROOT
        if last is not None:
            size, root = last.logs.get(origin, (size, root))
        elif origin in kept:
            size, root = kept[origin].head.size, kept[origin].head.root
        isKnown = last is not None or origin in given
        if found is None or not isKnown or found.head.size < size:
            raise WitnessError(
                f"the last checkpoint of {origin} that this witness has cosigned is needed: of "
                f"size {size} or larger"
            )
        if size and found.head.size == size and found.head.root != root:
            raise WitnessError(f"the checkpoint of {origin} is not the one cosigned at size {size}")
    counts = [last.count if last else 0, writesIn(rows)]
    refused = {name: value for name, value in rows.items() if name[0] in (FORK, WRONG)}
    seen = {(LOG, origin): each.encode() for origin, each in resumed.items()}
    replaceState(directory, {OWN: rows[OWN], **refused, **seen}, max(counts) + 1)
    return {origin: each.head for origin, each in resumed.items()}


def _rowsLeft(directory: Path) -> Rows:
    """The rows of a lost database, as far as it can be read."""
    path = directory / STATE_NAME
    if path.exists():
        try:
            file = openRows(path, isReading=True)
        except StorageError:
            return {}
        try:
            return file.load()
        except StorageError:
            return {}
        finally:
            file.close()
    return {}


def _checkedOwn(key: VerifierKey, note: Note, logs: Mapping[str, Sequence[VerifierKey]]) -> Seen:
    """
    @raise WitnessError: a checkpoint is not one of these logs, or has not this cosignature.
    """
    try:
        head = TreeHead.parse(note.text)
        keys = logs.get(head.origin, ())
        signed = dict(note.verified([*keys, key]))
    except (Malformed, SignatureRefused) as error:
        raise WitnessError(f"a checkpoint cannot be used: {error}") from None
    if not any(each in signed for each in keys):
        raise WitnessError(f"no known key of {head.origin} has signed the checkpoint: see --log")
    if key not in signed:
        raise WitnessError(
            f"the checkpoint of {head.origin} of size {head.size} has no cosignature of this "
            "witness"
        )
    found = Note(note.text, tuple(signed.values()))
    return Seen(head=head, time=key.timeOf(signed[key]), note=found)


def _isOwn(key: VerifierKey, note: Note) -> bool:
    try:
        return bool(note.verified([key]))
    except SignatureRefused:
        return False


def _largest(found: Iterable[Seen]) -> dict[str, Seen]:
    """
    The largest checkpoint of each log.

    @raise WitnessError: two of one size contradict each other.
    """
    largest: dict[str, Seen] = {}
    for each in found:
        other = largest.setdefault(each.head.origin, each)
        if other.head.size == each.head.size and other.head.root != each.head.root:
            raise WitnessError(
                f"this witness has cosigned two histories of {each.head.origin}, of size "
                f"{each.head.size}: make a new one, with a key of its own"
            )
        if other.head.size < each.head.size:
            largest[each.head.origin] = each
    return largest


def _readKeys(directory: Path, rows: Rows) -> Sequence[WitnessKey | MlDsaWitnessKey]:
    """
    The keys of a witness, that of Ed25519 first.

    @raise WitnessError: the key is missing, or is that of another witness.
    """
    path, keyPath = directory / STATE_NAME, directory / KEY_NAME
    try:
        name = rows[OWN].decode()
        seed = _readSeed(keyPath)
        key = WitnessKey(VerifierKey.parse(name).name, seed)
    except (KeyError, UnicodeDecodeError, Malformed) as error:
        raise WitnessError(f"{path} is not the state of a witness: {error}") from None
    if key.verifier.text != name:
        raise WitnessError(f"{keyPath} is not the key with which {path} was made")
    second = MlDsaWitnessKey.of(key.verifier.name, seed)
    return [key] if second is None else [key, second]


def _readSeed(path: Path) -> bytes:
    try:
        seed = bytes.fromhex(readFile(path).decode("ascii"))
    except OSError as error:
        raise WitnessError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise WitnessError(f"{path} is not a key: put it back from a backup")
    return seed
