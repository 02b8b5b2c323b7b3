"""
Files that lose or tear what was not synced, below SQLite.

SQLite reaches its files through a table of functions, its VFS. The one here passes all calls on to
the usual one, and records writes until they are synced. From that, L{LossyFiles.image} makes what a
power failure at this moment would leave on the disk: the synced content, with any of the sectors
that were written since, in any order.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from attrs import define, field, frozen

SECTOR = 512
"""How many bytes a disk writes atomically."""
NAME = b"lossy"
_OK = 0

_Pointer: TypeAlias = ctypes.c_void_p
_Int = ctypes.c_int
_OPEN = ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.c_char_p, _Pointer, _Int, ctypes.POINTER(_Int))
_OPEN_RAW = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Pointer, _Int, ctypes.POINTER(_Int))
_DELETE = ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.c_char_p, _Int)
_WRITE = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(_Int, _Pointer, _Int)
_CLOSE = ctypes.CFUNCTYPE(_Int, _Pointer)


class _Vfs(ctypes.Structure):
    """C{struct sqlite3_vfs}."""

    _fields_ = (
        ("version", _Int),
        ("fileSize", _Int),
        ("longestPath", _Int),
        ("next", _Pointer),
        ("name", ctypes.c_char_p),
        ("data", _Pointer),
        ("open", _Pointer),
        ("delete", _Pointer),
        ("others", _Pointer * 13),
    )


class _Methods(ctypes.Structure):
    """C{struct sqlite3_io_methods}."""

    _fields_ = (
        ("version", _Int),
        ("close", _Pointer),
        ("read", _Pointer),
        ("write", _Pointer),
        ("truncate", _Pointer),
        ("sync", _Pointer),
        ("others", _Pointer * 13),
    )


class _File(ctypes.Structure):
    """The beginning of C{struct sqlite3_file}."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


@frozen
class _Write:
    """A write, or where C{data} is C{None} a truncation to C{offset}."""

    offset: int
    data: bytes | None


@define
class FileState:
    """
    What is known of one file.

    @ivar synced: its content when it was synced last; C{None} where it was not there.
    @ivar pending: what was written since.
    """

    synced: bytearray | None
    pending: list[_Write] = field(factory=list)

    def sync(self) -> None:
        """Apply all writes."""
        content = self.synced = bytearray() if self.synced is None else self.synced
        for write in self.pending:
            if write.data is None:
                del content[write.offset :]
            else:
                _put(content, write.offset, write.data)
        self.pending.clear()

    def copy(self) -> FileState:
        """The state now, which later writes do not change."""
        return FileState(None if self.synced is None else bytearray(self.synced), [*self.pending])

    def left(self, random: Random) -> bytes | None:
        """
        The content after a power failure; C{None} if the file is not there. Of what was not
        synced, all, nothing or some sectors are left.
        """
        share = random.choice((0.0, random.random(), 1.0))
        if self.synced is None and share == 0.0:
            return None
        return bytes(self.content(lambda: random.random() < share))

    def content(self, isKept: Callable[[], bool] = lambda: True) -> bytearray:
        """
        The content with all writes.

        @param isKept: called for each sector that was not synced.
        """
        content = bytearray(self.synced or b"")
        for write in self.pending:
            if write.data is None:
                if isKept():
                    del content[write.offset :]
                continue
            for start in range(0, len(write.data), SECTOR):
                if isKept():
                    _put(content, write.offset + start, write.data[start : start + SECTOR])
        return content


