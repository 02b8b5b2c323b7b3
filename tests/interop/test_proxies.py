"""
nginx and HAProxy in front of the daemon, with the configurations of C{docs/tls.rst}: only
addresses and paths are others here. Behind them, clients of others: httpx, paho-mqtt, stomp.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import subprocess
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from twisted.internet.threads import deferToThread

from svcbroker.access import hashPassword
from tests.carriers.http.accounts import basic
from tests.functional.daemon import LOCAL, Daemon
from tests.functional.test_certificates import CertificatesTestCase
from tests.needed import neededProgram, needPackage
from tests.waiting import TIMEOUT

from .test_mqtt_clients import Paho
from .test_stomp import sendToItself

with contextlib.suppress(ImportError):
    import httpx
    import httpx_sse
    import stomp
    from paho.mqtt.enums import MQTTProtocolVersion

PAGE = Path(__file__).parents[2] / "docs" / "tls.rst"
SECTION = ".. _reverse-proxy:"
NAME = "events.example.com"
LOGIN = ("me", "secret")
CLIENT = "127.0.0.9"
"""The address that clients connect from."""
PROXIED = "haproxy:tcp:0:interface=127.0.0.1"


def onPage(language: str) -> list[str]:
    """The blocks of the section in a language."""
    text = PAGE.read_text().partition(SECTION)[2]
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?: +\S.*\n|\n)+)", text)
    return [dedent(each) for each in found]


def replaced(text: str, others: Mapping[str, object]) -> str:
    """A configuration with other addresses and paths."""
    for old, new in others.items():
        if old not in text:
            raise AssertionError(f"the page does not have {old} any more: {text}")
        text = text.replace(old, str(new))
    return text


class ProxyTestCase(CertificatesTestCase):
    """
    A proxy and a daemon.

    @ivar at: the proxy's ports: C{https}, C{mqtts} and C{stomps}.
    @ivar identity: the files of the certificate and the key of MQTT's and STOMP's clients.
    """

    host = "127.0.0.1"
    """For L{Paho}, with C{port}."""

    identity: tuple[str | None, str | None] = (None, None)

    def setUp(self) -> None:
        for each in ("httpx_sse", "paho", "stomp"):
            needPackage(each, "interop")
        super().setUp()

    async def serve(self, *arguments: str, http: str = LOCAL, others: str = LOCAL) -> Daemon:
        """Make the certificates, and start the daemon."""
        self.made = await self.make("certificates", "--host=127.0.0.1", f"--host={NAME}")
        self.authority = str(self.made.root / "ca.pem")
        return await self.start(f"--mqtt={others}", f"--stomp={others}", *arguments, http=http)

    async def portsOf(self, daemon: Daemon) -> list[str]:
        """Where the daemon serves HTTP, MQTT and STOMP, as the proxy is told."""
        return [
            f"127.0.0.1:{await self.portOf(daemon, name)}" for name in ("HTTP", "MQTT", "STOMP")
        ]

    def accounts(self) -> Path:
        """The file of accounts, with one that may do everything."""
        path = self.root / "accounts.toml"
        name, password = LOGIN
        digest = hashPassword(password.encode())
        path.write_text(f'[accounts.{name}]\npassword = "{digest}"\nroles = ["everything"]\n')
        path.chmod(0o600)
        return path

    def listen(self) -> list[int]:
        """
        Listen where the proxy will: it is given the sockets, so that nothing else takes the ports,
        and its clients need not wait for it.

        @return: the descriptors.
        """
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = (each.getsockname()[1] for each in self.sockets)
        self.at = dict(zip(("https", "mqtts", "stomps"), ports, strict=True))
        return [each.fileno() for each in self.sockets]

    def runProxy(self, configuration: str, *command: str, **environment: str) -> None:
        """
        Start the proxy.

        @param command: its program and options; the path of the configuration follows.
        """
        path, log = self.root / "proxy.conf", self.root / "proxy.log"
        path.write_text(configuration)
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [*command, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=[each.fileno() for each in self.sockets],
                env={**os.environ, **environment},
            )
        for each in self.sockets:
            each.close()

        def stop() -> None:
            hasEnded = process.poll() is not None
            process.terminate()
            process.wait(TIMEOUT)
            self.assertFalse(hasEnded, log.read_text())

        self.addCleanup(stop)

    def web(self) -> Any:
        """A client of HTTP."""
        context = ssl.create_default_context(cafile=self.authority)
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.at['https']}/svcbroker/",
            transport=httpx.HTTPTransport(verify=context, local_address=CLIENT),
            headers={"Host": NAME},
            auth=LOGIN,
            timeout=TIMEOUT,
        )

    def events(self, web: Any, stack: contextlib.ExitStack, last: str = "", **query: str) -> Any:
        """The events of a stream."""
        headers = {"Last-Event-ID": last} if last else {}
        connected = httpx_sse.connect_sse(web, "GET", "rest/follow", params=query, headers=headers)
        source = stack.enter_context(connected)
        return (each for each in source.iter_sse() if each.event == "event")

    def useHttp(self) -> None:
        """Publish, read, follow and resume. What nobody may is refused."""
        with self.web() as web, contextlib.ExitStack() as stack:

            def call(name: str, **parameters: str) -> Any:
                return web.post(f"rest/{name}", data=parameters).raise_for_status().json()

            self.assertEqual(web.get("rest/exist?topic=t", auth=None).status_code, 401)
            self.assertEqual(web.get("admin/operator/settings").status_code, 403)
            self.assertIs(call("open", topic="t"), True)
            large = "x" * 1_000_000
            ids = [call("publish", topic="t", content=each)["eventId"] for each in ("0", large)]
            found = call("getEvent", eventId=ids[1])
            self.assertEqual(b64decode(found["content"]).decode(), large)
            events = self.events(web, stack, topic="t", **{"from": "OFFSET_FIRST"})
            self.assertEqual([next(events).id for _ in ids], ids)
            # A proxy that collects what it passes on would keep this one.
            ids.append(call("publish", topic="t", content="2")["eventId"])
            self.assertEqual(next(events).id, ids[2])
            resumed = self.events(web, stack, ids[0], topic="t")
            self.assertEqual([next(resumed).id for _ in ids[1:]], ids[1:])

    def useMqtt(self, isWebSocket: bool) -> None:
        """Publish and subscribe with each QoS, and come back for what came meanwhile."""
        topic = "web" if isWebSocket else "tcp"
        self.port = self.at["https" if isWebSocket else "mqtts"]

        def connect(name: str, isPresent: bool = False) -> Paho:
            test: Any = self
            version, clientId = MQTTProtocolVersion.MQTTv311, f"{topic}-{name}"
            transport = "websockets" if isWebSocket else "tcp"
            paho = Paho(test, version, clientId, clean_session=False, transport=transport)
            paho.client.username_pw_set(*LOGIN)
            if isWebSocket:
                paho.client.tls_set(self.authority)
                paho.client.ws_set_options("/svcbroker/mqtt", basic(*LOGIN))
            else:
                paho.client.tls_set(self.authority, *self.identity)
            flags, reason = paho.connect(bind_address=CLIENT)
            self.assertEqual((str(reason), flags.session_present), ("Success", isPresent))
            return paho

        reader = connect("reader")
        reader.client.subscribe(f"{topic}/+", 2)
        reader.next("subscribe")
        for qos in range(3):
            reader.client.publish(f"{topic}/{qos}", b"%d" % qos, qos)
        for qos in range(3):
            message = reader.next("message")
            self.assertEqual((message.payload, message.qos), (b"%d" % qos, qos))
        reader.leave()
        writer = connect("writer")
        writer.client.publish(f"{topic}/later", b"later", 1)
        writer.next("publish")
        writer.leave()
        reader = connect("reader", isPresent=True)
        self.assertEqual(reader.next("message").payload, b"later")
        reader.leave()

    def useStomp(self, isWebSocket: bool) -> None:
        """Send to a subscription."""
        topic = "stomp/web" if isWebSocket else "stomp/tcp"
        with self.web() as web:
            self.assertIs(web.get("rest/open", params={"topic": topic}).json(), True)
        address = ("127.0.0.1", self.at["https" if isWebSocket else "stomps"])
        if isWebSocket:
            connection = stomp.WSStompConnection(
                [address], auto_decode=False, ws_path="/svcbroker/stomp", header=basic(*LOGIN)
            )
            connection.set_ssl([address], ca_certs=self.authority)
        else:
            connection = stomp.StompConnection12(
                [address], auto_decode=False, bind_host_port=(CLIENT, 0)
            )
            certificate, key = self.identity
            connection.set_ssl(
                [address], ca_certs=self.authority, cert_file=certificate, key_file=key
            )
        self.assertEqual(sendToItself(connection, topic, b"content", *LOGIN), b"content")

    def useOverTCP(self) -> None:
        """MQTT and STOMP without HTTP."""
        self.useMqtt(isWebSocket=False)
        self.useStomp(isWebSocket=False)

    def useOverWebSocket(self) -> None:
        """MQTT and STOMP on HTTP's port."""
        self.useMqtt(isWebSocket=True)
        self.useStomp(isWebSocket=True)

    def findLogins(self, *carriers: str) -> None:
        """The audit trail has the clients' address, of log-ins over these carriers."""
        left = set(carriers)
        with self.web() as web, contextlib.ExitStack() as stack:
            query = {"topic": "$svc/audit", "from": "OFFSET_FIRST"}
            events = self.events(web, stack, **query)
            while left:
                record = json.loads(b64decode(json.loads(next(events).data)["content"]))
                if record.get("carrier") in carriers:
                    self.assertEqual((record["address"], record["outcome"]), (CLIENT, "success"))
                    left.discard(record["carrier"])


