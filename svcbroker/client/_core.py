"""
The core of the clients: a procedure for each call. Publishing takes place once, in as many attempts
as it takes; following is one stream of events, over as many connections as it takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypedDict, TypeVar
from urllib.parse import urlencode

import msgspec
from attrs import evolve, frozen

from ..errors import (
    BrokerError,
    ContentTooLarge,
    EventErased,
    HeightUnknown,
    ParameterInvalid,
    QuotaExceeded,
    TopicNotFound,
    TransactionTimeout,
)
from ..files import readFile
from ..model import ENCRYPTED, checkExtensions, filterMatches
from ._confidential import EXTENSIONS, AuthorKey, checkRecipients, closed, loadIdentities
from ._effects import (
    AnswerInvalid,
    Delay,
    Deliver,
    HttpRequest,
    Procedure,
    Unreachable,
    openStream,
    readStream,
)
from ._receipts import Receipts, ReceiptWriter, checkReceipts
from ._records import (
    CheckpointRecord,
    ClosedEvent,
    Event,
    EventPageRecord,
    Found,
    NewKey,
    OpenedEvent,
    Publication,
    Published,
    SendAnswer,
    TopicInfo,
    TopicPage,
    TopicState,
    offsetText,
)
from ._requests import (
    Attempts,
    Brokers,
    Fields,
    Requests,
    authorization,
    checkResponse,
    checkUrl,
    isRefused,
    isUncertain,
    readAnswer,
    readDocument,
    readError,
)

if TYPE_CHECKING:
    from ..proofs import AgeIdentity
    from ._trust import AnswerVerifier


class Options(TypedDict, total=False):
    """
    The options of all clients.

    @ivar user: the name of an account, with its C{password}.
    @ivar token: a token of an account, instead.
    @ivar ca: a PEM file with the authorities that may have signed the brokers' certificates; by
        default those of the system.
    @ivar certificate: a PEM file with the client's certificate.
    @ivar certificateKey: a PEM file with its key, if it is not in the same file.
    @ivar group: the id of the group; by default the broker's.
    @ivar timeout: how long a call may take with all its attempts, in seconds; by default 60.
    @ivar waitForBroker: whether calls wait, for up to the timeout, for brokers that refuse
        connections, also as long as none has answered yet; by default they do.
    @ivar key: signs every event that is published: an author's key, or its PEM file.
    @ivar recipients: to whom the contents of events are closed that are published: C{age1...}. It
        needs the extra C{encryption}.
    @ivar identities: open the contents of events that are read: a file with identities, as
        C{svcbroker proof keygen --encryption} and C{age-keygen} write it, which is read again after
        it was changed, or what L{readIdentities<svcbroker.proofs.readIdentities>} gave.
    @ivar genesis: the genesis of the group's chain, or a file with it: then everything is verified.
    @ivar checkpoint: a checkpoint of the chain, C{HEIGHT:HASH}, that is trusted: likewise.
    @ivar checkpointFile: keeps the newest verified checkpoint, so that a fork is refused after a
        restart, too. Where it exists, neither of the others is needed.
    """

    user: str | None
    password: str | None
    token: str | None
    ca: str | Path | None
    certificate: str | Path | None
    certificateKey: str | Path | None
    group: str | None
    timeout: float
    waitForBroker: bool
    key: AuthorKey | str | Path | None
    recipients: Sequence[str] | None
    identities: str | Path | Sequence[AgeIdentity] | None
    genesis: bytes | str | Path | None
    checkpoint: str | None
    checkpointFile: str | Path | None


MAX_BATCH: Final = 500
MAX_BATCH_SIZE: Final = 512 * 1024
"""The most events and bytes, of contents and extensions, of one request with several events."""

_sendResults = msgspec.json.Decoder(SendAnswer)


def batches(publications: Iterable[Publication]) -> Iterator[list[Publication]]:
    """Cut publications into batches for one request each."""
    batch: list[Publication] = []
    size = 0
    for each in publications:
        own = len(each.content) + sum(len(k) + len(v) for k, v in each.extensions.items())
        size += own
        if batch and (len(batch) == MAX_BATCH or size > MAX_BATCH_SIZE):
            yield batch
            batch, size = [], own
        batch.append(each)
    if batch:
        yield batch


def newKey() -> str:
    """
    An idempotency key: the time in milliseconds and random characters. Keys of the same time are
    neighbours in the index of a broker's store, so a block changes few of its pages.
    """
    return f"{time.time_ns() // 1_000_000:x}-{token_urlsafe(12)}"


class BatchProcedure:
    """
    Events that are published together: those whose outcome is not final are sent again.
    """

    def __init__(
        self,
        requests: Requests,
        publications: Sequence[Publication],
        makeKey: Callable[[], str],
        sign: Callable[[Publication, str | None], Mapping[str, Any]] | None,
    ) -> None:
        """
        @param makeKey: makes idempotency keys.
        @param sign: makes the parameters of a signed publish, with its idempotency key; C{None}
            where no event is signed.
        """
        self._requests = requests
        # Parameters without which an event would be another one.
        self._needed = {
            name
            for each in publications
            for name, value in (
                ("idempotencyKey", each.idempotencyKey),
                ("expectedSequence", each.expectedSequence),
            )
            if value is not None and value is not NewKey.NEW
        }
        if sign is not None:
            self._needed.add("author")
        self._outcomes: list[Published | BrokerError] = [AnswerInvalid()] * len(publications)
        # Of those that wait, by their places.
        self._parameters: dict[int, dict[str, Any]] = {}
        for place, each in enumerate(publications):
            try:
                self._parameters[place] = _parameters(each, makeKey, sign)
            except BrokerError as error:
                self._outcomes[place] = error
        self._waiting = list(self._parameters)

    def run(self) -> Procedure[list[Published | BrokerError]]:
        """
        Publish the events.

        @return: the outcome of each.
        """
        attempts = self._requests.attempts()
        while self._waiting:
            count = len(self._waiting)
            error = yield from self._attempt(attempts)
            if error is not None:
                if len(self._waiting) < count:
                    attempts.progressed()
                if not isinstance(error, QuotaExceeded):
                    self._requests.forget(attempts.url)
                try:
                    yield from attempts.failed(error)
                except BrokerError:
                    break
        return self._outcomes

    def _attempt(self, attempts: Attempts) -> Procedure[BrokerError | None]:
        """
        Make one attempt.

        @return: why there has to be another one; C{None} where all outcomes are final.
        """
        try:
            known = yield from self._requests.parameters(attempts, "publish")
        except BrokerError as error:
            if isinstance(error, Unreachable):
                # It was asked for its parameters only.
                error = Unreachable(error.message, isSent=False, isFinal=error.isFinal)
            return self._settle([error] * len(self._waiting), isRepeatable=True)
        missing = self._needed - known
        if missing:
            refusal = ParameterInvalid(f"this broker knows no {min(missing)}")
            return self._settle([refusal] * len(self._waiting), isRepeatable=False)
        answers: Sequence[SendAnswer | BrokerError]
        try:
            if len(self._waiting) == 1:
                answers = [(yield from self._sendOne(attempts, self._waiting[0]))]
            else:
                answers = yield from self._sendMany(attempts)
        except BrokerError as error:
            answers = [error] * len(self._waiting)
        return self._settle(answers, isRepeatable="idempotencyKey" in known)

    def _sendOne(self, attempts: Attempts, place: int) -> Procedure[SendAnswer]:
        fields = dict(self._parameters[place])
        fields.update(fields.pop("extensions"))
        return readAnswer(
            (yield from self._requests.post(attempts, "publish", fields)), _sendResults
        )

    def _sendMany(self, attempts: Attempts) -> Procedure[list[SendAnswer | BrokerError]]:
        calls = [self._parameters[place] for place in self._waiting]
        try:
            outcomes = yield from self._requests.batch(attempts, "publish", calls)
        except ContentTooLarge:
            return (yield from self._sendEach(attempts))
        return [each if isinstance(each, BrokerError) else _resultOf(each) for each in outcomes]

    def _sendEach(self, attempts: Attempts) -> Procedure[list[SendAnswer | BrokerError]]:
        """Send events one by one, to a broker that takes small requests only."""
        answers: list[SendAnswer | BrokerError] = []
        for place in self._waiting:
            answer: SendAnswer | BrokerError
            try:
                answer = yield from self._sendOne(attempts, place)
            except BrokerError as error:
                answer = error
            answers.append(answer)
            outcome = self._outcomeOf(place, answer)
            if isinstance(outcome, BrokerError) and (isRefused(outcome) or isUncertain(outcome)):
                # The others come after it.
                rest = len(self._waiting) - len(answers)
                return answers + [Unreachable("not sent", isSent=False)] * rest
        return answers

    def _settle(
        self, answers: Sequence[SendAnswer | BrokerError], *, isRepeatable: bool
    ) -> BrokerError | None:
        """
        Take the answers to the events that wait.

        @param isRepeatable: whether events may be sent again that may have been published.
        @return: why there has to be another attempt.
        """
        again: BrokerError | None = None
        waiting, self._waiting = self._waiting, []
        for place, answer in zip(waiting, answers, strict=True):
            before, outcome = self._outcomes[place], self._outcomeOf(place, answer)
            isOpen = isinstance(before, BrokerError) and isUncertain(before)
            if not (isOpen and isinstance(outcome, BrokerError) and isRefused(outcome)):
                # Else it is still open whether an earlier attempt has published it.
                self._outcomes[place] = outcome
            if isinstance(outcome, BrokerError) and (
                isRefused(outcome)
                or (isRepeatable and self._keyAt(place) is not None and isUncertain(outcome))
            ):
                self._waiting.append(place)
                again = again or outcome
        return again

    def _outcomeOf(self, place: int, answer: SendAnswer | BrokerError) -> Published | BrokerError:
        if isinstance(answer, BrokerError):
            return answer
        if answer.status == "TIMEOUT":
            return TransactionTimeout()
        if answer.eventId is None:
            # ERROR: the topic was closed when the event's turn came. Other refusals have a code.
            return TopicNotFound()
        key = self._keyAt(place)
        return Published(topic=answer.topic, eventId=answer.eventId, idempotencyKey=key)

    def _keyAt(self, place: int) -> str | None:
        key: str | None = self._parameters[place].get("idempotencyKey")
        return key


def _resultOf(answer: msgspec.Raw) -> SendAnswer | BrokerError:
    try:
        return _sendResults.decode(answer)
    except msgspec.MsgspecError:
        return AnswerInvalid()


def _parameters(
    publication: Publication,
    makeKey: Callable[[], str],
    sign: Callable[[Publication, str | None], Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """
    The parameters of a publish, by the names of the interface.

    @raise BrokerError: its extensions are malformed.
    """
    checkExtensions(publication.extensions)
    if publication.idempotencyKey == "":
        # Brokers take an empty parameter for none.
        raise ParameterInvalid("idempotencyKey: is empty")
    given = publication.idempotencyKey
    key = makeKey() if given is NewKey.NEW else given
    parameters: dict[str, Any] = {
        "topic": publication.topic,
        "content": publication.content,
        "extensions": publication.extensions,
    }
    if key is not None:
        parameters["idempotencyKey"] = key
    if sign is not None:
        # Once: each attempt is the same event.
        parameters.update(sign(publication, key))
    if publication.expectedSequence is not None:
        parameters["expectedSequence"] = publication.expectedSequence
    return parameters


_PAUSE: Final = 16
_LARGE: Final = 4096
"""
After so many closed events, or one with so many bytes, others get their turn: to open the dearest
one takes some 10 ms for each identity.
"""


def opened(event: Event, identities: Sequence[AgeIdentity]) -> Event:
    """
    An event with its content opened, or with the reason why it is not. One that is open, or
    erased, is left as it is.
    """
    if event.erased or ENCRYPTED not in event.extensions:
        return event
    fields = msgspec.structs.asdict(event)
    if not identities:
        return ClosedEvent(**fields, reason="no identity is given")
    # It needs cryptography, which clients that open nothing do without.
    from ..proofs import NotOpened, openContent

    try:
        content = openContent(event.content, event.extensions, identities)
    except NotOpened as error:
        return ClosedEvent(**fields, reason=str(error))
    return OpenedEvent(**{**fields, "content": content})


def openedEvents(
    events: Sequence[Event], identities: Sequence[AgeIdentity]
) -> Procedure[list[Event]]:
    """Open events, with pauses in which others get their turn."""
    found = []
    for number, each in enumerate(events, 1):
        found.append(opened(each, identities))
        if identities and (number % _PAUSE == 0 or len(each.content) > _LARGE):
            yield Delay(0.0)
    return found


IDLE: Final = 45.0
"""Seconds that a stream may be silent. A broker sends a comment after 15."""
_MAX_REFUSAL: Final = 64 * 1024


class FollowedStream:
    """
    One call of C{follow}.
    """

    def __init__(
        self,
        attempts: Attempts,
        fields: Fields,
        requests: Requests,
        receive: Callable[[list[Event]], Procedure[list[Event]]],
        writer: ReceiptWriter | None = None,
        *,
        isResumed: bool = False,
    ) -> None:
        """
        @param fields: the parameters of the request.
        @param requests: the client's, with its credentials and what it has seen.
        @param receive: verifies and opens events before they are delivered.
        @param writer: signs receipts for them.
        @param isResumed: whether it begins after the last event that has a receipt.
        """
        self._writer = writer
        self._isResumed = isResumed
        self._attempts = attempts
        self._fields = fields
        self._requests = requests
        self._receive = receive
        self._lastId: str | None = None

    def run(self) -> Procedure[NoReturn]:
        """
        Deliver events, each one once, without end.

        @raise BrokerError: the broker refuses the request, or no broker has answered in time.
        """
        if self._writer is not None and self._isResumed:
            after = yield from self._writer.begin()
            self._fields = {**self._fields, "from": after or "OFFSET_FIRST"}
        while True:
            try:
                yield from self._stream()
            except BrokerError as error:
                # A position that a broker gave may be ahead of another broker's chain.
                isBehind = isinstance(error, HeightUnknown)
                if isBehind and self._lastId is None:
                    isBehind = bool(self._requests.seen)
                    self._requests.forgetSeen()
                if not (isBehind or isRefused(error) or isUncertain(error)):
                    raise
                yield from self._attempts.failed(error)

    def _stream(self) -> Procedure[NoReturn]:
        headers = {**self._requests.headers, "Accept": "text/event-stream"}
        if self._lastId is not None:
            headers["Last-Event-ID"] = self._lastId
        elif self._requests.seen:
            headers["svc-after"] = self._requests.seen
        response = yield from openStream(
            HttpRequest(
                method="GET",
                url=f"{self._attempts.url}/rest/follow?{urlencode(self._fields)}",
                headers=headers,
                timeout=self._attempts.limit(IDLE),
            )
        )
        kind = response.headers.get("content-type", "")
        if response.status != 200 or not kind.startswith("text/event-stream"):
            body = b""
            while len(body) < _MAX_REFUSAL and (piece := (yield from readStream(IDLE))):
                body += piece
            checkResponse(response, body)
            raise AnswerInvalid()
        parser = MessageParser()
        while True:
            piece = yield from readStream(IDLE)
            if not piece:
                raise Unreachable("the stream has ended")
            messages = parser.receive(piece)
            if messages:
                yield from self._deliver(messages)
            # Also comments: the time without a connection begins when it is lost.
            self._attempts.succeeded()
            if self._writer is not None:
                yield from self._writer.due()

    def _deliver(self, messages: list[StreamMessage]) -> Procedure[None]:
        events = [_event(each) for each in messages if each.type == "event"]
        if events:
            events = yield from self._receive(events)
        # Nothing may fail between this and the delivery: the stream would resume after the events.
        # A stream that resumes need not say again where.
        if messages[-1].lastId is not None:
            self._lastId = messages[-1].lastId
        if events:
            self._requests.saw(events[-1].eventId)
            yield from delivered(events, self._writer)
        for message in messages:
            if message.type == "end":
                raise readError(message.data) or AnswerInvalid()


def delivered(events: list[Event], writer: ReceiptWriter | None) -> Procedure[None]:
    """Deliver events, and sign a receipt for them where it is time."""
    if writer is not None and not writer.receipts.isProcessed:
        yield from writer.took(events)
    yield Deliver(events)
    if writer is not None and writer.receipts.isProcessed:
        yield from writer.took(events)


def _event(message: StreamMessage) -> Event:
    try:
        return _events.decode(message.data)
    except msgspec.MsgspecError as error:
        raise AnswerInvalid(f"an event of the stream is malformed: {error}") from None


T = TypeVar("T")

TIMEOUT: Final = 60.0
"""Seconds that a call may take by default with all its attempts."""
MAX_PAGE: Final = 1000
"""The most events of one request."""
_TOPICS: Final = 99
_CHAIN_ID: Final = msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")


class _Chain(msgspec.Struct):
    chain: Annotated[str, _CHAIN_ID]


_booleans = msgspec.json.Decoder(bool)
_chains = msgspec.json.Decoder(_Chain)
_checkpoints = msgspec.json.Decoder(CheckpointRecord)
_events = msgspec.json.Decoder(Event)
_founds = msgspec.json.Decoder(Found)
_pages = msgspec.json.Decoder(EventPageRecord)
_topicPages = msgspec.json.Decoder(TopicPage)
_topicStates = msgspec.json.Decoder(TopicState)


class Core:
    """
    The calls of a client. Each makes a procedure.

    All of them raise a L{BrokerError}: the one that the broker answered;
    L{Unreachable<svcbroker.client.Unreachable>} if no broker has answered in time;
    L{NotVerified<svcbroker.client.NotVerified>} if an answer cannot be verified. Calls are repeated
    while that may help and there is time: after lost connections, C{Overloaded}, timeouts of the
    chain and HTTP status 429, 502, 503 and 504, with other brokers if there are several.
    """

    def __init__(
        self,
        urls: Sequence[str],
        options: Options,
        *,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
        makeKey: Callable[[], str] = newKey,
        wallClock: Callable[[], float] = time.time,
    ) -> None:
        """
        @param urls: the base URLs of brokers of one network.
        @param now: the time in seconds, of a clock that never goes back.
        @param random: a number from 0 to 1.
        @param makeKey: makes an idempotency key.
        @param wallClock: the time in seconds since the epoch, for signatures.
        @raise ValueError: a URL or an option is malformed.
        @raise OSError: a file cannot be read.
        """
        if not urls:
            raise ValueError("the URL of a broker is needed")
        self._requests = Requests(
            Brokers(
                [checkUrl(each) for each in urls], now, random, options.get("waitForBroker", True)
            ),
            authorization(options.get("user"), options.get("password"), options.get("token")),
            options.get("group"),
            options.get("timeout", TIMEOUT),
        )
        self._makeKey = makeKey
        self._wallClock = wallClock
        key = options.get("key")
        self._key = AuthorKey.read(key) if isinstance(key, str | Path) else key
        self._recipients = checkRecipients(options.get("recipients") or ())
        self._identities = loadIdentities(options.get("identities"))
        self._statedChain: bytes | None = None
        self._verifier = _verifier(self._requests, options)

    # Publishing

    def publish(
        self,
        topic: str,
        content: bytes | str,
        extensions: Mapping[str, str] | None = None,
        *,
        idempotencyKey: str | NewKey | None = NewKey.NEW,
        expectedSequence: int | None = None,
        author: AuthorKey | None = None,
        recipients: Sequence[str] | None = None,
    ) -> Procedure[Published]:
        """
        Publish an event to an open topic, once: the call is repeated with its idempotency key when
        its outcome is unknown.

        A broker that knows no idempotency keys is not asked again then.

        @param content: the content; text is published as its UTF-8 bytes.
        @param extensions: texts under keys that start with C{svc-}.
        @param idempotencyKey: at most 64 characters. Give your own to repeat the call after an
            error or a restart of your program; by default one is made. C{None} publishes without a
            key, for a ledger that refuses keys; the call is not repeated then.
        @param expectedSequence: the sequence number that the topic must have.
        @param author: signs the event; by default the client's key, if it has one.
        @param recipients: to whom the content is closed; by default to the client's recipients. To
            none, it is open. An event that is closed anew is another one: repeating the call with
            your own C{idempotencyKey} is refused if the first one was published.
        @return: the event's id. The event is final and on stable storage.
        @raise TopicNotFound: there is no such open topic.
        @raise TransactionTimeout: it is not known whether it was published.
        """
        publication = Publication(
            topic,
            content,
            extensions or {},
            idempotencyKey=idempotencyKey,
            expectedSequence=expectedSequence,
            author=author,
            recipients=recipients,
        )
        [outcome] = yield from self._publish([self._closed(publication)])
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    def publishMany(
        self, publications: Iterable[Publication]
    ) -> Procedure[list[Published | BrokerError]]:
        """
        Publish events in large requests, each as C{publish} does. They are published in their
        order, but for those that have to be repeated.

        @return: the outcome of each.
        """
        outcomes: list[Published | BrokerError] = []
        for batch in batches(map(self._closed, publications)):
            outcomes += yield from self._publish(batch)
        return outcomes

    def _publish(
        self, publications: Sequence[Publication]
    ) -> Procedure[list[Published | BrokerError]]:
        sign = None
        if self._key is not None or any(each.author is not None for each in publications):
            sign = partial(self._sign, (yield from self._chain()))
        batch = BatchProcedure(self._requests, publications, self._makeKey, sign)
        outcomes = yield from batch.run()
        for outcome in reversed(outcomes):
            if isinstance(outcome, Published):
                self._requests.saw(outcome.eventId)
                break
        if self._verifier is not None:
            events = [
                Event(
                    topic=each.topic,
                    content=each.content,
                    extensions=dict(each.extensions),
                    eventId=outcome.eventId,
                    author=None if (key := self._keyOf(each)) is None else key.public.hex(),
                )
                for each, outcome in zip(publications, outcomes, strict=True)
                if isinstance(outcome, Published)
            ]
            if events:
                yield from self._verifier.verify(events)
        return outcomes

    def _closed(self, publication: Publication) -> Publication:
        own = publication.recipients
        recipients = self._recipients if own is None else own
        if not recipients:
            return publication
        content = closed(publication.content, recipients)
        extensions = {**publication.extensions, **EXTENSIONS}
        return evolve(publication, content=content, extensions=extensions)

    def _keyOf(self, publication: Publication) -> AuthorKey | None:
        return publication.author or self._key

    def _sign(
        self, chain: bytes, publication: Publication, idempotencyKey: str | None
    ) -> Mapping[str, object]:
        key = self._keyOf(publication)
        if key is None:
            return {}
        return key.sign(
            chain=chain,
            topic=publication.topic,
            content=publication.content,
            extensions=publication.extensions,
            idempotencyKey=idempotencyKey,
            signedAt=int(self._wallClock() * 1000),
            expectedSequence=publication.expectedSequence,
        )

    def _chain(self) -> Procedure[bytes]:
        """The id of the chain that statements are for: the trusted one, if one is trusted."""
        if self._verifier is not None:
            return (yield from self._verifier.findChain())
        if self._statedChain is None:
            stated = yield from self._read("genesis", _chains)
            self._statedChain = bytes.fromhex(stated.chain)
        return self._statedChain

    # Topics

    def open(
        self, topic: str, *, authors: Sequence[bytes] = (), admins: Sequence[bytes] = ()
    ) -> Procedure[bool]:
        """
        Create a topic, or open it again.

        @param authors: the public keys of those who may publish to it; by default everybody may.
        @param admins: the public keys of those who may change the authors.
        """
        fields = {"topic": topic}
        if authors or admins:
            fields["authors"] = ",".join(each.hex() for each in authors)
            fields["admins"] = ",".join(each.hex() for each in admins)

        def attempt(attempts: Attempts) -> Procedure[bool]:
            if authors or admins:
                known = yield from self._requests.parameters(attempts, "open")
                if "authors" not in known:
                    raise ParameterInvalid("this broker knows no authors")
            response = yield from self._requests.post(attempts, "open", fields)
            return readAnswer(response, _booleans)

        return self._requests.repeat(attempt)

    def close(self, topic: str) -> Procedure[bool]:
        """
        Close an open topic.

        @raise TopicNotFound: there is no such open topic.
        """
        mayBeClosed = False

        def attempt(attempts: Attempts) -> Procedure[bool]:
            nonlocal mayBeClosed
            try:
                response = yield from self._requests.post(attempts, "close", {"topic": topic})
                return readAnswer(response, _booleans)
            except TopicNotFound:
                if mayBeClosed:
                    return True
                raise
            except BrokerError as error:
                mayBeClosed |= isUncertain(error)
                raise

        return self._requests.repeat(attempt)

    def exist(self, topic: str) -> Procedure[bool]:
        """Tell whether there is such an open topic."""
        return self._read("exist", _booleans, topic=topic)

    def state(self, topic: str) -> Procedure[TopicState]:
        """
        Tell what the chain knows of an open topic.

        @raise TopicNotFound: there is no such open topic.
        """
        return self._read("state", _topicStates, topic=topic)

    def topics(self) -> Procedure[list[TopicInfo]]:
        """List the open topics in the order of their creation."""
        found: dict[str, TopicInfo] = {}
        index = 0
        while True:
            page = yield from self._read(
                "list", _topicPages, pageIndex=str(index), pageSize=str(_TOPICS)
            )
            found.update((each.topicName, each) for each in page.topicInfoList)
            index += 1
            if index * _TOPICS >= page.total:
                return list(found.values())

    # Events

    def getEvent(self, eventId: str) -> Procedure[Event]:
        """
        Read one event.

        @raise EventNotFound: there is none.
        @raise EventErased: its content was erased.
        """
        event = yield from self._read("getEvent", _events, eventId=eventId)
        self._requests.saw(event.eventId)
        received = yield from self._receive([event])
        if not received:
            raise EventErased()
        return received[0]

    def events(
        self,
        topic: str,
        *,
        after: str | int | datetime = "OFFSET_FIRST",
        limit: int | None = None,
        tag: str | None = None,
        tombstones: bool = False,
        reverse: bool = False,
        wait: int = 0,
        receipts: Receipts | None = None,
    ) -> Procedure[None]:
        """
        Read the events of a topic, or of all topics that a pattern of MQTT's kind matches, up to
        the end of the log. Each comes once, also while others publish.

        @param after: where to begin: after an event's id, with the block of a height, with the
            first block that is not before a time, or at another offset. To go backwards from the
            end give C{OFFSET_LAST}.
        @param limit: the most events to read.
        @param tag: only events whose extension C{svc-tag} equals it.
        @param tombstones: whether to deliver erased events, too, without their contents.
        @param reverse: whether to go backwards.
        @param wait: how long to wait at the end for a further event, 0 to 30 seconds.
        @param receipts: signs receipts for what was read, the last one at the end. Where C{after}
            says nothing, it begins after the last event that has one. Otherwise what comes before
            C{after} was received before. Not with C{tag}, C{reverse} and C{limit}.
        """
        checkReceipts(receipts, tag)
        if receipts is not None and (reverse or limit is not None):
            raise ParameterInvalid("receipts: they are not for reverse and limit")
        writer = None if receipts is None else ReceiptWriter(self, topic, receipts)
        if writer is not None and after == "OFFSET_FIRST":
            after = (yield from writer.begin()) or after
        fields = _eventFields(topic, after, tag, tombstones)
        if reverse:
            fields["reverse"] = "true"
        left = limit
        # A position that a broker gave may be ahead of another broker's chain.
        mayBeBehind: tuple[type[BrokerError], ...] = ()
        while left is None or left > 0:
            fields["limit"] = str(MAX_PAGE if left is None else min(left, MAX_PAGE))
            fields["wait"] = str(wait)
            page = yield from self._requests.read(
                "events",
                fields,
                lambda response: readAnswer(response, _pages),
                wait=wait,
                alsoAfter=mayBeBehind,
            )
            mayBeBehind = (HeightUnknown,)
            if page.events:
                self._requests.saw(page.events[0 if reverse else -1].eventId)
                yield from delivered((yield from self._receive(page.events)), writer)
            if page.atEnd and not (wait and page.events):
                if writer is not None:
                    yield from writer.write()
                return
            if left is not None:
                left -= len(page.events)
            fields["from"] = page.next

    def find(
        self,
        content: bytes | str | None = None,
        *,
        hash: bytes | None = None,
        author: bytes | None = None,
        extensions: Mapping[str, str] | None = None,
        topic: str | None = None,
        after: str | int | datetime = "OFFSET_FIRST",
        until: int | datetime | None = None,
        limit: int = MAX_PAGE,
    ) -> Procedure[Found]:
        """
        Find the events with a content, of an author, or with an extension, by the broker's index.
        The content is hashed here and not sent. Events that are not found may be there all the
        same: only the log itself proves that there are none.

        @param content: the content; text stands for its UTF-8 bytes.
        @param hash: the SHA-256 of the content, instead.
        @param author: the public key of the author.
        @param extensions: extensions that they have, of those that the index has.
        @param topic: a topic or a pattern; by default all topics.
        @param after: where to begin, as C{events} has it.
        @param until: before which height or time to end.
        @param limit: the most events to find.
        @raise ParameterInvalid: the broker keeps no index, or not of this extension.
        """
        if content is not None:
            data = content.encode("utf-8") if isinstance(content, str) else content
            hash = sha256(data).digest()
        given = {
            "hash": None if hash is None else hash.hex(),
            "author": None if author is None else author.hex(),
            "topic": topic,
            "until": None if until is None else offsetText(until),
        }
        fields: dict[str, str] = {name: text for name, text in given.items() if text is not None}
        fields |= {"from": offsetText(after), **(extensions or {})}
        found: list[Event] = []
        while True:
            fields["limit"] = str(min(limit - len(found), MAX_PAGE))
            page = yield from self._read("find", _founds, **fields)
            if page.events:
                found += yield from self._receive(page.events)
            if page.atEnd or len(found) >= limit:
                return msgspec.structs.replace(page, events=found)
            fields["from"] = page.next

    def follow(
        self,
        topic: str,
        *,
        after: str | int | datetime = "OFFSET_LAST",
        tag: str | None = None,
        tombstones: bool = False,
        timeout: float | None = None,
        receipts: Receipts | None = None,
    ) -> Procedure[NoReturn]:
        """
        Follow a topic, or all topics that a pattern of MQTT's kind matches: its events as they are
        published, each once, without end. When the connection is lost it resumes by itself.

        @param after: where to begin, as C{events} has it; by default with the next event. Keep
            the C{eventId} of the last event that you have processed to go on after a restart of
            your program.
        @param tag: only events whose extension C{svc-tag} equals it.
        @param tombstones: whether to deliver erased events, too, without their contents.
        @param timeout: how long there may be no connection, in seconds; by default for ever.
        @param receipts: signs receipts for what was received. Where C{after} says nothing, it
            begins after the last event that has one, or with the first. Otherwise what comes before
            C{after} was received before. Not with C{tag}.
        """
        checkReceipts(receipts, tag)
        writer = None if receipts is None else ReceiptWriter(self, topic, receipts)
        fields = {**_eventFields(topic, after, tag, tombstones), **self._requests.group}
        following = FollowedStream(
            Attempts(self._requests.brokers, timeout),
            fields,
            self._requests,
            self._receive,
            writer,
            isResumed=writer is not None and after == "OFFSET_LAST",
        )
        return following.run()

    def receipt(self, topic: str, eventId: str, receipts: Receipts) -> Procedure[Published | None]:
        """
        Sign a receipt now: all events of a topic or pattern up to one were received.

        @param eventId: the id of the last event.
        @return: the receipt; C{None} where an earlier one says as much.
        @raise EventNotFound: there is no such event.
        """
        event = yield from self.getEvent(eventId)
        if not filterMatches(topic, event.topic):
            raise ParameterInvalid("eventId: the event is of another topic")
        writer = ReceiptWriter(self, topic, receipts)
        return (yield from writer.sign(event))

    def readPage(self, topic: str, limit: int) -> Procedure[EventPageRecord]:
        """Read the last events of a topic, the newest first."""
        fields = {**_eventFields(topic, "OFFSET_LAST", None, False), "reverse": "true"}
        fields["limit"] = str(limit)
        page = yield from self._requests.read(
            "events", fields, lambda response: readAnswer(response, _pages)
        )
        received = yield from self._receive(page.events)
        return msgspec.structs.replace(page, events=received)

    # Proofs

    def proof(self, eventId: str, *, trusted: int | None = None) -> Procedure[bytes]:
        """
        Get the proof of an event, to be kept and to be verified by others.

        @param trusted: the height of a checkpoint that those who verify it trust: of the event's
            block or of a later one. The proof leads to it and has no signatures.
        @return: the proof: JSON, for C{svcbroker verify} or
            L{verifyProof<svcbroker.proofs.verifyProof>}.
        """
        if self._verifier is not None:
            return self._verifier.prove(eventId, trusted)
        fields = {"eventId": eventId}
        if trusted is not None:
            fields["trusted"] = str(trusted)
        return self._requests.read("proof", fields, readDocument)

    def topicProof(self, topic: str) -> Procedure[bytes]:
        """
        Get the proof of how many events a topic has, to be kept and to be verified by others.

        @return: the proof: JSON, for C{svcbroker verify} or
            L{verifyTopic<svcbroker.proofs.verifyTopic>}.
        @raise TopicNotFound: it was never opened.
        """
        return self._requests.read("topicProof", {"topic": topic}, readDocument)

    def checkpoint(self, height: int | None = None) -> Procedure[CheckpointRecord]:
        """
        Get a block's hash, to be kept where the broker cannot change it.

        @param height: the block's height; C{None} for the latest one.
        """
        fields = {} if height is None else {"height": str(height)}
        record = yield from self._read("checkpoint", _checkpoints, **fields)
        if self._verifier is not None:
            yield from self._verifier.compare(record.checkpoint)
        return record

    def genesis(self) -> Procedure[bytes]:
        """
        Get the beginning of the chain, as the broker tells it.

        @return: the genesis: JSON, for the option C{genesis} of a client that shall trust it.
        """
        return self._requests.read("genesis", {}, readDocument)

    def readLog(self, path: str) -> Procedure[bytes]:
        """Get a file of the group's transparency log, such as C{checkpoint}. It is not verified."""
        return self._requests.readLog(path)

    def _receive(self, events: list[Event]) -> Procedure[list[Event]]:
        """Verify events, and open those that are closed."""
        if self._verifier is not None:
            events = yield from self._verifier.verify(events)
        if any(ENCRYPTED in each.extensions for each in events):
            events = yield from openedEvents(events, self._identities())
        return events

    def _read(self, name: str, decoder: msgspec.json.Decoder[T], **fields: str) -> Procedure[T]:
        return self._requests.read(name, fields, lambda response: readAnswer(response, decoder))


