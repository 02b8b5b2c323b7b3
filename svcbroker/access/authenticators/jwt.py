"""
The authenticator of JSON Web Tokens (RFC 7519) that others issue, and the keys that they are signed
with: JSON Web Key Sets (RFC 7517), from a file or over HTTP.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jwt import PyJWK, PyJWTError
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from ...chain import isUsableKey
from ...files import readFile
from ...interfaces import (
    AuthenticatorContext,
    IAccountToken,
    IAuthenticator,
    IBearerToken,
    Identity,
    InvalidDescription,
)
from ...net.addresses import isLoopback
from ...net.deferreds import asDeferred
from ...net.descriptions import Readers, readValues
from ...net.http import HttpClient, HttpError, discardBody, makeClient, readBody
from .. import grantsOf

MAX_SIZE: Final = 256 * 1024
"""The most bytes that a key set may have."""

TIMEOUT: Final = 5.0
"""The longest that fetching a key set may take, in seconds."""

MIN_INTERVAL: Final = 30.0
"""The shortest time after which keys are read again for tokens with unknown ones, in seconds:
anybody can send
such tokens."""

MAX_AGE: Final = 3600.0
"""After how long keys are read again, in seconds: a key that was withdrawn is trusted no longer."""

MAX_WAITING: Final = 1000
"""The number of log-ins that may wait for keys."""

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


SUMMARY: Final = "JSON Web Tokens, signed by one of the keys of a key set."

SETTINGS: Final = {
    "jwks": r"the key set: a file, or a URL such as https\://id.example.org/keys (required)",
    "audience": "what aud of a token must be or hold (required)",
    "issuer": "what iss of a token must be (default: anything)",
    "claim": "where a token has its grants (default svcbroker_grants)",
    "algorithms": "the signatures that are taken, with commas between them "
    f"(default {','.join(ALGORITHMS)})",
}

LEEWAY: Final = 30.0
"""The most that the issuer's clock may be ahead, in seconds."""

MAX_TOKEN: Final = 16 * 1024
"""The most characters that a token may have: verifying one holds the reactor."""

MAX_GRANTS: Final = 200
MAX_NAME: Final = 256

_log = Logger()


@frozen(kw_only=True)
class JwtSettings:
    """
    The settings of a description; see L{SETTINGS}.
    """

    jwks: str | Path
    audience: str
    issuer: str | None = None
    claim: str = "svcbroker_grants"
    algorithms: tuple[str, ...] = ALGORITHMS


def configure(settings: Mapping[str, str]) -> Callable[[AuthenticatorContext], IAuthenticator]:
    """
    See L{IAuthenticatorFactory.configure<svcbroker.interfaces.IAuthenticatorFactory.configure>}.
    """
    values = readValues("the jwt authenticator", settings, _READERS)
    for key in ("jwks", "audience"):
        if key not in values:
            raise InvalidDescription(
                f"{key} is needed: {SETTINGS[key].removesuffix(' (required)')}"
            )
    made = JwtSettings(**values)
    return lambda context: JwtAuthenticator(
        made, context, makeClient(context.reactor, maxBody=MAX_SIZE)
    )


