"""
A ledger factory that stands in for a module until somebody chooses it.
"""

from __future__ import annotations

from attrs import frozen
from zope.interface import implementer

from ..interfaces import ILedgerFactory
from ..net.descriptions import ModuleFactory


@implementer(ILedgerFactory)
@frozen
class LedgerPlugin(ModuleFactory):
    """
    A kind of ledger that is a module, with C{configure} as L{ILedgerFactory.configure} says.
    """
