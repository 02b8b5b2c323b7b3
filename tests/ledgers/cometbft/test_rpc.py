"""
The client of an engine, against one that answers what a real one answered.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseNeverReceived
from twisted.web.iweb import IAgent
from zope.interface import implementer

from svcbroker.ledgers._description import readUrl
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.cometbft import _rpc as calls
from svcbroker.ledgers.cometbft._rpc import EngineError, EngineRpc, Reason
from svcbroker.net.http import HttpClient
from tests.net.test_http import FailingAgent

from .fakeengine import FakeEngine
from .support import recorded, recordedGenesis, recordedLightBlock, trustOf

TWO: list[RpcCall[Any]] = [calls.statusCall(), calls.netInfoCall()]


@implementer(IAgent)
class HoldingAgent:
    """
    An agent that makes no request before it is told to.

    @ivar release: makes the requests that wait.
    """

    def __init__(self, agent: IAgent) -> None:
        self._agent = agent
        self.release: Deferred[None] = Deferred()

    def request(self, *arguments: Any, **keywords: Any) -> Deferred[Any]:
        """See C{IAgent}."""
        made: Deferred[Any] = Deferred()

        def make(_: None) -> None:
            asked: Deferred[Any] = self._agent.request(*arguments, **keywords)
            asked.chainDeferred(made)

        self.release.addCallback(make)
        return made


class RpcCase(SynchronousTestCase):
    """
    A client, and an engine.
    """

    def setUp(self) -> None:
        self.engine = FakeEngine()
        self.clock = Clock()
        self.rpc = self.clientOf(self.engine.agent)

    def clientOf(self, agent: IAgent, **settings: Any) -> EngineRpc:
        """A client that speaks through an agent."""
        return EngineRpc(HttpClient(agent, self.clock), "http://127.0.0.1:26657", **settings)

    def answerOf(self, asked: Deferred[Any]) -> Any:
        """The answer of the engine."""
        self.engine.agent.flush()
        return self.successResultOf(asked)

    def errorOf(self, asked: Deferred[Any]) -> EngineError:
        """The error by which the engine does not answer."""
        self.engine.agent.flush()
        error = self.failureResultOf(asked, EngineError).value
        assert isinstance(error, EngineError)
        return error


class BroadcastTests(RpcCase):
    """
    L{EngineRpc.broadcast}.
    """

    TX = b"\x00\xfftransaction"

    def answer(self, parameters: Mapping[str, Any]) -> Any:
        """The answer of a real engine to a good transaction."""
        return {
            "code": 0,
            "data": "",
            "log": "",
            "codespace": "",
            "hash": sha256(self.TX).hexdigest().upper(),
        }

    def test_transactionIsSentAsBase64(self) -> None:
        """The transaction goes out in base64; the answer has its hash."""
        self.engine.answers["broadcast_tx_sync"] = self.answer
        broadcast = self.answerOf(self.rpc.broadcast(self.TX))
        self.assertEqual(broadcast.code, 0)
        self.assertEqual(broadcast.hash, sha256(self.TX).digest())
        self.assertEqual(
            self.engine.calls, [("broadcast_tx_sync", {"tx": b64encode(self.TX).decode()})]
        )

    def test_applicationsRefusalComesThrough(self) -> None:
        """The application's answer comes through."""
        self.engine.answers["broadcast_tx_sync"] = lambda parameters: (
            self.answer(parameters)
            | {
                "code": 7,
                "log": "no",
            }
        )
        broadcast = self.answerOf(self.rpc.broadcast(self.TX))
        self.assertEqual((broadcast.code, broadcast.log), (7, "no"))

    def test_enginesRefusalHasAReason(self) -> None:
        """The engine's refusal has a reason, and is not in doubt."""
        for words, reason in (
            ("tx already exists in cache", Reason.KNOWN),
            (
                "mempool is full: number of txs 5000 (max: 5000), total txs bytes 1 (max: 2)",
                Reason.FULL,
            ),
            ("Tx too large. Max size is 1048576, but got 1048577", Reason.TOO_LARGE),
            ("error reading request body: http: request body too large", Reason.TOO_LARGE),
            ("something else", Reason.REFUSED),
        ):
            self.engine.refuse("broadcast_tx_sync", words)
            error = self.errorOf(self.rpc.broadcast(self.TX))
            self.assertIs(error.reason, reason)
            self.assertEqual(error.words, words)
            self.assertFalse(error.isInDoubt)

    def test_errorStatusIsExplained(self) -> None:
        """The engine explains itself also where the status is one of a failure."""
        self.engine.status = 500
        self.engine.refuse("broadcast_tx_sync", "tx already exists in cache")
        self.assertIs(self.errorOf(self.rpc.broadcast(self.TX)).reason, Reason.KNOWN)

    def test_errorTextIsTruncated(self) -> None:
        """An engine's words are cut, between two of them."""
        self.engine.refuse("broadcast_tx_sync", "x" * 5000)
        self.assertLess(len(str(self.errorOf(self.rpc.broadcast(self.TX)))), 1100)
        self.engine.refuse("broadcast_tx_sync", "database " * 500)
        error = self.errorOf(self.rpc.broadcast(self.TX))
        self.assertEqual({*error.words.split()}, {"database", "..."})

    def test_largeAnswerIsRefused(self) -> None:
        """An answer to a transaction is short."""
        self.engine.raw = b" " * 70000
        error = self.errorOf(self.rpc.broadcast(self.TX))
        self.assertIs(error.reason, Reason.BAD_ANSWER)
        self.assertTrue(error.isInDoubt)


