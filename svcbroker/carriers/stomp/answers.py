"""
The answers to the frames of one connection, in the order of the frames, and the effects that a
session wants carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from attrs import field, frozen
from msgspec import Struct

from ...broker import Publication, SendResult, SendStatus
from ...errors import BrokerError, TopicNotFound, TransactionTimeout
from ...model import Event, SubscribeRequest
from .frames import StompVersion, encodeFrame, encodeHeader
from .requests import NEWEST_FIRST


class FrameAnswer(Struct, eq=False):
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

    def confirm(self, version: StompVersion | None, name: str = "", value: str = "") -> None:
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

    def fail(self, error: BrokerError, version: StompVersion | None) -> None:
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


def encodeConnected(version: StompVersion, beats: str, sessionId: str, server: str) -> bytes:
    """
    The CONNECTED frame.

    @param beats: the header C{heart-beat}, which 1.0 has not.
    """
    headers = [("version", version.value), ("session", sessionId), ("server", server)]
    if version is not StompVersion.V10:
        headers.insert(1, ("heart-beat", beats))
    return encodeFrame("CONNECTED", headers, version=None)


def errorOf(result: SendResult) -> BrokerError:
    """The error of an event that was not published."""
    # ERROR: the topic was closed while the event waited.
    return TransactionTimeout() if result.status is SendStatus.TIMEOUT else TopicNotFound()


class FrameAnswers:
    """
    Answers that are not given yet.

    STOMP asks that a RECEIPT tells of all frames before it ("RECEIPT": "a cumulative
    acknowledgment that all the previous frames have been received"), and closes after an ERROR.
    So answers keep the order of their frames: a client that reads one knows the
    outcome of everything that it sent before.

    @ivar count: how many there are.
    @ivar size: how much waits with them, in bytes: contents and receipts.
    """

    def __init__(self) -> None:
        self.count = self.size = 0
        self._queue: deque[FrameAnswer] = deque()

    def add(self, answer: FrameAnswer) -> FrameAnswer:
        """Put an answer after all others. Its receipt waits, too."""
        if answer.receipt is not None:
            answer.size += len(answer.receipt)
        self._queue.append(answer)
        self.count += 1
        self.size += answer.size
        return answer

    @property
    def isReady(self) -> bool:
        """Whether there is one that can be given now."""
        return bool(self._queue) and self._queue[0].data is not None

    def isFirst(self, answer: FrameAnswer) -> bool:
        """Whether all answers before this one are given."""
        return bool(self._queue) and self._queue[0] is answer

    def ready(self) -> Iterator[FrameAnswer]:
        """Take those out that can be given now."""
        queue = self._queue
        while queue and queue[0].data is not None:
            yield self.removeFirst()

    def removeFirst(self) -> FrameAnswer:
        """Take the first one out, which is there."""
        answer = self._queue.popleft()
        self.count -= 1
        self.size -= answer.size
        return answer


class Write(Struct, frozen=True):
    """Send bytes to the client."""

    data: bytes


class Proceed(Struct, frozen=True):
    """Call C{StompSession.resumeFrames} in a while: there may be more frames, or messages."""


@frozen
class LogInAccount:
    """
    Log the client in. Answered by C{StompSession.loggedIn} or C{failed}.

    @ivar login: the account's name, if the client gives one.
    @ivar passcode: its password, if the client gives one.
    """

    answer: FrameAnswer
    login: str | None
    passcode: str | None = field(repr=False)


class PublishEvents(Struct, frozen=True):
    """
    Publish events, in their order and after all that was to be published before; what comes of
    one is nothing to the others. Answered by C{StompSession.publishedEach}.

    @ivar answers: the answer to each.
    """

    answers: list[FrameAnswer]
    publications: list[Publication]


class PublishAll(Struct, frozen=True):
    """
    Publish events in order, if all their topics are there; otherwise none. Answered by
    C{StompSession.published} or C{failed}; C{StompSession.proceed} tells that they are under way.
    """

    answer: FrameAnswer
    publications: Sequence[Publication]


class OpenSubscription(Struct, frozen=True):
    """
    Request a subscription. Answered by C{StompSession.subscribed} or C{failed}. All that the client
    has published before it is answered.

    @ivar number: what the subscription is called between session and carrier.
    """

    answer: FrameAnswer
    number: int
    request: SubscribeRequest


class Resume(Struct, frozen=True):
    """Let a subscription's events flow."""

    number: int


class Pause(Struct, frozen=True):
    """Let no more of a subscription's events flow."""

    number: int


class Acknowledge(Struct, frozen=True):
    """The client has got these events of a subscription for good."""

    number: int
    events: Sequence[Event]


class EndSubscription(Struct, frozen=True):
    """
    End a subscription.

    @ivar isForgotten: whether its position is forgotten too.
    """

    number: int
    isForgotten: bool


class Close(Struct, frozen=True):
    """
    Close the connection, and end whatever subscriptions there are.

    @ivar isAbrupt: whether the client may still be sending.
    """

    isAbrupt: bool


Effect: TypeAlias = (
    Write
    | Proceed
    | LogInAccount
    | PublishEvents
    | PublishAll
    | OpenSubscription
    | Resume
    | Pause
    | Acknowledge
    | EndSubscription
    | Close
)