def _put(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


Image: TypeAlias = dict[Path, FileState]
"""The states of all files at one moment."""


class LossyFiles:
    """
    Records what SQLite writes to the files below a directory.

    @ivar changed: called before each write, truncation and sync.
    @ivar isFull: whether the disk is full: files cannot be written.
    @ivar isFailing: whether the disk fails: files cannot be synced.
    """

    def __init__(self, root: Path) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.isFull = self.isFailing = False
        self._root = root.absolute()
        self._files: Image = {}

    def image(self) -> Image:
        """The states of all files now."""
        return {path: state.copy() for path, state in self._files.items()}

    def isBelow(self, path: Path) -> bool:
        """Whether a file is recorded."""
        return path.is_relative_to(self._root)

    def opened(self, path: Path, wasThere: bool) -> FileState:
        """The state of a file that was opened. A file that is new here is on stable storage."""
        state = self._files.get(path)
        if state is None:
            state = FileState(bytearray(path.read_bytes()) if wasThere else None)
            self._files[path] = state
        return state

    def forget(self, directory: Path) -> None:
        """Forget the files in a directory that was deleted."""
        for path in [path for path in self._files if path.is_relative_to(directory.absolute())]:
            del self._files[path]

    def deleted(self, path: Path) -> None:
        """Forget a file that was deleted."""
        self._files.pop(path, None)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have SQLite use these files. One at a time."""
        assert _Shim.files is None
        _Shim.files = self
        _shim().register()
        try:
            yield
        finally:
            _shim().unregister()
            _Shim.files = None


class _Shim:
    """
    The VFS. Made once, since SQLite and open files keep pointers into it.

    @cvar files: who records.
    """

    files: LossyFiles | None = None

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL(_sqlite3.__file__)
        try:
            library.sqlite3_vfs_find.restype = _Pointer
        except AttributeError:
            raise RuntimeError(
                "the simulation needs a Python whose SQLite is a shared library"
            ) from None
        library.sqlite3_vfs_register.argtypes = [_Pointer, _Int]
        library.sqlite3_vfs_unregister.argtypes = [_Pointer]
        self._usual = library.sqlite3_vfs_find(None)
        usual = _Vfs.from_address(self._usual)
        # What the usual functions are, and those that are called instead, which must stay.
        self._open = _OPEN_RAW(usual.open)
        self._delete = _DELETE(usual.delete)
        self._methods: dict[int, tuple[_Methods, Any]] = {}
        self._states: dict[int, tuple[LossyFiles, FileState]] = {}
        self._own = (_OPEN_RAW(self._onOpen), _DELETE(self._onDelete))
        self._vfs = _Vfs.from_buffer_copy(usual)
        self._vfs.name = NAME
        self._vfs.next = None
        self._vfs.open, self._vfs.delete = (
            ctypes.cast(function, _Pointer).value for function in self._own
        )

    def register(self) -> None:
        """Become the VFS of files that are opened from now on."""
        self._library.sqlite3_vfs_register(ctypes.addressof(self._vfs), 1)

    def unregister(self) -> None:
        """Be it no longer."""
        self._library.sqlite3_vfs_unregister(ctypes.addressof(self._vfs))
        self._library.sqlite3_vfs_register(self._usual, 1)

    def _onOpen(self, vfs: int, name: int | None, file: int, flags: int, out: Any) -> int:
        files = self.files
        path = None if name is None else Path(ctypes.string_at(name).decode())
        isRecorded = files is not None and path is not None and files.isBelow(path)
        wasThere = isRecorded and path is not None and path.exists()
        # SQLite reads behind the name, so it is passed on as it is.
        status: int = self._open(self._usual, name, file, flags, out)
        if status == _OK and isRecorded:
            assert files is not None and path is not None
            self._states[file] = files, files.opened(path, wasThere)
            handle = _File.from_address(file)
            handle.methods = ctypes.pointer(self._wrapped(handle.methods))
        return status

    def _onDelete(self, vfs: int, name: bytes, syncs: int) -> int:
        if self.files is not None:
            self.files.deleted(Path(name.decode()))
        status: int = self._delete(self._usual, name, syncs)
        return status

    def _wrapped(self, usual: Any) -> _Methods:
        """The functions of an open file, which record what they do."""
        address = ctypes.addressof(usual.contents)
        known = self._methods.get(address)
        if known is not None:
            return known[0]
        write, truncate = _WRITE(usual.contents.write), _TRUNCATE(usual.contents.truncate)
        sync, close = _SYNC(usual.contents.sync), _CLOSE(usual.contents.close)

        def onWrite(file: int, data: int, size: int, offset: int) -> int:
            files, state = self._states[file]
            files.changed()
            if files.isFull:
                return sqlite3.SQLITE_FULL
            state.pending.append(_Write(offset, ctypes.string_at(data, size)))
            status: int = write(file, data, size, offset)
            return status

        def onTruncate(file: int, size: int) -> int:
            files, state = self._states[file]
            files.changed()
            state.pending.append(_Write(size, None))
            status: int = truncate(file, size)
            return status

        def onSync(file: int, flags: int) -> int:
            files, state = self._states[file]
            files.changed()
            if files.isFailing:
                return sqlite3.SQLITE_IOERR_FSYNC
            status: int = sync(file, flags)
            if status == _OK:
                state.sync()
            return status

        def onClose(file: int) -> int:
            self._states.pop(file, None)
            status: int = close(file)
            return status

        own = (_WRITE(onWrite), _TRUNCATE(onTruncate), _SYNC(onSync), _CLOSE(onClose))
        methods = _Methods.from_buffer_copy(usual.contents)
        methods.write, methods.truncate, methods.sync, methods.close = (
            ctypes.cast(function, _Pointer).value for function in own
        )
        self._methods[address] = methods, (own, write, truncate, sync, close)
        return methods


_made: list[_Shim] = []


def _shim() -> _Shim:
    if not _made:
        _made.append(_Shim())
    return _made[0]
