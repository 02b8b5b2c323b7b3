"""
What all connections have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from ...broker import DEFAULT_GROUP, Keeper
from ...broker.subscriptions import Subscriptions
from ...interfaces import ILedger
from .publishing import Publisher
from .retained import RetainedIndex
from .settings import MqttSettings

_SEPARATOR: Final = "/"


@frozen(kw_only=True)
class Group:
    """
    One group, as MQTT uses it.

    @ivar ledger: its log.
    @ivar publisher: writes into it.
    @ivar retained: knows its retained messages.
    """

    ledger: ILedger
    publisher: Publisher
    retained: RetainedIndex


@frozen(kw_only=True)
class Context:
    """
    What all connections have in common.

    @ivar groups: the groups by their id.
    @ivar subscriptions: where events come from.
    @ivar store: keeps state on disk.
    @ivar clock: measures time.
    @ivar now: the wall clock: seconds since the epoch.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    """

    groups: Mapping[str, Group]
    subscriptions: Subscriptions
    store: Keeper
    clock: IReactorTime
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    settings: MqttSettings


def makeContext(
    ledgers: Mapping[str, ILedger],
    subscriptions: Subscriptions,
    store: Keeper,
    clock: IReactorTime,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    settings: MqttSettings,
) -> Context:
    """
    A context for the groups of these ledgers.
    """
    groups = {}
    for group, ledger in ledgers.items():
        retained = RetainedIndex(ledger, store, clock)
        publisher = Publisher(ledger, retained, settings, now)
        groups[group] = Group(ledger=ledger, publisher=publisher, retained=retained)
    return Context(
        groups=groups,
        subscriptions=subscriptions,
        store=store,
        clock=clock,
        now=now,
        entropy=entropy,
        settings=settings,
    )


def groupOf(userName: str | None) -> str:
    """
    The group that a user name chooses: C{group/account}; without a slash it is an account of
    group C{1}.
    """
    if userName is None or _SEPARATOR not in userName:
        return DEFAULT_GROUP
    return userName.split(_SEPARATOR, 1)[0].strip() or DEFAULT_GROUP
