"""
Batches: one transaction of the engine is a batch of transactions, signed by its broker.

The engine does not authenticate senders. So a batch carries the broker's key, and the attestation
of that key by a validator. Batches without an attestation by a current validator are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ...chain import (
    Malformed,
    Transaction,
    ValidatorSet,
    decodeBody,
    encodeBody,
    keyAddress,
    verifySignature,
)

_TAG = b"svcbroker/batch\x01"
_CHAIN = len(_TAG)
_KEY = _CHAIN + 32
_SPONSOR = _KEY + 32
_ATTESTATION = _SPONSOR + 32
_PREVIOUS = _ATTESTATION + 64
_NUMBER = struct.Struct(">Q")
_BODY = _PREVIOUS + _NUMBER.size
_SIGNATURE = 64

OVERHEAD = _BODY + _SIGNATURE
"""Bytes that a batch has besides its transactions."""


class Unauthorized(Exception):
    """A batch whose sender may not send. The text says why."""


def attestationPayload(chain: bytes, key: bytes) -> bytes:
    """
    The bytes of an attestation: a validator signs them to let a broker send.

    @param chain: the chain's id.
    @param key: the broker's public key.
    """
    return b"svcbroker/broker\x00" + chain + key


@frozen(kw_only=True)
class BrokerIdentity:
    """
    A broker's identity on a chain.

    @ivar seed: its private key: 32 bytes.
    @ivar sponsor: the public key of the validator that attests it.
    @ivar attestation: the validator's signature over L{attestationPayload}.
    """

    seed: bytes
    sponsor: bytes
    attestation: bytes

    @property
    def key(self) -> bytes:
        """Its public key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()


@frozen(kw_only=True)
class EngineBatch:
    """
    Transactions of one broker, in order.

    @ivar key: the broker's public key.
    @ivar sponsor: the public key of the validator that attests it.
    @ivar previous: the nonce before which the batch may not be executed: that of the last
        transaction in the broker's batch before it. So its batches stay in order, whatever way
        they take from engine to engine.
    """

    key: bytes
    sponsor: bytes
    previous: int
    transactions: Sequence[Transaction]


class BatchMaker:
    """
    Makes a broker's batches.
    """

    def __init__(self, chain: bytes, identity: BrokerIdentity) -> None:
        """
        @param chain: the chain's id.
        """
        self._key = Ed25519PrivateKey.from_private_bytes(identity.seed)
        self._start = _TAG + chain + identity.key + identity.sponsor + identity.attestation
        self.sender = keyAddress(chain, identity.key)

    def make(self, transactions: Sequence[Transaction], previous: int) -> bytes:
        """
        A signed batch.

        @param transactions: their sender is L{sender}.
        @param previous: see L{EngineBatch}.
        """
        body, _ = encodeBody(transactions)
        data = self._start + _NUMBER.pack(previous) + body
        return data + self._key.sign(data)


def readBatch(data: bytes, chain: bytes) -> EngineBatch:
    """
    Read a batch and make sure that its broker has signed it. Whether its sponsor is a validator
    is left to L{checkSponsor}.

    @param chain: the chain's id.
    @raise Malformed: it is not a batch of this chain.
    @raise Unauthorized: it is not signed by its broker, or the attestation is invalid.
    """
    if not data.startswith(_TAG) or len(data) < OVERHEAD:
        raise Malformed("this is not a batch")
    if data[_CHAIN:_KEY] != chain:
        raise Malformed("the batch is of another chain")
    key, sponsor = data[_KEY:_SPONSOR], data[_SPONSOR:_ATTESTATION]
    if not _isAttested(chain, key, sponsor, data[_ATTESTATION:_PREVIOUS]):
        raise Unauthorized("the attestation of the batch's broker is invalid")
    if not verifySignature(key, data[:-_SIGNATURE], data[-_SIGNATURE:]):
        raise Unauthorized("the batch is not signed by its broker")
    transactions = decodeBody(data[_BODY:-_SIGNATURE])
    if not transactions:
        raise Malformed("the batch is empty")
    sender = keyAddress(chain, key)
    if any(transaction.sender != sender for transaction in transactions):
        raise Unauthorized("the batch has transactions of somebody else")
    (previous,) = _NUMBER.unpack_from(data, _PREVIOUS)
    if previous >= min(transaction.nonce for transaction in transactions):
        # It, or two that follow each other, would keep the engines making blocks for ever.
        raise Malformed("the batch follows itself, or one that comes later")
    return EngineBatch(key=key, sponsor=sponsor, previous=previous, transactions=transactions)


def checkSponsor(batch: EngineBatch, validators: ValidatorSet) -> None:
    """
    Check that a current validator attests a batch's broker.

    @raise Unauthorized: none does.
    """
    if batch.sponsor not in validators.keys:
        raise Unauthorized("the batch's broker is attested by no current validator")


@lru_cache(maxsize=4096)
def _isAttested(chain: bytes, key: bytes, sponsor: bytes, attestation: bytes) -> bool:
    return verifySignature(sponsor, attestationPayload(chain, key), attestation)
