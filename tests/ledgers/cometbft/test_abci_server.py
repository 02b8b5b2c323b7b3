"""
The server that an engine connects to, over memory.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft.abci import (
    MAX_CONNECTIONS,
    READ_AHEAD,
    SEND_SIZE,
    TURN,
    AbciApplication,
    AbciFactory,
    AbciFrameParser,
    decodeResponse,
    encodeFrame,
    messages,
)

from .applications import BaseApplication


class Broken(Exception):
    """An application that cannot go on."""


FAILING = (messages.FinalizeBlockRequest(), messages.CheckTxRequest(), messages.CommitRequest())


class Recorder(BaseApplication):
    """
    Keeps what it is called for, and answers what it is told to.
    """

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.answers: dict[type, Any] = {}

    def _answer(self, request: object, default: Any) -> Any:
        self.calls.append(request)
        answer = self.answers.get(type(request), default)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def info(self, request: messages.InfoRequest) -> Any:
        """See L{AbciApplication}."""
        return self._answer(request, messages.InfoResponse(data="recorder"))

    def initChain(self, request: messages.InitChainRequest) -> Any:
        """See L{AbciApplication}."""
        return self._answer(request, messages.InitChainResponse())

    def checkTx(self, request: messages.CheckTxRequest) -> Any:
        """See L{AbciApplication}."""
        return self._answer(request, messages.CheckTxResponse(log=request.tx.decode("latin-1")))

    def finalizeBlock(self, request: messages.FinalizeBlockRequest) -> Any:
        """See L{AbciApplication}."""
        return self._answer(request, messages.FinalizeBlockResponse())

    async def commit(self, request: messages.CommitRequest) -> messages.CommitResponse:
        """See L{AbciApplication}."""
        answer: Deferred[messages.CommitResponse] | messages.CommitResponse = self._answer(
            request, messages.CommitResponse()
        )
        return await answer if isinstance(answer, Deferred) else answer


@define
class Engine:
    """
    The other end of one connection.
    """

    transport: StringTransport
    protocol: Any
    parser: AbciFrameParser = field(factory=AbciFrameParser)

    def send(self, *requests: messages.Request) -> None:
        """Ask, all at once."""
        self.protocol.dataReceived(b"".join(map(encodeFrame, requests)))

    def answers(self) -> list[messages.Response]:
        """The answers since the last call."""
        self.parser.feed(self.transport.value())
        self.transport.clear()
        out = []
        while (frame := self.parser.nextFrame()) is not None:
            out.append(decodeResponse(frame))
        return out

    def leave(self) -> None:
        """The connection is lost."""
        self.protocol.connectionLost(Failure(ConnectionError("gone")))


class ServerTestCase(SynchronousTestCase):
    """
    A server, and engines that connect to it.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.application = Recorder()
        self.failures: list[Failure] = []
        self.counts: list[int] = []
        self.factory = AbciFactory(
            self.application,
            clock=self.clock,
            failed=self.failures.append,
            changed=self.counts.append,
            maxFrame=4 * READ_AHEAD,
        )

    def connect(self) -> Engine:
        """One more connection."""
        protocol = self.factory.buildProtocol(None)
        assert protocol is not None
        transport = StringTransport()
        protocol.makeConnection(transport)
        return Engine(transport, protocol)


