"""
Tests for L{svcbroker.carriers.webhook.webhooks}: making and ending them.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker import errors
from svcbroker.broker import Broker, IWebhooks, Limits, NoWebhooks
from svcbroker.carriers.webhook.webhooks import MAX_LOOKUPS, TIMEOUT
from svcbroker.model import Edge, EventId, InterfaceType, Offset, Position
from svcbroker.operations import OPERATIONS, bindJSON, bindText
from svcbroker.version import VersionRecord

from .support import PUBLIC, SETTINGS, URL, World

ID = "00000000-0000-4000-8000-00000000000a"
OTHER = "00000000-0000-4000-8000-00000000000b"


class SubscribeTests(SynchronousTestCase):
    """
    C{subscribe}.
    """

    def setUp(self) -> None:
        self.world = World(self)
        self.world.open("a", "b")

    def refused(self, error: type[errors.BrokerError], *args: Any, **kwargs: Any) -> str:
        """What a call is refused with. Nothing is left of it."""
        before = dict(self.world.notes.kept)
        failure = self.failureResultOf(self.world.subscribe(*args, **kwargs), error)
        self.world.settle()
        self.assertEqual(self.world.notes.kept, before)
        return str(failure.value)

    def test_interfaces(self) -> None:
        """What the broker asks for is there."""
        verifyObject(IWebhooks, self.world.webhooks)
        verifyObject(IWebhooks, NoWebhooks())

    def test_ownId(self) -> None:
        """The id may be the client's own, otherwise one is made."""
        self.assertEqual(self.successResultOf(self.world.subscribe(subscriptionId=ID)), ID)
        made = [self.successResultOf(self.world.subscribe()) for _ in range(2)]
        self.assertEqual(len({ID, *made}), 3)

    def test_again(self) -> None:
        """The same again is the same: also after a restart, and whatever the offset."""
        for _ in range(2):
            for offset in (Edge.LAST, Edge.FIRST):
                again = self.world.subscribe(subscriptionId=ID, offset=offset)
                self.assertEqual(self.successResultOf(again), ID)
            self.world.publish("1")
            self.world.kill()
            self.world.start()
            self.world.settle()
        live = self.successResultOf(self.world.subscriptions.listSubscriptions(None))
        self.assertEqual(len(live), 1)

    def test_sameUrl(self) -> None:
        """The same URL in another form is the same."""
        self.successResultOf(self.world.subscribe(URL, subscriptionId=ID))
        url = f"HTTP://{PUBLIC}:80/hook"
        self.successResultOf(self.world.subscribe(url, subscriptionId=ID))

    def test_exists(self) -> None:
        """Something else under an id that is in use is refused."""
        self.successResultOf(self.world.subscribe(subscriptionId=ID))
        cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            ((f"{URL}2",), {}),
            ((URL, "b"), {}),
            ((URL, "a", "b"), {}),
            ((), {"tag": "x"}),
            ((), {"interfaceType": InterfaceType.JSON_RPC}),
        ]
        for args, kwargs in cases:
            self.refused(errors.SubscriptionExists, *args, subscriptionId=ID, **kwargs)

    def test_afterwards(self) -> None:
        """An id whose subscription was ended is free, and begins anew."""
        self.successResultOf(self.world.subscribe(subscriptionId=ID))
        self.world.poster.judge = lambda post: False
        self.world.publish("1")
        self.world.webhooks.unSubscribe(ID)
        self.world.poster.judge = lambda post: True
        self.successResultOf(self.world.subscribe(subscriptionId=ID))
        self.world.publish("2")
        self.assertEqual(self.world.poster.contents, ["1", "2"])

    def test_offsets(self) -> None:
        """From the first event, after one, from a height."""
        self.world.publish("1", "2", "3")
        offsets: dict[str, Offset] = {
            "first": Edge.FIRST,
            "last": Edge.LAST,
            "height": Position(1, -1),
        }
        ids = {
            name: self.successResultOf(self.world.subscribe(offset=offset))
            for name, offset in offsets.items()
        }
        event = self.world.poster.posts[0].event
        ids["after"] = self.successResultOf(self.world.subscribe(offset=event.eventId))
        self.world.publish("4")
        sent = {
            name: [p.content for p in self.world.poster.posts if p.subscriptionId == id]
            for name, id in ids.items()
        }
        self.assertEqual(sent["first"], ["1", "2", "3", "4"])
        self.assertEqual(sent["height"], ["1", "2", "3", "4"])
        self.assertEqual(sent["after"], ["2", "3", "4"])
        self.assertEqual(sent["last"], ["4"])

    def test_core(self) -> None:
        """What the core refuses is refused."""
        self.refused(errors.TopicNotFound, URL, "none")
        self.refused(errors.EventNotFound, offset=EventId("00000000", 1, 1))
        self.refused(errors.HeightUnknown, offset=Position(10**6, -1))

    def test_targets(self) -> None:
        """Where nothing may be sent nothing is, and the words do not tell which names there are."""
        self.world.resolver.names.update({"private.example": ["10.9.9.9", "::1"]})
        words = {
            self.refused(errors.UrlInvalid, f"http://{host}/")
            for host in ("127.0.0.1", "[::1]", "10.9.9.9", "private.example", "none.example")
        }
        self.assertEqual(len(words), 1)
        for url in ("", "x", "ftp://a/", "http://u:p@a.example/"):
            self.refused(errors.UrlInvalid, url)

    def test_allowed(self) -> None:
        """What is public, or allowed, is taken; a name as soon as one address will do."""
        self.world.resolver.names.update({"mixed.example": ["10.9.9.9", PUBLIC]})
        for host in (PUBLIC, "mixed.example", "inside.example", "10.1.0.7", "[::ffff:10.1.0.7]"):
            self.successResultOf(self.world.subscribe(f"http://{host}/"))

    def test_lookupHangs(self) -> None:
        """A name that is not found in time is refused; only so many are looked for at once."""
        self.world.resolver.isHolding = True
        looking = [self.world.subscribe("http://slow.example/") for _ in range(MAX_LOOKUPS)]
        self.refused(errors.Overloaded, "http://slow.example/")
        self.successResultOf(self.world.subscribe())
        self.world.clock.advance(SETTINGS.timeout)
        for each in looking:
            self.failureResultOf(each, errors.UrlInvalid)
        for answer in self.world.resolver.held:
            answer()
        self.world.resolver.isHolding = False
        self.world.resolver.names["slow.example"] = [PUBLIC]
        self.successResultOf(self.world.subscribe("http://slow.example/"))

    def test_tooMany(self) -> None:
        """There are only so many, those that are being made included."""
        world = World(self, evolve(SETTINGS, maxWebhooks=2))
        world.open("a")
        world.resolver.isHolding = True
        coming = world.subscribe("http://slow.example/")
        id = self.successResultOf(world.subscribe())
        self.failureResultOf(world.subscribe(), errors.Overloaded)
        world.resolver.held[0]()
        self.failureResultOf(coming, errors.UrlInvalid)
        self.successResultOf(world.subscribe())
        world.webhooks.unSubscribe(id)
        self.successResultOf(world.subscribe())

    def test_onDisk(self) -> None:
        """Nobody is answered before it is on disk, and nothing is sent."""
        write = self.world.notes.write
        answered: list[bool] = []

        def watch(changes: Any) -> None:
            answered.append(bool(subscribing.called))
            write(changes)

        self.patch(self.world.notes, "write", watch)
        subscribing = self.world.webhooks.subscribe(
            InterfaceType.RESTFUL, ("a",), "1", None, URL, Edge.LAST, None
        )
        self.world.settle()
        self.successResultOf(subscribing)
        self.assertIs(answered[0], False)

    def test_impatient(self) -> None:
        """A client that goes away does not undo what it asked for."""
        self.world.resolver.isHolding = True
        self.world.resolver.names["a.example"] = [PUBLIC]
        subscribing = self.world.subscribe("http://a.example/", subscriptionId=ID)
        subscribing.addErrback(lambda _: None)
        subscribing.cancel()
        self.world.resolver.held[0]()
        self.world.settle()
        self.world.publish("1")
        self.assertEqual(self.world.poster.contents, ["1"])

    def test_stopping(self) -> None:
        """Whoever is late to a broker that stops is refused."""
        self.world.resolver.isHolding = True
        self.world.resolver.names["a.example"] = [PUBLIC]
        subscribing = self.world.subscribe("http://a.example/", subscriptionId=ID)
        self.successResultOf(self.world.webhooks.stop())
        self.world.resolver.held[0]()
        self.world.settle()
        self.failureResultOf(subscribing, errors.Overloaded)

    def test_damaged(self) -> None:
        """One that cannot be read from disk harms no other, and is not thrown away."""
        self.successResultOf(self.world.subscribe(subscriptionId=ID))
        self.world.kill()
        self.world.notes.kept["webhook", OTHER] = b"{}"
        self.world.start()
        self.world.settle()
        self.world.publish("1")
        self.assertEqual(self.world.poster.contents, ["1"])
        self.assertIn(("webhook", OTHER), self.world.notes.kept)
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_unSubscribe(self) -> None:
        """What is not there cannot be ended."""
        self.failureResultOf(self.world.webhooks.unSubscribe(ID), errors.SubscriptionNotFound)


