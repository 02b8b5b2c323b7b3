"""
The contract of ledgers that a set of validators decides.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import Interface

if TYPE_CHECKING:
    # Listing the plugins imports the interfaces, but no chain.
    from ..chain import ValidatorChange, ValidatorSet


class IValidatorSetLedger(Interface):
    """
    A ledger whose blocks a set of validators decides. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, for
    operator calls. Any Deferred may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.

    There are two ways to change the set. A ledger that holds all private keys makes the change
    itself (L{changeNodes}); one whose validators belong to several organisations takes a change
    that they have signed (L{submitChange}). Each refuses the way that it does not have.
    """

    def getNodes() -> Deferred[ValidatorSet]:
        """
        The validators that decide the next block.
        """

    def changeNodes(rotate: Sequence[int] = (), count: int | None = None) -> Deferred[ValidatorSet]:
        """
        Give validators new keys, or change how many there are, by a transaction. Proofs of
        earlier blocks remain valid.

        @param rotate: the indexes of the validators that get new keys.
        @param count: how many validators there are to be; C{None} for as many as there are.
        @return: fires with the new set, which decides from the next block on, when the change
            is final.
        @raise svcbroker.errors.ParameterInvalid: there is no such validator, nothing would
            change, the number is out of range, or the ledger does not hold the keys.
        """

    def submitChange(change: ValidatorChange) -> Deferred[ValidatorSet]:
        """
        Have a signed change of the validators executed. One that was executed already changes
        nothing.

        @param change: with its signatures.
        @return: fires with the new set when the change is final.
        @raise svcbroker.errors.ParameterInvalid: it does not hold, and the text says why; or the
            ledger holds all keys itself.
        """
