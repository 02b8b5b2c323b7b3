"""
Tests for L{svcbroker.daemon.systemd}: entries as the journal reads them.
"""

from __future__ import annotations

import fcntl
import io
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from twisted.logger import ILogObserver, LogLevel
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.daemon.logs import plainValues
from svcbroker.daemon.systemd import JournalObserver, encodeEntry, isJournal, sender


def decodeEntry(data: bytes) -> dict[str, str]:
    """The fields of an entry, as the journal parses it."""
    fields = {}
    while data:
        name, newline, rest = data.partition(b"\n")
        if b"=" in name:
            name, _, value = name.partition(b"=")
        else:
            size = int.from_bytes(rest[:8], "little")
            value, end, rest = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n"
        assert newline == b"\n"
        fields[name.decode()] = value.decode()
        data = rest
    return fields


class EntryTests(SynchronousTestCase):
    """
    L{JournalObserver} and L{encodeEntry}
    """

    def entry(self, **event: Any) -> dict[str, str]:
        """The entry of an event, decoded."""
        sent: list[bytes] = []
        observer = JournalObserver(sent.append, io.StringIO(), plainValues)
        self.assertTrue(verifyObject(ILogObserver, observer))
        observer({"log_time": 0.0, "log_namespace": "svcbroker.x", **event})
        (entry,) = sent
        return decodeEntry(entry)

    def test_entryHasPriorityLoggerAndPlainValues(self) -> None:
        self.assertEqual(
            self.entry(
                log_format="Group {group} is at {blockHeight}",
                log_level=LogLevel.warn,
                group="1",
                blockHeight=7,
                client_address="a=b",
                nothing=None,
                content=b"secret",
            ),
            {
                "MESSAGE": "Group 1 is at 7",
                "PRIORITY": "4",
                "SYSLOG_IDENTIFIER": "svcbroker",
                "SVCBROKER_LOGGER": "svcbroker.x",
                "SVCBROKER_GROUP": "1",
                "SVCBROKER_BLOCK_HEIGHT": "7",
                "SVCBROKER_CLIENT_ADDRESS": "a=b",
            },
        )

    def test_everyLevelHasPriority(self) -> None:
        for level, priority in zip(LogLevel.iterconstants(), "76432", strict=True):
            self.assertEqual(self.entry(log_format="x", log_level=level)["PRIORITY"], priority)
        self.assertEqual(self.entry(log_format="x")["PRIORITY"], "6")

    def test_textCannotForgeFields(self) -> None:
        entry = self.entry(log_format="{x}", x="a\nPRIORITY=0\n", **{"bad name\n=é": "v"})
        self.assertEqual(entry["MESSAGE"], "a\nPRIORITY=0\n")
        self.assertEqual(entry["PRIORITY"], "6")
        self.assertEqual(entry["SVCBROKER_X"], "a\nPRIORITY=0\n")
        self.assertEqual(entry["SVCBROKER_BAD_NAME___"], "v")
        self.assertEqual(self.entry(log_format="{x}", x="\ud800")["MESSAGE"], "\\ud800")

    def test_valuesCannotReplaceOwnFields(self) -> None:
        entry = self.entry(log_format="x", logger="mine", **{"n" * 60: "too long"})
        self.assertEqual(entry["SVCBROKER_LOGGER"], "svcbroker.x")
        self.assertEqual(len(entry), 4)

    def test_failureHasTracebackAndPlace(self) -> None:
        try:
            raise ZeroDivisionError("oh")
        except ZeroDivisionError:
            entry = self.entry(log_format="It failed", log_failure=Failure())
        self.assertTrue(entry["MESSAGE"].startswith("It failed\nTraceback"))
        self.assertTrue(entry["MESSAGE"].endswith("ZeroDivisionError: oh"))
        self.assertEqual(entry["CODE_FUNC"], "test_failureHasTracebackAndPlace")
        self.assertEqual(Path(entry["CODE_FILE"]).name, "test_journal.py")
        self.assertTrue(entry["CODE_LINE"].isdigit())

    def test_severalLinesAreSentWithTheirLength(self) -> None:
        self.assertEqual(
            encodeEntry({"A": "one", "B": "one\ntwo"}),
            b"A=one\nB\n\x07\0\0\0\0\0\0\0one\ntwo\n",
        )

    def test_refusedEntryGoesToStream(self) -> None:
        """Where the journal does not answer, each line keeps its priority."""
        stream = io.StringIO()
        JournalObserver(sender("/nosuch/socket"), stream, plainValues)(
            {"log_format": "one\ntwo", "log_level": LogLevel.error}
        )
        self.assertEqual(stream.getvalue(), "<3>one\n<3>two\n")


class SenderTests(SynchronousTestCase):
    """
    L{sender}
    """

    def setUp(self) -> None:
        # mktemp() makes paths that are too long for a socket.
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.path = f"{root.name}/socket"
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.journal.close)
        self.journal.bind(self.path)

    def test_entryIsOneDatagram(self) -> None:
        sender(self.path)(b"MESSAGE=x\n")
        self.assertEqual(self.journal.recv(100), b"MESSAGE=x\n")

    def test_largeEntryIsSentAsSealedFile(self) -> None:
        entry = encodeEntry({"MESSAGE": 5_000_000 * "x"})
        sender(self.path)(entry)
        data, (descriptor,), _, _ = socket.recv_fds(self.journal, 100, 2)
        self.assertEqual(data, b"")
        with open(descriptor, "rb") as file:
            seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
            self.assertEqual(seals & fcntl.F_SEAL_WRITE, fcntl.F_SEAL_WRITE)
            file.seek(0)
            self.assertEqual(file.read(), entry)

    def test_fullJournalDoesNotBlock(self) -> None:
        send = sender(self.path)

        def fill() -> None:
            for _ in range(100_000):
                send(b"MESSAGE=x\n")

        self.assertRaises(BlockingIOError, fill)


class IsJournalTests(SynchronousTestCase):
    """
    L{isJournal}
    """

    def test_onlyTheNamedStreamIsTheJournal(self) -> None:
        with open(os.devnull, "w") as stream, open(self.mktemp(), "w") as other:
            status = os.fstat(stream.fileno())
            environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
            self.assertTrue(isJournal(stream, environment))
            self.assertFalse(isJournal(other, environment))
            self.assertFalse(isJournal(stream, {}))
            self.assertFalse(isJournal(io.StringIO(), environment))
