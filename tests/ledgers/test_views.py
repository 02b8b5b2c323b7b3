"""
Tests of the transactions that ledgers make of requests.
"""

from __future__ import annotations

from itertools import count
from random import Random

from msgspec import structs
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import SALT_SIZE, Transaction
from svcbroker.ledgers._views import SALTS_AT_ONCE, TransactionMaker
from svcbroker.model import PRIVATE_PREFIX, Authorship, CloseTopic, PublishEvent, Request


class SaltTests(SynchronousTestCase):
    """
    The salts of publishes.
    """

    def setUp(self) -> None:
        self.sizes: list[int] = []
        self.numbers = count()
        self.maker = TransactionMaker(bytes(32), bytes(20), lambda: 0.0, self.entropy)

    def entropy(self, size: int) -> bytes:
        """Bytes of which no two salts are alike."""
        self.sizes.append(size)
        salts = range(size // SALT_SIZE)
        return b"".join([next(self.numbers).to_bytes(SALT_SIZE, "big") for _ in salts])

    def make(self, events: int) -> list[int]:
        """Publish some events in one call, and read the numbers of their salts."""
        request = PublishEvent(topic="a", content=b"x")
        made = self.maker.makeMany([request] * events)
        return [int.from_bytes(transaction.seal, "big") for transaction in made]

    def test_noSaltIsUsedTwice(self) -> None:
        """Each event has its own salt, in one call or in several."""
        made = [
            number for events in (1, 1, 3, 2 * SALTS_AT_ONCE, 1) for number in self.make(events)
        ]
        made += [number for _ in range(2 * SALTS_AT_ONCE) for number in self.make(1)]
        self.assertEqual(len(made), 4 * SALTS_AT_ONCE + 6)
        self.assertEqual(sorted(set(made)), sorted(made))

    def test_manySaltsAreMadeAtOnce(self) -> None:
        """Random bytes are asked for once for many events."""
        for _ in range(SALTS_AT_ONCE):
            self.make(1)
        self.assertEqual(self.sizes, [SALTS_AT_ONCE * SALT_SIZE])
        self.make(SALTS_AT_ONCE + 1)
        self.assertEqual(self.sizes[1:], [(SALTS_AT_ONCE + 1) * SALT_SIZE])


class LikenessTests(SynchronousTestCase):
    """
    Publishes of one call that differ in their contents alone are made together.
    """

    def test_togetherAndAloneAreTheSame(self) -> None:
        """Whatever stands between them."""
        extensions, other = {"svc-a": "1"}, {"svc-b": "2", f"{PRIVATE_PREFIX}c": "3"}
        author = Authorship(key=bytes(32), signedAt=1, signature=bytes(64))
        requests: list[Request] = []
        for number, choice in enumerate(Random(1).choices(range(9), k=400)):
            plain = PublishEvent(topic="a", content=bytes([choice + 1]), extensions=extensions)
            different: list[Request] = [
                plain,
                structs.replace(plain, topic="b"),
                structs.replace(plain, extensions=other),
                structs.replace(plain, idempotencyKey="k"),
                structs.replace(plain, author=author),
                structs.replace(plain, expectedSequence=number),
                structs.replace(plain, idempotencyKey=f"k{number}", publisher="ann"),
                structs.replace(plain, extensions=other, author=author, idempotencyKey="k"),
                CloseTopic(topic="a"),
            ]
            requests += [*[plain] * (choice % 3), *[different[choice]] * (number % 3)]

        def maker() -> TransactionMaker:
            numbers = count()
            return TransactionMaker(
                bytes(32),
                bytes(20),
                lambda: 0.0,
                lambda size: b"".join(
                    next(numbers).to_bytes(SALT_SIZE, "big") for _ in range(size // SALT_SIZE)
                ),
            )

        together, alone = maker(), maker()
        made = together.makeMany(requests)
        self.assertEqual(made, [each for one in requests for each in alone.makeMany([one])])
        for number, transaction in enumerate(made, 1):
            self.assertEqual(transaction.nonce, number)
            entry = transaction.head + transaction.seal + transaction.content
            self.assertEqual(Transaction.decode(entry), transaction)
