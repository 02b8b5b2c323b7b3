"""
The requests and answers of brokers, and their attempts: which failures are tried again, after what
delay, and at which broker of the network.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence, Set
from logging import getLogger
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from attrs import define

from .. import __version__
from ..errors import (
    BrokerError,
    HeightUnknown,
    LedgerUnavailable,
    NodeBehind,
    Overloaded,
    QuotaExceeded,
    TransactionTimeout,
)
from ._effects import (
    MAX_DIGITS,
    AnswerInvalid,
    Delay,
    ErasureAnswer,
    HttpRequest,
    HttpResponse,
    Procedure,
    Unreachable,
    errorOf,
    send,
    statusError,
)

FIRST_DELAY: Final = 0.1
MAX_DELAY: Final = 10.0
"""The back-off doubles from the first to this, in seconds."""
_SHORTEST: Final = 0.01

_log: Final = getLogger("svcbroker.client")


def isRefused(error: BrokerError) -> bool:
    """Whether an error says that the request was not executed, and may be sent again later."""
    if isinstance(error, Unreachable):
        return not error.isSent and not error.isFinal
    return isinstance(error, Overloaded | NodeBehind)


def isUncertain(error: BrokerError) -> bool:
    """Whether an error leaves open whether the request was executed."""
    if isinstance(error, Unreachable):
        return error.isSent
    return isinstance(error, TransactionTimeout | LedgerUnavailable)


@define(eq=False)
class Brokers:
    """
    The brokers of one network. All calls of a client use the same one, until it fails.

    @ivar urls: their base URLs.
    @ivar now: the time in seconds, of a clock that never goes back.
    @ivar random: a number from 0 to 1.
    @ivar isPatient: whether calls are tried again where all brokers have refused the connection.
        Once one has answered they are: then that is a restart.
    """

    urls: Sequence[str]
    now: Callable[[], float]
    random: Callable[[], float]
    isPatient: bool = True
    _current: int = 0

    @property
    def current(self) -> str:
        """The one to use."""
        return self.urls[self._current]

    def failed(self, url: str) -> None:
        """Use the next one, if this is still the one to use."""
        if url == self.current:
            self._current = (self._current + 1) % len(self.urls)


class Attempts:
    """
    The attempts of one call.

    @ivar url: the broker of this attempt.
    """

    def __init__(self, brokers: Brokers, timeout: float | None) -> None:
        """
        @param timeout: how long they may take together, in seconds; C{None} for no limit.
        """
        self._brokers = brokers
        self._timeout = timeout
        self.url = brokers.current
        self.succeeded()

    def succeeded(self) -> None:
        """Forget failed attempts: one of a long call, such as a stream, has succeeded."""
        self._count = 0
        self._end = None if self._timeout is None else self._brokers.now() + self._timeout

    def progressed(self) -> None:
        """Begin the delays anew: an attempt has done a part, as with a quota that takes a part."""
        self._count = 0

    def limit(self, seconds: float) -> float:
        """The seconds that a request of this attempt may take at most."""
        if self._end is None:
            return seconds
        return min(seconds, max(_SHORTEST, self._end - self._brokers.now()))

    def failed(self, error: BrokerError) -> Procedure[None]:
        """
        Prepare the next attempt: choose its broker, and wait. There is no delay before a broker is
        tried that was not tried yet.

        @param error: why the last attempt has failed.
        @raise BrokerError: that, if there is no time for another one, or another one is no use.
        """
        if isinstance(error, Unreachable) and error.isFinal:
            raise error
        brokers = self._brokers
        self._count += 1
        rounds, tried = divmod(self._count, len(brokers.urls))
        if isinstance(error, Unreachable) and not (error.isSent or tried or brokers.isPatient):
            raise error
        delay = 0.0
        if not tried:
            delay = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(rounds - 1, 16))
            # Many clients of one broker that restarts must not all come back at the same time.
            delay *= 0.5 + 0.5 * brokers.random()
            if isinstance(error, QuotaExceeded):
                delay = max(delay, error.retryAfter)
        if self._end is not None and brokers.now() + delay > self._end:
            raise error
        brokers.failed(self.url)
        failed, self.url = self.url, brokers.current
        _log.info("%s: %s; trying %s in %.1f seconds", failed, error.message, self.url, delay)
        if delay:
            yield Delay(delay)


class _Failure(msgspec.Struct):
    code: int
    message: str
    erased: ErasureAnswer | None = None


class _RpcData(msgspec.Struct):
    # The protocol's own errors have no code of the broker.
    code: int = AnswerInvalid.code
    retryAfter: float | None = None


class _RpcFailure(msgspec.Struct):
    message: str
    data: _RpcData = msgspec.field(default_factory=_RpcData)


class CallAnswer(msgspec.Struct):
    """The answer to one call of JSON-RPC."""

    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: _RpcFailure | None = None


_failures = msgspec.json.Decoder(_Failure)
_rpcAnswer = msgspec.json.Decoder(CallAnswer)
_rpcAnswers = msgspec.json.Decoder(list[CallAnswer])


def readError(body: bytes, retryAfter: float | None = None) -> BrokerError | None:
    """The error that a body tells of; C{None} where it tells of none."""
    try:
        failure = _failures.decode(body)
    except msgspec.MsgspecError:
        return None
    return errorOf(failure.code, failure.message, retryAfter, failure.erased)


def readDocument(response: HttpResponse) -> bytes:
    """
    Read the result of a call by REST that is kept as it is.

    @raise BrokerError: the call failed.
    """
    checkResponse(response, response.body)
    return response.body


def checkResponse(response: HttpResponse, body: bytes) -> None:
    """
    Check that an answer is not a failure.

    @raise BrokerError: it is.
    """
    error = readError(body, response.retryAfter)
    if error is None and response.status != 200:
        error = statusError(response.status, response.retryAfter)
    if error is not None:
        raise error


def readAnswer(response: HttpResponse, decoder: msgspec.json.Decoder[T]) -> T:
    """
    Read the result of a call by REST.

    @raise BrokerError: the call failed.
    """
    if response.status == 200:
        try:
            return decoder.decode(response.body)
        except msgspec.MsgspecError:
            pass
    checkResponse(response, response.body)
    raise AnswerInvalid()


def readBatch(response: HttpResponse, count: int) -> list[msgspec.Raw | BrokerError]:
    """
    Read the results of a batch of JSON-RPC whose ids are 0, 1, and so on.

    @param count: how many calls it had.
    @return: the result or the error of each call.
    @raise BrokerError: all of it failed.
    """
    try:
        answers = _rpcAnswers.decode(response.body)
    except msgspec.MsgspecError:
        checkResponse(response, response.body)
        raise _refusalOf(response.body) from None
    outcomes: list[Any] = [None] * count
    for answer in answers:
        if answer.id is not None and 0 <= answer.id < count:
            outcomes[answer.id] = _outcomeOf(answer)
    if None in outcomes:
        raise AnswerInvalid("calls of a batch were not answered")
    return outcomes


def _outcomeOf(answer: CallAnswer) -> msgspec.Raw | BrokerError:
    error = answer.error
    if error is None:
        return answer.result
    retryAfter = error.data.retryAfter
    if retryAfter is not None and not 0 <= retryAfter < 10**MAX_DIGITS:
        retryAfter = None
    return errorOf(error.data.code, error.message, retryAfter)


def _refusalOf(body: bytes) -> BrokerError:
    """The refusal of a whole batch: one answer instead of a list."""
    try:
        outcome = _outcomeOf(_rpcAnswer.decode(body))
    except msgspec.MsgspecError:
        return AnswerInvalid()
    return outcome if isinstance(outcome, BrokerError) else AnswerInvalid()


T = TypeVar("T")

REQUEST_TIMEOUT: Final = 30.0
"""Seconds to wait for an answer. A broker waits 10 for its chain."""

DEFAULT_GROUP: Final = "1"
"""The group of clients that name none."""

_AFTER: Final = frozenset(
    {
        *("exist", "state", "list", "getEvent", "events", "find"),
        *("proof", "topicProof", "checkpoint", "consistency"),
    }
)
"""The calls that change nothing and may name an event that the broker must have executed first."""

_MAX_DIGITS: Final = 19
"""The most digits of a height."""

Fields = Mapping[str, str | bytes]
"""Parameters of a request, by their names."""


class _Parameter(msgspec.Struct):
    name: str


class _Method(msgspec.Struct):
    name: str
    params: list[_Parameter]


class _OpenRpc(msgspec.Struct):
    methods: list[_Method]


_openRpcs = msgspec.json.Decoder(_OpenRpc)


def checkUrl(url: str) -> str:
    """
    Check a broker's base URL.

    @return: it, without a slash at its end.
    @raise ValueError: it is not one.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no URL such as http://127.0.0.1:8080/svcbroker")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of a broker has no credentials, query or fragment")
    return url.rstrip("/")


