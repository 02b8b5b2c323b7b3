"""
The secrets and certificates of webhooks, and the signatures of requests: those of Standard
Webhooks, and the signature header of earlier releases.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Mapping, Sequence
from os import fsdecode
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from ...net.pem import CertificateError, ClientIdentity
from .webhookkeys import SigningKey

MIN_SECRET: Final = 16
"""The shortest secret, in bytes."""
MAX_SECRETS: Final = 4
"""The most secrets that sign at the same time."""

_PREFIX: Final = b"whsec_"
_HASH: Final = "sha256"
# A line that gives a secret or a certificate a name. Other lines were secrets before there
# were names, so only what cannot be one by accident is read as a name.
_NAMED = re.compile(
    rb"(?P<name>[^\s=]{1,256})\s*=\s*(?:(?P<secret>whsec_\S*)|certificate:\s*(?P<path>\S.*))"
)


@frozen(kw_only=True)
class Secret:
    """
    One secret.

    @ivar key: the key of Standard Webhooks.
    @ivar text: the line of the file, which is the key of C{X-Svc-Signature}.
    """

    key: bytes = field(repr=False)
    text: bytes = field(repr=False)


@frozen(kw_only=True)
class Secrets:
    """
    The secrets that sign requests. While one replaces another there are several for the same use,
    and a request has a signature of each.

    @ivar shared: those of all webhooks that name none.
    @ivar named: those that webhooks may name. A name C{ACCOUNT/NAME} is for that account alone.
    @ivar certificates: those that webhooks may name, and show to their receivers.
    """

    shared: Sequence[Secret] = ()
    named: Mapping[str, Sequence[Secret]] = field(factory=dict)
    certificates: Mapping[str, ClientIdentity] = field(factory=dict)

    def mayUse(self, name: str, account: str) -> bool:
        """Whether there is a secret of this name that an account may use."""
        return name in self.named and _isFor(name, account)

    def certificatesOf(self, account: str) -> Sequence[str]:
        """The names of the certificates that an account may use."""
        return [name for name in self.certificates if _isFor(name, account)]


def _isFor(name: str, account: str) -> bool:
    owner, slash, _ = name.rpartition("/")
    return not slash or owner == account


NO_SECRETS: Final = Secrets()


class SecretMissing(Exception):
    """A webhook names a secret that the operator's file does not have."""


@define(eq=False)
class WebhookSigner:
    """
    Signs requests in the form of Standard Webhooks: HMAC-SHA256 with the operator's secrets, and
    Ed25519 with the broker's own keys; and in the form of earlier releases where a webhook names no
    secret.

    @ivar hasPublic: whether requests have signatures of the broker's keys.
    @ivar hasSecret: whether requests have signatures of the secrets.
    """

    secrets: Secrets = field(default=NO_SECRETS, repr=False)
    hasPublic: bool = field(default=True, kw_only=True)
    hasSecret: bool = field(default=True, kw_only=True)

    def use(self, secrets: Secrets) -> None:
        """Sign with other secrets from now on."""
        self.secrets = secrets

    def sign(
        self,
        name: str,
        messageId: bytes,
        timestamp: bytes,
        body: bytes,
        keys: Sequence[SigningKey] = (),
    ) -> Sequence[tuple[bytes, bytes]]:
        """
        The signatures of a request, as names and values of headers; none where there is neither
        secret nor key.

        @param name: the secret that the webhook names; empty for the shared ones.
        @param messageId: the value of C{webhook-id}.
        @param timestamp: the time of the attempt, in digits.
        @param keys: the broker's keys that sign.
        @raise SecretMissing: there is no secret of this name.
        """
        secrets = self.secrets.named.get(name, ()) if name else self.secrets.shared
        if name and not secrets:
            raise SecretMissing()
        if not self.hasSecret:
            secrets = ()
        timed = timestamp + b"." + body
        signed = messageId + b"." + timed
        signature = b" ".join(
            (
                *(b"v1," + b64encode(hmac.digest(secret.key, signed, _HASH)) for secret in secrets),
                *(key.sign(signed) for key in keys),
            )
        )
        if not signature:
            return ()
        if name or not secrets:
            return ((b"webhook-signature", signature),)
        old = b",".join(
            b"v1=" + hmac.digest(secret.text, timed, _HASH).hex().encode("ascii")
            for secret in secrets
        )
        return ((b"webhook-signature", signature), (b"X-Svc-Signature", old))


def parseSecrets(data: bytes, directory: Path = Path()) -> Secrets:
    """
    The secrets in a file, one a line: C{whsec_} and Base64, any other text, or C{NAME = whsec_...}
    for webhooks that name it. A line C{NAME = certificate:PATH} names a certificate, which is read.
    White space around them, empty lines, and lines that begin with a lone C{#} do not count.

    @param directory: where the paths of certificates begin.
    @raise ValueError: there is none, one is short or malformed, there are too many for the same
        use, or a certificate cannot be used. The text goes after the file's name.
    """
    shared: list[Secret] = []
    named: dict[str, list[Secret]] = {}
    certificates: dict[str, ClientIdentity] = {}
    for line in filter(None, map(bytes.strip, data.splitlines())):
        # Without white space behind it, it may be the beginning of a secret.
        if line.split(maxsplit=1)[0] == b"#":
            continue
        found = _NAMED.fullmatch(line)
        if found is None:
            among, secret = shared, _read(line)
        else:
            try:
                name = found["name"].decode("utf-8")
            except UnicodeDecodeError:
                raise ValueError("has a name that is not UTF-8") from None
            if found["path"] is not None:
                if name in certificates:
                    raise ValueError("has several certificates of one name")
                certificates[name] = _readCertificate(directory / fsdecode(found["path"]))
                continue
            among, secret = named.setdefault(name, []), _read(found["secret"])
        if len(among) == MAX_SECRETS:
            whose = "" if found is None else " of one name"
            raise ValueError(f"has more than {MAX_SECRETS} secrets{whose}")
        among.append(secret)
    if not (shared or named or certificates):
        raise ValueError("has no secret")
    return Secrets(shared=shared, named=named, certificates=certificates)


def _readCertificate(path: Path) -> ClientIdentity:
    try:
        return ClientIdentity.load(path)
    except CertificateError as error:
        raise ValueError(f"names a certificate that cannot be used: {error}") from None
    except OSError as error:
        raise ValueError(
            f"names a certificate that cannot be read: {error.filename}: {error.strerror}"
        ) from None


def _read(text: bytes) -> Secret:
    key = text
    if text.startswith(_PREFIX):
        try:
            key = a2b_base64(text.removeprefix(_PREFIX), strict_mode=True)
        except Error:
            raise ValueError("has a secret that is not whsec_ and Base64") from None
    elif _PREFIX in text:
        raise ValueError("has a line that is neither whsec_... nor NAME = whsec_...")
    if len(key) < MIN_SECRET:
        raise ValueError(f"has a secret of less than {MIN_SECRET} bytes")
    return Secret(key=key, text=text)
