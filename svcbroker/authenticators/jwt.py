"""
The authenticator of JSON Web Tokens (RFC 7519) that others issue.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from attrs import frozen
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from ..access import grantsOf
from ..interfaces import (
    AuthenticatorContext,
    IAccountToken,
    IAuthenticator,
    IBearerToken,
    Identity,
    InvalidDescription,
)
from ..net.deferreds import asDeferred
from ..net.descriptions import Readers, readValues
from ..net.http import HttpClient, makeClient
from ._jwks import (
    ALGORITHMS,
    MAX_SIZE,
    KeySet,
    KeyStore,
    KeysUnreachable,
    checkSource,
    fetch,
    readFile,
)

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
"""How far the issuer's clock may be ahead, in seconds."""

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


class _Refused(Exception):
    """A token that is not valid. The text, which is for the log, does not show it."""


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
            return self._context.runInThread(readFile, settings.jwks, settings.algorithms)
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
