"""
Where to listen.
"""

from __future__ import annotations

from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.ports import BACKLOG, serverEndpoint


class ServerEndpointTests(SynchronousTestCase):
    """
    L{serverEndpoint}
    """

    def listened(self, text: str) -> tuple[int, int, str]:
        """Port, backlog and interface of where a description listens."""
        reactor = MemoryReactorClock()
        self.successResultOf(serverEndpoint(reactor, text).listen(Factory()))
        (port, _, backlog, interface) = reactor.tcpServers[0]
        return port, backlog, interface

    def test_backlogIsRaisedUnlessGiven(self) -> None:
        """Many clients may come at once, unless the operator has said how many."""
        for text, expected in (
            ("tcp:8080", (8080, BACKLOG, "")),
            ("tcp:8080:interface=127.0.0.1", (8080, BACKLOG, "127.0.0.1")),
            ("tcp:port=8080", (8080, BACKLOG, "")),
            ("tcp6:8080", (8080, BACKLOG, "::")),
            ("tcp:8080:127.0.0.1:7", (8080, 7, "127.0.0.1")),
        ):
            self.assertEqual(self.listened(text), expected, text)

    def test_givenBacklogWins(self) -> None:
        """What the operator says counts, wherever it stands."""
        for text in ("tcp:8080:backlog=7", "tcp:backlog=7:port=8080", "tcp6:8080:backlog=7"):
            self.assertEqual(self.listened(text)[:2], (8080, 7), text)

    def test_badEndpointIsExplained(self) -> None:
        """What cannot be used is not, with the words that are about it."""
        error = self.assertRaises(ValueError, serverEndpoint, MemoryReactorClock(), "nosuch:1")
        self.assertIn("nosuch", str(error))
        self.assertRaises(ValueError, serverEndpoint, MemoryReactorClock(), "tcp:no")
