"""
Asking servers over HTTP.
"""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.doctor._asking import Answer, askServer


class _Handler(BaseHTTPRequestHandler):
    """Answers with a text in JSON of as many characters as the path says."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(b'"%b"' % (b"x" * int(self.path[1:])))

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""


class AskTests(SynchronousTestCase):
    def ask(self, size: int) -> Answer | None:
        """The answer of a server that answers at such a length."""
        server = HTTPServer(("127.0.0.1", 0), _Handler)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            return askServer(f"http://127.0.0.1:{server.server_port}/{size}")
        finally:
            thread.join()
            server.server_close()

    def test_answerIsRead(self) -> None:
        answer = self.ask(1000)
        assert answer is not None
        self.assertEqual(answer.value, "x" * 1000)

    def test_longAnswerIsNotRead(self) -> None:
        """Whoever answers cannot take up the memory."""
        self.assertIsNone(self.ask(8_000_000))
