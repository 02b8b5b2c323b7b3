"""
Descriptions of ledgers, the factories that are installed for them, and readers of the numbers and
URLs in their settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.plugin import getPlugins
from zope.interface import implementer

from ..interfaces import (
    IBoundedLedgerFactory,
    ILedger,
    ILedgerFactory,
    InvalidDescription,
    LedgerContext,
)
from ..model import TopicRule
from ..net.descriptions import (
    ModuleFactory,
    configureDescribed,
    describeFactories,
    findFactories,
    readDescription,
)
from ..net.findings import Finding

_MAX_URL: Final = 2048

TOPICS: Final = (
    "the names that topics of a new chain may have: published, as in the published interface, or "
    "utf8 (default published; an existing chain keeps its own rule)"
)
"""The help of the setting C{topics}."""

TOPICS_READER: Final = (TopicRule, "published or utf8")
"""Reads it."""


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
    Parse a description, and return a maker of its ledger.

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


@implementer(ILedgerFactory, IBoundedLedgerFactory)
@frozen
class LedgerPlugin(ModuleFactory):
    """
    A kind of ledger that is a module, with C{configure} as L{ILedgerFactory.configure} says, and
    maybe C{memory} as L{IBoundedLedgerFactory.memory} does, C{HOLDERS} and C{checks}.
    """

    @property
    def holders(self) -> Mapping[str, Sequence[str]]:
        """By the names that L{memory} has, the attributes that hold it."""
        found: Mapping[str, Sequence[str]] = getattr(self._load(), "HOLDERS", {})
        return found

    def checks(self, group: str, settings: Mapping[str, str]) -> Iterable[Finding]:
        """The findings of C{svcbroker doctor} about the ledger of a group with these settings."""
        check = getattr(self._load(), "checks", None)
        return () if check is None else check(group, settings)

    def memory(self, settings: Mapping[str, str]) -> Mapping[str, int] | None:
        """See L{IBoundedLedgerFactory.memory}."""
        tell = getattr(self._load(), "memory", None)
        bounds: Mapping[str, int] | None = None if tell is None else tell(settings)
        return bounds


def checkLedger(group: str, description: str) -> Iterator[Finding]:
    """
    The findings of C{svcbroker doctor} about the ledger of a group; none where its kind has no
    checks.
    """
    try:
        read = readDescription(description)
    except InvalidDescription:
        return  # The plan of the groups tells it.
    for factory in findLedgerFactories():
        if factory.name == read.name and isinstance(factory, LedgerPlugin):
            yield from factory.checks(group, read.settings)


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


def readUrl(text: str, *, isRoot: bool = False) -> str:
    """
    Read the URL of a node, or a port of this machine.

    @param isRoot: whether it may have no path and no query.
    @return: the URL, without a slash at its end where it may have no path.
    @raise ValueError: it is neither.
    """
    if text.isascii() and text.isdigit():
        return f"http://127.0.0.1:{integer(text, 1, 65535)}"
    parts = urlsplit(text)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.fragment
        or (isRoot and (parts.query or parts.path not in {"", "/"}))
        or not text.isascii()
        or len(text) > _MAX_URL
        # Reading it raises C{ValueError} where it is no number.
        or parts.port == 0
    ):
        raise ValueError("not the URL of a node")
    return text.rstrip("/") if isRoot else text
