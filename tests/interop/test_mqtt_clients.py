"""
MQTT clients that users have, against the real daemon.

Each test is skipped where its client is not installed: C{paho-mqtt} (pip), C{mosquitto_pub} and
C{mosquitto_sub} (Debian C{mosquitto-clients}), C{mqtt} (npm; its C{node_modules} is looked for
where the environment variable C{NODE_PATH} says, and in the working directory).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import Client, OpenedEvent
from tests.needed import neededProgram, needPackage
from tests.proofs.test_age import RECIPIENT, SECRET
from tests.waiting import TIMEOUT

from .daemon import shared
from .node import nodeModules

with contextlib.suppress(ImportError):
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties


class ClientTestCase(SynchronousTestCase):
    """
    A test with somebody else's client.
    """

    def setUp(self) -> None:
        self.daemon = shared()
        self.host, self.port = self.daemon.mqtt
        self.topic = f"clients/{uuid4().hex}"
        self.addCleanup(lambda: self.assertEqual(self.daemon.errors(), ""))


class Paho:
    """
    A paho client whose callbacks can be waited for.
    """

    def __init__(
        self, test: ClientTestCase, version: MQTTProtocolVersion, clientId: str, **options: Any
    ) -> None:
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, clientId, protocol=version, **options
        )
        self.happened: queue.Queue[tuple[str, Any]] = queue.Queue()
        put = self.happened.put
        self.client.on_connect = lambda c, u, flags, reason, p: put(("connect", (flags, reason)))
        self.client.on_subscribe = lambda c, u, mid, reasons, p: put(("subscribe", reasons))
        self.client.on_message = lambda c, u, message: put(("message", message))
        self.client.on_publish = lambda c, u, mid, reason, p: put(("publish", reason))
        self.client.on_disconnect = lambda c, u, flags, reason, p: put(("disconnect", reason))
        test.addCleanup(self.client.loop_stop)
        self._test = test

    def connect(self, **options: Any) -> Any:
        """Connect, and wait for the answer."""
        self.client.connect(self._test.host, self._test.port, **options)
        self.client.loop_start()
        return self.next("connect")

    def next(self, kind: str) -> Any:
        """Wait for something to happen; other things are left out."""
        while True:
            name, what = self.happened.get(timeout=TIMEOUT)
            if name == kind:
                return what

    def leave(self) -> None:
        """Disconnect, and wait until that has happened."""
        self.client.disconnect()
        self.next("disconnect")
        self.client.loop_stop()


class PahoTests(ClientTestCase):
    """
    paho-mqtt.
    """

    def setUp(self) -> None:
        needPackage("paho", "interop")
        super().setUp()

    def test_messagesGoBothWays(self) -> None:
        """Publish and subscribe with each QoS, in both versions."""
        for version in (MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5):
            client = Paho(self, version, uuid4().hex)
            _, reason = client.connect()
            self.assertFalse(reason.is_failure)
            client.client.subscribe(f"{self.topic}/+", 2)
            self.assertEqual([each.value for each in client.next("subscribe")], [2])
            for qos in range(3):
                client.client.publish(f"{self.topic}/{qos}", b"\x00%d" % qos, qos)
            for qos in range(3):
                message = client.next("message")
                self.assertEqual(
                    (message.topic, message.payload, message.qos),
                    (f"{self.topic}/{qos}", b"\x00%d" % qos, qos),
                )
            client.leave()

    def test_propertiesArrive(self) -> None:
        """What MQTT 5 hands on arrives, with the event's id."""
        client = Paho(self, MQTTProtocolVersion.MQTTv5, uuid4().hex)
        client.connect()
        client.client.subscribe(self.topic, 1)
        client.next("subscribe")
        sent = Properties(PacketTypes.PUBLISH)
        sent.ContentType = "text/plain"
        sent.ResponseTopic = "answers"
        sent.CorrelationData = b"7"
        sent.UserProperty = [("color", "red"), ("svc-tag", "a")]
        client.client.publish(self.topic, b"x", 1, properties=sent)
        got = client.next("message").properties
        self.assertEqual(got.ContentType, "text/plain")
        self.assertEqual(got.ResponseTopic, "answers")
        self.assertEqual(got.CorrelationData, b"7")
        self.assertEqual(got.UserProperty[:2], [("color", "red"), ("svc-tag", "a")])
        self.assertEqual(got.UserProperty[2][0], "svc-eventId")
        client.leave()

    def test_sessionCatchesUp(self) -> None:
        """A session gets what was published while its client was away."""
        clientId = uuid4().hex
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 300
        client = Paho(self, MQTTProtocolVersion.MQTTv5, clientId)
        flags, _ = client.connect(clean_start=True, properties=expiry)
        self.assertFalse(flags.session_present)
        client.client.subscribe(self.topic, 1)
        client.next("subscribe")
        client.leave()
        publisher = Paho(self, MQTTProtocolVersion.MQTTv311, uuid4().hex)
        publisher.connect()
        for number in range(3):
            publisher.client.publish(self.topic, str(number), 1)
            publisher.next("publish")
        publisher.leave()
        client = Paho(self, MQTTProtocolVersion.MQTTv5, clientId)
        flags, _ = client.connect(clean_start=False, properties=expiry)
        self.assertTrue(flags.session_present)
        self.assertEqual([client.next("message").payload for _ in range(3)], [b"0", b"1", b"2"])
        client.leave()

    def test_webSocketWorks(self) -> None:
        """The same over WebSocket."""
        self.host, self.port = self.daemon.http
        client = Paho(self, MQTTProtocolVersion.MQTTv5, uuid4().hex, transport="websockets")
        client.client.ws_set_options(path="/svcbroker/mqtt")
        client.connect()
        client.client.subscribe(self.topic, 1)
        client.next("subscribe")
        client.client.publish(self.topic, bytes(100_000), 1)
        self.assertEqual(client.next("message").payload, bytes(100_000))
        client.leave()


