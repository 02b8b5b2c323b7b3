"""
The secrets, certificates and keys of webhooks, and the signatures of requests: those of Standard
Webhooks, and the signature header of earlier releases.

The broker's own keys make signature C{v1a} of Standard Webhooks, which a receiver can show to
others. The chain certifies each key before it is used.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable, Mapping, Sequence
from os import fsdecode
from pathlib import Path
from typing import Final

import msgspec
from attrs import define, field, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from twisted.logger import Logger

from ...broker import KeyCertification, MetadataStore
from ...errors import LedgerUnavailable, ParameterInvalid
from ...interfaces import ILedger, IProvableLedger
from ...model import WebhookKey
from ...net.pem import CertificateError, ClientIdentity
from ...net.turns import Lock

KEYS: Final = "webhookkeys"
"""The kind of the keys in the metadata store. The name of an entry is its group."""
KEY_TOPIC: Final = "$svc/webhooks"
"""The topic of the records that certify keys. Clients cannot publish to it."""
MAX_KEYS: Final = 4
"""The most keys of a group that sign at the same time."""

_PURPOSE: Final = "webhook key"


class WebhookKeyRecord(Struct, frozen=True, omit_defaults=True):
    """
    The content of an event that certifies a key, as JSON.

    @ivar key: the public key: C{whpk_} and Base64.
    @ivar replaces: the public keys that it takes the place of.
    @ivar until: when these sign no more, in milliseconds since the epoch.
    """

    key: str
    replaces: tuple[str, ...] = ()
    until: int = 0


class StoredKey(Struct, frozen=True):
    """
    A key that signs requests, in the metadata store.

    @ivar number: its number in the group, from 1.
    @ivar seed: the private key.
    @ivar eventId: the event by which the chain certifies it.
    @ivar until: when it signs no more, in milliseconds since the epoch; C{None} for the newest.
    """

    number: int
    seed: bytes
    eventId: str
    until: int | None = None

    def __repr__(self) -> str:
        return f"<StoredKey {self.number}>"


class StoredWebhookKeys(Struct, frozen=True):
    """The keys of a group in the metadata store, the newest last."""

    keys: tuple[StoredKey, ...]


def keysGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return name


@frozen
class SigningKey:
    """
    A key that signs requests.

    @ivar number: its number in the group, from 1.
    @ivar key: the public key, and where the chain certifies it.
    """

    number: int
    key: WebhookKey
    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def load(cls, group: str, stored: StoredKey) -> SigningKey:
        """The key that is kept."""
        private = Ed25519PrivateKey.from_private_bytes(stored.seed)
        key = WebhookKey(
            group=group,
            key=private.public_key().public_bytes_raw(),
            eventId=stored.eventId,
            until=stored.until,
        )
        return cls(stored.number, key, private)

    @property
    def text(self) -> str:
        """The public key, as Standard Webhooks writes it."""
        return keyText(self.key.key)

    def sign(self, signed: bytes) -> bytes:
        """The signature of a request, as it stands in the header."""
        return b"v1a," + b64encode(self.private.sign(signed))


def keyText(key: bytes) -> str:
    """A public key, as Standard Webhooks writes it."""
    return "whpk_" + b64encode(key).decode("ascii")


@define(eq=False)
class _GroupKeys:
    """
    The keys of a group.

    @ivar ledger: its ledger.
    @ivar keys: the keys that sign, the newest last.
    """

    ledger: IProvableLedger
    keys: Sequence[SigningKey] = ()
    lock: Lock = field(factory=Lock)


class WebhookKeys:
    """
    The keys of all groups whose ledgers can certify one.

    A key follows from the ledger's private key when it is made, and is kept from then on, so that
    it also signs once that key has changed, until it is replaced.
    """

    _log = Logger()

    def __init__(
        self,
        ledgers: Mapping[str, ILedger],
        store: MetadataStore,
        now: Callable[[], float],
    ) -> None:
        """
        @param ledgers: by the ids of their groups.
        @param now: the wall clock: seconds since the epoch.
        """
        self._store = store
        self._now = now
        self._groups: dict[str, _GroupKeys] = {}
        for group, ledger in ledgers.items():
            provable: IProvableLedger | None = IProvableLedger(ledger, None)
            if provable is not None:
                self._groups[group] = _GroupKeys(provable)

    def load(self) -> None:
        """Read the keys that are kept. Called once, before any other method."""
        for group, each in self._groups.items():
            value = self._store.get(KEYS, group)
            if value is not None:
                stored = msgspec.json.decode(value, type=StoredWebhookKeys).keys
                each.keys = [SigningKey.load(group, key) for key in stored]

    def published(self) -> Sequence[WebhookKey]:
        """The public keys that sign now, those of all groups, the newest of each group last."""
        return [key.key for each in self._groups.values() for key in self._valid(each)]

    def _valid(self, group: _GroupKeys) -> Sequence[SigningKey]:
        now = self._now() * 1000
        return [each for each in group.keys if each.key.until is None or each.key.until > now]

    async def current(self, group: str) -> Sequence[SigningKey]:
        """
        The keys that sign the requests of a group, the newest last. The first one is made when it
        is asked for; there is none where the ledger cannot certify any, as that of a copy.

        @raise BrokerError: the ledger did not certify it now.
        """
        known = self._groups.get(group)
        if known is None:
            return ()
        if not known.keys:
            async with known.lock:
                if not known.keys:
                    await self._add(group, known, 0)
        return self._valid(known)

    async def rotate(self, group: str, overlap: int) -> Sequence[WebhookKey]:
        """
        Make another key, and let those before it sign for some time more.

        @param overlap: for how many seconds.
        @return: the keys that sign now, the newest last.
        @raise ParameterInvalid: the ledger of the group certifies no keys, or too many sign now.
        @raise BrokerError: the ledger did not certify it.
        """
        known = self._groups.get(group)
        if known is None:
            raise ParameterInvalid("groupId: the ledger of this group certifies no keys")
        async with known.lock:
            if overlap and len(self._valid(known)) >= MAX_KEYS:
                raise ParameterInvalid(
                    f"overlap: {MAX_KEYS} keys sign already; 0 ends those before the new one"
                )
            await self._add(group, known, overlap)
            if not known.keys:
                raise ParameterInvalid("groupId: the ledger of this group certifies no keys")
        await self._store.flush()
        return [each.key for each in self._valid(known)]

    async def _add(self, group: str, known: _GroupKeys, overlap: int) -> None:
        until = int(self._now() + overlap) * 1000
        former = self._valid(known)
        number = max((each.number for each in known.keys), default=0) + 1
        try:
            seed = known.ledger.deriveKey(f"{_PURPOSE} {number}")
        except LedgerUnavailable:
            return
        public = keyText(Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw())
        record = WebhookKeyRecord(
            key=public,
            replaces=tuple(each.text for each in former),
            until=until if former else 0,
        )
        content = msgspec.json.encode(record)
        chain = KeyCertification(known.ledger, KEY_TOPIC)
        eventId = await chain.findLast(content) or await chain.publish(content)
        self._log.info(
            "group {group}: the chain certifies the key of webhooks: {key}, event {eventId}",
            group=group,
            key=public,
            eventId=eventId,
        )
        kept = [
            StoredKey(
                number=each.number,
                seed=each.private.private_bytes_raw(),
                eventId=each.key.eventId,
                until=until if each.key.until is None else min(until, each.key.until),
            )
            for each in former
            if overlap
        ]
        kept.append(StoredKey(number=number, seed=seed, eventId=str(eventId)))
        self._store.put(KEYS, group, msgspec.json.encode(StoredWebhookKeys(keys=tuple(kept))))
        known.keys = [SigningKey.load(group, each) for each in kept]


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