class AnswerTests(ServerTestCase):
    """
    Requests are answered.
    """

    def test_doublesSatisfyApplication(self) -> None:
        """The double, and whoever extends the base class, is an application."""
        application: AbciApplication = self.application
        self.assertIsNotNone(application)

    def test_echoAndFlushNeedNoApplication(self) -> None:
        """Echo and flush need no application."""
        engine = self.connect()
        engine.send(messages.EchoRequest(message="hello"), messages.FlushRequest())
        self.assertEqual(
            engine.answers(), [messages.EchoResponse(message="hello"), messages.FlushResponse()]
        )
        self.assertEqual(self.application.calls, [])

    def test_everyCallIsAnswered(self) -> None:
        """Every call has an answer, also those that an application need not care about."""
        engine = self.connect()
        txs = (b"one", b"two")
        engine.send(
            messages.InfoRequest(),
            messages.InitChainRequest(),
            messages.QueryRequest(),
            messages.CheckTxRequest(tx=b"tx"),
            messages.PrepareProposalRequest(txs=txs, maxTxBytes=5),
            messages.ProcessProposalRequest(txs=txs),
            messages.FinalizeBlockRequest(),
            messages.CommitRequest(),
            messages.ListSnapshotsRequest(),
            messages.OfferSnapshotRequest(),
            messages.LoadSnapshotChunkRequest(),
            messages.ApplySnapshotChunkRequest(),
        )
        self.assertEqual(
            engine.answers(),
            [
                messages.InfoResponse(data="recorder"),
                messages.InitChainResponse(),
                messages.QueryResponse(code=1, log="there are no queries"),
                messages.CheckTxResponse(log="tx"),
                messages.PrepareProposalResponse(txs=(b"one",)),
                messages.ProcessProposalResponse(status=messages.Verdict.ACCEPT),
                messages.FinalizeBlockResponse(),
                messages.CommitResponse(),
                messages.ListSnapshotsResponse(),
                messages.OfferSnapshotResponse(result=messages.OfferResult.ABORT),
                messages.LoadSnapshotChunkResponse(),
                messages.ApplySnapshotChunkResponse(result=messages.ApplyResult.ABORT),
            ],
        )

    def test_requestMayComeByteByByte(self) -> None:
        """A request may come byte by byte."""
        engine = self.connect()
        for byte in encodeFrame(messages.CheckTxRequest(tx=b"tx")):
            self.assertEqual(engine.answers(), [])
            engine.protocol.dataReceived(bytes((byte,)))
        self.assertEqual(engine.answers(), [messages.CheckTxResponse(log="tx")])

    def test_slowAnswerDelaysLaterAnswers(self) -> None:
        """An answer that takes time holds those after it back, on its connection."""
        engine, other = self.connect(), self.connect()
        later: Deferred[messages.CheckTxResponse] = Deferred()
        self.application.answers[messages.CheckTxRequest] = [
            later,
            messages.CheckTxResponse(code=2),
        ]
        engine.send(
            messages.CheckTxRequest(tx=b"1"),
            messages.CheckTxRequest(tx=b"2"),
            messages.FlushRequest(),
        )
        self.assertEqual(engine.answers(), [])
        self.assertEqual(self.application.calls, [messages.CheckTxRequest(tx=b"1")])
        other.send(messages.EchoRequest(message="still here"))
        self.assertEqual(len(other.answers()), 1)
        later.callback(messages.CheckTxResponse(code=1))
        self.clock.advance(0)
        self.assertEqual(
            engine.answers(),
            [
                messages.CheckTxResponse(code=1),
                messages.CheckTxResponse(code=2),
                messages.FlushResponse(),
            ],
        )

    def test_answeringDoesNotReenter(self) -> None:
        """The giver of an answer is not called again before it returns."""
        engine = self.connect()
        later: Deferred[messages.CheckTxResponse] = Deferred()
        self.application.answers[messages.CheckTxRequest] = [later, messages.CheckTxResponse()]
        engine.send(messages.CheckTxRequest(tx=b"1"), messages.CheckTxRequest(tx=b"2"))
        later.callback(messages.CheckTxResponse())
        self.assertEqual(len(self.application.calls), 1)
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), 2)