class NginxTests(ProxyTestCase):
    """nginx, which asks for a password over HTTP, and for a certificate over TCP."""

    async def proxy(self, *arguments: str, others: str = LOCAL, more: str = "") -> None:
        """
        Start both.

        @param others: where the daemon serves MQTT and STOMP.
        @param more: what the servers of MQTT and STOMP do besides.
        """
        program = neededProgram("nginx")
        daemon = await self.serve(f"--host-name={NAME}", *arguments, others=others)
        http, mqtt, stomps = await self.portsOf(daemon)
        self.identity = (
            str(self.made.root / "clients" / "client" / "cert.pem"),
            str(self.made.root / "clients" / "client" / "key.pem"),
        )
        users = self.root / "users"
        users.write_text("{}:{{PLAIN}}{}\n".format(*LOGIN))
        sockets = ";".join(map(str, self.listen()))
        web, stream = onPage("nginx")
        server = stream[stream.index("{") + 1 : stream.rindex("}")]
        server = replaced(server, {"proxy_timeout 1h;": f"proxy_timeout 1h;{more}"})
        toMqtt, toStomp = (
            replaced(
                server,
                {"listen 8883": f"listen 127.0.0.1:{self.at[name]}", "127.0.0.1:1883": address},
            )
            for name, address in (("mqtts", mqtt), ("stomps", stomps))
        )
        web = replaced(
            web,
            {
                "listen 443": f"listen 127.0.0.1:{self.at['https']}",
                "127.0.0.1:8080": http,
                "/etc/nginx/svcbroker.users": users,
            },
        )
        files = f"/etc/letsencrypt/live/{NAME}"
        configuration = replaced(
            f"http {{ access_log off; {web} }}\nstream {{ {toMqtt} {toStomp} }}\n",
            {
                f"{files}/fullchain.pem": self.made.root / "server" / "cert.pem",
                f"{files}/privkey.pem": self.made.root / "server" / "key.pem",
                "/etc/nginx/clients-ca.pem": self.authority,
            },
        )
        first = (
            f"daemon off; pid {self.root}/nginx.pid; error_log stderr;\n"
            # Debian's module for streams.
            "include /etc/nginx/modules-enabled/*.conf; events {}\n"
            # Where it is started by root it drops its rights, and could not read the files.
            + ("user root;\n" if os.getuid() == 0 else "")
        )
        self.runProxy(first + configuration, program, "-e", "stderr", "-c", NGINX=f"{sockets};")

    async def test_httpAndEventStreamsPass(self) -> None:
        await self.proxy()
        await deferToThread(self.useHttp)

    async def test_mqttAndStompPassOverWebSocket(self) -> None:
        await self.proxy()
        await deferToThread(self.useOverWebSocket)

    async def test_mqttAndStompPassOverTCP(self) -> None:
        await self.proxy()
        await deferToThread(self.useOverTCP)

    async def test_proxyHeaderNamesClients(self) -> None:
        options = [f"--accounts={self.accounts()}"]
        await self.proxy(*options, others=PROXIED, more=" proxy_protocol on;")
        await deferToThread(self.useOverTCP)
        await deferToThread(self.findLogins, "mqtt", "stomp")


