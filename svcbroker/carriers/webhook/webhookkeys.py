"""
The broker's own keys that sign requests to webhooks, so that a receiver can show them to others:
signature C{v1a} of Standard Webhooks. The chain certifies each key before it is used.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
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
from ...net.turns import Lock

KEYS: Final = "webhookkeys"
"""The kind of the keys in the metadata store. The name of an entry is its group."""
KEY_TOPIC: Final = "$svc/webhooks"
"""The topic of the records that certify keys. Clients cannot publish to it."""
MAX_KEYS: Final = 4
"""The most keys of a group that sign at the same time."""

_PREFIX: Final = "whpk_"
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


class StoredKeys(Struct, frozen=True):
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
    return _PREFIX + b64encode(key).decode("ascii")


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
                stored = msgspec.json.decode(value, type=StoredKeys).keys
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
        self._store.put(KEYS, group, msgspec.json.encode(StoredKeys(keys=tuple(kept))))
        known.keys = [SigningKey.load(group, each) for each in kept]
