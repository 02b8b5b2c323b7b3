"""
Keys of accounts that are locked by a password: files of the third version of the Web3 Secret
Storage, as geth, Besu and wallets write them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import pbkdf2_hmac
from hmac import compare_digest
from typing import Any, Final
from uuid import UUID

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec import Struct

with suppress(ImportError):
    from Crypto.Hash import keccak

    # That of OpenSSL refuses what some wallets have written.
    from Crypto.Protocol.KDF import scrypt

MAX_MEMORY: Final = 512 * 1024 * 1024
"""The most bytes that a password's derivation may take: a file can ask for any number."""

MAX_ROUNDS: Final = 10_000_000
"""The most rounds that a password's derivation may take."""

_VERSION: Final = 3
_COST, _BLOCK, _LANES = 16384, 8, 1
_SIZE: Final = 32


class KeystoreError(ValueError):
    """A file that is no locked key, or a password that does not fit it."""


class _Derivation(Struct, kw_only=True):
    """How a password becomes a key."""

    dklen: int = _SIZE
    salt: str
    n: int = 0
    r: int = 0
    p: int = 0
    c: int = 0
    prf: str = "hmac-sha256"


class _Vector(Struct):
    """Where the cipher begins."""

    iv: str


class _Crypto(Struct):
    """The locked key."""

    cipher: str
    ciphertext: str
    cipherparams: _Vector
    kdf: str
    kdfparams: _Derivation
    mac: str


class _File(Struct):
    """The whole file."""

    version: int
    crypto: _Crypto


_decoder = msgspec.json.Decoder(_File)


def isKeystore(data: bytes) -> bool:
    """Whether a key's file is locked by a password."""
    return data.lstrip()[:1] == b"{"


def unlock(data: bytes, password: bytes) -> bytes:
    """
    The secret key of a locked file. It takes a second, on purpose.

    @raise KeystoreError: the file is none, or the password does not fit.
    """
    try:
        # Some programs write the names in capitals.
        found = _decoder.decode(data.replace(b'"Crypto"', b'"crypto"'))
        crypto = found.crypto
        cipher, vector, mac = (
            bytes.fromhex(each) for each in (crypto.ciphertext, crypto.cipherparams.iv, crypto.mac)
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise KeystoreError(f"it is not a locked key: {error}") from None
    if found.version != _VERSION or crypto.cipher != "aes-128-ctr" or len(vector) != 16:
        raise KeystoreError("it is locked in a way that is not known: version 3 is")
    derived = _derive(crypto, password)
    if not compare_digest(_check(derived, cipher), mac):
        raise KeystoreError("the password does not fit")
    secret = _crypt(derived[:16], vector, cipher)
    if len(secret) != _SIZE:
        raise KeystoreError("the key in it has another length")
    return secret


def _derive(crypto: _Crypto, password: bytes) -> bytes:
    made = crypto.kdfparams
    try:
        salt = bytes.fromhex(made.salt)
        if crypto.kdf == "scrypt" and 128 * made.n * made.r * max(1, made.p) <= MAX_MEMORY:
            return _scrypt(password, salt, made.n, made.r, made.p)
        isKnown = crypto.kdf == "pbkdf2" and made.prf == "hmac-sha256"
        if isKnown and 0 < made.c <= MAX_ROUNDS and made.dklen == _SIZE:
            return pbkdf2_hmac("sha256", password, salt, made.c, _SIZE)
    except (ValueError, OverflowError) as error:
        raise KeystoreError(f"its password cannot be used: {error}") from None
    raise KeystoreError("its password is used in a way that is not known, or takes too much")


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    derive: Any = scrypt
    return bytes(derive(password, salt, _SIZE, cost, block, lanes))


def _check(derived: bytes, cipher: bytes) -> bytes:
    return bytes(keccak.new(digest_bits=256, data=derived[16:32] + cipher).digest())


def _crypt(key: bytes, vector: bytes, data: bytes) -> bytes:
    stream = Cipher(AES(key), CTR(vector)).encryptor()
    return stream.update(data) + stream.finalize()


def lock(secret: bytes, address: bytes, password: bytes, entropy: Callable[[int], bytes]) -> bytes:
    """
    The file of a key that a password locks.

    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    """
    salt, vector = entropy(_SIZE), entropy(16)
    made = {"n": _COST, "r": _BLOCK, "p": _LANES, "dklen": _SIZE, "salt": salt.hex()}
    derived = _scrypt(password, salt, _COST, _BLOCK, _LANES)
    cipher = _crypt(derived[:16], vector, secret)
    record: dict[str, Any] = {
        "version": _VERSION,
        "id": str(UUID(bytes=entropy(16), version=4)),
        "address": address.hex(),
        "crypto": {
            "cipher": "aes-128-ctr",
            "cipherparams": {"iv": vector.hex()},
            "ciphertext": cipher.hex(),
            "kdf": "scrypt",
            "kdfparams": made,
            "mac": _check(derived, cipher).hex(),
        },
    }
    return msgspec.json.encode(record) + b"\n"
