"""
The contract of ledgers that read no more of a block than is asked for.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Interface

from ..model import Event, EventId


class IEventReader(Interface):
    """
    A ledger to which the whole of a block is much work. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}.

    It is called in the reactor thread, between the ledger's start and its stop.
    """

    def readEvent(eventId: EventId) -> Deferred[Event]:
        """
        What L{ILedger.getEvent<svcbroker.interfaces.ILedger.getEvent>} gives, and fails with.
        C{index} may be 0 instead of what it is: clients who ask the broker for an event by its
        id are not told.
        """

    def mayHold(height: int, extension: str) -> Deferred[bool]:
        """
        Whether a block may hold an event with an extension of this name; no only where it
        surely holds none. The MQTT carrier looks for retained messages with it.

        @raise svcbroker.errors.HeightUnknown: there is no such block (yet).
        """
