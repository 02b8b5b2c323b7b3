"""
The contract of ledgers that take many requests at once.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from zope.interface import Interface

from ..errors import BrokerError
from ..model import Receipt, Request


class Submission:
    """
    Requests that were submitted together, and what has come of each until now.

    @ivar outcomes: in the order of the requests: the receipt, or why it was not executed; C{None}
        where neither is known yet.
    @ivar done: fires with the submission when all are known; it never fails. Cancelling it only
        means that nobody waits any more.
    """

    __slots__ = ("_left", "done", "outcomes")

    def __init__(self, count: int) -> None:
        """
        @param count: how many requests there are, 1 or more.
        """
        self.outcomes: list[Receipt | BrokerError | None] = [None] * count
        self.done: Deferred[Submission] = Deferred()
        self._left = count

    def settle(self, start: int, outcomes: Sequence[Receipt | BrokerError]) -> None:
        """
        What came of some requests that follow each other. Called by the ledger, once for each.

        @param start: the index of the first of them.
        """
        self.outcomes[start : start + len(outcomes)] = outcomes
        self._left -= len(outcomes)
        if not self._left:
            self.done.callback(self)


class IBulkLedger(Interface):
    """
    A ledger for which many requests at once are less work than one after the other. A ledger may
    provide it beside L{ILedger<svcbroker.interfaces.ILedger>}.

    The broker and the MQTT carrier call it in the reactor thread, between the ledger's start and
    its stop, for batches and for what arrives together.
    """

    def submitMany(requests: Sequence[Request]) -> Submission:
        """
        As if L{ILedger.submit<svcbroker.interfaces.ILedger.submit>} was called for each of the
        requests in their order, with nothing between. Where there is no room for all, the first
        ones are taken, and the others fail with C{Overloaded}.

        @param requests: one or more.
        """
