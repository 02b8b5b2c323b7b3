"""
The Unix socket at which an engine finds the application.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from svcbroker.ledgers.cometbft._home import MAX_SOCKET_PATH
from svcbroker.ledgers.cometbft.abci import listenUnix
from tests.directories import shortDirectory

from .test_abci_server import ServerTestCase


class ListenTests(ServerTestCase):
    """
    Tests for the socket where it listens.
    """

    def test_staleSocketIsReplaced(self) -> None:
        """A socket that was left is removed, and only this user can connect."""
        reactor = MemoryReactorClock()
        path = shortDirectory(self) / "abci.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        self.assertTrue(stat.S_ISSOCK(path.lstat().st_mode))
        listenUnix(reactor, path, self.factory)
        self.assertFalse(path.exists())
        address, factory, _, mode, _ = reactor.unixServers[0]
        self.assertEqual((address, mode), (str(path), 0o600))
        self.assertIs(factory, self.factory)

    def test_liveSocketIsRefused(self) -> None:
        """The socket of a broker that lives is left alone; that of a dead one is not."""
        path = shortDirectory(self) / "abci.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen(0)
            with self.assertRaises(ValueError) as raised:
                listenUnix(MemoryReactorClock(), path, self.factory)
            self.assertIn("another process listens", str(raised.exception))
            self.assertTrue(path.exists())
        listenUnix(MemoryReactorClock(), path, self.factory)
        self.assertFalse(path.exists())

    def test_systemErrorIsOneLine(self) -> None:
        """A refusal of the operating system is told in one line."""
        path = shortDirectory(self) / "abci.sock"
        busy = CannotListenError(None, str(path), OSError(2, "No such file or directory"))
        reactor = MemoryReactorClock()
        reactor.listenUNIX = lambda *args, **named: self.raiseIt(busy)  # type: ignore[method-assign]
        with self.assertRaises(OSError) as raised:
            listenUnix(reactor, path, self.factory)
        self.assertIn(f"cannot listen on {path}: ", str(raised.exception))

    def raiseIt(self, error: Exception) -> Any:
        """Fail."""
        raise error

    def test_nonSocketIsKept(self) -> None:
        """A file that is no socket stays."""
        directory = shortDirectory(self)
        path, link = directory / "file", directory / "link"
        path.write_text("precious")
        os.symlink(path, link)
        for each in (path, link):
            with self.assertRaises(ValueError):
                listenUnix(MemoryReactorClock(), each, self.factory)
        self.assertEqual(path.read_text(), "precious")

    def test_longPathIsRefused(self) -> None:
        """A path that the operating system would cut off is refused."""
        path = Path("/" + "x" * MAX_SOCKET_PATH)
        with self.assertRaises(ValueError) as raised:
            listenUnix(MemoryReactorClock(), path, self.factory)
        self.assertIn("at most 107 bytes, not 108", str(raised.exception))
