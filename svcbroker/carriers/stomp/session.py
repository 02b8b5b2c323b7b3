"""
STOMP session, sans-io: frames in, frames and effects out.

Nothing here touches a transport, a clock or the broker: times come in as arguments, in seconds,
and what is to be done comes out as L{effects<svcbroker.carriers.stomp.answers.Effect>}, which the
caller carries out in order. Clauses are those of the STOMP 1.2 specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from attrs import Factory, define

from ...broker import Publication, SendResult, SendStatus
from ...errors import BrokerError, Overloaded, ParameterInvalid
from ...interfaces import Batch, ISubscription
from ...net.addresses import ownerKey
from ...net.budgets import Budgets
from ...net.turns import NEVER
from ..websocket import MESSAGE_BYTES
from .answers import (
    Close,
    Effect,
    EndSubscription,
    FrameAnswer,
    FrameAnswers,
    LogInAccount,
    OpenSubscription,
    Proceed,
    PublishAll,
    PublishEvents,
    Write,
    encodeConnected,
    errorOf,
)
from .deliveries import Deliveries
from .frames import HEARTBEAT, Frame, HeartBeats, StompParser, StompSettings, StompVersion
from .requests import (
    Acknowledgement,
    PublicationReader,
    chooseVersion,
    need,
    readAckMode,
    readAcknowledgement,
    readPrefetch,
    readSubscriptionKey,
)
from .stompdialects import PLAIN, StompDialect


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
        dialect: StompDialect = PLAIN,
        isMessages: bool = False,
    ) -> None:
        """
        @param sessionId: what CONNECTED says as C{session}.
        @param server: what it says as C{server}.
        @param remote: the client's address, as operators see it.
        @param budgets: what all connections share.
        @param dialect: how the client's STOMP differs from the specification's.
        @param isMessages: whether each L{Write} is one message to the client, which may be too
            long for it.
        """
        self.state = State.CONNECTING
        self.version: StompVersion | None = None
        self._settings = settings
        self._dialect = dialect
        self._readFrame = dialect.readFrame
        self._publications = PublicationReader(dialect.readPublication)
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
        self._isInputEnded = False

    # What comes in.

    def receive(self, data: bytes, now: float) -> list[Effect]:
        """The client has sent bytes."""
        self._beats.received(now)
        if self.state in _TAKES_FRAMES:
            self._parser.feed(data)
        effects = self._go(now)
        kept = self._parser.buffered + self._transactions.weight
        if kept != self._waiting.size and not self._waiting.set(kept):
            self._refuse(Overloaded("too many bytes of frames and transactions wait for the rest"))
            effects += self._go(now)
        return effects

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
            and len(self._answers) < self._settings.maxPublishes
            and self._answers.size < self._settings.maxPublishBytes
        )

    # The way through.

    def _go(self, now: float) -> list[Effect]:
        """Take all frames that can be taken, and give all answers that can be given."""
        if self.state is State.CLOSED and not self._effects:
            return []
        self._giveAnswers(now)
        frames = 0
        while self.state in _TAKES_FRAMES and self._mayGoOn:
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
        # What is published after it, it must get, and of what was published before it nothing.
        self._before = answer = self._await(frame)
        answer.subscription = added.number
        self._next = OpenSubscription(answer, added.number, request)

    def _unsubscribe(self, frame: Frame) -> None:
        named = frame.headers.get("svc-subscriptionId")
        number = self._deliveries.end(readSubscriptionKey(frame, self._agreed), named)
        self._effects.append(EndSubscription(number, isForgotten=named is not None))
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
