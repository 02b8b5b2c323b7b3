"""
Tests of the admin queries.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.broker.support import NODE, FakeDirectory, makeFixture
from tests.broker.test_admin import LIVE

from .support import Client

DAWN = "2023-11-14 22:13:20"


class AdminTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client(fixture=makeFixture(FakeDirectory(LIVE)))
        self.admin = self.client.admin
        for name in "ab":
            self.client.rest(f"open?topic={name}")

    def data(self, query: str) -> object:
        answer = self.admin(query)
        self.assertEqual((answer["code"], answer["message"]), (0, "success"))
        self.assertEqual(set(answer), {"code", "message", "data"})
        return answer["data"]

    def page(self, query: str) -> list[dict[str, object]]:
        data = self.data(query)
        assert isinstance(data, dict)
        self.assertEqual(set(data), {"total", "pageIndex", "pageSize", "pageData"})
        items: list[dict[str, object]] = data["pageData"]
        return items

    def test_queriesWithoutPages(self) -> None:
        for query, data in (
            ("listGroup", ["1", "2"]),
            ("listNodes", [NODE]),
            (
                "getVersion",
                {
                    "svcVersion": "9.8.7",
                    "gitCommitTimeStamp": "",
                    "gitBranch": "unknown",
                    "gitCommitHash": "unknown",
                },
            ),
            ("group/general", {"nodeCount": "1", "latestBlock": "2", "transactionCount": "2"}),
            (
                "group/general?groupId=2",
                {"nodeCount": "1", "latestBlock": "0", "transactionCount": "0"},
            ),
        ):
            self.assertEqual(self.data(query), data)

    def test_subscriptionsByNodeAndId(self) -> None:
        record = {
            "interfaceType": "STOMP",
            "notifiedEventCount": "3",
            "notifyingEventCount": "4",
            "notifyTimeStamp": "1970-01-01 00:00:02",
            "topicName": "a,b/#",
            "subscribeId": "id",
            "remoteIp": "10.0.0.1:5",
            "createTimeStamp": "1970-01-01 00:00:01",
            "groupId": "1",
        }
        self.assertEqual(self.data(f"listSubscription?nodeIp={NODE}"), {NODE: {"id": record}})
        self.assertEqual(self.data("listSubscription?groupId=2"), {NODE: {}})
        self.assertEqual(self.admin("listSubscription?nodeIp=x:1")["code"], 100600)
        self.assertEqual(self.admin("listSubscription?groupId=9")["code"], 200211)

    def test_topicsTellTheirActivity(self) -> None:
        """The number of their events, and the time of the latest; none where there is none."""
        self.client.rest("publish?topic=a&content=x")
        [first, second] = self.page("topic/topicList")
        created = first["createdTimestamp"]
        self.assertEqual(
            first,
            {
                "topicName": "a",
                "createdTimestamp": created,
                "sequenceNumber": 1,
                "blockNumber": 3,
                "lastTimestamp": created,
                # This ledger does not tell.
                "bytes": None,
            },
        )
        self.assertEqual((second["sequenceNumber"], second["lastTimestamp"]), (0, None))
        self.assertEqual(self.page("topic/topicList?pageNumber=2&pageSize=1"), [second])

    def test_blocksNewestFirst(self) -> None:
        newest, oldest = self.page("block/blockList")
        self.assertEqual((newest["blockNumber"], oldest["blockNumber"]), (2, 1))
        self.assertRegex(str(newest.pop("pkHash")), "^0x[0-9a-f]{64}$")
        self.assertEqual(
            newest,
            {
                "blockNumber": 2,
                "blockTimestamp": DAWN,
                "createTime": None,
                "modifyTime": None,
                "sealer": "0x0",
                "sealerIndex": 0,
                "transCount": 1,
            },
        )

    def test_blocksByHashOrNumber(self) -> None:
        [block] = self.page("block/blockList?blockNumber=1")
        digits = str(block["pkHash"])[2:]
        for text in (digits, digits.upper(), "0x" + digits, "0X" + digits):
            self.assertEqual(self.page(f"block/blockList?pkHash={text}"), [block])
        self.assertEqual(self.page(f"block/blockList?pkHash={digits}&blockNumber=2"), [])
        self.assertEqual(self.page("block/blockList?pkHash=" + "0" * 64), [])
        self.assertEqual(self.admin("block/blockList?pkHash=0x1")["code"], 100600)

    def test_transactionsOfABlock(self) -> None:
        [transaction] = self.page("transaction/transList?blockNumber=1")
        self.assertEqual(transaction["blockTimestamp"], DAWN)
        self.assertRegex(str(transaction["transHash"]), "^0x[0-9a-f]{64}$")
        for name in ("transFrom", "transTo"):
            self.assertRegex(str(transaction[name]), "^0x[0-9a-f]{40}$")
        query = f"transaction/transList?transactionHash={transaction['transHash']}"
        self.assertEqual(self.page(query), [transaction])
        self.assertEqual(len(self.page("transaction/transList")), 2)

    def test_nodesAndTheirNames(self) -> None:
        [node] = self.page("node/nodeList")
        self.assertRegex(str(node.pop("nodeId")), "^[0-9a-f]{64}$")
        self.assertEqual(
            node,
            {
                "nodeName": None,
                "pbftView": 0,
                "nodeType": "sealer",
                "blockNumber": 2,
                "nodeActive": 1,
                "createTime": None,
                "modifyTime": None,
            },
        )
        self.assertEqual(self.page("node/nodeList?nodeName=nobody"), [])

    def test_pagesCountFromOne(self) -> None:
        data = self.data("block/blockList?pageNumber=2&pageSize=1")
        assert isinstance(data, dict)
        self.assertEqual((data["total"], data["pageIndex"], data["pageSize"]), (2, 2, 1))
        self.assertEqual(data["pageData"][0]["blockNumber"], 1)
        self.assertEqual(self.page("block/blockList?pageNumber=3&pageSize=1"), [])
        for query, code in (
            ("pageNumber=0", 100104),
            ("pageNumber=x", 100104),
            ("pageSize=x", 100107),
            ("groupId=9&pageNumber=0", 200211),
        ):
            self.assertEqual(self.admin(f"node/nodeList?{query}")["code"], code)
