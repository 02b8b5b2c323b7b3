"""
Tests for the clients as other programs use them: what they import, and their types.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker

ROOT = Path(svcbroker.__file__).parents[1]
LIGHT = ("httpx", "msgspec", "attrs")
"""What C{docs/client.rst} says that a program with a client needs."""

REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ImportError(f"{{name}} is not to be imported")

sys.meta_path.insert(0, Refuse())
"""
SERVER = {"twisted", "klein", "zope", "treq", "httptools", "OpenSSL", "werkzeug", "jwt", "tqdm"}

CONSUMER = """
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import assert_type

from twisted.internet.defer import Deferred

from svcbroker.client import AsyncClient, BrokerError, Client, Event, Publication, Published
from svcbroker.client.twisted import TwistedClient


def block(client: Client) -> int:
    assert_type(client.publish("a", b"x", {"svc-tag": "t"}, expectedSequence=3), Published)
    assert_type(client.publishMany([Publication("a", "x")]), list[Published | BrokerError])
    assert_type(client.follow("#", after=7), Generator[Event, None, None])
    for event in client.events("a/#", limit=5):
        assert_type(event.content, bytes)
    try:
        assert_type(client.open("a"), bool)
    except BrokerError as error:
        return error.code
    return client.state("a").sequenceNumber


async def wait(client: AsyncClient) -> str:
    assert_type(client.follow("#"), AsyncGenerator[Event, None])
    async with aclosing(client.follow("#", after="OFFSET_FIRST")) as events:
        async for event in events:
            return event.eventId
    assert_type(await client.genesis(), bytes)
    return (await client.publish("a", "x")).eventId


def twist(client: TwistedClient) -> Deferred[Published]:
    assert_type(client.exist("a"), Deferred[bool])
    return client.publish("a", b"x")


block(Client("http://127.0.0.1:8080/svcbroker", token="t", timeout=5.0, checkpointFile="kept"))
"""
MISTAKES = """
from svcbroker.client import Client

client = Client("http://127.0.0.1:8080/svcbroker", tokn="t")
client.publish("a", 5)
client.publish("a", b"x", expectedSeq=3)
client.state("a").sequence
"""


class ImportTests(SynchronousTestCase):
    """
    What a program with a client has to install.
    """

    def run_(self, refused: set[str], program: str) -> str:
        """What a program prints that may not import some packages."""
        script = REFUSE.format(refused=refused) + textwrap.dedent(program)
        return subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        ).stdout

    def test_clientsNeedNoServer(self) -> None:
        """The clients over httpx need no package of the server, and no reactor."""
        program = """
            from svcbroker.client import AsyncClient, Client
            with Client("http://127.0.0.1:9/svcbroker", timeout=0.0) as client:
                try:
                    client.publish("a", "x")
                except Exception as error:
                    print(type(error).__name__)
            print(sorted({name.partition(".")[0] for name in sys.modules} & {"cryptography"}))
        """
        self.assertEqual(self.run_({*SERVER, "cryptography"}, program), "Unreachable\n[]\n")

    def test_verifyingAndSigningNeedCryptography(self) -> None:
        """To verify and to sign, they need cryptography, and still no server."""
        path = Path(self.mktemp())
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        program = f"""
            from svcbroker.client import AuthorKey, Client
            key = AuthorKey.read({str(path.absolute())!r})
            signed = key.sign(
                chain=bytes(32), topic="a", content=b"x", extensions={{}}, idempotencyKey="k",
                signedAt=5,
            )
            print(sorted(signed), signed["author"] == key.public.hex())
            Client("http://127.0.0.1:9/svcbroker", key=key, checkpoint="1:" + 64 * "0")
        """
        self.assertEqual(self.run_(SERVER, program), "['author', 'signature', 'signedAt'] True\n")

    def test_extraHasWhatClientsNeed(self) -> None:
        """The extra and the dependencies of the package name what the clients import."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"]["client"]]
        names = {each.partition(">")[0].partition("[")[0] for each in wanted}
        self.assertLessEqual({*LIGHT, "treq", "Twisted", "cryptography"}, names)


class TypingTests(SynchronousTestCase):
    """
    A program that uses the clients, and is checked by mypy.
    """

    def check(self, program: str) -> tuple[int, str]:
        """The exit code and the output of C{mypy --strict}."""
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        (directory / "consumer.py").write_text(program, "utf-8")
        # The rest of the package is checked elsewhere.
        options = ("--strict", "--follow-imports=silent", "--cache-dir=cache", "--no-color-output")
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *options, "consumer.py"],
            cwd=directory,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout + done.stderr

    def test_consumerPassesStrictMypy(self) -> None:
        """Calls have the types that the documentation says."""
        code, output = self.check(CONSUMER)
        self.assertEqual((code, output.splitlines()[-1:]), (0, [output.strip()]), output)
        self.assertIn("no issues", output)

    def test_mistakesAreFound(self) -> None:
        """Wrong options, arguments and attributes are errors."""
        code, output = self.check(MISTAKES)
        self.assertEqual((code, output.count(": error: ")), (1, 4), output)

    def test_packageIsTyped(self) -> None:
        """The package has the marker of typed packages."""
        self.assertTrue((ROOT / "svcbroker" / "py.typed").is_file())
