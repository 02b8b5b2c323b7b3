"""
A ledger factory that stands in for a module until somebody chooses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from attrs import frozen
from twisted.python.reflect import namedModule
from zope.interface import implementer

from ..interfaces import ILedger, ILedgerFactory, LedgerContext


@implementer(ILedgerFactory)
@frozen
class LedgerPlugin:
    """
    A kind of ledger whose code is imported when it is first needed, so that listing plugins
    costs nothing.

    The module has C{configure}, as L{ILedgerFactory.configure} says, and the values C{SUMMARY}
    and C{SETTINGS} for L{summary} and L{settings}.

    @ivar name: the first word of its descriptions.
    @ivar module: the full name of the module.
    """

    name: str
    module: str

    def _load(self) -> ModuleType:
        module: ModuleType = namedModule(self.module)
        return module

    @property
    def summary(self) -> str:
        """See L{ILedgerFactory}."""
        summary: str = self._load().SUMMARY
        return summary

    @property
    def settings(self) -> Mapping[str, str]:
        """See L{ILedgerFactory}."""
        settings: Mapping[str, str] = self._load().SETTINGS
        return settings

    def configure(self, settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
        """See L{ILedgerFactory.configure}."""
        made: Callable[[LedgerContext], ILedger] = self._load().configure(settings)
        return made
