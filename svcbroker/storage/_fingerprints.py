"""
Fingerprints: the first bytes of transactions' hashes, by which transactions are found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PRINT_SIZE: Final = 4
"""Bytes of a transaction's hash that are kept as its fingerprint."""

SEGMENT: Final = 512
"""How many fingerprints make a full row."""


def findItem(items: bytes, wanted: bytes) -> Sequence[int]:
    """
    The indexes at which C{wanted} is among items of its length.
    """
    found = []
    at = items.find(wanted)
    while at >= 0:
        index, excess = divmod(at, len(wanted))
        if excess == 0:
            found.append(index)
        at = items.find(wanted, at + 1)
    return found
