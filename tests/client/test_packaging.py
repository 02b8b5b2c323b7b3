"""
Tests for the clients as other programs install them: what they import.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

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
SERVER = {"twisted", "klein", "zope", "treq", "httptools", "OpenSSL", "werkzeug", "jwt"}
TOOLS = {"click", "rich"}
"""What the command line needs, and no client."""


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
        self.assertEqual(self.run_({*SERVER, *TOOLS, "cryptography"}, program), "Unreachable\n[]\n")

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

    def test_packageIsTyped(self) -> None:
        """The package has the marker of typed packages."""
        self.assertTrue((ROOT / "svcbroker" / "py.typed").is_file())


class TypingTests(SynchronousTestCase):
    """
    What a type checker makes of a program that uses the clients.
    """

    def check(self, **programs: str) -> list[str]:
        """What mypy says of a consumer project, in its strict mode."""
        if importlib.util.find_spec("mypy") is None:
            raise SkipTest("mypy is not installed")
        directory = Path(self.mktemp()).absolute()
        directory.mkdir(parents=True)
        for name, program in programs.items():
            (directory / f"{name}.py").write_text(textwrap.dedent(program))
        # A consumer sees the package as it is installed: what is wrong in it is not its business.
        options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir=cache"]
        return subprocess.run(
            [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in programs)],
            cwd=directory,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout.splitlines()

    def test_strictConsumersTypeCheck(self) -> None:
        """All three clients are typed, and what is wrong is found."""
        right = """
            from collections.abc import AsyncIterator, Iterator
            from datetime import UTC, datetime

            from twisted.internet.defer import Deferred

            from svcbroker.client import (
                AsyncClient, AuthorKey, BrokerError, Client, Event, Publication, Published,
                TopicState,
            )
            from svcbroker.client.twisted import TwistedClient


            def contents(client: Client, topic: str) -> Iterator[bytes]:
                for event in client.follow(topic, after=datetime.now(UTC), tag="t", timeout=5):
                    yield event.content


            def publish(client: Client, key: AuthorKey) -> list[str]:
                one: Published = client.publish("a", b"x", {"svc-tag": "y"}, author=key)
                many = client.publishMany(Publication("a", str(n)) for n in range(3))
                good = [each for each in many if not isinstance(each, BrokerError)]
                return [one.eventId, *(each.eventId for each in good)]


            async def sequence(client: AsyncClient, topic: str) -> int:
                state: TopicState = await client.state(topic)
                async for event in client.events(topic, after=1, limit=5):
                    return event.sequence + len(event.extensions)
                return state.sequenceNumber


            def events(client: TwistedClient) -> AsyncIterator[Event]:
                return client.follow("#", after="OFFSET_FIRST")


            def proof(client: TwistedClient, eventId: str) -> Deferred[bytes]:
                return client.proof(eventId)
        """
        wrong = """
            from svcbroker.client import Client

            def count(client: Client) -> str:
                client.publish("a", 1)
                client.publish("a", "x", nosuch=True)
                Client("http://a", tiemout=5)
                return client.state("a").sequenceNumber
        """
        lines = self.check(right=right, wrong=wrong)
        self.assertEqual([line for line in lines if not line.startswith("wrong.py")], [])
        for words in ('"int"; expected "bytes | str"', '"nosuch"', '"tiemout"', 'expected "str"'):
            self.assertIn(words, " ".join(lines))
