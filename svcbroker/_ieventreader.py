"""
The contract of ledgers that find an event's place in its block only for who needs it.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface

from .model import Event, EventId


class IEventReader(Interface):
    """
    A ledger to which C{index} of an event is extra work, and the more so the larger its block
    is. A ledger may provide it beside L{ILedger<svcbroker.interfaces.ILedger>}.

    The broker calls it in the reactor thread, between the ledger's start and its stop, for
    clients who ask for one event by its id: they are not told the index.
    """

    def readEvent(eventId: EventId) -> Deferred[Event]:
        """
        What L{ILedger.getEvent<svcbroker.interfaces.ILedger.getEvent>} gives, and fails with.
        C{index} may be 0 instead of what it is.
        """
