"""
HiveMQ's client of MQTT for Java.
"""

from __future__ import annotations

import subprocess
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import shared
from .maven import classPath

CLIENT = ("hivemq", "com.hivemq:hivemq-mqtt-client")
"""Which client it is, for L{classPath}."""


class HiveMqTests(SynchronousTestCase):
    """The blocking clients of both versions."""

    timeout = 600

    def test_messagesGoBothWays(self) -> None:
        classes = classPath(*CLIENT)
        daemon = shared()
        host, port = daemon.mqtt
        command = [neededProgram("java"), "-cp", classes, "interop.Driver"]
        done = subprocess.run(
            [*command, host, str(port), f"hivemq/{uuid4().hex}"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.splitlines(),
            [f"{version} with {qos} {qos}" for version in (3, 5) for qos in range(3)],
        )
        self.assertEqual(daemon.errors(), "")
