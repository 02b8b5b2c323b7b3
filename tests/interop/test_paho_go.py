"""
Paho's client of MQTT for Go.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import shared

SOURCE = Path(__file__).with_name("paho-go")


class PahoGoTests(SynchronousTestCase):
    """With its default options: MQTT 3.1.1 over TCP."""

    timeout = 600

    def run_(self, *command: str) -> str:
        """What a program prints."""
        done = subprocess.run(
            command, cwd=SOURCE, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_messagesGoBothWays(self) -> None:
        program = str(Path(self.mktemp()).absolute())
        self.run_(neededProgram("go"), "build", "-o", program, ".")
        daemon = shared()
        host, port = daemon.mqtt
        found = self.run_(program, f"tcp://{host}:{port}", f"go/{uuid4().hex}")
        self.assertEqual(found.splitlines(), [f"with {qos} {qos}" for qos in range(3)])
        self.assertEqual(daemon.errors(), "")
