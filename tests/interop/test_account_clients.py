"""
Clients of other makes with right and wrong credentials, over TLS: mosquitto, paho-mqtt, stomp.py,
@stomp/stompjs and mqtt.js. What curl does is in C{tests.functional.test_http_accounts}.

Each test is skipped where its client is not installed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.internet.utils import getProcessOutputAndValue

from svcbroker.access import hashPassword
from tests.functional.daemon import reactor
from tests.functional.test_certificates import CertificatesTestCase, Made
from tests.needed import neededProgram, needPackage

from .node import nodeModules
from .test_mqtt_clients import Paho
from .test_stomp import Frames

with contextlib.suppress(ImportError):
    import stomp

with contextlib.suppress(ImportError):
    from paho.mqtt.enums import MQTTProtocolVersion

SCRIPT = Path(__file__).with_name("accounts.js")
OWN, OTHERS = "own/ann", "own/bob"


class AccountClientTests(CertificatesTestCase):
    """
    The account C{ann} has a password and may publish to and read C{own/ann}; the account C{client}
    is the one of the certificate.
    """

    host = "localhost"

    async def serve(self, name: str) -> Made:
        """A daemon with these accounts, and one port on C{mtls:}."""
        made = await self.make()
        accounts = self.root / "accounts.toml"
        accounts.write_text(
            f"""
            [accounts.ann]
            password = "{hashPassword(b"secret")}"
            roles = ["own"]
            [accounts.client]
            certificate = "client"
            roles = ["own"]
            [roles.own]
            grants = ["publish 1 own/%u", "open 1 own/%u", "subscribe 1 own/%u"]
            """
        )
        option = f"--{name}={made.endpoint()}"
        self.daemon = await self.start(
            "--accounts",
            str(accounts),
            *([] if name == "http" else [option]),
            **({"http": made.endpoint()} if name == "http" else {}),
        )
        self.port = int(await self.portOf(self.daemon, name.upper()))
        self.authority = str(made.root / "ca.pem")
        return made

    async def test_mosquittoLogsIn(self) -> None:
        made = await self.serve("mqtt")
        to = ("-h", "localhost", "-p", str(self.port), "--cafile", self.authority, "-q", "1")
        right, wrong = ["-u", "ann", "-P", "secret"], ["-u", "ann", "-P", "wrong"]
        own = made.identity("--cert", "--key")
        for version in ("mqttv311", "mqttv5"):
            for name, credentials in (("ann", right), ("client", own)):
                send = (*to, *credentials, "-V", version, "-t", f"own/{name}", "-m", version, "-r")
                code, output = await self.runCommand("mosquitto_pub", *send)
                self.assertEqual((code, output), (0, ""))
                take = (*to, *credentials, "-V", version, "-t", "#", "-C", "1", "-W", "30")
                code, output = await self.runCommand("mosquitto_sub", *take)
                self.assertEqual((code, output), (0, f"{version}\n"))
            for credentials in (wrong, []):
                send = (*to, *credentials, "-V", version, "-t", OWN, "-m", "x")
                code, output = await self.runCommand("mosquitto_pub", *send)
                self.assertNotEqual(code, 0)
                self.assertRegex(output, "(?i)not authori|bad user")
        send = (*to, *right, "-V", "mqttv5", "-t", OTHERS, "-m", "x")
        _, output = await self.runCommand("mosquitto_pub", *send)
        self.assertIn("Not authorized", output)

    async def test_pahoIsToldTheReasons(self) -> None:
        needPackage("paho", "interop")
        await self.serve("mqtt")
        await deferToThread(self.withPaho)

    def withPaho(self) -> None:
        """With version 5, which has reason codes; paho's calls are waited for."""
        test: Any = self
        for name, password, expected in (
            ("ann", "wrong", "Bad user name or password"),
            (None, None, "Not authorized"),
            ("ann", "secret", "Success"),
        ):
            client = Paho(test, MQTTProtocolVersion.MQTTv5, "paho")
            client.client.tls_set(self.authority)
            client.client.username_pw_set(name, password)
            _, reason = client.connect()
            self.assertEqual(str(reason), expected)
            if reason.is_failure:
                client.client.loop_stop()
        for topic, subscribed, published in (
            (OWN, "Granted QoS 1", "Success"),
            (OTHERS, "Not authorized", "Not authorized"),
        ):
            client.client.subscribe(topic, 1)
            self.assertEqual([str(each) for each in client.next("subscribe")], [subscribed])
            client.client.publish(topic, b"x", 1)
            self.assertEqual(str(client.next("publish")), published)
        client.leave()

    async def test_stompPyLogsIn(self) -> None:
        needPackage("stomp", "interop")
        await self.serve("stomp")
        await deferToThread(self.withStompPy)

    def withStompPy(self) -> None:
        """Send to its own topic and to another one; stomp.py does it in threads."""
        address = self.host, self.port
        for password, error in (("wrong", "not authenticated"), ("secret", "")):
            connection = stomp.StompConnection12([address], auto_decode=False)
            connection.set_ssl([address], ca_certs=self.authority)
            frames = Frames()
            connection.set_listener("", frames)
            # Else its thread reads the closed socket until the tests end, without a pause.
            self.addCleanup(connection.transport.disconnect_socket)
            connection.connect("ann", password, wait=not error, with_connect_command=True)
            if error:
                self.assertEqual(frames.next("ERROR")[0]["message"], error)
        connection.send(OWN, b"x", headers={"receipt": "1"})
        headers, _ = frames.next("ERROR")
        # Over STOMP publishing opens no topics.
        self.assertEqual((headers["code"], headers["receipt-id"]), ("100101", "1"))

    async def test_stompjsLogsIn(self) -> None:
        await self.withNode("stomp", "@stomp/stompjs", "ws")

    async def test_mqttJsLogsIn(self) -> None:
        await self.withNode("mqtt", "mqtt")

    async def withNode(self, protocol: str, *packages: str) -> None:
        """Log in over C{wss}."""
        modules = nodeModules(*packages)
        await self.serve("http")
        url = f"wss://localhost:{self.port}/svcbroker/{protocol}"
        base = f"https://localhost:{self.port}/svcbroker"
        code, said = await self.runCommand(
            *("curl", "-sS", "--cacert", self.authority, "-u", "ann:secret"),
            f"{base}/rest/open?topic={OWN}",
        )
        self.assertEqual((code, said), (0, "true"))
        cases: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("secret", OWN, {"body": "x"}),
            ("wrong", OWN, {"stomp": "101015", "mqtt": 134}),
            ("secret", OTHERS, {"stomp": "101016", "mqtt": "Subscribe error: Not authorized"}),
        )
        for password, topic, expected in cases:
            output, errors, code = await getProcessOutputAndValue(
                neededProgram("node"),
                [str(SCRIPT), modules, protocol, url, "ann", password, topic],
                env={**os.environ, "NODE_EXTRA_CA_CERTS": self.authority},
                reactor=reactor,
            )
            self.assertEqual(code, 0, errors)
            found = json.loads(output)
            if "body" in expected:
                self.assertEqual(found, expected)
            else:
                self.assertEqual(found["error"]["code"], expected[protocol])