def authorization(user: str | None, password: str | None, token: str | None) -> Mapping[str, str]:
    """
    The header for credentials.

    @raise ValueError: there are two kinds, a part is missing, or a character is not allowed.
    """
    if token is not None:
        if user is not None or password is not None:
            raise ValueError("give a user or a token, not both")
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token has a character that no token has")
        return {"Authorization": f"Bearer {token}"}
    if user is None and password is None:
        return {}
    if user is None or password is None:
        raise ValueError("a user needs a password, and a password a user")
    if ":" in user:
        # HTTP Basic would end the name there.
        raise ValueError(f"the name of a user has no colon: {user!r}")
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode('ascii')}"}


class Requests:
    """
    Makes requests.

    @ivar brokers: the brokers, of which each request uses one.
    @ivar headers: the headers of every request.
    @ivar group: the fields that choose the group.
    @ivar seen: the newest event that was seen, by its id; empty where there is none. Reads name it,
        so that no broker answers them with what was before: another one that the client goes to,
        or that a load balancer chooses.
    """

    def __init__(
        self,
        brokers: Brokers,
        credentials: Mapping[str, str],
        group: str | None,
        timeout: float,
    ) -> None:
        """
        @param timeout: how long a call may take with all its attempts, in seconds.
        @raise ValueError: the timeout is negative or not a number.
        """
        if not timeout >= 0:
            raise ValueError(f"timeout is not a number of seconds: {timeout}")
        self.brokers = brokers
        self.headers: Mapping[str, str] = {
            "User-Agent": f"svcbroker-client/{__version__}",
            "Accept-Encoding": "identity",
            **credentials,
        }
        self.group: Fields = {} if group is None else {"groupId": group}
        self.seen = ""
        self._seenHeight = 0
        self._timeout = timeout
        self._known: dict[str, Mapping[str, Set[str]]] = {}

    def saw(self, eventId: str) -> None:
        """A broker has told of an event."""
        height = eventId.rpartition("-")[2]
        if height.isdecimal() and len(height) <= _MAX_DIGITS and int(height) > self._seenHeight:
            self.seen, self._seenHeight = eventId, int(height)

    def forgetSeen(self) -> None:
        """Name no event in reads: no broker has the newest, as after a backup was put back."""
        self.seen, self._seenHeight = "", 0

    def attempts(self) -> Attempts:
        """The attempts of one call."""
        return Attempts(self.brokers, self._timeout)

    def repeat(
        self,
        attempt: Callable[[Attempts], Procedure[T]],
        *,
        wait: float = 0.0,
        alsoAfter: tuple[type[BrokerError], ...] = (),
    ) -> Procedure[T]:
        """
        Attempt a call that may be executed twice until it succeeds, fails for good, or its time is
        over.

        @param attempt: makes one attempt.
        @param wait: how long the broker may take in addition, in seconds.
        @param alsoAfter: other errors after which it is repeated.
        @raise BrokerError: that of the last attempt.
        """
        attempts = Attempts(self.brokers, self._timeout + wait)
        while True:
            try:
                result = yield from attempt(attempts)
                self.brokers.isPatient = True
                return result
            except BrokerError as error:
                if not (isRefused(error) or isUncertain(error) or isinstance(error, alsoAfter)):
                    raise
                self.forget(attempts.url)
                yield from attempts.failed(error)

    def forget(self, url: str) -> None:
        """Ask a broker that has failed for its parameters again: it may be another version."""
        self._known.pop(url, None)

    def read(
        self,
        name: str,
        fields: Fields,
        read: Callable[[HttpResponse], T],
        *,
        wait: float = 0.0,
        alsoAfter: tuple[type[BrokerError], ...] = (),
    ) -> Procedure[T]:
        """
        Make a call by REST that changes nothing.

        @param read: reads the answer, or raises a L{BrokerError}.
        @param wait: how long the broker may take in addition, in seconds.
        """

        def get(attempts: Attempts) -> Procedure[T]:
            given = {**fields, **self.group}
            if self.seen and name in _AFTER:
                given["after"] = self.seen
            return self._get(attempts, f"rest/{name}?{urlencode(given)}", read, wait)

        def attempt(attempts: Attempts) -> Procedure[T]:
            try:
                return (yield from get(attempts))
            except HeightUnknown:
                if not self.seen or HeightUnknown in alsoAfter:
                    raise
                self.forgetSeen()
            return (yield from get(attempts))

        try:
            return (yield from self.repeat(attempt, wait=wait, alsoAfter=alsoAfter))
        except (NodeBehind, HeightUnknown):
            self.forgetSeen()
            raise

    def get(
        self,
        path: str,
        read: Callable[[HttpResponse], T],
        *,
        wait: float = 0.0,
        alsoAfter: tuple[type[BrokerError], ...] = (),
    ) -> Procedure[T]:
        """
        GET a path below the base URL, with a query string.

        @param read: reads the answer, or raises a L{BrokerError}.
        @param wait: how long the broker may take in addition, in seconds.
        """

        return self.repeat(
            lambda attempts: self._get(attempts, path, read, wait), wait=wait, alsoAfter=alsoAfter
        )

    def _get(
        self, attempts: Attempts, path: str, read: Callable[[HttpResponse], T], wait: float
    ) -> Procedure[T]:
        """Make one attempt to GET a path."""
        response = yield from send(
            HttpRequest(
                method="GET",
                url=f"{attempts.url}/{path}",
                headers=self.headers,
                timeout=attempts.limit(REQUEST_TIMEOUT + wait),
            )
        )
        return read(response)

    def readLog(self, path: str) -> Procedure[bytes]:
        """
        Get a file of the transparency log of the group.

        @param path: its path below C{log/GROUP/}, with a query string where there is one.
        """
        group = str(self.group.get("groupId", DEFAULT_GROUP))
        return self.get(f"log/{quote(group, safe='')}/{path}", readDocument)

    def post(self, attempts: Attempts, name: str, fields: Fields) -> Procedure[HttpResponse]:
        """Make one attempt of a call by REST that changes something."""
        return send(
            HttpRequest(
                method="POST",
                url=f"{attempts.url}/rest/{name}",
                headers={**self.headers, "Content-Type": "application/x-www-form-urlencoded"},
                body=urlencode({**fields, **self.group}).encode("ascii"),
                timeout=attempts.limit(REQUEST_TIMEOUT),
            )
        )

    def batch(
        self, attempts: Attempts, name: str, calls: Sequence[Mapping[str, Any]]
    ) -> Procedure[list[msgspec.Raw | BrokerError]]:
        """
        Make one attempt of many calls in one request of JSON-RPC.

        @return: the result or the error of each.
        @raise BrokerError: the request failed.
        """
        body = [
            {"jsonrpc": "2.0", "id": number, "method": name, "params": {**params, **self.group}}
            for number, params in enumerate(calls)
        ]
        response = yield from send(
            HttpRequest(
                method="POST",
                url=f"{attempts.url}/jsonrpc",
                headers={**self.headers, "Content-Type": "application/json"},
                body=msgspec.json.encode(body),
                timeout=attempts.limit(REQUEST_TIMEOUT),
            )
        )
        return readBatch(response, len(calls))

    def parameters(self, attempts: Attempts, name: str) -> Procedure[Set[str]]:
        """
        The parameters of a call at a broker, since it ignores those that it does not know. It is
        asked once.
        """
        known = self._known.get(attempts.url)
        if known is None:
            response = yield from send(
                HttpRequest(
                    method="GET",
                    url=f"{attempts.url}/openrpc.json",
                    headers=self.headers,
                    timeout=attempts.limit(REQUEST_TIMEOUT),
                )
            )
            known = self._known[attempts.url] = {
                method.name: {each.name for each in method.params}
                for method in readAnswer(response, _openRpcs).methods
            }
            self.brokers.isPatient = True
        return known.get(name, set())
