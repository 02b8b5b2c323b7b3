"""
Tests of signed and erased events in the requests of webhooks.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.interfaces import submit
from svcbroker.model import Edge, EraseEvents, PublishEvent

from ...authors import SIGNED_AT, Author
from .support import Harness

ANN = Author()


class TombstoneTests(SynchronousTestCase):
    """The first event is signed, the second is erased."""

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a")
        chain = self.harness.ledger._genesis.chain
        self.author = ANN.sign(chain, "a", b"x", {})
        event = PublishEvent(topic="a", content=b"x", author=self.author)
        self.successResultOf(submit(self.harness.ledger, event))
        self.harness.publish("gone")
        erasure = EraseEvents(topic="a", ranges=[(2, 2)], account="", reason="asked for")
        self.successResultOf(submit(self.harness.ledger, erasure))
        self.harness.publish("last")

    def received(self, *, hasTombstones: bool) -> list[dict[str, Any]]:
        self.harness.subscribe(offset=Edge.FIRST, hasTombstones=hasTombstones)
        self.harness.settle()
        posts = self.harness.poster.posts
        return [json.loads(post.body)["event"] for post in posts]

    def test_signedEventShowsItsAuthor(self) -> None:
        signed, last = self.received(hasTombstones=False)
        self.assertEqual(
            (signed["author"], signed["signature"], signed["signedAt"]),
            (ANN.key.hex(), self.author.signature.hex(), SIGNED_AT),
        )
        self.assertEqual(list(last), ["topic", "content", "extensions", "eventId"])

    def test_tombstonesAreSentWhereAskedFor(self) -> None:
        _, erased, _ = self.received(hasTombstones=True)
        self.assertEqual((erased["content"], erased["erased"]), ("", True))
        listing = self.harness.webhooks.listWebhooks(ANYBODY, "1", None, None, 10)
        [webhook] = self.successResultOf(listing).items
        self.assertTrue(webhook.hasTombstones)
