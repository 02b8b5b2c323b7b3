"""
The programs in C{examples/} against the real daemon: publish, follow from the first event, resume
after the daemon was killed, receive signed webhooks, and bridge a mosquitto.

A test is skipped where the tools of its example are not installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import treq
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from tests.functional.daemon import LOCAL, TIMEOUT, Daemon, DaemonProtocol, DaemonTestCase, reactor
from tests.needed import neededProgram, needPackage

from .node import nodeModules

EXAMPLES = Path(__file__).parents[2] / "examples"
BUILD_TIME = 600.0
SECRET = "a secret of at least sixteen bytes"


class ExampleTests(DaemonTestCase):
    """
    Each example, run as examples/README.md says.
    """

    timeout = BUILD_TIME

    async def serve(self, *arguments: str) -> None:
        """Start a daemon, or start it again on the same data and ports."""
        mqtt = getattr(self, "mqtt", None)
        endpoint = LOCAL if mqtt is None else f"tcp:{mqtt}:interface=127.0.0.1"
        http = getattr(self, "http", LOCAL)
        self.daemon: Daemon = await self.start(
            f"--mqtt={endpoint}", *arguments, ledger="pbft:nodes=4", http=http
        )
        found = await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)")
        self.mqtt = int(found[1])
        port = self.daemon.base.split(":")[2].split("/")[0]
        self.http = f"tcp:{port}:interface=127.0.0.1"

    async def call(
        self,
        command: Sequence[str],
        lines: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Run an example to its end, and give the lines that it printed."""
        done = await self.end(command, lines, environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        printed: list[str] = done.stdout.splitlines()
        return printed

    async def end(
        self,
        command: Sequence[str],
        lines: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run an example to its end, be it good or not."""
        return await deferToThread(
            subprocess.run,
            command,
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            cwd=self.root,
            env={**os.environ, **(environment or {})},
        )

    async def publishAndFollow(
        self,
        publish: Sequence[str],
        follow: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Publish, follow from the first event, kill the daemon, publish more, and go on. An event
        that is refused is not told as published.

        @param publish: the command that publishes, but for the topic.
        @param follow: the command that follows, but for the pattern, the file and the count.
        """
        state = str(self.root / "state")
        following = [*follow, "orders/#", state, "3"]
        printed = await self.call([*publish, "orders/new"], ["one", "two", "three"], environment)
        self.assertEqual(printed, ["OK one", "OK two", "OK three"])
        first = await self.call(following, environment=environment)
        await self.daemon.stop(signal.SIGKILL)
        await self.serve()
        await self.call([*publish, "orders/more"], ["four", "five", "six"], environment)
        second = await self.call(following, environment=environment)
        self.assertEqual(
            [line.split()[1:] for line in first + second],
            [["orders/new", each] for each in ("one", "two", "three")]
            + [["orders/more", each] for each in ("four", "five", "six")],
        )
        self.assertEqual(len({line.split()[0] for line in first + second}), 6)
        await self.daemon.stop()
        await self.serve("--no-mqtt-open-topics")
        refused = await self.end([*publish, "absent"], ["seven"], environment)
        self.assertNotIn("OK", refused.stdout)
        self.assertNotEqual(refused.returncode, 0)

    async def test_pythonPublishesAndFollows(self) -> None:
        """With paho-mqtt."""
        needPackage("paho", "interop")
        await self.serve()
        address = f"127.0.0.1:{self.mqtt}"
        publish, follow = (
            [sys.executable, str(EXAMPLES / "python" / name), address]
            for name in ("publish.py", "follow.py")
        )
        await self.publishAndFollow(publish, follow)

    async def test_javaScriptPublishesAndFollows(self) -> None:
        """With mqtt.js over WebSocket, the module that the page uses."""
        modules = nodeModules("mqtt")
        await self.serve()
        main = str(EXAMPLES / "browser" / "main.mjs")
        url = self.daemon.base.replace("http", "ws", 1) + "/mqtt"
        await self.publishAndFollow(
            [neededProgram("node"), main, "publish", url],
            [neededProgram("node"), main, "follow", url],
            {"NODE_PATH": modules},
        )

    async def test_goPublishesAndFollows(self) -> None:
        """With paho.golang."""
        program = str(self.root / "events")
        await deferToThread(
            subprocess.run,
            [neededProgram("go"), "build", "-o", program, "."],
            cwd=EXAMPLES / "go",
            check=True,
            timeout=BUILD_TIME,
        )
        await self.serve()
        address = f"127.0.0.1:{self.mqtt}"
        await self.publishAndFollow([program, "publish", address], [program, "follow", address])

    async def test_javaPublishesAndFollows(self) -> None:
        """With the Java client of Eclipse Paho."""
        project = self.root / "java"
        shutil.copytree(EXAMPLES / "java", project, ignore=shutil.ignore_patterns("target"))
        neededProgram("javac")
        await deferToThread(
            subprocess.run,
            [neededProgram("mvn"), "-q", "-B", "package"],
            cwd=project,
            check=True,
            timeout=BUILD_TIME,
        )
        await self.serve()
        java = [neededProgram("java"), "-cp", f"{project}/target/events.jar:{project}/target/lib/*"]
        url = f"tcp://127.0.0.1:{self.mqtt}"
        await self.publishAndFollow(
            [*java, "example.Events", "publish", url], [*java, "example.Events", "follow", url]
        )

    async def startHelper(self, *command: str) -> DaemonProtocol:
        """Start a program that runs until the test ends."""
        protocol = DaemonProtocol()
        process = reactor.spawnProcess(
            protocol, command[0], command, env=dict(os.environ), path=str(self.root)
        )

        def end() -> Deferred[int]:
            if not protocol.ended.called:
                process.signalProcess(signal.SIGKILL)
            return protocol.ended

        self.addCleanup(end)
        return protocol

    async def test_receiverTakesSignedEventsOnly(self) -> None:
        """The receiver prints what the broker has signed, and refuses a forged request."""
        secret = self.root / "secret"
        secret.write_text(SECRET.replace(" ", "-") + "\n")
        program = str(EXAMPLES / "python" / "receiver.py")
        receiver = await self.startHelper(sys.executable, program, "0", str(secret))
        port = (await receiver.waitFor(r"listening on (\d+)"))[1]
        await self.serve(f"--webhook-secret-file={secret}", "--webhook-allow=127.0.0.1")
        url = f"http://127.0.0.1:{port}/"
        await self.daemon.call("/rest/open", topic="orders/new")
        await self.daemon.call("/rest/subscribe", topic="orders/#", url=url)
        await self.daemon.call("/rest/publish", topic="orders/new", content="tea")
        await receiver.waitFor(r"\S+ orders/new tea\n")
        forged = await treq.post(url, json={"event": {}}, timeout=TIMEOUT)
        self.assertEqual(forged.code, 401)
        await forged.content()

    async def test_mosquittoBridgeHandsOn(self) -> None:
        """What a bridged mosquitto is told below audit/ stands in the log."""
        mosquitto, pub = neededProgram("mosquitto"), neededProgram("mosquitto_pub")
        await self.serve()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        text = (EXAMPLES / "mosquitto" / "bridge.conf").read_text()
        configuration = self.root / "bridge.conf"
        configuration.write_text(
            text.replace("listener 1884", f"listener {port}").replace(":1883", f":{self.mqtt}")
        )
        configuration.chmod(0o644)
        # It logs to standard error.
        command = f"exec {mosquitto} -c {configuration} 2>&1"
        bridge = await self.startHelper("/bin/sh", "-c", command)
        await bridge.waitFor("running")
        await self.call([pub, "-p", str(port), "-q", "1", "-t", "audit/log", "-m", "signed in"])
        printed = await self.call(
            [
                *(neededProgram("mosquitto_sub"), "-V", "5", "-p", str(self.mqtt), "-t", "audit/#"),
                *("-D", "subscribe", "user-property", "svc-offset", "OFFSET_FIRST"),
                *("-C", "1", "-v"),
            ]
        )
        self.assertEqual(printed, ["audit/log signed in"])
