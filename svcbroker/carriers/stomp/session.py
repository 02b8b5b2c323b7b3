"""
STOMP session, sans-io: frames in, frames and effects out; with its subscriptions, their messages,
acknowledgements and flow (L{Deliveries}).

Nothing here touches a transport, a clock or the broker: times come in as arguments, in seconds,
and what is to be done comes out as L{effects<svcbroker.carriers.stomp.answers.Effect>}, which the
caller carries out in order. Clauses are those of the STOMP 1.2 specification.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from attrs import Factory, define

from ...broker import Publication, SendResult, SendStatus
from ...errors import BrokerError, Overloaded, ParameterInvalid, SubscriptionExists
from ...interfaces import Batch, ISubscription
from ...model import Event
from ...net.addresses import ownerKey
from ...net.budgets import Budgets, ByteCount
from ...net.turns import NEVER
from ..websocket import MESSAGE_BYTES
from .answers import (
    Acknowledge,
    Close,
    Effect,
    EndSubscription,
    FrameAnswer,
    FrameAnswers,
    LogInAccount,
    OpenSubscription,
    Pause,
    Proceed,
    PublishAll,
    PublishEvents,
    Resume,
    Write,
    encodeConnected,
    errorOf,
)
from .frames import HEARTBEAT, Frame, HeartBeats, StompParser, StompSettings, StompVersion
from .messages import AckMode, AckWindow, MessageHeads, UnacknowledgedBytes, Waiting, encodedEvents
from .requests import (
    PLAIN,
    Acknowledgement,
    PublicationReader,
    StompDialect,
    chooseVersion,
    need,
    readAckMode,
    readAcknowledgement,
    readPrefetch,
    readSubscriptionKey,
)

MESSAGES_AT_ONCE: Final = 1000
"""The number of messages that are sent between two looks at the time: some milliseconds."""


@define(eq=False)
class StompSubscription:
    """
    A subscription of a connection.

    @ivar number: its number in the connection, from 1.
    @ivar key: what the client calls it; see
        L{readSubscriptionKey<svcbroker.carriers.stomp.requests.readSubscriptionKey>}.
    @ivar filterBytes: the bytes of its topics and patterns.
    @ivar window: what is between broker and client; C{None} where nothing is acknowledged.
    @ivar subscriptionId: its UUID; C{None} until the broker has made it.
    @ivar heads: how its messages begin; C{None} until then too.
    @ivar mayRead: whether its client may still read an event.
    @ivar hasBegun: whether the client has been told all that comes before the first message.
    @ivar isFlowing: whether the broker was last told to let events flow.
    """

    number: int
    key: tuple[str, str]
    window: AckWindow | None
    filterBytes: int = 0
    subscriptionId: str | None = None
    heads: MessageHeads | None = None
    mayRead: Callable[[Event], bool] = lambda event: False
    hasBegun: bool = False
    isFlowing: bool = False

    @property
    def id(self) -> str | None:
        """The C{id} that the client gave, if it did."""
        kind, name = self.key
        return name if kind == "id" else None

    @property
    def takesMore(self) -> bool:
        """Whether events may flow, as far as this subscription is concerned."""
        if not self.hasBegun:
            return False
        return self.window is None or (self.window.isIdle and self.window.isOpen)


class Deliveries:
    """
    The subscriptions of one session.

    What is to be sent gathers in L{output}, what is to be done in L{effects}; the session takes
    both.

    @ivar version: the version that was agreed on.
    @ivar starting: times, and the numbers of the subscriptions that begin then, in their order.
    """

    version = StompVersion.V10

    def __init__(
        self,
        settings: StompSettings,
        windows: ByteCount,
        dialect: StompDialect = PLAIN,
        *,
        isMessages: bool = False,
    ) -> None:
        """
        @param windows: counts what is not acknowledged with that of all connections.
        @param isMessages: whether the frames in L{output} may not be joined before.
        """
        self._isMessages = isMessages
        self.output: list[bytes] = []
        self.effects: list[Effect] = []
        self._settings = settings
        self._dialect = dialect
        self._byKey: dict[tuple[str, str], StompSubscription] = {}
        self._byNumber: dict[int, StompSubscription] = {}
        self._count = 0
        self._filterBytes = 0
        self._unacknowledged = windows
        self._account = UnacknowledgedBytes(settings.maxUnacknowledgedBytes, self._unacknowledged)
        # Those that may send now what they could not before.
        self._due: dict[int, StompSubscription] = {}
        self._isStalled = False
        self.starting: deque[tuple[float, int]] = deque()

    def add(
        self, key: tuple[str, str], mode: AckMode, prefetch: int, filterBytes: int
    ) -> StompSubscription:
        """
        A new subscription, which has not begun.

        @raise SubscriptionExists: there is one that the client calls the same.
        @raise Overloaded: there are too many.
        """
        if key in self._byKey:
            raise SubscriptionExists("the connection has a subscription of this id")
        if len(self._byKey) >= self._settings.maxSubscriptions:
            raise Overloaded(
                f"a connection has at most {self._settings.maxSubscriptions} subscriptions"
            )
        most = self._settings.maxFilterBytes
        if self._filterBytes + filterBytes > most:
            raise Overloaded(f"the destinations of a connection have at most {most} bytes")
        self._filterBytes += filterBytes
        window = None if mode is AckMode.AUTO else AckWindow(mode, prefetch, self._account)
        self._count += 1
        added = StompSubscription(self._count, key, window, filterBytes)
        self._byKey[key] = self._byNumber[added.number] = added
        return added

    @property
    def hasDue(self) -> bool:
        """Whether L{flow} has something to do."""
        return bool(self._due)

    @property
    def window(self) -> int:
        """The most messages that may wait for an acknowledgement; those of AUTO need none."""
        windows = (each.window for each in self._byNumber.values())
        return sum(each.prefetch for each in windows if each is not None)

    def close(self) -> None:
        """The connection is closed."""
        self._unacknowledged.close()

    def made(self, number: int, subscription: ISubscription) -> None:
        """The broker has made a subscription."""
        made = self._byNumber[number]
        made.mayRead = subscription.mayRead
        made.subscriptionId = id = subscription.subscriptionId
        messageId = self._dialect.messageId(number, made.id, self.version)
        made.heads = MessageHeads(number, made.id, id, self.version, messageId)

    def begin(self, number: int, now: float) -> None:
        """
        Everything is said that comes before the first message, which may be sent now, or a while
        later where the dialect has it so.
        """
        if self._dialect.beginDelay:
            self.starting.append((now + self._dialect.beginDelay, number))
        else:
            self._begin(number)

    def beginDue(self, now: float) -> None:
        """Let those begin whose time has come. Called at the latest when the first is due."""
        while self.starting and self.starting[0][0] <= now:
            self._begin(self.starting.popleft()[1])

    def _begin(self, number: int) -> None:
        subscription = self._byNumber.get(number)
        if subscription is not None:
            subscription.hasBegun = True
            self._due[number] = subscription

    def abandon(self, number: int) -> None:
        """The broker has refused to make a subscription."""
        self._remove(self._byNumber[number])

    def end(self, key: tuple[str, str], named: str | None) -> StompSubscription:
        """
        End a subscription.

        @param named: the UUID that the client gives it; C{None} for none.
        @return: it.
        @raise ParameterInvalid: there is none that the client calls so, or it has another UUID.
        """
        ended = self._byKey.get(key)
        if ended is None:
            raise ParameterInvalid("the connection has no such subscription")
        if named is not None and named.lower() != ended.subscriptionId:
            raise ParameterInvalid("svc-subscriptionId is not this subscription's")
        self._remove(ended)
        return ended

    def _remove(self, removed: StompSubscription) -> None:
        del self._byKey[removed.key]
        del self._byNumber[removed.number]
        self._filterBytes -= removed.filterBytes
        self._due.pop(removed.number, None)
        if removed.window is not None:
            wasFull = self._account.isFull
            removed.window.clear()
            self._roomMade(wasFull)

    def frames(self, number: int, batch: Batch) -> bytes | None:
        """
        The frames of a subscription's next events, where they may be sent at once and nothing else
        is to be done.

        @return: C{None} where L{deliver} has to be called.
        """
        subscription = self._byNumber.get(number)
        if (
            subscription is None
            or subscription.heads is None
            or subscription.window is not None
            or self._isMessages
            or self._isStalled
            or self._due
            or self.output
        ):
            return None
        encoded = encodedEvents(batch, self.version, self._dialect.encodeEvent)
        return subscription.heads.messages(encoded)

    def deliver(self, number: int, batch: Batch) -> None:
        """The broker hands over a subscription's next events."""
        subscription = self._byNumber.get(number)
        if subscription is None or subscription.heads is None:
            return
        encoded = encodedEvents(batch, self.version, self._dialect.encodeEvent)
        if subscription.window is None:
            if self._isMessages:
                self.output += subscription.heads.each(encoded)
            else:
                self.output.append(subscription.heads.messages(encoded))
            return
        subscription.window.add(
            Waiting(event, each, False) for event, each in zip(batch.events, encoded, strict=True)
        )
        self._due[number] = subscription

    def checkAcknowledgement(self, acknowledgement: Acknowledgement) -> None:
        """
        @raise ParameterInvalid: it is for no subscription that there ever was.
        """
        if not 1 <= acknowledgement.number <= self._count:
            raise ParameterInvalid("no message of this connection is named so")

    def settle(self, acknowledgement: Acknowledgement) -> None:
        """
        Carry out an ACK or NACK. One that comes too late, after its message was settled or its
        subscription has ended, changes nothing: client and broker may well have crossed.
        """
        subscription = self._byNumber.get(acknowledgement.number)
        if subscription is None or subscription.window is None:
            return
        window, wasFull = subscription.window, self._account.isFull
        events = window.take(acknowledgement.eventId)
        if not events:
            return
        if acknowledgement.isGood:
            self.effects.append(Acknowledge(subscription.number, events))
        else:
            window.again(Waiting(event, None, True) for event in events)
        self._due[subscription.number] = subscription
        self._roomMade(wasFull)

    def stall(self, isStalled: bool) -> None:
        """
        The client has stopped to read what it is sent, or goes on.
        """
        self._isStalled = isStalled
        self._due.update(self._byNumber)

    def flow(self) -> bool:
        """
        Send what may be sent, and tell the broker of whom it may hand over more. Called once
        after everything that arrived together.

        @return: whether there is more to send, which would take too long now.
        """
        if not self._byNumber:
            return False
        due, self._due = self._due, {}
        left = MESSAGES_AT_ONCE
        for subscription in due.values():
            window = subscription.window
            if window is not None and not self._isStalled and subscription.hasBegun:
                left -= self._send(subscription, window, left)
                if not window.isIdle and window.isOpen:
                    self._due[subscription.number] = subscription
            wantsFlow = not self._isStalled and subscription.takesMore
            if wantsFlow is not subscription.isFlowing:
                subscription.isFlowing = wantsFlow
                change = Resume if wantsFlow else Pause
                self.effects.append(change(subscription.number))
        if self._account.isFull:
            self._pauseAll()
        return bool(self._due)

    def _send(self, subscription: StompSubscription, window: AckWindow, limit: int) -> int:
        """Send what a subscription may send, and tell how many events that were."""
        heads, version, encode = subscription.heads, self.version, self._dialect.encodeEvent
        assert heads is not None
        sent, dropped = window.send(subscription.mayRead, limit)
        self.output.extend(
            heads.message(encoded or encode(event, version), isRedelivered)
            for event, encoded, isRedelivered in sent
        )
        if dropped:
            self.effects.append(Acknowledge(subscription.number, dropped))
        return len(sent) + len(dropped)

    def _roomMade(self, wasFull: bool) -> None:
        if wasFull and not self._account.isFull:
            # Subscriptions that waited for room may go on.
            self._due.update(self._byNumber)

    def _pauseAll(self) -> None:
        for subscription in self._byNumber.values():
            if subscription.isFlowing and subscription.window is not None:
                subscription.isFlowing = False
                self.effects.append(Pause(subscription.number))


