"""
C{svcbroker proof monitor} as a real process, with a log of static files.
"""

from __future__ import annotations

from hashlib import sha256

from twisted.web.server import Site
from twisted.web.static import File

from svcbroker.proofs.tlog import Note, TreeHead, WitnessKey, tilesBetween

from ..proofs.tlog.support import ORIGIN, MemoryLog
from .daemon import DaemonTestCase, reactor

LOG = MemoryLog(700)
WITNESS = WitnessKey("w.example", b"w" * 32)


class MonitorTests(DaemonTestCase):
    """
    Rounds of a monitor, each in a process of its own.
    """

    def setUp(self) -> None:
        super().setUp()
        self.files = self.root / "files"
        port = reactor.listenTCP(0, Site(File(str(self.files))), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}"
        policy = (
            f"log {LOG.key.verifier.text}\n"
            f"witness w {WITNESS.verifier.text} {self.url}/witness\nquorum none\n"
        )
        (self.root / "policy").write_text(policy)
        self.files.mkdir()
        self.write("witness/" + sha256(ORIGIN.encode()).hexdigest(), LOG, 300)

    def write(self, folder: str, log: MemoryLog, size: int) -> None:
        """Write a checkpoint and the tiles of a log."""
        path = self.files / folder
        for tile in tilesBetween(0, size):
            place = path / "tile" / tile.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(log.tile(tile))
        path.mkdir(parents=True, exist_ok=True)
        (path / "checkpoint").write_bytes(log.checkpoint(size, (WITNESS, 1000)).encode())

    async def monitor(self, *arguments: str, folder: str = "log") -> tuple[int, str, str]:
        """The exit code, the output and the errors of one round."""
        url = f"{self.url}/{folder}"
        return await self.outcomeOf("monitor", url, "--policy=policy", "--once", *arguments)

    async def test_forkIsFoundWithEvidence(self) -> None:
        """A log that grows is good; once it is rewritten, both signed checkpoints are written."""
        for size in (300, 600):
            self.write("log", LOG, size)
            code, output, errors = await self.monitor("--state=known")
            self.assertEqual((code, errors), (0, ""))
            self.assertRegex(output, f"{ORIGIN} has size {size}; w 300 at 1970-01-01 00:16:40")
        self.write("log", LOG.forked(5), 650)
        code, output, errors = await self.monitor("--state=known", "--evidence=evidence")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("CONTRADICTION: the log of size 650 is not what it was at size 600", errors)
        halves = (self.root / "evidence").read_bytes().split(b"\n\n")
        self.assertEqual(len(halves), 4)
        # Evidence is not overwritten.
        (self.root / "evidence").write_bytes(b"kept")
        code, output, errors = await self.monitor("--state=known", "--evidence=evidence")
        self.assertEqual((code, output.count(ORIGIN + "\n")), (1, 2))
        self.assertIn("--evidence: evidence: it exists already", errors)
        self.assertEqual((self.root / "evidence").read_bytes(), b"kept")
        known = Note.decode((self.root / "known").read_bytes())
        self.assertEqual(TreeHead.parse(known.text), LOG.head(600))
        # Without what was known, the witness tells it.
        code, output, errors = await self.monitor()
        self.assertEqual((code, output.count(ORIGIN + "\n")), (1, 2))
        self.assertIn("witness w has seen", errors)

    async def test_quorumsWithoutCommonWitnessAreTold(self) -> None:
        """A policy by which two histories can both be accepted is named at each start."""
        self.write("log", LOG, 300)
        other = WitnessKey("v.example", b"v" * 32).verifier.text
        path = self.root / "policy"
        text = path.read_text().replace(
            "quorum none", f"witness v {other}\ngroup g any w v\nquorum g"
        )
        path.write_text(text)
        code, _, errors = await self.monitor()
        self.assertEqual(code, 0)
        self.assertIn("--policy: the quorum g is reached by w, and by v, who need not", errors)

    async def test_whatIsNotGoodIsToldInALine(self) -> None:
        """An absent log and bad options have the exit codes of all commands, and one line."""
        code, output, errors = await self.monitor(folder="absent")
        self.assertEqual((code, output), (1, ""))
        self.assertRegex(
            errors, r"^\S+ \S+ UTC  http\S+/absent/checkpoint: the answer has status 404\n$"
        )
        (self.root / "known").write_text("nothing")
        for argument in ("--state=known", "--policy=known", "--policy=missing"):
            code, output, errors = await self.monitor(argument)
            self.assertEqual((code, output), (2, ""))
            self.assertEqual(errors.count("\n"), 1, errors)
