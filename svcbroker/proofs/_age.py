"""
Closed contents: files of age, version 1 (U{https://c2sp.org/age}), that are opened by identities
of their recipients, or by the one key of the file. All that a stranger may claim in one is bounded.

Such a content is padded: it is followed by a line feed, and by spaces up to the size that Padme
gives. C{age -d} shows those too, which hurt no text, JSON, or archive. Pinned by
C{docs/vectors/closed.json}.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import field, frozen
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..model import ENCRYPTED, PADDING

MAX_HEADER: Final = 64 * 1024
MAX_RECIPIENTS: Final = 256
"""
The most bytes and recipients of a header. Each recipient costs each identity some 40 microseconds.
"""

_TOO_LARGE: Final = f"its header has more than {MAX_RECIPIENTS} recipients or {MAX_HEADER} bytes"
FILE_KEY_SIZE: Final = 16
_VERSION: Final = b"age-encryption.org/v1"
_LINE: Final = 64
_MAC: Final = 43
_CHUNK: Final = 64 * 1024 + 16
_ALPHABET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


class NotOpened(ValueError):
    """A closed content that cannot be opened. The text says why, in one line."""


class NotForIdentities(NotOpened):
    """A content that is closed to others."""


@frozen
class AgeIdentity:
    """
    A private key that opens contents.

    @ivar public: the public key: the recipient.
    """

    public: bytes
    private: X25519PrivateKey = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> AgeIdentity:
        """
        Read an identity: C{AGE-SECRET-KEY-1...}.

        @raise ValueError: it is none. The text says nothing of it.
        """
        private = X25519PrivateKey.from_private_bytes(_bech32(text, "age-secret-key-"))
        return cls(private.public_key().public_bytes_raw(), private)


def readIdentities(text: str) -> list[AgeIdentity]:
    """
    Read identities, one a line, as age writes them. Lines that are blank or begin with # are
    comments.

    @raise ValueError: a line is no identity, or there is none.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                found.append(AgeIdentity.parse(line.strip()))
            except ValueError:
                raise ValueError(f"line {number} is no identity: AGE-SECRET-KEY-1...") from None
    if not found:
        raise ValueError("there is no identity in it: AGE-SECRET-KEY-1...")
    return found


def isRecipient(text: str) -> bool:
    """Whether a text is a recipient of age for X25519: C{age1...}."""
    try:
        return len(_bech32(text, "age")) == 32 and text.islower()
    except ValueError:
        return False


def _bech32(text: str, prefix: str) -> bytes:
    """
    The 32 bytes of a text in Bech32.

    @raise ValueError: it is no such text, or has another prefix.
    """
    found, _, rest = text.lower().rpartition("1")
    values = [_ALPHABET.find(each) for each in rest]
    isOneCase = text in (text.lower(), text.upper())
    if not (isOneCase and found == prefix and len(values) == 58 and min(values) >= 0):
        raise ValueError("it is not in Bech32")
    check = 1
    codes = found.encode("ascii")
    for value in [*(each >> 5 for each in codes), 0, *(each & 31 for each in codes), *values]:
        top, check = check >> 25, (check & 0x1FFFFFF) << 5 ^ value
        for place, generator in enumerate(_GENERATORS):
            check ^= generator if top >> place & 1 else 0
    number = 0
    for value in values[:-6]:
        number = number << 5 | value
    if check != 1 or number & 15:
        raise ValueError("its check digits do not hold")
    return (number >> 4).to_bytes(32, "big")


_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


