"""
A verified copy of a chain that another broker decides or has: for reads, subscriptions and proofs,
and to go on with where the original is lost.

It takes blocks only whose certificates it has verified, and decides none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...interfaces import ILedger, LedgerContext
from .._storedledger import STORED_HOLDERS, storedMemory
from ._copyledger import CopyLedger, CopyProgress
from ._original import (
    MAX_ANSWER,
    SETTINGS,
    SUMMARY,
    CopyRefusal,
    CopyRefused,
    CopySettings,
    readSettings,
)

HOLDERS: Mapping[str, Sequence[str]] = STORED_HOLDERS
"""The attributes with what L{memory} tells of, by its name."""


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    return partial(CopyLedger, settings=readSettings(settings))


def memory(settings: Mapping[str, str]) -> Mapping[str, int]:
    """
    See L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.
    """
    readSettings(settings)
    # An answer is read, and taken apart.
    return {**storedMemory(0, 0), "an answer of the original": 2 * MAX_ANSWER}