class OperationTests(SynchronousTestCase):
    """
    From the parameters of both interfaces to web hooks.
    """

    def setUp(self) -> None:
        self.world = World(self)
        self.world.open("a", "b c")
        broker = Broker(
            {"1": self.world.ledger},
            self.world.clock,
            Limits(),
            nodeAddress="n",
            version=VersionRecord(version="1"),
            subscriptions=self.world.subscriptions,
            webhooks=self.world.webhooks,
        )
        self.addCleanup(broker.stop)
        operations = {each.name: each for each in OPERATIONS}
        self.text = {name: bindText(each, broker) for name, each in operations.items()}
        self.json = {name: bindJSON(each, broker) for name, each in operations.items()}

    def ask(self, given: dict[Any, Any]) -> Any:
        """Subscribe by the interface that the form of the parameters belongs to."""
        isText = all(isinstance(name, bytes) for name in given)
        answer = (self.text if isText else self.json)["subscribe"](given)
        self.world.settle()
        return self.successResultOf(answer)

    def records(self) -> dict[str, Any]:
        """What operators see."""
        live = self.successResultOf(self.world.subscriptions.listSubscriptions(None))
        return {each.subscriptionId: each for each in live}

    def test_interfaceType(self) -> None:
        """The form of delivery is that of the interface."""
        rest = self.ask({b"topic": b"a", b"url": URL.encode()})
        rpc = self.ask({"topic": "a", "url": URL})
        records = self.records()
        self.assertEqual(records[rest].interfaceType, InterfaceType.RESTFUL)
        self.assertEqual(records[rpc].interfaceType, InterfaceType.JSON_RPC)

    def test_parameters(self) -> None:
        """All parameters, in both forms, mean the same."""
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

    def test_blanks(self) -> None:
        """What is empty or only spaces is as good as absent where it may be."""
        self.ask({b"topic": b"a", b"url": URL.encode(), b"subscriptionId": b" ", b"offset": b" "})
        self.ask({"topic": "a", "url": URL, "subscriptionId": "", "tag": None, "offset": ""})

    def test_refused(self) -> None:
        """Each parameter has an error of its own; the first that is wrong counts."""
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
            ({"tag": "\ud800"}, errors.ParameterInvalid),
            ({"tag": "x" * 8193}, errors.ParameterInvalid),
        ]
        for wrong, error in cases:
            given = {**good, **wrong}
            try:
                answer = self.json["subscribe"](given)
            except errors.BrokerError as raised:
                self.assertIs(type(raised), error, wrong)
            else:
                self.failureResultOf(answer, error)
        with self.assertRaises(errors.TopicInvalid):
            self.text["subscribe"]({b"topic": b"\xff"})

    def test_unSubscribe(self) -> None:
        """By either interface, whichever made it."""
        id = self.ask({b"topic": b"a", b"url": URL.encode()})
        answer = self.json["unSubscribe"]({"subscriptionId": id.upper()})
        self.world.settle()
        self.assertIs(self.successResultOf(answer), True)
        self.assertEqual(self.records(), {})
        for given, error in [
            ({}, errors.SubscriptionIdBlank),
            ({b"subscriptionId": b"  "}, errors.SubscriptionIdBlank),
            ({b"subscriptionId": b"x"}, errors.SubscriptionIdInvalid),
        ]:
            fields: dict[bytes, bytes] = given
            self.assertRaises(error, self.text["unSubscribe"], fields)

    def test_none(self) -> None:
        """A broker without web hooks says so."""
        for pending in (NoWebhooks().unSubscribe(ID),):
            self.failureResultOf(pending, errors.NoSuchCall)
        self.assertGreater(TIMEOUT, SETTINGS.timeout)
