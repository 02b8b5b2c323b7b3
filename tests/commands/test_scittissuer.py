"""
Tests for C{svcbroker proof scitt issuer}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.static import Data
from twisted.web.util import Redirect

from svcbroker.carriers.scitt.policyfile import readPolicy
from svcbroker.commands import scittissuer
from svcbroker.net.endpoints import AddressPolicy
from svcbroker.net.http import HttpClient, HttpError
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.scitt import ServiceKey, encodeKeys, readKeys
from tests.commands.support import CommandTestCase
from tests.proofs.scitt.test_didweb import DID, ED, document, jwk, method

WORDS = ("proof", "scitt", "issuer")


class IssuerTests(CommandTestCase):
    """
    A directory with a policy, and an issuer whose document is not fetched over a network.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.policy = self.directory / "policy.toml"
        (self.directory / "other").write_bytes(encodeKeys([ServiceKey.derive(b"x").public]))
        self.policy.write_text('[[issuers]]\nissuer = "https://x.example"\nkeys = "other"')
        self.output = self.directory / "acme"
        self.asked: list[tuple[str, AddressPolicy]] = []
        self.answer = document([method("#a", publicKeyJwk=jwk(ED))], ["#a"])

        async def fetch(_: object, url: str, allowed: AddressPolicy, *rest: object) -> bytes:
            self.asked.append((url, allowed))
            return self.answer

        def run(work: Callable[[Any], Coroutine[Any, Any, bytes]]) -> bytes:
            return self.successResultOf(Deferred.fromCoroutine(work(Clock())))

        self.patch(scittissuer, "_fetch", fetch)
        self.patch(scittissuer, "runReactor", run)

    def test_keysAreWrittenAndNamedInThePolicy(self) -> None:
        """The policy has what it had, and the issuer, as the service reads it."""
        told = self.good(*WORDS, DID, "--output", self.output, "--policy", self.policy)
        self.assertIn("document     https://acme.example/.well-known/did.json\n", told)
        self.assertIn(f"key          a, {ED.thumbprint.hex()}\n", told)
        self.assertEqual(self.asked[0][0], "https://acme.example/.well-known/did.json")
        self.assertFalse(self.asked[0][1].permits("acme.example", "127.0.0.1", 443))
        known = readPolicy("scitt-policy", str(self.policy)).issuers
        self.assertEqual({name for name, _ in known}, {"https://x.example", DID})
        self.assertEqual(known[DID, b"a"].key.thumbprint, ED.thumbprint)
        self.assertIn((DID, f"{DID}#a".encode()), known)
        self.assertEqual(
            sorted(each.name for each in self.directory.iterdir()), ["acme", "other", "policy.toml"]
        )

    def test_withoutAPolicyTheKeysAreWritten(self) -> None:
        told = json.loads(
            self.good(*WORDS, DID, "--output", self.output, "--allow", "127.0.0.0/8", "--json")
        )
        self.assertEqual(told["keys"], {each: ED.thumbprint.hex() for each in ("a", f"{DID}#a")})
        self.assertEqual(len(readKeys(self.output.read_bytes())), 2)
        self.assertTrue(self.asked[0][1].permits("acme.example", "127.0.0.1", 443))

    def test_nothingIsFetchedInVain(self) -> None:
        """What is wrong with the command line is said before anybody is asked."""
        for words, text in (
            (["did:web:127.0.0.1", "--output", self.output], "ISSUER: an issuer is named as"),
            ([DID, "--output", self.policy], "is there already"),
            ([DID, "--output", self.output, "--allow", "1.2.3.4/x"], "--allow"),
            ([DID, "--output", self.output, "--ca", self.output], "--ca: "),
            ([DID, "--output", self.output, "--ca", self.policy], "has no certificate"),
            ([DID, "--output", self.output, "--policy", self.directory / "other"], "no policy"),
            (
                ["did:web:y.example", "--output", self.output, "--policy", self.named()],
                "has did:web:y.example already",
            ),
        ):
            self.assertIn(text, self.refused(*WORDS, *words))
        self.assertEqual(self.asked, [])

    def named(self) -> Path:
        """A policy that has an issuer."""
        path = self.directory / "named.toml"
        path.write_text('[[issuers]]\nissuer = "did:web:y.example"\nkeys = "other"\n')
        return path

    def test_wrongDocumentChangesNothing(self) -> None:
        self.answer = b"{}"
        before = self.policy.read_bytes()
        code, output, errors = self.run_(
            *WORDS, DID, "--output", self.output, "--policy", self.policy
        )
        self.assertEqual((code, output), (1, ""))
        self.assertIn(f"did.json: the document is not of {DID}", errors)
        self.assertFalse(self.output.exists())
        self.assertEqual(self.policy.read_bytes(), before)

    def test_policyThatIsNotReadStays(self) -> None:
        """As one that is broken elsewhere: its text is kept, and the keys are there to be named."""
        self.policy.write_text('leaf = "x"\n')
        line = self.refused(*WORDS, DID, "--output", self.output, "--policy", self.policy)
        self.assertIn("leaf is not one of", line)
        self.assertEqual(self.policy.read_text(), 'leaf = "x"\n')
        self.assertTrue(self.output.exists())


class FetchTests(SynchronousTestCase):
    """
    A web server in memory.
    """

    def fetch(self, name: str) -> Deferred[bytes]:
        """Ask for a path."""
        root = Resource()
        for path, size in ((b"did.json", 2), (b"long", scittissuer.MAX_DOCUMENT + 1)):
            root.putChild(path, Data(b" " * size, "application/json"))
        root.putChild(b"moved", Redirect(b"/did.json"))
        agent = RequestTraversalAgent(root)
        asking = Deferred.fromCoroutine(
            scittissuer.fetchDocument(HttpClient(agent, Clock()), f"https://a.example/{name}", 1)
        )
        agent.flush()
        return asking

    def test_documentIsWhatIsAnsweredWith200(self) -> None:
        """No redirect is followed, and nothing longer is read."""
        self.assertEqual(self.successResultOf(self.fetch("did.json")), b"  ")
        for name, kind in (("moved", ProofInvalid), ("none", ProofInvalid), ("long", HttpError)):
            self.failureResultOf(self.fetch(name), kind)
