"""
What this broker knows of one other.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ._peers import Identity, IPeer, PeerError

FRESH: Final = 3.0
"""How long what a peer has said, or that it has said nothing, is taken for true, in seconds."""

_log = Logger()


class Neighbour:
    """
    A peer, and what it said of itself.

    @ivar peer: who is asked.
    @ivar address: what it calls itself, as it said last; C{None} while it has never answered.
    @ivar instance: which process it was then; C{None} where that is not known.
    @ivar trouble: why it gave no answer the last time, as the end of a sentence; empty where it
        gave one.
    """

    def __init__(self, peer: IPeer, own: Identity, clock: IReactorTime) -> None:
        """
        @param own: this broker.
        """
        self.peer = peer
        self.address: str | None = None
        self.instance: str | None = None
        self.trouble = ""
        self._own = own
        self._clock = clock
        self._askedAt: float | None = None
        self._isAsking = False
        self._waiting: set[Deferred[None]] = set()

    @property
    def isSelf(self) -> bool:
        """Whether it is this broker."""
        return bool(self.instance) and self.instance == self._own.instance

    @property
    def isFresh(self) -> bool:
        """Whether it was asked a moment ago."""
        return self._askedAt is not None and self._clock.seconds() - self._askedAt < FRESH

    def learn(self, timeout: float) -> Deferred[None]:
        """
        Ask it for its name; who asks while it is being asked waits for the same answer.

        @param timeout: how long to wait, in seconds.
        @return: fires when there is an answer or will be none. Does not fail, but for being
            cancelled, which leaves others waiting.
        """
        waiting: Deferred[None] = Deferred(self._waiting.discard)
        self._waiting.add(waiting)
        if not self._isAsking:
            self._ask(timeout)
        if waiting.called:
            return waiting
        return waiting.addTimeout(timeout, self._clock).addErrback(_passOver)

    def moved(self, address: str) -> None:
        """It was heard to have another address. Which process it is has to be asked again."""
        self.address, self.instance, self.trouble = address, None, ""
        self.doubt()

    def doubt(self) -> None:
        """What it said may not be true any more."""
        self._askedAt = None

    def _ask(self, timeout: float) -> None:
        self._isAsking = True
        asking: Deferred[Any] = self.peer.getIdentity(timeout)
        asking.addCallbacks(self._told, self._toldNothing)
        asking.addErrback(self._failed)
        asking.addCallback(self._asked)

    def _told(self, identity: Identity) -> None:
        isNew = (identity.address, identity.instance) != (self.address, self.instance)
        self.address, self.instance = identity.address, identity.instance
        if isNew or self.trouble:
            _log.info("The peer at {name} is {address}", name=self.peer.name, address=self.address)
        if isNew and self.address == self._own.address and not self.isSelf:
            _log.warn(
                "The peer at {name} calls itself {address}, as this broker does: give each an "
                "address of its own with --advertise",
                name=self.peer.name,
                address=self.address,
            )
        self.trouble = ""

    def _toldNothing(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            self.trouble = "was not asked to the end"
            return
        failure.trap(PeerError)
        trouble = str(failure.value)
        if trouble != self.trouble:
            _log.warn("The peer at {name} {trouble}", name=self.peer.name, trouble=trouble)
        self.trouble = trouble

    def _failed(self, failure: Failure) -> None:
        _log.failure("Asking the peer at {name} failed", failure, name=self.peer.name)
        self.trouble = "cannot be asked"

    def _asked(self, _: None) -> None:
        self._isAsking = False
        self._askedAt = self._clock.seconds()
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            each.callback(None)


def _passOver(failure: Failure) -> None:
    failure.trap(TimeoutError)