class HAProxyTests(ProxyTestCase):
    """HAProxy, which tells the daemon its clients' addresses on each port."""

    async def proxy(self) -> None:
        """Start both."""
        program = neededProgram("haproxy")
        (text,) = onPage("toml")
        text = replaced(
            text, {"8080": 0, "1883": 0, "/etc/svcbroker/accounts.toml": self.accounts()}
        )
        settings = tomllib.loads(text)
        (name,) = settings["host-name"]
        daemon = await self.serve(
            f"--host-name={name}",
            f"--accounts={settings['accounts']}",
            f"--mqtt={settings['mqtt']}",
            http=settings["http"],
            others=PROXIED,
        )
        http, mqtt, stomps = await self.portsOf(daemon)
        server = self.made.root / "server"
        pem = self.root / "server.pem"
        pem.write_text((server / "cert.pem").read_text() + (server / "key.pem").read_text())
        sockets = self.listen()
        (text,) = onPage("text")
        start = text.index("frontend mqtts")
        web, stream = text[:start], text[start:]
        toMqtt, toStomp = (
            replaced(stream, {":8883": f"fd@{descriptor}", "127.0.0.1:1883": address, "mqtt": each})
            for each, descriptor, address in (
                ("mqtt", sockets[1], mqtt),
                ("stomp", sockets[2], stomps),
            )
        )
        web = replaced(web, {":443": f"fd@{sockets[0]}", "127.0.0.1:8080": http})
        configuration = replaced(
            # By default there is room for as many as the system has descriptors.
            f"global\n   maxconn 100\n{web}{toMqtt}{toStomp}",
            {f"/etc/haproxy/{NAME}.pem": pem},
        )
        self.runProxy(configuration, program, "-db", "-f")

    async def test_httpAndEventStreamsPass(self) -> None:
        await self.proxy()
        await deferToThread(self.useHttp)

    async def test_mqttAndStompPassOverWebSocket(self) -> None:
        await self.proxy()
        await deferToThread(self.useOverWebSocket)

    async def test_mqttAndStompPassOverTCP(self) -> None:
        await self.proxy()
        await deferToThread(self.useOverTCP)
        await deferToThread(self.findLogins, "http", "mqtt", "stomp")
