"""
Bytes of Ethereum: hashes, addresses, RLP, words of the ABI, signed transactions, and files of keys
that are locked by a password.

Legacy transactions of EIP-155 alone are made: each chain takes them. It needs the extra C{evm}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import pbkdf2_hmac
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec import Struct

from ...chain import Malformed
from ...files import readFile
from ...storage import writeFile

try:
    from coincurve import PrivateKey
    from Crypto.Hash import keccak as _keccak

    # That of OpenSSL refuses what some wallets have written.
    from Crypto.Protocol.KDF import scrypt
except ImportError as _error:  # pragma: no cover
    _MISSING: ImportError | None = _error
else:
    _MISSING = None

WORD: Final = 32
ADDRESS_SIZE: Final = 20
KEY_SIZE: Final = 32

Item: TypeAlias = "bytes | int | Sequence[Item]"
"""A value that RLP encodes."""


class KeyUnusable(Exception):
    """A file that is no account's key. The text is one line for the operator."""


def checkInstalled() -> str:
    """A line that says what is missing; empty where the extra is installed."""
    if _MISSING is None:
        return ""
    return f"the evm ledger needs more packages ({_MISSING.name}): pip install 'svcbroker[evm]'"


def keccak256(data: bytes) -> bytes:
    """The Keccak-256 hash, which is not SHA3-256."""
    return bytes(_keccak.new(digest_bits=256, data=data).digest())


def encodeRlp(item: Item) -> bytes:
    """The RLP encoding of bytes, of a number, or of a list of such."""
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    if isinstance(item, bytes):
        if len(item) == 1 and item[0] < 0x80:
            return item
        return _rlpLength(len(item), 0x80) + item
    body = b"".join(map(encodeRlp, item))
    return _rlpLength(len(body), 0xC0) + body


def _rlpLength(length: int, offset: int) -> bytes:
    if length < 56:
        return bytes([offset + length])
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([offset + 55 + len(size)]) + size


def selector(signature: str) -> bytes:
    """The first bytes of a call: C{selector("submit(bytes)")}."""
    return keccak256(signature.encode("ascii"))[:4]


def word(value: int | bytes) -> bytes:
    """A number, an address or a hash as a word of the ABI."""
    if isinstance(value, int):
        return value.to_bytes(WORD, "big")
    return value.rjust(WORD, b"\x00")


def packBytes(data: bytes) -> bytes:
    """A byte string as the ABI has it: its length, and its bytes in whole words."""
    return word(len(data)) + data + bytes(-len(data) % WORD)


def unpackBytes(data: bytes) -> bytes:
    """
    The byte string that is the only value of some data.

    @raise Malformed: there is none, or more.
    """
    if len(data) < 2 * WORD or data[:WORD] != word(WORD):
        raise Malformed("the data of a log is not a byte string")
    length = int.from_bytes(data[WORD : 2 * WORD], "big")
    end = 2 * WORD + length
    if len(data) != end + -length % WORD or any(data[end:]):
        raise Malformed("the byte string of a log is not as long as it says")
    return data[2 * WORD : end]


def readAddress(text: str) -> bytes:
    """
    Read an address: C{0x} and 40 hexadecimal digits, with their checksum (EIP-55) or without.

    @raise ValueError: it is none, or its checksum is wrong.
    """
    if len(text) != 2 + 2 * ADDRESS_SIZE or not text.startswith("0x"):
        raise ValueError(f"{text!r} is not an address such as 0x and 40 hexadecimal digits")
    try:
        address = bytes.fromhex(text[2:])
    except ValueError:
        raise ValueError(f"{text!r} has characters that are not hexadecimal digits") from None
    isMixed = text[2:] not in (text[2:].lower(), text[2:].upper())
    if _MISSING is None and isMixed and showAddress(address) != text:
        raise ValueError(f"the checksum of {text} is wrong: a character is mistyped")
    return address


def showAddress(address: bytes) -> str:
    """An address with its checksum (EIP-55)."""
    digits = address.hex()
    hash = keccak256(digits.encode("ascii")).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= 8 else digit
        for digit, nibble in zip(digits, hash, strict=False)
    )