class FailureTests(RpcCase):
    """
    Tests for calls without an answer.
    """

    def test_silentEngineTimesOut(self) -> None:
        """An engine that says nothing is given up, and what it was asked is in doubt."""
        self.engine.isSilent = True
        asked = self.rpc.status()
        self.engine.agent.flush()
        self.clock.advance(9.9)
        self.assertNoResult(asked)
        self.clock.advance(0.2)
        error = self.errorOf(asked)
        self.assertIs(error.reason, Reason.TIMEOUT)
        self.assertTrue(error.isInDoubt)

    def test_answerCancelsTimer(self) -> None:
        """An answer ends the waiting."""
        self.answerOf(self.rpc.status())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_connectionFailureIsUnreachable(self) -> None:
        """No connection is told from a refusal."""
        for failure in (
            ConnectionRefusedError(),
            ResponseNeverReceived([Failure(ConnectionRefusedError())]),
        ):
            error = self.errorOf(self.clientOf(FailingAgent(failure)).status())
            self.assertIs(error.reason, Reason.UNREACHABLE)
            self.assertIn("refused", error.words)
            self.assertTrue(error.isInDoubt)

    def test_malformedAnswerIsRefused(self) -> None:
        """Data that is no answer of an engine is refused as none."""
        for raw in (b"", b"<html>", b"[]", b"null", b'{"result": 1}', b'{"result": {}}', b"\xff"):
            self.engine.raw = raw
            self.assertIs(self.errorOf(self.rpc.status()).reason, Reason.BAD_ANSWER)

    def test_answerSizeIsBounded(self) -> None:
        """An answer has a largest size."""
        error = self.errorOf(self.clientOf(self.engine.agent, maxAnswer=500).status())
        self.assertIs(error.reason, Reason.BAD_ANSWER)
        self.assertIn("500 bytes", error.words)

    def test_missingHeightIsDistinguished(self) -> None:
        """A height that the engine has not is told from other refusals."""
        for words in (
            "height 9 must be less than or equal to the current blockchain height 8",
            "height 1 is not available, lowest height is 5",
        ):
            self.engine.refuse("commit", words)
            self.assertIs(self.errorOf(self.rpc.commit(9)).reason, Reason.NO_SUCH_HEIGHT)

    def test_cancelledCallFailsOnce(self) -> None:
        """A caller that does not wait any more is told so, and nothing else."""
        self.engine.isSilent = True
        asked = self.rpc.status()
        asked.cancel()
        self.failureResultOf(asked)


