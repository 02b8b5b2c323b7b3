"""
Who this broker is on a chain: its key, and the validator that vouches for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ...chain import ValidatorSet, verifySignature
from ._batch import Identity, voucherPayload
from ._keyfiles import KeyFileDamaged, publicKey, readValidatorSeed, writeFile

KEY_NAME = "broker.key"
VOUCHER_NAME = "broker.voucher"
SEED_SIZE = 32


class IdentityMissing(Exception):
    """A broker that may not send to its chain. The text is one line for the operator."""


class Voucher(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A validator's word for a broker, as it is handed over.

    @ivar broker: the broker's public key.
    @ivar validator: the validator's public key.
    @ivar signature: the validator's signature over L{voucherPayload}.
    """

    broker: str
    validator: str
    signature: str


def vouch(seed: bytes, chain: bytes, broker: bytes) -> Voucher:
    """
    Vouch for a broker.

    @param seed: the validator's private key: 32 bytes.
    @param chain: the chain's id.
    @param broker: the broker's public key.
    """
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return Voucher(
        broker=broker.hex(),
        validator=publicKey(seed).hex(),
        signature=key.sign(voucherPayload(chain, broker)).hex(),
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
        seed = bytes.fromhex(path.read_text("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise IdentityMissing(f"{path} is not a key: put it back from a backup")
    return seed


def encodeVoucher(voucher: Voucher) -> bytes:
    """The file of a voucher."""
    return msgspec.json.encode(voucher) + b"\n"


@frozen(kw_only=True)
class IdentityFiles:
    """
    Where a broker's identity is kept.

    @ivar directory: the ledger's directory; it exists.
    @ivar home: the engine's home. Where its validator's key can be read, that one vouches.
    """

    directory: Path
    home: Path

    def load(
        self, chain: bytes, validators: ValidatorSet, entropy: Callable[[int], bytes]
    ) -> Identity:
        """
        The broker's identity; its key is made where there is none.

        @param chain: the chain's id.
        @param validators: who may vouch for it.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @raise IdentityMissing: no validator vouches for it, or a file is not what it should be.
        """
        try:
            seed = brokerSeed(self.directory, entropy)
            broker = publicKey(seed)
            voucher = self._voucher(chain, validators, broker)
        except (OSError, KeyFileDamaged) as error:
            raise IdentityMissing(str(error)) from error
        return Identity(
            seed=seed,
            sponsor=bytes.fromhex(voucher.validator),
            voucher=bytes.fromhex(voucher.signature),
        )

    def _voucher(self, chain: bytes, validators: ValidatorSet, broker: bytes) -> Voucher:
        path = self.directory / VOUCHER_NAME
        if path.exists():
            voucher = self._read(path, chain, broker)
            if bytes.fromhex(voucher.validator) in validators.keys:
                return voucher
        seed = readValidatorSeed(self.home)
        if seed is not None and publicKey(seed) in validators.keys:
            voucher = vouch(seed, chain, broker)
            writeFile(path, encodeVoucher(voucher))
            return voucher
        if path.exists():
            raise IdentityMissing(
                f"who vouches for this broker in {path} is not a validator any more: have another "
                "one do so"
            )
        raise IdentityMissing(
            f"no validator vouches for this broker: have one sign {broker.hex()}, and put what it "
            f"gives into {path}"
        )

    def _read(self, path: Path, chain: bytes, broker: bytes) -> Voucher:
        try:
            voucher = msgspec.json.decode(path.read_bytes(), type=Voucher)
            isGood = voucher.broker == broker.hex() and verifySignature(
                bytes.fromhex(voucher.validator),
                voucherPayload(chain, broker),
                bytes.fromhex(voucher.signature),
            )
        except (msgspec.MsgspecError, ValueError):
            isGood = False
        if not isGood:
            raise IdentityMissing(f"{path} does not vouch for this broker on this chain")
        return voucher
