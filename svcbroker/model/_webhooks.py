"""
Webhooks as the accounts that made them and operators see them.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ._events import EventId
from ._subscriptions import EventFormat, InterfaceType


@frozen(kw_only=True)
class WebhookStatus:
    """
    A webhook: what was asked for, and how it is. It has no header, no secret, and of the URL only
    the host and port, since a path may hold a secret too.

    @ivar remote: where its events are sent, C{host:port}.
    @ivar owner: the account that made it; empty where there were no credentials.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar batch: the most events in a request; 0 where each is sent alone.
    @ivar batchSeconds: how long the first event of a batch waits for others.
    @ivar maxAttempts: how often an event is tried; 0 has no end.
    @ivar deadLetter: the topic of its dead letters; empty where there are none.
    @ivar format: how events are written.
    @ivar hasTombstones: whether erased events are sent too.
    @ivar isPaused: whether nothing is sent for now.
    @ivar failures: how many requests have failed since the last success.
    @ivar lastError: why the last request failed; empty where none has since the broker started.
    @ivar lastErrorAt: when that was, in milliseconds since the epoch; C{None} without one.
    @ivar oldest: the oldest event that waits, as far as is known.
    @ivar oldestAt: the time of its block, in milliseconds since the epoch.
    @ivar readAt: the time at which this was so.
    """

    subscriptionId: str
    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    tag: str | None
    remote: str
    owner: str
    secret: str
    certificate: str
    batch: int
    batchSeconds: int
    maxAttempts: int
    deadLetter: str
    format: EventFormat
    hasTombstones: bool
    isPaused: bool
    failures: int
    lastError: str
    lastErrorAt: int | None
    oldest: EventId | None
    oldestAt: int | None
    readAt: int


@frozen(kw_only=True)
class WebhookPage:
    """
    Some webhooks, in the order of their ids.

    @ivar next: the id after which the next page begins; C{None} on the last page.
    """

    items: Sequence[WebhookStatus]
    next: str | None
