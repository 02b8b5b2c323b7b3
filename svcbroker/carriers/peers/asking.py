"""
The questions that brokers have for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IAgent
from zope.interface import implementer

from ...broker import Identity, IPeer, PeerError
from ...errors import Overloaded
from ...model import SubscriptionRecord
from ...operations import AnswerInvalid, readIdentity, readSubscriptions
from .fetching import Fetcher

MAX_IDENTITY: Final = 4096
"""The largest answer to the question for a name, in bytes."""

MAX_SUBSCRIPTIONS: Final = 16 * 1024 * 1024
"""The largest answer to the question for subscriptions, in bytes: some 40,000 of them."""

MAX_UNDER_WAY: Final = 8
"""How many such questions one peer is asked at the same time."""

_PORTS: Final = {"http": 80, "https": 443}


def nameOf(url: str) -> str:
    """What a peer is called by its URL alone: C{host:port}."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port or _PORTS[parts.scheme]}"


@implementer(IPeer)
class HttpPeer:
    """
    A broker at a base URL. It is asked in its clients' own words, and never with C{nodeIp}: so
    it answers for itself and asks nobody.
    """

    def __init__(self, url: str, fetcher: Fetcher) -> None:
        """
        @param url: its base URL with the context path, and without a slash at its end.
        """
        self.name = nameOf(url)
        self._url = url
        self._fetcher = fetcher
        self._underWay = 0

    def getIdentity(self, timeout: float) -> Deferred[Identity]:
        """See L{IPeer}."""
        return Deferred.fromCoroutine(self._getIdentity(timeout))

    async def _getIdentity(self, timeout: float) -> Identity:
        url = f"{self._url}/admin/getIdentity"
        try:
            return readIdentity(await self._fetcher.fetch(url, {}, MAX_IDENTITY, timeout))
        except AnswerInvalid as error:
            raise PeerError(str(error)) from error

    def listSubscriptions(
        self, group: str | None, timeout: float
    ) -> Deferred[tuple[str, Sequence[SubscriptionRecord]]]:
        """See L{IPeer}."""
        return Deferred.fromCoroutine(self._listSubscriptions(group, timeout))

    async def _listSubscriptions(
        self, group: str | None, timeout: float
    ) -> tuple[str, Sequence[SubscriptionRecord]]:
        if self._underWay >= MAX_UNDER_WAY:
            raise Overloaded()
        url = f"{self._url}/admin/listSubscription"
        parameters = {} if group is None else {"groupId": group}
        self._underWay += 1
        try:
            data = await self._fetcher.fetch(url, parameters, MAX_SUBSCRIPTIONS, timeout)
        finally:
            self._underWay -= 1
        try:
            return readSubscriptions(data, group)
        except AnswerInvalid as error:
            raise PeerError(str(error)) from error


class Peers:
    """
    All peers of this broker.

    @ivar all: each of them, in the operator's order.
    """

    def __init__(
        self, urls: Iterable[str], agent: IAgent, clock: IReactorTime, close: Callable[[], Any]
    ) -> None:
        """
        @param urls: their base URLs.
        @param agent: what makes requests.
        @param close: closes its connections.
        """
        self._fetcher = Fetcher(agent, clock, close)
        self.all: Sequence[IPeer] = [HttpPeer(url, self._fetcher) for url in urls]

    def drain(self) -> Deferred[Any]:
        """
        Close the connections, once what is under way has its answer, which is no later than its
        time-out. Called once. Cancelling ends what is under way.
        """
        return self._fetcher.drain()
