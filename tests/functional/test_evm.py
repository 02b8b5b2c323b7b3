"""
A log on a real chain: from a key and a contract to an event that is proved by the chain.
"""

from __future__ import annotations

import json
import re
import signal

from svcbroker.ledgers.evm import checkInstalled
from tests.ledgers.evm.nodes import Chain

from .daemon import DaemonTestCase

skip = checkInstalled() or None


class EvmTests(DaemonTestCase):
    """A daemon, and the commands beside it, on one node."""

    async def begin(self) -> None:
        """Start a node; make accounts and a contract."""
        chain = Chain(self)
        await chain.start()
        self.endpoint = chain.url
        self.owner, self.key = self.root / "owner.key", self.root / "broker.key"
        word = self.root / "password"
        word.write_text("long enough\n")
        await self.told("account", self.owner, "--password", word)
        address = (await self.told("account", self.key)).strip()
        made = await self.told(
            *("deploy", "--endpoint", self.endpoint, "--key", self.owner, "--password", word),
            *("--allow", address, "--json"),
        )
        self.contract = json.loads(made)["contract"]
        self.description = json.loads(made)["description"].replace("FILE", str(self.key))
        self.description = self.description.replace("FINALITY", "instant:attest=1:interval=0")

    async def told(self, *arguments: object) -> str:
        """The output of a command of the chain, which succeeds."""
        code, output, errors = await self.outcomeOf("net", "evm", *arguments)
        self.assertEqual(code, 0, errors)
        return output

    async def test_publishedEventIsProvedByChain(self) -> None:
        """An event is published, kept through SIGKILL, and proved by what the chain attests."""
        await self.begin()
        self.assertNotIn("problem", await self.told("doctor", self.description))
        daemon = await self.start(ledger=self.description)
        await daemon.call("/rest/open", topic="t")
        sent = await daemon.call("/rest/publish", topic="t", content="kept")
        await daemon.stop(signal.SIGKILL)
        daemon = await self.start(ledger=self.description)
        event = await daemon.call("/rest/getEvent", eventId=sent["eventId"])
        self.assertEqual(event["content"], "a2VwdA==")
        proof = self.root / "proof.json"
        given = ("verify", proof, "--evm", self.endpoint, "--contract", self.contract)
        for _ in range(100):
            # The next event's block may be the first that this start attests.
            await daemon.call("/rest/publish", topic="t", content="later")
            answer = await daemon.call("/rest/proof", eventId=sent["eventId"])
            proof.write_text(json.dumps(answer))
            code, output, errors = await self.outcomeOf(*given)
            if code == 0:
                break
            self.assertIn("have not attested", errors)
        self.assertIn("PROVED", output)
        self.assertIn("compare that hash elsewhere", output)
        trusted = re.findall("0x[0-9a-f]{64}", output)[-1]
        code, output, errors = await self.outcomeOf(*given, "--block", trusted)
        self.assertEqual((code, "elsewhere" in output), (0, False), errors)
        code, _, errors = await self.outcomeOf(*given, "--block", "11" * 32)
        self.assertEqual((code, "does not have that block" in errors), (1, True), errors)
        answer["event"]["content"] = "other"
        proof.write_text(json.dumps(answer))
        code, output, _ = await self.outcomeOf(*given)
        self.assertEqual(code, 1)
        self.assertIn("NOT PROVED", output)

    async def test_wrongThingsAreNamed(self) -> None:
        """What is wrong with a chain, a contract or an account is told in a line."""
        await self.begin()
        stranger = self.root / "stranger.key"
        await self.told("account", stranger)
        for old, new, words in (
            (str(self.key), str(stranger), "does not allow"),
            ("chain-id=31337", "chain-id=1", "not of chain 1"),
            (self.contract, "0x" + "11" * 20, "no contract"),
        ):
            description = self.description.replace(old, new)
            code, output, _ = await self.outcomeOf("net", "evm", "doctor", description)
            self.assertEqual((code, words in output), (1, True), output)