@frozen
class AgeFile:
    """
    A closed content.

    @ivar header: the bytes that the MAC is of.
    @ivar mac: the MAC: whoever has the file's key, has this header.
    @ivar wrapped: for each recipient of X25519 an ephemeral key and the file's key.
    @ivar payload: what comes after the header.
    """

    header: bytes
    mac: bytes
    wrapped: Sequence[tuple[bytes, bytes]]
    payload: bytes

    @classmethod
    def parse(cls, data: bytes) -> AgeFile:
        """
        Read the header, within bounds.

        @raise NotOpened: it is malformed, too large, of another version, or has a passphrase.
        """
        if not data.startswith(_VERSION + b"\n"):
            isOther = data.startswith(_VERSION[:-1])
            raise NotOpened("age has another version there" if isOther else "it is no file of age")
        end = data.find(b"\n--- ", 0, MAX_HEADER)
        if end < 0:
            raise NotOpened(_TOO_LARGE if len(data) > MAX_HEADER else "its header is cut")
        start = end + len(b"\n--- ")
        after = start + _MAC
        mac = _unbase64(data[start:after])
        if data[after : after + 1] != b"\n":
            raise NotOpened("its header is cut")
        wrapped = []
        for arguments, body in _stanzas(data[:end].split(b"\n")[1:]):
            if arguments[0] == b"scrypt":
                raise NotOpened("it is closed with a passphrase, and not to recipients")
            if arguments[0] == b"X25519":
                share = _unbase64(arguments[1]) if len(arguments) == 2 else b""
                if (len(share), len(body)) != (32, FILE_KEY_SIZE + 16):
                    raise NotOpened("a recipient of its header is malformed")
                wrapped.append((share, body))
        return cls(data[: end + 4], mac, wrapped, data[after + 1 :])

    def fileKey(self, identities: Sequence[AgeIdentity]) -> bytes:
        """
        The key of this one file.

        @raise NotForIdentities: none of the identities opens it.
        """
        for identity in identities:
            for share, body in self.wrapped:
                try:
                    shared = identity.private.exchange(X25519PublicKey.from_public_bytes(share))
                except ValueError:
                    raise NotOpened("a recipient of its header is malformed") from None
                key = _derive(shared, share + identity.public, b"age-encryption.org/v1/X25519")
                try:
                    return ChaCha20Poly1305(key).decrypt(bytes(12), body, None)
                except InvalidTag:
                    continue
        raise NotForIdentities("no identity here opens it")

    def open(self, fileKey: bytes) -> bytes:
        """
        Open a file: its content, with the padding.

        @param fileKey: the key of the file; the header's MAC says whether it is that.
        @raise NotOpened: it is not, or the file was changed.
        """
        mac = HMAC(_derive(fileKey, b"", b"header"), SHA256())
        mac.update(self.header)
        try:
            mac.verify(self.mac)
        except InvalidSignature:
            raise NotOpened("the MAC of its header does not hold") from None
        cipher = ChaCha20Poly1305(_derive(fileKey, self.payload[:16], b"payload"))
        pieces = []
        ends = range(16 + _CHUNK, max(len(self.payload), 17) + _CHUNK, _CHUNK)
        for number, end in enumerate(ends):
            isLast = end >= len(self.payload)
            nonce = number.to_bytes(11, "big") + bytes([isLast])
            try:
                pieces.append(cipher.decrypt(nonce, self.payload[end - _CHUNK : end], None))
            except InvalidTag:
                raise NotOpened("its content was changed, or is cut") from None
            if number and not pieces[-1]:
                raise NotOpened("its content ends with an empty piece")
        return b"".join(pieces)


def _stanzas(lines: Sequence[bytes]) -> Iterator[tuple[list[bytes], bytes]]:
    """
    The arguments and the body of each recipient of a header.

    @raise NotOpened: a line is malformed, or there are too many.
    """
    place = count = 0
    while place < len(lines):
        arguments = lines[place][3:].split(b" ")
        isGood = all(each and all(33 <= byte <= 126 for byte in each) for each in arguments)
        if not (lines[place].startswith(b"-> ") and isGood):
            raise NotOpened("a line of its header is malformed")
        body, line = b"", bytes(_LINE)
        while len(line) == _LINE:
            place += 1
            line = lines[place] if place < len(lines) else bytes(_LINE + 1)
            body += line
        if len(line) > _LINE:
            raise NotOpened("a line of its header is malformed")
        place += 1
        count += 1
        if count > MAX_RECIPIENTS:
            raise NotOpened(_TOO_LARGE)
        yield arguments, _unbase64(body)


def _unbase64(text: bytes) -> bytes:
    try:
        data = b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        data = b""
    if b64encode(data).rstrip(b"=") != text:
        raise NotOpened("its header is not in canonical base64")
    return data


def _derive(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(key)


def padded(content: bytes) -> bytes:
    """A content with its padding, which makes it at most 12 % larger, and tells 1 of log2 sizes."""
    least = len(content) + 1
    exponent = least.bit_length() - 1
    mask = (1 << exponent - exponent.bit_length()) - 1 if exponent else 0
    return content + b"\n" + b" " * (((least + mask) & ~mask) - least)


def unpadded(plain: bytes, extensions: Mapping[str, str]) -> bytes:
    """
    A content without its padding, if the extensions of its event say that it has one.

    @raise NotOpened: the padding is malformed or unknown.
    """
    padding = extensions.get(PADDING)
    if padding is None:
        return plain
    if padding != "spaces":
        raise NotOpened(f"its padding is of an unknown kind: {padding[:40]!r}")
    content = plain.rstrip(b" ")
    if not content.endswith(b"\n"):
        raise NotOpened("its padding is malformed")
    return content[:-1]


def openContent(
    content: bytes, extensions: Mapping[str, str], identities: Sequence[AgeIdentity]
) -> bytes:
    """
    Open the content of an event.

    @raise NotOpened: it is not opened; L{NotForIdentities} where it is closed to others.
    """
    _checkKind(extensions)
    file = AgeFile.parse(content)
    return unpadded(file.open(file.fileKey(identities)), extensions)


def openWithKey(content: bytes, extensions: Mapping[str, str], fileKey: bytes) -> bytes:
    """
    Open the content of an event with the key of its file.

    @raise NotOpened: it is not its key, or the content cannot be opened.
    """
    _checkKind(extensions)
    return unpadded(AgeFile.parse(content).open(fileKey), extensions)


def _checkKind(extensions: Mapping[str, str]) -> None:
    if extensions.get(ENCRYPTED) != "age":
        raise NotOpened("it is closed by something else than age")
