"""
This broker's identity on a chain: its key, and a validator's attestation of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ...chain import ValidatorSet, verifySignature
from ...files import readFile
from ...storage import writeFile
from ._batch import BrokerIdentity, attestationPayload
from ._home import KeyFileDamaged, publicKey, readValidatorSeed

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
