"""
Descriptions of ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.plugin import getPlugins

from ..interfaces import ILedger, ILedgerFactory, LedgerContext
from ..net.descriptions import (
    Description,
    configureDescribed,
    describeFactories,
    findFactories,
    readDescription,
)

__all__ = [
    "Description",
    "describeLedgers",
    "findLedgerFactories",
    "parseDescription",
    "readDescription",
]


def findLedgerFactories(
    getPlugins: Callable[[Any], Iterable[Any]] = getPlugins,
) -> list[ILedgerFactory]:
    """
    Every kind of ledger that is installed, in the order of their names.

    @param getPlugins: as C{twisted.plugin.getPlugins}.
    """
    return findFactories(ILedgerFactory, getPlugins)


def parseDescription(
    text: str, factories: Iterable[ILedgerFactory] | None = None
) -> Callable[[LedgerContext], ILedger]:
    """
    What makes the ledger that a description describes.

    @param factories: the kinds to choose from; those that are installed unless given.
    @raise InvalidDescription: the form is wrong, no kind has that name (or two have), or the
        kind refuses the settings. The text is one line.
    """
    known = findLedgerFactories() if factories is None else factories
    make: Callable[[LedgerContext], ILedger] = configureDescribed("ledger", text, known)
    return make


def describeLedgers(factories: Iterable[ILedgerFactory]) -> str:
    """
    The text of C{--help-ledger}: each kind with its summary and its settings.
    """
    return describeFactories("A ledger", factories)