@implementer(IAuthenticator)
class JwtAuthenticator:
    """
    Knows the bearers of tokens, which say themselves who they are and what they may do: C{sub} is
    the account's name, and a claim holds its grants.

    A token is also the password of its account. Verifying one takes less than a millisecond, so
    all of them are checked at once.
    """

    credentialInterfaces = (IBearerToken, IAccountToken)

    def __init__(
        self, settings: JwtSettings, context: AuthenticatorContext, client: HttpClient
    ) -> None:
        """
        @param client: fetches the key set.
        """
        self._settings = settings
        self._context = context
        self._client = client
        self._store = KeyStore(self._readKeys, context.reactor)

    def _readKeys(self) -> Deferred[KeySet]:
        settings = self._settings
        if isinstance(settings.jwks, Path):
            return self._context.runInThread(readKeySet, settings.jwks, settings.algorithms)
        return fetch(self._client, settings.jwks, settings.algorithms)

    @asDeferred
    async def start(self) -> None:
        """
        See L{IAuthenticator}. A server of keys that does not answer does not keep the broker from
        starting: it is asked again when a token comes.
        """
        try:
            self._store.use(await self._store.load())
        except KeysUnreachable as error:
            _log.error("There are no keys for tokens yet: {error}", error=str(error))

    @asDeferred
    async def reload(self) -> Callable[[], None]:
        """
        See L{IAuthenticator}. What is fetched is not the operator's file, so an error of it only
        leaves the keys as they are.
        """
        try:
            keys = await self._store.load()
        except (KeysUnreachable, InvalidDescription) as error:
            if isinstance(self._settings.jwks, Path):
                raise
            _log.error("The keys of tokens stay as they are: {error}", error=str(error))
            return lambda: None
        return lambda: self._store.use(keys)

    def identify(self, name: str) -> Identity | None:
        """See L{IAuthenticator}: there are no accounts without tokens."""
        return None

    def names(self) -> Iterable[str]:
        """See L{IAuthenticator}: there are no accounts without tokens."""
        return ()

    def stop(self) -> None:
        """See L{IAuthenticator}."""
        self._client.close()

    @asDeferred
    async def requestAvatarId(self, credentials: Any) -> Any:
        """See C{ICredentialsChecker}."""
        name = credentials.name if IAccountToken.providedBy(credentials) else ""
        try:
            identity = self._identity(await self._verify(credentials.token))
            if name not in ("", identity.name):
                raise _Refused("it is another account's")
        except _Refused as error:
            _log.debug("A token was refused: {reason}", reason=str(error))
            raise UnauthorizedLogin() from None
        return identity

    async def _verify(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that has a valid signature and is for us."""
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            raise _Refused("it is no signed token")
        header = _readHeader(token)
        algorithm, keyId = header.get("alg"), header.get("kid")
        # All of these are by key pairs, and a key is found for the algorithms of its own kind only.
        if algorithm not in self._settings.algorithms:
            raise _Refused(f"its algorithm is {algorithm!r}")
        if keyId is not None and not isinstance(keyId, str):
            raise _Refused("its kid is no text")
        if "crit" in header:
            raise _Refused("it has critical extensions")
        key = await self._store.find(keyId, algorithm)
        if key is None:
            raise _Refused(f"there is no key {keyId!r} for {algorithm}")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                # Times are compared here, with a clock that is given.
                options={
                    "require": ["sub", "exp", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise _Refused(str(error)) from None
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        now = self._context.now()
        expiresAt = _moment(claims, "exp")
        if expiresAt <= now:
            raise _Refused("it has expired")
        if "nbf" in claims and _moment(claims, "nbf") > now + LEEWAY:
            raise _Refused("it is not valid yet")
        name = claims["sub"]
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise _Refused("its sub cannot be the name of an account")
        lines = claims.get(self._settings.claim, [])
        lines = [lines] if isinstance(lines, str) else lines
        if not isinstance(lines, list) or len(lines) > MAX_GRANTS:
            raise _Refused(f"{self._settings.claim} is no list of at most {MAX_GRANTS} grants")
        try:
            if not all(isinstance(each, str) for each in lines):
                raise ValueError("a grant is not a text")
            grants = grantsOf(lines, name=name)
        except ValueError as error:
            # Its issuer is trusted, and has made a mistake.
            _log.warn(
                "A token of {name} was refused: {claim}: {error}",
                name=name,
                claim=self._settings.claim,
                error=str(error),
            )
            raise _Refused("its grants cannot be read") from None
        return Identity(name=name, grants=grants, expiresAt=expiresAt)


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


def readKeySet(path: Path, algorithms: Collection[str]) -> KeySet:
    """
    Read a key set from a file. Blocks.

    @raise InvalidDescription: it cannot be used.
    """
    try:
        return KeySet.parse(readFile(path), algorithms)
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


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if not set(names) <= set(ALGORITHMS):
        raise ValueError
    return names


_READERS: Final[Readers] = {
    "jwks": (checkSource, "a file's path, a URL with https, or one with http on loopback"),
    "audience": (_text, "a text"),
    "issuer": (_text, "a text"),
    "claim": (_text, "the name of a claim"),
    "algorithms": (_algorithms, f"a list of some of {', '.join(ALGORITHMS)}"),
}


class _Refused(Exception):
    """A token that is not valid. The text, which is for the log, does not show it."""


def _readHeader(token: str) -> Mapping[str, Any]:
    """The header of a token, of which nothing is verified yet."""
    part = token.partition(".")[0]
    try:
        header = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _Refused("its header is malformed")
    return header


def _moment(claims: Mapping[str, Any], name: str) -> float:
    """A time of a token, in seconds since the epoch."""
    value = claims[name]
    try:
        if not isinstance(value, bool):
            moment = float(value) if isinstance(value, int | float) else float("nan")
            if 0 <= moment < float("inf"):
                return moment
    except OverflowError:
        pass
    raise _Refused(f"its {name} is no time")
