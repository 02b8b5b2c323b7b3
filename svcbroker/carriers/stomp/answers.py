"""
What the frames of one connection are answered with, in the order of the frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from attrs import define


@define(eq=False)
class Answer:
    """
    The answer to one frame, there or still to come.

    @ivar receipt: the receipt that the client asked for.
    @ivar size: how much content waits with it, in bytes.
    @ivar data: the bytes of the answer, none where the client asked for none; C{None} while it is
        still to come.
    @ivar subscription: the number of the subscription that begins when this is said.
    @ivar isLast: whether nothing is said after it.
    @ivar isError: whether it tells of an error.
    """

    receipt: str | None = None
    size: int = 0
    data: bytes | None = None
    subscription: int | None = None
    isLast: bool = False
    isError: bool = False


class Answers:
    """
    Answers that are not given yet.

    STOMP asks that a RECEIPT tells of all frames before it ("RECEIPT": "a cumulative
    acknowledgment that all the previous frames have been received"), and closes after an ERROR.
    So answers keep the order of their frames: a client that reads one knows the
    outcome of everything that it sent before.

    @ivar size: how much content waits with them, in bytes.
    """

    def __init__(self) -> None:
        self.size = 0
        self._queue: deque[Answer] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, answer: Answer) -> Answer:
        """Put an answer after all others."""
        self._queue.append(answer)
        self.size += answer.size
        return answer

    @property
    def isReady(self) -> bool:
        """Whether there is one that can be given now."""
        return bool(self._queue) and self._queue[0].data is not None

    def ready(self) -> Iterator[Answer]:
        """Take those out that can be given now."""
        queue = self._queue
        while queue and queue[0].data is not None:
            answer = queue.popleft()
            self.size -= answer.size
            yield answer
