"""
Will messages (section 3.1.2.5): published when a client is gone without having said so.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...errors import BrokerError
from ...model import Receipt
from .context import Context
from .packets import Will
from .session import Session


class Wills:
    """
    The wills of clients that are gone, waiting for their delay.
    """

    _log = Logger()

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[Session, tuple[Will, IDelayedCall]] = {}
        self._publishing: set[Deferred[Receipt | None]] = set()

    def clientGone(self, session: Session, will: Will) -> None:
        """
        A connection was closed without a DISCONNECT that takes the will back. It is published
        after its delay, or when the session ends, whichever comes first [MQTT-3.1.2-8]
        [MQTT5-3.1.2-8].
        """
        delay = min(will.properties.willDelayInterval or 0, session.expiry)
        if delay:
            call = self._context.clock.callLater(delay, self.sessionEnded, session)
            self._waiting[session] = (will, call)
        else:
            self._publish(session, will)

    def clientReturned(self, session: Session) -> None:
        """The session goes on: its will is not published [MQTT5-3.1.2-26]."""
        waiting = self._waiting.pop(session, None)
        if waiting is not None:
            waiting[1].cancel()

    def sessionEnded(self, session: Session) -> None:
        """The session ends, or the delay has passed."""
        waiting = self._waiting.pop(session, None)
        if waiting is not None:
            will, call = waiting
            if call.active():
                call.cancel()
            self._publish(session, will)

    def _publish(self, session: Session, will: Will) -> None:
        # [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT5-3.1.2-16] [MQTT5-3.1.2-17]: its RETAIN flag is
        # that of any publish.
        publisher = self._context.groups[session.group].publisher
        published: Deferred[Receipt | None] = Deferred()
        self._publishing.add(published)

        def done(result: Receipt | Failure) -> None:
            self._publishing.discard(published)
            if isinstance(result, Failure):
                level = self._log.warn if result.check(BrokerError) else self._log.error
                level("The will of a client was not published: {error}", error=result.value)
            published.callback(None)

        publisher.publish(will, session.mark if session.hasNoLocal else None).addBoth(done)

    def stop(self) -> Deferred[None]:
        """
        Publish all that wait. The daemon is about to stop, and nobody would publish them later.

        @return: fires when they are in the log.
        """
        for session in tuple(self._waiting):
            self.sessionEnded(session)

        async def wait() -> None:
            for published in tuple(self._publishing):
                await published

        return Deferred.fromCoroutine(wait())
