"""
The contract of a ledger, continued: authors, idempotency keys, expected numbers and erasure. A
ledger that cannot do one of them refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..chain import authorsStatement, statement
from ..errors import BrokerError, EventErased
from ..interfaces import ILedger, submit
from ..model import (
    AuthorChange,
    AuthorSet,
    Authorship,
    ChangeAuthors,
    CloseTopic,
    EraseEvents,
    EventId,
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Request,
)
from ._fixtures import LedgerKit

_ALICE, _BOB = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))


def _key(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


class AuthorshipTests(LedgerKit):
    """Events with authors, keys and expected numbers, and erasures."""

    async def attempt(self, *requests: Request) -> Sequence[Receipt] | None:
        """
        Submit requests, one after the other; the receipts, or C{None} where the ledger cannot
        execute one of them, and has not.
        """
        receipts = []
        for request in requests:
            before, height = self.ledger.topicState(request.topic), await self.height()
            try:
                receipts.append(await self.settle(submit(self.ledger, request)))
            except BrokerError:
                self.assertEqual(self.ledger.topicState(request.topic), before)
                self.assertEqual(await self.height(), height)
                return None
        return receipts

    def keyed(self, content: bytes, topic: str = "t", publisher: str = "ann") -> PublishEvent:
        """A publish with a key."""
        return PublishEvent(topic=topic, content=content, idempotencyKey="key", publisher=publisher)

    async def test_keyPublishesOnce(self) -> None:
        """A key of a publisher publishes once, also after another start; others have their own."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        receipts = await self.attempt(self.keyed(b"1"), self.keyed(b"1"))
        if receipts is None:
            return
        first, again = receipts
        self.assertEqual((first.execution, again.execution), (Execution.DONE, Execution(4)))
        self.assertEqual(first.eventId, again.eventId)
        for _ in range(2):
            receipts = await self.submit(
                self.keyed(b"2"), self.keyed(b"1", topic="u"), self.keyed(b"1")
            )
            self.assertEqual([each.execution for each in receipts], [5, 5, 4])
            self.assertEqual([each.eventId for each in receipts], [None, None, first.eventId])
            if not self.fixture.isDurable:
                break
            await self.end()
            await self.startAgain()
        [other] = await self.submit(self.keyed(b"2", publisher="bob"))
        self.assertEqual(other.execution, Execution.DONE)
        await self.submit(CloseTopic(topic="t"))
        [again] = await self.submit(self.keyed(b"1"))
        self.assertEqual((again.execution, again.eventId), (4, first.eventId))
        self.assertEqual([event.content for event in await self.allEvents()], [b"1", b"2"])

    async def test_expectedSequenceIsCompared(self) -> None:
        """A publish that expects another number of its topic is refused with the number it has."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"))
        receipts = await self.attempt(
            *(PublishEvent(topic="t", content=b"x", expectedSequence=n) for n in (0, 0, 1))
        )
        if receipts is None:
            return
        self.assertEqual([each.execution for each in receipts], [0, 6, 0])
        self.assertEqual([each.sequence for each in receipts], [1, 1, 2])

    async def test_topicWithAuthorsTakesTheirEvents(self) -> None:
        """Only events that an author has signed are published, and an admin changes the authors."""
        ledger = await self.begin()
        authors = AuthorSet(authors=(_key(_ALICE),), admins=(_key(_ALICE),))
        if await self.attempt(OpenTopic(topic="t", authors=authors)) is None:
            return
        self.assertEqual(self.topic("t").authors, authors)
        text = statement(ledger.chain, "t", b"x", 5, None, {"svc-private-a": "b"})
        signed, forged = (
            PublishEvent(
                topic="t",
                content=b"x",
                extensions={"svc-private-a": "b"},
                author=Authorship(key=_key(_ALICE), signedAt=5, signature=private.sign(text)),
            )
            for private in (_ALICE, _BOB)
        )
        if not ledger.chain:
            # Nobody can sign for a chain that has no name.
            return
        plain = PublishEvent(topic="t", content=b"x")
        receipts = await self.submit(plain, forged, signed)
        self.assertEqual([each.execution for each in receipts], [7, 3, 0])
        [event] = await self.allEvents()
        self.assertEqual((event.author, event.extensions), (signed.author, signed.extensions))
        following = AuthorSet(generation=1, authors=(_key(_BOB),))
        change = authorsStatement(ledger.chain, "t", following)
        changes = [
            AuthorChange(following=following, admin=_key(_ALICE), signature=private.sign(change))
            for private in (_BOB, _ALICE)
        ]
        receipts = await self.submit(
            *(ChangeAuthors(topic="t", change=each) for each in changes), signed
        )
        self.assertEqual([each.execution for each in receipts], [3, 0, 7])
        self.assertEqual(self.topic("t").authors, following)

    async def test_signedNumberIsPartOfTheStatement(self) -> None:
        """A statement of version 2 counts with the expected number that it has, and no other."""
        ledger = await self.begin()
        if not ledger.chain:
            # Nobody can sign for a chain that has no name.
            return
        await self.submit(OpenTopic(topic="t"))
        text = statement(ledger.chain, "t", b"x", 5, None, {}, 2, 0)
        author = Authorship(key=_key(_ALICE), signedAt=5, signature=_ALICE.sign(text), statement=2)
        receipts = await self.attempt(
            *(
                PublishEvent(topic="t", content=b"x", author=author, expectedSequence=number)
                for number in (None, 1, 0)
            )
        )
        if receipts is None:
            return
        self.assertEqual([each.execution for each in receipts], [3, 3, 0])
        [event] = await self.allEvents()
        self.assertEqual(event.author, author)

    async def test_keyOfErasedEventPublishesNothing(self) -> None:
        """A key whose event was erased is refused with the id of that event."""
        await self.begin()
        await self.submit(OpenTopic(topic="t"))
        receipts = await self.attempt(
            self.keyed(b"1"),
            EraseEvents(topic="t", ranges=((1, 1),), account="ops", reason="asked"),
        )
        if receipts is None:
            return
        first = receipts[0].eventId
        for _ in range(2):
            found = await self.submit(self.keyed(b"2"), self.keyed(b"1"), self.keyed(b"1", "u"))
            self.assertEqual([each.execution for each in found], [5, 5, 5])
            self.assertEqual([each.eventId for each in found], [first, first, None])
            if not self.fixture.isDurable:
                break
            await self.end()
            await self.startAgain()
        self.assertEqual(len(await self.allEvents()), 1)

    async def test_erasedEventsAreNotRead(self) -> None:
        """Erased events have no content any more, wherever they are read, and keep their places."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        ids = await self.publish("t", b"0", b"1", b"2", b"3")
        erasing = EraseEvents(topic="t", ranges=((2, 3),), account="ops", reason="asked")
        receipts = await self.attempt(erasing)
        if receipts is None:
            return
        self.assertEqual(receipts[0].execution, Execution.DONE)
        block = await self.settle(ledger.readBlock(receipts[0].height))
        for _ in range(2):
            await self.checkErased(ledger, ids, block.timestamp)
            if not self.fixture.isDurable:
                break
            await self.end()
            ledger = await self.startAgain()
        beyond = EraseEvents(topic="t", ranges=((4, 5),), account="ops", reason="asked")
        [refused] = await self.submit(beyond)
        self.assertEqual(refused.execution, Execution.REFUSED)

    async def checkErased(self, ledger: ILedger, ids: Sequence[EventId], time: int) -> None:
        """The second and the third of four events are erased."""
        events = await self.allEvents()
        self.assertEqual([each.content for each in events], [b"0", b"", b"", b"3"])
        self.assertEqual([each.isErased for each in events], [False, True, True, False])
        for number, event in enumerate(events):
            self.assertEqual(event.eventId, ids[number])
            self.assertEqual(await self.settle(ledger.locate(ids[number])), event.position)
        for number in (1, 2):
            with self.assertRaises(EventErased) as caught:
                await self.settle(ledger.getEvent(ids[number]))
            error = caught.exception
            self.assertEqual(
                (error.topic, error.account, error.reason, error.time), ("t", "ops", "asked", time)
            )
        self.assertEqual((await self.settle(ledger.getEvent(ids[3]))).content, b"3")
