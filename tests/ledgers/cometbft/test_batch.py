"""
Batches: who may send what.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed, ValidatorSet
from svcbroker.ledgers.cometbft._batch import (
    OVERHEAD,
    BatchMaker,
    BrokerIdentity,
    Unauthorized,
    attestationPayload,
    checkSponsor,
    readBatch,
)
from svcbroker.ledgers.cometbft._home import publicKey
from svcbroker.model import OpenTopic, PublishEvent

from .members import GENESIS, KEYS, SEEDS, Broker, identityOf

CHAIN = GENESIS.chain
BROKER = b"k" * 32


class BatchTests(SynchronousTestCase):
    """
    L{readBatch}.
    """

    def setUp(self) -> None:
        broker = Broker()
        broker.transactions.resume(8)
        self.transactions = [
            broker.make(OpenTopic(topic="t")),
            broker.make(PublishEvent(topic="t", content=b"x", extensions={"svc-a": "1"})),
        ]
        self.maker = broker.batches
        self.data = self.maker.make(self.transactions, 7)

    def refused(self, data: bytes, *errors: type[Exception]) -> None:
        """Something is no batch."""
        with self.assertRaises(errors or (Malformed, Unauthorized)):
            readBatch(data, CHAIN)

    def test_batchRoundTrips(self) -> None:
        """A batch is read as it was made."""
        batch = readBatch(self.data, CHAIN)
        self.assertEqual(list(batch.transactions), self.transactions)
        self.assertEqual((batch.previous, batch.sponsor), (7, KEYS[0]))
        self.assertEqual(len(self.data), OVERHEAD + sum(one.size for one in self.transactions) + 4)

    def test_batchIsDeterministic(self) -> None:
        """The same transactions give the same bytes, so that it is known when it comes again."""
        self.assertEqual(self.maker.make(self.transactions, 7), self.data)
        self.assertNotEqual(self.maker.make(self.transactions, 8), self.data)

    def test_flippedBitIsRefused(self) -> None:
        """A batch is refused with any of its bits another one."""
        for index in range(len(self.data)):
            flipped = bytearray(self.data)
            flipped[index] ^= 1 << index % 8
            self.refused(bytes(flipped))

    def test_truncatedBatchIsRefused(self) -> None:
        """A batch is refused that ends early, or goes on."""
        for size in range(len(self.data)):
            self.refused(self.data[:size])
        self.refused(self.data + b"\x00")
        self.refused(self.data * 2)
        self.refused(b"")

    def test_batchOfOtherChainIsRefused(self) -> None:
        """A batch of another chain is refused, although all in it is signed."""
        chain = bytes(32)
        maker = BatchMaker(chain, identityOf(BROKER, chain=chain))
        data = maker.make(self.transactions, 0)
        self.refused(data, Malformed)

    def test_attestationOfOtherChainIsRefused(self) -> None:
        """An attestation for another chain is refused."""
        maker = BatchMaker(CHAIN, identityOf(BROKER, attestedOn=bytes(32)))
        self.refused(maker.make(self.transactions, 0), Unauthorized)

    def test_attestationOfOtherBrokerIsRefused(self) -> None:
        """An attestation of another broker is refused."""
        other = identityOf(b"o" * 32)
        identity = BrokerIdentity(seed=BROKER, sponsor=other.sponsor, attestation=other.attestation)
        self.refused(BatchMaker(CHAIN, identity).make(self.transactions, 0), Unauthorized)

    def test_foreignSenderIsRefused(self) -> None:
        """A broker does not send for another one."""
        maker = BatchMaker(CHAIN, identityOf(BROKER))
        self.refused(maker.make(self.transactions, 0), Unauthorized)

    def test_emptyBatchIsRefused(self) -> None:
        """A batch has something in it."""
        self.refused(self.maker.make([], 0), Malformed)

    def test_batchFollowingItselfIsRefused(self) -> None:
        """A batch follows lower numbers than its own: others could wait for themselves."""
        first = self.transactions[0].nonce
        readBatch(self.maker.make(self.transactions, first - 1), CHAIN)
        for previous in (first, self.transactions[-1].nonce, 2**64 - 1):
            self.refused(self.maker.make(self.transactions, previous), Malformed)

    def test_malformedKeysAreRefused(self) -> None:
        """Keys that are none are refused, as signatures that are none."""
        for start in range(len(self.data) - 64 - 32):
            broken = bytearray(self.data)
            broken[start : start + 32] = b"\xff" * 32
            if bytes(broken) != self.data:
                self.refused(bytes(broken))

    def test_sponsorMustBeCurrentValidator(self) -> None:
        """The attesting validator must be in the current set."""
        batch = readBatch(self.data, CHAIN)
        checkSponsor(batch, GENESIS.validatorSet)
        with self.assertRaises(Unauthorized):
            checkSponsor(batch, ValidatorSet(1, tuple(KEYS[1:4])))

    def test_attestationPayloadIsUnique(self) -> None:
        """The payload that a validator signs for a broker is nothing else that it signs."""
        payload = attestationPayload(CHAIN, publicKey(BROKER))
        self.assertEqual(payload, b"svcbroker/broker\x00" + CHAIN + publicKey(BROKER))
        self.assertEqual(len(SEEDS[0]), 32)
