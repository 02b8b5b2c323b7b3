"""
Tests of finding documents: calls and commands on the real daemon, whose index follows its log.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from .test_commands import CommandTestCase


class FindTests(CommandTestCase):
    """
    A daemon that keeps an index, and a document that was published.
    """

    async def prepare(self) -> None:
        """Start it, and publish."""
        await self.serve("--find", "--index=order-id")
        await self.svcbroker("topic", "open", "orders", "other")
        self.document = self.root / "contract.pdf"
        self.document.write_bytes(b"%PDF the contract\0\xff")
        [self.first] = await self.svcbroker("pub", "orders", "a note", "--ext", "order-id=17")
        [self.second] = await self.svcbroker("pub", "other", stdin=self.document.read_bytes())

    async def found(self, *arguments: str, code: int = 0) -> list[Any]:
        """What the command finds, as JSON."""
        lines = await self.svcbroker("find", *arguments, "--json", code=code)
        return [json.loads(line) for line in lines]

    async def erase(self, event: str) -> None:
        """Erase an event."""
        await self.svcbroker("erase", str(self.dataDir), "--reason", "GDPR", event)

    async def test_documentIsFoundWithItsProof(self) -> None:
        """By a file, standard input or its hash; by an extension; in a topic and a time."""
        await self.prepare()
        hash = sha256(self.document.read_bytes()).hexdigest()
        genesis = self.root / "genesis.json"
        genesis.write_text(json.dumps(await self.daemon.call("/rest/genesis")))
        for arguments in (
            [str(self.document)],
            ["--hash", hash, f"--genesis={genesis}"],
            [str(self.document), "--topic=#", "--since=1h"],
        ):
            [event] = await self.found(*arguments)
            self.assertEqual((event["eventId"], event["proved"]), (self.second, True))
            self.assertEqual(event["topic"], "other")
        [event] = await self.found("--extension=order-id=17")
        self.assertEqual(event["eventId"], self.first)
        lines = await self.svcbroker("find", "-", stdin=self.document.read_bytes())
        self.assertIn(self.second, "\n".join(lines))
        self.assertTrue(lines[0].startswith("PROVED"), lines)
        [nothing] = await self.found(str(self.document), "--topic=orders", code=1)
        self.assertFalse(nothing["found"])
        lines = await self.svcbroker("find", "-", stdin=b"another", code=1)
        self.assertIn("proves nothing", lines[1])

    async def test_callAnswersInBothInterfaces(self) -> None:
        """REST and JSON-RPC answer the same; what is not looked for is an error of its own."""
        await self.prepare()
        hash = sha256(self.document.read_bytes()).hexdigest()
        page = await self.daemon.call("/rest/find", hash=hash)
        self.assertEqual([each["eventId"] for each in page["events"]], [self.second])
        self.assertEqual((page["atEnd"], page["height"]), (True, page["chainHeight"]))
        answer = await self.daemon.rpc("find", extensions={"svc-order-id": "17"})
        [event] = answer["result"]["events"]
        self.assertEqual(event["eventId"], self.first)
        given: Any = {"svc-order-id": "17", "topic": "other"}
        page = await self.daemon.call("/rest/find", **given)
        self.assertEqual(page["events"], [])
        given = {"svc-other": "17"}
        refused = await self.daemon.call("/rest/find", **given)
        self.assertEqual(refused["code"], 100600)
        self.assertIn("svc-order-id", refused["message"])

    async def test_absenceIsProvedOfOneTopic(self) -> None:
        """All events of the topic are proved and compared; one that is the document, or has no
        content, is told of."""
        await self.prepare()
        absent = ("find", str(self.document), "--prove-absence", "--topic")
        lines = await self.svcbroker(*absent, "orders")
        self.assertRegex(lines[0], r"^PROVED: none of the 1 event that topic orders has at check")
        [told] = await self.found(*absent[1:], "other", code=1)
        self.assertEqual((told["absent"], told["found"]), (False, [self.second]))
        await self.erase(self.first)
        lines = await self.svcbroker(*absent, "orders", code=1)
        self.assertTrue(lines[0].startswith("NOT PROVED: of the 1 event"), lines)

    async def test_erasedDocumentIsNotFoundAgain(self) -> None:
        """Its rows are removed while the daemon runs, and nothing of its hash is in the files;
        after a start without the index, it is made from the log."""
        await self.prepare()
        await self.erase(self.second)
        await self.found(str(self.document), code=1)
        await self.daemon.stop()
        hash = sha256(self.document.read_bytes()).digest()
        directory = Path(self.dataDir) / "1" / "index"
        [path] = directory.iterdir()
        self.assertNotIn(hash[:8], path.read_bytes())
        self.assertIn(sha256(b"a note").digest()[:8], path.read_bytes())
        path.unlink()
        await self.serve("--find", "--index=order-id")
        [event] = await self.found("--extension=order-id=17")
        self.assertEqual(event["eventId"], self.first)
        await self.found(str(self.document), code=1)

    async def test_brokerWithoutAnIndexSaysSo(self) -> None:
        """The command tells which setting there is to be."""
        await self.serve()
        lines = await self.svcbroker("find", "-", stdin=b"x", code=1)
        self.assertIn("its operator sets find", lines[-1])
