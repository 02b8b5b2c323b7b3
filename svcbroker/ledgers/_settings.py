"""
Reading the settings of a ledger's description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ..interfaces import InvalidDescription

Readers: TypeAlias = Mapping[str, tuple[Callable[[str], Any], str]]
"""
What reads the text of each setting, or raises C{ValueError}; and what is expected of it, in words.
"""


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


def readValues(ledger: str, settings: Mapping[str, str], readers: Readers) -> dict[str, Any]:
    """
    Read the settings that a description has.

    @param ledger: the kind of ledger, for the operator.
    @raise InvalidDescription: one is unknown or has a bad value.
    """
    values: dict[str, Any] = {}
    for key, text in settings.items():
        if key not in readers:
            known = ", ".join(readers)
            raise InvalidDescription(f"{key}: the {ledger} ledger has no such setting, but {known}")
        read, expected = readers[key]
        try:
            values[key] = read(text)
        except ValueError:
            raise InvalidDescription(f"{key}: {text!r} is not {expected}") from None
    return values
