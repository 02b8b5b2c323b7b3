"""
Tests for the clients as other programs install them: what they import.
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
from tests.authors import makeKeyFile
from tests.waiting import TIMEOUT

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
            timeout=TIMEOUT,
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
        makeKeyFile(path)
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

    def test_clientForTwistedNeedsTreq(self) -> None:
        """The client for Twisted needs Twisted and treq, and no other package of the server."""
        program = """
            from svcbroker.client.twisted import TwistedClient
            print(TwistedClient.__name__)
        """
        refused = {"klein", "httptools", "werkzeug", "jwt", "prometheus_client", *TOOLS}
        self.assertEqual(self.run_(refused, program), "TwistedClient\n")

    def test_extraHasWhatClientsNeed(self) -> None:
        """The extra and the dependencies of the package name what the clients import."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"]["client"]]
        names = {each.partition(">")[0].partition("[")[0] for each in wanted}
        self.assertLessEqual({*LIGHT, "treq", "Twisted", "cryptography"}, names)

    def test_packageIsTyped(self) -> None:
        """The package has the marker of typed packages."""
        self.assertTrue((ROOT / "svcbroker" / "py.typed").is_file())
