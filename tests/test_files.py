"""
Tests for L{svcbroker.files}.
"""

from __future__ import annotations

import ast
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker
from svcbroker.access import readAccounts
from svcbroker.access.authenticators.jwt import readKeySet
from svcbroker.access.authenticators.mosquitto import readPasswords
from svcbroker.client import AuthorKey, Client
from svcbroker.client._httpx import makeContext
from svcbroker.commands.bundle import readRoots
from svcbroker.commands.clientcommand import Contexts
from svcbroker.commands.inputs import readPolicy
from svcbroker.daemon.config import readSettings
from svcbroker.daemon.operating import readOperatorFile
from svcbroker.files import newFile, openFile, readFile, replaceFile, specialKind, writeNew
from svcbroker.net.pem import readCertificates


def makeSpecial(path: Path) -> dict[Path, str]:
    """
    A FIFO, a socket and a device beside each other.

    @param path: the beginning of their names, which is short: names of sockets are.
    @return: their kinds.
    """
    names = [path.with_name(path.name + end) for end in ("-fifo", "-socket", "-device")]
    os.mkfifo(names[0])
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(names[1]))
    # To read it would never end.
    names[2].symlink_to("/dev/zero")
    return dict(zip(names, ("a FIFO", "a socket", "a device"), strict=True))


class ReadingTests(SynchronousTestCase):
    """
    Files that people name are read.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.file = self.directory / "file"
        self.file.write_bytes(b"content")

    def test_filesAreRead(self) -> None:
        """Also by a link to one."""
        link = self.directory / "link"
        link.symlink_to("file")
        for path in (self.file, link, str(self.file)):
            self.assertEqual(readFile(path), b"content")
            with openFile(path) as file:
                self.assertEqual(file.read(3), b"con")

    def test_oneByteMoreThanTheMostShowsALargerFile(self) -> None:
        for most, read in ((8, b"content"), (7, b"content"), (6, b"content"), (5, b"conten")):
            self.assertEqual(readFile(self.file, most), read)

    def test_otherThingsAreNamed(self) -> None:
        """Without waiting for them."""
        for path, kind in makeSpecial(self.directory / "x").items():
            error = self.assertRaises(OSError, readFile, path)
            self.assertEqual(
                (error.filename, error.strerror), (str(path), f"it is {kind}, not a file")
            )
            self.assertEqual(specialKind(path), kind)

    def test_usualErrorsAreThoseOfOpen(self) -> None:
        self.assertRaises(IsADirectoryError, readFile, self.directory)
        self.assertRaises(FileNotFoundError, readFile, self.directory / "none")
        self.assertRaises(NotADirectoryError, readFile, self.file / "below")
        for path in (self.file, self.directory, self.directory / "none"):
            self.assertEqual(specialKind(path), "")

    def test_openPipesOfTheShellAreRead(self) -> None:
        """As C{<(COMMAND)} gives them; and nothing at all."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.write(writing, b"piped")
        os.close(writing)
        self.assertEqual(readFile(f"/dev/fd/{reading}"), b"piped")
        self.assertEqual(readFile(os.devnull), b"")


class NamedFileTests(SynchronousTestCase):
    """
    The readers of files that operators and users name.
    """

    def test_readersWaitForNoFIFO(self) -> None:
        """They name it."""
        directory = Path(self.mktemp())
        directory.mkdir()
        path = directory / "operator.json"
        os.mkfifo(path)
        readers: dict[str, Callable[[], object]] = {
            "accounts": lambda: readAccounts(path),
            "author": lambda: AuthorKey.read(path),
            "certificates": lambda: readCertificates(path),
            "client": lambda: Client("http://127.0.0.1:1", genesis=path),
            "configuration": lambda: readSettings(path),
            "contexts": lambda: Contexts.read(path),
            "key set": lambda: readKeySet(path, ["EdDSA"]),
            "operator": lambda: readOperatorFile(directory),
            "passwords": lambda: readPasswords(path),
            "policy": lambda: readPolicy(path),
            "roots": lambda: readRoots(path),
            "settings": lambda: makeContext({"ca": path}),
        }
        for name, read in readers.items():
            with self.subTest(name), self.assertRaisesRegex(Exception, "it is a FIFO, not a file"):
                read()


class WritingTests(SynchronousTestCase):
    """
    New files.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / "new"
        self.addCleanup(os.umask, os.umask(0o022))

    def test_newFilesArePrivate(self) -> None:
        """Unless they are to be given to others."""
        writeNew(self.path, b"secret")
        self.assertEqual(
            (self.path.read_bytes(), self.path.stat().st_mode & 0o777), (b"secret", 0o600)
        )
        writeNew(self.directory / "other", b"", 0o666)
        self.assertEqual((self.directory / "other").stat().st_mode & 0o777, 0o644)

    def test_nothingIsOverwritten(self) -> None:
        self.path.write_bytes(b"old")
        error = self.assertRaises(FileExistsError, writeNew, self.path, b"new")
        self.assertEqual((error.filename, error.strerror), (str(self.path), "it exists already"))
        self.assertEqual(self.path.read_bytes(), b"old")

    def test_linksAreNotFollowed(self) -> None:
        """Nor is anything opened that is no file."""
        target = self.directory / "target"
        self.path.symlink_to("target")
        for path in (self.path, *makeSpecial(self.directory / "x")):
            self.assertRaises(FileExistsError, writeNew, path, b"new")
        self.assertFalse(target.exists())

    def test_unfinishedFilesAreRemoved(self) -> None:
        """They would be in the way of the next try."""
        self.patch(os, "fsync", self.fails)
        self.assertRaises(OSError, writeNew, self.path, b"new")
        self.assertFalse(self.path.exists())
        with newFile(self.path):
            pass

    def test_replacedFilesKeepTheirMode(self) -> None:
        """New ones are their owner's, and nothing is left beside them."""
        replaceFile(self.path, b"first")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.path.chmod(0o640)
        replaceFile(self.path, b"second")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)
        self.assertEqual(self.path.read_bytes(), b"second")
        self.assertEqual([*self.directory.iterdir()], [self.path])

    def test_filesStayWhereTheCheckFails(self) -> None:
        """It sees what would take their place."""
        self.path.write_bytes(b"old")

        def check(made: Path) -> None:
            self.assertEqual(made.read_bytes(), b"new")
            raise ValueError("not this one")

        self.assertRaises(ValueError, replaceFile, self.path, b"new", check)
        self.assertEqual(self.path.read_bytes(), b"old")
        self.assertEqual([*self.directory.iterdir()], [self.path])

    def fails(self, descriptor: int) -> None:
        """The disk is full."""
        raise OSError("full")