def _eventFields(
    topic: str, after: str | int | datetime, tag: str | None, tombstones: bool
) -> dict[str, str]:
    fields = {"topic": topic, "from": offsetText(after)}
    if tag is not None:
        fields["tag"] = tag
    if tombstones:
        fields["erased"] = "tombstone"
    return fields


def _verifier(requests: Requests, options: Options) -> AnswerVerifier | None:
    genesis, checkpoint = options.get("genesis"), options.get("checkpoint")
    path = options.get("checkpointFile")
    if genesis is None and checkpoint is None and path is None:
        return None
    # It needs cryptography, which clients that verify nothing do without.
    from ._trust import AnswerVerifier

    if genesis is not None and not isinstance(genesis, bytes):
        genesis = readFile(genesis)
    return AnswerVerifier(
        requests,
        genesis=genesis,
        checkpoint=checkpoint,
        path=None if path is None else Path(path),
    )


MAX_MESSAGE: Final = 256 * 1024 * 1024
"""Bytes of the longest message: a bound for a server that sends something else without end."""

_BOM: Final = b"\xef\xbb\xbf"


@frozen
class StreamMessage:
    """
    A message of a stream.

    @ivar type: its type; C{message} where it names none.
    @ivar data: its data; empty for a message that only has an id.
    @ivar lastId: the id of this message or of the last one before that has one; C{None} where none
        had.
    """

    type: str
    data: bytes
    lastId: str | None


