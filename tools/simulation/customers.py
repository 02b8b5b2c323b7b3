"""
Clients of the embedded ledger: what a broker would submit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from svcbroker.errors import BrokerError
from svcbroker.model import CloseTopic, OpenTopic, PublishEvent, Receipt, Request

if TYPE_CHECKING:
    from .embedded import Embedded


class Customer:
    """
    Submits one request after the other.

    @ivar answered: how many were final.
    """

    def __init__(self, world: Embedded, number: int) -> None:
        self.answered = 0
        self._world = world
        self._number = number
        self._count = 0
        # What is said to somebody who has hung up is not heard.
        self._call = 0

    def start(self) -> None:
        """Begin."""
        self._later(0.2)

    def hangUp(self) -> None:
        """The process that it was waiting for is gone; ask the next one."""
        self._call += 1
        self._later(1.0)

    def _later(self, longest: float) -> None:
        world = self._world
        world.clock.callLater(world.random.uniform(0.01, longest), self._next, self._call)

    def _next(self, call: int) -> None:
        world = self._world
        if call != self._call:
            return
        if not world.isUp:
            self._later(0.5)
            return
        result = world.ledger.submit(self._request())
        hash = world.latest

        def done(receipt: Receipt) -> None:
            if call == self._call:
                self.answered += 1
                event = receipt.eventId
                sequence = 0 if event is None else event.sequence
                world.acknowledged(receipt.transactionHash, receipt.height, sequence)
                self._later(0.4)

        def failed(failure: Failure) -> None:
            failure.trap(BrokerError)
            if call == self._call:
                said = failure.getErrorMessage()
                if "nothing was executed" in said or "before this was" in said:
                    world.refused(hash)
                self._later(1.0)

        result.addCallbacks(done, failed)

    def _request(self) -> Request:
        random = self._world.random
        self._count += 1
        topic = f"topic/{random.choice((self._number, self._number, 0))}"
        if self._count == 1:
            return OpenTopic(topic=f"topic/{self._number}")
        choice = random.random()
        if choice < 0.05:
            return CloseTopic(topic=topic)
        if choice < 0.15:
            return OpenTopic(topic=topic)
        return PublishEvent(topic=topic, content=b"%d %d" % (self._number, self._count))
