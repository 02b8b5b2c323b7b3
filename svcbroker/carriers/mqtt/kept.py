"""
The forms of sessions on disk.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .subscription import KeptSubscription, Key

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
