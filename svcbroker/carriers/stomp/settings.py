"""
What the STOMP carrier takes, and how long it waits.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, gt

from .frames import FrameLimits


@frozen(kw_only=True)
class StompSettings:
    """
    The bounds of one STOMP connection.

    @ivar frames: how large a frame may be.
    @ivar maxPublishes: how many frames may wait for the chain. While as many wait, nothing more is
        read.
    @ivar maxPublishBytes: how much of contents and receipts may wait for the chain, beside one
        frame's. As above.
    @ivar maxSubscriptions: the most subscriptions.
    @ivar maxFilters: the most topics and patterns of a subscription.
    @ivar maxFilterBytes: the most bytes of those of all subscriptions together.
    @ivar defaultPrefetch: how many events an acknowledging subscription is sent ahead of its
        acknowledgements when it does not say.
    @ivar maxPrefetch: the most that it can ask for.
    @ivar maxUnacknowledgedBytes: how much may be sent ahead of acknowledgements on all
        subscriptions together; an event counts as its content and 512 bytes.
    @ivar maxTransactions: the most open transactions.
    @ivar maxTransactionFrames: the most frames in all of them.
    @ivar maxTransactionBytes: the most content in all of them.
    @ivar connectTimeout: how long a client may take to CONNECT, in seconds.
    @ivar canBeatEvery: the shortest time between heart-beats that a client can ask for, in
        milliseconds.
    @ivar wantsBeatEvery: the shortest time in which a client is asked to be heard of that is
        willing to be, in milliseconds.
    @ivar maxUnread: how much is written to a client that does not read, beside events, before
        nothing more is read from it, in bytes.
    """

    frames: FrameLimits = FrameLimits()
    maxPublishes: int = field(default=1024, validator=gt(0))
    maxPublishBytes: int = field(default=4 * 1024 * 1024, validator=gt(0))
    maxSubscriptions: int = field(default=1000, validator=gt(0))
    maxFilters: int = field(default=100, validator=gt(0))
    maxFilterBytes: int = field(default=64 * 1024, validator=gt(0))
    defaultPrefetch: int = field(default=1000, validator=gt(0))
    maxPrefetch: int = field(default=10_000, validator=gt(0))
    maxUnacknowledgedBytes: int = field(default=8 * 1024 * 1024, validator=gt(0))
    maxTransactions: int = field(default=100, validator=gt(0))
    maxTransactionFrames: int = field(default=1000, validator=gt(0))
    maxTransactionBytes: int = field(default=4 * 1024 * 1024, validator=gt(0))
    connectTimeout: float = field(default=30.0, validator=gt(0))
    canBeatEvery: int = field(default=1000, validator=ge(0))
    wantsBeatEvery: int = field(default=10_000, validator=ge(0))
    maxUnread: int = field(default=64 * 1024, validator=gt(0))
