"""
Tests for L{svcbroker.carriers.webhook.webhookservice}: making and ending them.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.broker import IWebhooks, WebhookRequest
from svcbroker.carriers.webhook.webhookservice import MAX_LOOKUPS, TIMEOUT
from svcbroker.model import Edge, EventId, InterfaceType, Offset, Position
from svcbroker.operations import OPERATIONS, bindJSON, bindText
from tests.broker.support import connected

from .support import PUBLIC, SETTINGS, URL, Harness

ID = "00000000-0000-4000-8000-00000000000a"
OTHER = "00000000-0000-4000-8000-00000000000b"


class SubscribeTests(SynchronousTestCase):
    """
    C{subscribe}.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b")

    def refused(self, error: type[errors.BrokerError], *args: Any, **kwargs: Any) -> str:
        """What a call is refused with. Nothing is left of it."""
        before = dict(self.harness.disk.kept)
        failure = self.failureResultOf(self.harness.subscribe(*args, **kwargs), error)
        self.harness.settle()
        self.assertEqual(self.harness.disk.kept, before)
        return str(failure.value)

    def test_webhooksImplementInterface(self) -> None:
        verifyObject(IWebhooks, self.harness.webhooks)

    def test_idMayBeTheClients(self) -> None:
        """Otherwise one is made."""
        self.assertEqual(self.successResultOf(self.harness.subscribe(subscriptionId=ID)), ID)
        made = [self.successResultOf(self.harness.subscribe()) for _ in range(2)]
        self.assertEqual(len({ID, *made}), 3)

    def test_sameSubscribeIsIdempotent(self) -> None:
        """Also after a restart, and whatever the offset."""
        for _ in range(2):
            for offset in (Edge.LAST, Edge.FIRST):
                again = self.harness.subscribe(subscriptionId=ID, offset=offset)
                self.assertEqual(self.successResultOf(again), ID)
            self.harness.publish("1")
            self.harness.kill()
            self.harness.start()
            self.harness.settle()
        live = self.successResultOf(self.harness.subscriptions.listSubscriptions(ANYBODY, None))
        self.assertEqual(len(live), 1)

    def test_otherFormOfUrlIsTheSame(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, subscriptionId=ID))
        url = f"HTTP://{PUBLIC}:80/hook"
        self.successResultOf(self.harness.subscribe(url, subscriptionId=ID))

    def test_otherSubscribeUnderUsedIdIsRefused(self) -> None:
        self.successResultOf(self.harness.subscribe(subscriptionId=ID))
        cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            ((f"{URL}2",), {}),
            ((URL, "b"), {}),
            ((URL, "a", "b"), {}),
            ((), {"tag": "x"}),
            ((), {"interfaceType": InterfaceType.JSON_RPC}),
        ]
        for args, kwargs in cases:
            self.refused(errors.SubscriptionExists, *args, subscriptionId=ID, **kwargs)

    def test_endedIdIsFree(self) -> None:
        """It begins anew."""
        self.successResultOf(self.harness.subscribe(subscriptionId=ID))
        self.harness.poster.judge = lambda post: False
        self.harness.publish("1")
        self.harness.webhooks.unSubscribe(ANYBODY, ID)
        self.harness.poster.judge = lambda post: True
        self.successResultOf(self.harness.subscribe(subscriptionId=ID))
        self.harness.publish("2")
        self.assertEqual(self.harness.poster.contents, ["1", "2"])

    def test_offsetsDecideFirstEvent(self) -> None:
        """The first event, after one, from a height."""
        self.harness.publish("1", "2", "3")
        offsets: dict[str, Offset] = {
            "first": Edge.FIRST,
            "last": Edge.LAST,
            "height": Position(1, -1),
        }
        ids = {
            name: self.successResultOf(self.harness.subscribe(offset=offset))
            for name, offset in offsets.items()
        }
        event = self.harness.poster.posts[0].events[0]
        ids["after"] = self.successResultOf(self.harness.subscribe(offset=event.eventId))
        self.harness.publish("4")
        sent = {
            name: [p.content for p in self.harness.poster.posts if p.subscriptionId == id]
            for name, id in ids.items()
        }
        self.assertEqual(sent["first"], ["1", "2", "3", "4"])
        self.assertEqual(sent["height"], ["1", "2", "3", "4"])
        self.assertEqual(sent["after"], ["2", "3", "4"])
        self.assertEqual(sent["last"], ["4"])

    def test_brokersErrorsArePassedOn(self) -> None:
        self.refused(errors.TopicNotFound, URL, "none")
        self.refused(errors.EventNotFound, offset=EventId("00000000", 1, 1))
        self.refused(errors.HeightUnknown, offset=Position(10**6, -1))

    def test_refusedHostAndUnknownHostLookAlike(self) -> None:
        """The words do not tell which names exist inside."""
        self.harness.resolver.names.update({"private.example": ["10.9.9.9", "::1"]})
        words = {
            self.refused(errors.UrlInvalid, f"http://{host}/")
            for host in ("127.0.0.1", "[::1]", "10.9.9.9", "private.example", "none.example")
        }
        self.assertEqual(len(words), 1)
        for url in ("", "x", "ftp://a/", "http://u:p@a.example/"):
            self.refused(errors.UrlInvalid, url)

    def test_publicOrAllowedHostIsAccepted(self) -> None:
        """A name as soon as one of its addresses is."""
        self.harness.resolver.names.update({"mixed.example": ["10.9.9.9", PUBLIC]})
        for host in (PUBLIC, "mixed.example", "inside.example", "10.1.0.7", "[::ffff:10.1.0.7]"):
            self.successResultOf(self.harness.subscribe(f"http://{host}/"))

    def test_lookupsAreBoundedInTimeAndNumber(self) -> None:
        self.harness.resolver.isHolding = True
        looking = [self.harness.subscribe("http://slow.example/") for _ in range(MAX_LOOKUPS)]
        self.refused(errors.Overloaded, "http://slow.example/")
        self.successResultOf(self.harness.subscribe())
        self.harness.clock.advance(SETTINGS.timeout)
        for each in looking:
            self.failureResultOf(each, errors.UrlInvalid)
        for answer in self.harness.resolver.held:
            answer()
        self.harness.resolver.isHolding = False
        self.harness.resolver.names["slow.example"] = [PUBLIC]
        self.successResultOf(self.harness.subscribe("http://slow.example/"))

    def test_webhooksAreBounded(self) -> None:
        """Those that are being made are counted."""
        harness = Harness(self, evolve(SETTINGS, maxWebhooks=2))
        harness.open("a")
        harness.resolver.isHolding = True
        coming = harness.subscribe("http://slow.example/")
        id = self.successResultOf(harness.subscribe())
        self.failureResultOf(harness.subscribe(), errors.Overloaded)
        harness.resolver.held[0]()
        self.failureResultOf(coming, errors.UrlInvalid)
        self.successResultOf(harness.subscribe())
        harness.webhooks.unSubscribe(ANYBODY, id)
        self.successResultOf(harness.subscribe())

    def test_answerComesAfterDisk(self) -> None:
        """And nothing is sent before."""
        write = self.harness.disk.write
        answered: list[bool] = []

        def watch(changes: Any) -> None:
            answered.append(bool(subscribing.called))
            write(changes)

        self.patch(self.harness.disk, "write", watch)
        request = WebhookRequest(
            interfaceType=InterfaceType.RESTFUL, topic=("a",), groupId="1", url=URL
        )
        subscribing = self.harness.webhooks.subscribe(ANYBODY, request)
        self.harness.settle()
        self.successResultOf(subscribing)
        self.assertIs(answered[0], False)

    def test_cancelledSubscribeStillHappens(self) -> None:
        self.harness.resolver.isHolding = True
        self.harness.resolver.names["a.example"] = [PUBLIC]
        subscribing = self.harness.subscribe("http://a.example/", subscriptionId=ID)
        subscribing.addErrback(lambda _: None)
        subscribing.cancel()
        self.harness.resolver.held[0]()
        self.harness.settle()
        self.harness.publish("1")
        self.assertEqual(self.harness.poster.contents, ["1"])

    def test_stoppingBrokerRefusesSubscribe(self) -> None:
        self.harness.resolver.isHolding = True
        self.harness.resolver.names["a.example"] = [PUBLIC]
        subscribing = self.harness.subscribe("http://a.example/", subscriptionId=ID)
        self.successResultOf(self.harness.webhooks.stop())
        self.harness.resolver.held[0]()
        self.harness.settle()
        self.failureResultOf(subscribing, errors.Overloaded)

    def test_damagedRecordIsKept(self) -> None:
        """It does not affect others."""
        self.successResultOf(self.harness.subscribe(subscriptionId=ID))
        self.harness.kill()
        self.harness.disk.kept["webhook", OTHER] = b"{}"
        self.harness.start()
        self.harness.settle()
        self.harness.publish("1")
        self.assertEqual(self.harness.poster.contents, ["1"])
        self.assertIn(("webhook", OTHER), self.harness.disk.kept)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_unknownIdCannotBeUnsubscribed(self) -> None:
        self.failureResultOf(
            self.harness.webhooks.unSubscribe(ANYBODY, ID), errors.SubscriptionNotFound
        )


