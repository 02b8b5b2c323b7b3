"""
What was answered SUCCESS is there, whatever becomes of the daemon.
"""

from __future__ import annotations

import signal
from base64 import b64decode
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ConnectionDone, ConnectionLost, ConnectionRefusedError
from twisted.web.client import RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived

from .daemon import Daemon, DaemonTestCase

GONE = (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)


@define(eq=False)
class Publishers:
    """
    Several publishers, each with one request at a time, until the daemon is gone.

    @ivar answered: the content of each event that was answered SUCCESS, by its id.
    @ivar enough: fires when so many were answered as were asked for.
    """

    daemon: Daemon
    wanted: int
    answered: dict[str, str] = field(factory=dict)
    enough: Deferred[None] = field(factory=Deferred)

    def run(self, count: int) -> Deferred[Any]:
        """Start them. Fires when all have ended, because the daemon has."""
        return DeferredList(
            [Deferred.fromCoroutine(self._publish(number)) for number in range(count)],
            fireOnOneErrback=True,
            consumeErrors=True,
        )

    async def _publish(self, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            content = f"{number}-{turn}"
            try:
                sent = await self.daemon.call(
                    "/rest/publish", topic=f"topic/{number % 2}", content=content
                )
            except GONE:
                return
            if sent.get("status") != "SUCCESS":
                raise AssertionError(f"neither answered nor gone: {sent}")
            self.answered[sent["eventId"]] = content
            if len(self.answered) == self.wanted:
                self.enough.callback(None)


class DurabilityTests(DaemonTestCase):
    """
    Kill and restart.
    """

    async def publishUntil(
        self, number: int, wanted: int, ledger: str
    ) -> tuple[dict[str, str], int]:
        """Publish, send a signal in the middle of it; what was answered, and the exit status."""
        daemon = await self.start(ledger=ledger)
        for name in ("topic/0", "topic/1"):
            await daemon.call("/rest/open", topic=name)
        publishers = Publishers(daemon, wanted)
        running = publishers.run(16)
        # Whichever comes first: enough answers, or a publisher that failed.
        await DeferredList(
            [running, publishers.enough], fireOnOneCallback=True, fireOnOneErrback=True
        )
        code = await daemon.stop(number)
        await running
        self.assertGreaterEqual(len(publishers.answered), wanted)
        return publishers.answered, code

    async def check(self, answered: dict[str, str], ledger: str) -> int:
        """
        A restarted daemon has every event that was answered, and numbers without gap or double.

        @return: how many events it has.
        """
        daemon = await self.start(ledger=ledger)
        for eventId, content in answered.items():
            event = await daemon.call("/rest/getEvent", eventId=eventId)
            self.assertEqual(b64decode(event["content"]).decode(), content)
        total = 0
        for name in ("topic/0", "topic/1"):
            state = await daemon.call("/rest/state", topic=name)
            total += state["sequenceNumber"]
            sent = await daemon.call("/rest/publish", topic=name, content="next")
            self.assertEqual(int(sent["eventId"].split("-")[1]), state["sequenceNumber"] + 1)
            numbers = [
                int(eventId.split("-")[1])
                for eventId in answered
                if eventId.split("-")[0] == sent["eventId"].split("-")[0]
            ]
            self.assertEqual(len(numbers), len(set(numbers)))
            self.assertLessEqual(max(numbers), state["sequenceNumber"])
        general = (await daemon.call("/admin/group/general"))["data"]
        # The two that opened the topics, and the two that were published just now.
        self.assertEqual(int(general["transactionCount"]), total + 4)
        nodes = (await daemon.call("/admin/node/nodeList"))["data"]["pageData"]
        self.assertEqual({node["blockNumber"] for node in nodes}, {int(general["latestBlock"])})
        self.assertEqual(await daemon.stop(), 0)
        return total

    async def test_answeredEventsSurviveKill(self) -> None:
        """After SIGKILL while publishing, every answered event is in the log."""
        ledger = "pbft:nodes=4"
        answered, code = await self.publishUntil(signal.SIGKILL, 300, ledger)
        self.assertEqual(code, -signal.SIGKILL)
        total = await self.check(answered, ledger)
        self.assertGreaterEqual(total, len(answered))

    async def test_answeredEventsSurviveTwoKills(self) -> None:
        """Also after a second kill."""
        ledger = "pbft:nodes=4"
        first, _ = await self.publishUntil(signal.SIGKILL, 50, ledger)
        second, _ = await self.publishUntil(signal.SIGKILL, 50, ledger)
        self.assertEqual(first.keys() & second.keys(), set())
        daemon = await self.start(ledger=ledger)
        for eventId, content in (first | second).items():
            event = await daemon.call("/rest/getEvent", eventId=eventId)
            self.assertEqual(b64decode(event["content"]).decode(), content)

    async def test_sigtermAnswersEveryAcceptedPublish(self) -> None:
        """
        On SIGTERM while publishing the daemon exits with 0, and every event in the log was
        answered.
        """
        # Blocks so far apart that publishes are waiting for one when the signal comes.
        ledger = "pbft:nodes=4:interval=0.2"
        answered, code = await self.publishUntil(signal.SIGTERM, 64, ledger)
        self.assertEqual(code, 0)
        self.assertEqual(await self.check(answered, ledger), len(answered))
