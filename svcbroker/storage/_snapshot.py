"""
Reading a file of ours without changing anything, also while a broker writes it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self, TypeVar

from attrs import frozen

from ._errors import (
    StorageFailed,
    StorageOutdated,
    StorageRefused,
    StorageUnknown,
    isDamage,
    translated,
)
from ._files import checkSchema, checkSize, companions, foreign, inspectFile, refusal, refuseSpecial
from ._metadata import APPLICATION_ID as METADATA
from ._metadata import VERSION as METADATA_VERSION
from ._metadata import metadataContents, readEntries, standInMetadata, whatMetadataNeeds
from ._reader import ChainReader, ReadConnection
from ._schema import (
    ALSO,
    Contents,
    contentsOf,
    madeBy,
    makePrivateFile,
    schemaSteps,
    standIn,
    syncFile,
    versionOf,
    whatIsNeeded,
)
from ._schema import APPLICATION_ID as LEDGER
from ._tip import logProblem

_BUSY_SECONDS: Final = 5.0
_CACHE_KIB: Final = 16 * 1024
_COPY_PAGES: Final = 1024

R = TypeVar("R", bound=ReadConnection)


class Snapshot:
    """
    A SQLite file, opened so that neither it nor any file beside it is ever written.

      - The file of a running broker is read as any reader of SQLite does, between its writes.
      - A file that no process has open is read as it is: no C{-wal} or C{-shm} appears beside it.
      - A file with a write-ahead log and no index of it, such as a copy of two files, is copied
        to a temporary directory, and read there.

    Text that is not UTF-8 is read all the same, so that an audit can report it.

    @ivar path: the file.
    @ivar version: the number of its schema.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, kind: _Kind, seen: object
    ) -> None:
        """
        Private: call L{ofLedger} or L{ofMetadata}.
        """
        self.path = path
        self.version = versionOf(connection)
        self._connection = connection
        self._kind = kind
        self._seen = seen

    @classmethod
    def ofLedger(cls, path: Path, *, mayBeOlder: bool = False) -> AbstractContextManager[Self]:
        """
        Open the file of a L{Store<svcbroker.storage.Store>} for as long as the context lasts.

        @param mayBeOlder: whether to read a file of an older schema, too. Queries are those for the
            newest schema all the same.
        @raise StorageUnknown: only later releases read it.
        @raise StorageOutdated: it is of an older schema, and may not be.
        @raise StorageRefused: it is absent, foreign, or damaged.
        """
        return cls._open(path, _ledger(path, mayBeOlder))

    @classmethod
    def ofMetadata(cls, path: Path, *, mayBeOlder: bool = False) -> AbstractContextManager[Self]:
        """
        Open a L{MetadataFile<svcbroker.storage.MetadataFile>} for as long as the context lasts.

        @param mayBeOlder: as for L{ofLedger}.
        @raise StorageRefused: as for L{ofLedger}.
        """
        return cls._open(path, _metadata(path, mayBeOlder))

    @classmethod
    @contextmanager
    def _open(cls, path: Path, kind: _Kind) -> Iterator[Self]:
        refuseSpecial(path)
        try:
            seen = _signature(path)
        except OSError:
            kind.inspect()
            raise
        log, index = companions(path)
        hasLog = log.exists() and (log.stat().st_size > 0 or index.exists())
        if not hasLog:
            with closing(_connect(path, path, "mode=ro&immutable=1", kind)) as connection:
                yield cls(path, connection, kind, seen)
        elif index.exists():
            with closing(_connect(path, path, "mode=ro", kind)) as connection:
                yield cls(path, connection, kind, None)
        else:
            kind.inspect()
            with TemporaryDirectory(prefix="svcbroker-") as folder:
                copy = Path(folder) / path.name
                shutil.copyfile(path, copy)
                shutil.copyfile(log, copy.with_name(log.name))
                with closing(_connect(path, copy, "mode=rw", kind)) as connection:
                    yield cls(path, connection, kind, None)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """
        A read transaction: while the context lasts, all reads see the same state. Keep it short,
        because the write-ahead log of a running broker grows meanwhile.

        @raise svcbroker.storage.StorageError: it cannot be read.
        """
        try:
            with _translated(self.path):
                self._connection.execute("BEGIN")
                # The transaction begins with the first read.
                self._connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            yield
        finally:
            self._end()

    def _end(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @property
    def isNewer(self) -> bool:
        """Whether a later release wrote it, which lets this one use it."""
        return self.version > self._kind.version

    def reader(self) -> ChainReader:
        """
        A reader of the file, for as long as the context lasts.
        """
        return ChainReader(self.path, self._connection)

    def read(self, make: Callable[[Path, sqlite3.Connection], R]) -> R:
        """
        Make a reader of another kind, for as long as the context lasts.
        """
        return make(self.path, self._connection)

    def readEntries(self) -> None:
        """
        Read all entries of a metadata store.

        @raise svcbroker.storage.StorageError: one of them is damaged.
        """
        with _translated(self.path):
            readEntries(self.path, self._connection)

    def checkWhole(self) -> None:
        """
        Check that the file is as long as it says, and has nothing that this program does not make.

        @raise StorageRefused: it is cut short, or has triggers or views.
        """
        with _translated(self.path):
            checkSchema(self.path, self._connection)
            # Pages that are only in the log come into the file when that is folded in.
            if not _size(companions(self.path)[0]):
                checkSize(self.path, self._connection)

    def rows(self, statement: str, *parameters: Any) -> Generator[tuple[Any, ...], None, None]:
        """
        The rows of a query, with values as they are stored.

        @raise svcbroker.storage.StorageError: it cannot be read, or not further.
        """
        with _translated(self.path):
            # Not "yield from", which closes the cursor at the end: after Ctrl-C that may be when
            # the connection is closed already.
            for row in self._connection.execute(statement, parameters):  # noqa: UP028
                yield row

    def compareContents(self) -> tuple[Sequence[str], Sequence[str]]:
        """
        Compare the file's schema with the one of its number.

        @return: the names of tables and indexes that are missing or changed, so that nothing can be
            read, and of those that should not be there.
        @raise svcbroker.storage.StorageError: it cannot be read.
        """
        with _translated(self.path):
            found = set(contentsOf(self._connection))
        expected, also = self._kind.contents(min(self.version, self._kind.version))
        missing = sorted(str(row[1]) for row in set(expected) - found)
        if self.isNewer:
            return missing, ()
        added = {str(row[1]) for row in found.difference(expected, also)}
        return missing, sorted(added.difference(missing))

    def problems(self, limit: int) -> Sequence[str]:
        """
        The problems that SQLite's integrity check reports.

        @param limit: the most problems to report.
        @raise svcbroker.storage.StorageError: the check cannot be run.
        """
        found = [str(row[0]) for row in self.rows(f"PRAGMA integrity_check({limit})")]
        return [] if found == ["ok"] else found

    def logProblem(self) -> str:
        """
        The damage of the write-ahead log; see L{svcbroker.storage._tip.logProblem}.

        @raise OSError: it cannot be read.
        """
        return logProblem(companions(self.path)[0])

    def checkUnchanged(self) -> None:
        """
        Check that no broker has begun to write the file while it was read.

        @raise StorageFailed: one has.
        """
        if self._seen is not None and self._seen != _signature(self.path):
            raise StorageFailed(f"{self.path} was changed while it was read: try again")

    def copyTo(self, target: Path, report: Callable[[int, int], object]) -> None:
        """
        Copy the file, as of one read transaction, and sync the copy.

        @param report: called with how many pages are copied, and of how many.
        @raise svcbroker.storage.StorageError: it cannot be read or written.
        """

        def progress(status: int, left: int, total: int) -> None:
            report(total - left, total)

        with _translated(self.path):
            makePrivateFile(target)
            with self.moment(), closing(sqlite3.connect(target)) as connection:
                try:
                    # In the moment of this connection, so no write of a broker starts it over.
                    self._connection.backup(connection, pages=_COPY_PAGES, progress=progress)
                    # Closing in this mode leaves one file.
                    connection.execute("PRAGMA journal_mode = DELETE")
                except sqlite3.OperationalError as error:
                    if isDamage(error):
                        raise
                    # SQLite does not say which of the two it is about.
                    raise StorageFailed(
                        f"{self.path} cannot be copied to {target} ({error}): is there room, and "
                        "are both disks well?"
                    ) from error
            self.checkUnchanged()
            syncFile(target)


def lookAtMetadata(path: Path) -> None:
    """
    Read a metadata store as it is, and refuse it where L{MetadataFile.open
    <svcbroker.storage.MetadataFile.open>} or its C{load} would. One that is absent is made.

    @raise svcbroker.storage.StorageError: it cannot be used.
    """
    refuseSpecial(path)
    if not os.path.lexists(path):
        return
    try:
        with Snapshot.ofMetadata(path, mayBeOlder=True) as snapshot, snapshot.moment():
            snapshot.readEntries()
    except OSError as error:
        raise StorageRefused(f"{path} cannot be used ({error.strerror})") from error


@frozen
class _Kind:
    """
    A kind of file that can be inspected.

    @ivar applicationId: what its header has.
    @ivar version: the number of the newest schema.
    @ivar mayBeOlder: whether a file of an older schema is read.
    @ivar inspect: says what is wrong with a file that is none. Not called for others: it closes a
        descriptor of the file, which drops the locks that a store of this process has on it.
    @ivar contents: what is in a file of a schema, by its number, and what may be there besides.
    @ivar needed: the release that a file of a newer schema needs; empty where this one will do.
    @ivar standIn: has queries for the newest schema read a file of an older one.
    """

    applicationId: int
    version: int
    mayBeOlder: bool
    inspect: Callable[[], object]
    contents: Callable[[int], tuple[Contents, Contents]]
    needed: Callable[[sqlite3.Connection, int], str]
    standIn: Callable[[sqlite3.Connection, int], None]


def _ledger(path: Path, mayBeOlder: bool) -> _Kind:
    return _Kind(
        applicationId=LEDGER,
        version=len(_steps()),
        mayBeOlder=mayBeOlder,
        inspect=lambda: inspectFile(path),
        contents=_contentsOfLedgers,
        needed=whatIsNeeded,
        standIn=lambda connection, version: standIn(connection, _steps(), version),
    )


def _metadata(path: Path, mayBeOlder: bool) -> _Kind:
    return _Kind(
        applicationId=METADATA,
        version=METADATA_VERSION,
        mayBeOlder=mayBeOlder,
        inspect=lambda: inspectFile(path, applicationId=None, what="a metadata store"),
        contents=lambda version: (metadataContents(version), ()),
        needed=whatMetadataNeeds,
        standIn=lambda connection, version: standInMetadata(connection),
    )


@cache
def _steps() -> Sequence[str]:
    # A copy has its original read the file for each block.
    return schemaSteps()


@cache
def _contentsOfLedgers(version: int) -> tuple[Contents, Contents]:
    newest = madeBy(_steps())
    also = [row for row in newest if row[1] in ALSO.get(version, ())]
    return madeBy(_steps()[:version]), also


def _connect(path: Path, file: Path, options: str, kind: _Kind) -> sqlite3.Connection:
    """
    Open a file and check what it is.

    @param path: what it is called in errors.
    @raise StorageRefused: it is another one, or cannot be opened.
    """
    try:
        connection = _connectAny(path, file, options)
        try:
            _checkIdentity(path, connection, kind)
        except BaseException:
            connection.close()
            raise
    except StorageRefused:
        kind.inspect()
        raise
    return connection


def _connectAny(path: Path, file: Path, options: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?{options}",
            uri=True,
            isolation_level=None,
            timeout=_BUSY_SECONDS,
        )
    except sqlite3.Error as error:
        raise refusal(error, path) from error
    connection.text_factory = _text
    try:
        with _damageIsText():
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(error, path) from error
    return connection


@contextmanager
def _damageIsText() -> Iterator[None]:
    """SQLite quotes what is damaged in the schema, which need not be text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.OperationalError("malformed database schema") from error


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """An error of SQLite becomes one of ours."""
    try:
        with _damageIsText():
            yield
    except sqlite3.Error as error:
        raise translated(error, path) from error


def _checkIdentity(path: Path, connection: sqlite3.Connection, kind: _Kind) -> None:
    """
    @raise StorageRefused: the file is another one, or of a schema that is not read.
    """
    try:
        with _damageIsText():
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            version = versionOf(connection)
            if found != kind.applicationId:
                raise foreign(path)
            if version > kind.version:
                needed = kind.needed(connection, kind.version)
                if needed:
                    raise StorageUnknown(
                        f"{path} has schema {version}, and this svcbroker reads schemas up to "
                        f"{kind.version}: use {needed}"
                    )
            elif version < 1:
                raise StorageRefused(f"{path} is damaged (no schema): restore it from a backup")
            elif version < kind.version:
                if not kind.mayBeOlder:
                    raise StorageOutdated(
                        f"{path} has schema {version}, and this svcbroker reads schema "
                        f"{kind.version}: start a broker of this version once"
                    )
                connection.execute("PRAGMA query_only = OFF")
                kind.standIn(connection, version)
                connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise refusal(error, path) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _signature(path: Path) -> object:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