PACKAGE = Path(svcbroker.__file__).parent
_LOCK = "an empty file that is locked, and stays"
_STANDARD = "/dev/null, for a stream that is closed"
_GOES_ON = "what the broker has made in its data goes on, or is made where there is none"
OTHER_WRITERS = {
    "broker.find._eventindex.EventIndex._openRun": _GOES_ON,
    "commands.commandline._discardUnwritable": _STANDARD,
    "commands.commandline._prepareStreams": _STANDARD,
    "commands.pub.Directory._remember": _LOCK,
    "commands.doctor.machinechecks._openUnnamed": "a file without a name, to measure the disk",
    "daemon.directory.lockDataDirectory": _LOCK,
    "daemon.systemd._sendFile": "a file in memory",
    "ledgers.pbft._keys._append": _GOES_ON,
    "ledgers.testnet.blueprint.holding": _LOCK,
    "ledgers.testnet.daemons.BrokerProcess._launch": "a log, which goes on",
    "ledgers.testnet.daemons.BrokerProcess._outputReceived": "a log, which goes on",
    "storage._files._clearFreeSpace": _GOES_ON,
    "storage._metadata.WritesFile.write": _GOES_ON,
    "storage._schema.makePrivateFile": _GOES_ON,
    "storage._snapshot.Snapshot._open": "copies in a new temporary directory",
    "storage._tip.TipFile.write": _GOES_ON,
    "testing._ledgertests.DiskTests.test_crashLosesNoReceipt": "copies in a test's directory",
}
"""
The functions that open a file for writing by themselves, and why: all others use L{newFile},
L{writeNew}, or C{writeFile} of C{svcbroker.storage}, which is made of these. What is written for
others is not among them.
"""

_WRITING = re.compile(r"(?=.*[wxa+])[rwxabt+]+")
_WRITERS = {"copy", "copy2", "copyfile", "copytree", "mkstemp", "NamedTemporaryFile", "touch"}
_MODULES = {"io", "os", "shutil", "tempfile"}


def findWriters(tree: ast.AST, name: str = "") -> Iterator[str]:
    """
    The names of the functions that open a file for writing by themselves.

    @param name: that of what the tree is the code of.
    """
    for node in ast.iter_child_nodes(tree):
        if isWriter(node):
            yield name
        inside = name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{name}.{node.name}"
        yield from findWriters(node, inside)


def isWriter(node: ast.AST) -> bool:
    """Whether a part of the code opens a file for writing."""
    if isinstance(node, ast.Attribute):
        # Not only where it is called: it may be given to a thread.
        isModule = isinstance(node.value, ast.Name) and node.value.id in _MODULES
        return node.attr in ("write_text", "write_bytes") or (isModule and node.attr in _WRITERS)
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    words = [*node.args, *(each.value for each in node.keywords)]
    if called == "os.open":
        return "O_RDONLY" not in ast.unparse(node)
    if called.rpartition(".")[2] == "touch":
        return True
    if called.rpartition(".")[2] != "open":
        return False
    return any(
        isinstance(each, ast.Constant) and _WRITING.fullmatch(str(each.value)) for each in words
    )


class WriterTests(SynchronousTestCase):
    """
    All code of the package that writes files.
    """

    def test_filesAreMadeAsNewOnes(self) -> None:
        """A file that was there, or a link in its place, is neither followed nor overwritten."""
        found = set()
        for path in PACKAGE.rglob("*.py"):
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            if module != "files":
                found |= set(findWriters(ast.parse(path.read_text("utf-8")), module))
        self.assertEqual(found, set(OTHER_WRITERS))

    def test_allWaysToWriteAreFound(self) -> None:
        for code in (
            "open(path, 'w')",
            "open(path, mode='xb')",
            "path.open('a')",
            "path.open(mode='r+b')",
            "os.open(path, os.O_WRONLY | os.O_CREAT)",
            "os.open(path, flags)",
            "path.write_text('')",
            "inThread(path.write_bytes, data)",
            "shutil.copyfile(one, other)",
            "tempfile.mkstemp()",
            "path.touch()",
        ):
            tree = ast.parse(f"class A:\n  def b(self):\n    with x:\n      {code}")
            self.assertEqual([*findWriters(tree, "m")], ["m.A.b"], code)
        for code in (
            "open(path)",
            "open(path, 'rb')",
            "path.open()",
            "Store.open(path, mayLose=True)",
            "os.open(path, os.O_RDONLY | os.O_CLOEXEC)",
            "path.read_text('utf-8')",
        ):
            self.assertEqual([*findWriters(ast.parse(code))], [], code)
