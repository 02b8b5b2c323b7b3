"""
Topics with names in UTF-8 by every way to a real daemon: REST, JSON-RPC, events as a stream,
paho-mqtt, stomp.py, a webhook, the command line, and the archive's commands.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import unicodedata
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tests.functional.daemon import LOCAL, Daemon, DaemonTestCase
from tests.needed import needPackage

from .test_stomp import TIMEOUT, Frames

with contextlib.suppress(ImportError):
    import paho.mqtt.client as paho
    import stomp
    from paho.mqtt.enums import CallbackAPIVersion

SUMMER, BOX = "données/été", "物流/箱"
OTHER_FORM = unicodedata.normalize("NFD", SUMMER)


def portOf(daemon: Daemon, protocol: str) -> int:
    """The port at which a daemon says that it speaks a protocol."""
    [line] = [each for each in daemon.protocol.output.splitlines() if f" {protocol} on " in each]
    return int(line.split(f" {protocol} on ")[1].split()[0].strip(",").rpartition(":")[2])


class Receiver:
    """
    A receiver of webhooks.
    """

    def __init__(self) -> None:
        self.requests: queue.Queue[tuple[Any, bytes]] = queue.Queue()
        put = self.requests.put

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                put((self.headers, self.rfile.read(size)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is said."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self.server.shutdown()
        self.server.server_close()


class NameTests(DaemonTestCase):
    """
    A daemon whose group 1 has names in UTF-8, and whose group 2 has those of the published
    interface.
    """

    def setUp(self) -> None:
        needPackage("paho", "interop")
        needPackage("stomp", "interop")
        super().setUp()

    async def serve(self, *arguments: str) -> Daemon:
        """The daemon."""
        return await self.start(
            *(f"--stomp={LOCAL}", f"--mqtt={LOCAL}", "--group=1", "--group=2=memory"),
            *arguments,
            ledger="pbft:nodes=1:topics=utf8",
        )

    def test_namesGoEverywhere(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.tour())

    async def tour(self) -> None:
        """Each carrier publishes and gets events, and other groups and forms are refused."""
        receiver = Receiver()
        self.addCleanup(receiver.close)
        daemon = await self.serve("--webhook-allow=127.0.0.0/8")
        for name in (SUMMER, BOX):
            self.assertIs(await daemon.call("/rest/open", topic=name), True)
        url, binary = receiver.url, "cloudevents-binary"
        answer = await daemon.rpc("subscribe", topic="données/+", url=url, format=binary)
        self.assertIn("result", answer)
        answer = await daemon.rpc("publish", topic=SUMMER, content=b64encode(b"0").decode())
        self.assertEqual(answer["result"]["topic"], SUMMER)
        headers, _ = await deferToThread(receiver.requests.get, timeout=TIMEOUT)
        source = headers["ce-source"]
        self.assertTrue(source.isascii())
        self.assertEqual(unquote(unquote(source).rpartition("/")[2]), SUMMER)
        event = await daemon.call("/rest/getEvent", eventId=answer["result"]["eventId"])
        self.assertEqual(event["topic"], SUMMER)
        self.assertEqual((await daemon.call("/rest/state", topic=BOX))["topicName"], BOX)
        await self.refusals(daemon)
        await deferToThread(self.useMqtt, portOf(daemon, "MQTT"))
        await deferToThread(self.useStomp, portOf(daemon, "STOMP"))
        await self.useCommands(daemon)
        self.assertEqual(await daemon.stop(), 0)
        await self.useArchive()

    async def refusals(self, daemon: Daemon) -> None:
        """Names that are no topic's: the error says the name, the character, and what may be."""
        answer = await daemon.call("/rest/open", topic=OTHER_FORM)
        self.assertEqual(answer["code"], 100106)
        self.assertIn("normalization form C", answer["message"])
        self.assertIn(ascii("e\u0301"), answer["message"])
        answer = await daemon.call("/rest/publish", topic="été\u200b", content="x")
        self.assertEqual(answer["code"], 100106)
        self.assertIn(ascii("\u200b"), answer["message"])
        answer = await daemon.call("/rest/open", topic="é" * 129)
        self.assertEqual(answer["code"], 100102)
        for call in ("open", "exist", "state"):
            answer = await daemon.call(f"/rest/{call}", topic=SUMMER, groupId="2")
            self.assertEqual(answer["code"], 100106, call)
            self.assertIn("allowed are the characters 32 to 128", answer["message"])

    def useMqtt(self, port: int) -> None:
        """Wildcards are those of ASCII alone."""
        messages: queue.Queue[Any] = queue.Queue()
        subscribed: queue.Queue[Any] = queue.Queue()
        client = paho.Client(CallbackAPIVersion.VERSION2, "noël", protocol=paho.MQTTv5)
        client.on_message = lambda c, u, message: messages.put(message)
        client.on_subscribe = lambda c, u, mid, reasons, p: subscribed.put(reasons)
        client.connect("127.0.0.1", port)
        client.loop_start()
        self.addCleanup(client.loop_stop)
        for filter in ("données/+", "物流/#", OTHER_FORM):
            client.subscribe(filter, 1)
        reasons = [subscribed.get(timeout=TIMEOUT)[0].value for _ in range(3)]
        self.assertEqual(reasons, [1, 1, 0x8F])
        for name in (SUMMER, BOX):
            client.publish(name, name.encode(), 1)
        for _ in range(2):
            message = messages.get(timeout=TIMEOUT)
            self.assertEqual(message.topic.encode(), message.payload)
        client.disconnect()

    def useStomp(self, port: int) -> None:
        """The destination is UTF-8, as all headers are."""
        connection = stomp.StompConnection12([("127.0.0.1", port)], auto_decode=False)
        frames = Frames()
        connection.set_listener("", frames)
        connection.connect(wait=True, with_connect_command=True)
        connection.subscribe("物流/+", id="1", headers={"receipt": "subscribed"})
        frames.next("RECEIPT")
        connection.send(BOX, b"stomp")
        headers, body = frames.next("MESSAGE")
        self.assertEqual((headers["destination"], body), (BOX, b"stomp"))
        connection.send(OTHER_FORM, b"stomp")
        headers, body = frames.next("ERROR")
        self.assertIn("normalization form C", headers["message"] + body.decode())

    async def useCommands(self, daemon: Daemon) -> None:
        """The command line shows them as they are."""
        url = f"--url={daemon.base}"
        code, output, errors = await self.outcomeOf("topic", "list", url)
        self.assertEqual(code, 0, errors)
        self.assertIn(SUMMER, output)
        code, output, errors = await self.outcomeOf("events", "données/#", "--json", url)
        self.assertEqual(code, 0, errors)
        found = [json.loads(line)["topic"] for line in output.splitlines()]
        self.assertEqual(set(found), {SUMMER})
        for words in (("topic", "open", "été"), ("pub", "été", "x")):
            code, output, errors = await self.outcomeOf(*words, url)
            self.assertEqual(code, 0, errors)

    async def useArchive(self) -> None:
        """The audit, an export, its import, a backup, and a daemon on that."""
        copy, file, backup = (self.root / name for name in ("copy", "chain.svc", "backup"))
        for words in (
            ("chain", "audit", self.dataDir),
            ("chain", "export", self.dataDir, file),
            ("chain", "import", file, copy),
            ("chain", "audit", copy),
            ("chain", "backup", self.dataDir, backup),
        ):
            code, output, errors = await self.outcomeOf(*words)
            self.assertEqual(code, 0, (words, output, errors))
        self.dataDir = backup
        again = await self.serve()
        self.assertEqual((await again.call("/rest/state", topic=BOX))["sequenceNumber"], 2)
        self.assertIs(await again.call("/rest/exist", topic="été"), True)
        self.assertEqual(await again.stop(), 0)

    def test_chainKeepsItsRule(self) -> Deferred[None]:
        """A chain that was made without the setting does not start with it."""

        async def check() -> None:
            daemon = await self.start(ledger="pbft:nodes=1")
            self.assertEqual(await daemon.stop(), 0)
            arguments = ["--http=0", f"--data-dir={self.dataDir}"]
            line = await self.refused(*arguments, "--ledger=pbft:nodes=1:topics=utf8")
            self.assertIn("was made without topics=utf8", line)

        return Deferred.fromCoroutine(check())
