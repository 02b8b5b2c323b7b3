"""
The three clients behind one interface of Deferreds, so that each test runs with all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing, closing
from typing import Any, Protocol, Unpack

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from svcbroker.client import AsyncClient, Client, Event, Options
from svcbroker.client.twisted import TwistedClient

from .daemon import reactor


class Face(Protocol):
    """
    One of the clients.
    """

    def call(self, name: str, *args: Any, **kwargs: Any) -> Deferred[Any]:
        """Make a call."""

    def take(
        self, name: str, until: Callable[[Event], bool], *args: Any, **kwargs: Any
    ) -> Deferred[list[Event]]:
        """The events that a call delivers, up to the first of which C{until} is true."""

    async def close(self) -> None:
        """Close all connections."""


class Blocking:
    """The blocking client, in threads."""

    def __init__(self, *urls: str, **options: Unpack[Options]) -> None:
        self.client = Client(*urls, **options)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return deferToThread(getattr(self.client, name), *args, **kwargs)

    def take(
        self, name: str, until: Callable[[Event], bool], *args: Any, **kwargs: Any
    ) -> Deferred[list[Event]]:
        def take() -> list[Event]:
            events = []
            with closing(getattr(self.client, name)(*args, **kwargs)) as iterator:
                for event in iterator:
                    events.append(event)
                    if until(event):
                        break
            return events

        return deferToThread(take)

    async def close(self) -> None:
        self.client.disconnect()


class Asyncio:
    """The client for asyncio, in a thread with a loop."""

    def __init__(self, *urls: str, **options: Unpack[Options]) -> None:
        self.client = AsyncClient(*urls, **options)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def _run(self, coroutine: Any) -> Deferred[Any]:
        result: Deferred[Any] = Deferred()

        async def run() -> None:
            try:
                value = await coroutine
            except BaseException:
                reactor.callFromThread(result.errback, Failure())
            else:
                reactor.callFromThread(result.callback, value)

        asyncio.run_coroutine_threadsafe(run(), self.loop)
        return result

    def call(self, name: str, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return self._run(getattr(self.client, name)(*args, **kwargs))

    def take(
        self, name: str, until: Callable[[Event], bool], *args: Any, **kwargs: Any
    ) -> Deferred[list[Event]]:
        return self._run(take(getattr(self.client, name)(*args, **kwargs), until))

    async def close(self) -> None:
        await self._run(self.client.disconnect())
        await self._run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        await deferToThread(self.thread.join)
        self.loop.close()


class Twisted:
    """The client for Twisted."""

    def __init__(self, *urls: str, **options: Unpack[Options]) -> None:
        self.client = TwistedClient(reactor, *urls, **options)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Deferred[Any]:
        called: Deferred[Any] = getattr(self.client, name)(*args, **kwargs)
        return called

    def take(
        self, name: str, until: Callable[[Event], bool], *args: Any, **kwargs: Any
    ) -> Deferred[list[Event]]:
        iterator = getattr(self.client, name)(*args, **kwargs)
        return Deferred.fromCoroutine(take(iterator, until))

    async def close(self) -> None:
        await self.client.disconnect()


async def take(iterator: Any, until: Callable[[Event], bool]) -> list[Event]:
    """The events of an asynchronous iterator, up to the first of which C{until} is true."""
    events = []
    async with aclosing(iterator):
        async for event in iterator:
            events.append(event)
            if until(event):
                break
    return events