class RecordedTests(RpcCase):
    """
    Each call reads what a real engine answered to it.
    """

    def test_statusIsRead(self) -> None:
        status = self.answerOf(self.rpc.status())
        self.assertEqual(status.syncInfo.latestBlockHeight, 10)
        self.assertIs(status.syncInfo.catchingUp, False)
        self.assertEqual(status.nodeInfo.moniker, "node0")

    def test_netInfoIsRead(self) -> None:
        info = self.answerOf(self.rpc.netInfo())
        self.assertEqual(info.nPeers, 3)
        self.assertEqual([p.nodeInfo.moniker for p in info.peers], ["node1", "node2", "node3"])

    def test_consensusStateIsRead(self) -> None:
        state = self.answerOf(self.rpc.ask(calls.consensusStateCall()))
        self.assertEqual((state.roundState.height, state.roundState.round), (11, 0))
        self.assertEqual([p.peerState.roundState.height for p in state.peers], [11, 11, 11])

    def test_missingHeightMeansNewest(self) -> None:
        """A height that is left open is left to the engine."""
        self.answerOf(self.rpc.commit())
        self.assertEqual(self.engine.calls, [("commit", {})])

    def test_commitIsRead(self) -> None:
        answer = self.answerOf(self.rpc.commit(3))
        self.assertEqual(len(answer.signedHeader.commit.signatures), 4)


class ValidatorsTests(RpcCase):
    """
    L{EngineRpc.validators}.
    """

    def pages(self, size: int) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that answers the recorded validators in pages."""
        whole = recorded("validators")

        def answer(parameters: Mapping[str, Any]) -> Any:
            start = (int(parameters["page"]) - 1) * size
            some = whole["validators"][start : start + size]
            return whole | {"validators": some, "count": str(len(some))}

        return answer

    def test_validatorsKeepEngineOrder(self) -> None:
        """They come in the engine's order."""
        found = self.answerOf(self.rpc.validators(3))
        self.assertEqual(
            [each.address.hex().upper() for each in found],
            [each["address"] for each in recorded("validators")["validators"]],
        )
        self.assertEqual(
            self.engine.calls, [("validators", {"height": "3", "page": "1", "per_page": "100"})]
        )

    def test_allPagesAreFetched(self) -> None:
        """All pages are read, of the height of the first one."""
        self.engine.answers["validators"] = self.pages(3)
        found = self.answerOf(self.rpc.validators())
        self.assertEqual(len(found), 4)
        self.assertEqual(
            [(call.get("height"), call["page"]) for _, call in self.engine.calls],
            [(None, "1"), ("11", "2")],
        )

    def test_endlessListEnds(self) -> None:
        """A list that does not become longer ends."""
        whole = recorded("validators")
        self.engine.answers["validators"] = lambda parameters: (
            whole
            | {
                "validators": [],
                "total": "9",
            }
        )
        self.assertIs(self.errorOf(self.rpc.validators()).reason, Reason.BAD_ANSWER)

    def test_lightBlockProvesItself(self) -> None:
        """The proof of a block is asked for in one request, and proves it."""
        block = self.answerOf(self.rpc.lightBlock(3))
        self.assertEqual(block, recordedLightBlock())
        trustOf(recordedGenesis()).follow(block)

    def test_lightBlocksAskedForAtOnceAreAnswered(self) -> None:
        """The set of validators may come by another request, which was made at the same time."""
        agent = HoldingAgent(self.engine.agent)
        rpc = self.clientOf(agent)
        first, second = rpc.lightBlock(3), rpc.lightBlock(3)
        agent.release.callback(None)
        self.assertEqual(self.answerOf(first), recordedLightBlock())
        self.assertEqual(self.answerOf(second), recordedLightBlock())

    def test_lightBlockSpansPages(self) -> None:
        """Validators of more than one page are all there."""
        self.engine.answers["validators"] = self.pages(3)
        self.assertEqual(self.answerOf(self.rpc.lightBlock(3)), recordedLightBlock())

    def test_foreignKeyTypeIsRefused(self) -> None:
        """A network with keys of other kinds is not one of ours."""
        whole = recorded("validators")
        whole["validators"][0]["pub_key"]["type"] = "tendermint/PubKeySecp256k1"
        self.engine.answers["validators"] = lambda parameters: whole
        self.assertIs(self.errorOf(self.rpc.lightBlock(3)).reason, Reason.BAD_ANSWER)