class OperationTests(SynchronousTestCase):
    """
    From the parameters of both interfaces to webhooks.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b c")
        calls = self.harness.calls
        operations = {each.name: each for each in OPERATIONS}
        self.text = {name: connected(bindText(each, calls)) for name, each in operations.items()}
        self.json = {name: connected(bindJSON(each, calls)) for name, each in operations.items()}

    def ask(self, given: dict[Any, Any]) -> Any:
        """Subscribe by the interface that the form of the parameters belongs to."""
        isText = all(isinstance(name, bytes) for name in given)
        answer = (self.text if isText else self.json)["subscribe"](ANYBODY, given)
        self.harness.settle()
        return self.successResultOf(answer)

    def records(self) -> dict[str, Any]:
        """What operators see."""
        live = self.successResultOf(self.harness.subscriptions.listSubscriptions(ANYBODY, None))
        return {each.subscriptionId: each for each in live}

    def test_deliveryHasFormOfItsInterface(self) -> None:
        rest = self.ask({b"topic": b"a", b"url": URL.encode()})
        rpc = self.ask({"topic": "a", "url": URL})
        records = self.records()
        self.assertEqual(records[rest].interfaceType, InterfaceType.RESTFUL)
        self.assertEqual(records[rpc].interfaceType, InterfaceType.JSON_RPC)

    def test_restAndJsonRpcParametersAgree(self) -> None:
        self.ask(
            {
                b"topic": b"a,x/+,b c,a",
                b"groupId": b"1",
                b"subscriptionId": ID.upper().encode(),
                b"url": URL.encode(),
                b"offset": b"OFFSET_FIRST",
                b"tag": "ü".encode(),
            }
        )
        self.ask(
            {
                "topic": "a,x/+,b c",
                "groupId": " ",
                "subscriptionId": OTHER,
                "url": URL,
                "offset": 1,
                "tag": "ü",
            }
        )
        for record in self.records().values():
            self.assertEqual(record.filters, ("a", "x/+", "b c"))
        self.assertEqual(set(self.records()), {ID, OTHER})

    def test_blankOptionalParametersAreAbsent(self) -> None:
        self.ask({b"topic": b"a", b"url": URL.encode(), b"subscriptionId": b" ", b"offset": b" "})
        self.ask({"topic": "a", "url": URL, "subscriptionId": "", "tag": None, "offset": ""})

    def test_eachParameterHasItsError(self) -> None:
        """The first that is wrong counts."""
        good = {"topic": "a", "url": URL}
        cases: list[tuple[dict[str, object], type[errors.BrokerError]]] = [
            ({"topic": None}, errors.TopicBlank),
            ({"topic": "a,"}, errors.TopicBlank),
            ({"topic": "a," + "x" * 257}, errors.TopicTooLong),
            ({"topic": "ü"}, errors.TopicInvalid),
            ({"topic": "a/#/b"}, errors.PatternInvalid),
            ({"topic": ",".join(map(str, range(101)))}, errors.ParameterInvalid),
            ({"topic": 1}, errors.ParameterInvalid),
            ({"groupId": "9", "topic": ""}, errors.GroupUnknown),
            ({"subscriptionId": "x"}, errors.SubscriptionIdInvalid),
            ({"subscriptionId": "{" + ID + "}"}, errors.SubscriptionIdInvalid),
            ({"subscriptionId": ID.replace("-", "")}, errors.SubscriptionIdInvalid),
            ({"subscriptionId": ID + "\n"}, errors.SubscriptionIdInvalid),
            ({"url": None}, errors.UrlInvalid),
            ({"url": 7}, errors.ParameterInvalid),
            ({"offset": "x"}, errors.EventIdInvalid),
            ({"offset": "x" * 65}, errors.EventIdTooLong),
            ({"offset": True}, errors.ParameterInvalid),
            ({"offset": -1}, errors.EventIdInvalid),
            ({"offset": "OFFSET_TIME:noon"}, errors.ParameterInvalid),
            ({"tag": "\ud800"}, errors.ParameterInvalid),
            ({"tag": "x" * 8193}, errors.ParameterInvalid),
        ]
        for wrong, error in cases:
            given = {**good, **wrong}
            try:
                answer = self.json["subscribe"](ANYBODY, given)
            except errors.BrokerError as raised:
                self.assertIs(type(raised), error, wrong)
            else:
                self.failureResultOf(answer, error)
        with self.assertRaises(errors.TopicInvalid):
            self.text["subscribe"](ANYBODY, {b"topic": b"\xff"})

    def test_eitherInterfaceUnsubscribes(self) -> None:
        """Whichever made it."""
        id = self.ask({b"topic": b"a", b"url": URL.encode()})
        answer = self.json["unSubscribe"](ANYBODY, {"subscriptionId": id.upper()})
        self.harness.settle()
        self.assertIs(self.successResultOf(answer), True)
        self.assertEqual(self.records(), {})
        for given, error in [
            ({}, errors.SubscriptionIdBlank),
            ({b"subscriptionId": b"  "}, errors.SubscriptionIdBlank),
            ({b"subscriptionId": b"x"}, errors.SubscriptionIdInvalid),
        ]:
            fields: dict[bytes, bytes] = given
            self.assertRaises(error, self.text["unSubscribe"], ANYBODY, fields)

    def test_operationsOutlastTheirRequests(self) -> None:
        self.assertGreater(TIMEOUT, SETTINGS.timeout)
