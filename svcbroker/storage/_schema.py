"""
The numbered steps that make the tables, and the upgrade of a file of an older number.

B{Frozen}: the SQL in C{schema/} of every number but the newest of an unreleased version. The data
directories in C{tests/commands/samples}, which older commits wrote, pin it: each step reads and
continues the files of those before.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Final, TypeAlias

from ..files import newFile

APPLICATION_ID: Final = 0x73766362
"""Written into each file's header, so that a foreign SQLite database is known as such: svcb."""

Contents: TypeAlias = Sequence[tuple[str, str, str, str | None]]
"""The contents of a file: type, name, table and SQL of each thing."""

ALSO: Final = {4: ("compacted",)}
"""
Things that some files of a schema have besides, as the newest schema has it, by the schema's
number.
"""

_VALUES: Final = {"again": "height || ':' || round"}
"""The SQL of what an upgrade puts into new columns, where that is not NULL."""

_RELEASE: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", re.ASCII)


def schemaSteps() -> Sequence[str]:
    """
    The SQL of all steps. A file of version n was made by the first n of them.
    """
    folder = resources.files(__package__) / "schema"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    if names != [f"{number:04}.sql" for number in range(1, len(names) + 1)] or not names:
        raise RuntimeError(f"the installation is incomplete: schema files {names}")
    return [(folder / name).read_text("utf-8") for name in names]


def madeBy(steps: Sequence[str]) -> Contents:
    """
    The contents of a file that some steps made: type, name, table and SQL of each thing.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        runSteps(connection, steps, 0)
        return contentsOf(connection)


def contentsOf(connection: sqlite3.Connection) -> Contents:
    """
    The contents of a file: type, name, table and SQL of each thing.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    return sorted(rows.fetchall(), key=repr)


def versionOf(connection: sqlite3.Connection) -> int:
    """
    The number of steps that made this file.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def compatibility() -> Sequence[tuple[int, int, str]]:
    """
    Rows of the table C{compatible}, as all steps make them: the number of a schema, the oldest one
    whose software may use such a file, and its first release.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        runSteps(connection, schemaSteps(), 0)
        return connection.execute("SELECT * FROM compatible ORDER BY version").fetchall()


def whatIsNeeded(connection: sqlite3.Connection, known: int) -> str:
    """
    The oldest release that may use a file of a newer schema, for the words of a refusal; empty
    where this one may.

    @param known: the newest schema that this software knows.
    """
    version = versionOf(connection)
    try:
        row = connection.execute(
            "SELECT since, release FROM compatible WHERE version = ?", (version,)
        ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        row = None
    since, release = row or (None, None)
    if isinstance(since, int) and 1 <= since <= known:
        return ""
    isNamed = isinstance(release, str) and _RELEASE.fullmatch(release)
    return f"svcbroker {release} or later" if isNamed else "a newer svcbroker"


def standIn(connection: sqlite3.Connection, steps: Sequence[str], version: int) -> None:
    """
    Let queries for the newest schema read a file of an older one, which stays as it is. What the
    later steps would add to it is made in the connection's temporary database, where SQLite looks
    first: empty tables, and views with the new columns.

    @param version: the number of the file's schema.
    """
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as older,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as newest,
    ):
        runSteps(older, steps[:version], 0)
        runSteps(newest, steps, 0)
        known = {name for _, name, _, _ in contentsOf(older)}
        known |= {name for _, name, _, _ in contentsOf(connection)}
        connection.execute("PRAGMA temp_store = MEMORY")
        for kind, name, table, sql in sorted(contentsOf(newest), reverse=True):
            if table in known:
                added = _columns(newest, table) - _columns(older, table)
                if kind == "table" and _columns(older, table) and added:
                    columns = [f"{_VALUES.get(each, 'NULL')} AS {each}" for each in sorted(added)]
                    connection.execute(
                        f"CREATE TEMP VIEW {name} AS SELECT *, {', '.join(columns)} "
                        f"FROM main.{name}"
                    )
            elif sql is not None:
                connection.execute(sql.replace(f"{name}", f"temp.{name}", 1))
                if kind == "table":
                    for row in newest.execute(f"SELECT * FROM {name}"):
                        places = ", ".join("?" * len(row))
                        connection.execute(f"INSERT INTO temp.{name} VALUES ({places})", row)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}


def runSteps(connection: sqlite3.Connection, steps: Sequence[str], version: int) -> None:
    """
    Take a file from C{version} to the newest, all steps or none.
    """
    script = [
        "BEGIN IMMEDIATE",
        *(step.rstrip().removesuffix(";") for step in steps[version:]),
        f"PRAGMA user_version = {len(steps)}",
        "COMMIT",
    ]
    try:
        connection.executescript(";\n".join(script) + ";")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def backUp(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    """
    Copy a store beside itself before it is upgraded. The copy appears whole or not at all.

    @return: where the copy is.
    """
    copy = path.with_name(f"{path.name}.v{version}.backup")
    unfinished = copy.with_name(copy.name + ".new")
    unfinished.unlink(missing_ok=True)
    makePrivateFile(unfinished)
    with closing(sqlite3.connect(unfinished)) as target:
        connection.backup(target)
        # Closing in this mode leaves one file, which is what gets its name below.
        target.execute("PRAGMA journal_mode = DELETE")
    syncFile(unfinished)
    os.replace(unfinished, copy)
    syncFile(copy.parent)
    return copy


def removeBackups(path: Path) -> None:
    """
    Remove the copies of a store that were made before upgrades.

    @raise OSError: one cannot be removed.
    """
    found = list(path.parent.glob(f"{path.name}.v*.backup*"))
    for copy in found:
        copy.unlink(missing_ok=True)
    if found:
        syncFile(path.parent)


def makePrivateFile(path: Path) -> None:
    """
    Create an empty file that only its owner may read, where there is none. SQLite gives its
    write-ahead log and its shared memory the same mode.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def syncFile(path: Path) -> None:
    """
    Have a file, or a directory with the names in it, on stable storage.

    Never on a file that a connection of this process has open: closing any descriptor of a
    file drops the process's locks on it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def writeFile(path: Path, data: bytes, mode: int = 0o644) -> None:
    """
    Write a file atomically, and sync it. Where that fails the file is as before.

    @param mode: its permissions.
    @raise OSError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    # What a crash has left, or somebody else has put there.
    temporary.unlink(missing_ok=True)
    try:
        with newFile(temporary, mode) as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    syncFile(path.parent)
