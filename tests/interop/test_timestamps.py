"""
Time stamps (RFC 3161) of an authority that is made of OpenSSL.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve
from cryptography.x509 import load_pem_x509_certificates
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Site

from svcbroker.proofs.bundle import REQUEST_TYPE, Bundle, StampRefused, requestStamp, stampName
from tests.functional.daemon import DaemonTestCase, reactor
from tests.needed import neededProgram, needPackage

from ..proofs.bundle.support import bundle

_CONFIGURATION = """
[tsa]
default_tsa = one
[one]
dir = .
serial = ./serial
crypto_device = builtin
signer_cert = ./tsa.pem
signer_key = ./tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
tsa_name = yes
ess_cert_id_alg = sha256
"""
_EXTENSIONS = """
extendedKeyUsage = critical,timeStamping
keyUsage = critical,digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Authority:
    """
    An authority in a folder.

    @ivar roots: the file of its root certificate.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.roots = folder / "ca.pem"
        (folder / "config").write_text(_CONFIGURATION)
        (folder / "extensions").write_text(_EXTENSIONS)
        (folder / "serial").write_text("01\n")
        new = ("-newkey", "rsa:2048", "-nodes")
        self._run(
            *("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30"),
            *("-subj", "/CN=Root", "-addext", "basicConstraints=critical,CA:TRUE"),
        )
        self._run(
            *("req", *new, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=Our authority")
        )
        self._run(
            *("x509", "-req", "-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30"),
            *("-CAcreateserial", "-out", "tsa.pem", "-extfile", "extensions"),
        )

    def _run(self, *arguments: str) -> None:
        command = [neededProgram("openssl"), *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)

    def answer(self, request: bytes) -> bytes:
        """Stamp what is asked."""
        (self._folder / "query").write_bytes(request)
        self._run("ts", "-reply", "-queryfile", "query", "-config", "config", "-out", "answer")
        return (self._folder / "answer").read_bytes()


class StampTests(SynchronousTestCase):
    """
    Stamps of checkpoints.
    """

    def stamp(self, text: str, roots: Any, answer: Callable[[bytes], bytes]) -> Deferred[bytes]:
        """Have a text stamped by what answers a request."""

        async def ask(request: bytes) -> bytes:
            return answer(request)

        return Deferred.fromCoroutine(requestStamp(text, roots, ask))

    def test_stampIsOfOneTextAndTrustedRoots(self) -> None:
        """A stamp holds for its text by its own root, and for nothing else."""
        needPackage("rfc3161_client", "timestamps")
        authority = Authority(Path(self.mktemp()))
        other = Authority(Path(self.mktemp()))
        roots = load_pem_x509_certificates(authority.roots.read_bytes())
        name, proof = next(iter(bundle().proofs.items()))
        text = proof.decode().split("\n\n")[1] + "\n"
        answer = self.successResultOf(self.stamp(text, roots, authority.answer))
        stamped = evolve(bundle(), timestamps={stampName(text): answer})
        stamp = Bundle.decode(stamped.encode()).stamp(name, roots)
        assert stamp is not None
        self.assertEqual(stamp.authority, "CN=Our authority")
        self.assertIsNone(bundle().stamp(name, roots))
        strangers = load_pem_x509_certificates(other.roots.read_bytes())
        with self.assertRaises(StampRefused):
            stamped.stamp(name, strangers)
        anothers = self.successResultOf(self.stamp("other\n", roots, authority.answer))
        for wrong in (answer[:-1], b"", answer + b"x" * 65536, anothers):
            with self.assertRaises(StampRefused):
                evolve(bundle(), timestamps={stampName(text): wrong}).stamp(name, roots)
        # An answer to another request, as one that is sent again.
        self.failureResultOf(self.stamp(text, roots, lambda request: answer), StampRefused)


class _Page(Resource):
    isLeaf = True

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self._authority = authority

    def render_POST(self, request: Any) -> bytes:
        """Answer a request."""
        assert request.getHeader("content-type") == REQUEST_TYPE
        if request.path != b"/":
            request.setResponseCode(404)
            return b""
        return self._authority.answer(request.content.read())


class CommandTests(DaemonTestCase):
    """
    C{svcbroker proof bundle --tsa}, C{proof stamp} and C{verify --tsa-roots}.
    """

    async def test_bundleIsStamped(self) -> None:
        """The time of the authority is told to those who trust its root."""
        needPackage("rfc3161_client", "timestamps")
        authority = Authority(self.root / "tsa")
        port = reactor.listenTCP(0, Site(_Page(authority)), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        daemon = await self.start(ledger="pbft")
        await daemon.call("/rest/open", topic="t")
        answer = await daemon.call("/rest/publish", topic="t", content="x")
        words = ["bundle", answer["eventId"], f"--url={daemon.base}", "--output=case.zip"]
        tsa = f"--tsa=http://127.0.0.1:{port.getHost().port}"
        code, _, errors = await self.outcomeOf(*words, tsa)
        self.assertEqual((code, errors.count("\n")), (2, 1))
        code, _, errors = await self.outcomeOf(*words, f"{tsa}/gone", "--tsa-roots=tsa/ca.pem")
        self.assertEqual((code, errors.count("\n")), (2, 2), errors)
        self.assertIn("answered with HTTP status 404", errors)
        code, _, errors = await self.outcomeOf(*words, tsa, "--tsa-roots=tsa/ca.pem")
        self.assertEqual(code, 0, errors)
        code, output, errors = await self.outcomeOf("verify", "case.zip", "--tsa-roots=tsa/ca.pem")
        self.assertEqual(code, 0, output + errors)
        self.assertRegex(output, "stamped by +'?CN=Our authority'? at 20")
        code, output, _ = await self.outcomeOf("verify", "case.zip")
        self.assertEqual(code, 0)
        self.assertIn("time stamps: give --tsa-roots", output)
        code, output, _ = await self.outcomeOf(
            "verify", "case.zip", "--tsa-roots=tsa/tsa.pem", "--json"
        )
        told = json.loads(output)
        self.assertEqual((code, told["proved"]), (1, False))

    async def test_bundleIsStampedLater(self) -> None:
        """Whoever has it can have it stamped, without the broker, and once."""
        needPackage("rfc3161_client", "timestamps")
        authority = Authority(self.root / "tsa")
        port = reactor.listenTCP(0, Site(_Page(authority)), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        (self.root / "case.zip").write_bytes(bundle().encode())
        (self.root / "wrong.zip").write_bytes(b"x")
        tsa = f"--tsa=http://127.0.0.1:{port.getHost().port}"
        words = (tsa, "--tsa-roots=tsa/ca.pem", "--output=stamped.zip")
        for name, code in (("wrong.zip", 1), ("none.zip", 2)):
            found, _, errors = await self.outcomeOf("proof", "stamp", name, *words)
            self.assertEqual((found, errors.count("\n")), (code, 1), errors)
        code, _, errors = await self.outcomeOf("proof", "stamp", "case.zip", tsa)
        self.assertEqual((code, errors.count("\n")), (2, 1), errors)
        code, _, errors = await self.outcomeOf("proof", "stamp", "case.zip", *words)
        self.assertEqual(code, 0, errors)
        code, output, errors = await self.outcomeOf(
            "verify", "stamped.zip", "--tsa-roots=tsa/ca.pem"
        )
        self.assertEqual(code, 0, output + errors)
        self.assertRegex(output, "stamped by +'?CN=Our authority'? at 20")
        stamped = Bundle.decode((self.root / "stamped.zip").read_bytes())
        self.assertEqual(evolve(stamped, timestamps={}), bundle())
        code, _, errors = await self.outcomeOf("proof", "stamp", "stamped.zip", *words)
        self.assertEqual(code, 2, errors)
        self.assertIn("has time stamps, which would be lost", errors)
