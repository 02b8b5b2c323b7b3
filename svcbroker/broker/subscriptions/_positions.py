"""
Where durable subscriptions resume.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from zope.interface import Interface, implementer

from ...model import Position
from .._metadata import MetadataStore


@frozen
class StoredPosition:
    """
    Where a subscription resumes.

    @ivar position: everything up to it is done.
    @ivar acknowledged: events beyond it that are done too.
    """

    position: Position
    acknowledged: tuple[Position, ...] = ()


class IPositions(Interface):
    """
    Keeps positions through restarts. Called by L{Subscriptions
    <svcbroker.broker.subscriptions.Subscriptions>} in the reactor thread.
    """

    def get(subscriptionId: str, group: str) -> StoredPosition | None:
        """The position kept under an id in a group; C{None} where there is none."""

    def put(subscriptionId: str, group: str, position: StoredPosition) -> None:
        """
        Keep a position from now on. It may reach the disk a little later; a crash before that
        loses it, and events are delivered again.
        """

    def remove(subscriptionId: str) -> None:
        """Forget a position. Removing one that is not kept changes nothing."""

    def flush() -> Deferred[None]:
        """Fires when everything until now is on stable storage."""

    def count() -> int:
        """How many positions are kept."""


@implementer(IPositions)
class MemoryPositions:
    """Keeps positions in memory only."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, StoredPosition]] = {}

    def get(self, subscriptionId: str, group: str) -> StoredPosition | None:
        kept = self._kept.get(subscriptionId)
        return kept[1] if kept is not None and kept[0] == group else None

    def put(self, subscriptionId: str, group: str, position: StoredPosition) -> None:
        self._kept[subscriptionId] = (group, position)

    def remove(self, subscriptionId: str) -> None:
        self._kept.pop(subscriptionId, None)

    def flush(self) -> Deferred[None]:
        return succeed(None)

    def count(self) -> int:
        return len(self._kept)


def positionGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return _FORM.decode(value)[0]


_KIND = "position"
_FORM = msgspec.json.Decoder(tuple[str, tuple[int, int], list[tuple[int, int]]])


@implementer(IPositions)
class KeptPositions:
    """Keeps positions on disk."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    def get(self, subscriptionId: str, group: str) -> StoredPosition | None:
        kept = self._metadata.get(_KIND, subscriptionId)
        if kept is None:
            return None
        keptGroup, position, acknowledged = _FORM.decode(kept)
        if keptGroup != group:
            return None
        return StoredPosition(
            Position(*position), tuple(Position(*place) for place in acknowledged)
        )

    def put(self, subscriptionId: str, group: str, position: StoredPosition) -> None:
        value = msgspec.json.encode((group, position.position, position.acknowledged))
        self._metadata.put(_KIND, subscriptionId, value)

    def remove(self, subscriptionId: str) -> None:
        self._metadata.remove(_KIND, subscriptionId)

    def flush(self) -> Deferred[None]:
        return self._metadata.flush()

    def count(self) -> int:
        return self._metadata.count(_KIND)
