"""
Places for clients that wait for events over HTTP, shared so that one client cannot take all.
"""

from __future__ import annotations

from typing import Final

from ...access import Principal
from ...errors import QuotaExceeded
from ...net.addresses import ownerKey
from ...net.turns import Slots

SHARE: Final = 4
"""One account, or one address of clients without one, may have one place in so many."""


class Places:
    """
    A bound on what clients hold open at the same time, in all and for each of them: an account, or
    without accounts, an address as L{ownerOf} counts addresses.
    """

    def __init__(self, total: int, what: str) -> None:
        """
        @param total: how many places there are.
        @param what: what takes them, in the plural.
        """
        self._total, self._own, self._what = total, max(1, total // SHARE), what
        self._slots = Slots(total, self._own)

    def take(self, principal: Principal, remote: str) -> str:
        """
        Take a place.

        @param remote: the client's address, as L{peerText<svcbroker.net.addresses.peerText>} gives
            it.
        @return: whose place it is, for L{release}.
        @raise QuotaExceeded: there is none.
        """
        owner = ownerKey(principal.name, remote)
        if self._slots.take(owner):
            return owner
        if self._slots.busy >= self._total:
            raise QuotaExceeded(f"all {self._total} places for {self._what} are taken: try again")
        kind = owner.partition(" ")[0]
        raise QuotaExceeded(
            f"{owner} has {self._own} {self._what}, as many as one {kind} may have: try again"
        )

    def release(self, owner: str) -> None:
        """Give a place back."""
        self._slots.release(owner)
