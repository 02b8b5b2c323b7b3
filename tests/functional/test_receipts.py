"""
Receipts of recipients: signed by commands, by clients and by the script of the documentation, and
read from the log of a real daemon.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import treq
from twisted.internet.threads import deferToThread

import svcbroker
from svcbroker.client import AuthorKey, Client, Receipts
from svcbroker.proofs import SILENCE
from tests.authors import makeKeyFile
from tests.needed import neededProgram

from .daemon import Daemon, DaemonTestCase

SCRIPT = Path(svcbroker.__file__).parent.parent / "docs" / "examples" / "sign-receipt.sh"


class ReceiptTests(DaemonTestCase):
    """
    Several recipients of one topic.
    """

    async def serve(self) -> Daemon:
        """A daemon with a topic, and the keys of recipients."""
        daemon = await self.start(ledger="pbft:nodes=1")
        for name in ("ann", "bob", "eve"):
            makeKeyFile(self.root / name)
        await daemon.call("/rest/open", topic="t")
        return daemon

    async def publish(self, daemon: Daemon, *contents: str) -> str:
        """Publish, and return the id of the last event."""
        for content in contents:
            sent = await daemon.call("/rest/publish", topic="t", content=content)
        return str(sent["eventId"])

    async def receipts(self, daemon: Daemon, code: int = 0) -> dict[str, dict[str, Any]]:
        """The newest receipt for the topic of each recipient, and what is not believed."""
        ended, output, errors = await self.outcomeOf(
            "receipts", "t", "--url", daemon.base, "--json"
        )
        self.assertEqual(ended, code, errors)
        self.errors = errors
        found = map(json.loads, output.splitlines())
        return {each["recipient"].rpartition("/")[2]: each for each in found}

    async def test_recipientsSignUpToWhereTheyAre(self) -> None:
        for program in ("openssl", "curl"):
            neededProgram(program)
        daemon = await self.serve()
        url = ("--url", daemon.base)
        third = await self.publish(daemon, "1", "2", "3")
        shown = ("--until-end", "--template", "{content}")
        own = ("--receipts", self.root / "ann", "--receipts-topic", "receipts/ann", "--every", "2")
        code, output, _ = await self.outcomeOf("sub", "t", *url, *shown, *own)
        self.assertEqual((code, output), (0, "1\n2\n3\n"))
        await self.publish(daemon, "4")
        code, output, _ = await self.outcomeOf("sub", "t", *url, *shown, *own)
        self.assertEqual((code, output), (0, "4\n"))
        code, _, _ = await self.outcomeOf("topic", "open", "receipts/bob", *url)
        bob = await deferToThread(self.signByScript, daemon, "bob", third)
        self.assertTrue(bob["eventId"])
        arguments = ("t", third, "--key", self.root / "eve", "--receipt", "received")
        code, output, _ = await self.outcomeOf("receipt", *arguments, *url)
        self.assertEqual(code, 0)
        found = await self.receipts(daemon)
        [eve] = set(found) - {"ann", "bob"}
        told = {
            name: (each["number"], each["behind"], each["means"]) for name, each in found.items()
        }
        self.assertEqual(
            told,
            {"ann": (4, 0, "processed"), "bob": (3, 1, "processed"), eve: (3, 1, "received")},
        )
        code, output, errors = await self.outcomeOf("receipts", "t", *url)
        self.assertIn(SILENCE, errors)
        code, output, _ = await self.outcomeOf("receipt", *arguments, *url)
        self.assertIn("an earlier receipt says as much", output)

    def signByScript(self, daemon: Daemon, name: str, eventId: str) -> Any:
        """Sign as the receiver of a webhook does."""
        done = subprocess.run(
            ("sh", str(SCRIPT), str(self.root / name), f"receipts/{name}", "t", eventId),
            env={"PATH": os.environ["PATH"], "BASE": daemon.base},
            check=True,
            capture_output=True,
        )
        return json.loads(done.stdout)

    async def test_clientSignsAfterItsProgram(self) -> None:
        """Not for the event that the program has in hand; after a restart it goes on behind it."""
        daemon = await self.serve()
        ids = [await self.publish(daemon, each) for each in ("1", "2", "3")]

        def read(count: int) -> list[str]:
            receipts = Receipts(key=self.root / "ann", topic="receipts/ann", every=1)
            found = []
            with Client(daemon.base) as client:
                for event in client.follow("t", receipts=receipts):
                    found.append(event.eventId)
                    if len(found) == count:
                        break
            return found

        self.assertEqual(await deferToThread(read, 3), ids)
        self.assertEqual((await self.receipts(daemon))["ann"]["number"], 2)
        ids.append(await self.publish(daemon, "4"))
        following = deferToThread(read, 3)
        await self.untilReceipt(daemon, 4)
        ids.append(await self.publish(daemon, "5"))
        self.assertEqual(await following, ids[2:])
        self.assertEqual((await self.receipts(daemon))["ann"]["number"], 4)
        ids.append(await self.publish(daemon, "6"))
        self.assertEqual(await deferToThread(read, 1), [ids[4]])

    async def untilReceipt(self, daemon: Daemon, number: int) -> None:
        """Wait until a receipt has come, by following them."""

        def follow() -> None:
            with Client(daemon.base) as client:
                for event in client.follow("receipts/#", after="OFFSET_FIRST"):
                    if json.loads(event.content)["number"] >= number:
                        return

        await deferToThread(follow)

    async def test_impossibleReceiptsAreToldAndNotBelieved(self) -> None:
        """Each in a line; those before it count."""
        daemon = await self.serve()
        last = await self.publish(daemon, "1", "2")
        await daemon.call("/rest/open", topic="receipts/ann")
        checkpoint = await daemon.call("/rest/checkpoint")
        good = {
            "format": "svcbroker/receipt/1",
            "chain": checkpoint["chain"],
            "topic": "t",
            "number": 2,
            "eventId": last,
            "checkpoint": checkpoint["checkpoint"],
            "means": "processed",
        }
        first, second, height = last.split("-")
        changes: list[dict[str, object]] = [
            {},
            {"chain": "00" * 32},
            {"number": 9, "eventId": f"{first}-9-{height}"},
            {"number": 1, "eventId": f"{first}-1-{height}"},
            {"checkpoint": f"{checkpoint['height']}:{'00' * 32}"},
        ]

        def publishAll() -> None:
            with Client(daemon.base, key=self.root / "ann") as client:
                for change in changes:
                    client.publish("receipts/ann", json.dumps({**good, **change}))
                client.publish("receipts/ann", "no receipt")

        await deferToThread(publishAll)
        found = await self.receipts(daemon, code=1)
        self.assertEqual(found["ann"]["number"], int(second))
        lines = self.errors.strip().splitlines()
        for line, words in zip(
            lines,
            ("another chain", "not there yet", "says less", "does not have", "not a receipt"),
            strict=True,
        ):
            self.assertIn(words, line)

    async def oldest(self, daemon: Daemon) -> dict[str, float]:
        """The metric of the topic, by recipient."""
        url = f"{daemon.base.removesuffix('/svcbroker')}/metrics"
        text = await (await treq.get(url, pool=daemon.pool)).text()
        family = "svcbroker_receipt_oldest_seconds"
        pattern = rf'^{family}\{{group="1",recipient="(\w+)",topic="t"\}} (\S+)$'
        return {name: float(age) for name, age in re.findall(pattern, text, re.M)}

    async def test_expectedRecipientsAreMeasured(self) -> None:
        """Admins say who is expected; the age is that of the oldest event without a receipt."""
        daemon = await self.serve()
        url = ("--url", daemon.base)
        admin = AuthorKey.read(self.root / "ann").public.hex()
        opened = ("topic", "open", "t2", "--author", admin, "--admin", admin, *url)
        code, _, errors = await self.outcomeOf(*opened, "--recipients", "bob")
        self.assertEqual(code, 2, errors)
        self.assertIn("--sign", errors)
        code, _, errors = await self.outcomeOf(
            *opened, "--recipients", "bob", "--sign", self.root / "ann"
        )
        self.assertEqual(code, 0, errors)
        state = await daemon.call("/rest/state", topic="recipients/t2")
        self.assertEqual(state["authors"], [admin])
        self.assertEqual(await self.oldest(daemon), {})
        code, _, errors = await self.outcomeOf("topic", "recipients", "t", "ann,bob", *url)
        self.assertEqual(code, 0, errors)
        self.assertEqual(await self.oldest(daemon), {"ann": 0.0, "bob": 0.0})
        second = await self.publish(daemon, "1", "2")
        first = await self.oldest(daemon)
        self.assertTrue(all(0 < age < 60 for age in first.values()), first)
        key = ("--key", self.root / "ann", "--receipts-topic", "receipts/ann")
        code, _, errors = await self.outcomeOf("receipt", "t", second, *key, *url)
        self.assertEqual(code, 0, errors)
        now = await self.oldest(daemon)
        self.assertEqual(now["ann"], 0.0)
        self.assertGreaterEqual(now["bob"], first["bob"])
        await self.publish(daemon, "3")
        found = await self.receipts(daemon)
        self.assertEqual((found["ann"]["number"], found["bob"]["number"]), (2, 0))
        now = await self.oldest(daemon)
        self.assertLess(now["ann"], now["bob"])
        case = self.root / "case.zip"
        bundle = ("proof", "bundle", second, "--receipts", "receipts/#", "--output", case, *url)
        code, _, errors = await self.outcomeOf(*bundle)
        self.assertEqual(code, 0, errors)
        code, output, _ = await self.outcomeOf("verify", case)
        self.assertEqual(code, 0, output)
        [line, silence, *_] = output.splitlines()
        self.assertIn("that it had processed all events of", line)
        self.assertTrue(line.endswith("; receipts/bob has signed nothing that is here"), line)
        self.assertEqual(silence, SILENCE)
        code, _, errors = await self.outcomeOf("topic", "recipients", "t", "bob", *url)
        self.assertEqual([*await self.oldest(daemon)], ["bob"])
        code, _, errors = await self.outcomeOf("topic", "recipients", "t", "bob,bob", *url)
        self.assertEqual((code, errors.count("\n")), (2, 1), errors)

    async def test_receiptsSurviveKills(self) -> None:
        """Each one that was answered is there after a kill, and they go on from it."""
        daemon = await self.serve()
        url = ("--until-end", "--receipts", self.root / "ann", "--receipts-topic", "receipts/ann")
        for number in range(1, 4):
            await self.publish(daemon, str(number))
            code, _, errors = await self.outcomeOf("sub", "t", "--url", daemon.base, *url)
            self.assertEqual(code, 0, errors)
            await daemon.stop(signal.SIGKILL)
            daemon = await self.start(ledger="pbft:nodes=1")
            self.assertEqual((await self.receipts(daemon))["ann"]["number"], number)
