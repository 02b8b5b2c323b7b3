"""
The groups that a broker serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import field, frozen
from attrs.validators import gt

from ..access import Principal
from ..errors import GroupUnknown
from ..interfaces import ILedger

DEFAULT_GROUP: Final = "1"

_SHOWN: Final = 100
"""How much of the id of an unknown group is shown, in characters."""


@frozen(kw_only=True)
class Limits:
    """
    What the broker takes and how long it waits.

    @ivar maxContent: the largest content of an event, in bytes.
    @ivar chainTimeout: how long a caller waits for each answer of the chain, in seconds.
    @ivar reservedTopics: topics that the broker itself writes to: clients may neither publish to
        them nor open or close them.
    """

    maxContent: int = field(default=1024 * 1024, validator=gt(0))
    chainTimeout: float = field(default=10.0, validator=gt(0))
    reservedTopics: frozenset[str] = frozenset()


class Groups:
    """
    The ledgers by the id of their group, in the operator's order.
    """

    def __init__(self, ledgers: Mapping[str, ILedger]) -> None:
        self._ledgers = dict(ledgers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledgers)

    def __len__(self) -> int:
        return len(self._ledgers)

    def resolve(self, principal: Principal, groupId: str | None) -> str:
        """
        The group that is meant.

        @param groupId: as the client says it; absent or blank means group C{1}.
        @raise NotAuthorized: nothing is granted to the principal in such a group, whether this
            broker serves it or not.
        @raise GroupUnknown: this broker does not serve it.
        """
        return self.find(principal, groupId)[0]

    def find(self, principal: Principal, groupId: str | None) -> tuple[str, ILedger]:
        """
        The id and the ledger of the group that is meant.

        @raise NotAuthorized, GroupUnknown: see L{resolve}.
        """
        if groupId is None or not groupId.strip():
            groupId = DEFAULT_GROUP
        if not principal.isEverything:
            principal.requireGroup(groupId)
        ledger = self._ledgers.get(groupId)
        if ledger is None:
            raise GroupUnknown(f"{GroupUnknown.text}: {groupId[:_SHOWN]}")
        return groupId, ledger

    def items(self) -> list[tuple[str, ILedger]]:
        """Every group's id and its ledger."""
        return list(self._ledgers.items())
