"""
Numbers in the settings of a ledger's description.
"""

from __future__ import annotations


def number(text: str, lowest: float, highest: float) -> float:
    """
    Read a number within bounds.

    @raise ValueError: it is not one.
    """
    value = float(text)
    if not lowest <= value <= highest:  # also refuses NaN
        raise ValueError
    return value


def integer(text: str, lowest: int, highest: int) -> int:
    """
    Read a whole number within bounds.

    @raise ValueError: it is not one.
    """
    value = int(text)
    if not lowest <= value <= highest:
        raise ValueError
    return value
