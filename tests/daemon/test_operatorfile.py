"""
Tests for L{svcbroker.daemon.service}.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.operating import OPERATOR_NAME, OperatorFileError, readOperatorFile
from svcbroker.daemon.service import OperatorFile, consoleUrl, operatorUrl

URL = "http://127.0.0.1:1/x"


def entropy(size: int) -> bytes:
    """Bytes that anybody can guess."""
    return b"\x07" * size


class UrlTests(SynchronousTestCase):
    """
    Where this machine reaches the daemon.
    """

    def test_loopbackAndWildcardHaveUrl(self) -> None:
        """Loopback addresses, and those that mean all."""
        for address, url in [
            ("127.0.0.1:80", "http://127.0.0.1:80/b"),
            ("127.0.0.2:80", "http://127.0.0.2:80/b"),
            ("0.0.0.0:80", "http://127.0.0.1:80/b"),
            ("[::1]:80", "http://[::1]:80/b"),
            ("[::]:80", "http://[::1]:80/b"),
        ]:
            self.assertEqual(operatorUrl(address, "/b", "tcp:80"), url)
        for endpoint in ("ssl:1:a=b", "tls:/etc/certificates:1"):
            self.assertEqual(operatorUrl("0.0.0.0:1", "", endpoint), "https://127.0.0.1:1")

    def test_otherAddressesHaveNoUrl(self) -> None:
        """An address that is not reached over loopback has no URL for operators."""
        for address in ("", "192.0.2.1:80", "[2001:db8::1]:80", "unix:/127.0.0.1:80", "1270:1"):
            self.assertEqual(operatorUrl(address, "/b", "tcp:80"), "", address)

    def test_consoleHasAUrlWhereHttpHasAnAddress(self) -> None:
        url = consoleUrl("192.0.2.1:1", "/b", "tls:1:certs=d")
        self.assertEqual(url, "https://192.0.2.1:1/b/console")
        self.assertEqual(consoleUrl("0.0.0.0:1", "", "tcp:1"), "http://127.0.0.1:1/console")
        self.assertEqual(consoleUrl("/run/socket", "/b", "unix:/run/socket"), "")


class FileTests(SynchronousTestCase):
    """
    Writing, reading, removing.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.path = self.directory / OPERATOR_NAME

    def test_privateFileExistsWhileServing(self) -> None:
        """It is there while the daemon is, for its owner only, whatever lay there before."""
        for name in (OPERATOR_NAME, OPERATOR_NAME + ".new"):
            (self.directory / name).write_text("stale")
            (self.directory / name).chmod(0o666)
        file = OperatorFile(self.directory, URL, entropy)
        self.addCleanup(os.umask, os.umask(0))
        self.successResultOf(file.start())
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(os.listdir(self.directory), [OPERATOR_NAME])
        self.assertEqual(json.loads(self.path.read_text()), {"url": URL, "token": "07" * 32})
        read = readOperatorFile(self.directory)
        self.assertEqual((read.url, read.token), (URL, file.token))
        self.assertNotIn(file.token, repr(read))
        self.successResultOf(file.drain())
        self.assertEqual(os.listdir(self.directory), [])
        self.successResultOf(file.drain())

    def test_withoutUrlOldFileIsRemoved(self) -> None:
        """A daemon that cannot be operated leaves no file, and removes an old one."""
        self.path.write_text("stale")
        self.successResultOf(OperatorFile(self.directory, "", entropy).start())
        self.assertEqual(os.listdir(self.directory), [])

    def test_unwritableFileFailsStart(self) -> None:
        """Where it cannot be written, the start is refused in a line."""
        self.path.mkdir()
        error = self.assertRaises(
            OperatorFileError, OperatorFile(self.directory, URL, entropy).start
        )
        self.assertIn(f"data-dir: cannot write {self.path}: ", str(error))

    def test_unreadableFileIsToldInOneLine(self) -> None:
        """What cannot be read is told in a line."""
        error = self.assertRaises(OperatorFileError, readOperatorFile, self.directory)
        self.assertIn("no daemon that can be operated", str(error))
        for text in ("", "{", "[]", "1", "{}", '{"url": 1}', "[" * 60000, "\xff"):
            self.path.write_text(text, encoding="latin-1")
            error = self.assertRaises(OperatorFileError, readOperatorFile, self.directory)
            self.assertIn("is not what a daemon has written", str(error))
        self.path.unlink()
        self.path.mkdir()
        error = self.assertRaises(OperatorFileError, readOperatorFile, self.directory)
        self.assertIn("cannot read", str(error))
