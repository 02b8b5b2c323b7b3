"""
Clients that log in by mosquitto's files, and by tokens, against the real daemon.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.access.authenticators.tokens import AUDIENCE, Key, keySet, someKey
from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import Daemon

NOT_AUTHENTICATED = 101015
NOT_AUTHORIZED = 101016

ACL = """
user ann
topic write in/#
pattern read users/%u/#
"""


class LoginTestCase(SynchronousTestCase):
    """
    A test of a daemon with an authenticator.
    """

    timeout = 300

    def setUp(self) -> None:
        self.curl, self.publisher = neededProgram("curl"), neededProgram("mosquitto_pub")
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    def serve(self, description: str) -> None:
        """Start a daemon with an authenticator."""
        self.daemon = Daemon(self.directory / "data", [f"--auth={description}"])
        self.addCleanup(self.daemon.stop)

    def reload(self, expected: str) -> None:
        """Have the daemon read its files again, and wait until it says what came of it."""
        seen = len(self.daemon.output)
        self.daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT
        while not any(expected in line for line in self.daemon.output[seen:]):
            self.assertLess(time.monotonic(), deadline, self.daemon.output[seen:])
            time.sleep(0.01)

    def publish(self, topic: str, *arguments: str) -> tuple[int, Any]:
        """Publish over HTTP: the status, and the answer."""
        host, port = self.daemon.http
        done = subprocess.run(
            [
                *(self.curl, "-sS", "--max-time", str(TIMEOUT), "-w", "\n%{http_code}", "-G"),
                *("-d", f"topic={topic}", "-d", "content=x", *arguments),
                f"http://{host}:{port}/svcbroker/rest/publish",
            ],
            capture_output=True,
            check=True,
            text=True,
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)

    def publishOverMqtt(self, topic: str, *arguments: str) -> tuple[int, str]:
        """Publish over MQTT 5 with QoS 1: the exit status, and what is said."""
        host, port = self.daemon.mqtt
        done = subprocess.run(
            [
                *(self.publisher, "-h", host, "-p", str(port), "-V", "5", "-q", "1"),
                *("-t", topic, "-m", "x", "-d", *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, "HOME": str(self.directory)},
        )
        return done.returncode, done.stdout + done.stderr


class MosquittoLoginTests(LoginTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.passwords, self.acl = self.directory / "passwords", self.directory / "acl"
        self.passwords.touch()
        tool = neededProgram("mosquitto_passwd")
        for name, hash in (("ann", "sha512"), ("bob", "sha512-pbkdf2")):
            command = [tool, "-H", hash, "-b", str(self.passwords), name, "secret"]
            subprocess.run(command, check=True, timeout=TIMEOUT, capture_output=True)
        self.acl.write_text(ACL)
        self.serve(f"mosquitto:passwords={self.passwords}:acl={self.acl}")

    def test_usersDoOverMqttWhatTheAclFileSays(self) -> None:
        code, said = self.publishOverMqtt("in/1", "-u", "ann", "-P", "secret")
        self.assertEqual(code, 0, said)
        self.assertIn("RC:0)", said)
        for name in ("ann", "bob"):
            _, said = self.publishOverMqtt("out", "-u", name, "-P", "secret")
            self.assertIn("RC:135", said)
        for credentials in (("-u", "ann", "-P", "wrong"), ("-u", "nosuch", "-P", "secret"), ()):
            code, said = self.publishOverMqtt("in/1", *credentials)
            self.assertNotEqual(code, 0)
            self.assertNotIn("RC:0)", said)

    def test_changedFilesCountAfterAReload(self) -> None:
        self.acl.write_text("user ann\ntopic reed out\n")
        self.reload("line 2: 'reed' is no access")
        _, said = self.publishOverMqtt("out", "-u", "ann", "-P", "secret")
        self.assertIn("RC:135", said)
        self.acl.write_text("user ann\ntopic write out\n")
        self.reload("were read again")
        _, said = self.publishOverMqtt("out", "-u", "ann", "-P", "secret")
        self.assertIn("RC:0)", said)

    def test_usersDoOverHttpWhatTheAclFileSays(self) -> None:
        status, _ = self.publish("in/1", "-u", "ann:secret")
        self.assertEqual(status, 200)
        status, answer = self.publish("out", "-u", "ann:secret")
        self.assertEqual((status, answer["code"]), (403, NOT_AUTHORIZED))
        status, answer = self.publish("in/1", "-u", "ann:wrong")
        self.assertEqual((status, answer["code"]), (401, NOT_AUTHENTICATED))


class KeyServer:
    """
    Serves a key set on loopback.

    @ivar body: the key set.
    """

    def __init__(self, test: SynchronousTestCase, body: bytes) -> None:
        self.body = body
        read = self._read

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = read()
                self.send_response(200)
                self.send_header("Content-Type", "application/jwk-set+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is logged."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}/keys"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        test.addCleanup(stop)

    def _read(self) -> bytes:
        return self.body


class TokenLoginTests(LoginTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.key = someKey("e", "ES256")
        self.keys = KeyServer(self, keySet(self.key))
        escaped = self.keys.url.replace(":", "\\:")
        self.serve(f"jwt:jwks={escaped}:audience={AUDIENCE}")

    def token(self, key: Key | None = None, **claims: Any) -> str:
        exp = int(time.time()) + 600
        grants = ["publish 1 in/%u", "open 1 in/%u"]
        return (key or self.key).sign(**{"exp": exp, "svcbroker_grants": grants, **claims})

    def bearer(self, topic: str, token: str) -> tuple[int, Any]:
        return self.publish(topic, "-H", f"Authorization: Bearer {token}")

    def test_bearersDoOverHttpWhatTheirTokensSay(self) -> None:
        status, _ = self.bearer("in/ann", self.token())
        self.assertEqual(status, 200)
        status, answer = self.bearer("in/bob", self.token())
        self.assertEqual((status, answer["code"]), (403, NOT_AUTHORIZED))
        other = Key("e", "ES256")
        for token in (
            self.token(exp=int(time.time()) - 1),
            self.token(aud="other"),
            self.token(nbf=int(time.time()) + 300),
            self.token(other),
        ):
            status, answer = self.bearer("in/ann", token)
            self.assertEqual((status, answer["code"]), (401, NOT_AUTHENTICATED))
        status, _ = self.publish("in/ann", "-u", f"ann:{self.token()}")
        self.assertEqual(status, 200)

    def test_tokensArePasswordsOverMqtt(self) -> None:
        token = self.token()
        code, said = self.publishOverMqtt("in/ann", "-u", "ann", "-P", token)
        self.assertEqual(code, 0, said)
        self.assertIn("RC:0)", said)
        # A group alone is no name.
        code, said = self.publishOverMqtt("in/ann", "-u", "1/", "-P", token)
        self.assertEqual(code, 0, said)
        code, said = self.publishOverMqtt("in/ann", "-u", "bob", "-P", token)
        self.assertNotEqual(code, 0, said)
        self.assertNotIn("RC:0)", said)
