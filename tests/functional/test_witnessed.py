"""
A real daemon whose log is cosigned by witnesses over HTTP.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import treq
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater

from svcbroker.proofs import ProofInvalid, readGenesis, verifyProof, verifyWitnessed
from svcbroker.proofs.tlog import Policy, VerifierKey
from svcbroker.proofs.witness import Witness, WitnessSite, makeWitness

from .daemon import TIMEOUT, Daemon, reactor
from .test_proofs import CommandTestCase

NAMES = ("alpha", "beta", "gamma")


class WitnessedTests(CommandTestCase):
    """
    A daemon and three witnesses, which are those of C{svcbroker net witness}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.witnesses: dict[str, Witness] = {}
        lines = []
        for name in NAMES:
            directory = self.root / name
            directory.mkdir()
            key = makeWitness(directory, f"{name}.example", os.urandom)
            self.witnesses[name] = witness = Witness.open(directory, {}, time.time)
            self.addCleanup(witness.close)
            site = WitnessSite(witness, maybeDeferred).site(reactor)
            port = reactor.listenTCP(0, site, interface="127.0.0.1")
            self.addCleanup(port.stopListening)
            url = f"http://127.0.0.1:{port.getHost().port}"
            lines.append(f"witness {name} {key.text} {url}")
        self.lines = [*lines, "group two 2 alpha beta gamma", ""]
        self.policy = self.root / "policy"
        self.policy.write_text("\n".join([*self.lines, "quorum two", ""]))

    async def witnessed(self) -> Daemon:
        """Start the daemon."""
        return await self.start(
            *(f"--witness-policy={self.policy}", "--witness-interval=0.2"), ledger="pbft"
        )

    async def raw(self, daemon: Daemon, path: str) -> bytes:
        """What is at a path, as it is."""
        response = await treq.get(f"{daemon.base}{path}", pool=daemon.pool, timeout=TIMEOUT)
        self.assertEqual(response.code, 200, path)
        body: bytes = await response.content()
        return body

    async def until(self, daemon: Daemon, isSo: Any) -> Any:
        """Ask for the witnesses until they are as a test waits for; what is told then."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            told = await daemon.call("/rest/witnesses")
            if isSo(told, {each["name"]: each for each in told["witnesses"]}):
                return told
            self.assertLess(time.monotonic(), deadline, told)
            await deferLater(reactor, 0.05)

    async def publish(self, daemon: Daemon, *contents: str) -> list[str]:
        """Publish events; their ids."""
        answers = [await daemon.call("/rest/publish", topic="t", content=each) for each in contents]
        return [each["eventId"] for each in answers]

    async def checkCommands(
        self, daemon: Daemon, key: VerifierKey, eventId: str, texts: list[str]
    ) -> None:
        """The commands get the key and a proof, verify both, and write the log as files."""
        genesis = self.save("genesis.json", await daemon.call("/rest/genesis"))
        at = ("--url", daemon.base)
        self.assertEqual(
            await self.done("log", "key", *at, "--genesis", genesis),
            f"log {key.text}\nquorum none\n",
        )
        other = self.save("other.json", {**await daemon.call("/rest/genesis"), "created": 1})
        code, output, _ = await self.outcomeOf("log", "key", *at, "--genesis", other)
        self.assertEqual((int(code != 0), output), (1, ""))
        malformed = self.save("malformed.json", {"total": 12})
        code, _, errors = await self.outcomeOf("log", "key", *at, "--genesis", malformed)
        self.assertEqual(code, 2)
        self.assertIn("malformed.json: this is not a genesis", errors)
        await self.done("log", "prove", *at, eventId, "--output", self.root / "proof")
        policy = self.root / "verifier"
        policy.write_text("\n".join([*texts, "quorum two", ""]))
        output = await self.done("verify", "--policy", policy, self.root / "proof")
        self.assertIn("PROVED: it is in a log that the policy accepts.", output)
        self.assertIn("alpha not later than", output)
        code, _, errors = await self.outcomeOf(
            "log", "export", "--data-dir", self.dataDir, self.root / "files"
        )
        self.assertEqual((code, errors.split(":")[0]), (0, key.name))
        exported = (self.root / "files" / "checkpoint").read_bytes()
        self.assertEqual(exported, await self.raw(daemon, "/log/1/checkpoint"))

    def test_restoredBackupIsRefused(self) -> Deferred[None]:
        """
        A broker that was restored from an older backup, and has gone on, is refused by the two
        witnesses that have seen more. Without witnesses nobody would tell: the proof of an event
        of the second history is accepted by who trusts the genesis alone.
        """

        async def run() -> None:
            daemon = await self.witnessed()
            key = VerifierKey.parse((await daemon.call("/log/1/keys"))["key"])
            for witness in self.witnesses.values():
                witness.useLogs({key.name: [key]})
            await daemon.call("/rest/open", topic="t")
            await self.publish(daemon, "first")
            everybody = len(NAMES)

            def haveAll(told: Any, each: Any) -> Any:
                return sum(each[name]["size"] == told["size"] for name in NAMES) >= everybody

            await self.until(daemon, haveAll)
            copy = self.root / "copy"
            await self.done("backup", self.dataDir, copy)
            # One witness does not know the log while that grows.
            self.witnesses["gamma"].useLogs({})
            [seen] = await self.publish(daemon, "seen by two")
            everybody = 2
            told = await self.until(daemon, haveAll)
            self.assertEqual(told["cosigned"], told["size"])
            texts = [f"log {key.text}", *self.lines]
            two = Policy.parse("\n".join([*texts, "quorum two", ""]).encode())
            proved = verifyWitnessed(
                await self.raw(daemon, f"/log/1/proof?eventId={seen}"), two
            ).witnessed
            self.assertEqual([each.witness for each in proved.cosignatures], ["alpha", "beta"])
            await self.checkCommands(daemon, key, seen, texts)
            await daemon.stop()

            shutil.rmtree(self.dataDir)
            copy.rename(self.dataDir)
            self.witnesses["gamma"].useLogs({key.name: [key]})
            daemon = await self.witnessed()
            other = await self.publish(daemon, "another history", "and more", "and more again")

            def isRefused(told: Any, each: Any) -> Any:
                isSeen = each["gamma"]["size"] == told["size"]
                return isSeen and each["alpha"]["isRefusing"] and each["beta"]["isRefusing"]

            told = await self.until(daemon, isRefused)
            self.assertLess(told["cosigned"], told["size"])
            checkpoint = await self.raw(daemon, "/log/1/checkpoint")
            await daemon.protocol.waitFor("WITNESS alpha REFUSES THE LOG of group 1")
            self.assertEqual((await daemon.call("/rest/exist", topic="t")), True)
            response = await treq.get(
                daemon.base.replace("/svcbroker", "") + "/readyz", pool=daemon.pool
            )
            self.assertEqual((response.code, await response.content())[0], 200)

            chain = readGenesis(await self.raw(daemon, "/rest/genesis")).chain
            proof = await self.raw(daemon, f"/rest/proof?eventId={other[0]}")
            self.assertEqual(verifyProof(proof, chain=chain).content, b"another history")
            logged = await self.raw(daemon, f"/log/1/proof?eventId={other[0]}")
            error = self.assertRaises(ProofInvalid, verifyWitnessed, logged, two)
            self.assertIn("the quorum two is not reached", str(error))
            # The third witness cannot tell: that is what the quorum is for.
            found = await self.raw(daemon, "/log/1/checkpoint")
            self.assertEqual(found, checkpoint)
            for name in ("alpha", "beta"):
                self.assertEqual(list(self.witnesses[name].forks), [key.name])
            self.assertEqual(self.witnesses["gamma"].forks, {})

        return Deferred.fromCoroutine(run())
