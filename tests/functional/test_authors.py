"""
Events that are signed away from the broker, published to a real daemon, and attributed by their
proofs alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from tests.authors import makeKeyFile

from .daemon import Daemon
from .test_proofs import CommandTestCase

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "sign-event.sh"


class AuthorTests(CommandTestCase):
    """
    Authors with openssl, or with the commands.
    """

    def sign(self, *arguments: str, content: str, **environment: str) -> dict[str, Any]:
        """The parameters that the script prints."""
        done = subprocess.run(
            ["sh", str(SCRIPT), *arguments],
            input=content.encode(),
            capture_output=True,
            env={"PATH": os.environ["PATH"], **environment},
            cwd=self.root,
            check=True,
        )
        parameters: dict[str, Any] = json.loads(done.stdout)
        return parameters

    def test_eventsAreAttributedToTheirAuthors(self) -> Deferred[None]:
        """
        An event that openssl has signed is published, and verified by its proof; one with another
        content is refused; and those that nobody has signed are said to be unsigned.
        """
        return Deferred.fromCoroutine(self.attribute())

    async def attribute(self) -> None:
        """The whole of it."""
        makeKeyFile(self.root / "ada.pem")
        daemon = await self.start(ledger="pbft:nodes=4")
        self.assertIs(await daemon.call("/rest/open", topic="t"), True)
        chain = (await daemon.call("/rest/genesis"))["chain"]
        extensions = {"svc-tag": "red", "svc-private-name": "Ada"}
        signed = self.sign(
            *("ada.pem", chain, "t"),
            *(f"{name}={value}" for name, value in extensions.items()),
            content="gr\u00f6\u00dfer",
            IDEMPOTENCY_KEY="order-1",
        )
        event = {"topic": "t", **extensions, **signed, "idempotencyKey": "order-1"}
        refused = await daemon.call("/rest/publish", content="kleiner", **event)
        self.assertEqual(refused["code"], 100210)
        sent = await daemon.call("/rest/publish", content="gr\u00f6\u00dfer", **event)
        self.assertEqual(sent["status"], "SUCCESS")
        again = await daemon.call("/rest/publish", content="gr\u00f6\u00dfer", **event)
        self.assertEqual(again, sent)

        # The verifier's machine has the proof, the hash of the genesis and the author's key.
        authors = self.root / "authors.toml"
        authors.write_text(f'ada = "{signed["author"]}"\n', "utf-8")
        proof = await self.proof(daemon, sent["eventId"])
        trusted = ("--chain", chain, "--authors", authors)
        text = await self.done("verify", proof, *trusted)
        self.assertIn(f"author       key {signed['author']}, ada\n", text)
        self.assertIn("the signature of this key holds", text)
        found = await self.proved(proof, *trusted)
        self.assertEqual(
            {name: found[name] for name in ("content", "authorName", "signedAt", "idempotencyKey")},
            {
                "content": "gr\u00f6\u00dfer",
                "authorName": "ada",
                "signedAt": signed["signedAt"],
                "idempotencyKey": "order-1",
            },
        )
        self.assertEqual(found["extensions"], extensions)
        await self.attributeMore(daemon, chain, trusted)
        await self.attributeErased(daemon, sent["eventId"], proof, trusted)
        self.assertEqual(await daemon.stop(signal.SIGTERM), 0)

    async def attributeMore(self, daemon: Daemon, chain: str, trusted: tuple[object, ...]) -> None:
        """An event that a command has signed, and one that nobody has."""
        public = (await self.done("keygen", "bert.pem")).strip()
        common = ("--key", "bert.pem", "--chain", chain, "--topic", "t")
        signed = json.loads(await self.done("sign", *common, "by command"))
        sent = await daemon.call("/rest/publish", topic="t", content="by command", **signed)
        text = await self.done("verify", await self.proof(daemon, sent["eventId"]), *trusted)
        self.assertIn(f"author       key {public}, which has no name here", text)
        sent = await daemon.call("/rest/publish", topic="t", content="unsigned")
        text = await self.done("verify", await self.proof(daemon, sent["eventId"]), *trusted)
        self.assertIn("author       unsigned: no author has signed this event", text)

    async def attributeErased(
        self, daemon: Daemon, eventId: str, before: Path, trusted: tuple[object, ...]
    ) -> None:
        """An event that is erased: its proof from before holds, and a new one has its author."""
        known = await self.proved(before, *trusted)
        kept = before.rename(self.root / "before.json")
        await self.done("erase", self.dataDir, "--reason", "asked for", eventId)
        self.assertEqual(await self.proved(kept, *trusted), known)
        found = await self.proved(await self.proof(daemon, eventId), *trusted)
        self.assertNotIn("content", found)
        self.assertEqual(found["signature"], None)
        self.assertEqual(found["extensions"], {"svc-tag": "red"})
        for name in ("author", "authorName", "signedAt", "idempotencyKey", "eventId", "block"):
            self.assertEqual(found[name], known[name])

    async def proof(self, daemon: Daemon, eventId: str) -> Path:
        """The saved proof of an event."""
        return self.save(f"{eventId}.json", await daemon.call("/rest/proof", eventId=eventId))
