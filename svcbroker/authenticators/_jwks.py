"""
The keys that tokens are signed with: JSON Web Key Sets (RFC 7517), from a file or over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jwt import PyJWK, PyJWTError
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from .. import files
from ..chain import isUsableKey
from ..interfaces import InvalidDescription
from ..net.addresses import isLoopback
from ..net.deferreds import asDeferred
from ..net.http import HttpClient, HttpError, discardBody, readBody

MAX_SIZE: Final = 256 * 1024
"""The most bytes that a key set may have."""

TIMEOUT: Final = 5.0
"""How long fetching a key set may take, in seconds."""

MIN_INTERVAL: Final = 30.0
"""How often keys are read again for tokens with unknown ones at most, in seconds: anybody can send
such tokens."""

MAX_AGE: Final = 3600.0
"""After how long keys are read again, in seconds: a key that was withdrawn is trusted no longer."""

MAX_WAITING: Final = 1000
"""How many log-ins may wait for keys."""

_MIN_RSA_BITS: Final = 2048

# What each kind of key can verify, by its type and curve (RFC 7518, RFC 8037, RFC 8812).
_ALGORITHMS: Final[Mapping[tuple[object, object], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("EC", "secp256k1"): ("ES256K",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}

ALGORITHMS: Final = tuple(dict.fromkeys(each for some in _ALGORITHMS.values() for each in some))
"""The signatures that can be verified. All of them are by key pairs: with a secret that verifies
them, tokens could be made."""

_log = Logger()


class KeysUnreachable(Exception):
    """The server of a key set does not answer, or not now. The text is one line."""


@frozen
class KeySet:
    """
    The keys of a key set that verify signatures.

    @ivar keys: by algorithms and key ids; those without an id have an empty one.
    """

    keys: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, raw: bytes, algorithms: Collection[str]) -> KeySet:
        """
        Read a key set. Keys for anything but one of these algorithms are left out.

        @raise ValueError: it is none, or has no key that can be used.
        """
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            raise ValueError("is not JSON") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError('is not a key set: {"keys": [...]}')
        keys: dict[str, dict[str, Any]] = {}
        for each in listed:
            keyId = each.get("kid", "")
            if not isinstance(keyId, str):
                raise ValueError("has a key whose kid is not text")
            for algorithm in _algorithmsOf(each):
                if algorithm in algorithms:
                    known = keys.setdefault(algorithm, {})
                    if keyId in known:
                        raise ValueError(f"has two keys for {algorithm} with the kid {keyId!r}")
                    known[keyId] = _readKey(each, algorithm)
        if not keys:
            raise ValueError(f"has no key for {', '.join(algorithms)}")
        return cls(keys)

    def find(self, keyId: str | None, algorithm: str) -> Any:
        """
        The key of a token; C{None} where there is none.

        @param keyId: what the token names; C{None} where it names none, which does where there is
            but one.
        """
        known = self.keys.get(algorithm, {})
        if keyId is None:
            return next(iter(known.values())) if len(known) == 1 else None
        return known.get(keyId)


def _algorithmsOf(key: Mapping[str, Any]) -> tuple[str, ...]:
    operations = key.get("key_ops", ["verify"])
    kind = (key.get("kty"), key.get("crv"))
    if key.get("use", "sig") != "sig" or not isinstance(operations, list):
        return ()
    if "verify" not in operations or not all(isinstance(each, str | None) for each in kind):
        return ()
    able = _ALGORITHMS.get(kind, ())
    return tuple(each for each in able if key.get("alg", each) == each)


def _readKey(key: Mapping[str, Any], algorithm: str) -> Any:
    what = f"the key {key.get('kid', 'without a kid')!r}"
    if "d" in key:
        raise ValueError(f"holds the private half of {what}, which only the issuer may have")
    try:
        made = PyJWK(dict(key), algorithm).key
    except (PyJWTError, ValueError, TypeError):
        raise ValueError(f"{what} is malformed") from None
    if getattr(made, "key_size", 0) < _MIN_RSA_BITS and key["kty"] == "RSA":
        raise ValueError(f"{what} has fewer than {_MIN_RSA_BITS} bits")
    if isinstance(made, Ed25519PublicKey) and not isUsableKey(made.public_bytes_raw()):
        raise ValueError(f"{what} is not a usable Ed25519 key")
    return made


def checkSource(text: str) -> str | Path:
    """
    Read where a key set is: C{https://...}, C{http://...} on loopback, or a file's path.

    @raise ValueError: it is none of them.
    """
    if "://" not in text:
        if not text.strip() or not text.isprintable():
            raise ValueError
        return Path(text).absolute()
    parts = urlsplit(text)
    isSafe = parts.scheme == "https" or (
        parts.scheme == "http" and isLoopback(parts.hostname or "")
    )
    # Reading the port raises C{ValueError} where it is no number.
    if not isSafe or not parts.hostname or parts.port == 0 or parts.username is not None:
        raise ValueError
    if not text.isascii() or not text.isprintable() or " " in text or parts.fragment:
        raise ValueError
    return text


def readFile(path: Path, algorithms: Collection[str]) -> KeySet:
    """
    Read a key set from a file. Blocks.

    @raise InvalidDescription: it cannot be used.
    """
    try:
        return KeySet.parse(files.readFile(path), algorithms)
    except OSError as error:
        raise InvalidDescription(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidDescription(f"{path} {error}") from None


@asDeferred
async def fetch(client: HttpClient, url: str, algorithms: Collection[str]) -> KeySet:
    """
    Fetch a key set.

    @raise KeysUnreachable: the server does not answer, or is out of order.
    @raise InvalidDescription: what it answers with is no key set that can be used.
    """
    try:
        answer = await client.request("GET", url, timeout=TIMEOUT, maxBody=MAX_SIZE)
        if answer.code != 200:
            discardBody(answer)
            text = f"{url} answered with status {answer.code}"
            raise (KeysUnreachable if answer.code >= 500 else InvalidDescription)(text)
        return KeySet.parse(await readBody(answer), algorithms)
    except HttpError as error:
        raise KeysUnreachable(f"{url} {error}") from error
    except ValueError as error:
        raise InvalidDescription(f"{url} {error}") from None


class KeyStore:
    """
    The keys as they are now. They are read again when a token names an unknown one, which a new
    key is, and when they have grown old; but not often, and once for all who wait.
    """

    def __init__(self, read: Callable[[], Deferred[KeySet]], clock: IReactorTime) -> None:
        """
        @param read: reads the key set. Fails with L{KeysUnreachable} or L{InvalidDescription}.
        """
        self._read = read
        self._seconds = clock.seconds
        self._waiting: list[Deferred[None]] | None = None
        self._nextRead = 0.0
        self.use(KeySet({}))

    def use(self, keys: KeySet) -> None:
        """Use these keys from now on."""
        self._keys = keys
        self._staleAt = self._seconds() + MAX_AGE

    @asDeferred
    async def load(self) -> KeySet:
        """
        Read the key set.

        @raise KeysUnreachable: its server does not answer.
        @raise InvalidDescription: it cannot be used.
        """
        self._nextRead = self._seconds() + MIN_INTERVAL
        return await self._read()

    @asDeferred
    async def find(self, keyId: str | None, algorithm: str) -> Any:
        """The key of a token, as L{KeySet.find}."""
        key = self._keys.find(keyId, algorithm)
        if key is None or self._seconds() >= self._staleAt:
            await self._refresh()
            key = self._keys.find(keyId, algorithm)
        return key

    async def _refresh(self) -> None:
        """Read the keys again, where the last time is long enough ago. Errors are logged."""
        if self._waiting is None:
            if self._seconds() < self._nextRead:
                return
            self._waiting = []
            self._reread().addBoth(self._answer)
        # Where reading took no time, there is nothing to wait for.
        if self._waiting is not None and len(self._waiting) < MAX_WAITING:
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            await waiter

    @asDeferred
    async def _reread(self) -> None:
        try:
            self.use(await self.load())
        except (KeysUnreachable, InvalidDescription) as error:
            _log.error("The keys of tokens stay as they are: {error}", error=str(error))

    def _answer(self, result: Any) -> Any:
        waiting, self._waiting = self._waiting, None
        for waiter in waiting or ():
            if not waiter.called:
                waiter.callback(None)
        return result
