"""
Telling observers of blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from ..interfaces import IBlockObserver
from ..model import Block


class Observers:
    """
    Those who follow one ledger's blocks.
    """

    _log = Logger()

    def __init__(self) -> None:
        self._observers: list[IBlockObserver] = []

    def add(self, observer: IBlockObserver) -> None:
        """See L{ILedger.addObserver<svcbroker.interfaces.ILedger.addObserver>}."""
        if observer not in self._observers:
            self._observers.append(observer)

    def remove(self, observer: IBlockObserver) -> None:
        """See L{ILedger.removeObserver<svcbroker.interfaces.ILedger.removeObserver>}."""
        if observer in self._observers:
            self._observers.remove(observer)

    def tell(self, makeBlock: Callable[[], Block]) -> None:
        """
        Tell all of a block. It is only made where somebody listens.
        """
        if not self._observers:
            return
        block = makeBlock()
        for observer in tuple(self._observers):
            try:
                observer.blockCommitted(block)
            except Exception:
                self._log.failure("an observer of blocks failed")
