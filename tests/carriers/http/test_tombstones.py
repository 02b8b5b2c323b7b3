"""
Signed and erased events over HTTP: C{getEvent}, C{events} and C{follow}.
"""

from __future__ import annotations

from typing import Any

from svcbroker.access import ANYBODY
from svcbroker.interfaces import submit
from svcbroker.model import EraseEvents, EventId
from tests.broker.support import publishOne

from ...authors import SIGNED_AT, Author, tellChain
from .test_follow import FollowTestCase

ANN = Author()


class EventTests(FollowTestCase):
    """The first event is plain, the second is signed, the third is signed and erased."""

    def setUp(self) -> None:
        super().setUp()
        chain = tellChain(self.fixture.ledger)
        self.ids: list[EventId] = []
        for number in range(3):
            extensions = {"svc-a": "b", "svc-private-a": "c"}
            author = ANN.sign(chain, "a", b"x", extensions)
            given = (author.key, author.signature, author.signedAt) if number else ()
            publishing = publishOne(
                self.fixture.broker, ANYBODY, "1", "a", b"x", extensions, *given
            )
            eventId = self.successResultOf(publishing).eventId
            assert eventId is not None
            self.ids.append(EventId.parse(eventId))
        self.signature = author.signature.hex()
        erasure = EraseEvents(topic="a", ranges=[(3, 3)], account="op", reason="asked for")
        self.receipt = self.successResultOf(submit(self.fixture.ledger, erasure))
        self.settle()

    def rest(self, call: str) -> Any:
        """Ask by GET."""
        connection = self.client.connect()
        connection.send(f"GET /svcbroker/rest/{call} HTTP/1.1\r\nHost: b\r\n\r\n".encode())
        self.settle()
        [answer] = connection.answers()
        return answer.json()

    @property
    def claims(self) -> dict[str, Any]:
        """The members of a signed event."""
        return {"author": ANN.key.hex(), "signature": self.signature, "signedAt": SIGNED_AT}

    def test_plainEventsAreAsBefore(self) -> None:
        event = self.rest(f"getEvent?eventId={self.ids[0]}")
        self.assertEqual(list(event), ["topic", "content", "extensions", "eventId"])
        first = self.rest("events?topic=a")["events"][0]
        place = ["timestamp", "blockNumber", "sequenceNumber"]
        self.assertEqual(list(first), [*event, *place])

    def test_signedEventsShowTheirAuthor(self) -> None:
        plain = self.rest(f"getEvent?eventId={self.ids[0]}")
        event = self.rest(f"getEvent?eventId={self.ids[1]}")
        self.assertEqual(event, {**plain, "eventId": str(self.ids[1]), **self.claims})
        rpc = self.client.rpc("getEvent", [str(self.ids[1])])["result"]
        self.assertEqual(rpc, event)
        second = self.rest("events?topic=a")["events"][1]
        self.assertEqual({name: second[name] for name in event}, event)

    def test_erasedEventSaysWhenAndWhy(self) -> None:
        answer = self.rest(f"getEvent?eventId={self.ids[2]}")
        erased = answer.pop("erased")
        message = "the content of the event was erased"
        self.assertEqual(answer, {"code": 100305, "message": message})
        self.assertEqual((erased["account"], erased["reason"]), ("op", "asked for"))
        self.assertEqual(erased["transHash"], f"0x{self.receipt.transactionHash.hex()}")
        self.assertGreater(erased["timestamp"], 0)
        self.assertEqual((erased["topic"], erased["first"], erased["last"]), ("a", 3, 3))
        error = self.client.rpc("getEvent", [str(self.ids[2])])["error"]
        self.assertEqual((error["code"], error["message"]), (-32025, message))
        self.assertEqual((error["data"]["code"], error["data"]["erased"]), (100305, erased))

    def test_erasedEventsAreLeftOut(self) -> None:
        for more in ("", "&erased=skip", "&erased="):
            page = self.rest(f"events?topic=a{more}")
            ids = [each["eventId"] for each in page["events"]]
            self.assertEqual((ids, page["leftOut"]), ([*map(str, self.ids[:2])], 1))
        self.assertNotIn("leftOut", self.rest("events?topic=a&erased=tombstone"))
        stream = self.follow("topic=a&from=OFFSET_FIRST")
        self.assertEqual([id for id, _ in stream.events()], list(map(str, self.ids[:2])))

    def test_tombstonesHaveNoContent(self) -> None:
        for tombstone in (
            self.rest("events?topic=a&erased=tombstone")["events"][2],
            self.follow("topic=a&from=OFFSET_FIRST&erased=tombstone").events()[2][1],
        ):
            claims = {**self.claims, "erased": True}
            del claims["signature"]
            self.assertEqual({name: tombstone.get(name) for name in claims}, claims)
            self.assertEqual(tombstone["content"], "")
            self.assertEqual(tombstone["extensions"], {"svc-a": "b"})
            self.assertNotIn("signature", tombstone)

    def test_cloudEventsSayWhoSigned(self) -> None:
        events = self.rest("events?topic=a&erased=tombstone&format=cloudevents")["events"]
        shown = [{name: value for name, value in each.items() if name in NAMES} for each in events]
        signed = {"svcauthor": ANN.key.hex(), "svcsignedat": str(SIGNED_AT)}
        self.assertEqual(
            shown,
            [{}, {**signed, "svcsignature": self.signature}, {**signed, "svcerased": True}],
        )
        self.assertNotIn("data_base64", events[2])

    def test_otherValuesAreRefused(self) -> None:
        for call in ("events", "follow"):
            answer = self.rest(f"{call}?topic=a&erased=x")
            self.assertEqual(answer["code"], 100600)
            self.assertTrue(answer["message"].startswith("erased: "), answer)


NAMES = {"svcauthor", "svcsignature", "svcsignedat", "svcerased"}
