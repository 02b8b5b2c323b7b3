"""
Tests for L{svcbroker.daemon.logs}.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from twisted.logger import ILogObserver, Logger, LogLevel, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.daemon.config import Config
from svcbroker.daemon.logs import LogFilter, formatJSON, jsonLogObserver, observerMaker


class JSONTests(SynchronousTestCase):
    """
    Events as lines.
    """

    def line(self, **event: Any) -> dict[str, Any]:
        """An event's line, read again."""
        text = formatJSON({"log_time": 1700000000.25, **event})
        self.assertTrue(text.endswith("\n"))
        self.assertEqual(text.count("\n"), 1)
        line: dict[str, Any] = json.loads(text)
        return line

    def test_lineHasTimeLevelLoggerMessageValues(self) -> None:
        """Time, level, logger, message, and the plain values under their names."""
        self.assertEqual(
            self.line(
                log_format="hello {who} {count}",
                log_level=LogLevel.warn,
                log_namespace="a.b",
                who="wörld",
                count=3,
                ratio=0.5,
                isGood=True,
                nothing=None,
            ),
            {
                "time": "2023-11-14T22:13:20.250000+00:00",
                "level": "warn",
                "logger": "a.b",
                "message": "hello wörld 3",
                "who": "wörld",
                "count": 3,
                "ratio": 0.5,
                "isGood": True,
                "nothing": None,
            },
        )

    def test_onlyPlainValuesAreLogged(self) -> None:
        """Values that are not plain are left out: they may be large or private."""
        line = self.line(log_format="x", content=b"secret", thing=object(), names=["a"])
        self.assertEqual(line.keys(), {"time", "level", "logger", "message"})

    def test_valuesCannotReplaceOwnFields(self) -> None:
        """An event's values do not take the place of the line's own."""
        line = self.line(log_format="x", level="mine", logger="mine", log_namespace="n")
        self.assertEqual((line["level"], line["logger"]), ("info", "n"))

    def test_hostileTextStaysOneLine(self) -> None:
        """No text can end a line early or break the encoding."""
        line = self.line(log_format="{x}", x='a\n"b\u2028\ud800')
        self.assertEqual(line["x"], 'a\n"b\u2028\\ud800')
        self.assertEqual(line["message"], line["x"])
        self.assertIsNone(self.line(log_format="x", x=float("nan"))["x"])

    def test_failureHasTraceback(self) -> None:
        """A failure comes with its traceback."""
        try:
            raise ZeroDivisionError("oh")
        except ZeroDivisionError:
            line = self.line(log_format="x", log_failure=Failure())
        self.assertIn("ZeroDivisionError: oh", line["traceback"])

    def test_observerWritesOneLineAnEvent(self) -> None:
        """The observer writes one line an event."""
        out = io.StringIO()
        observer = jsonLogObserver(out)
        self.assertTrue(verifyObject(ILogObserver, observer))
        log = Logger(namespace="n", observer=observer)
        log.info("one {x}", x=1)
        log.error("two")
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        self.assertEqual([line["message"] for line in lines], ["one 1", "two"])


class FileTests(SynchronousTestCase):
    """
    A log file that another program moves aside.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.filter = LogFilter("info")
        make = observerMaker(
            Config(logFormat="text"), {"logfile": str(self.path)}, self.filter, None
        )
        assert make is not None
        self.log = Logger(namespace="n", observer=make())

    def test_reopenedFileHasTheNewLines(self) -> None:
        aside = self.path.with_suffix(".1")
        self.log.info("before")
        self.path.rename(aside)
        self.log.info("between")
        self.filter.reopen()
        self.log.info("after")
        for path, words in ((aside, ["before", "between"]), (self.path, ["after"])):
            self.assertEqual([line.split()[-1] for line in path.read_text().splitlines()], words)

    def test_fileThatCannotBeOpenedIsKept(self) -> None:
        aside = self.path.with_suffix(".1")
        self.path.rename(aside)
        self.path.mkdir()
        self.assertRaises(OSError, self.filter.reopen)
        self.log.info("kept")
        self.assertIn("kept", aside.read_text())

    def test_logWithoutFileIsNotReopened(self) -> None:
        LogFilter("info").reopen()


class FilterTests(SynchronousTestCase):
    def test_wordsOfTwistedAboutItselfAreForDebugging(self) -> None:
        """Its warnings are not, and neither is what the log of a plugin says."""
        seen: list[str] = []
        legacy = {"log_namespace": "log_legacy", "log_system": "-"}
        filter = LogFilter("info")
        keep: Any = lambda event: seen.append(formatEvent(event))  # noqa: E731
        observer = filter.observe(keep)

        def tell() -> list[str]:
            seen.clear()
            log = Logger(namespace="twisted.x", observer=observer)
            log.info("starting up")
            log.warn("careful")
            for text in ("HTTP starting on 1", "(TCP Port 1 Closed)", "a plugin is starting on"):
                observer({"log_format": text, "log_level": LogLevel.info, **legacy})
            return list(seen)

        self.assertEqual(tell(), ["careful", "a plugin is starting on"])
        filter.use("debug")
        self.assertEqual(len(tell()), 5)
