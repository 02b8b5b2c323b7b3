"""
Signatures, idempotency keys and expected sequence numbers of SEND, and what MESSAGE says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.json import encode
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.requests import WEEVENT_1_1
from svcbroker.errors import ExtensionKeyInvalid, SequenceConflict, SignatureInvalid
from svcbroker.model import Authorship, Event, EventId, Execution, PublishEvent, Receipt

from ...authors import Author, tellChain
from .support import Received, Server, event


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


class MessageTests(SynchronousTestCase):
    """What MESSAGE says of signed and erased events."""

    CLAIMS: Final = {
        "svc-author": "01" * 32,
        "svc-signature": "02" * 64,
        "svc-signed-at": "5",
        "svc-erased": "true",
    }

    def message(self, event: Event, version: str = "1.2", **server: Any) -> Mapping[str, str]:
        """The headers that a subscriber gets."""
        made = Server(**server)
        client = made.connect(version)
        client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
        made.fixture.clock.advance(1)
        made.fake.made[-1].publish(event)
        return client.frames()[-1].headers

    def claims(self, event: Event) -> dict[str, str]:
        headers = self.message(event)
        return {name: headers[name] for name in self.CLAIMS if name in headers}

    def test_signedEventShowsItsAuthor(self) -> None:
        author = Authorship(key=b"\1" * 32, signedAt=5, signature=b"\2" * 64)
        shown = {name: text for name, text in self.CLAIMS.items() if name != "svc-erased"}
        self.assertEqual(self.claims(replace(event(1), author=author)), shown)
        headers = self.message(replace(event(1), author=author), dialect=WEEVENT_1_1)
        self.assertEqual(headers["weevent-author"], "01" * 32)

    def test_tombstoneHasNoSignature(self) -> None:
        author = Authorship(key=b"\1" * 32, signedAt=5, signature=b"")
        shown = {name: text for name, text in self.CLAIMS.items() if name != "svc-signature"}
        erased = replace(event(1, content=b"", tag="t"), author=author, isErased=True)
        self.assertEqual(self.claims(erased), shown)
        self.assertEqual(self.message(erased)["svc-tag"], "t")

    def test_extensionsCannotLookLikeASignature(self) -> None:
        """Neither those of an earlier release, nor headers that any publisher may write."""
        kept: dict[str, Any] = {name.removeprefix("svc-"): "x" for name in self.CLAIMS}
        self.assertEqual(self.claims(event(1, **kept)), {})
        user = encode({**self.CLAIMS, "x": "y"}).decode()
        self.assertEqual(self.claims(event(1, stomp=user)), {})
        self.assertEqual(self.message(event(1, stomp=user))["x"], "y")

    def test_subscribersMayAskForTombstones(self) -> None:
        server = Server()
        client = server.connect()
        for number, (text, expected) in enumerate(
            (("tombstone", True), ("skip", False), ("", False))
        ):
            client.send("SUBSCRIBE", {"id": str(number), "destination": "a", "svc-erased": text})
            self.assertIs(server.fake.made[-1].request.hasTombstones, expected)
        answer = client.ask("SUBSCRIBE", {"id": "9", "destination": "a", "svc-erased": "x"})
        self.assertEqual(answer["message"], "svc-erased: is not skip or tombstone")
