"""
C{follow}: Server-Sent Events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Access, Principal
from svcbroker.broker import ReadPage, ReadRequest
from svcbroker.broker.subscriptions import Subscriptions, _eventreading
from svcbroker.broker.subscriptions._eventreading import WAIT
from svcbroker.carriers.http import follow
from svcbroker.carriers.http.follow import BEAT, Following
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.interfaces import Identity, submit
from svcbroker.model import CloseTopic, EventId, OpenTopic, PublishEvent
from tests.access.support import FakeAuthenticator, account, openAccess
from tests.broker.support import FakeDirectory, makeFixture

from .accounts import basic
from .support import BASE, Answer, Client, Connection, requestBytes


class Stream:
    """A client's end of a stream."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._unread = b""
        self.text = ""
        self.hasEnded = False
        self.head = ""

    def read(self) -> str:
        """The text that has arrived since the last time, taken out of its chunks."""
        transport = self.connection.transport
        self._unread += transport.value()
        transport.clear()
        if not self.head:
            head, _, self._unread = self._unread.partition(b"\r\n\r\n")
            self.head = head.decode()
        text = b""
        while self._unread:
            size, _, rest = self._unread.partition(b"\r\n")
            length = int(size, 16)
            text += rest[:length]
            self._unread = rest[length + 2 :]
            self.hasEnded = self.hasEnded or not length
        return text.decode()

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The ids and the data of the events that have arrived since the last time."""
        events = []
        for block in self.read().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in fields:
                events.append((fields.get("id", ""), json.loads(fields["data"])))
        return events

    def contents(self) -> list[str]:
        """The contents of the events that have arrived since the last time, as Base64."""
        return [event["content"] for _, event in self.events()]


class ReadingDirectory(FakeDirectory):
    """Reads events from the subscriptions that a test makes after its broker."""

    subscriptions: Subscriptions

    def readEvents(self, principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        return self.subscriptions.readEvents(principal, request)

    def reach(
        self, principal: Principal, groupId: str | None, eventId: EventId, remote: str
    ) -> Deferred[None]:
        return self.subscriptions.reach(principal, groupId, eventId, remote)


class FollowTestCase(SynchronousTestCase):
    authenticators: tuple[FakeAuthenticator, ...] = ()
    anonymous: Identity | None = None

    def setUp(self) -> None:
        directory = ReadingDirectory()
        self.fixture = makeFixture(directory)
        self.clock: Clock = self.fixture.clock
        ledgers = {"1": self.fixture.ledger, "2": self.fixture.second}
        numbers = iter(range(1, 1000))
        self.subscriptions = Subscriptions(
            ledgers, self.clock, self.clock.seconds, lambda n: next(numbers).to_bytes(n, "big")
        )
        directory.subscriptions = self.subscriptions
        self.successResultOf(self.subscriptions.start())
        self.addCleanup(self.subscriptions.stop)
        access = openAccess(self.clock)
        if self.authenticators:
            access = Access(
                self.authenticators, self.clock, self.clock.seconds, anonymous=self.anonymous
            )
        self.access = access
        settings = HttpSettings()
        self.following = Following(self.fixture.calls, self.subscriptions, settings.basePath, 5)
        self.client = Client(settings, (self.following.route,), self.fixture, access)
        for topic in ("a", "b/c"):
            submit(self.fixture.ledger, OpenTopic(topic=topic))
        self.settle()

    def settle(self, seconds: float = 0.0) -> None:
        self.fixture.ledger.release()
        self.clock.pump([seconds / 20] * 20)

    def publish(self, content: str, topic: str = "a", **extensions: str) -> None:
        named = {f"svc-{name}": value for name, value in extensions.items()}
        event = PublishEvent(topic=topic, content=content.encode(), extensions=named)
        submit(self.fixture.ledger, event)
        self.settle()

    def follow(self, query: str, headers: Mapping[str, str] | None = None) -> Stream:
        connection = self.client.connect()
        connection.send(requestBytes("GET", f"{BASE}/rest/follow?{query}", headers=headers))
        self.settle()
        return Stream(connection)


class FollowTests(FollowTestCase):
    def test_eventsAreSentAsTheyArePublished(self) -> None:
        stream = self.follow("topic=a")
        self.assertEqual(stream.read(), "retry: 1000\nid: 3\n\n")
        self.assertIn("Content-Type: text/event-stream;charset=UTF-8", stream.head)
        self.assertIn("Cache-Control: no-cache", stream.head)
        self.publish("x", tag="t")
        [(id, event)] = stream.events()
        self.assertEqual(
            event,
            {
                "topic": "a",
                "content": "eA==",
                "extensions": {"svc-tag": "t"},
                "eventId": id,
                "timestamp": event["timestamp"],
                "blockNumber": 3,
                "sequenceNumber": 1,
            },
        )

    def test_lastEventIdWins(self) -> None:
        for content in "123":
            self.publish(content)
        stream = self.follow("topic=a&from=OFFSET_FIRST")
        events = stream.events()
        self.assertEqual(len(events), 3)
        again = self.follow("topic=a&from=OFFSET_FIRST", {"Last-Event-ID": events[0][0]})
        self.assertEqual(again.events(), events[1:])

    def test_resumedStreamBeginsWithAnEvent(self) -> None:
        """The client knows the id. Some clients hand out a block without data as an event."""
        self.publish("1")
        [(last, _)] = self.follow("topic=a&from=OFFSET_FIRST").events()
        for place in ("4", last):
            stream = self.follow("topic=a", {"Last-Event-ID": place})
            self.settle(BEAT + 1)
            self.assertEqual(stream.read(), "retry: 1000\n:\n")
            stream.connection.disconnect()
        stream = self.follow("topic=a", {"Last-Event-ID": last})
        self.publish("2")
        self.assertTrue(
            stream.read().startswith(f"retry: 1000\nid: {last[:-3]}2-4\nevent: event\n")
        )

    def test_clientThatGotNothingResumesWhereItBegan(self) -> None:
        for query in ("topic=a", "topic=%23"):
            stream = self.follow(query)
            [line] = [line for line in stream.read().split("\n") if line.startswith("id: ")]
            stream.connection.disconnect()
            self.publish("missed")
            again = self.follow(query, {"Last-Event-ID": line.removeprefix("id: ")})
            self.assertEqual(len(again.events()), 1)

    def test_patternsAndTags(self) -> None:
        stream = self.follow("topic=b/%23&tag=t")
        self.publish("1", "a", tag="t")
        self.publish("2", "b/c")
        self.publish("3", "b/c", tag="t")
        self.assertEqual(stream.contents(), ["Mw=="])

    def test_badParametersAreAnsweredAsInREST(self) -> None:
        for query, code in (
            ("", 100103),
            ("topic=nowhere", 100101),
            ("topic=a%23", 100109),
            ("topic=a&from=x", 100302),
            ("topic=a&from=OFFSET_TIME:x", 100600),
            ("topic=a&weevent-tag=red", 100206),
            ("topic=a&groupId=9", 200211),
        ):
            connection = self.client.connect()
            connection.send(requestBytes("GET", f"{BASE}/rest/follow?{query}"))
            [answer] = connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (200, code), query)

    def test_commentsAreSentInSilence(self) -> None:
        stream = self.follow("topic=a")
        stream.read()
        self.settle(BEAT - 1)
        self.publish("x")
        stream.read()
        self.settle(BEAT - 1)
        self.assertEqual(stream.read(), "")
        self.settle(2)
        self.assertEqual(stream.read(), ":\n")
        self.settle(BEAT + 1)
        self.assertEqual(stream.read(), ":\n")

    def test_slowReadersArePaused(self) -> None:
        stream = self.follow("topic=a")
        stream.read()
        stream.connection.channel.pauseProducing()
        for content in "123":
            self.publish(content)
        self.assertEqual(stream.read(), "")
        stream.connection.channel.resumeProducing()
        self.settle()
        self.assertEqual(stream.contents(), ["MQ==", "Mg==", "Mw=="])

    def test_readersThatReadNothingAreDisconnected(self) -> None:
        stream = self.follow("topic=a")
        stream.connection.channel.pauseProducing()
        self.settle(4)
        self.assertTrue(stream.connection.isOpen)
        self.settle(2)
        self.assertFalse(stream.connection.isOpen)
        self.assertEqual(self.records(), [])

    def records(self) -> list[Any]:
        records = self.successResultOf(self.subscriptions.listSubscriptions(ANYBODY, None))
        return list(records)

    def test_streamsAreListedAsSubscriptions(self) -> None:
        stream = self.follow("topic=a")
        [record] = self.records()
        self.assertEqual((record.interfaceType.value, record.filters), ("RESTful", ("a",)))
        stream.connection.disconnect()
        self.assertEqual(self.records(), [])

    def test_streamsEndInOrder(self) -> None:
        stream = self.follow("topic=a")
        stopping = self.client.site.drain()
        self.successResultOf(self.following.drain())
        self.settle()
        stream.read()
        self.assertTrue(stream.hasEnded)
        self.successResultOf(stopping)

    def test_noStreamBeginsWhileTheBrokerStops(self) -> None:
        self.following.drain()
        answer = self.client.ask("GET", f"{BASE}/rest/follow?topic=a")
        self.assertEqual(answer.json()["code"], 200101)

    def test_headIsAnsweredWithoutAStream(self) -> None:
        answer = self.client.ask("HEAD", f"{BASE}/rest/follow?topic=a")
        self.assertEqual(answer.status, 200)
        self.assertEqual(self.records(), [])

    def test_closedTopicsGoOnWhenTheyAreOpened(self) -> None:
        stream = self.follow("topic=a")
        submit(self.fixture.ledger, CloseTopic(topic="a"))
        submit(self.fixture.ledger, OpenTopic(topic="a"))
        self.publish("x")
        self.assertEqual(stream.contents(), ["eA=="])


class BehindTests(FollowTestCase):
    """
    A node of a network: another one has told of an event that this one does not have yet.
    """

    ahead = "ca978112-1-3"
    stream = {"Accept": "text/event-stream"}

    def setUp(self) -> None:
        super().setUp()
        self.subscriptions._followers["1"].isOfNetwork = True

    def ask(self, call: str, headers: Mapping[str, str] | None = None) -> Connection:
        connection = self.client.connect()
        connection.send(requestBytes("GET", f"{BASE}/rest/{call}", headers=headers))
        self.settle()
        return connection

    def test_streamWaitsForItsEvent(self) -> None:
        stream = self.follow("topic=a", {"Last-Event-ID": self.ahead})
        self.assertEqual(stream.connection.transport.value(), b"")
        self.publish("1")
        self.publish("2")
        [(id, _)] = stream.events()
        self.assertEqual(id, "ca978112-2-4")

    def test_callsThatWaitedInVainAre503(self) -> None:
        """For proxies and clients, which ask another node then."""
        calls = (f"follow?topic=a&from={self.ahead}", f"events?topic=a&from={self.ahead}")
        asked = [self.ask(call) for call in calls]
        self.settle(WAIT)
        for connection in asked:
            [answer] = connection.answers()
            self.assertEqual((answer.status, answer.json()["code"]), (503, 200216))
            self.assertEqual(answer.headers["retry-after"], "1")

    def test_callOfJSONRPCSaysWhenToTryAgain(self) -> None:
        connection = self.client.connect()
        call = {"jsonrpc": "2.0", "id": 1, "method": "events"}
        body = json.dumps({**call, "params": {"topic": "a", "from": self.ahead}}).encode()
        headers = {"Content-Type": "application/json"}
        connection.send(requestBytes("POST", f"{BASE}/jsonrpc", body, headers))
        self.settle(WAIT)
        [answer] = connection.answers()
        error = answer.json()["error"]
        self.assertEqual((answer.status, error["code"]), (200, -32056))
        self.assertEqual((error["data"]["code"], error["data"]["retryAfter"]), (200216, 1.0))

    def test_eventSourceIsNotRefusedForGood(self) -> None:
        """It connects again after a stream, never after JSON or another status than 200."""
        stream = Stream(self.ask(f"follow?topic=a&from={self.ahead}", self.stream))
        self.settle(WAIT)
        [answer] = stream.connection.answers()
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "text/event-stream;charset=UTF-8")
        head, end, data = answer.body.decode().rstrip().rsplit("\n", 2)
        self.assertEqual((head, end), ("retry: 1000\n", "event: end"))
        self.assertEqual(json.loads(data.removeprefix("data: "))["code"], 200216)

    def test_eventSourceReturnsToABrokerThatStops(self) -> None:
        self.following.drain()
        [answer] = self.ask("follow?topic=a", self.stream).answers()
        self.assertIn(b'event: end\ndata: {"code":200101', answer.body)

    def test_eventSourceIsToldWhatNeverHelps(self) -> None:
        [answer] = self.ask("follow?topic=nowhere", self.stream).answers()
        self.assertEqual(answer.json()["code"], 100101)


class GrantTests(FollowTestCase):
    authenticators = (FakeAuthenticator(account("ann", "subscribe 1 a")),)

    def test_streamsSendWhatIsGranted(self) -> None:
        stream = self.follow("topic=%23", basic("ann"))
        self.publish("1", "a")
        self.publish("2", "b/c")
        self.assertEqual(stream.contents(), ["MQ=="])

    def test_whatIsNotGrantedIs403(self) -> None:
        answer = self.client.ask("GET", f"{BASE}/rest/follow?topic=b/c", headers=basic("ann"))
        self.assertEqual((answer.status, answer.json()["code"]), (403, 101016))

    def test_credentialsAreNeeded(self) -> None:
        answer = self.client.ask("GET", f"{BASE}/rest/follow?topic=a")
        self.assertEqual(answer.status, 401)

    def removeAccount(self) -> None:
        [accounts] = self.authenticators
        ann = accounts.identities.pop("ann")
        self.addCleanup(accounts.identities.__setitem__, "ann", ann)
        self.successResultOf(self.access.reload())
        self.settle()

    def test_streamsEndWithTheirAccount(self) -> None:
        stream = self.follow("topic=a", basic("ann"))
        stream.read()
        self.removeAccount()
        self.assertIn('"code":101015', stream.read())
        self.assertTrue(stream.hasEnded)

    def test_fieldsAreThoseOfTheAsyncAPIDocument(self) -> None:
        """Of the beginning, of an event and of the end."""
        answer = self.client.ask("GET", f"{BASE}/asyncapi.json", headers=basic("ann"))
        messages = answer.json()["components"]["messages"]
        stream = self.follow("topic=a", basic("ann"))
        self.publish("x")
        self.removeAccount()
        blocks = stream.read().removesuffix("\n\n").split("\n\n")
        for block, name in zip(blocks, ("followStart", "followed", "followEnd"), strict=True):
            fields = {line.partition(":")[0] for line in block.split("\n")} - {"data"}
            self.assertEqual(fields, set(messages[name]["headers"]["properties"]), name)


class ShareTests(FollowTestCase):
    """One client takes at most a quarter of the places: here one of four."""

    authenticators: tuple[FakeAuthenticator, ...] = (
        FakeAuthenticator(account("ann", "subscribe 1 #")),
    )
    anonymous = account("", "subscribe 1 #")

    def setUp(self) -> None:
        self.patch(follow, "MAX_STREAMS", 4)
        self.patch(_eventreading, "MAX_WAITING", 4)
        super().setUp()

    def begin(self, host: str, call: str, account: str = "") -> Connection:
        """Send a request from an address."""
        connection = Connection(self.client.site, IPv4Address("TCP", host, 1))
        headers = basic(account) if account else {}
        if call == "jsonrpc":
            params = {"topic": "a", "from": "OFFSET_LAST", "wait": 30}
            body = {"jsonrpc": "2.0", "id": 1, "method": "events", "params": params}
            data = requestBytes("POST", f"{BASE}/jsonrpc", json.dumps(body).encode(), headers)
        else:
            data = requestBytes("GET", f"{BASE}/rest/{call}", headers=headers)
        connection.send(data)
        self.settle()
        return connection

    def assertRefused(self, connection: Connection, words: str) -> Answer:
        [answer] = connection.answers()
        self.assertEqual(answer.status, 200)
        error = answer.json()
        self.assertIn(words, error.get("message") or error["error"]["message"])
        return answer

    def test_streamsOfEachClientAreBounded(self) -> None:
        """Another client is served meanwhile, and the place is free when the stream has ended."""
        first = self.begin("192.0.2.1", "follow?topic=a")
        refused = self.begin("192.0.2.1", "follow?topic=a")
        answer = self.assertRefused(refused, "address 192.0.2.1 has 1 streams, as many as one")
        self.assertEqual((answer.json()["code"], answer.headers["retry-after"]), (200101, "1"))
        for host, name in (("192.0.2.1", "ann"), ("192.0.2.2", "")):
            stream = Stream(self.begin(host, "follow?topic=a", name))
            self.assertIn("retry: 1000", stream.read())
            refused = self.begin(host, "follow?topic=a", name)
            self.assertRefused(refused, f"account {name} has" if name else f"address {host} has")
        first.disconnect()
        self.assertIn("retry: 1000", Stream(self.begin("192.0.2.1", "follow?topic=a")).read())

    def test_refusedStreamsTakeNoPlace(self) -> None:
        for _ in range(5):
            [answer] = self.begin("192.0.2.1", "follow?topic=nowhere").answers()
            self.assertEqual(answer.json()["code"], 100101)

    def test_longPollsOfEachClientAreBounded(self) -> None:
        """Over REST and JSON-RPC together."""
        poll = "events?topic=a&from=OFFSET_LAST&wait=30"
        waiting = [self.begin("192.0.2.1", poll)]
        words = "address 192.0.2.1 has 1 calls of events that wait"
        answer = self.assertRefused(self.begin("192.0.2.1", poll), words)
        self.assertEqual((answer.json()["code"], answer.headers["retry-after"]), (200101, "1"))
        self.assertRefused(self.begin("192.0.2.1", "jsonrpc"), words)
        waiting += [self.begin("192.0.2.2", "jsonrpc"), self.begin("192.0.2.1", poll, "ann")]
        self.publish("x")
        for connection in waiting:
            [answer] = connection.answers()
            self.assertIn('"content":"eA=="', answer.body.decode())

    def test_retryAfterIsSentWithoutAccounts(self) -> None:
        self.authenticators = ()
        super().setUp()
        self.begin("192.0.2.1", "follow?topic=a")
        answer = self.assertRefused(self.begin("192.0.2.1", "follow?topic=a"), "address 192.0.2.1")
        self.assertEqual(answer.headers["retry-after"], "1")
