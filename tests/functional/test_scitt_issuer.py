"""
C{svcbroker proof scitt issuer} over real TLS: a web server with certificates of an authority of its
own, and what is wrong with a certificate or an answer.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.ssl import PrivateCertificate
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site
from twisted.web.static import Data
from twisted.web.util import Redirect

from svcbroker.commands.certificates import Authority
from svcbroker.commands.scittissuer import MAX_DOCUMENT
from svcbroker.proofs.scitt import readKeys
from tests.certificates import makeAuthority, writeAuthority, writeIdentity
from tests.proofs.scitt.test_didweb import ED, jwk

from .daemon import DaemonTestCase, reactor


class Slow(Resource):
    """Answers the begin of a document, and no more."""

    isLeaf = True

    def render_GET(self, request: Request) -> Any:
        """See C{Resource}."""
        request.write(b"{")
        return NOT_DONE_YET


class Broken(Resource):
    """Closes the connection in the middle of a document."""

    isLeaf = True

    def render_GET(self, request: Request) -> Any:
        """See C{Resource}."""
        request.setHeader("Content-Length", "100")
        request.write(b"{")
        request.channel.loseConnection()
        return NOT_DONE_YET


class IssuerTests(DaemonTestCase):
    """
    An issuer whose name is that of this machine.
    """

    def setUp(self) -> None:
        super().setUp()
        self.authority = makeAuthority()
        self.trusted = writeAuthority(self.root / "ca.pem", self.authority)
        self.output = self.root / "keys"
        self.pages = Resource()

    def serve(self, authority: Authority, name: str = "localhost") -> str:
        """Listen with a certificate. @return: the name of an issuer there."""
        path = writeIdentity(self.root / "server.pem", authority.server([name]))
        options = PrivateCertificate.loadPEM(path.read_bytes()).options()
        port = reactor.listenSSL(0, Site(self.pages), options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return f"did:web:localhost%3A{port.getHost().port}"

    def put(self, path: str, page: Resource) -> None:
        """Serve a page as the document of an issuer with a path."""
        directory = Resource()
        directory.putChild(b"did.json", page)
        self.pages.putChild(path.encode(), directory)

    def document(self, did: str, *asserts: str) -> Data:
        """The document of an issuer with one key."""
        method = {"id": "#a", "publicKeyJwk": jwk(ED)}
        fields = {"id": did, "verificationMethod": [method], "assertionMethod": asserts}
        return Data(json.dumps(fields).encode(), "application/json")

    async def fetch(self, did: str, *options: object) -> tuple[int, str, str]:
        """Run the command."""
        words = ("proof", "scitt", "issuer", did, "--output", self.output)
        return await self.outcomeOf(*words, "--allow", "localhost", *options)

    async def refusal(self, did: str, *options: object) -> str:
        """The one error of the command, after the URL. No keys are written."""
        given = ("--ca", self.trusted, "--timeout", "300", *options)
        code, output, errors = await self.fetch(did, *given)
        self.assertEqual((code, output, self.output.exists()), (1, "", False), errors)
        (line,) = errors.splitlines()
        return line.partition("did.json: ")[2]

    async def test_documentIsReadFromATrustedServer(self) -> None:
        """With C{--ca}, and with the authority among those that the system trusts."""
        host = self.serve(self.authority)
        did = f"{host}:legal"
        self.put("legal", self.document(did, "#a"))
        code, output, errors = await self.fetch(did, "--ca", self.trusted)
        self.assertEqual((code, errors), (0, ""), output)
        [key, _] = readKeys(self.output.read_bytes())
        self.assertEqual((key.kid, key.thumbprint), (b"a", ED.thumbprint))
        self.output.unlink()
        self.environment["SSL_CERT_FILE"] = str(self.trusted)
        code, output, errors = await self.fetch(did)
        self.assertEqual((code, errors), (0, ""), output)

    async def test_serverThatIsNotTrustedIsRefused(self) -> None:
        """Of another authority, expired, or of another name."""
        expired = Authority(datetime.now(UTC) - timedelta(days=10), 5)
        for authority, name, trusted, text in (
            (makeAuthority(), "localhost", self.authority, "of an unknown authority"),
            (expired, "localhost", expired, "not valid at this time"),
            (self.authority, "other.example", self.authority, "of another name"),
        ):
            writeAuthority(self.trusted, trusted)
            self.assertIn(text, await self.refusal(self.serve(authority, name)))

    async def test_answersThatAreNoDocumentAreRefused(self) -> None:
        host = self.serve(self.authority)
        for path, page, text in (
            ("moved", Redirect(b"/other/did.json"), "status 302"),
            ("long", Data(b" " * (MAX_DOCUMENT + 1), "text/plain"), f"more than {MAX_DOCUMENT}"),
            ("other", self.document(host, "#a"), f"the document is not of {host}:other"),
            ("keyless", self.document(f"{host}:keyless"), "has no key of Ed25519"),
            ("broken", Broken(), "closed the connection"),
        ):
            self.put(path, page)
            self.assertIn(text, await self.refusal(f"{host}:{path}"))
        self.assertIn("status 404", await self.refusal(f"{host}:absent"))

    async def test_slowServerIsNotAwaited(self) -> None:
        """The time is for the whole of the document."""
        host = self.serve(self.authority)
        self.put("slow", Slow())
        text = await self.refusal(f"{host}:slow", "--timeout", "0.5")
        self.assertIn("gave no answer in time", text)