@frozen(kw_only=True)
class SignedTransaction:
    """
    A transaction of the chain as it is sent.

    @ivar hash: what the chain calls it.
    """

    nonce: int
    raw: bytes
    hash: bytes


class EvmAccount:
    """
    An account of the chain.

    @ivar address: its address.
    """

    def __init__(self, secret: bytes) -> None:
        """
        @param secret: its private key: 32 bytes.
        @raise ValueError: they are none.
        """
        self.secret = secret
        self._key: Any = PrivateKey(secret)
        point = self._key.public_key.format(compressed=False)
        self.address = keccak256(point[1:])[-ADDRESS_SIZE:]

    @classmethod
    def load(cls, path: Path, password: Path | None = None) -> EvmAccount:
        """
        Read the file of a key: 64 hexadecimal digits, or a keystore, which takes a second.

        @param password: the file of a keystore's password.
        @raise KeyUnusable: it holds something else, or the password does not fit.
        @raise OSError: it cannot be read.
        """
        data = readFile(path)
        if isKeystore(data):
            if password is None:
                raise KeyUnusable(f"{path} is locked: name the file of its password")
            try:
                return cls(unlock(data, readFile(password).rstrip(b"\r\n")))
            except ValueError as error:
                raise KeyUnusable(f"{path}: {error}") from None
        text = data.decode("ascii", "replace").strip().removeprefix("0x")
        try:
            if len(text) != 2 * KEY_SIZE:
                raise ValueError
            return cls(bytes.fromhex(text))
        except ValueError:
            raise KeyUnusable(
                f"{path} is not an account's key, which is {2 * KEY_SIZE} hexadecimal digits, or a "
                "keystore: make one with svcbroker net evm account"
            ) from None

    @classmethod
    def create(
        cls, path: Path, entropy: Callable[[int], bytes], password: Path | None = None
    ) -> EvmAccount:
        """
        Make a key and write its file, for its owner alone.

        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param password: the file of a password that locks it.
        @raise FileExistsError: there is one.
        """
        if path.exists():
            raise FileExistsError(f"{path} is there already")
        account = cls(entropy(KEY_SIZE))
        data = account.secret.hex().encode("ascii") + b"\n"
        if password is not None:
            words = readFile(password).rstrip(b"\r\n")
            data = lock(account.secret, account.address, words, entropy)
        writeFile(path, data, 0o600)
        return account

    def sign(
        self, *, chainId: int, nonce: int, gasPrice: int, gas: int, to: bytes, data: bytes
    ) -> SignedTransaction:
        """
        Sign a transaction that sends no value.

        @param to: the called contract; empty to make one of C{data}.
        """
        fields: list[Item] = [nonce, gasPrice, gas, to, 0, data]
        digest = keccak256(encodeRlp([*fields, chainId, 0, 0]))
        made = self._key.sign_recoverable(digest, hasher=None)
        r, s = int.from_bytes(made[:32], "big"), int.from_bytes(made[32:64], "big")
        raw = encodeRlp([*fields, made[64] + 35 + 2 * chainId, r, s])
        return SignedTransaction(nonce=nonce, raw=raw, hash=keccak256(raw))


def contractAddress(sender: bytes, nonce: int) -> bytes:
    """The address of the contract that an account makes with a nonce."""
    return keccak256(encodeRlp([sender, nonce]))[-ADDRESS_SIZE:]


MAX_MEMORY: Final = 512 * 1024 * 1024
"""The most bytes that a password's derivation may take: a file can ask for any number."""

MAX_ROUNDS: Final = 10_000_000
"""The most rounds that a password's derivation may take."""

_VERSION: Final = 3
_COST, _BLOCK, _LANES = 16384, 8, 1
_SIZE: Final = 32


class KeystoreError(ValueError):
    """
    A file that is no locked key, or a password that does not fit it. Such files are of the third
    version of the Web3 Secret Storage, as geth, Besu and wallets write them.
    """


class _Derivation(Struct, kw_only=True):
    """The derivation of a key from a password."""

    dklen: int = _SIZE
    salt: str
    n: int = 0
    r: int = 0
    p: int = 0
    c: int = 0
    prf: str = "hmac-sha256"


class _Vector(Struct):
    """The beginning of the cipher."""

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
    return keccak256(derived[16:32] + cipher)


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
