"""
Tests of L{svcbroker.carriers.peers}: questions to one peer, and every way they end.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from OpenSSL import SSL
from treq.testing import RequestTraversalAgent
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    TCPTimedOutError,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web._newclient import ParseError
from twisted.web.client import ResponseFailed, ResponseNeverReceived
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer
from zope.interface.verify import verifyObject

from svcbroker.broker import IPeer, PeerError
from svcbroker.carriers.peers import (
    MAX_SUBSCRIPTIONS,
    MAX_UNDER_WAY,
    HttpPeer,
    Peers,
    parsePeerCredentials,
)
from svcbroker.errors import GroupUnknown, Overloaded
from svcbroker.net.http import HttpClient, basicAuthorization

URL = "http://10.0.0.2:8080/svcbroker"
NAME = "b:1"
TIMEOUT = 5.0


class OtherBroker(Resource):
    """
    Answers as it is told.

    @ivar asked: every URI that was asked for.
    @ivar answers: the data by the last part of the path; C{None} never answers.
    @ivar raw: what is answered instead, whatever was asked.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []
        self.headers: list[Any] = []
        self.status = 200
        self.answers: dict[bytes, Any] = {
            b"listSubscription": {"b:1": {}},
        }
        self.raw: bytes | None = None
        self.more: dict[bytes, bytes] = {}
        self.requests: list[Any] = []

    def render(self, request: Any) -> Any:
        self.requests.append(request)
        self.asked.append(request.uri)
        self.headers.append(request.requestHeaders.copy())
        request.setResponseCode(self.status)
        for name, value in self.more.items():
            request.setHeader(name, value)
        if self.raw is not None:
            return self.raw
        data = self.answers[request.path.rpartition(b"/")[2]]
        if data is None:
            return NOT_DONE_YET
        return json.dumps({"code": 0, "message": "success", "data": data}).encode()


@implementer(IAgent)
class Failing:
    """An agent that cannot."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        return fail(self.error)


class AskingTestCase(SynchronousTestCase):
    """
    A peer over memory.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.closed = 0
        self.other = OtherBroker()
        self.use(RequestTraversalAgent(self.other))

    def use(self, agent: Any) -> None:
        """Ask through this agent."""
        self.agent = agent
        self.peers = Peers({NAME: URL}, HttpClient(agent, self.clock, self.close))
        self.peer = self.peers.all[0]

    def close(self) -> Deferred[None]:
        self.closed += 1
        return succeed(None)

    def subscriptions(self, group: str | None = None) -> Deferred[Any]:
        """Ask for its subscriptions."""
        return self.peer.listSubscriptions(group, TIMEOUT)

    def reason(self, asking: Deferred[Any]) -> str:
        """Why there is no answer."""
        return str(self.failureResultOf(asking, PeerError).value)


