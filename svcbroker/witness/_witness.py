"""
A witness: cosigns the checkpoints of logs, as long as each has only grown (c2sp.org/tlog-witness).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from attrs import frozen

from ..chain import Malformed
from ..files import readFile
from ..storage import MetadataFile, StorageRefused, writeFile
from ..tlog import (
    AddCheckpoint,
    CheckpointRefused,
    Note,
    TreeHead,
    VerifierKey,
    WitnessKey,
    checkCheckpoint,
)

KEY_NAME: Final = "witness.key"
"""The file of the private key."""
STATE_NAME: Final = "seen.sqlite"
"""The file of what was cosigned."""
SEED_SIZE: Final = 32
EVIDENCE_PERIOD: Final = 60
"""A refused fork of a log is stored at most once in this many seconds."""

_OWN: Final = ("witness", "key")
_LOG: Final = "log"
_FORK: Final = "fork"


class WitnessError(Exception):
    """A witness that cannot run. The text is one line for its operator."""


@frozen(kw_only=True)
class Seen:
    """
    A checkpoint of a log that this witness has cosigned, or has refused as a fork.

    @ivar head: what it says.
    @ivar time: when that was, in seconds since the epoch.
    @ivar note: the checkpoint; the cosigned one with the cosignature.
    """

    head: TreeHead
    time: int
    note: Note

    @classmethod
    def decode(cls, data: bytes) -> Seen:
        """
        Read what is stored.

        @raise Malformed: it is something else.
        """
        time, separator, note = data.partition(b"\n")
        if not separator or not time.isdigit():
            raise Malformed("a checkpoint is stored without its time")
        checkpoint = Note.decode(note)
        return cls(head=TreeHead.parse(checkpoint.text), time=int(time), note=checkpoint)

    def encode(self) -> bytes:
        """What is stored."""
        return b"%d\n%b" % (self.time, self.note.encode())


class Witness:
    """
    A witness with its state on disk. Every call may block on the disk; one thread at a time.

    @ivar verifier: its public key.
    @ivar seen: the last cosigned checkpoint of each log, by origin.
    @ivar forks: the last refused fork of each log that tried one, by origin.
    """

    def __init__(
        self,
        key: WitnessKey,
        file: MetadataFile,
        logs: Mapping[str, Sequence[VerifierKey]],
        now: Callable[[], float],
    ) -> None:
        """
        Private: call L{open}.
        """
        self.verifier = key.verifier
        self.seen: dict[str, Seen] = {}
        self.forks: dict[str, Seen] = {}
        self._key = key
        self._file = file
        self._logs = logs
        self._now = now
        self._origins: dict[str, str] = {}
        for (kind, name), value in file.load().items():
            if kind == _LOG:
                self._add(name, Seen.decode(value))
            elif kind == _FORK:
                self.forks[name] = Seen.decode(value)

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
        path, keyPath = directory / STATE_NAME, directory / KEY_NAME
        if not path.exists():
            raise WitnessError(
                f"{path} is missing: a witness must not go on without what it has cosigned; "
                "make a new one, with a key of its own"
            )
        file = _openState(path)
        try:
            name = file.load()[_OWN].decode()
            key = WitnessKey(VerifierKey.parse(name).name, _readSeed(keyPath))
            if key.verifier.text != name:
                raise WitnessError(f"{keyPath} is not the key with which {path} was made")
            return cls(key, file, logs, now)
        except BaseException as error:
            file.close()
            if isinstance(error, KeyError | UnicodeDecodeError | Malformed):
                raise WitnessError(f"{path} is not the state of a witness: {error}") from None
            raise

    def useLogs(self, logs: Mapping[str, Sequence[VerifierKey]]) -> None:
        """Witness these logs from now on. What was cosigned of others is still known."""
        self._logs = logs

    def addCheckpoint(self, data: bytes) -> str:
        """
        Cosign a checkpoint. It is on disk before its cosignature exists outside of this call.

        @param data: the body of the request.
        @return: the lines of the cosignatures.
        @raise CheckpointRefused: it is not cosigned.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        try:
            request = AddCheckpoint.decode(data)
        except Malformed as error:
            raise CheckpointRefused(400, str(error)) from None
        origin = request.checkpoint.text.partition("\n")[0]
        latest = self.seen.get(origin)
        # A clock that is set back does not make later checkpoints older.
        time = max(int(self._now()), 1, latest.time if latest else 0)
        try:
            head, note = checkCheckpoint(request, self._logs, latest.head if latest else None)
        except CheckpointRefused as refusal:
            if refusal.status == FORKED:
                self._keepFork(request.checkpoint, time)
            raise
        cosignature = self._key.cosign(note.text, time)
        seen = Seen(head=head, time=time, note=note.signedBy(cosignature))
        self._file.write({(_LOG, origin): seen.encode()})
        self._add(origin, seen)
        return cosignature.line

    def latest(self, originHash: str) -> Seen | None:
        """
        The last cosigned checkpoint of a log.

        @param originHash: the SHA-256 of its origin, in hexadecimal digits.
        """
        origin = self._origins.get(originHash)
        return None if origin is None else self.seen[origin]

    def close(self) -> None:
        """Close the files."""
        self._file.close()

    def _add(self, origin: str, seen: Seen) -> None:
        self.seen[origin] = seen
        self._origins[sha256(origin.encode()).hexdigest()] = origin

    def _keepFork(self, note: Note, time: int) -> None:
        """Store a checkpoint that its log has signed and that is not what the log was."""
        head = TreeHead.parse(note.text)
        known = self.forks.get(head.origin)
        if known is None or time - known.time >= EVIDENCE_PERIOD:
            fork = Seen(head=head, time=time, note=note)
            self._file.write({(_FORK, head.origin): fork.encode()})
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
    keyPath, path = directory / KEY_NAME, directory / STATE_NAME
    if keyPath.exists():
        raise WitnessError(f"{keyPath} exists already")
    if path.exists():
        file = _openState(path)
        try:
            if any(kind == _LOG for kind, _ in file.load()):
                raise WitnessError(f"{keyPath} is missing: put it back")
        finally:
            file.close()
    seed = entropy(SEED_SIZE)
    key = WitnessKey(name, seed).verifier
    # The key comes last: with a key but without a state, a witness does not run.
    file = _openState(path)
    try:
        file.write({_OWN: key.text.encode()})
    finally:
        file.close()
    writeFile(keyPath, f"{seed.hex()}\n".encode(), 0o600)
    return key


def _openState(path: Path) -> MetadataFile:
    try:
        return MetadataFile.open(path)
    except StorageRefused as error:
        raise WitnessError(
            f"{path} cannot be used ({error.__cause__ or error}): make a new witness, with a key "
            "of its own, if it cannot be repaired"
        ) from None


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
