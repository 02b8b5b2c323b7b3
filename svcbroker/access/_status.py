"""
Accounts as operators, and they themselves, may see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from ..interfaces import GrantLine, Quotas

COUNTED: Final = ("connections", "subscriptions", "inflight")
"""What is counted of each account, by the names of its quotas."""


@frozen(kw_only=True)
class AccountStatus:
    """
    An account: what is granted to it, and how much of its quotas it uses now. There is no secret.

    @ivar name: its name; empty for clients without credentials.
    @ivar grants: its L{IGrants<svcbroker.interfaces.IGrants>}.
    @ivar used: how much it uses of each of L{COUNTED}.
    """

    name: str
    grants: Any = field(repr=False)
    quotas: Quotas
    used: Mapping[str, int]

    def lines(self, group: str | None) -> Sequence[GrantLine]:
        """The lines of its grants that are about a group; C{None} for all."""
        lines: Sequence[GrantLine] = self.grants.describe(group)
        return lines
