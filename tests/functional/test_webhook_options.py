"""
The real daemon and real receivers: batches, dead letters, headers and secrets, and managing them.
"""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path
from typing import Any

from attrs import evolve

from .daemon import Daemon, DaemonTestCase
from .test_webhooks import SECRET, Receiver, contentsOf

OWN = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HEADER = "Bearer do-not-tell-anybody"


class WebhookOptionTests(DaemonTestCase):
    """
    One daemon that is killed and started again.
    """

    async def begin(self) -> Daemon:
        """A daemon that may send to loopback, signs, and tries again soon."""
        secret = self.root / "secret"
        secret.write_text(f"{SECRET}\nmine = {OWN}\n")
        daemon = await self.start(
            *("--webhook-allow=127.0.0.0/8", f"--webhook-secret-file={secret}", "--access-log"),
            *("--webhook-timeout=60", "--webhook-max-delay=1"),
            ledger="pbft:nodes=4",
        )
        await daemon.call("/rest/open", topic="a")
        return daemon

    async def subscribe(self, daemon: Daemon, receiver: Receiver, **options: Any) -> str:
        """A webhook of JSON-RPC."""
        url = f"http://127.0.0.1:{receiver.port}/path-do-not-tell"
        answer = await daemon.rpc("subscribe", **{"topic": "a", "url": url, **options})
        id: str = answer["result"]
        return id

    async def publish(self, daemon: Daemon, *contents: str) -> None:
        """Publish, and see that it is final."""
        for content in contents:
            sent = await daemon.call("/rest/publish", topic="a", content=content)
            self.assertEqual(sent["status"], "SUCCESS")

    async def operate(self, *arguments: str) -> str:
        """What C{svcbroker webhook} prints."""
        code, output, errors = await self.outcomeOf("webhook", self.dataDir, *arguments)
        self.assertEqual(code, 0, output + errors)
        return output

    async def test_batchesSurviveKills(self) -> None:
        """A broker that is killed in the middle of a batch sends it again; nothing is lost."""
        receiver = Receiver(self)
        daemon = await self.begin()
        await self.subscribe(daemon, receiver, batch=5, batchSeconds=1)
        published = 0
        for turn in range(3):
            # The second request of each turn is left without an answer, and the broker killed. It
            # may send what it has left as soon as it is started.
            before = len(receiver.seen)
            receiver.answer = lambda number, last=before + 2: None if number >= last else 200  # type: ignore
            if turn:
                daemon = await self.begin()
            await self.publish(daemon, *map(str, range(published, published + 12)))
            published += 12
            await receiver.until(lambda last=before + 2: len(receiver.seen) >= last)  # type: ignore
            await daemon.stop(signal.SIGKILL)
        receiver.answer = lambda number: 200
        daemon = await self.begin()
        await receiver.until(lambda: str(published - 1) in receiver.accepted)
        self.assertEqual(list(dict.fromkeys(receiver.accepted)), [str(n) for n in range(published)])
        sizes = [len(contentsOf(told)) for _, told in receiver.seen]
        self.assertEqual(max(sizes), 5)
        self.assertTrue(all(isinstance(told, list) for _, told in receiver.seen))
        self.assertEqual(await daemon.stop(), 0)

    async def test_poisonEventBecomesDeadLetter(self) -> None:
        """It is tried three times, across a kill; the next ones arrive."""
        daemon = await self.begin()
        receiver, morgue = Receiver(self), Receiver(self)

        def answer(number: int) -> int:
            return 400 if contentsOf(receiver.seen[number - 1][1]) == ["poison"] else 200

        receiver.answer = answer
        id = await self.subscribe(daemon, receiver, maxAttempts=3)
        await self.publish(daemon, "1", "poison", "2", "3")
        await receiver.until(lambda: len(receiver.seen) >= 3)
        await daemon.stop(signal.SIGKILL)
        daemon = await self.begin()
        await receiver.until(lambda: "3" in receiver.accepted)
        self.assertEqual(receiver.accepted, ["1", "2", "3"])
        attempts = [told for _, told in receiver.seen if contentsOf(told) == ["poison"]]
        # The last one before the kill may not have been counted.
        self.assertIn(len(attempts), (3, 4))
        await self.subscribe(daemon, morgue, topic=f"$svc/dead/{id}", offset="OFFSET_FIRST")
        await morgue.until(lambda: morgue.accepted == ["poison"])
        event = morgue.seen[0][1]["params"]["event"]
        extensions = event["extensions"]
        self.assertEqual(extensions["svc-reason"], "HTTP status 400")
        self.assertEqual(extensions["svc-original-topic"], "a")
        self.assertEqual(extensions["svc-subscription-id"], id)
        original = await daemon.call("/rest/getEvent", eventId=extensions["svc-original-id"])
        self.assertEqual(original["content"], event["content"])
        self.assertEqual(await daemon.stop(), 0)

    async def test_headersAndSecretReachTheReceiverAlone(self) -> None:
        """They survive a restart, and neither the log nor a list has them."""
        daemon = await self.begin()
        receiver = Receiver(self, OWN)
        options = {"secret": "mine", "headers": {"Authorization": HEADER}}
        await self.subscribe(daemon, receiver, **options)
        await self.publish(daemon, "1")
        await receiver.until(lambda: receiver.accepted == ["1"])
        await daemon.stop(signal.SIGKILL)
        output = daemon.protocol.output + daemon.protocol.errors
        daemon = await self.begin()
        receiver.answer = lambda number: 500
        await self.publish(daemon, "2")
        await receiver.until(lambda: len(receiver.seen) >= 3)
        self.assertEqual({headers["authorization"] for headers, _ in receiver.seen}, {HEADER})
        for shown in (
            await daemon.call("/rest/listWebhooks"),
            await daemon.rpc("listWebhooks"),
            await daemon.call("/admin/listSubscription"),
            await self.operate(),
            await self.operate("--json"),
        ):
            self.assertNotIn("do-not-tell", json.dumps(shown))
        self.assertEqual(await daemon.stop(), 0)
        output += daemon.protocol.output + daemon.protocol.errors
        self.assertNotIn("do-not-tell", output)
        self.assertNotIn("whsec_", output)
        kept = [path for path in self.dataDir.iterdir() if path.name.startswith("notes.sqlite")]
        self.assertTrue(kept)
        for path in kept:
            self.assertEqual(stat.S_IMODE(Path(path).stat().st_mode), 0o600, path)

    async def test_lostWebhooksAreTold(self) -> None:
        """A broker whose webhooks are lost after a kill says so in its log and in readyz, after
        each start, until that is accepted."""
        receiver = Receiver(self)
        daemon = await self.begin()
        await self.subscribe(daemon, receiver)
        await daemon.stop(signal.SIGKILL)
        log = self.dataDir / "notes.sqlite-wal"
        changed = bytearray(log.read_bytes())
        changed[100] ^= 1
        log.write_bytes(changed)
        for isLast in (False, True):
            daemon = await self.begin()
            root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
            ready = await root.call("/readyz")
            self.assertEqual(ready["status"], "unavailable")
            self.assertIn("notes.sqlite is missing or was begun", ready["groups"]["1"]["reason"])
            self.assertIn("webhooks, positions", daemon.protocol.output)
            if not isLast:
                await daemon.stop(signal.SIGKILL)
        (self.dataDir / "notes.sqlite-last").unlink()
        self.assertEqual((await root.call("/readyz"))["status"], "ready")

    async def test_pausedSkippedAndRetried(self) -> None:
        """By REST, by JSON-RPC and by the command; a pause survives a kill."""
        daemon = await self.begin()
        receiver = Receiver(self)
        receiver.answer = lambda number: 500
        id = await self.subscribe(daemon, receiver)
        await self.publish(daemon, "1", "2", "3")
        await receiver.until(lambda: len(receiver.seen) >= 2)
        self.assertIs(await daemon.call("/rest/pauseWebhook", subscriptionId=id), True)
        await daemon.stop(signal.SIGKILL)
        daemon = await self.begin()
        receiver.answer = lambda number: 200
        [webhook] = (await daemon.call("/rest/listWebhooks", subscriptionId=id))["webhooks"]
        self.assertTrue(webhook["paused"])
        self.assertEqual(receiver.accepted, [])
        first = receiver.seen[0][1]["id"]
        self.assertEqual(webhook["oldestEventId"], first)
        self.assertIn("paused", await self.operate("list", id))
        self.assertIn("skipped", await self.operate("skip", id, first))
        self.assertEqual(receiver.accepted, [])
        answer = await daemon.rpc("resumeWebhook", subscriptionId=id)
        self.assertEqual(answer["result"], "true")
        await receiver.until(lambda: receiver.accepted == ["2", "3"])
        for name in ("retry", "pause", "resume", "delete"):
            await self.operate(name, id)
        self.assertEqual(await self.operate(), "no webhooks\n")
        gone = await daemon.call("/rest/pauseWebhook", subscriptionId=id)
        self.assertEqual(gone["code"], 100504)
        self.assertEqual(await daemon.stop(), 0)