class MessageParser:
    """
    Parses one stream of server-sent events. A message that is not complete when the stream ends is
    discarded.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        # How much of the rest has no end of line.
        self._searched = 0
        self._isStart = True
        self._size = 0
        self._lastId: str | None = None
        self._type = ""
        self._data: list[bytes] = []
        self._hasId = False

    def receive(self, data: bytes) -> list[StreamMessage]:
        """
        Parse a piece of the stream.

        @return: the messages that it completes.
        @raise AnswerInvalid: a message is longer than L{MAX_MESSAGE}.
        """
        self._rest += data
        messages = []
        for line in self._lines():
            if line:
                self._size += len(line)
                self._field(line)
            elif self._data or self._hasId:
                content = b"\n".join(self._data)
                messages.append(StreamMessage(self._type or "message", content, self._lastId))
                self._type, self._data, self._hasId, self._size = "", [], False, 0
            else:
                self._type, self._size = "", 0
        if self._size + len(self._rest) > MAX_MESSAGE:
            raise AnswerInvalid("a message of the stream is too long")
        return messages

    def _lines(self) -> list[bytes]:
        """Take the complete lines. They end with CR, LF or CR LF."""
        rest = self._rest
        if self._isStart:
            if _BOM.startswith(rest) and len(rest) < len(_BOM):
                return []
            self._isStart = False
            if rest.startswith(_BOM):
                del rest[: len(_BOM)]
        # The LF of a CR LF may be in the next piece, so a CR at the end waits for it.
        start = self._searched
        end = max(rest.rfind(b"\n", start), rest.rfind(b"\r", start, len(rest) - 1))
        if end < 0:
            self._searched = max(0, len(rest) - 1)
            return []
        lines = bytes(rest[: end + 1]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        del rest[: end + 1]
        self._searched = 0
        return lines[:-1].split(b"\n")

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._lastId = value.decode("utf-8", "replace")
            self._hasId = True
