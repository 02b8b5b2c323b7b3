"""
Tests of reading other brokers' answers to admin queries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.errors import GroupUnknown
from svcbroker.model import InterfaceType, SubscriptionRecord
from svcbroker.operations import QUERIES, PeerAnswerInvalid, readSubscriptions
from svcbroker.operations._adminqueries import encodeSubscriptions

RENDER = {each.name: each.result.render for each in QUERIES}
SUBSCRIPTION = {
    "interfaceType": "STOMP",
    "notifiedEventCount": "3",
    "notifyingEventCount": "4",
    "notifyTimeStamp": "2026-11-20 14:54:45",
    "topicName": "a,b/#",
    "subscribeId": "id",
    "remoteIp": "127.0.0.1:54690",
    "createTimeStamp": "2026-11-20 14:54:44",
    "groupId": "1",
}


def envelope(data: Any) -> bytes:
    """An answer with some data."""
    return json.dumps({"code": 0, "message": "success", "data": data}).encode()


def rendered(records: Sequence[SubscriptionRecord]) -> bytes:
    """The answer of a broker that has these subscriptions."""
    nodes = msgspec.Raw(b'{"b:1":{%b}}' % encodeSubscriptions(records))
    return msgspec.json.encode(RENDER["listSubscription"](nodes))


class ReadingTests(SynchronousTestCase):
    """
    The answers of a broker.
    """

    def test_subscriptionsAreRead(self) -> None:
        """And they are rendered again as they were."""
        answer = {"b:1": {"id": SUBSCRIPTION}}
        records = readSubscriptions(envelope(answer), "1")
        self.assertEqual(
            records,
            [
                SubscriptionRecord(
                    subscriptionId="id",
                    interfaceType=InterfaceType.STOMP,
                    group="1",
                    filters=("a", "b/#"),
                    remote="127.0.0.1:54690",
                    notified=3,
                    notifying=4,
                    notifiedAt=1795186485000,
                    createdAt=1795186484000,
                )
            ],
        )
        self.assertEqual(msgspec.json.decode(rendered(records))["data"], answer)
        self.assertEqual(readSubscriptions(envelope({"b:1": {}}), None), [])

    @settings(deadline=None)
    @given(
        st.builds(
            SubscriptionRecord,
            subscriptionId=st.text(),
            interfaceType=st.sampled_from(InterfaceType),
            group=st.text(),
            filters=st.lists(st.text(min_size=1), min_size=1).map(tuple),
            remote=st.text(),
            notified=st.integers(0, 10**18 - 1),
            notifying=st.integers(0, 10**18 - 1),
            notifiedAt=st.integers(0, 250_000_000_000_000),
            createdAt=st.integers(0, 250_000_000_000_000),
        )
    )
    def test_anySubscriptionIsReadAsWritten(self, record: SubscriptionRecord) -> None:
        said = rendered([record])
        self.assertEqual(rendered(readSubscriptions(said, None)), said)


class RefusingTests(SynchronousTestCase):
    """
    The answers of other programs.
    """

    def refused(self, data: bytes, group: str | None = None) -> None:
        """The error has a message for clients."""
        error = self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, group)
        self.assertTrue(str(error).startswith("answered with "), str(error))

    def test_otherTextIsRefused(self) -> None:
        """No JSON, or other JSON."""
        for data in (
            *(b"", b"<html>", b"\xff", b"null", b"[]", b"{}", b"[" * 100_000, b"0"),
            *(b'{"code":0,"message":"success"}', b'{"code":0,"message":"failed","data":{}}'),
            *(envelope(None), envelope([]), envelope({"b:1": []}), envelope({"b:1": {"i": {}}})),
        ):
            self.refused(data)

    @settings(deadline=None)
    @given(st.binary())
    def test_anyBytesAreRefused(self, data: bytes) -> None:
        self.refused(data)

    def test_errorIsToldByItsCode(self) -> None:
        """Its words are not passed on."""
        data = b'{"code":200203,"message":"<script>"}'
        self.refused(data)
        error = self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, None)
        self.assertEqual(str(error), "answered with error 200203")
        self.assertRaises(
            GroupUnknown, readSubscriptions, b'{"code":200211,"message":"group is unknown"}', "1"
        )

    def test_addressWithSeparatorIsRefused(self) -> None:
        """Addresses stand in lists with commas."""
        for address in ("", "a,b", "a b", "a\n", "é", "a" * 301):
            self.assertRaises(PeerAnswerInvalid, readSubscriptions, envelope({address: {}}), None)

    def test_subscriptionsOfOtherNodesAreRefused(self) -> None:
        """And so is an answer for no node at all."""
        for names in ((), ("b:1", "c:1")):
            data = envelope({name: {} for name in names})
            self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, None)

    def test_subscriptionsOfOtherGroupsAreRefused(self) -> None:
        """And so are those under other ids."""
        data = envelope({"b:1": {"other": SUBSCRIPTION}})
        self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, None)
        data = envelope({"b:1": {"id": SUBSCRIPTION}})
        self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, "2")

    def test_invalidFieldsAreRefused(self) -> None:
        """Numbers, times, types and ids."""
        for name, value in (
            ("notifiedEventCount", "-1"),
            ("notifiedEventCount", ""),
            ("notifyingEventCount", "٣"),
            ("notifyingEventCount", "1" * 19),
            ("notifyTimeStamp", "2026-1-2 3:4:5"),
            ("createTimeStamp", "2026-02-30 00:00:00"),
            ("createTimeStamp", ""),
            ("interfaceType", "AMQP"),
            ("topicName", 5),
            ("subscribeId", "other"),
        ):
            data = envelope({"b:1": {"id": {**SUBSCRIPTION, name: value}}})
            self.assertRaises(PeerAnswerInvalid, readSubscriptions, data, None)
