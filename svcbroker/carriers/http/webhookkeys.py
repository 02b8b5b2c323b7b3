"""
The public keys that sign requests to webhooks, for their receivers and those whom they show them
to: a set of JSON Web Keys (RFC 7517, RFC 8037) at a well-known path.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from twisted.web.server import Request

from ...broker import Calls
from ...model import WebhookKey
from .logins import Credentials
from .routes import Route, encode, respond

PATH: Final = "/.well-known/webhook-keys"
"""The path of the keys."""

_FRESH: Final = b"max-age=300"


class JsonWebKey(Struct, frozen=True):
    """
    A public key.

    @ivar kid: its thumbprint (RFC 7638).
    @ivar x: the key, in URL-safe Base64.
    @ivar whpk: the key, as Standard Webhooks writes it.
    @ivar group: the group whose webhooks it signs for.
    @ivar eventId: the event by which the chain of that group certifies it.
    @ivar exp: when it signs no more, in seconds since the epoch, where another one has replaced it.
    """

    kid: str
    x: str
    whpk: str
    group: str
    eventId: str
    exp: int | UnsetType = UNSET
    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    alg: Literal["EdDSA"] = "EdDSA"
    use: Literal["sig"] = "sig"


class JsonWebKeys(Struct, frozen=True):
    """The keys that sign now."""

    keys: list[JsonWebKey]


def jsonWebKey(key: WebhookKey) -> JsonWebKey:
    """The record of a key."""
    x = _base64url(key.key)
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return JsonWebKey(
        kid=_base64url(sha256(members.encode()).digest()),
        x=x,
        whpk="whpk_" + b64encode(key.key).decode(),
        group=key.group,
        eventId=key.eventId,
        exp=UNSET if key.until is None else key.until // 1000,
    )


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def webhookKeyRoutes(calls: Calls) -> Iterator[Route]:
    """The route of the keys. They are public: nobody needs credentials."""

    def keys(request: Request) -> bytes:
        request.setHeader(b"Cache-Control", _FRESH)
        found = [jsonWebKey(each) for each in calls.webhooks.publicKeys()]
        return respond(request, encode(JsonWebKeys(found)))

    yield Route(path=PATH, methods=("GET",), handler=keys, credentials=Credentials.IGNORED)
