"""
The server and the supervisor with the engine that they are made for.
"""

from __future__ import annotations

import json
import os
import signal

from twisted.internet.defer import Deferred, DeferredList

from svcbroker.ledgers.cometbft._engine import CONNECTIONS, EngineState

from .realengine import RealEngineTestCase


class RealEngineTests(RealEngineTestCase):
    """
    One validator.
    """

    def test_engineDecidesAndStops(self) -> Deferred[None]:
        """It decides blocks of what it is given, and ends in order."""
        return Deferred.fromCoroutine(self._blocks())

    async def _blocks(self) -> None:
        self.engine.start()
        await self.application.when(lambda: self.application.height >= 2)
        self.assertIs(self.engine.state, EngineState.RUNNING)
        self.assertEqual(self.factory.connections, CONNECTIONS)
        self.assertEqual(self.application.begun, 1)
        assert self.engine.pid is not None
        # A terminal's interrupt does not reach it.
        self.assertEqual(os.getsid(self.engine.pid), self.engine.pid)

        done = self.application.when(lambda: b"first" in self.application.txs)
        answer = json.loads(await self.ask('broadcast_tx_sync?tx="first"'))
        self.assertEqual((answer["result"]["code"], answer["result"]["log"]), (0, "checked"))
        await done
        height = self.application.height
        await self.application.when(lambda: self.application.height >= height + 2)
        answer = json.loads(await self.ask(f"block_results?height={height}"))
        self.assertEqual(answer["result"]["txs_results"][0]["data"], "dHNyaWY=")

        answer = json.loads(await self.ask('broadcast_tx_sync?tx="bad"'))
        self.assertEqual(answer["result"]["code"], 1)
        answer = json.loads(await self.ask('abci_query?path="/nothing"'))
        self.assertEqual(answer["result"]["response"]["log"], "there are no queries")

        pid = self.engine.pid
        await self.engine.stop()
        self.assertIs(self.engine.state, EngineState.STOPPED)
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        self.assertEqual(self.failures, [])

    def test_restartedEngineContinues(self) -> Deferred[None]:
        """Killed, or cut off from its application, it comes back and goes on where it was."""
        return Deferred.fromCoroutine(self._again())

    async def _again(self) -> None:
        self.engine.start()
        application = self.application
        await application.when(lambda: application.height >= 2)

        first, height = self.engine.pid, application.height
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await application.when(lambda: self.engine.pid != first and application.height > height)
        second, height = self.engine.pid, application.height

        self.factory.disconnect()
        await application.when(lambda: self.engine.pid != second and application.height > height)

        self.assertEqual(application.begun, 1)
        self.assertEqual(application.asked, 3)
        self.assertIs(self.engine.state, EngineState.RUNNING)
        self.assertEqual(self.failures, [])

    def test_failedApplicationEndsEngine(self) -> Deferred[None]:
        """The owner hears of an application that cannot go on, and the engine ends."""
        return Deferred.fromCoroutine(self._broken())

    async def _broken(self) -> None:
        self.engine.start()
        await self.application.when(lambda: self.application.height >= 1)
        ended = self.inState(EngineState.WAITING)
        # The engine ends before it can answer.
        asked = Deferred.fromCoroutine(self.ask('broadcast_tx_sync?tx="break"'))
        await ended
        self.assertIn("the engine has ended once", self.engine.reason)
        self.assertEqual([failure.type for failure in self.failures], [RuntimeError])
        self.assertEqual(self.factory.connections, 0)
        await DeferredList([asked], consumeErrors=True)