class BatchTests(RpcCase):
    """
    L{EngineRpc.askAll}.
    """

    def test_resultsKeepCallOrder(self) -> None:
        """Results come in the order of the calls, whatever the order of the answers."""
        batch: list[RpcCall[Any]] = [
            calls.commitCall(3),
            *TWO,
        ]
        commit, status, network = self.answerOf(self.rpc.askAll(batch))
        self.assertEqual(commit.signedHeader.header.height, 3)
        self.assertEqual(status.nodeInfo.moniker, "node0")
        self.assertEqual(network.nPeers, 3)
        answers = [
            {"id": index, "result": result}
            for index, result in enumerate(
                [recorded("commit_height_3"), recorded("status"), recorded("net_info")]
            )
        ]
        self.engine.raw = json.dumps(answers[::-1]).encode()
        self.assertEqual(self.answerOf(self.rpc.askAll(batch)), [commit, status, network])

    def test_singleCallBatchIsRead(self) -> None:
        """The engine answers a batch of one with a bare object."""
        (status,) = self.answerOf(self.rpc.askAll([calls.statusCall()]))
        self.assertEqual(status.nodeInfo.moniker, "node0")

    def test_wholeBatchMayBeRefused(self) -> None:
        """The engine may refuse a batch as a whole."""
        self.engine.raw = b'{"id": -1, "error": {"code": -32600, "message": "Invalid Request"}}'
        error = self.errorOf(self.rpc.askAll(TWO))
        self.assertIs(error.reason, Reason.REFUSED)
        self.assertEqual(error.words, "Invalid Request")

    def test_refusedCallFailsBatch(self) -> None:
        """One that is refused fails all."""
        self.engine.refuse("commit", "height 9 is not available, lowest height is 10")
        error = self.errorOf(self.rpc.askAll([*TWO, calls.commitCall(9)]))
        self.assertIs(error.reason, Reason.NO_SUCH_HEIGHT)

    def test_missingAnswerIsDetected(self) -> None:
        """An answer that is missing is missed."""
        for raw in (b"[]", b'[{"id": 0, "result": {}}]', b"[1]", b"{}", b"", b"["):
            self.engine.raw = raw
            error = self.errorOf(self.rpc.askAll(TWO))
            self.assertIs(error.reason, Reason.BAD_ANSWER)

    def test_batchSizeIsBounded(self) -> None:
        """More calls than the engine takes are not sent."""
        self.answerOf(self.rpc.askAll([calls.statusCall()] * 10))
        self.assertRaises(ValueError, self.rpc.askAll, [calls.statusCall()] * 11)
        self.assertRaises(ValueError, self.rpc.askAll, [])


class UrlTests(SynchronousTestCase):
    """
    L{readUrl}, where a URL may have no path.
    """

    def test_validUrlsAreAccepted(self) -> None:
        """URLs where engines listen are accepted."""
        for url in ("http://127.0.0.1:26657", "https://a.example/", "http://[::1]:1"):
            self.assertEqual(readUrl(url, isRoot=True), url.rstrip("/"))

    def test_invalidUrlsAreRefused(self) -> None:
        """URLs where they do not are refused."""
        for url in ("", "127.0.0.1:26657", "tcp://127.0.0.1:26657", "http://", "http://a/b",
                    "http://a?b", "http://a#b", "http://a:x", "http://a:0", "http://a:65536",
                    "http://\u00e9", "http://" + "a" * 3000):  # fmt: skip
            self.assertRaises(ValueError, readUrl, url, isRoot=True)
