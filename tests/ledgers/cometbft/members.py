"""
The validators and brokers of a chain that no engine decides.
"""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import Genesis, Transaction, ValidatorChange, ValidatorSet, changePayload
from svcbroker.ledgers._views import TransactionMaker
from svcbroker.ledgers.cometbft._batch import BatchMaker, BrokerIdentity, attest
from svcbroker.ledgers.cometbft._home import publicKey
from svcbroker.model import Request

START = 1_800_000_000_000
"""The time at which the chain begins, in milliseconds since the epoch."""

SEEDS = [bytes([number]) * 32 for number in range(1, 7)]
"""Private keys of validators: of those that begin, and of two that may come later."""

KEYS = [publicKey(seed) for seed in SEEDS]

GENESIS = Genesis(group="g", created=START, validators=tuple(KEYS[:4]))


def identityOf(
    seed: bytes, sponsor: int = 0, *, chain: bytes = GENESIS.chain, attestedOn: bytes | None = None
) -> BrokerIdentity:
    """
    A broker that a validator attests.

    @param sponsor: which of L{SEEDS} attests it.
    @param attestedOn: the chain on which it does, where that is another one.
    """
    attestation = attest(SEEDS[sponsor], attestedOn or chain, publicKey(seed))
    return BrokerIdentity(
        seed=seed, sponsor=KEYS[sponsor], attestation=bytes.fromhex(attestation.signature)
    )


class Broker:
    """
    Makes batches, each following the one before.
    """

    def __init__(self, number: int = 0, sponsor: int = 0) -> None:
        identity = identityOf(bytes([100 + number]) * 32, sponsor)
        self.batches = BatchMaker(GENESIS.chain, identity)
        self.transactions = TransactionMaker(
            GENESIS.chain, self.batches.sender, lambda: START / 1000, bytes
        )
        self.previous = 0

    def make(self, request: Request) -> Transaction:
        """A transaction, in no batch."""
        [made] = self.transactions.makeMany([request])
        return made

    def batch(self, *requests: Request) -> bytes:
        """The next batch."""
        return self.pack(*(self.make(request) for request in requests))

    def pack(self, *transactions: Transaction) -> bytes:
        """The next batch, of transactions that were made."""
        previous, self.previous = self.previous, transactions[-1].nonce
        return self.batches.make(transactions, previous)


def changeTo(*members: int, generation: int = 0, since: Any = (0, 1, 2, 3)) -> ValidatorChange:
    """
    A change of the validators, truly signed by all.

    @param members: which of L{SEEDS} the new set has.
    @param since: which the set before has, of C{generation}.
    """
    following = ValidatorSet(generation + 1, tuple(KEYS[each] for each in members))
    current = ValidatorSet(generation, tuple(KEYS[each] for each in since))
    payload = changePayload(GENESIS.chain, current, following)

    def sign(each: int) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(SEEDS[each]).sign(payload)

    return ValidatorChange(
        following=following,
        approvals=tuple((index, sign(each)) for index, each in enumerate(since)),
        acceptances=tuple(sign(each) for each in members),
    )
