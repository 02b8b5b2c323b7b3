"""
Other brokers, asked over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http_headers import Headers
from zope.interface import implementer

from ..broker import Identity, IPeer, PeerError
from ..errors import Overloaded
from ..model import SubscriptionRecord
from ..net.deferreds import asDeferred
from ..net.http import HttpClient, HttpError, makeClient
from ..operations import AnswerInvalid, readIdentity, readSubscriptions

MAX_IDENTITY: Final = 4096
"""The largest answer to the question for a name, in bytes."""

MAX_SUBSCRIPTIONS: Final = 16 * 1024 * 1024
"""The largest answer to the question for subscriptions, in bytes: some 40,000 of them."""

MAX_UNDER_WAY: Final = 8
"""How many such questions one peer is asked at the same time."""

_PORTS: Final = {"http": 80, "https": 443}
_HEADERS: Final = Headers({b"Accept": [b"application/json"], b"User-Agent": [b"svcbroker"]})
_log = Logger()


def nameOf(url: str) -> str:
    """What a peer is called by its URL alone: C{host:port}."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port or _PORTS[parts.scheme]}"


@implementer(IPeer)
class HttpPeer:
    """
    A broker at a base URL. It is asked the calls that clients make, and never with C{nodeIp}, so
    it answers for itself and asks no other broker.
    """

    def __init__(self, url: str, peers: Peers) -> None:
        """
        @param url: its base URL with the context path, and without a slash at its end.
        """
        self.name = nameOf(url)
        self._url = url
        self._peers = peers
        self._underWay = 0

    @asDeferred
    async def getIdentity(self, timeout: float) -> Identity:
        """See L{IPeer}."""
        url = f"{self._url}/admin/getIdentity"
        try:
            return readIdentity(await self._peers.fetch(url, MAX_IDENTITY, timeout))
        except AnswerInvalid as error:
            raise PeerError(str(error)) from error

    @asDeferred
    async def listSubscriptions(
        self, group: str | None, timeout: float
    ) -> tuple[str, Sequence[SubscriptionRecord]]:
        """See L{IPeer}."""
        if self._underWay >= MAX_UNDER_WAY:
            raise Overloaded()
        url = f"{self._url}/admin/listSubscription"
        if group is not None:
            url += "?" + urlencode({"groupId": group})
        self._underWay += 1
        try:
            return readSubscriptions(
                await self._peers.fetch(url, MAX_SUBSCRIPTIONS, timeout), group
            )
        except AnswerInvalid as error:
            raise PeerError(str(error)) from error
        finally:
            self._underWay -= 1


class Peers:
    """
    All peers of this broker.

    @ivar all: each of them, in the operator's order.
    """

    def __init__(self, urls: Iterable[str], client: HttpClient) -> None:
        """
        @param urls: their base URLs.
        @param client: closed when the peers are drained.
        """
        self.all: Sequence[IPeer] = [HttpPeer(url, self) for url in urls]
        self._client = client
        self._underWay: set[Deferred[bytes]] = set()
        self._idle: Deferred[None] | None = None

    def fetch(self, url: str, limit: int, timeout: float) -> Deferred[bytes]:
        """
        Make a GET request. Cancelling ends it.

        @param limit: the most that the answer's body may have, in bytes.
        @param timeout: how long all of it may take, in seconds.
        @return: fires with the answer's body, where its status is 200.
        @raise PeerError: there is no such answer.
        """
        fetching = self._fetch(url, limit, timeout)
        self._underWay.add(fetching)
        return fetching.addBoth(self._fetched, fetching)

    @asDeferred
    async def _fetch(self, url: str, limit: int, timeout: float) -> bytes:
        try:
            answer = await self._client.request(b"GET", url, headers=_HEADERS, timeout=timeout)
            if answer.status != http.OK:
                answer.discard()
                raise PeerError(_statusText(answer.status))
            return await answer.read(limit)
        except HttpError as error:
            raise PeerError(str(error)) from None

    def _fetched(self, outcome: Any, fetching: Deferred[bytes]) -> Any:
        self._underWay.discard(fetching)
        if self._idle is not None and not self._underWay:
            if not self._idle.called:
                self._idle.callback(None)
            else:
                # A client that was let in before had one more question.
                maybeDeferred(self._client.close).addErrback(_logFailure)
        return outcome

    def drain(self) -> Deferred[Any]:
        """
        Close the connections when the requests under way are answered, which is no later than
        their time-out. Called once. Cancelling ends what is under way.
        """
        self._idle = Deferred(lambda _: self._cancel())
        drained = self._idle.addCallback(lambda _: self._client.close())
        if not self._underWay:
            self._idle.callback(None)
        return drained

    def _cancel(self) -> None:
        for each in list(self._underWay):
            each.cancel()


def makePeers(reactor: Any, urls: Iterable[str]) -> Peers:
    """
    The brokers at these base URLs, over the network; by HTTPS with the trust roots of the system.
    None is asked before a client asks.
    """
    client = makeClient(reactor, maxBody=MAX_SUBSCRIPTIONS, keep=MAX_UNDER_WAY, isRepeatable=True)
    return Peers(urls, client)


def _logFailure(failure: Failure) -> None:
    _log.failure("The connections to peers did not close", failure)


def _statusText(code: int) -> str:
    if 300 <= code < 400:
        return f"sends us elsewhere (HTTP status {code})"
    if code == http.NOT_FOUND:
        return "has nothing under its URL (HTTP status 404): is the context path right?"
    return f"answered with HTTP status {code}"
