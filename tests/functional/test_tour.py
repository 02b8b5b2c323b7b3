"""
The tour that README gives, on each ledger.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.internet.defer import Deferred

from .daemon import Daemon, DaemonTestCase


class Tour:
    """
    The calls of a new user, in order. Mixed into the tests of each ledger.
    """

    ledger: str
    nodeCount: int
    options: tuple[str, ...] = ()

    def test_publishReadPageAndClose(self: Any) -> Deferred[None]:
        """Open, publish, read back, ask for the state, page, close."""
        return Deferred.fromCoroutine(self.tour())

    async def tour(self: Any) -> None:
        """The tour itself."""
        daemon: Daemon = await self.start(*self.options, ledger=self.ledger)
        call = daemon.call
        self.assertIs(await call("/rest/open", topic="com.example/test"), True)
        self.assertIs(await call("/rest/open", topic="com.example/test"), True)
        self.assertIs(await call("/rest/exist", topic="com.example/test"), True)
        self.assertIs(await call("/rest/exist", topic="other"), False)
        content = "höi & hello"
        extensions: dict[str, Any] = {"svc-tag": "x"}
        sent = await call("/rest/publish", topic="com.example/test", content=content, **extensions)
        self.assertEqual((sent["topic"], sent["status"]), ("com.example/test", "SUCCESS"))
        event = await call("/rest/getEvent", eventId=sent["eventId"])
        self.assertEqual(
            event,
            {
                "topic": "com.example/test",
                "content": b64encode(content.encode()).decode(),
                "extensions": {"svc-tag": "x"},
                "eventId": sent["eventId"],
            },
        )
        second = await daemon.rpc(
            "publish", topic="com.example/test", content=b64encode(b"\0\xff").decode()
        )
        self.assertEqual(second["result"]["status"], "SUCCESS")
        state = await call("/rest/state", topic="com.example/test")
        self.assertEqual(state["sequenceNumber"], 2)
        self.assertEqual(state["blockNumber"], int(second["result"]["eventId"].split("-")[2]))
        listed = await call("/rest/list", pageIndex=0, pageSize=10)
        self.assertEqual(listed["total"], 1)
        self.assertEqual(listed["topicInfoList"][0]["topicName"], "com.example/test")
        self.assertIs(await call("/rest/close", topic="com.example/test"), True)
        self.assertEqual((await call("/rest/close", topic="com.example/test"))["code"], 100101)
        await self.adminTour(daemon)
        self.assertEqual(await daemon.stop(), 0)

    async def adminTour(self: Any, daemon: Daemon) -> None:
        """The admin queries, after four transactions."""
        address = daemon.base.removeprefix("http://").removesuffix("/svcbroker")

        async def admin(query: str, **parameters: Any) -> Any:
            answer = await daemon.call(f"/admin/{query}", **parameters)
            self.assertEqual((answer["code"], answer["message"]), (0, "success"))
            return answer["data"]

        self.assertEqual(await admin("listGroup"), ["1"])
        self.assertEqual(await admin("listNodes"), [address])
        self.assertEqual(await admin("listSubscription", nodeIp=address), {address: {}})
        self.assertTrue((await admin("getVersion"))["svcVersion"])
        general = await admin("group/general")
        self.assertEqual(general["nodeCount"], str(self.nodeCount))
        self.assertEqual(general["transactionCount"], "4")
        transactions = await admin("transaction/transList", pageNumber=1, pageSize=3)
        self.assertEqual((transactions["total"], len(transactions["pageData"])), (4, 3))
        blocks = await admin("block/blockList", pageNumber=1, pageSize=99)
        self.assertEqual(str(blocks["total"]), general["latestBlock"])
        self.assertEqual(sum(block["transCount"] for block in blocks["pageData"]), 4)
        nodes = await admin("node/nodeList", pageNumber=1, pageSize=10)
        self.assertEqual(nodes["total"], self.nodeCount)
        for node in nodes["pageData"]:
            self.assertEqual(node["blockNumber"], int(general["latestBlock"]))
            self.assertEqual((node["nodeType"], node["nodeActive"]), ("sealer", 1))


class MemoryTests(Tour, DaemonTestCase):
    """The tour on the memory ledger."""

    ledger = "memory"
    nodeCount = 1


class PbftTests(Tour, DaemonTestCase):
    """The tour on the ledger that is the default."""

    ledger = "pbft:nodes=4"
    nodeCount = 4
