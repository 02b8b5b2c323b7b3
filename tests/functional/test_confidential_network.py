"""
Confidential events on a network of four organisations, of which two exchange them.
"""

from __future__ import annotations

import json
import signal
import sys
from base64 import b64decode
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import SkipTest

from svcbroker.proofs.bundle import decodeArchive
from tests.needed import needPackage

from .daemon import Daemon, until
from .network import NetworkTestCase

ORDERS = "orders/acme-bank"
LINES = 8
"""Events of one command."""


def contentOf(event: dict[str, str]) -> str:
    """The content of an event as C{--json} shows it."""
    return b64decode(event["content"]).decode()


class OrganisationTests(NetworkTestCase):
    """
    Acme and the bank have the brokers 0 and 1, and close their events to each other. Corner and
    Dora have the brokers 2 and 3.
    """

    def setUp(self) -> None:
        super().setUp()
        if not Path("/proc/self/cmdline").exists():
            raise SkipTest("what is left of processes is seen in /proc only")
        needPackage("pyrage", "encryption")
        self.environment["XDG_CONFIG_HOME"] = str(self.root / "config")

    async def run_at(self, number: int, *arguments: object, stdin: bytes = b"") -> str:
        """What a command writes that asks a broker, and does its work."""
        where = f"--url={self.base(number)}"
        code, output, errors = await self.outcomeOf(*arguments, where, stdin=stdin)
        self.assertEqual(code, 0, errors)
        return output.strip()

    async def done(self, *arguments: object) -> str:
        """What a command writes that asks no broker."""
        code, output, errors = await self.outcomeOf(*arguments)
        self.assertEqual(code, 0, output + errors)
        return output.strip()

    async def publishRecipient(self, number: int, name: str, identity: str) -> None:
        """Make an identity, and publish its recipient, signed by the organisation."""
        recipient = await self.done("proof", "keygen", "--encryption", identity)
        await self.run_at(number, "pub", f"$svc/recipients/{name}", recipient, f"--sign={name}.pem")

    async def join(self, number: int, name: str) -> None:
        """Make an organisation's author key, its topic, and its first identity."""
        author = await self.done("proof", "keygen", f"{name}.pem")
        await self.run_at(number, "topic", "open", f"$svc/recipients/{name}", "--author", author)
        await self.publishRecipient(number, name, f"{name}.id")

    async def publishOrders(self, author: int, isLast: Deferred[None]) -> list[str]:
        """Publish orders that are closed to the bank and to Acme, until it is enough."""
        contents: list[str] = []
        while True:
            wasLast = isLast.called
            those = [f"price {author}.{len(contents) + each}" for each in range(LINES)]
            to = ("--to", "org:bank", "--to", "org:acme")
            stdin = "\n".join(those).encode()
            ids = await self.run_at(author % 2, "pub", ORDERS, "--lines", *to, stdin=stdin)
            self.assertEqual(len(ids.splitlines()), LINES)
            contents += those
            if wasLast:
                return contents

    async def test_twoOfFourExchangeClosedEvents(self) -> None:
        """
        One identity is rotated under load without a lost event; the other two prove order and
        completeness, and read nothing; an auditor opens what was revealed, and nothing else.
        """
        network = await self.startNetwork()
        await self.join(0, "acme")
        await self.join(1, "bank")
        await self.run_at(0, "topic", "open", ORDERS)
        # Each organisation sees the other's key once, and remembers it.
        for number, name in ((0, "org:bank"), (1, "org:acme")):
            await self.run_at(number, "pub", ORDERS, "hello", "--to", name, "--to", "org:bank")
        published = await self.rotateUnderLoad()
        await self.proveOrder(network)
        ids, contents = await self.makeCase()
        self.assertEqual(await network.stop(signal.SIGINT), 0)
        await self.gone()
        await self.audit(ids, contents, published)

    async def rotateUnderLoad(self) -> list[str]:
        """
        Follow with the file of an identity, to which the new one is appended while three authors
        publish.

        @return: what they published.
        """
        reader = self.spawn(
            sys.executable,
            *("-m", "svcbroker.commands", "sub", ORDERS, "--from", "OFFSET_FIRST", "--json"),
            *("--identity", "bank.id", f"--url={self.base(1)}"),
        )

        def shown() -> int:
            return reader.protocol.output.count("\n")

        enough: Deferred[None] = Deferred()
        authors = [Deferred.fromCoroutine(self.publishOrders(each, enough)) for each in range(3)]
        await until(lambda: shown() >= 3 * LINES)
        # As docs/confidential.rst says: first the file that opens, then the directory.
        recipient = await self.done("proof", "keygen", "--encryption", "new.id")
        with (self.root / "bank.id").open("a") as file:
            file.write((self.root / "new.id").read_text())
        (self.root / "old.id").write_text((self.root / "bank.id").read_text().splitlines()[1])
        await self.run_at(1, "pub", "$svc/recipients/bank", recipient, "--sign=bank.pem")
        before = shown()
        await until(lambda: shown() >= before + 6 * LINES)
        enough.callback(None)
        published = [each for those in await gatherResults(authors) for each in those]
        await until(lambda: shown() >= len(published) + 2)
        events = [json.loads(line) for line in reader.protocol.output.splitlines()]
        self.assertEqual([each.get("closed") for each in events], [None] * len(events))
        self.assertEqual(sorted(map(contentOf, events)), sorted(["hello"] * 2 + published))
        await reader.stop(signal.SIGINT)
        # Each was closed to one of the two identities.
        opened = {}
        for name in ("old.id", "new.id"):
            found = await self.eventsAt(1, "--identity", name)
            opened[name] = {each["eventId"] for each in found if "closed" not in each}
        self.assertFalse(opened["old.id"] & opened["new.id"])
        self.assertGreaterEqual(min(map(len, opened.values())), LINES)
        self.assertEqual(len(opened["old.id"] | opened["new.id"]), len(events))
        return published

    async def eventsAt(self, number: int, *arguments: object) -> list[dict[str, str]]:
        """All events that a broker has of the orders."""
        read = ("sub", ORDERS, "--until-end", "--json", *arguments)
        return [json.loads(line) for line in (await self.run_at(number, *read)).splitlines()]

    async def proveOrder(self, network: Daemon) -> None:
        """The other two prove that they have all events in their order, and cannot open one."""
        own = await self.eventsAt(0)
        for number in (2, 3):
            await self.done("proof", "keygen", "--encryption", f"other{number}.id")
            events = await self.eventsAt(number, "--identity", f"other{number}.id")
            ids = [each["eventId"] for each in events]
            self.assertEqual(ids, [each["eventId"] for each in own])
            self.assertEqual({each["closed"] for each in events}, {"no identity here opens it"})
            daemon = evolve(network, base=self.base(number))
            proof = await daemon.call("/rest/topicProof", topic=ORDERS)
            height = proof["block"]["header"]["height"]
            proofs = [
                await daemon.call("/rest/proof", eventId=each, trusted=height) for each in ids
            ]
            (self.root / "topic.json").write_text(json.dumps(proof))
            (self.root / "events.jsonl").write_text("\n".join(map(json.dumps, proofs)))
            (self.root / "genesis.json").write_text(json.dumps(await daemon.call("/rest/genesis")))
            said = await self.done(
                *("verify", "--complete", "topic.json", "events.jsonl"),
                *("--genesis", "genesis.json", "--identity", f"other{number}.id"),
            )
            self.assertIn(f"PROVED: complete: all {len(ids)} events of the topic.", said)
            self.assertNotIn("price", said)

    async def makeCase(self) -> tuple[list[str], list[str]]:
        """
        The bank writes a bundle for an auditor, with two orders in plain, and one that is withheld.

        @return: the ids of the three, and the contents that the auditor may see.
        """
        events = await self.eventsAt(1, "--identity", "bank.id")
        first, last, withheld = events[3], events[-1], events[4]
        ids = [each["eventId"] for each in (first, last, withheld)]
        making = ("proof", "bundle", *ids, "--reveal", "--identity", "bank.id")
        await self.run_at(1, *making, "--withhold", ids[2], "--output", "case.zip")
        await self.run_at(1, "proof", "reveal", ids[0], "--identity", "bank.id", "--output", "one")
        return ids, [contentOf(first), contentOf(last)]

    async def audit(self, ids: list[str], contents: list[str], published: list[str]) -> None:
        """The auditor has the bundle and the reveal, and nothing answers on the network."""
        verified = json.loads(await self.done("verify", "case.zip", "--json"))
        found = {each["eventId"]: each for each in verified["events"]}
        opened = [found[each].get("opened") for each in ids]
        self.assertEqual(opened, [{"content": each} for each in contents] + [None])
        self.assertNotIn("content", found[ids[2]])
        said = await self.done("verify", "one", "--genesis", "genesis.json")
        self.assertIn(f'opened       "{contents[0]}"', said)
        archive = decodeArchive((self.root / "case.zip").read_bytes())
        for each in archive.values():
            self.assertFalse([one for one in published if one.encode() in each])
