"""
Signatures, idempotency keys and expected sequence numbers of PUBLISH, to the server and from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.mqtt.fields import Properties, ReasonCode
from svcbroker.carriers.mqtt.messages import messageOf
from svcbroker.carriers.mqtt.packets import MQTT_311, Puback, Publish, Pubrec, Will
from svcbroker.interfaces import submit
from svcbroker.model import (
    Authorship,
    EraseEvents,
    Event,
    EventId,
    Execution,
    PublishEvent,
    Receipt,
)

from ...authors import SIGNED_AT, Author, tellChain
from .support import Server


def properties(author: Authorship, more: Mapping[str, str], **fields: Any) -> Properties:
    """The properties of a signed message."""
    pairs = {
        "svc-author": author.key.hex(),
        "svc-signature": author.signature.hex(),
        "svc-signed-at": str(author.signedAt),
        **more,
    }
    return Properties(userProperties=tuple(pairs.items()), **fields)


class PublishTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.ledger = self.server.ledger
        self.chain = tellChain(self.ledger)
        self.client = self.server.connected()

    def published(self) -> PublishEvent:
        [request] = [each for each in self.ledger.submitted if isinstance(each, PublishEvent)]
        return request

    def refusal(self, properties: Properties, qos: int = 1) -> tuple[int, str | None]:
        """The reason of a refused message, and its text."""
        self.client.send(Publish("t", b"x", qos, packetId=7, properties=properties))
        [answer] = self.client.take()
        assert isinstance(answer, Puback | Pubrec)
        return answer.reason, answer.properties.reasonString

    def answer(self, execution: Execution, sequence: int = 0) -> None:
        self.client.publish("t")
        self.ledger.submitted.clear()
        self.ledger.receipt = Receipt(
            execution=execution, transactionHash=bytes(32), height=9, sequence=sequence
        )

    def test_userPropertiesAreNoExtensions(self) -> None:
        extensions = {"svc-a": "b", "svc-mqtt": '{"v":1,"q":1}'}
        author = Author().sign(self.chain, "t", b"x", extensions, "k")
        more = {"svc-a": "b", "svc-idempotency-key": "k", "svc-expected-sequence": "0"}
        self.client.publish("t", b"x", 1, properties=properties(author, more))
        request = self.published()
        self.assertEqual(request.author, author)
        self.assertEqual((request.idempotencyKey, request.expectedSequence), ("k", 0))
        self.assertEqual(request.extensions, extensions)

    def test_signedMessageExpiresByItsOwnTime(self) -> None:
        """Otherwise its author could not know the extensions."""
        extensions = {"svc-mqtt": f'{{"v":1,"x":{SIGNED_AT + 60_000}}}'}
        author = Author().sign(self.chain, "t", b"x", extensions)
        self.client.publish(
            "t", b"x", 2, properties=properties(author, {}, messageExpiryInterval=60)
        )
        self.assertEqual(self.published().extensions, extensions)

    def test_wrongSignatureIsRefused(self) -> None:
        author = Author().sign(self.chain, "t", b"x", {})
        for qos in (1, 2):
            reason, text = self.refusal(properties(author, {}), qos)
            self.assertEqual(reason, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
            self.assertEqual(text, "signature is not that of the author")
        self.assertEqual(self.ledger.submitted, [])

    def test_malformedPropertyIsNamed(self) -> None:
        more = {"svc-signed-at": "now"}
        reason, text = self.refusal(Properties(userProperties=tuple(more.items())))
        self.assertEqual(reason, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        assert text is not None
        self.assertTrue(text.startswith("svc-signed-at: "), text)
        self.assertEqual(self.ledger.submitted, [])

    def test_refusalsHaveReasons(self) -> None:
        for execution, reason, words in (
            (Execution.KEY_IN_USE, 0x83, "idempotency key was used for other content"),
            (Execution.OTHER_SEQUENCE, 0x83, "it has 5"),
            (Execution.NO_AUTHOR, 0x87, "topic takes events of its authors only"),
        ):
            self.ledger.receipt = None
            self.answer(execution, 5)
            code, text = self.refusal(Properties(userProperties=(("svc-idempotency-key", "k"),)))
            self.assertEqual(code, reason)
            assert text is not None
            self.assertTrue(text.endswith(words), text)

    def test_publishedBeforeIsSuccess(self) -> None:
        self.answer(Execution.PUBLISHED_BEFORE)
        key = Properties(userProperties=(("svc-idempotency-key", "k"),))
        self.client.send(Publish("t", b"x", 1, packetId=7, properties=key))
        self.assertEqual(self.client.take(), [Puback(7)])

    def test_oldVersionIsDisconnected(self) -> None:
        """It has no user properties; topics may take events of their authors only."""
        self.answer(Execution.NO_AUTHOR)
        client = self.server.connected("other", MQTT_311)
        client.send(Publish("t", b"x", 1, packetId=7))
        self.assertTrue(client.isClosed)

    def test_willMayBeSigned(self) -> None:
        extensions = {"svc-mqtt": '{"v":1,"q":0}'}
        author = Author().sign(self.chain, "t", b"x", extensions)
        client = self.server.client()
        client.connect("other", will=Will("t", b"x", 0, False, properties(author, {})))
        client.lose()
        self.server.pump()
        self.assertEqual(self.published().author, author)

    def test_willWithMalformedPropertyIsRefused(self) -> None:
        more = Properties(userProperties=(("svc-author", "x"),))
        client = self.server.client()
        client.connect("other", will=Will("t", b"x", 0, False, more))
        self.assertTrue(client.isClosed)


class DeliveryTests(SynchronousTestCase):
    """The first event is plain, the second is signed, the third is signed and erased."""

    def setUp(self) -> None:
        self.server = Server()
        self.ledger = self.server.ledger
        chain = tellChain(self.ledger)
        self.author = Author().sign(chain, "t", b"x", {"svc-mqtt": '{"v":1}'})
        publisher = self.server.connected("publisher")
        publisher.publish("t", b"x", 2)
        for _ in range(2):
            publisher.publish("t", b"x", 2, properties=properties(self.author, {}))
        erasure = EraseEvents(topic="t", ranges=[(3, 3)], account="", reason="asked for")
        self.successResultOf(submit(self.ledger, erasure))
        self.claims = {
            "svc-author": self.author.key.hex(),
            "svc-signature": self.author.signature.hex(),
            "svc-signed-at": str(SIGNED_AT),
        }

    def messages(
        self, *more: tuple[str, str], topicFilter: str = "t", **connect: Any
    ) -> list[Publish]:
        """What a subscriber from the beginning on is sent."""
        client = self.server.connected("subscriber", **connect)
        asked = (("svc-offset", "OFFSET_FIRST"), *more)
        client.subscribe(topicFilter, qos=1, properties=Properties(userProperties=asked))
        self.server.pump()
        return client.takeMessages()

    def shown(self, message: Publish) -> dict[str, str]:
        pairs = dict(message.properties.userProperties)
        del pairs["svc-eventId"]
        return pairs

    def test_signedMessageShowsItsAuthor(self) -> None:
        plain, signed = self.messages()
        self.assertEqual(self.shown(plain), {})
        self.assertEqual(self.shown(signed), self.claims)

    def test_tombstonesAreSentWhereAskedFor(self) -> None:
        for topicFilter in ("t", "$share/s/t"):
            messages = self.messages(("svc-erased", "tombstone"), topicFilter=topicFilter)
            self.assertEqual([each.payload for each in messages], [b"x", b"x", b""])
            del self.claims["svc-signature"]
            self.assertEqual(self.shown(messages[2]), {**self.claims, "svc-erased": "true"})
            self.claims["svc-signature"] = self.author.signature.hex()
        self.assertEqual(len(self.messages(("svc-erased", "skip"))), 2)

    def test_sessionsKeepWhatTheyAskedFor(self) -> None:
        self.messages(("svc-erased", "tombstone"), expiry=100)
        self.server.clients[-1].lose()
        [kept] = [
            value for (kind, _), value in self.server.file.kept.items() if "subscription" in kind
        ]
        self.assertIn(b'"hasTombstones":true', kept)

    def test_otherValuesAreRefused(self) -> None:
        client = self.server.connected("subscriber")
        suback = client.subscribe("t", properties=Properties(userProperties=(("svc-erased", "x"),)))
        self.assertEqual(suback.reasons, (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,))

    def test_extensionsCannotLookLikeASignature(self) -> None:
        """Neither those of an earlier release, nor an order that any publisher may write."""
        for extensions in (
            {"svc-author": "x", "svc-erased": "true"},
            {"svc-mqtt": '{"v":1,"u":[["svc-author","x"],["a","b"],"svc-erased"]}'},
        ):
            event = Event(
                topic="t", content=b"x", extensions=extensions, eventId=EventId("abcdef01", 2, 3)
            )
            message = messageOf(event, hasProperties=True)
            self.assertNotIn(b"svc-author", message.properties)
            self.assertNotIn(b"svc-erased", message.properties)
