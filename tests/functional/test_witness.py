"""
C{svcbroker net witness} as a real process.
"""

from __future__ import annotations

import json
import signal
import sys

import treq

from svcbroker.proofs.tlog import Note, NoteSignature, Policy, VerifierKey

from ..proofs.tlog.support import MemoryLog
from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase

LOG = MemoryLog(100)
OTHER = MemoryLog(100, "other.example", b"o" * 32)


class WitnessTests(DaemonTestCase):
    """
    A witness from its first run on.
    """

    def witness(self, *arguments: str) -> Daemon:
        """Start it."""
        words = ["-m", "svcbroker.commands", "witness", "run", "w", f"--listen={LOCAL}"]
        return self.spawn(sys.executable, *words, *arguments)

    async def serves(self, witness: Daemon) -> VerifierKey:
        """Wait until it serves; its key."""
        found = await witness.protocol.waitFor(r"Witness (\S+) on (127\.0\.0\.1:[0-9]+)")
        witness.base = f"http://{found[2]}"
        return VerifierKey.parse(found[1])

    async def post(self, witness: Daemon, body: bytes) -> tuple[int, bytes]:
        """Ask for a cosignature."""
        response = await treq.post(
            f"{witness.base}/add-checkpoint", data=body, pool=witness.pool, timeout=TIMEOUT
        )
        return response.code, await response.content()

    async def test_cosignsAcrossKillsAndReloads(self) -> None:
        """It makes its key once, goes on after a kill, reads its logs again, and refuses a fork."""
        logs = self.root / "logs"
        logs.write_text(f"log {LOG.key.verifier.text}\nquorum none\n")
        witness = self.witness("--logs=logs", "--name=w.example/1")
        key = await self.serves(witness)
        self.assertEqual(key.name, "w.example/1")
        code, line = await self.post(witness, LOG.request(0, 9).encode())
        note = Note(LOG.head(9).text).signedBy(
            *map(NoteSignature.parse, line.decode().splitlines())
        )
        self.assertEqual((code, [found for found, _ in note.verified([key])]), (200, [key]))
        self.assertEqual((await self.post(witness, OTHER.request(0, 9).encode()))[0], 404)
        with logs.open("a") as file:
            file.write(f"log {OTHER.key.verifier.text}\n")
        witness.process.signalProcess(signal.SIGHUP)
        await witness.protocol.waitFor("The logs were read again")
        self.assertEqual((await self.post(witness, OTHER.request(0, 9).encode()))[0], 200)
        self.assertEqual(await witness.stop(signal.SIGKILL), -signal.SIGKILL)

        again = self.witness("--logs=logs")
        self.assertEqual(await self.serves(again), key)
        self.assertEqual(await self.post(again, LOG.request(0, 20).encode()), (409, b"9\n"))
        self.assertEqual((await self.post(again, LOG.forked(3).request(9, 20).encode()))[0], 422)
        self.assertEqual((await self.post(again, LOG.request(9, 20).encode()))[0], 200)
        code, output, errors = await self.outcomeOf("witness", "list", "w")
        self.assertEqual((code, errors), (1, ""))
        self.assertRegex(output, "FORK REFUSED")
        code, output, errors = await self.outcomeOf("witness", "list", "w", "--json")
        self.assertEqual((code, errors), (1, ""))
        told = json.loads(output)
        self.assertEqual(told["key"], key.text)
        sizes = {log["origin"]: log["size"] for log in told["logs"]}
        self.assertEqual(sizes, {LOG.key.verifier.name: 20, "other.example": 9})
        [fork] = told["forks"]
        self.assertEqual((fork["origin"], fork["size"]), (LOG.key.verifier.name, 20))
        self.assertIn("\u2014 ", fork["checkpoint"])
        self.assertEqual(await self.outcomeOf("witness", "key", "w"), (0, f"{key.text}\n", ""))
        code, _, errors = await self.outcomeOf("witness", "run", "w", "--logs=logs")
        self.assertEqual(code, 2)
        self.assertIn("another svcbroker is using", errors)
        self.assertEqual(await again.stop(), 0)

    async def test_invitationIsPolicyOfTheBroker(self) -> None:
        """A running broker writes it; with a public URL it names the genesis."""
        broker = await self.start(ledger="pbft:nodes=4")
        code, genesis, _ = await self.outcomeOf("chain", "genesis", str(self.dataDir))
        self.assertEqual(code, 0)
        (self.root / "genesis.json").write_text(genesis)
        words = ("net", "witness", "invite", "--genesis=genesis.json", f"--url={broker.base}")
        code, output, errors = await self.outcomeOf(*words)
        self.assertEqual((code, errors), (0, ""))
        self.assertNotIn("--from", output)
        url = "https://broker.example/svcbroker"
        code, output, errors = await self.outcomeOf(*words, f"--public-url={url}")
        self.assertEqual((code, errors), (0, ""))
        chain = json.loads(genesis)["chain"]
        self.assertIn(f"--from {url} --genesis {chain}", output)
        [log] = Policy.parse(output.encode()).logs
        self.assertIn(chain, log.key.name)

    async def test_lostDatabaseIsResumed(self) -> None:
        """A witness without its database does not start until it has its own last checkpoint."""
        log = f"--log={LOG.key.verifier.text}"
        witness = self.witness(log, "--name=w.example/1")
        await self.serves(witness)
        code, line = await self.post(witness, LOG.request(0, 9).encode())
        self.assertEqual(code, 200)
        await witness.stop(signal.SIGKILL)
        (self.root / "w" / "seen.sqlite").unlink()
        code, output, errors = await self.outcomeOf("witness", "run", "w", log)
        self.assertEqual((code, output), (1, ""), errors)
        self.assertIn(f"{LOG.key.verifier.name}: size 9", errors)
        checkpoint = self.root / "checkpoint"
        checkpoint.write_bytes(LOG.checkpoint(9).encode())
        resume = ("witness", "resume", "w", "checkpoint", log)
        code, output, errors = await self.outcomeOf(*resume)
        self.assertEqual((code, output), (1, ""), errors)
        self.assertIn("has no cosignature of this witness", errors)
        checkpoint.write_bytes(LOG.checkpoint(9).encode() + line)
        code, output, errors = await self.outcomeOf(*resume)
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("continues from size 9", output)
        again = self.witness(log)
        await self.serves(again)
        self.assertEqual((await self.post(again, LOG.forked(3).request(9, 20).encode()))[0], 422)
        self.assertEqual((await self.post(again, LOG.request(9, 20).encode()))[0], 200)

    async def test_refusalsAreOneLine(self) -> None:
        """What cannot be run is refused in one line that names the option."""
        vkey = LOG.key.verifier.text
        for arguments, text in (
            (["run", "w"], "--log VKEY"),
            (["run", "w", "--log=x"], "--log: "),
            (["run", "w", "--logs=missing"], "--logs: cannot read"),
            (["run", "w", f"--log={vkey}"], "--name NAME"),
            (["run", "w", f"--log={vkey}", "--name=a b"], "--name: "),
            (["run", "w", f"--log={vkey}", "--name=a", "--listen=nowhere"], "--listen: "),
            (["list", "missing"], "is missing"),
        ):
            code, output, errors = await self.outcomeOf("witness", *arguments)
            self.assertEqual((code, output), (2, ""), errors)
            [line] = errors.splitlines()
            self.assertIn(text, line)
