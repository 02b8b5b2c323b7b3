"""
Tests for an engine's output, and how it comes into our log.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft._engine import (
    MAX_LINE,
    EngineState,
    LineSplitter,
    LogLine,
    readLine,
)

from .test_engine import EngineTestCase


class OutputTests(EngineTestCase):
    """
    Tests for output that goes to the log.
    """

    def setUp(self) -> None:
        super().setUp()
        self.events: list[dict[str, Any]] = []
        observer: Any = self.events.append
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.engine.start()

    def said(self) -> list[tuple[str, str]]:
        """Levels and texts of what went to the log."""
        return [
            (event["log_level"].name, event["text"]) for event in self.events if "text" in event
        ]

    def test_linesKeepTheirLevel(self) -> None:
        """Lines have the level that the engine gives them."""
        child = self.process.child
        child.outReceived(b"I[2026-11-20|16:30:09.277] executed block     module=state heig")
        self.assertEqual(self.said(), [])
        child.outReceived(b"ht=3\nE[2026-11-20|16:30:09.3] dialing failed   module=p2p err=no\n")
        child.outReceived(
            b"I[2026-11-20|16:30:09.3] Inbound Peer rejected                        module=p2p "
            b'err="auth failure: secret conn failed: EOF" numPeers=3\n'
        )
        child.outReceived(b"D[2026-11-20|16:30:09.3] tick\r\n\nplain\n")
        child.outReceived(b"ERROR: failed to start node\n")
        child.errReceived(b"panic: oh\n")
        self.assertEqual(
            self.said(),
            [
                ("info", "executed block module=state height=3"),
                ("warn", "dialing failed module=p2p err=no"),
                (
                    "debug",
                    'Inbound Peer rejected module=p2p err="auth failure: secret conn failed: EOF" '
                    "numPeers=3",
                ),
                ("debug", "tick"),
                ("info", "plain"),
                ("error", "ERROR: failed to start node"),
                ("error", "panic: oh"),
            ],
        )
        self.assertEqual(self.events[0]["module"], "state")
        self.assertIs(self.events[0]["log_level"], LogLevel.info)

    def test_unfinishedLineIsLogged(self) -> None:
        """A last line without an end is a line."""
        self.process.child.errReceived(b"killed")
        self.process.end()
        self.assertEqual(self.said()[0], ("error", "killed"))

    def test_consensusFailureRestartsEngine(self) -> None:
        """An engine that lives but has given up is ended, and started again."""
        self.connect()
        line = b"E[2026-11-20|16:30:09.3] CONSENSUS FAILURE!!!      module=consensus err=disk\n"
        self.process.child.outReceived(line)
        self.process.child.outReceived(line)
        self.assertEqual(self.process.signals, ["TERM"])
        self.process.end(status=0)
        self.assertIs(self.engine.state, EngineState.WAITING)

    def test_peerErrorsAreWarnings(self) -> None:
        """Errors that only a peer may have caused are warnings; the engine's own are errors."""
        self.process.child.outReceived(
            b"E[2026-11-20|16:30:09.3] Stopping peer for error   module=p2p err=EOF\n"
            b"E[2026-11-20|16:30:09.3] no room   module=state err=full\n"
        )
        self.assertEqual([level for level, _ in self.said()], ["warn", "error"])

    def test_errorsWhileEndingAreInfo(self) -> None:
        """An engine that was told to end closes everything; that is nothing to worry about."""
        self.engine.stop()
        self.process.child.outReceived(
            b"E[2026-11-20|16:30:09.3] Stopping peer for error   module=p2p err=EOF\n"
            b"E[2026-11-20|16:30:09.3] Error serving server   module=main err=closed\n"
            b"E[2026-11-20|16:30:09.3] CONSENSUS FAILURE!!!   module=consensus err=oh\n"
        )
        self.assertEqual([level for level, _ in self.said()], ["info", "info", "error"])


class LineTests(SynchronousTestCase):
    """
    Lines of the engine's log.
    """

    def test_recordedLineIsRead(self) -> None:
        """A line as the engine writes it."""
        self.assertEqual(
            readLine(
                "I[2026-11-20|16:30:09.277] Generated private validator                  "
                "module=main keyFile=/tmp/key.json ",
                isError=False,
            ),
            LogLine(
                level="info",
                text="Generated private validator module=main keyFile=/tmp/key.json",
                module="main",
            ),
        )

    def test_quotedFailureIsNotFatal(self) -> None:
        """Only an error of the engine's own is fatal, not one that is spoken of."""
        for text, isFatal in (
            ("E[x] CONSENSUS FAILURE!!!  module=consensus", True),
            ("I[x] CONSENSUS FAILURE!!!  module=consensus", False),
            ('E[x] peer says  module=p2p err="CONSENSUS FAILURE!!!"', False),
            ("CONSENSUS FAILURE!!!", False),
        ):
            self.assertIs(readLine(text, isError=False).isFatal, isFatal)

    def test_longLineComesInPieces(self) -> None:
        """A line that is too long comes in pieces, and nothing of it is kept."""
        splitter = LineSplitter()
        lines = []
        for _ in range(10):
            lines += splitter.feed(b"x" * 5000)
        self.assertEqual([len(line) for line in lines], [MAX_LINE] * 3)
        self.assertEqual([len(line) for line in splitter.rest()], [50000 - 3 * MAX_LINE])
        self.assertEqual(splitter.rest(), [])
        whole = splitter.feed(b"y" * (MAX_LINE + 1) + b"\nz\n")
        self.assertEqual([len(line) for line in whole], [MAX_LINE, 1, 1])

    def test_invalidUtf8IsReplaced(self) -> None:
        """Bytes that are no UTF-8 are shown as far as they can be."""
        self.assertEqual(LineSplitter().feed(b"a\xffb\n"), ["a\ufffdb"])
