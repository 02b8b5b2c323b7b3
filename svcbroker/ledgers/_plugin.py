"""
A ledger factory that stands in for a module until somebody chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from zope.interface import implementer

from ..interfaces import IBoundedLedgerFactory, ILedgerFactory
from ..net.descriptions import ModuleFactory


@implementer(ILedgerFactory, IBoundedLedgerFactory)
@frozen
class LedgerPlugin(ModuleFactory):
    """
    A kind of ledger that is a module, with C{configure} as L{ILedgerFactory.configure} says, and
    maybe C{memory} as L{IBoundedLedgerFactory.memory} does.
    """

    def memory(self, settings: Mapping[str, str]) -> Mapping[str, int] | None:
        """See L{IBoundedLedgerFactory.memory}."""
        tell = getattr(self._load(), "memory", None)
        bounds: Mapping[str, int] | None = None if tell is None else tell(settings)
        return bounds