class State(Enum):
    """The state of a session."""

    CONNECTING = "connecting"
    """The client has yet to say CONNECT, or is being logged in."""
    OPEN = "open"
    """Frames are taken."""
    ENDING = "ending"
    """No more frames are taken: what came before is answered, then the last answer is given."""
    CLOSED = "closed"
    """Nothing more is said."""


_TAKES_FRAMES: Final = (State.CONNECTING, State.OPEN)

FRAMES_AT_ONCE: Final = 200
"""So many frames are taken without a look at the time."""

_FRAME_BYTES: Final = 512
"""The bytes that a frame costs beside its content and its extensions, roughly."""


class StompSession:
    """
    The server's side of one connection.

    @ivar state: how far it has come.
    @ivar version: the version that was agreed on; C{None} before.
    """

    def __init__(
        self,
        settings: StompSettings,
        *,
        sessionId: str,
        server: str,
        remote: str,
        now: float,
        budgets: Budgets,
        publications: PublicationReader,
        dialect: StompDialect = PLAIN,
        isMessages: bool = False,
    ) -> None:
        """
        @param sessionId: what CONNECTED says as C{session}.
        @param server: what it says as C{server}.
        @param remote: the client's address, as operators see it.
        @param budgets: what all connections share.
        @param publications: reads the events of SEND frames.
        @param dialect: how the client's STOMP differs from the specification's.
        @param isMessages: whether each L{Write} is one message to the client, which may be too
            long for it.
        """
        self.state = State.CONNECTING
        self.version: StompVersion | None = None
        self._settings = settings
        self._dialect = dialect
        self._readFrame = dialect.readFrame
        self._publications = publications
        self._sessionId = sessionId
        self._server = server
        self._remote = remote
        self._connectBy = now + settings.connectTimeout
        self._parser = StompParser(settings.frames)
        self._beats = HeartBeats(now)
        self._answers = FrameAnswers()
        self._transactions = StompTransactions(settings)
        owner = ownerKey("", remote)
        self._windows = budgets.windows.count(owner)
        self._isMessages = isMessages
        self._deliveries = Deliveries(settings, self._windows, dialect, isMessages=isMessages)
        self._waiting = budgets.input.count(owner)
        self._effects = self._deliveries.effects
        self._output = self._deliveries.output
        # What the next frame waits for, since it could overtake it.
        self._before: FrameAnswer | None = None
        # A SUBSCRIBE whose turn comes when all before it is answered.
        self._next: OpenSubscription | None = None
        # What COMMIT acknowledges once its events are published.
        self._acknowledgements: dict[FrameAnswer, Sequence[Acknowledgement]] = {}
        self._isStalled = False
        self._isLeaving = False
        self._isInputEnded = False

    @property
    def window(self) -> int:
        """The most messages that may wait for an acknowledgement of the client."""
        return self._deliveries.window

    # What comes in.

    def receive(self, data: bytes, now: float) -> list[Effect]:
        """The client has sent bytes."""
        self._beats.received(now)
        if self.state in _TAKES_FRAMES:
            self._parser.feed(data)
        return self._go(now)

    def onlyPublish(self, data: bytes, now: float) -> PublishEvents | None:
        """
        The client has sent bytes: the publish that they ask for, where they ask for nothing else
        and nothing else is to be done. Most clients have one under way. Hot path.

        @return: C{None} where nothing was done, and L{receive} has to be called.
        """
        if (
            self.state is not State.OPEN
            or self._readFrame is not None
            or self._answers.count
            or self._waiting.size
            or self._isInputEnded
            or self._isStalled
            or self._effects
            or self._output
            or self._deliveries.hasDue
            or not data.startswith(b"SEND\n")
        ):
            return None
        frame = self._parser.onlyFrame(data)
        if frame is None or "transaction" in frame.headers:
            return None
        try:
            publication = self._publications.read(frame)
        except BrokerError:
            return None
        self._beats.received(now)
        return PublishEvents([self._await(frame, len(frame.body))], [publication])

    def belongTo(self, owner: str) -> None:
        """Count what is kept as that of another owner from now on: the client has logged in."""
        self._waiting.belongTo(owner)
        self._windows.belongTo(owner)

    def close(self) -> None:
        """The connection is closed."""
        self._waiting.close()
        self._deliveries.close()

    def tick(self, now: float) -> list[Effect]:
        """Time has passed; called at the latest at L{deadline}."""
        if not self.wantsInput:
            # The client is gone.
            self._beats.received(now)
        if self.state is State.CONNECTING:
            if now >= self._connectBy:
                self._refuse(ParameterInvalid("there was no CONNECT in time"))
        elif self._beats.isGone(now) and self.state is not State.CLOSED:
            self._end(isAbrupt=True)
        elif self._beats.isDue(now) and self.state is not State.CLOSED:
            if self._isStalled:
                # What waits to be sent will be heard first.
                self._beats.sent(now)
            else:
                self._output.append(HEARTBEAT)
        self._deliveries.beginDue(now)
        return self._go(now)

    def receipt(
        self,
        answers: Sequence[FrameAnswer],
        outcomes: Sequence[SendResult | BrokerError],
        now: float,
    ) -> bytes | None:
        """
        The answer to the only publish that waits, which is in the log, where nothing else is to be
        done: most clients have one under way. Hot path.

        @return: C{None} where nothing was done, and L{publishedEach} has to be called.
        """
        outcome = outcomes[0]
        if (
            self._answers.count != 1
            or isinstance(outcome, BrokerError)
            or outcome.status is not SendStatus.SUCCESS
            or self.state is not State.OPEN
            or self._before is not None
            or self._parser.buffered
            or self._isInputEnded
            or self._isStalled
            or self._acknowledgements
            or self._deliveries.hasDue
        ):
            return None
        [answer] = answers
        answer.confirm(self.version, "eventId", outcome.eventId or "")
        self._answers.removeFirst()
        if answer.data:
            self._beats.sent(now)
        return answer.data

    def publishedEach(
        self,
        answers: Sequence[FrameAnswer],
        outcomes: Sequence[SendResult | BrokerError],
        now: float,
    ) -> list[Effect]:
        """Take the outcome of each event of a L{PublishEvents}."""
        for answer, outcome in zip(answers, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                self._settleWithError(answer, outcome)
            else:
                self._published(answer, (outcome,))
        return self._go(now)

    def published(
        self, answer: FrameAnswer, results: Sequence[SendResult], now: float
    ) -> list[Effect]:
        """Take the outcomes of L{PublishAll}."""
        self._published(answer, results)
        return self._go(now)

    def _published(self, answer: FrameAnswer, results: Sequence[SendResult]) -> None:
        for result in results:
            if result.status is not SendStatus.SUCCESS:
                self._settleWithError(answer, errorOf(result))
                return
        if self._acknowledgements:
            for acknowledgement in self._acknowledgements.pop(answer, ()):
                self._deliveries.settle(acknowledgement)
        if answer.receipt is None:
            self._answer(answer)
        else:
            self._answer(answer, "eventId", ",".join([each.eventId or "" for each in results]))

    def subscribed(
        self, answer: FrameAnswer, number: int, made: ISubscription, now: float
    ) -> list[Effect]:
        """L{OpenSubscription} was done."""
        self._deliveries.made(number, made)
        self._answer(answer, "subscription-id", made.subscriptionId)
        return self._go(now)

    def failed(self, answer: FrameAnswer, error: BrokerError, now: float) -> list[Effect]:
        """L{LogInAccount}, L{PublishAll} or L{OpenSubscription} was refused."""
        if answer.subscription is not None:
            self._deliveries.abandon(answer.subscription)
            answer.subscription = None
        self._settleWithError(answer, error)
        return self._go(now)

    def proceed(self, answer: FrameAnswer, now: float) -> list[Effect]:
        """Go on: frames can no longer overtake what L{PublishAll} asks for."""
        if self._before is answer:
            self._before = None
        return self._go(now)

    def frames(self, number: int, batch: Batch, now: float) -> bytes | None:
        """
        The frames of a subscription's next events, where nothing else is to be done: most
        subscribers acknowledge nothing. Hot path.

        @return: C{None} where L{deliver} has to be called.
        """
        data = None if self.state is State.CLOSED else self._deliveries.frames(number, batch)
        if data is not None:
            self._beats.sent(now)
        return data

    def deliver(self, number: int, batch: Batch, now: float) -> list[Effect]:
        """The broker hands over a subscription's next events."""
        if self.state is State.CLOSED:
            return []
        self._deliveries.deliver(number, batch)
        return self._go(now)

    def end(self, error: BrokerError, now: float) -> list[Effect]:
        """
        The broker has ended a subscription, or the client's account is gone. STOMP has no words for
        it but ERROR.
        """
        self._refuse(error)
        return self._go(now)

    def resumeFrames(self, now: float) -> list[Effect]:
        """L{Proceed}: there is time for more frames and messages."""
        return self._go(now)

    def stall(self, isStalled: bool, now: float) -> list[Effect]:
        """The client has stopped to read what it is sent, or goes on."""
        self._isStalled = isStalled
        self._deliveries.stall(isStalled)
        return self._go(now)

    def leaving(self) -> None:
        """
        The client sends nothing more after what has arrived, and its connection closes behind that.
        Subscriptions whose receipt it does not ask for are made no more: they take longest of all
        frames, and a client that has gone may have sent ten thousand of them.
        """
        self._isLeaving = True

    def inputEnded(self, now: float) -> list[Effect]:
        """No more bytes come: take the frames that are there, answer them, close."""
        self._isInputEnded = True
        return self._go(now)

    def shutDown(self, now: float) -> list[Effect]:
        """The broker stops: take no more frames, answer what came, close."""
        if self.state in _TAKES_FRAMES:
            self.state = State.ENDING
            self._answers.add(FrameAnswer(data=b"", isLast=True))
        return self._go(now)

    # What it wants.

    @property
    def deadline(self) -> float | None:
        """The latest time to call L{tick}; C{None} for never."""
        if self.state is State.CONNECTING:
            return self._connectBy
        if self.state is State.CLOSED:
            return None
        deadline, starting = self._beats.deadline, self._deliveries.starting
        if not starting:
            return deadline
        return starting[0][0] if deadline is None else min(starting[0][0], deadline)

    @property
    def wantsInput(self) -> bool:
        """
        Whether to read from the client. Bytes that come nevertheless are kept, so the caller stops
        reading soon.
        """
        return self.state not in _TAKES_FRAMES or self._mayGoOn

    @property
    def _mayGoOn(self) -> bool:
        return (
            self._before is None
            and self._answers.count < self._settings.maxPublishes
            and self._answers.size < self._settings.maxPublishBytes
        )

    # The way through.

    def _go(self, now: float) -> list[Effect]:
        """Take all frames that can be taken, and give all answers that can be given."""
        if self.state is State.CLOSED and not self._effects:
            return []
        if self._answers.count:
            self._giveAnswers(now)
        frames = 0
        # Hot path: after most answers, and after most frames, nothing more has come.
        while (
            (self._parser.hasMore or self._isInputEnded)
            and self.state in _TAKES_FRAMES
            and self._mayGoOn
        ):
            if not self._takeFrame():
                if not self._isInputEnded:
                    break
                self.state = State.ENDING
                self._answers.add(FrameAnswer(data=b"", isLast=True))
            self._giveAnswers(now)
            frames += 1
            if frames == FRAMES_AT_ONCE:
                self._effects.append(Proceed())
                break
        if self.state is not State.CLOSED and frames < FRAMES_AT_ONCE and self._deliveries.flow():
            self._effects.append(Proceed())
        effects = list(self._effects)
        self._effects.clear()
        if self._output:
            if self._isMessages:
                effects[:0] = map(Write, _joined(self._output))
            else:
                effects.insert(0, Write(b"".join(self._output)))
            self._output.clear()
            self._beats.sent(now)
        kept = self._parser.buffered + self._transactions.weight
        if kept != self._waiting.size and not self._waiting.set(kept):
            self._refuse(Overloaded("too many bytes of frames and transactions wait for the rest"))
            effects += self._go(now)
        return effects

    def _takeFrame(self) -> bool:
        """Take the next frame; whether there was one."""
        frame = None
        try:
            frame = self._parser.nextFrame()
            if frame is None:
                return False
            if self._readFrame is not None:
                frame = self._readFrame(frame)
            self._handle(frame)
        except BrokerError as error:
            if frame is None:
                # Nothing after it can be read.
                self._refuse(error)
            else:
                self._settleWithError(self._await(frame), error)
        return True

    def _handle(self, frame: Frame) -> None:
        isFirst = self.state is State.CONNECTING
        handler = (_CONNECTING if isFirst else _OPEN).get(frame.command)
        if handler is None:
            what = "the first frame is CONNECT or STOMP, not" if isFirst else "unexpected frame"
            raise ParameterInvalid(f"{what} {frame.command[:50]}")
        handler(self, frame)

    def _giveAnswers(self, now: float) -> None:
        if self.state is State.CLOSED:
            return
        if self._answers.isReady:
            self._giveReady(now)
        if self._next is not None and self._answers.isFirst(self._next.answer):
            self._effects.append(self._next)
            self._next = None

    def _giveReady(self, now: float) -> None:
        for answer in self._answers.ready():
            assert answer.data is not None
            if answer.data:
                self._output.append(answer.data)
            if answer.subscription is not None:
                self._deliveries.begin(answer.subscription, now)
            if answer.isLast:
                self._end(isAbrupt=answer.isError)
                return

    def _end(self, isAbrupt: bool) -> None:
        self.state = State.CLOSED
        self._effects.append(Close(isAbrupt))

    def _await(self, frame: Frame, size: int = 0) -> FrameAnswer:
        """An answer that is still to come, in its place."""
        return self._answers.add(FrameAnswer(receipt=frame.receipt, size=size))

    def _done(self, frame: Frame) -> None:
        """A frame that needed no answer of the broker was carried out."""
        if frame.receipt is not None:
            self._answer(self._await(frame))

    def _answer(self, answer: FrameAnswer, name: str = "", value: str = "") -> None:
        if self._before is answer:
            self._before = None
        answer.confirm(self.version, name, value)

    def _settleWithError(
        self, answer: FrameAnswer, error: BrokerError, isFinal: bool = False
    ) -> None:
        """
        Answer with ERROR. The connection closes then ("ERROR": "and then close the connection"),
        unless the dialect has it otherwise for a client that is logged in.
        """
        answer.fail(error, self.version)
        self._acknowledgements.pop(answer, None)
        if self._before is answer:
            self._before = None
        if isFinal or self._dialect.isErrorFinal or self.state is State.CONNECTING:
            answer.isLast = answer.isError = True
            if self.state in _TAKES_FRAMES:
                self.state = State.ENDING

    def _refuse(self, error: BrokerError) -> None:
        """Take no more frames; answer those before, then say what is wrong."""
        if self.state in _TAKES_FRAMES:
            self._settleWithError(self._answers.add(FrameAnswer()), error, isFinal=True)

    # Frames, by their command.

    def _connect(self, frame: Frame) -> None:
        # "CONNECT or STOMP Frame". The header host is not looked at: every name means this
        # broker, and common clients leave it out.
        version = chooseVersion(frame.headers)
        beats = frame.headers.get("heart-beat")
        if beats is not None and version is not StompVersion.V10:
            wants = self._settings.wantsBeatEvery if self._dialect.expectsHeartBeats else 0
            self._beats.agree(beats, self._settings.canBeatEvery, wants)
        self.version = self._parser.version = self._deliveries.version = version
        # The check may take long. Its receipt is CONNECTED.
        self._connectBy = NEVER
        self._before = answer = self._await(frame)
        login, passcode = frame.headers.get("login"), frame.headers.get("passcode")
        self._effects.append(LogInAccount(answer, login, passcode))

    def loggedIn(self, answer: FrameAnswer, now: float) -> list[Effect]:
        """L{LogInAccount} was done."""
        if self.state is State.CONNECTING:
            self.state = State.OPEN
        assert self.version is not None
        beats = f"{self._settings.canBeatEvery},{self._settings.wantsBeatEvery}"
        answer.data = encodeConnected(self.version, beats, self._sessionId, self._server)
        self._before = None
        return self._go(now)

    def _send(self, frame: Frame) -> None:
        publication = self._publications.read(frame)
        transaction = frame.headers.get("transaction")
        if transaction is not None:
            self._transactions.add(transaction, publication)
            self._done(frame)
        else:
            answer = self._await(frame, len(frame.body))
            last = self._effects[-1] if self._effects else None
            if isinstance(last, PublishEvents):
                last.answers.append(answer)
                last.publications.append(publication)
            else:
                self._effects.append(PublishEvents([answer], [publication]))

    def _subscribe(self, frame: Frame) -> None:
        request = self._dialect.readSubscribe(frame, self._remote, self._settings)
        added = self._deliveries.add(
            readSubscriptionKey(frame, self._agreed),
            readAckMode(frame),
            readPrefetch(frame, self._settings),
            sum(map(len, request.filters)),
        )
        if self._isLeaving and frame.receipt is None and request.subscriptionId is None:
            return
        # What is published after it, it must get, and of what was published before it nothing.
        self._before = answer = self._await(frame)
        answer.subscription = added.number
        self._next = OpenSubscription(answer, added.number, request)

    def _unsubscribe(self, frame: Frame) -> None:
        named = frame.headers.get("svc-subscriptionId")
        ended = self._deliveries.end(readSubscriptionKey(frame, self._agreed), named)
        if ended.subscriptionId is not None:
            self._effects.append(EndSubscription(ended.number, isForgotten=named is not None))
        self._done(frame)

    def _acknowledge(self, frame: Frame) -> None:
        acknowledgement = readAcknowledgement(frame, self._agreed)
        self._deliveries.checkAcknowledgement(acknowledgement)
        transaction = frame.headers.get("transaction")
        if transaction is not None:
            self._transactions.add(transaction, acknowledgement)
        else:
            self._deliveries.settle(acknowledgement)
        self._done(frame)

    def _begin(self, frame: Frame) -> None:
        self._transactions.begin(need(frame, "transaction"))
        self._done(frame)

    def _commit(self, frame: Frame) -> None:
        transaction = self._transactions.end(need(frame, "transaction"))
        if not transaction.publications:
            for acknowledgement in transaction.acknowledgements:
                self._deliveries.settle(acknowledgement)
            self._done(frame)
            return
        self._before = answer = self._await(frame, transaction.size)
        # Nothing is acknowledged before what was made of it is published.
        self._acknowledgements[answer] = transaction.acknowledgements
        self._effects.append(PublishAll(answer, transaction.publications))

    def _abort(self, frame: Frame) -> None:
        self._transactions.end(need(frame, "transaction"))
        self._done(frame)

    def _disconnect(self, frame: Frame) -> None:
        self._done(frame)
        self.state = State.ENDING
        self._answers.add(FrameAnswer(data=b"", isLast=True))

    @property
    def _agreed(self) -> StompVersion:
        assert self.version is not None
        return self.version


def _joined(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Join frames up to L{MESSAGE_BYTES}. A longer one stays alone."""
    part: list[bytes] = []
    size = 0
    for frame in frames:
        size += len(frame)
        if part and size > MESSAGE_BYTES:
            yield b"".join(part)
            part, size = [], len(frame)
        part.append(frame)
    yield b"".join(part)


_Handler = Callable[[StompSession, Frame], None]
_CONNECTING: Final[Mapping[str, _Handler]] = {
    "CONNECT": StompSession._connect,
    "STOMP": StompSession._connect,
}
_OPEN: Final[Mapping[str, _Handler]] = {
    "SEND": StompSession._send,
    "SUBSCRIBE": StompSession._subscribe,
    "UNSUBSCRIBE": StompSession._unsubscribe,
    "ACK": StompSession._acknowledge,
    "NACK": StompSession._acknowledge,
    "BEGIN": StompSession._begin,
    "COMMIT": StompSession._commit,
    "ABORT": StompSession._abort,
    "DISCONNECT": StompSession._disconnect,
}


@define(eq=False)
class StompTransaction:
    """
    The requests of one transaction, in order.

    @ivar weight: about how many bytes of memory it takes.
    """

    publications: list[Publication] = Factory(list)
    acknowledgements: list[Acknowledgement] = Factory(list)
    weight: int = 0

    @property
    def frames(self) -> int:
        """The number of frames that it holds."""
        return len(self.publications) + len(self.acknowledgements)

    @property
    def size(self) -> int:
        """The size of the content that it holds, in bytes."""
        return sum(len(publication.content) for publication in self.publications)


class StompTransactions:
    """
    The open transactions of a connection, within its bounds.
    """

    def __init__(self, settings: StompSettings) -> None:
        self._settings = settings
        self._open: dict[str, StompTransaction] = {}
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
        self._open[name] = StompTransaction()

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

    def end(self, name: str) -> StompTransaction:
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

    def _find(self, name: str) -> StompTransaction:
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
