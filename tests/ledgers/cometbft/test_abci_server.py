"""
The server that an engine connects to, over memory.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft.abci import (
    AbciFactory,
    Application,
    BaseApplication,
    FrameParser,
    decodeResponse,
    encodeFrame,
    listenUnix,
)
from svcbroker.ledgers.cometbft.abci import requests as rq
from svcbroker.ledgers.cometbft.abci import responses as rs
from svcbroker.ledgers.cometbft.abci.server import MAX_CONNECTIONS, MAX_UNIX_PATH, READ_AHEAD, TURN
from tests.directories import shortDirectory


class Broken(Exception):
    """An application that cannot go on."""


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

    def info(self, request: rq.InfoRequest) -> Any:
        """See L{Application}."""
        return self._answer(request, rs.InfoResponse(data="recorder"))

    def initChain(self, request: rq.InitChainRequest) -> Any:
        """See L{Application}."""
        return self._answer(request, rs.InitChainResponse())

    def checkTx(self, request: rq.CheckTxRequest) -> Any:
        """See L{Application}."""
        return self._answer(request, rs.CheckTxResponse(data=request.tx))

    def finalizeBlock(self, request: rq.FinalizeBlockRequest) -> Any:
        """See L{Application}."""
        return self._answer(request, rs.FinalizeBlockResponse())

    async def commit(self, request: rq.CommitRequest) -> rs.CommitResponse:
        """See L{Application}."""
        answer: Deferred[rs.CommitResponse] | rs.CommitResponse = self._answer(
            request, rs.CommitResponse()
        )
        return await answer if isinstance(answer, Deferred) else answer


@define
class Engine:
    """
    The other end of one connection.
    """

    transport: StringTransport
    protocol: Any
    parser: FrameParser = field(factory=FrameParser)

    def send(self, *requests: rq.Request) -> None:
        """Ask, all at once."""
        self.protocol.dataReceived(b"".join(map(encodeFrame, requests)))

    def answers(self) -> list[rs.Response]:
        """What was answered since."""
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

    def test_interface(self) -> None:
        """The double, and whoever extends the base class, is an application."""
        application: Application = self.application
        self.assertIsNotNone(application)

    def test_simple(self) -> None:
        """Echo and flush need no application."""
        engine = self.connect()
        engine.send(rq.EchoRequest(message="hello"), rq.FlushRequest())
        self.assertEqual(engine.answers(), [rs.EchoResponse(message="hello"), rs.FlushResponse()])
        self.assertEqual(self.application.calls, [])

    def test_defaults(self) -> None:
        """Every call has an answer, also those that an application need not care about."""
        engine = self.connect()
        txs = (b"one", b"two")
        engine.send(
            rq.InfoRequest(),
            rq.InitChainRequest(),
            rq.QueryRequest(path="/"),
            rq.CheckTxRequest(tx=b"tx"),
            rq.PrepareProposalRequest(txs=txs, maxTxBytes=5),
            rq.ProcessProposalRequest(txs=txs),
            rq.ExtendVoteRequest(),
            rq.VerifyVoteExtensionRequest(),
            rq.VerifyVoteExtensionRequest(voteExtension=b"?"),
            rq.FinalizeBlockRequest(),
            rq.CommitRequest(),
            rq.ListSnapshotsRequest(),
            rq.OfferSnapshotRequest(),
            rq.LoadSnapshotChunkRequest(),
            rq.ApplySnapshotChunkRequest(),
        )
        self.assertEqual(
            engine.answers(),
            [
                rs.InfoResponse(data="recorder"),
                rs.InitChainResponse(),
                rs.QueryResponse(code=1, log="there are no queries"),
                rs.CheckTxResponse(data=b"tx"),
                rs.PrepareProposalResponse(txs=(b"one",)),
                rs.ProcessProposalResponse(status=rs.Verdict.ACCEPT),
                rs.ExtendVoteResponse(),
                rs.VerifyVoteExtensionResponse(status=rs.Verdict.ACCEPT),
                rs.VerifyVoteExtensionResponse(status=rs.Verdict.REJECT),
                rs.FinalizeBlockResponse(),
                rs.CommitResponse(),
                rs.ListSnapshotsResponse(),
                rs.OfferSnapshotResponse(result=rs.OfferResult.ABORT),
                rs.LoadSnapshotChunkResponse(),
                rs.ApplySnapshotChunkResponse(result=rs.ApplyResult.ABORT),
            ],
        )

    def test_pieces(self) -> None:
        """A request may come byte by byte."""
        engine = self.connect()
        for byte in encodeFrame(rq.CheckTxRequest(tx=b"tx")):
            self.assertEqual(engine.answers(), [])
            engine.protocol.dataReceived(bytes((byte,)))
        self.assertEqual(engine.answers(), [rs.CheckTxResponse(data=b"tx")])

    def test_order(self) -> None:
        """An answer that takes time holds those after it back, on its connection."""
        engine, other = self.connect(), self.connect()
        later: Deferred[rs.CheckTxResponse] = Deferred()
        self.application.answers[rq.CheckTxRequest] = [later, rs.CheckTxResponse(code=2)]
        engine.send(rq.CheckTxRequest(tx=b"1"), rq.CheckTxRequest(tx=b"2"), rq.FlushRequest())
        self.assertEqual(engine.answers(), [])
        self.assertEqual(self.application.calls, [rq.CheckTxRequest(tx=b"1")])
        other.send(rq.EchoRequest(message="still here"))
        self.assertEqual(len(other.answers()), 1)
        later.callback(rs.CheckTxResponse(code=1))
        self.clock.advance(0)
        self.assertEqual(
            engine.answers(),
            [rs.CheckTxResponse(code=1), rs.CheckTxResponse(code=2), rs.FlushResponse()],
        )

    def test_notFromInside(self) -> None:
        """Who gives an answer is not called again before it returns."""
        engine = self.connect()
        later: Deferred[rs.CheckTxResponse] = Deferred()
        self.application.answers[rq.CheckTxRequest] = [later, rs.CheckTxResponse()]
        engine.send(rq.CheckTxRequest(tx=b"1"), rq.CheckTxRequest(tx=b"2"))
        later.callback(rs.CheckTxResponse())
        self.assertEqual(len(self.application.calls), 1)
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), 2)


class TurnTests(ServerTestCase):
    """
    Who is called when.
    """

    def test_consensusInTurn(self) -> None:
        """Consensus calls wait for each other on whatever connection; others do not."""
        consensus, query, mempool = self.connect(), self.connect(), self.connect()
        committed: Deferred[rs.CommitResponse] = Deferred()
        self.application.answers[rq.CommitRequest] = committed
        consensus.send(rq.CommitRequest())
        query.send(rq.InfoRequest())
        mempool.send(rq.CheckTxRequest(tx=b"tx"))
        self.assertEqual(mempool.answers(), [rs.CheckTxResponse(data=b"tx")])
        self.assertEqual(query.answers(), [])
        self.assertNotIn(rq.InfoRequest(), self.application.calls)
        committed.callback(rs.CommitResponse(retainHeight=3))
        self.assertEqual(consensus.answers(), [rs.CommitResponse(retainHeight=3)])
        self.assertEqual(query.answers(), [rs.InfoResponse(data="recorder")])

    def test_engineRestarted(self) -> None:
        """A new engine's calls wait for the old one's last; what that wants besides is dropped."""
        old, oldQuery, new = self.connect(), self.connect(), self.connect()
        committed: Deferred[rs.CommitResponse] = Deferred()
        self.application.answers[rq.CommitRequest] = committed
        old.send(rq.CommitRequest())
        oldQuery.send(rq.InitChainRequest())
        old.leave()
        oldQuery.leave()
        new.send(rq.InfoRequest())
        self.assertEqual(self.application.calls, [rq.CommitRequest()])
        committed.callback(rs.CommitResponse())
        self.assertEqual(self.application.calls, [rq.CommitRequest(), rq.InfoRequest()])
        self.assertEqual(len(new.answers()), 1)
        self.assertEqual(self.failures, [])

    def test_fair(self) -> None:
        """A connection that asks much gives others their turn."""
        mempool, consensus = self.connect(), self.connect()
        mempool.send(*[rq.CheckTxRequest(tx=b"tx")] * (TURN + 5))
        self.assertEqual(len(mempool.answers()), TURN)
        consensus.send(rq.FinalizeBlockRequest())
        self.assertEqual(len(consensus.answers()), 1)
        self.clock.advance(0)
        self.assertEqual(len(mempool.answers()), 5)

    def test_readAhead(self) -> None:
        """While an answer is not there, no more than a bound is read."""
        engine = self.connect()
        later: Deferred[rs.CheckTxResponse] = Deferred()
        self.application.answers[rq.CheckTxRequest] = later
        engine.send(rq.CheckTxRequest())
        engine.send(rq.EchoRequest(message="x" * (READ_AHEAD - 100)))
        self.assertEqual(engine.transport.producerState, "producing")
        engine.send(rq.EchoRequest(message="x" * 100))
        self.assertEqual(engine.transport.producerState, "paused")
        later.callback(rs.CheckTxResponse())
        self.clock.advance(0)
        self.assertEqual(engine.transport.producerState, "producing")
        self.assertEqual(len(engine.answers()), 3)

    def test_unread(self) -> None:
        """While the engine does not read, nothing is answered."""
        engine = self.connect()
        self.assertTrue(engine.transport.streaming)
        producer: Any = engine.transport.producer
        producer.pauseProducing()
        engine.send(rq.CheckTxRequest(tx=b"tx"))
        self.assertEqual(self.application.calls, [])
        producer.resumeProducing()
        self.assertEqual(engine.answers(), [rs.CheckTxResponse(data=b"tx")])


class EndTests(ServerTestCase):
    """
    How it ends.
    """

    def checkStopped(self, engine: Engine, other: Engine) -> None:
        """The engine was told, nothing is called any more, and the owner knows once."""
        self.assertEqual(
            engine.answers(),
            [rs.ExceptionResponse(error="the application cannot go on: Broken")],
        )
        self.assertTrue(engine.transport.disconnecting)
        self.assertTrue(other.transport.disconnecting)
        calls = len(self.application.calls)
        engine.send(rq.InfoRequest())
        other.send(rq.InfoRequest())
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), calls)
        self.assertEqual(other.answers(), [])
        self.assertIsNone(self.factory.buildProtocol(None))
        self.assertEqual([failure.type for failure in self.failures], [Broken])
        self.assertIs(self.factory.failure, self.failures[0])

    def test_raises(self) -> None:
        """An application that raises is not called again."""
        for request in (rq.FinalizeBlockRequest(), rq.CheckTxRequest(), rq.CommitRequest()):
            self.setUp()
            self.application.answers[type(request)] = Broken("no")
            engine, other = self.connect(), self.connect()
            engine.send(request, rq.CheckTxRequest())
            self.checkStopped(engine, other)

    def test_failsLater(self) -> None:
        """Nor is one whose answer fails, and who waited for its turn does not get it."""
        for request in (rq.FinalizeBlockRequest(), rq.CheckTxRequest(), rq.CommitRequest()):
            self.setUp()
            later: Deferred[Any] = Deferred()
            self.application.answers[type(request)] = later
            engine, other = self.connect(), self.connect()
            engine.send(request)
            if not isinstance(request, rq.CheckTxRequest):
                other.send(rq.CommitRequest())
            later.errback(Broken("no"))
            self.assertEqual(self.application.calls, [request])
            self.checkStopped(engine, other)

    def test_unspeakable(self) -> None:
        """An answer that cannot be written is a failure too."""
        self.application.answers[rq.CheckTxRequest] = rs.CheckTxResponse(code=-1)
        engine = self.connect()
        engine.send(rq.CheckTxRequest())
        self.assertEqual([failure.type for failure in self.failures], [ValueError])
        self.assertIsInstance(engine.answers()[0], rs.ExceptionResponse)

    def test_failsAfterLoss(self) -> None:
        """A failure counts although the engine that asked has gone."""
        later: Deferred[Any] = Deferred()
        self.application.answers[rq.CommitRequest] = later
        engine = self.connect()
        engine.send(rq.CommitRequest())
        engine.leave()
        later.errback(Broken("no"))
        self.assertEqual([failure.type for failure in self.failures], [Broken])

    def test_malformed(self) -> None:
        """What is no request ends its connection; the application is sound."""
        for data in (b"\x00", b"\xff" * 10, b"\x02\xaa\x01", b"\xff\xff\xff\x7f"):
            engine, other = self.connect(), self.connect()
            engine.protocol.dataReceived(data)
            answer = engine.answers()[0]
            assert isinstance(answer, rs.ExceptionResponse)
            self.assertTrue(answer.error.startswith("no request of ABCI 2.0: "))
            self.assertTrue(engine.transport.disconnecting)
            other.send(rq.InfoRequest())
            self.assertEqual(len(other.answers()), 1)
            engine.leave()
            other.leave()
        self.assertEqual(self.failures, [])

    def test_counts(self) -> None:
        """The owner hears of connections that come and go."""
        engines = [self.connect() for _ in range(4)]
        self.assertEqual(self.factory.connections, 4)
        for engine in engines:
            engine.leave()
        self.assertEqual(self.counts, [1, 2, 3, 4, 3, 2, 1, 0])

    def test_crowd(self) -> None:
        """There is a bound to connections."""
        engines = [self.connect() for _ in range(MAX_CONNECTIONS)]
        self.assertIsNone(self.factory.buildProtocol(None))
        engines[0].leave()
        self.connect()

    def test_lostInTurn(self) -> None:
        """A connection that is lost while it is not its turn is answered no more."""
        engine = self.connect()
        engine.send(*[rq.CheckTxRequest()] * (TURN + 1))
        engine.leave()
        self.clock.advance(0)
        self.assertEqual(len(self.application.calls), TURN)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close(self) -> None:
        """An orderly end waits for what is being done."""
        committed: Deferred[rs.CommitResponse] = Deferred()
        self.application.answers[rq.CommitRequest] = committed
        engine, other = self.connect(), self.connect()
        engine.send(rq.CommitRequest())
        other.send(rq.CommitRequest())
        closed = self.factory.close()
        self.assertNoResult(closed)
        self.assertTrue(engine.transport.disconnecting)
        committed.callback(rs.CommitResponse())
        self.successResultOf(closed)
        self.assertEqual(self.application.calls, [rq.CommitRequest()])
        self.assertEqual(self.failures, [])
        self.successResultOf(self.factory.close())


class ListenTests(ServerTestCase):
    """
    Where it listens.
    """

    def test_stale(self) -> None:
        """A socket that was left is removed, and only this user can connect."""
        reactor = MemoryReactorClock()
        path = shortDirectory(self) / "abci.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        self.assertTrue(stat.S_ISSOCK(path.lstat().st_mode))
        listenUnix(reactor, path, self.factory)
        self.assertFalse(path.exists())
        address, factory, _, mode, _ = reactor.unixServers[0]
        self.assertEqual((address, mode), (str(path), 0o600))
        self.assertIs(factory, self.factory)

    def test_alive(self) -> None:
        """The socket of a broker that lives is left alone; that of a dead one is not."""
        path = shortDirectory(self) / "abci.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen(0)
            with self.assertRaises(ValueError) as raised:
                listenUnix(MemoryReactorClock(), path, self.factory)
            self.assertIn("another process listens", str(raised.exception))
            self.assertTrue(path.exists())
        listenUnix(MemoryReactorClock(), path, self.factory)
        self.assertFalse(path.exists())

    def test_refused(self) -> None:
        """What the operating system refuses is told in one line."""
        path = shortDirectory(self) / "abci.sock"
        busy = CannotListenError(None, str(path), OSError(2, "No such file or directory"))
        reactor = MemoryReactorClock()
        reactor.listenUNIX = lambda *args, **named: self.raiseIt(busy)  # type: ignore[method-assign]
        with self.assertRaises(OSError) as raised:
            listenUnix(reactor, path, self.factory)
        self.assertIn(f"cannot listen on {path}: ", str(raised.exception))

    def raiseIt(self, error: Exception) -> Any:
        """Fail."""
        raise error

    def test_somethingElse(self) -> None:
        """What is no socket stays."""
        directory = shortDirectory(self)
        path, link = directory / "file", directory / "link"
        path.write_text("precious")
        os.symlink(path, link)
        for each in (path, link):
            with self.assertRaises(ValueError):
                listenUnix(MemoryReactorClock(), each, self.factory)
        self.assertEqual(path.read_text(), "precious")

    def test_long(self) -> None:
        """A path that the operating system would cut off is refused."""
        path = Path("/" + "x" * MAX_UNIX_PATH)
        with self.assertRaises(ValueError) as raised:
            listenUnix(MemoryReactorClock(), path, self.factory)
        self.assertIn("at most 107 bytes, not 108", str(raised.exception))
