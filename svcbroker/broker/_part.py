"""
The events of a call that go to one ledger.
"""

from __future__ import annotations

from attrs import define, field

from ..access import Principal
from ..interfaces import ILedger
from ..model import OpenTopic, Request


@define(eq=False)
class Part:
    """
    The events of a call that go to one ledger.

    @ivar principal: who publishes them.
    @ivar places: the index of each request's event in the call; C{None} for requests that open a
        topic.
    @ivar topics: topics that are open when the requests are executed, as far as is known.
    @ivar unknown: topics that are not open as far as this node knows; the chain decides.
    @ivar isWhole: whether every request is an event.
    """

    principal: Principal
    group: str
    ledger: ILedger
    places: list[int | None] = field(factory=list)
    requests: list[Request] = field(factory=list)
    topics: set[str] = field(factory=set)
    unknown: set[str] = field(factory=set)
    isWhole: bool = True

    @property
    def eventCount(self) -> int:
        """How many events there are."""
        return len(self.places) - (0 if self.isWhole else self.places.count(None))

    def add(self, place: int, request: Request) -> None:
        """Publish an event after the others."""
        self.places.append(place)
        self.requests.append(request)

    def open(self, topic: str) -> None:
        """
        Open a topic before the next event. It is not waited for, so that nothing overtakes the
        event. Opening an open topic changes nothing; if opening fails, the event is refused.
        """
        if topic not in self.topics:
            self.topics.add(topic)
            self.isWhole = False
            self.places.append(None)
            self.requests.append(OpenTopic(topic=topic))
