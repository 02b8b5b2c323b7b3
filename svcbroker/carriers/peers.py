"""
Other brokers, asked over HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from ..net.agent import HttpError
from ..net.deferreds import asDeferred
from ..net.http import HttpClient, basicAuthorization, discardBody, makeClient, readBody
from ..operations import PeerAnswerInvalid, readSubscriptions

MAX_SUBSCRIPTIONS: Final = 16 * 1024 * 1024
"""The largest answer of a peer, in bytes: some 40,000 subscriptions."""

MAX_UNDER_WAY: Final = 8
"""How many clients at the same time may have one peer asked."""

_HEADERS: Final = {b"Accept": [b"application/json"], b"User-Agent": [b"svcbroker"]}
_ALL: Final = "*"
_log = Logger()


def parsePeerCredentials(data: bytes, names: Collection[str]) -> Mapping[str, bytes]:
    """
    The credentials in a file: C{NAME ACCOUNT:PASSWORD} on each line, where C{*} stands for the
    peers that are not named. A token may stand in the place of the password. Empty lines and those
    that begin with C{#} do not count.

    @param names: the names of all peers.
    @return: the values of C{Authorization}, by the names of peers.
    @raise ValueError: a line cannot be used. The text goes after the file's name and has no secret.
    """
    found: dict[str, bytes] = {}
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, pair = line.strip().partition(" ")
        account, colon, password = pair.strip().partition(":")
        if not (account and colon and password and pair.isprintable()):
            raise ValueError(f"line {number} is not NAME ACCOUNT:PASSWORD")
        if name != _ALL and name not in names:
            raise ValueError(f"line {number} names no peer")
        if name in found:
            raise ValueError(f"line {number} names a peer again")
        found[name] = basicAuthorization(account, password)
    common = found.pop(_ALL, None)
    return found if common is None else {name: found.get(name, common) for name in names}


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
                await self._peers.fetch(self.name, url, MAX_SUBSCRIPTIONS, timeout), group
            )
        except PeerAnswerInvalid as error:
            raise PeerError(str(error)) from error
        finally:
            self._underWay -= 1


class Peers:
    """
    All peers of this broker.

    @ivar all: each of them, in the operator's order.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        client: HttpClient,
        credentials: Mapping[str, bytes] | None = None,
    ) -> None:
        """
        @param urls: their base URLs, by their names.
        @param client: closed when the peers are drained.
        @param credentials: see L{use}.
        """
        self.all: Sequence[IPeer] = [HttpPeer(name, url, self) for name, url in urls.items()]
        self._client = client
        self.use(credentials or {})
        self._underWay: set[Deferred[bytes]] = set()
        self._idle: Deferred[None] | None = None

    def use(self, credentials: Mapping[str, bytes]) -> None:
        """
        Show these credentials from now on.

        @param credentials: values of C{Authorization}, by the names of peers.
        """
        self._headers = {
            name: Headers({**_HEADERS, b"Authorization": [value]})
            for name, value in credentials.items()
        }

    def fetch(self, name: str, url: str, limit: int, timeout: float) -> Deferred[bytes]:
        """
        Make a GET request. Cancelling ends it.

        @param name: the peer that is asked.
        @param limit: the most that the answer's body may have, in bytes.
        @param timeout: how long all of it may take, in seconds.
        @return: fires with the answer's body, where its status is 200.
        @raise PeerError: there is no such answer.
        """
        fetching = self._fetch(name, url, limit, timeout)
        self._underWay.add(fetching)
        return fetching.addBoth(self._fetched, fetching)

    @asDeferred
    async def _fetch(self, name: str, url: str, limit: int, timeout: float) -> bytes:
        headers = self._headers.get(name) or Headers(_HEADERS)
        try:
            answer = await self._client.request(
                "GET", url, headers=headers, timeout=timeout, maxBody=limit
            )
            if answer.code != http.OK:
                discardBody(answer)
                raise PeerError(_statusText(answer.code, name in self._headers))
            return await readBody(answer)
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


def makePeers(
    reactor: Any, urls: Mapping[str, str], credentials: Mapping[str, bytes] | None = None
) -> Peers:
    """
    Peers over the network; by HTTPS with the trust roots of the system. None is asked before a
    client asks.

    @param urls: their base URLs, by their names.
    @param credentials: see L{Peers.use}.
    """
    client = makeClient(reactor, maxBody=MAX_SUBSCRIPTIONS, keep=MAX_UNDER_WAY, isRepeatable=True)
    return Peers(urls, client, credentials)


def _logFailure(failure: Failure) -> None:
    _log.failure("The connections to peers did not close", failure)


def _statusText(code: int, hasCredentials: bool) -> str:
    if code == http.UNAUTHORIZED and hasCredentials:
        return "refuses the credentials of this broker (HTTP status 401)"
    if code == http.UNAUTHORIZED:
        return "wants credentials (HTTP status 401): see --peer-credentials"
    if code == http.FORBIDDEN:
        return "refuses this broker (HTTP status 403): its account needs operate"
    if 300 <= code < 400:
        return f"sends us elsewhere (HTTP status {code})"
    if code == http.NOT_FOUND:
        return "has nothing under its URL (HTTP status 404): is the context path right?"
    return f"answered with HTTP status {code}"
