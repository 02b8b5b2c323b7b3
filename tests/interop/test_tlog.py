"""
The transparency log of a real daemon, opened by programs of others: the libraries of Go's checksum
database, and C{fsck} of Tessera.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import svcbroker
from svcbroker.proofs.tlog import LogKey, VerifierKey
from tests.needed import neededProgram

from .daemon import TIMEOUT, Daemon

SOURCE = Path(__file__).parent / "tlog-go"
FSCK = "TESSERA_FSCK"
"""The environment variable that names C{github.com/transparency-dev/tessera/cmd/fsck}."""


class TlogTests(SynchronousTestCase):
    """
    A log over the width of a tile, as its daemon serves it and as files.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir(parents=True)
        self.daemon = Daemon(
            self.root / "data", ["--log-origin=broker.example/svcbroker"], ledger="pbft"
        )
        self.addCleanup(self.daemon.stop)
        host, port = self.daemon.http
        self.base = f"http://{host}:{port}/svcbroker"
        self.key = json.loads(self.read("/log/1/keys"))["key"]
        self.older = self.save("older", self.read("/log/1/checkpoint"))
        self.call("open", topic="t")
        self.events = [
            self.call("publish", topic="t", content=f"event {number}")["eventId"]
            for number in range(260)
        ]
        self.files = self.root / "files"

    def read(self, path: str) -> bytes:
        """What is at a path."""
        with urlopen(self.base + path, timeout=TIMEOUT) as answer:
            data: bytes = answer.read()
        return data

    def call(self, name: str, **parameters: str) -> Any:
        """The answer to a call by REST."""
        return json.loads(self.read(f"/rest/{name}?{urlencode(parameters)}"))

    def save(self, name: str, data: bytes) -> str:
        """The path of a new file."""
        path = self.root / name
        path.write_bytes(data)
        return str(path)

    def export(self) -> None:
        """Write the log as files."""
        environment = {**os.environ, "PYTHONPATH": str(Path(svcbroker.__file__).parents[1])}
        command = [sys.executable, "-m", "svcbroker.commands", "log", "export"]
        subprocess.run(
            [*command, "--url", self.base, str(self.files)],
            check=True,
            capture_output=True,
            env=environment,
            timeout=TIMEOUT,
        )

    def run_(self, *command: str) -> tuple[int, str]:
        """The exit code of a program, and what it writes."""
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_goOpensTheLog(self) -> None:
        """
        Its libraries open the checkpoint, the tiles, the growth and the proofs; and they refuse
        what was changed.
        """
        check = str(self.root / "tlog-go")
        subprocess.run(
            [neededProgram("go"), "build", "-o", check, "."], cwd=SOURCE, check=True, timeout=300
        )
        proofs = []
        for event in (self.events[0], self.events[255], self.events[-1]):
            proof = self.save(event, self.read(f"/log/1/proof?eventId={event}"))
            block = self.call("checkpoint", height=event.rpartition("-")[2])
            proofs += [proof, block["hash"]]
        given = [self.key, self.older, *proofs]
        # Genesis, the certification of the key, the topic, and the events.
        good = (0, f"size {1 + 1 + 1 + 260}, grown from 2\n")
        self.assertEqual(self.run_(check, f"{self.base}/log/1", *given), good)
        self.export()
        self.assertEqual(self.run_(check, str(self.files), *given), good)

        other = LogKey(VerifierKey.parse(self.key).name, bytes(32)).verifier.text
        self.assertEqual(self.run_(check, str(self.files), other, self.older)[0], 1)
        wrong = [proofs[0], proofs[3]]
        code, output = self.run_(check, str(self.files), self.key, self.older, *wrong)
        self.assertEqual(code, 1, output)
        for name in ("tile/0/000", "tile/1/000.p/1", "tile/entries/000", "checkpoint"):
            copy = self.root / "changed"
            shutil.copytree(self.files, copy)
            data = bytearray((copy / name).read_bytes())
            data[-5] ^= 1
            (copy / name).write_bytes(data)
            code, output = self.run_(check, str(copy), self.key, self.older)
            self.assertEqual(code, 1, f"{name}: {output}")
            shutil.rmtree(copy)

    def test_fsckOfTesseraChecksTheLog(self) -> None:
        """As it is served, and as files; and it refuses another key."""
        fsck = os.environ.get(FSCK)
        if not fsck:
            raise SkipTest(f"{FSCK} does not name fsck of Tessera")
        key = self.save("key", self.key.encode())
        self.export()
        options = (f"--public_key={key}", "--ui=false")
        for url in (f"{self.base}/log/1/", f"file://{self.files}/"):
            # It ends with 0 in any case.
            _, output = self.run_(fsck, f"--storage_url={url}", *options)
            self.assertIn("Successfully fsck'd log with size 263", output)
        other = LogKey(VerifierKey.parse(self.key).name, bytes(32)).verifier.text
        self.save("key", other.encode())
        _, output = self.run_(fsck, f"--storage_url=file://{self.files}/", *options)
        self.assertIn("fsck failed", output)
