"""
The forms of sessions, subscriptions and exchanges on disk, and the packet identifiers of deliveries
with QoS 1 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from ...broker import MetadataStore

SESSION = "mqtt-session"
"""The kind of L{KeptSession} on disk."""
SUBSCRIPTION = "mqtt-subscription"
"""The kind of L{KeptSubscription} on disk. Its name is that of the session and the filter."""
QOS_2 = "mqtt-qos2"
"""The kind of L{KeptExchanges} on disk."""


class KeptSession(Struct, frozen=True, kw_only=True):
    """
    A session as it stands on disk.

    @ivar account: the account that it belongs to; empty where there were no credentials.
    @ivar expiry: the session expiry interval in seconds.
    @ivar absentSince: when its client disconnected, in seconds since the epoch; C{None} while it
        is connected.
    @ivar subscriptions: those of a session that was stored before each had an entry of its own.
    @ivar owner: who made it; empty if it was stored before owners were.
    """

    group: str
    clientId: str
    expiry: int
    absentSince: float | None = None
    subscriptions: list[KeptSubscription] = []
    owner: str = ""
    account: str = ""


class KeptExchanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Exchanges with QoS 2 that are not complete, as they stand on disk.

    @ivar received: packet identifiers of publishes that are in the log and not released.
    @ivar keys: the idempotency keys of publishes that may be in the log, by packet identifier.
    @ivar sent: deliveries without PUBREC, by packet identifier.
    @ivar released: deliveries with PUBREC and without PUBCOMP, by packet identifier.
    @ivar completed: deliveries with PUBCOMP that the log may hand over once more.
    """

    received: list[int] = []
    keys: dict[int, str] = {}
    sent: dict[int, Key] = {}
    released: dict[int, Key | None] = {}
    completed: list[Key] = []


NO_EXCHANGES: Final = KeptExchanges()


Key: TypeAlias = tuple[str, int, int]
"""An event on its way to one subscription: the subscription's id, height, index."""


class KeptSubscription(Struct, frozen=True, kw_only=True):
    """
    A subscription as it stands on disk.

    @ivar topicFilter: the filter as the client wrote it, C{$share/} included.
    @ivar subscriptionId: the id of the subscription of the log.
    @ivar start: the position after which it began; C{None} before it was opened.
    @ivar format: the name of the format of its events; empty where it asks for none.
    @ivar hasTombstones: whether it gets erased events too.
    @ivar isJoined: whether others of its session have the same subscription of the log.
    """

    topicFilter: str
    subscriptionId: str
    start: tuple[int, int] | None = None
    qos: int = 0
    noLocal: bool = False
    retainAsPublished: bool = False
    identifier: int = 0
    tag: str | None = None
    format: str = ""
    hasTombstones: bool = False
    isJoined: bool = False


PACKET_IDS: Final = "mqtt-packet-ids"
"""The kind of a page on disk. Its name is that of the session and the number of the page."""

_PAGE: Final = 64
"""The number of packet identifiers of a page."""

_Page: TypeAlias = dict[str, list[tuple[int, int, int]]]
"""Packet identifier, height and index of each message, by the id of its subscription."""

_decoder: Final = msgspec.json.Decoder(_Page)


class KeptPacketIds:
    """
    Stores which message was sent with which packet identifier, so that it is sent again with the
    same one after a restart [MQTT-4.4.0-1] [MQTT5-4.4.0-1].

    Only a sending changes what is stored, and only if its message is still unacknowledged when the
    metadata store writes next. An acknowledgement changes nothing: the position of the subscription
    says what is acknowledged. A page is removed once no message of it is in flight.
    """

    def __init__(
        self,
        store: MetadataStore,
        group: str,
        clientId: str,
        find: Callable[[range], Mapping[int, Key]],
    ) -> None:
        """
        @param find: the keys of the messages in flight with QoS 1, of these packet identifiers.
        """
        self._store = store
        self._session = (group, clientId)
        self._find = find
        # Pages of messages that were sent since the last write, and pages that are stored.
        self._touched: set[int] = set()
        self._kept: set[int] = set()

    def sent(self, first: int, count: int) -> None:
        """Record consecutive packet identifiers that were just used."""
        if not self._touched:
            self._store.beforeWrite(self._write)
        self._touched.update(range(first // _PAGE, (first + count - 1) // _PAGE + 1))

    def ended(self) -> None:
        """Remove what is not in flight any more: the connection has ended."""
        if self._kept:
            self._store.beforeWrite(self._write)

    def _write(self) -> None:
        touched, self._touched = self._touched, set()
        for page in touched:
            found: _Page = {}
            for packetId, key in sorted(self._find(_packetIds(page)).items()):
                found.setdefault(key[0], []).append((packetId, key[1], key[2]))
            if found:
                self._store.put(PACKET_IDS, self._name(page), msgspec.json.encode(found))
                self._kept.add(page)
            else:
                self._remove(page)
        for page in self._kept - touched:
            if not self._find(_packetIds(page)):
                self._remove(page)

    def restore(self, pages: Mapping[int, bytes]) -> dict[Key, int]:
        """
        Read the stored pages.

        @return: the packet identifiers. Messages may have been acknowledged since.
        """
        self._kept.update(pages)
        return {
            (subscriptionId, height, index): packetId
            for value in pages.values()
            for subscriptionId, places in _decoder.decode(value).items()
            for packetId, height, index in places
        }

    def discard(self) -> None:
        """Remove all pages."""
        self._touched.clear()
        for page in tuple(self._kept):
            self._remove(page)

    def _remove(self, page: int) -> None:
        self._kept.discard(page)
        self._store.remove(PACKET_IDS, self._name(page))

    def _name(self, page: int) -> str:
        return msgspec.json.encode((*self._session, page)).decode("utf-8")


def _packetIds(page: int) -> range:
    return range(page * _PAGE, page * _PAGE + _PAGE)


def pagesBySession(store: MetadataStore) -> dict[tuple[str, str], dict[int, bytes]]:
    """All stored pages, by group and client identifier, and number."""
    pages: dict[tuple[str, str], dict[int, bytes]] = {}
    for name, value in store.items(PACKET_IDS):
        group, clientId, page = msgspec.json.decode(name, type=tuple[str, str, int])
        pages.setdefault((group, clientId), {})[page] = value
    return pages
