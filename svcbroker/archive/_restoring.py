"""
What is done to a copy of a chain, so that its keys contradict themselves as little as possible.
"""

from __future__ import annotations

from typing import Final

from ..storage import Store

ROUNDS_ASIDE: Final = 1000
"""
How many rounds of the next height a copy leaves out: the nodes that it was copied from may have
signed in them, and may go on to do so.
"""


def setRoundsAside(store: Store, height: int) -> None:
    """
    Have whoever goes on from a copy begin its next block far beyond the rounds that the original
    has used there.

    @param height: the height of the last block.
    @raise svcbroker.storage.StorageError: it cannot be written.
    """
    reserved, round = store.reservation()
    following = max(height + 1, reserved)
    store.reserve(following, (round if reserved == following else 0) + ROUNDS_ASIDE)
