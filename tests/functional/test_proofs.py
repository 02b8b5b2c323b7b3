"""
Proofs from a real daemon, checked by the real command, while its nodes change and it is killed.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from .daemon import Daemon, DaemonTestCase


class CommandTestCase(DaemonTestCase):
    """
    Runs commands beside a daemon.
    """

    async def done(self, *arguments: object) -> str:
        """What a command writes that does its work."""
        code, output, errors = await self.outcomeOf(*arguments)
        self.assertEqual((code, errors), (0, ""))
        return output

    def save(self, name: str, document: Any) -> Path:
        """Keep an answer as C{curl > name} does."""
        path = self.root / name
        path.write_text(json.dumps(document), "utf-8")
        return path

    async def proved(self, proof: Path, *trusted: object) -> Any:
        """What is proved by a proof that holds."""
        found = json.loads(await self.done("verify", proof, *trusted, "--json"))
        self.assertIs(found["proved"], True)
        return found


class ProofTests(CommandTestCase):
    """
    Proofs as users, verifiers and operators use them.
    """

    def test_proofsHoldAcrossKeyChangesAndKills(self) -> Deferred[None]:
        """
        Proofs from before all keys and the number of replicas change, and before a kill, still
        hold, and later events can be proved.
        """
        return Deferred.fromCoroutine(self.life())

    async def publish(self, daemon: Daemon, content: str) -> str:
        """An event; its id."""
        sent = await daemon.call("/rest/publish", topic="t", content=content)
        self.assertEqual(sent["status"], "SUCCESS")
        eventId: str = sent["eventId"]
        return eventId

    async def life(self) -> None:
        """The whole of it."""
        daemon = await self.start(ledger="pbft:nodes=4")
        self.assertIs(await daemon.call("/rest/open", topic="t"), True)
        first = await self.publish(daemon, "früh")
        proof = self.save("first.json", await daemon.call("/rest/proof", eventId=first))

        # The genesis from the directory is the one that the broker tells.
        genesis = self.root / "genesis.json"
        genesis.write_text(await self.done("genesis", self.dataDir), "utf-8")
        told = await daemon.call("/rest/genesis")
        self.assertEqual(json.loads(genesis.read_text("utf-8")), told)
        chain = (await self.done("genesis", self.dataDir, "--hash")).strip()
        self.assertEqual(chain, told["chain"])

        # So is the checkpoint.
        checkpoint = (await self.done("checkpoint", self.dataDir, "--group", "1")).strip()
        latest = await daemon.call("/rest/checkpoint")
        self.assertEqual((latest["checkpoint"], latest["chain"]), (checkpoint, chain))
        kept = self.save("checkpoint.json", latest)

        for trusted in (["--genesis", genesis], ["--chain", chain]):
            found = await self.proved(proof, *trusted)
            self.assertEqual((found["eventId"], found["content"]), (first, "früh"))
        code, output, _ = await self.outcomeOf("verify", proof, "--chain", "00" * 32)
        self.assertEqual((code, output.split(":")[0]), (1, "NOT PROVED"))

        # New keys for all, then three more nodes.
        before = json.loads(await self.done("nodes", self.dataDir, "--json"))
        after = json.loads(await self.done("nodes", self.dataDir, "rotate", "all", "--json"))
        self.assertEqual((before["changes"], after["changes"]), (0, 1))
        keys = [{node["nodeId"] for node in each["nodes"]} for each in (before, after)]
        self.assertEqual((keys[0] & keys[1], len(keys[1])), (set(), 4))
        self.assertIn(
            "7 nodes, after 2 changes", await self.done("nodes", self.dataDir, "resize", 7)
        )
        code, output, errors = await self.outcomeOf("nodes", self.dataDir, "resize", 7)
        self.assertEqual((code, output), (1, ""))
        self.assertIn("nothing would change", errors)
        late = await self.publish(daemon, "spät")
        self.assertEqual((await self.proved(proof, "--genesis", genesis))["changes"], 0)

        self.assertEqual(await daemon.stop(signal.SIGKILL), -signal.SIGKILL)
        # Nobody runs now, and the chain can be read.
        offline = (await self.done("checkpoint", self.dataDir)).strip()
        code, _, errors = await self.outcomeOf("nodes", self.dataDir)
        self.assertEqual((code, len(errors.splitlines())), (2, 1))

        daemon = await self.start(ledger="pbft:nodes=4")
        later = await self.publish(daemon, "später")
        tip = await daemon.call("/rest/checkpoint")
        again = await daemon.call("/rest/proof", eventId=first, checkpoint=tip["height"])
        found = await self.proved(self.save("again.json", again), "--checkpoint", tip["checkpoint"])
        self.assertEqual((found["eventId"], found["checkpoint"]), (first, tip["checkpoint"]))
        await self.proved(proof, "--genesis", genesis)
        for eventId in (late, later):
            response = await daemon.rpc("proof", eventId=eventId)
            path = self.save("late.json", response)
            found = await self.proved(path, "--genesis", genesis)
            self.assertEqual((found["eventId"], found["nodes"]), (eventId, 7))
            self.assertEqual((found["changes"], len(found["signers"])), (2, 5))

        # The log only grew, since the checkpoint that was kept and since the one of the kill.
        for older in (latest["checkpoint"], offline):
            growth = await daemon.call(
                "/rest/consistency", older=older.split(":")[0], newer=tip["height"]
            )
            path = self.save("growth.json", growth)
            trusted = [kept if older == latest["checkpoint"] else older, tip["checkpoint"]]
            await self.done("verify", path, "--checkpoint", trusted[0], "--checkpoint", trusted[1])
        code, _, _ = await self.outcomeOf(
            "verify", path, "--checkpoint", checkpoint, "--checkpoint", tip["checkpoint"]
        )
        self.assertEqual(code, 1)
        self.assertEqual(await daemon.stop(), 0)

    def test_memoryLedgerProvesNothing(self) -> Deferred[None]:
        """The memory ledger refuses proofs and changes of replicas."""
        return Deferred.fromCoroutine(self.memory())

    async def memory(self) -> None:
        """What it says."""
        daemon = await self.start(ledger="memory")
        for call in ("/rest/genesis", "/rest/checkpoint", "/rest/proof?eventId=2cf24dba-1-1"):
            answer = await daemon.call(call)
            self.assertEqual(answer["code"], 100600)
            self.assertIn("proves nothing", answer["message"])
        code, _, errors = await self.outcomeOf("nodes", self.dataDir, "rotate", "0")
        self.assertEqual(code, 1)
        self.assertIn("the ledger of this group has no nodes", errors)
        self.assertEqual(await daemon.stop(), 0)
