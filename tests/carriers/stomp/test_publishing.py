"""
Signatures, idempotency keys and expected sequence numbers of SEND.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.dialects import WEEVENT_1_1
from svcbroker.errors import ExtensionKeyInvalid, SequenceConflict, SignatureInvalid
from svcbroker.model import EventId, Execution, PublishEvent, Receipt

from ...authors import Author, tellChain
from .support import Received, Server


class SendTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.ledger = self.server.fixture.ledger
        self.chain = tellChain(self.ledger)
        author = Author().sign(self.chain, "a", b"x", {"svc-a": "b"}, "k")
        self.author = author
        self.headers = {
            "svc-a": "b",
            "svc-author": author.key.hex(),
            "svc-signature": author.signature.hex(),
            "svc-signed-at": str(author.signedAt),
            "svc-idempotency-key": "k",
        }

    def send(self, **headers: str) -> Received:
        """Send on a connection of its own."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.connect().ask(
            "SEND", {"destination": "a", "receipt": "1", **given}, b"x"
        )

    def published(self) -> PublishEvent:
        [request] = self.server.published
        assert isinstance(request, PublishEvent)
        return request

    def test_headersAreNoExtensions(self) -> None:
        answer = self.send(**self.headers, svc_expected_sequence="0")
        self.assertEqual(answer.command, "RECEIPT")
        request = self.published()
        self.assertEqual(request.author, self.author)
        self.assertEqual((request.idempotencyKey, request.expectedSequence), ("k", 0))
        self.assertEqual(request.extensions, {"svc-a": "b"})

    def test_otherHeadersAreSignedToo(self) -> None:
        """They are in an extension."""
        answer = self.send(**self.headers, content_type="text/plain")
        self.assertEqual(answer["code"], str(SignatureInvalid.code))
        extensions = {"svc-a": "b", "svc-stomp": '{"content-type":"text/plain"}'}
        author = Author().sign(self.chain, "a", b"x", extensions, "k")
        signature = {"svc-signature": author.signature.hex()}
        answer = self.send(**{**self.headers, **signature, "content-type": "text/plain"})
        self.assertEqual(answer.command, "RECEIPT")

    def test_malformedHeaderIsNamed(self) -> None:
        for name, value in (("svc-author", "x"), ("svc-expected-sequence", "x")):
            answer = self.send(**{**self.headers, name: value})
            self.assertTrue(answer["message"].startswith(f"{name}: "), answer)
        self.assertEqual(self.server.published, [])

    def test_headerOfMessagesIsRefused(self) -> None:
        self.assertEqual(self.send(svc_erased="true")["code"], str(ExtensionKeyInvalid.code))

    def test_publishedBeforeIsAReceipt(self) -> None:
        self.ledger.receipt = Receipt(
            execution=Execution.PUBLISHED_BEFORE,
            transactionHash=bytes(32),
            height=9,
            eventId=EventId("0123abcd", 3, 7),
        )
        self.assertEqual(self.send(svc_idempotency_key="k")["eventId"], "0123abcd-3-7")

    def test_otherSequenceIsAnError(self) -> None:
        self.ledger.receipt = Receipt(
            execution=Execution.OTHER_SEQUENCE, transactionHash=bytes(32), height=9, sequence=5
        )
        answer = self.send(svc_expected_sequence="4")
        self.assertEqual(answer["code"], str(SequenceConflict.code))
        self.assertTrue(answer["message"].endswith("it has 5"))

    def test_transactionsHaveThem(self) -> None:
        client = self.server.connect()
        client.send("BEGIN", {"transaction": "1"})
        client.send("SEND", {"destination": "a", "transaction": "1", **self.headers}, b"x")
        client.ask("COMMIT", {"transaction": "1", "receipt": "1"})
        self.assertEqual(self.published().author, self.author)

    def test_dialectHasItsOwnNames(self) -> None:
        server = Server(dialect=WEEVENT_1_1)
        client = server.connect()
        client.ask(
            "SEND", {"destination": "a", "receipt": "1", "weevent-idempotency-key": "k"}, b"x"
        )
        [request] = server.published
        self.assertEqual((request.idempotencyKey, request.extensions), ("k", {}))
