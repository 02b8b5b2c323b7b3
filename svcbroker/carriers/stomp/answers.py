"""
What the frames of one connection are answered with, in the order of the frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from ...broker import PublishOutcome, SendStatus
from ...errors import BrokerError, TopicNotFound, TransactionTimeout
from .frames import Version, encodeFrame, encodeHeader
from .requests import NEWEST_FIRST


class Answer(Struct, eq=False):
    """
    The answer to one frame, there or still to come.

    @ivar receipt: the receipt that the client asked for.
    @ivar size: how much content waits with it, in bytes; with its receipt, once it waits itself.
    @ivar data: the bytes of the answer, none where the client asked for none; C{None} while it is
        still to come.
    @ivar subscription: the number of the subscription that begins when this is said, unless it
        tells of an error.
    @ivar isLast: whether nothing is said after it.
    @ivar isError: whether it tells of an error.
    """

    receipt: str | None = None
    size: int = 0
    data: bytes | None = None
    subscription: int | None = None
    isLast: bool = False
    isError: bool = False

    def confirm(self, version: Version | None, name: str = "", value: str = "") -> None:
        """
        Answer with RECEIPT, if the client has asked for one.

        @param version: the version that was agreed on.
        @param name: the name of one more header, if there is one. Neither name nor value needs an
            escape.
        """
        if self.receipt is None:
            self.data = b""
        else:
            # Hot path, so without encodeFrame.
            more = f"{name}:{value}\n" if name else ""
            receipt = encodeHeader("receipt-id", self.receipt, version)
            self.data = f"RECEIPT\n{receipt}{more}\n\0".encode()

    def fail(self, error: BrokerError, version: Version | None) -> None:
        """
        Answer with ERROR.

        @param version: the version that was agreed on; C{None} before.
        """
        headers = [("message", error.message), ("code", str(error.code))]
        if self.receipt is not None:
            headers.append(("receipt-id", self.receipt))
        if version is None:
            headers.append(("version", ",".join(each.value for each in reversed(NEWEST_FIRST))))
        headers.append(("content-type", "text/plain"))
        body = f"{error.name}: {error.message}\n".encode()
        self.data = encodeFrame("ERROR", headers, body, version=version)


def encodeConnected(version: Version, beats: str, sessionId: str, server: str) -> bytes:
    """
    The CONNECTED frame.

    @param beats: the header C{heart-beat}, which 1.0 has not.
    """
    headers = [("version", version.value), ("session", sessionId), ("server", server)]
    if version is not Version.V10:
        headers.insert(1, ("heart-beat", beats))
    return encodeFrame("CONNECTED", headers, version=None)


def errorOf(result: PublishOutcome) -> BrokerError:
    """The error of an event that was not published."""
    # ERROR: the topic was closed while the event waited.
    return TransactionTimeout() if result.status is SendStatus.TIMEOUT else TopicNotFound()


class Answers:
    """
    Answers that are not given yet.

    STOMP asks that a RECEIPT tells of all frames before it ("RECEIPT": "a cumulative
    acknowledgment that all the previous frames have been received"), and closes after an ERROR.
    So answers keep the order of their frames: a client that reads one knows the
    outcome of everything that it sent before.

    @ivar size: how much waits with them, in bytes: contents and receipts.
    """

    def __init__(self) -> None:
        self.size = 0
        self._queue: deque[Answer] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, answer: Answer) -> Answer:
        """Put an answer after all others. Its receipt waits, too."""
        if answer.receipt is not None:
            answer.size += len(answer.receipt)
        self._queue.append(answer)
        self.size += answer.size
        return answer

    @property
    def isReady(self) -> bool:
        """Whether there is one that can be given now."""
        return bool(self._queue) and self._queue[0].data is not None

    def isFirst(self, answer: Answer) -> bool:
        """Whether all answers before this one are given."""
        return bool(self._queue) and self._queue[0] is answer

    def ready(self) -> Iterator[Answer]:
        """Take those out that can be given now."""
        queue = self._queue
        while queue and queue[0].data is not None:
            answer = queue.popleft()
            self.size -= answer.size
            yield answer
