"""
paho-mqtt and stomp.py with certificates of their own. What curl and mosquitto do with theirs is in
C{tests.functional.test_certificates}.

Each test is skipped where its client is not installed.
"""

from __future__ import annotations

import contextlib
from typing import Any

from twisted.internet.threads import deferToThread

from tests.functional.daemon import LOCAL
from tests.functional.test_certificates import CertificatesTestCase, Made
from tests.needed import needPackage

from .test_mqtt_clients import Paho
from .test_stomp import sendOverTLS

with contextlib.suppress(ImportError):
    from paho.mqtt.enums import MQTTProtocolVersion


class MutualTLSTests(CertificatesTestCase):
    """
    A daemon that refuses clients without a certificate.
    """

    host = "localhost"

    async def serve(self, name: str) -> Made:
        """Start it, with one port on C{mtls:}."""
        made = await self.make()
        daemon = await self.start(f"--{name}={made.endpoint(require='yes')}", http=LOCAL)
        self.assertIs(await daemon.call("/rest/open", topic="tls/one"), True)
        self.port = int(await self.portOf(daemon, name.upper()))
        self.certificate, self.key = made.identity("", "")[1::2]
        self.authority = str(made.root / "ca.pem")
        return made

    async def test_pahoPublishes(self) -> None:
        needPackage("paho", "interop")
        await self.serve("mqtt")
        await deferToThread(self.withPaho)

    def withPaho(self) -> None:
        """Publish to itself, with version 5; paho's calls are waited for."""
        test: Any = self
        client = Paho(test, MQTTProtocolVersion.MQTTv5, "paho")
        client.client.tls_set(self.authority, self.certificate, self.key)
        _, reason = client.connect()
        self.assertFalse(reason.is_failure)
        client.client.subscribe("tls/one", 1)
        client.next("subscribe")
        client.client.publish("tls/one", b"over mtls", 1)
        self.assertEqual(client.next("message").payload, b"over mtls")
        client.leave()
        without = Paho(test, MQTTProtocolVersion.MQTTv5, "without")
        without.client.tls_set(self.authority)
        # With TLS 1.3 the client has sent CONNECT by the time that it is refused.
        without.client.connect(self.host, self.port)
        without.client.loop_start()
        self.assertTrue(without.next("disconnect").is_failure)

    async def test_stompPySends(self) -> None:
        needPackage("stomp", "interop")
        await self.serve("stomp")
        files = {"ca_certs": self.authority, "cert_file": self.certificate, "key_file": self.key}
        address = self.host, self.port
        body = await deferToThread(sendOverTLS, address, "tls/one", b"over mtls", **files)
        self.assertEqual(body, b"over mtls")
