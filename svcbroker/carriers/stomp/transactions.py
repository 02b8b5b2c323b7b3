"""
Open transactions ("BEGIN", "COMMIT", "ABORT"): what waits for its COMMIT.
"""

from __future__ import annotations

from typing import Final

from attrs import Factory, define, frozen

from ...broker import Publication
from ...errors import Overloaded, ParameterInvalid
from .settings import StompSettings

_FRAME_BYTES: Final = 512
"""What a frame costs beside its content and its extensions, roughly."""


@frozen
class Acknowledgement:
    """
    An ACK, or a NACK.

    @ivar number: the number of the subscription.
    @ivar eventId: the event, in the subscription's words.
    @ivar isGood: whether the client has got it for good; otherwise it is to be sent again.
    """

    number: int
    eventId: str
    isGood: bool


@define(eq=False)
class Transaction:
    """
    What one transaction holds, in order.

    @ivar weight: about how many bytes of memory it takes.
    """

    publications: list[Publication] = Factory(list)
    acknowledgements: list[Acknowledgement] = Factory(list)
    weight: int = 0

    @property
    def frames(self) -> int:
        """How many frames it holds."""
        return len(self.publications) + len(self.acknowledgements)

    @property
    def size(self) -> int:
        """How much content it holds, in bytes."""
        return sum(len(publication.content) for publication in self.publications)


class Transactions:
    """
    The open transactions of a connection, within its bounds.
    """

    def __init__(self, settings: StompSettings) -> None:
        self._settings = settings
        self._open: dict[str, Transaction] = {}
        self._frames = 0
        self._size = 0
        self._weight = 0

    @property
    def weight(self) -> int:
        """About how many bytes of memory they take."""
        return self._weight

    def begin(self, name: str) -> None:
        """
        Open a transaction.

        @raise ParameterInvalid: there is one of this name.
        @raise Overloaded: there are too many.
        """
        if name in self._open:
            raise ParameterInvalid("there is a transaction of this name already")
        if len(self._open) >= self._settings.maxTransactions:
            raise Overloaded(f"there are {self._settings.maxTransactions} open transactions")
        self._open[name] = Transaction()

    def add(self, name: str, part: Publication | Acknowledgement) -> None:
        """
        Put something into a transaction.

        @raise ParameterInvalid: there is no such transaction.
        @raise Overloaded: this is more than transactions may hold.
        """
        transaction, settings = self._find(name), self._settings
        size = len(part.content) if isinstance(part, Publication) else 0
        if self._frames >= settings.maxTransactionFrames:
            raise Overloaded(f"transactions hold {settings.maxTransactionFrames} frames")
        if self._size + size > settings.maxTransactionBytes:
            raise Overloaded(f"transactions hold {settings.maxTransactionBytes} bytes")
        self._frames += 1
        self._size += size
        weight = _weightOf(part)
        self._weight += weight
        transaction.weight += weight
        if isinstance(part, Publication):
            transaction.publications.append(part)
        else:
            transaction.acknowledgements.append(part)

    def end(self, name: str) -> Transaction:
        """
        Take a transaction out, to be carried out or forgotten.

        @raise ParameterInvalid: there is no such transaction.
        """
        transaction = self._find(name)
        del self._open[name]
        self._frames -= transaction.frames
        self._size -= transaction.size
        self._weight -= transaction.weight
        return transaction

    def _find(self, name: str) -> Transaction:
        transaction = self._open.get(name)
        if transaction is None:
            raise ParameterInvalid("there is no such transaction")
        return transaction


def _weightOf(part: Publication | Acknowledgement) -> int:
    if isinstance(part, Acknowledgement):
        return _FRAME_BYTES
    extensions = part.extensions.items()
    return (
        _FRAME_BYTES + len(part.content) + sum(len(key) + len(value) for key, value in extensions)
    )
