"""
rumqttc, a client of MQTT for Rust.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import shared

SOURCE = Path(__file__).with_name("rumqttc")


class RumqttcTests(SynchronousTestCase):
    """Its blocking clients of both versions, with their default options, over TCP."""

    timeout = 900

    def setUp(self) -> None:
        self.program = neededProgram("cargo")
        self.project = Path(self.mktemp()).absolute()
        shutil.copytree(SOURCE, self.project)

    def cargo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Cargo."""
        # What it builds is kept outside the checkout, as what it fetches is.
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return subprocess.run(
            [self.program, *arguments],
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            env={**os.environ, "CARGO_TARGET_DIR": f"{cache}/svcbroker-rumqttc"},
        )

    def test_messagesGoBothWaysAndSessionResumes(self) -> None:
        fetched = self.cargo("fetch")
        if fetched.returncode != 0:
            raise SkipTest(f"cargo cannot fetch rumqttc: {fetched.stderr}")
        daemon = shared()
        host, port = daemon.mqtt
        done = self.cargo("run", "--quiet", "--", host, str(port), f"rumqttc/{uuid4().hex}")
        self.assertEqual(done.returncode, 0, done.stderr)
        arrived = [*(f"with {qos} {qos}" for qos in range(3)), "later 1"]
        self.assertEqual(done.stdout.splitlines(), arrived * 2)
        self.assertEqual(daemon.errors(), "")
