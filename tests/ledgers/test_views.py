"""
Tests of the transactions that ledgers make of requests.
"""

from __future__ import annotations

from itertools import count

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import SALT_SIZE
from svcbroker.ledgers._views import SALTS_AT_ONCE, TransactionMaker
from svcbroker.model import PublishEvent


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
