"""
Other brokers, asked over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http_headers import Headers
from zope.interface import implementer

from ..broker import IPeer, PeerError
from ..errors import Overloaded
from ..model import SubscriptionRecord
from ..net.deferreds import asDeferred
from ..net.http import HttpClient, HttpError, makeClient
from ..operations import AnswerInvalid, readSubscriptions

MAX_SUBSCRIPTIONS: Final = 16 * 1024 * 1024
"""The largest answer of a peer, in bytes: some 40,000 subscriptions."""

MAX_UNDER_WAY: Final = 8
"""How many clients at the same time may have one peer asked."""

_HEADERS: Final = Headers({b"Accept": [b"application/json"], b"User-Agent": [b"svcbroker"]})
_log = Logger()


@implementer(IPeer)
class HttpPeer:
    """
    A broker at a base URL. It is asked the calls that clients make, and never with C{nodeIp}, so
    it answers for itself and asks no other broker.
    """

    def __init__(self, name: str, url: str, peers: Peers) -> None:
        """
        @param name: what the operator calls it.
        @param url: its base URL with the context path, and without a slash at its end.
        """
        self.name = name
        self._url = url
        self._peers = peers
        self._underWay = 0

    @asDeferred
    async def listSubscriptions(
        self, group: str | None, timeout: float
    ) -> Sequence[SubscriptionRecord]:
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

    def __init__(self, urls: Mapping[str, str], client: HttpClient) -> None:
        """
        @param urls: their base URLs, by their names.
        @param client: closed when the peers are drained.
        """
        self.all: Sequence[IPeer] = [HttpPeer(name, url, self) for name, url in urls.items()]
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


def makePeers(reactor: Any, urls: Mapping[str, str]) -> Peers:
    """
    Peers over the network; by HTTPS with the trust roots of the system. None is asked before a
    client asks.

    @param urls: their base URLs, by their names.
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
