"""
Batches: one transaction of the engine is a batch of transactions, signed by its broker.

The engine does not authenticate senders. So a batch carries the broker's key, and the attestation
of that key by a validator. Batches without an attestation by a current validator are refused.
L{IdentityFiles} keep this broker's key and its attestation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ...chain import (
    Malformed,
    Transaction,
    ValidatorSet,
    decodeBody,
    encodeBody,
    keyAddress,
    verifySignature,
)
from ...files import readFile
from ...storage import writeFile
from ._home import KeyFileDamaged, publicKey, readValidatorSeed

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


KEY_NAME = "broker.key"
ATTESTATION_NAME = "broker.voucher"
SEED_SIZE = 32


class IdentityMissing(Exception):
    """A broker that may not send to its chain. The text is one line for the operator."""


class Attestation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A validator's signed statement that a broker may send to its chain.

    @ivar broker: the broker's public key.
    @ivar validator: the validator's public key.
    @ivar signature: the validator's signature over L{attestationPayload}.
    """

    broker: str
    validator: str
    signature: str


def attest(seed: bytes, chain: bytes, broker: bytes) -> Attestation:
    """
    Sign an attestation of a broker.

    @param seed: the validator's private key: 32 bytes.
    @param chain: the chain's id.
    @param broker: the broker's public key.
    """
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return Attestation(
        broker=broker.hex(),
        validator=publicKey(seed).hex(),
        signature=key.sign(attestationPayload(chain, broker)).hex(),
    )


def brokerSeed(directory: Path, entropy: Callable[[int], bytes]) -> bytes:
    """
    A broker's private key, which is made where there is none.

    @param directory: the ledger's directory; it exists.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise IdentityMissing: the file is no key.
    @raise OSError: it cannot be read or written.
    """
    path = directory / KEY_NAME
    if not path.exists():
        writeFile(path, entropy(SEED_SIZE).hex().encode("ascii") + b"\n", 0o600)
    try:
        seed = bytes.fromhex(readFile(path).decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise IdentityMissing(f"{path} is not a key: put it back from a backup")
    return seed


def encodeAttestation(attestation: Attestation) -> bytes:
    """The file of an attestation."""
    return msgspec.json.encode(attestation) + b"\n"


@frozen(kw_only=True)
class IdentityFiles:
    """
    The files of a broker's identity.

    @ivar directory: the ledger's directory; it exists.
    @ivar home: the engine's home. Where its validator's key can be read, that validator attests the
        broker.
    """

    directory: Path
    home: Path

    def load(
        self, chain: bytes, validators: ValidatorSet, entropy: Callable[[int], bytes]
    ) -> BrokerIdentity:
        """
        The broker's identity; its key is made where there is none.

        @param chain: the chain's id.
        @param validators: the current set; each of them may attest the broker.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @raise IdentityMissing: no validator attests it, or a file is damaged.
        """
        try:
            seed = brokerSeed(self.directory, entropy)
            broker = publicKey(seed)
            attestation = self._attestation(chain, validators, broker)
        except (OSError, KeyFileDamaged) as error:
            raise IdentityMissing(str(error)) from error
        return BrokerIdentity(
            seed=seed,
            sponsor=bytes.fromhex(attestation.validator),
            attestation=bytes.fromhex(attestation.signature),
        )

    def _attestation(self, chain: bytes, validators: ValidatorSet, broker: bytes) -> Attestation:
        path = self.directory / ATTESTATION_NAME
        if path.exists():
            attestation = self._read(path, chain, broker)
            if bytes.fromhex(attestation.validator) in validators.keys:
                return attestation
        seed = readValidatorSeed(self.home)
        if seed is not None and publicKey(seed) in validators.keys:
            attestation = attest(seed, chain, broker)
            writeFile(path, encodeAttestation(attestation))
            return attestation
        if path.exists():
            raise IdentityMissing(
                f"the validator that attests this broker in {path} is not a validator any more: "
                "have another one sign an attestation (svcbroker net engine attest)"
            )
        raise IdentityMissing(
            f"no validator attests this broker: have one sign {broker.hex()} "
            f"(svcbroker net engine attest), and put the attestation into {path}"
        )

    def _read(self, path: Path, chain: bytes, broker: bytes) -> Attestation:
        try:
            attestation = msgspec.json.decode(readFile(path), type=Attestation)
            isGood = attestation.broker == broker.hex() and verifySignature(
                bytes.fromhex(attestation.validator),
                attestationPayload(chain, broker),
                bytes.fromhex(attestation.signature),
            )
        except (msgspec.MsgspecError, ValueError):
            isGood = False
        if not isGood:
            raise IdentityMissing(f"{path} is not an attestation of this broker on this chain")
        return attestation