class AnswerTests(AskingTestCase):
    """
    A peer that answers.
    """

    def test_peerImplementsInterface(self) -> None:
        """They are what they are used as."""
        verifyObject(IPeer, self.peer)

    def test_peerHasOperatorsName(self) -> None:
        """Whatever its URL is."""
        self.assertIsInstance(self.peer, HttpPeer)
        self.assertEqual(self.peer.name, NAME)

    def test_newPeersAreNotAsked(self) -> None:
        """A peer that is made asks nothing."""
        self.assertEqual(self.other.asked, [])

    def test_questionNeverNamesANode(self) -> None:
        """The question never names a node, so that the peer answers for itself only."""
        self.assertEqual(self.successResultOf(self.subscriptions()), [])
        self.assertEqual(self.successResultOf(self.subscriptions("a b")), [])
        path = b"/svcbroker/admin/listSubscription"
        self.assertEqual(self.other.asked, [path, path + b"?groupId=a+b"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_hostMayBeNameOrAddress(self) -> None:
        """A host has a name or an address of either kind; and what is asked is what was meant."""
        for host in ("broker-2", "[::1]:8080", "10.0.0.1:80"):
            client = HttpClient(self.agent, self.clock, self.close)
            peers = Peers({NAME: f"http://{host}/a.b"}, client)
            self.successResultOf(peers.all[0].listSubscriptions("g.1_2-3", TIMEOUT))
            wanted = b"/a.b/admin/listSubscription?groupId=g.1_2-3"
            self.assertEqual(self.other.asked[-1], wanted)

    def test_unknownGroupIsPassedOn(self) -> None:
        """That it does not serve a group is its answer."""
        self.other.raw = b'{"code":200211,"message":"group is unknown"}'
        self.failureResultOf(self.subscriptions("2"), GroupUnknown)

    def test_cookiesAreNotKept(self) -> None:
        """Nothing is carried from one answer to the next question."""
        self.other.more = {b"Set-Cookie": b"a=b"}
        for _ in range(2):
            self.successResultOf(self.subscriptions())
        self.assertFalse(self.other.headers[1].hasHeader(b"Cookie"))


class CredentialTests(AskingTestCase):
    """
    What a peer is shown.
    """

    def test_credentialsAreShownToTheirPeerOnly(self) -> None:
        self.peers.use({NAME: b"Basic x", "c:1": b"Basic y"})
        self.successResultOf(self.subscriptions())
        self.assertEqual(self.other.headers[0].getRawHeaders("Authorization"), ["Basic x"])
        self.peers.use({"c:1": b"Basic y"})
        self.successResultOf(self.subscriptions())
        self.assertFalse(self.other.headers[1].hasHeader("Authorization"))

    def test_refusedCredentialsAreNotTold(self) -> None:
        self.peers.use({NAME: basicAuthorization("b", "hush")})
        self.other.status = 401
        self.assertEqual(
            self.reason(self.subscriptions()),
            "refuses the credentials of this broker (HTTP status 401)",
        )

    def test_fileHasALineForEachPeer(self) -> None:
        names = ("b:1", "c:1", "d:1")
        text = "# ours\n\nb:1 one:p:w\r\n* two:\u00e9 t\n".encode()
        self.assertEqual(
            parsePeerCredentials(text, names),
            {
                "b:1": basicAuthorization("one", "p:w"),
                "c:1": basicAuthorization("two", "\u00e9 t"),
                "d:1": basicAuthorization("two", "\u00e9 t"),
            },
        )
        one = parsePeerCredentials(b"b:1 one:pw", names)
        self.assertEqual(one, {"b:1": basicAuthorization("one", "pw")})

    def test_wrongLinesAreNamed(self) -> None:
        for text, words in (
            (b"b:1", "line 1 is not NAME ACCOUNT:PASSWORD"),
            (b"\nb:1 hush", "line 2 is not NAME ACCOUNT:PASSWORD"),
            (b"b:1 hush:", "line 1 is not NAME ACCOUNT:PASSWORD"),
            (b"b:1 :hush", "line 1 is not NAME ACCOUNT:PASSWORD"),
            (b"b:1 a:hush\xff", "line 1 is not NAME ACCOUNT:PASSWORD"),
            (b"x:1 a:hush", "line 1 names no peer"),
            (b"* a:hush\n* b:hush", "line 2 names a peer again"),
        ):
            error = self.assertRaises(ValueError, parsePeerCredentials, text, ["b:1"])
            self.assertEqual(str(error), words)


class FailureTests(AskingTestCase):
    """
    A peer that does not.
    """

    def test_networkErrorsHaveWords(self) -> None:
        """Each way not to get through has its words."""
        gone = [Failure(ConnectionLost())]
        for error, words in (
            (ConnectionRefusedError(), "cannot be reached"),
            (TCPTimedOutError(), "cannot be reached"),
            (DNSLookupError(), "cannot be found: its name has no address"),
            (ConnectionDone(), "closed the connection before it had answered"),
            (ResponseNeverReceived(gone), "closed the connection before it had answered"),
            (ResponseFailed(gone, None), "closed the connection before it had answered"),
            (
                ResponseNeverReceived([Failure(SSL.Error())]),
                "speaks no TLS, has a certificate that is not trusted, or requires one of ours",
            ),
            (
                ResponseFailed([Failure(ParseError("x", b""))], None),
                "answered with something that is not HTTP",
            ),
        ):
            self.use(Failing(error))
            self.assertEqual(self.reason(self.subscriptions()), words)
        self.use(Failing(ZeroDivisionError()))
        self.failureResultOf(self.subscriptions(), ZeroDivisionError)

    def test_otherStatusIsNoAnswer(self) -> None:
        """Only 200 is an answer, and nobody is followed elsewhere."""
        self.other.more = {b"Location": b"http://10.0.0.9/"}
        for status, words in (
            (302, "sends us elsewhere (HTTP status 302)"),
            (401, "wants credentials (HTTP status 401): see --peer-credentials"),
            (403, "refuses this broker (HTTP status 403): its account needs operate"),
            (404, "has nothing under its URL (HTTP status 404): is the context path right?"),
            (503, "answered with HTTP status 503"),
        ):
            self.other.status = status
            self.assertEqual(self.reason(self.subscriptions()), words)
        self.assertEqual(len(self.other.asked), 5)

    def test_otherJsonIsNoAnswer(self) -> None:
        """What is no such answer is none."""
        self.other.raw = b"<html>"
        self.assertIn("no answer to this", self.reason(self.subscriptions()))

    def test_hugeAnswerIsNotRead(self) -> None:
        """An answer is read as far as an answer can be, and no further."""
        self.other.raw = b" " * (MAX_SUBSCRIPTIONS + 1)
        self.assertEqual(
            self.reason(self.subscriptions()),
            f"answered with more than {MAX_SUBSCRIPTIONS} bytes",
        )
        good = b'{"code":0,"message":"success","data":{"b:1":{}}}'
        self.other.raw = good + b" " * (MAX_SUBSCRIPTIONS - len(good))
        self.assertEqual(self.successResultOf(self.subscriptions()), [])

    def test_packedAnswerIsNotUnpacked(self) -> None:
        """Nobody is asked to pack an answer, and a packed one is not unpacked."""
        self.other.more = {b"Content-Encoding": b"gzip"}
        self.other.raw = gzip.compress(b" " * 10_000_000)
        self.assertEqual(
            self.reason(self.subscriptions()), "packed its answer, which it was not asked to"
        )
        self.assertFalse(self.other.headers[0].hasHeader(b"Accept-Encoding"))

    def test_silentPeerTimesOut(self) -> None:
        """One that never answers is left when the time is over."""
        self.other.answers[b"listSubscription"] = None
        asking = self.subscriptions()
        self.clock.advance(TIMEOUT - 0.1)
        self.assertNoResult(asking)
        self.clock.advance(0.1)
        self.assertEqual(self.reason(asking), "gave no answer in time")
        self.agent.flush()
        self.assertTrue(self.other.requests[0]._disconnected)

    def test_halfAnAnswerTimesOut(self) -> None:
        """So is one that begins to answer and does not go on."""
        self.other.answers[b"listSubscription"] = None
        asking = self.subscriptions()
        self.other.requests[0].write(b'{"code":0,')
        self.agent.flush()
        self.clock.advance(TIMEOUT)
        self.assertEqual(self.reason(asking), "gave no answer in time")
        self.agent.flush()
        self.assertTrue(self.other.requests[0]._disconnected)

    def test_brokenOffAnswerIsNoAnswer(self) -> None:
        """What was broken off is no answer, whatever it looks like."""
        self.other.answers[b"listSubscription"] = None
        asking = self.subscriptions()
        self.other.requests[0].write(b'{"code":0,"message":"success","data":{"b:1":{}}}')
        self.agent.flush()
        self.other.requests[0].transport.loseConnection()
        self.agent.flush()
        self.assertEqual(self.reason(asking), "closed the connection before it had answered")

    def test_cancellingEndsTheQuestion(self) -> None:
        """Who leaves ends the question."""
        self.other.answers[b"listSubscription"] = None
        asking = self.subscriptions()
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.agent.flush()
        self.assertTrue(self.other.requests[0]._disconnected)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_questionsAtTheSameTimeAreBounded(self) -> None:
        """A peer is asked so many questions at the same time and no more; then again."""
        self.other.answers[b"listSubscription"] = None
        asking = [self.subscriptions() for _ in range(MAX_UNDER_WAY)]
        self.failureResultOf(self.subscriptions(), Overloaded)
        self.assertEqual(len(self.other.asked), MAX_UNDER_WAY)
        self.clock.advance(TIMEOUT)
        for each in asking:
            self.reason(each)
        self.other.answers[b"listSubscription"] = {"b:1": {}}
        self.successResultOf(self.subscriptions())


class DrainTests(AskingTestCase):
    """
    The end.
    """

    def test_idlePeersCloseAtOnce(self) -> None:
        """Nothing under way: the connections are closed."""
        self.successResultOf(self.subscriptions())
        self.successResultOf(self.peers.drain())
        self.assertEqual(self.closed, 1)

    def test_questionUnderWayIsAnswered(self) -> None:
        """What is under way has its time."""
        self.other.answers[b"listSubscription"] = None
        asking = self.subscriptions()
        draining = self.peers.drain()
        self.assertNoResult(draining)
        self.assertEqual(self.closed, 0)
        self.other.requests[0].write(b"{}")
        self.other.requests[0].finish()
        self.agent.flush()
        self.reason(asking)
        self.successResultOf(draining)
        self.assertEqual(self.closed, 1)

    def test_cancellingTheDrainEndsQuestions(self) -> None:
        """Where there is no time left, it is ended."""
        self.other.answers[b"listSubscription"] = None
        asking = [self.subscriptions(), self.subscriptions()]
        draining = self.peers.drain()
        draining.cancel()
        for each in asking:
            self.failureResultOf(each, CancelledError)
        self.successResultOf(draining)
        self.assertEqual(self.closed, 1)

    def test_laterQuestionClosesAgain(self) -> None:
        """A client that was let in before may have one more question; then they close again."""
        self.successResultOf(self.peers.drain())
        self.successResultOf(self.subscriptions())
        self.assertEqual(self.closed, 2)
