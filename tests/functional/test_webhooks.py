"""
The real daemon and a real receiver on loopback, each of which fails in turn.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import subprocess
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThread
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from twisted.web.server import Request as SiteRequest

try:
    from standardwebhooks.webhooks import Webhook
except ImportError:  # it is in the extra interop
    Webhook = None  # type: ignore

import svcbroker
from tests.needed import neededProgram

from .daemon import TIMEOUT, Daemon, DaemonTestCase, reactor, until

SECRET = "the secret of this receiver"
VERIFY = Path(svcbroker.__file__).parent.parent / "docs" / "examples" / "verify-webhook.sh"


class Receiver(Resource):
    """
    Keeps what it is sent, and answers as it is told.

    @ivar accepted: the contents that it has acknowledged.
    @ivar seen: everything that it was sent.
    @ivar bodies: the same, as it came.
    @ivar answer: the status for a request; C{None} never answers.
    """

    isLeaf = True

    def __init__(self, test: DaemonTestCase, secret: str = SECRET) -> None:
        """
        @param secret: signs requests; other requests fail.
        """
        super().__init__()
        self.secret = secret
        self.accepted: list[str] = []
        self.seen: list[tuple[dict[str, str], Any]] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[int], int | None] = lambda number: 200
        self._waiters: list[tuple[Callable[[], bool], Deferred[None]]] = []
        self._site = Site(self)
        self._listening: IListeningPort | None = None
        self.channels: set[Any] = set()
        self.port = 0
        self.start()
        test.addCleanup(self.stop)

    def start(self) -> None:
        """Listen, on the same port as the last time."""
        self._listening = listening = self.listen()
        self.port = listening.getHost().port

    def listen(self) -> Any:
        return reactor.listenTCP(self.port, self._site, interface="127.0.0.1")

    async def stop(self) -> None:
        """Be gone, connections and all."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await maybeDeferred(listening.stopListening)
        for channel in list(self.channels):
            channel.transport.abortConnection()

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Fires as soon as something has arrived and a condition holds."""
        done: Deferred[None] = Deferred()
        self._waiters.append((condition, done))
        self._look()
        return done.addTimeout(TIMEOUT, reactor)

    def _look(self) -> None:
        for waiter in list(self._waiters):
            if waiter[0]():
                self._waiters.remove(waiter)
                waiter[1].callback(None)

    def render_POST(self, request: Request) -> Any:
        self.channels.add(request.channel)
        channel = request.channel
        request.notifyFinish().addBoth(lambda _: self.channels.discard(channel))
        assert request.content is not None
        body = request.content.read()
        headers = {
            name.decode().lower(): values[0].decode()
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        told = self.read(headers, body)
        self.seen.append((headers, told))
        self.bodies.append(body)
        if self.secret == SECRET:
            expected = hmac.new(
                SECRET.encode(), headers["x-svc-timestamp"].encode() + b"." + body, hashlib.sha256
            ).hexdigest()
            assert headers["x-svc-signature"] == f"v1={expected}"
        else:
            assert "x-svc-signature" not in headers
        if Webhook is not None:
            isPrefixed = self.secret.startswith("whsec_")
            Webhook(self.secret if isPrefixed else self.secret.encode()).verify(body, headers)
        status = self.answer(len(self.seen))
        if status is not None and status < 300:
            self.accepted += self.contentsOf(told)
        self._look()
        if status is None:
            return NOT_DONE_YET
        request.setResponseCode(status)
        return b""

    def read(self, headers: Mapping[str, str], body: bytes) -> Any:
        """What a request has told."""
        return json.loads(body)

    def contentsOf(self, told: Any) -> list[str]:
        """What was published."""
        return contentsOf(told)


class OldRequest(SiteRequest):
    """
    A request whose answer is of HTTP/1.0: its connection is closed without a word.
    """

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self.channel.persistent = False
        super().requestReceived(command, path, b"HTTP/1.0")


class OldReceiver(Receiver):
    """
    A receiver that speaks HTTP/1.0.
    """

    def listen(self) -> Any:
        self._site.requestFactory = OldRequest
        return super().listen()


def contentsOf(told: Any) -> list[str]:
    """What was published, from either form of delivery, of a batch or of one event."""
    params = [each.get("params", each) for each in (told if isinstance(told, list) else [told])]
    return [b64decode(each["event"]["content"]).decode() for each in params]


class WebhookTests(DaemonTestCase):
    """
    Deliveries.
    """

    async def begin(self, ledger: str = "pbft:nodes=4", timeout: int = 60) -> Daemon:
        """
        A daemon that may send to loopback, signs, and tries again soon.

        @param timeout: how many seconds it waits for an answer.
        """
        secret = self.root / "secret"
        secret.write_text(SECRET + "\n")
        return await self.start(
            *("--webhook-allow=127.0.0.0/8", f"--webhook-secret-file={secret}"),
            *(f"--webhook-timeout={timeout}", "--webhook-max-delay=1"),
            ledger=ledger,
        )

    async def publish(self, daemon: Daemon, *contents: str) -> None:
        """Publish, and see that it is final."""
        for content in contents:
            sent = await daemon.call("/rest/publish", topic="a", content=content)
            self.assertEqual(sent["status"], "SUCCESS")

    async def records(self, daemon: Daemon) -> dict[str, Any]:
        """What operators see."""
        answer = await daemon.call("/admin/listSubscription")
        self.assertEqual(answer["code"], 0, daemon.protocol.output)
        (records,) = answer["data"].values()
        return records  # type: ignore[no-any-return]

    async def test_bothFormsArriveSignedAndInOrder(self) -> None:
        """Both forms are signed, in order, shown by listSubscription and ended by unSubscribe."""
        daemon = await self.begin(ledger="memory")
        await daemon.call("/rest/open", topic="a")
        rest, rpc = Receiver(self), Receiver(self)
        restId = await daemon.call(
            "/rest/subscribe", topic="a", url=f"http://127.0.0.1:{rest.port}/hook?key=x"
        )
        answer = await daemon.rpc("subscribe", topic="#", url=f"http://127.0.0.1:{rpc.port}/")
        rpcId = answer["result"]
        await self.publish(daemon, "1", "2", "3")
        for receiver in (rest, rpc):
            await receiver.until(lambda receiver=receiver: len(receiver.accepted) == 3)  # type: ignore
            self.assertEqual(receiver.accepted, ["1", "2", "3"])
        headers, told = rest.seen[0]
        event = await daemon.call("/rest/getEvent", eventId=told["event"]["eventId"])
        self.assertEqual(told, {"subscriptionId": restId, "event": event})
        self.assertEqual(headers["x-svc-subscription-id"], restId)
        self.assertEqual(headers["x-svc-event-id"], event["eventId"])
        self.assertEqual(headers["content-type"], "application/json")
        self.assertTrue(headers["user-agent"].startswith("svcbroker/"))
        headers, told = rpc.seen[0]
        self.assertEqual(
            told,
            {
                "jsonrpc": "2.0",
                "id": event["eventId"],
                "method": "onEvent",
                "params": {"subscriptionId": rpcId, "event": event},
            },
        )
        records = await self.records(daemon)
        self.assertEqual(
            {id: (r["interfaceType"], r["remoteIp"], r["topicName"]) for id, r in records.items()},
            {
                restId: ("RESTful", f"127.0.0.1:{rest.port}", "a"),
                rpcId: ("JsonRPC", f"127.0.0.1:{rpc.port}", "#"),
            },
        )
        self.assertIs(await daemon.call("/rest/unSubscribe", subscriptionId=restId), True)
        self.assertEqual((await daemon.rpc("unSubscribe", subscriptionId=rpcId))["result"], "true")
        self.assertEqual(await self.records(daemon), {})
        failed = await daemon.call("/rest/unSubscribe", subscriptionId=restId)
        self.assertEqual(failed["code"], 100504)
        self.assertEqual(await daemon.stop(), 0)

    async def isSigned(self, key: str, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether the script of the documentation finds the signature of a key."""
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        done = await deferToThread(
            subprocess.run,
            ("sh", str(VERIFY), key, *(headers[name] for name in names)),
            input=body,
            capture_output=True,
        )
        return done.returncode == 0

    async def test_opensslChecksTheBrokersSignature(self) -> None:
        """
        Receivers show a request to others with a key that the chain certifies; it is replaced while
        requests go out, and those of before a restart go on.
        """
        neededProgram("openssl")
        daemon = await self.begin()
        await daemon.call("/rest/open", topic="a")
        receiver = Receiver(self)
        await daemon.call("/rest/subscribe", topic="a", url=f"http://127.0.0.1:{receiver.port}/")
        [first] = await self.keys(daemon)
        event = await daemon.call("/rest/getEvent", eventId=first["eventId"])
        self.assertEqual(event["topic"], "$svc/webhooks")
        self.assertEqual(json.loads(b64decode(event["content"])), {"key": first["whpk"]})
        rotate = ("webhook", "rotate", "--data-dir", self.dataDir, "--overlap")
        await self.publish(daemon, "1")
        code, output, errors = await self.outcomeOf(*rotate, "1d")
        self.assertEqual((code, errors), (0, ""))
        old, new = await self.keys(daemon)
        self.assertEqual(old["whpk"], first["whpk"])
        self.assertEqual(
            [line.partition(",")[0] for line in output.splitlines()], [old["whpk"], new["whpk"]]
        )
        await self.publish(daemon, "2")
        await receiver.until(lambda: receiver.accepted == ["1", "2"])
        self.assertEqual(await daemon.stop(signal.SIGTERM), 0)
        daemon = await self.begin()
        await self.publish(daemon, "3")
        await receiver.until(lambda: receiver.accepted == ["1", "2", "3"])
        self.assertEqual(await self.keys(daemon), [old, new])
        for number, signers in ((0, {"old"}), (1, {"old", "new"}), (2, {"old", "new"})):
            body, (headers, _) = receiver.bodies[number], receiver.seen[number]
            for name, key in (("old", old), ("new", new)):
                isSigned = await self.isSigned(key["whpk"], body, headers)
                self.assertEqual(isSigned, name in signers, (number, name))
                self.assertFalse(await self.isSigned(key["whpk"], body + b" ", headers))

    async def keys(self, daemon: Daemon) -> list[dict[str, Any]]:
        """The keys at the well-known path."""
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        found: list[dict[str, Any]] = (await root.call("/.well-known/webhook-keys"))["keys"]
        return found

    async def test_oldReceiverGetsEverythingAtOnce(self) -> None:
        """A receiver that speaks HTTP/1.0 fails no attempt by closing its connections."""
        daemon = await self.begin(ledger="memory")
        await daemon.call("/rest/open", topic="a")
        receiver = OldReceiver(self)
        url = f"http://127.0.0.1:{receiver.port}/"
        await daemon.call("/rest/subscribe", topic="a", url=url, maxAttempts=1)
        contents = [str(number) for number in range(20)]
        await self.publish(daemon, *contents)
        await receiver.until(lambda: contents[-1] in receiver.accepted)
        self.assertEqual(receiver.accepted, contents)

    async def test_loopbackIsRefusedByDefault(self) -> None:
        """Without --webhook-allow nothing is sent to loopback, under any name."""
        daemon = await self.start()
        await daemon.call("/rest/open", topic="a")
        for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1", "0.0.0.0"):
            answer = await daemon.call("/rest/subscribe", topic="a", url=f"http://{host}:1/")
            self.assertEqual(answer["code"], 100501, host)

    async def test_failingReceiverGetsEverythingInOrder(self) -> None:
        """A receiver that refuses, hangs and is stopped for a time gets every event in order."""
        daemon = await self.begin(timeout=2)
        await daemon.call("/rest/open", topic="a")
        receiver = Receiver(self)
        await daemon.call("/rest/subscribe", topic="a", url=f"http://127.0.0.1:{receiver.port}/")
        answers: list[int | None] = [200, 500, 302, 404, 200, None, 200]
        receiver.answer = lambda number: answers[number - 1] if number <= len(answers) else 200
        await self.publish(daemon, *"12345")
        await receiver.until(lambda: len(receiver.accepted) == 5)
        await receiver.stop()
        await self.publish(daemon, "6", "7")
        receiver.start()
        await receiver.until(lambda: "7" in receiver.accepted)
        # The answer to the fifth may have been lost with the receiver.
        self.assertEqual(list(dict.fromkeys(receiver.accepted)), list("1234567"))

        async def areCounted() -> bool:
            (record,) = (await self.records(daemon)).values()
            counts = (record["notifiedEventCount"], record["notifyingEventCount"])
            return counts == ("7", "0")

        # The daemon counts an event when it has the receiver's answer.
        await until(areCounted)

    async def test_killedBrokerResumesDeliveries(self) -> None:
        """
        A broker that is killed, also during a delivery, continues after its restart. No event is
        lost and first arrivals are in order.
        """
        receiver = Receiver(self)
        published = 0
        for turn in range(3):
            # The third request of each turn is left without an answer, and then killed. The broker
            # may send what it has left as soon as it is started.
            before = len(receiver.seen)
            receiver.answer = lambda number, last=before + 3: None if number >= last else 200  # type: ignore
            daemon = await self.begin()
            if not turn:
                await daemon.call("/rest/open", topic="a")
                id = await daemon.call(
                    "/rest/subscribe", topic="a", url=f"http://127.0.0.1:{receiver.port}/"
                )
            self.assertEqual(list(await self.records(daemon)), [id])
            for _ in range(4):
                await self.publish(daemon, str(published))
                published += 1
            await receiver.until(lambda last=before + 3: len(receiver.seen) >= last)  # type: ignore
            await daemon.stop(signal.SIGKILL)
        receiver.answer = lambda number: 200
        daemon = await self.begin()
        await receiver.until(lambda: str(published - 1) in receiver.accepted)
        self.assertEqual(list(dict.fromkeys(receiver.accepted)), [str(n) for n in range(published)])
        self.assertEqual(await daemon.stop(), 0)