class MosquittoTests(ClientTestCase):
    """
    mosquitto_pub and mosquitto_sub.
    """

    def setUp(self) -> None:
        neededProgram("mosquitto_pub")
        super().setUp()

    def run_(self, program: str, *arguments: str) -> str:
        """What a program prints."""
        done = subprocess.run(
            [program, "-h", self.host, "-p", str(self.port), "-t", self.topic, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_retainedArrives(self) -> None:
        """What one publishes retained, the other gets, in each version and with each QoS."""
        for version in ("311", "5"):
            for qos in "012":
                self.run_("mosquitto_pub", "-V", version, "-q", qos, "-r", "-m", f"m{qos}")
                got = self.run_(
                    "mosquitto_sub",
                    "-V",
                    version,
                    "-q",
                    "2",
                    "-C",
                    "1",
                    "-W",
                    "50",
                    "-F",
                    "%q %r %p",
                )
                self.assertEqual(got, f"{qos} 1 m{qos}\n")

    def test_offsetReadsThePast(self) -> None:
        """A user property asks for the past of a topic."""
        for number in range(3):
            self.run_("mosquitto_pub", "-q", "1", "-m", str(number))
        got = self.run_(
            *("mosquitto_sub", "-V", "5", "-C", "3", "-W", "50"),
            *("-D", "subscribe", "user-property", "svc-offset", "OFFSET_FIRST"),
        )
        self.assertEqual(got, "0\n1\n2\n")

    def test_ageClosesAndOpensEvents(self) -> None:
        """
        What C{age -r} has closed and this client has published, our clients open; of what ours have
        closed this client gets the bytes, with the extension, and C{age -d} opens them.
        """
        needPackage("pyrage", "encryption")
        age = neededProgram("age")
        path = Path(self.mktemp())
        path.write_text(SECRET + "\n")
        made = subprocess.run(
            [age, "-r", RECIPIENT], input=b"closed by age", capture_output=True, check=True
        ).stdout
        path.with_suffix(".age").write_bytes(made)
        self.run_(
            *("mosquitto_pub", "-V", "5", "-q", "1", "-f", str(path.with_suffix(".age"))),
            *("-D", "publish", "user-property", "svc-encrypted", "age"),
        )
        host, port = self.daemon.http
        url = f"http://{host}:{port}/svcbroker"
        with Client(url, identities=path, recipients=[RECIPIENT]) as client:
            [event] = client.events(self.topic)
            self.assertEqual((type(event), event.content), (OpenedEvent, b"closed by age"))
            client.publish(self.topic, b"closed by us")
        got = self.run_(
            *("mosquitto_sub", "-V", "5", "-C", "2", "-W", "50", "-F", "%P %x"),
            *("-D", "subscribe", "user-property", "svc-offset", "OFFSET_FIRST"),
        )
        first, second = got.splitlines()
        self.assertEqual(bytes.fromhex(first.split()[-1]), made)
        self.assertIn("svc-encrypted:age", second)
        plain = subprocess.run(
            [age, "-d", "-i", str(path)],
            input=bytes.fromhex(second.split()[-1]),
            capture_output=True,
            check=True,
        ).stdout
        self.assertEqual(plain.rstrip(b" "), b"closed by us\n")

    def test_refusalIsTold(self) -> None:
        """A publish that cannot be is told by its reason code."""
        done = subprocess.run(
            [
                *("mosquitto_pub", "-h", self.host, "-p", str(self.port)),
                *("-V", "5", "-q", "1", "-t", "x" * 300, "-m", "x"),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self.assertIn("Topic Name invalid", done.stdout + done.stderr)


class MqttJsTests(ClientTestCase):
    """
    mqtt.js on Node.
    """

    def setUp(self) -> None:
        super().setUp()
        self.modules = nodeModules("mqtt")

    def check(self, url: str) -> None:
        """Publish and subscribe in both versions."""
        script = Path(__file__).with_name("mqtt_js.cjs")
        for version in ("4", "5"):
            done = subprocess.run(
                ["node", str(script), url, version, self.topic],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
                env={**os.environ, "NODE_PATH": self.modules},
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            messages = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual(
                [each["payload"] for each in messages], [f"from js {n}" for n in range(3)]
            )
            self.assertEqual([each["qos"] for each in messages], [0, 1, 2])
            if version == "5":
                self.assertEqual({each["contentType"] for each in messages}, {"text/plain"})
                self.assertTrue(all(each["eventId"] for each in messages))

    def test_tcpWorks(self) -> None:
        """Over TCP."""
        self.check(f"mqtt://{self.host}:{self.port}")

    def test_webSocketWorks(self) -> None:
        """Over WebSocket."""
        host, port = self.daemon.http
        self.check(f"ws://{host}:{port}/svcbroker/mqtt")