class TurnTests(ServerTestCase):
    """
    Tests for the order of calls and answers.
    """

    def test_turnIsAnsweredInOneWrite(self) -> None:
        """Answers of a turn go out in one write; large ones in writes of bounded size."""
        engine = self.connect()
        sizes: list[int] = []
        write = engine.protocol._write

        def count(data: bytes) -> None:
            sizes.append(len(data))
            write(data)

        engine.protocol._write = count
        engine.send(messages.CheckTxRequest(), messages.FlushRequest())
        self.assertEqual(len(engine.answers()), 2)
        self.assertEqual(len(sizes), 1)
        large = messages.CheckTxResponse(log="x" * (SEND_SIZE // 4))
        self.application.answers[messages.CheckTxRequest] = large
        engine.send(*[messages.CheckTxRequest()] * 10)
        self.assertEqual(len(engine.answers()), 10)
        self.assertEqual(len(sizes), 4)
        self.assertLess(max(sizes), 2 * SEND_SIZE)

    def test_consensusCallsAreSerialized(self) -> None:
        """Consensus calls wait for each other on whatever connection; others do not."""
        consensus, query, mempool = self.connect(), self.connect(), self.connect()
        committed: Deferred[messages.CommitResponse] = Deferred()
        self.application.answers[messages.CommitRequest] = committed
        consensus.send(messages.CommitRequest())
        query.send(messages.InfoRequest())
        mempool.send(messages.CheckTxRequest(tx=b"tx"))
        self.assertEqual(mempool.answers(), [messages.CheckTxResponse(log="tx")])
        self.assertEqual(query.answers(), [])
        self.assertNotIn(messages.InfoRequest(), self.application.calls)
        committed.callback(messages.CommitResponse())
        self.assertEqual(consensus.answers(), [messages.CommitResponse()])
        self.assertEqual(query.answers(), [messages.InfoResponse(data="recorder")])

    def test_newEngineWaitsForOldCall(self) -> None:
        """A new engine's calls wait for the old one's last; what that wants besides is dropped."""
        old, oldQuery, new = self.connect(), self.connect(), self.connect()
        committed: Deferred[messages.CommitResponse] = Deferred()
        self.application.answers[messages.CommitRequest] = committed
        old.send(messages.CommitRequest())
        oldQuery.send(messages.InitChainRequest())
        old.leave()
        oldQuery.leave()
        new.send(messages.InfoRequest())
        self.assertEqual(self.application.calls, [messages.CommitRequest()])
        committed.callback(messages.CommitResponse())
        self.assertEqual(self.application.calls, [messages.CommitRequest(), messages.InfoRequest()])
        self.assertEqual(len(new.answers()), 1)
        self.assertEqual(self.failures, [])

    def test_busyConnectionYields(self) -> None:
        """A connection that asks much gives others their turn."""
        mempool, consensus = self.connect(), self.connect()
        mempool.send(*[messages.CheckTxRequest(tx=b"tx")] * (TURN + 5))
        self.assertEqual(len(mempool.answers()), TURN)
        consensus.send(messages.FinalizeBlockRequest())
        self.assertEqual(len(consensus.answers()), 1)
        self.clock.advance(0)
        self.assertEqual(len(mempool.answers()), 5)

    def test_readAheadIsBounded(self) -> None:
        """While an answer is not there, no more than a bound is read."""
        engine = self.connect()
        later: Deferred[messages.CheckTxResponse] = Deferred()
        self.application.answers[messages.CheckTxRequest] = later
        engine.send(messages.CheckTxRequest())
        engine.send(messages.EchoRequest(message="x" * (READ_AHEAD - 100)))
        self.assertEqual(engine.transport.producerState, "producing")
        engine.send(messages.EchoRequest(message="x" * 100))
        self.assertEqual(engine.transport.producerState, "paused")
        later.callback(messages.CheckTxResponse())
        self.clock.advance(0)
        self.assertEqual(engine.transport.producerState, "producing")
        self.assertEqual(len(engine.answers()), 3)

    def test_unreadAnswersPauseAnswering(self) -> None:
        """While the engine does not read, nothing is answered."""
        engine = self.connect()
        self.assertTrue(engine.transport.streaming)
        producer: Any = engine.transport.producer
        producer.pauseProducing()
        engine.send(messages.CheckTxRequest(tx=b"tx"))
        self.assertEqual(self.application.calls, [])
        producer.resumeProducing()
        self.assertEqual(engine.answers(), [messages.CheckTxResponse(log="tx")])


class EndTests(ServerTestCase):
    """
    Tests for the ends of connections and of the application.
    """

    def checkStopped(self, engine: Engine, other: Engine) -> None:
        """The engine was told, nothing is called any more, and the owner knows once."""
        self.assertEqual(
            engine.answers(),
            [messages.ExceptionResponse(error="the application has failed: Broken")],
        )
        self.assertTrue(engine.transport.disconnecting)
        self.assertTrue(other.transport.disconnecting)
        calls = len(self.application.calls)
        engine.send(messages.InfoRequest())
        other.send(messages.InfoRequest())
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), calls)
        self.assertEqual(other.answers(), [])
        self.assertIsNone(self.factory.buildProtocol(None))
        self.assertEqual([failure.type for failure in self.failures], [Broken])
        self.assertIs(self.factory.failure, self.failures[0])

    def test_raisingApplicationIsNotCalledAgain(self) -> None:
        """An application that raises is not called again."""
        for request in FAILING:
            self.setUp()
            self.application.answers[type(request)] = Broken("no")
            engine, other = self.connect(), self.connect()
            engine.send(request, messages.CheckTxRequest())
            self.checkStopped(engine, other)

    def test_failedAnswerEndsApplication(self) -> None:
        """Nor is one whose answer fails, and who waited for its turn does not get it."""
        for request in FAILING:
            self.setUp()
            later: Deferred[Any] = Deferred()
            self.application.answers[type(request)] = later
            engine, other = self.connect(), self.connect()
            engine.send(request)
            if not isinstance(request, messages.CheckTxRequest):
                other.send(messages.CommitRequest())
            later.errback(Broken("no"))
            self.assertEqual(self.application.calls, [request])
            self.checkStopped(engine, other)

    def test_unencodableAnswerIsFailure(self) -> None:
        """An answer that cannot be written is a failure too."""
        self.application.answers[messages.CheckTxRequest] = messages.CheckTxResponse(code=-1)
        engine = self.connect()
        engine.send(messages.CheckTxRequest())
        self.assertEqual([failure.type for failure in self.failures], [ValueError])
        self.assertIsInstance(engine.answers()[0], messages.ExceptionResponse)

    def test_failureAfterDisconnectCounts(self) -> None:
        """A failure counts although the engine that asked has gone."""
        later: Deferred[Any] = Deferred()
        self.application.answers[messages.CommitRequest] = later
        engine = self.connect()
        engine.send(messages.CommitRequest())
        engine.leave()
        later.errback(Broken("no"))
        self.assertEqual([failure.type for failure in self.failures], [Broken])

    def test_malformedRequestEndsConnection(self) -> None:
        """Data that is no request ends its connection; the application is sound."""
        for data in (b"\x00", b"\xff" * 10, b"\x02\xaa\x01", b"\xff\xff\xff\x7f"):
            engine, other = self.connect(), self.connect()
            engine.protocol.dataReceived(data)
            answer = engine.answers()[0]
            assert isinstance(answer, messages.ExceptionResponse)
            self.assertTrue(answer.error.startswith("no request of ABCI 2.0: "))
            self.assertTrue(engine.transport.disconnecting)
            other.send(messages.InfoRequest())
            self.assertEqual(len(other.answers()), 1)
            engine.leave()
            other.leave()
        self.assertEqual(self.failures, [])

    def test_ownerLearnsConnectionCount(self) -> None:
        """The owner hears of connections that come and go."""
        engines = [self.connect() for _ in range(4)]
        self.assertEqual(self.factory.connections, 4)
        for engine in engines:
            engine.leave()
        self.assertEqual(self.counts, [1, 2, 3, 4, 3, 2, 1, 0])

    def test_connectionsAreBounded(self) -> None:
        """There is a bound to connections."""
        engines = [self.connect() for _ in range(MAX_CONNECTIONS)]
        self.assertIsNone(self.factory.buildProtocol(None))
        engines[0].leave()
        self.connect()

    def test_lostConnectionGivesUpItsTurn(self) -> None:
        """A connection that is lost while it is not its turn is answered no more."""
        engine = self.connect()
        engine.send(*[messages.CheckTxRequest()] * (TURN + 1))
        engine.leave()
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), TURN)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closeWaitsForRunningCalls(self) -> None:
        """An orderly end waits for what is being done."""
        committed: Deferred[messages.CommitResponse] = Deferred()
        self.application.answers[messages.CommitRequest] = committed
        engine, other = self.connect(), self.connect()
        engine.send(messages.CommitRequest())
        other.send(messages.CommitRequest())
        closed = self.factory.close()
        self.assertNoResult(closed)
        self.assertTrue(engine.transport.disconnecting)
        committed.callback(messages.CommitResponse())
        self.successResultOf(closed)
        self.assertEqual(self.application.calls, [messages.CommitRequest()])
        self.assertEqual(self.failures, [])
        self.successResultOf(self.factory.close())
