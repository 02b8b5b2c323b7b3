"""
The state of a witness on disk: the database of what it has cosigned, and beside it the record of
the last write, without which a damaged or restored database would look like one that has seen less.

A witness with such a database would cosign another history. So each write goes to the database
first, then to the record, and only then is a cosignature given away. The record has the number of
writes and a hash over all rows. A database that is behind it, or is another one, is not used. One
that is a single write ahead is what a crash between the two leaves, and its row of the count says
which state that write continued.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from attrs import frozen
from twisted.logger import Logger

from ...chain import Malformed
from ...files import readFile
from ...storage import (
    MetadataFile,
    StorageDamaged,
    StorageError,
    StorageFailed,
    logProblem,
    syncFile,
    writeFile,
)
from ..tlog import Note, TreeHead

STATE_NAME: Final = "seen.sqlite"
"""The file of what was cosigned."""
LAST_NAME: Final = "seen.last"
"""The record of the last write to it."""

OWN: Final = ("witness", "key")
"""The row of the public key."""
LOG: Final = "log"
"""The kind of the rows with the last cosigned checkpoint of a log."""
FORK: Final = "fork"
"""The kind of the rows with the last refused fork of a log."""
WRONG: Final = "wrong"
"""
The kind of the rows with what was found wrong with a chain, by the chain's id in digits; where that
is a tree of its statements, a word follows.
"""

_COUNT: Final = ("witness", "count")
_FORMAT: Final = "svcbroker-witness/1"
_NONE: Final = bytes(32)
_SUFFIXES: Final = ("", "-journal", "-wal", "-shm")

# Where SQLite's header says whether a file has a write-ahead log (Database File Format, 1.3.3).
_VERSIONS: Final = slice(18, 20)
_LOGGED: Final = b"\x02\x02"

Rows = Mapping[tuple[str, str], bytes]
"""Rows by kind and name."""


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
        """The bytes that are stored."""
        return b"%d\n%b" % (self.time, self.note.encode())


@frozen(kw_only=True)
class Wrong:
    """
    A fault that an executing witness has found. Of a chain with a wrong block it cosigns nothing
    any more.

    @ivar time: when that was, in seconds since the epoch.
    @ivar text: what is wrong, in one sentence.
    @ivar note: the wrong checkpoint that its log has signed; C{None} where a block is wrong, which
        is kept beside the copy.
    """

    time: int
    text: str
    note: Note | None = None

    @classmethod
    def decode(cls, data: bytes) -> Wrong:
        """
        Read what is stored.

        @raise Malformed: it is something else.
        """
        time, _, rest = data.partition(b"\n")
        text, separator, note = rest.partition(b"\n")
        if not separator or not time.isdigit():
            raise Malformed("what was found wrong is stored without its time")
        try:
            said = text.decode()
        except UnicodeDecodeError:
            raise Malformed("what was found wrong is not stored as text") from None
        return cls(time=int(time), text=said, note=Note.decode(note) if note else None)

    def encode(self) -> bytes:
        """The bytes that are stored."""
        note = b"" if self.note is None else self.note.encode()
        return b"%d\n%b\n%b" % (self.time, " ".join(self.text.split()).encode(), note)


@frozen(kw_only=True)
class LastWrite:
    """
    The contents of the record: the state after the last write whose cosignature may have been
    given away.

    @ivar key: the public key of the witness.
    @ivar count: how many writes there were.
    @ivar rows: the hash over all rows.
    @ivar logs: what was cosigned last of each log, by origin: size and root.
    """

    key: str
    count: int
    rows: bytes
    logs: Mapping[str, tuple[int, bytes]]

    def encode(self) -> bytes:
        """The content of the file: lines of text, and their hash."""
        lines = [_FORMAT, f"key {self.key}", f"count {self.count}", f"rows {self.rows.hex()}"]
        for origin, (size, root) in sorted(self.logs.items()):
            lines.append(f"log {size} {root.hex()} {origin}")
        text = "".join(f"{line}\n" for line in lines).encode()
        return text + b"sum %s\n" % sha256(text).hexdigest().encode()

    @classmethod
    def decode(cls, data: bytes) -> LastWrite:
        """
        Read the file.

        @raise Malformed: it is not what was written.
        """
        try:
            format, key, count, rows, *logs, _, end = data.decode().split("\n")
            found = cls(
                key=key.removeprefix("key "),
                count=int(count.removeprefix("count ")),
                rows=bytes.fromhex(rows.removeprefix("rows ")),
                logs={
                    origin: (int(size), bytes.fromhex(root))
                    for _, size, root, origin in (line.split(" ", 3) for line in logs)
                },
            )
        except ValueError:
            raise Malformed("its lines are not those that were written") from None
        if format != _FORMAT or end or found.encode() != data:
            raise Malformed("its lines are not those of its hash")
        return found

    @classmethod
    def of(cls, rows: Rows) -> LastWrite:
        """
        The record of a database.

        @raise Malformed: its rows are not those that were written together.
        """
        try:
            count, _, others = _count(rows)
            key = rows[OWN].decode()
        except (KeyError, ValueError):
            raise Malformed("it has not the rows of a witness") from None
        if others != _hash({name: value for name, value in rows.items() if name != _COUNT}):
            raise Malformed("rows of it are missing, or are not those that were written together")
        heads = {
            name: Seen.decode(value).head for (kind, name), value in rows.items() if kind == LOG
        }
        logs = {origin: (head.size, head.root) for origin, head in heads.items()}
        return cls(key=key, count=count, rows=_hash(rows), logs=logs)


def _count(rows: Rows) -> tuple[int, bytes, bytes]:
    """
    The number of writes, the hash of all rows before the last one, and that of all others now.
    """
    count, before, others = rows[_COUNT].decode("ascii").split(" ")
    return int(count), bytes.fromhex(before), bytes.fromhex(others)


def writesIn(rows: Rows) -> int:
    """
    The number of writes that the rows name; 0 where they name none.
    """
    try:
        return _count(rows)[0]
    except (KeyError, ValueError):
        return 0


def _hash(rows: Rows) -> bytes:
    hashed = sha256()
    for (kind, name), value in sorted(rows.items()):
        for part in (kind.encode(), name.encode(), value):
            hashed.update(b"%d:%b" % (len(part), part))
    return hashed.digest()


def counted(rows: Rows, count: int, before: bytes = _NONE) -> dict[tuple[str, str], bytes]:
    """
    Rows with the row of their count, as they are written.

    @param count: how many writes there were, this one included.
    @param before: the hash over all rows before it.
    """
    others = {name: value for name, value in rows.items() if name != _COUNT}
    text = f"{count} {before.hex()} {_hash(others).hex()}"
    return {**others, _COUNT: text.encode("ascii")}


class WitnessState:
    """
    The rows of a witness, in both files. Every call may block on the disk; one thread at a time.

    @ivar rows: all rows, by kind and name.
    """

    _log = Logger()

    def __init__(self, directory: Path, file: MetadataFile, rows: Rows, last: LastWrite) -> None:
        """
        Private: call L{open}.
        """
        self.rows = rows
        self._directory = directory
        self._file = file
        self._last = last
        self._isBehind = self._isUncertain = False

    @classmethod
    def open(cls, directory: Path) -> Self:
        """
        Open the files of a witness. Those of the version before have no record: they get one.

        @raise WitnessError: the database is not the one that was written last. The text says what
            the witness needs to go on.
        """
        path = directory / STATE_NAME
        last, problem = readLast(directory)
        rows: Rows = {}
        file: MetadataFile | None = None
        try:
            _checkLog(path)
            # Where it is refused, it stays as it is.
            file = openRows(path, isReading=bool(problem))
            rows = file.load()
            if problem:
                raise Malformed(problem)
            if _COUNT not in rows:
                return cls._upgrade(directory, file, rows, last)
            if last is None:
                raise Malformed(f"{directory / LAST_NAME} is missing")
            state = cls(directory, file, rows, _following(rows, last))
            state._isBehind = state._last != last
            state._catchUp()
            return state
        except BaseException as error:
            if file is not None:
                file.close()
            if isinstance(error, Malformed | StorageError | OSError):
                raise _lost(directory, str(error), last, rows) from None
            raise

    @classmethod
    def _upgrade(
        cls, directory: Path, file: MetadataFile, rows: Rows, last: LastWrite | None
    ) -> Self:
        """
        @raise Malformed: it is no database of the version before, or one that had a record.
        """
        if OWN not in rows:
            raise Malformed("it is not the state of a witness: it has no key")
        cls._log.warn(
            "{path} is of a version before, which left no record of its last write: compare these "
            "sizes with the checkpoints that the logs have with this witness's signature. {sizes}",
            path=file.path,
            sizes=_sizesOf(rows) or "nothing was cosigned yet",
        )
        return cls._begin(directory, file, rows, last)

    @classmethod
    def _begin(
        cls, directory: Path, file: MetadataFile, rows: Rows, last: LastWrite | None
    ) -> Self:
        """Write the first record, and then the row that belongs to it."""
        first = counted(rows, 1)
        planned = LastWrite.of(first)
        if last not in (None, planned):
            raise Malformed(f"it is older than {directory / LAST_NAME}")
        writeFile(directory / LAST_NAME, planned.encode(), 0o600)
        file.write(first)
        return cls(directory, file, first, planned)

    @classmethod
    def make(cls, directory: Path, key: str) -> None:
        """
        Make the files of a witness that has cosigned nothing.

        @param key: its public key.
        @raise WitnessError: there is something that was cosigned.
        """
        path = directory / STATE_NAME
        try:
            file = openRows(path)
            try:
                rows = file.load()
                if any(kind == LOG for kind, _ in rows):
                    raise WitnessError(f"the key to {path} is missing: put it back")
                file.write(dict.fromkeys(rows))
                cls._begin(directory, file, {OWN: key.encode()}, None)
            finally:
                file.close()
        except StorageError as error:
            raise WitnessError(str(error)) from None

    def write(self, changes: Rows) -> None:
        """
        Write rows. They are in both files when this returns.

        @raise svcbroker.storage.StorageError: they are not. Whatever belongs to them must not be
            given away; the same call may be tried again.
        """
        self._catchUp()
        last = self._last
        rows = counted({**self.rows, **changes}, last.count + 1, last.rows)
        self._isUncertain = True
        self._file.write({**changes, _COUNT: rows[_COUNT]})
        self._isUncertain = False
        self.rows, self._last, self._isBehind = rows, LastWrite.of(rows), True
        self._catchUp()

    def _catchUp(self) -> None:
        """
        Bring the record to the database's state, after a failed write too.

        @raise svcbroker.storage.StorageError: a disk still fails.
        """
        if self._isUncertain:
            rows = self._file.load()
            try:
                following = _following(rows, self._last)
            except Malformed as error:
                raise StorageDamaged(f"{self._file.path} is damaged: {error}") from None
            self.rows, self._last = rows, following
            self._isUncertain, self._isBehind = False, True
        if self._isBehind:
            path = self._directory / LAST_NAME
            try:
                writeFile(path, self._last.encode(), 0o600)
            except OSError as error:
                raise StorageFailed(f"{path} cannot be written: {error.strerror}") from error
            self._isBehind = False

    def close(self) -> None:
        """Close the files."""
        self._file.close()


def _following(rows: Rows, last: LastWrite) -> LastWrite:
    """
    Compare a database with the record of the last write.

    @return: its own record.
    @raise Malformed: it is neither what was written last, nor that with one write more.
    """
    found = LastWrite.of(rows)
    if found == last:
        return found
    count, before, _ = _count(rows)
    if (count, before, found.key) == (last.count + 1, last.rows, last.key):
        return found
    if count < last.count:
        raise Malformed(f"it is older than {LAST_NAME}: it has {count} of {last.count} writes")
    raise Malformed(f"it does not continue what {LAST_NAME} says")


def readLast(directory: Path) -> tuple[LastWrite | None, str]:
    """
    Read the record of the last write.

    @return: the record, C{None} where there is none; and why it cannot be used, if so.
    """
    path = directory / LAST_NAME
    try:
        return LastWrite.decode(readFile(path)), ""
    except FileNotFoundError:
        return None, ""
    except Malformed as error:
        return None, f"{path} is damaged: {error}"
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"


def openRows(path: Path, *, isReading: bool = False) -> MetadataFile:
    """
    Open the database.

    @param isReading: whether to leave it as it is, also where the witness runs.
    @raise svcbroker.storage.StorageError: it cannot be used.
    """
    return MetadataFile.open(path, journal=None if isReading else "DELETE", advice="")


def _checkLog(path: Path) -> None:
    """
    Check the write-ahead log of a database of the version before: to SQLite a damaged one ends
    early, and an absent one is empty.

    @raise Malformed: it is damaged or missing, or the database is.
    """
    try:
        with path.open("rb") as file:
            isLogged = file.read(_VERSIONS.stop)[_VERSIONS] == _LOGGED
    except FileNotFoundError:
        raise Malformed("it is missing") from None
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if isLogged and index.exists() and not log.exists():
        raise Malformed(f"{log} is missing")
    problem = logProblem(log) if isLogged else ""
    if problem:
        raise Malformed(f"{log} is damaged: {problem}")


def seenIn(rows: Rows) -> dict[str, Seen]:
    """
    The checkpoints cosigned last by the rows, by origin. Rows that cannot be read are left out.
    """
    found: dict[str, Seen] = {}
    for (kind, name), value in rows.items():
        if kind == LOG:
            with suppress(Malformed):
                found[name] = Seen.decode(value)
    return found


def _sizesOf(rows: Rows) -> str:
    seen = sorted(seenIn(rows).items())
    return ", ".join(f"{origin}: size {each.head.size}" for origin, each in seen)


def _lost(directory: Path, problem: str, last: LastWrite | None, rows: Rows) -> WitnessError:
    """The refusal of a witness to start, with the way to go on."""
    if last is not None:
        sizes = ", ".join(
            f"{origin}: size {size}" for origin, (size, _) in sorted(last.logs.items())
        )
        needs = f"what it cosigned last is known ({sizes or 'nothing'})"
    else:
        sizes = _sizesOf(rows).replace(": size ", ": at least size ")
        needs = f"it needs to know what it cosigned last ({sizes or 'of no log anything is known'})"
    return WitnessError(
        f"{directory / STATE_NAME} is not what this witness has written last ({problem}), so it "
        f"does not start: it could cosign a second history; {needs}; resume it with the "
        "checkpoints of the logs that have its own signature (svcbroker net witness resume), or "
        "make a "
        "new witness, with a key of its own; never restore these files from a backup, nor move "
        "them away"
    )


def replaceState(directory: Path, rows: Rows, count: int) -> None:
    """
    Put other rows in the place of lost ones. The old database stays beside the new one.

    @param count: how many writes there were, this one included.
    @raise svcbroker.storage.StorageError: they cannot be written.
    @raise OSError: the files cannot be moved.
    """
    path = directory / STATE_NAME
    made = path.with_name(f"{STATE_NAME}.new")
    for suffix in _SUFFIXES:
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    whole = counted(rows, count)
    file = openRows(made)
    try:
        file.write(whole)
    finally:
        file.close()
    writeFile(directory / LAST_NAME, LastWrite.of(whole).encode(), 0o600)
    for suffix in _SUFFIXES:
        # A log or a journal of the old one would be taken for one of the new one.
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}.lost{suffix}")
    os.replace(made, path)
    syncFile(directory)
