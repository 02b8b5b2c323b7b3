"""
Tests for the calls of the clients, without I/O.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import statement, verifySignature
from svcbroker.client import (
    AnswerInvalid,
    AsyncClient,
    AuthorKey,
    BrokerError,
    Client,
    Publication,
    Published,
    Unreachable,
)
from svcbroker.client._core import Options, newKey
from svcbroker.client._effects import (
    Delay,
    ErasureAnswer,
    HttpRequest,
    HttpResponse,
    answerTooLong,
    errorOf,
)
from svcbroker.client._httpx import makeContext
from svcbroker.client.twisted import TwistedClient
from svcbroker.errors import (
    TABLE,
    EventErased,
    EventNotFound,
    ExtensionKeyInvalid,
    HeightUnknown,
    IdempotencyConflict,
    NodeBehind,
    NotAuthenticated,
    Overloaded,
    ParameterInvalid,
    SequenceConflict,
    TopicNotFound,
    TransactionTimeout,
)
from svcbroker.model import isIdempotencyKey
from tests import examples

from ..authors import makeKeyFile
from ..certificates import makeCertificate
from .network import FATES, OTHER, URL, Network, json200

TOPIC = "orders/new"

some = settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)


def eventIds(network: Network) -> list[str]:
    """The ids of the events in the log."""
    return [each.eventId for each in network.broker.log]


def contents(network: Network) -> list[bytes]:
    """The contents of the log."""
    return [each.content for each in network.broker.log]


class PublishTests(SynchronousTestCase):
    """
    C{publish} and C{publishMany}.
    """

    def test_publishAnswersTheEventsId(self) -> None:
        """A publish answers the id of its event, and the key that it was made."""
        network = Network()
        published = network.run(network.core().publish(TOPIC, "Z\xfc", {"svc-a": "&"}))
        self.assertEqual(
            published, Published(topic=TOPIC, eventId="00000000-1-1", idempotencyKey="key-1")
        )
        [event] = network.broker.log
        self.assertEqual((event.content, event.extensions), ("Z\xfc".encode(), {"svc-a": "&"}))

    @some
    @given(st.lists(st.lists(st.sampled_from(FATES), max_size=5), min_size=1, max_size=4))
    def test_everyEventIsPublishedOnce(self, fates: list[list[str]]) -> None:
        """Whatever becomes of the requests, each event is in the log once."""
        network = Network()
        core = network.core()
        for number, each in enumerate(fates):
            network.broker.fates = each
            published = network.run(core.publish(TOPIC, str(number)))
            self.assertEqual(published.eventId, network.broker.log[-1].eventId)
        self.assertEqual(contents(network), [str(n).encode() for n in range(len(fates))])

    @some
    @given(st.integers(1, 1300), st.lists(st.sampled_from(FATES), max_size=6))
    def test_everyEventOfManyIsPublishedOnce(self, count: int, fates: list[str]) -> None:
        """Whatever becomes of the requests, each of many events is in the log once, in order."""
        network = Network()
        network.broker.fates = fates
        outcomes = network.run(
            network.core().publishMany(Publication(TOPIC, str(n)) for n in range(count))
        )
        ids = [each.eventId for each in network.broker.log]
        self.assertEqual([each.eventId for each in outcomes], ids)
        self.assertEqual(contents(network), [str(n).encode() for n in range(count)])

    def test_largeEventsHaveRequestsOfTheirOwn(self) -> None:
        """The contents of one request are bounded, but for a single large event."""
        network = Network()
        sizes = [300_000, 300_000, 900_000, 10, 10]
        network.run(network.core().publishMany(Publication(TOPIC, b"x" * n) for n in sizes))
        self.assertEqual([len(each) for each in contents(network)], sizes)
        kinds = [urlsplit(each.url).path.rpartition("/")[2] for each in network.broker.requests]
        self.assertEqual(kinds, ["openrpc.json", "publish", "publish", "publish", "jsonrpc"])

    def test_refusedEventsAreOutcomes(self) -> None:
        """An event of many that is refused has the error as its outcome, and is not repeated."""
        network = Network()
        good, bad = network.run(
            network.core().publishMany([Publication(TOPIC, "x"), Publication("absent", "x")])
        )
        self.assertIsInstance(good, Published)
        self.assertIsInstance(bad, TopicNotFound)
        self.assertEqual(network.delays, [])

    def test_refusedPublishRaises(self) -> None:
        """A publish that is refused raises the broker's error, at once."""
        network = Network()
        core = network.core()
        with self.assertRaises(TopicNotFound) as caught:
            network.run(core.publish("absent", "x"))
        self.assertEqual(caught.exception.code, 100101)
        network.run(core.publish(TOPIC, "x", idempotencyKey="mine"))
        self.assertRaises(
            IdempotencyConflict, network.run, core.publish(TOPIC, "y", idempotencyKey="mine")
        )
        self.assertEqual(network.delays, [])

    def test_retryAfterIsObeyed(self) -> None:
        """The delay after a refusal is at least what the broker says."""
        network = Network()
        network.broker.fates = ["status 429", "status 503"]
        network.run(network.core().publish(TOPIC, "x"))
        self.assertEqual(network.delays, [7.0, 7.0])

    def test_quotasThatTakeAPartAreFollowed(self) -> None:
        """Delays are what the broker says as long as each attempt publishes something."""
        network = Network()
        network.broker.quota = 20
        outcomes = network.run(
            network.core().publishMany(Publication(TOPIC, str(n)) for n in range(500))
        )
        self.assertEqual([type(each) for each in outcomes], [Published] * 500)
        self.assertEqual(contents(network), [str(n).encode() for n in range(500)])
        self.assertEqual(network.delays, [1.5] * 24)
        kinds = [urlsplit(each.url).path.rpartition("/")[2] for each in network.broker.requests]
        self.assertEqual(kinds.count("openrpc.json"), 1)

    def test_absurdDelaysAreNotFollowed(self) -> None:
        for retryAfter in (-1, 1e300):
            network = Network()
            network.broker.quota, network.broker.retryAfter = 1, retryAfter
            network.run(network.core().publishMany([Publication(TOPIC, "x")] * 2))
            self.assertEqual(network.delays, [0.1])

    def test_backOffDoublesAndIsBounded(self) -> None:
        """Delays double up to ten seconds, and end with the time for the call."""
        network = Network()
        network.broker.isReachable = False
        with self.assertRaises(Unreachable):
            network.run(network.core().publish(TOPIC, "x"))
        self.assertEqual(network.delays[:8], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])
        self.assertLessEqual(sum(network.delays), 60)
        self.assertGreater(sum(network.delays), 45)

    def test_unknownOutcomeIsTold(self) -> None:
        """When the time is over, a publish of which the outcome is unknown says so."""
        network = Network()
        network.broker.fates = ["timeout before"] * 1000
        with self.assertRaises(TransactionTimeout):
            network.run(network.core({"timeout": 5.0}).publish(TOPIC, "x"))

    def test_unknownOutcomeIsToldThoughTheBrokerEnds(self) -> None:
        """An attempt that was refused does not tell what became of one before it."""
        for count in (1, 2):
            network = Network()
            network.broker.fates = ["lost after"] + ["not sent"] * 1000
            events = [Publication(TOPIC, "x")] * count
            outcomes = network.run(network.core({"timeout": 5.0}).publishMany(events))
            self.assertEqual([each.isSent for each in outcomes], [True] * count)
            # Once one of them is answered, it is known.
            network.broker.fates = ["lost after", "not sent"]
            outcomes = network.run(network.core().publishMany(events))
            self.assertEqual([type(each) for each in outcomes], [Published] * count)

    def test_publishOfWhichNothingWasSentIsNotSent(self) -> None:
        """Where a broker does not even tell its parameters, nothing was published."""
        network = Network()
        self.patch(network.broker, "answer", lambda request: Unreachable())
        [outcome] = network.run(
            network.core({"timeout": 5.0}).publishMany([Publication(TOPIC, "x")])
        )
        self.assertIsInstance(outcome, Unreachable)
        self.assertFalse(outcome.isSent)

    def test_tooLongAnswerIsNotAskedForAgain(self) -> None:
        """Neither that of a read nor that of a publish, of which it is open what came of it."""
        network = Network()
        core = network.core()
        asked: list[object] = []

        def answer(request: object) -> Unreachable:
            asked.append(request)
            return answerTooLong()

        network.run(core.publish(TOPIC, "known"))
        self.patch(network.broker, "answer", answer)
        [outcome] = network.run(core.publishMany([Publication(TOPIC, "x")]))
        assert isinstance(outcome, Unreachable)
        self.assertTrue(outcome.isSent)
        with self.assertRaisesRegex(Unreachable, "is longer than"):
            network.run(core.exist(TOPIC))
        self.assertEqual(len(asked), 2)

    def test_brokerWithoutKeysIsNotAskedAgain(self) -> None:
        """An unknown outcome is final at a broker that ignores keys; a refusal is not."""
        for count in (1, 2):
            network = Network()
            network.broker.parameters = ["topic", "content"]
            network.broker.fates = ["status 503", "lost after"]
            events = [Publication(TOPIC, "x")] * count
            outcomes = network.run(network.core().publishMany(events))
            self.assertEqual([type(each) for each in outcomes], [Unreachable] * count)
            self.assertEqual(len(network.broker.log), count)

    def test_publishWithoutKeyIsNotRepeated(self) -> None:
        """For ledgers that refuse keys. A refusal is repeated all the same."""
        network = Network()
        network.broker.fates = ["status 503"]
        published = network.run(network.core().publish(TOPIC, "x", idempotencyKey=None))
        self.assertEqual(
            (published.eventId, published.idempotencyKey), (eventIds(network)[0], None)
        )
        self.assertEqual(network.broker.keys, {})
        network.broker.fates = ["lost after"]
        events = [
            Publication(TOPIC, "1", {"svc-a": "b"}, idempotencyKey=None),
            Publication(TOPIC, "2", {"svc-a": "b"}),
        ]
        outcomes = network.run(network.core().publishMany(events))
        self.assertEqual([type(each) for each in outcomes], [Unreachable, Published])
        self.assertEqual(contents(network), [b"x", b"1", b"2"])

    def test_brokerWithoutParameterIsNotSentIt(self) -> None:
        """A key or a sequence that the caller gives is not sent to a broker that ignores it."""
        for given_ in ({"idempotencyKey": "mine"}, {"expectedSequence": 4}):
            network = Network()
            network.broker.parameters = ["topic", "content"]
            publishing: Any = network.core().publish(TOPIC, "x", **given_)
            self.assertRaises(ParameterInvalid, network.run, publishing)
            self.assertEqual(network.broker.log, [])

    def test_closedTopicIsNotFound(self) -> None:
        """The status ERROR says that the topic was closed before the event's turn came."""
        network = Network()
        publishing = network.core().publish(TOPIC, "x")
        publishing.send(network.perform(next(publishing)))
        answer = b'{"topic": "orders/new", "eventId": null, "status": "ERROR"}'
        with self.assertRaises(TopicNotFound):
            publishing.send(HttpResponse(status=200, headers={}, body=answer))

    def test_malformedEventIsItsOwnOutcome(self) -> None:
        """The outcomes of others are told, whichever request they were in."""
        for extensions in ({"topic": "other"}, {"svc-a": "x" * 100_000}):
            network = Network()
            events = [Publication(TOPIC, str(n)) for n in range(502)]
            events[501] = Publication(TOPIC, "x", extensions=extensions)
            outcomes = network.run(network.core().publishMany(events))
            self.assertEqual(len(contents(network)), 501)
            self.assertEqual([each.eventId for each in outcomes[:501]], eventIds(network))
            self.assertIsInstance(outcomes[501], BrokerError)

    def test_allOfManyMayBeMalformed(self) -> None:
        network = Network()
        events = [Publication(TOPIC, "x", extensions={"topic": "other"})] * 2
        outcomes = network.run(network.core().publishMany(events))
        self.assertEqual([type(each) for each in outcomes], [ExtensionKeyInvalid] * 2)
        self.assertEqual(network.broker.requests, [])

    def test_invalidResultOfManyIsItsOwnOutcome(self) -> None:
        """Another server may be at the URL, or a proxy that changes answers."""
        publishing = Network().core().publishMany([Publication(TOPIC, "x")] * 2)
        network = Network()
        publishing.send(network.perform(next(publishing)))
        good = {"topic": TOPIC, "eventId": "00000000-1-1", "status": "SUCCESS"}
        calls = [{"id": 0, "result": {"status": "?"}}, {"id": 1, "result": good}]
        with self.assertRaises(StopIteration) as ended:
            publishing.send(json200(calls))
        bad, published = ended.exception.value
        self.assertIsInstance(bad, AnswerInvalid)
        self.assertEqual(published.eventId, "00000000-1-1")

    def test_contentIsBytesOrText(self) -> None:
        """A number is no content: its C{bytes} would be as many zeros."""
        network = Network()
        for content in (5, None, [1, 2]):
            wrong: Any = content
            self.assertRaises(TypeError, network.core().publish(TOPIC, wrong).send, None)
        for buffer in (bytearray(b"x"), memoryview(b"x")):
            right: Any = buffer
            network.run(network.core().publish(TOPIC, right))
        self.assertEqual(contents(network), [b"x", b"x"])

    def test_madeKeysBeginWithTheTime(self) -> None:
        """And are different, and what a broker takes for a key."""
        keys = [newKey() for _ in range(50)]
        self.assertEqual(len(set(keys)), 50)
        self.assertTrue(all(map(isIdempotencyKey, keys)))
        for key in keys:
            self.assertLess(abs(time.time() - int(key.partition("-")[0], 16) / 1000), 60)

    def test_emptyIdempotencyKeyIsRefused(self) -> None:
        """It is a key that got lost on its way, and would publish every time."""
        network = Network()
        self.assertRaises(
            ParameterInvalid,
            network.run,
            network.core().publish(TOPIC, b"x", idempotencyKey=""),
        )
        self.assertEqual(contents(network), [])

    def test_extensionsAreChecked(self) -> None:
        """An extension that REST would ignore is refused."""
        network = Network()
        publishing = network.core().publish(TOPIC, "x", {"topic": "other"})
        self.assertRaises(ExtensionKeyInvalid, network.run, publishing)


class HostileAnswerTests(SynchronousTestCase):
    """
    Answers of another server, or of a broker that lies.
    """

    def checkRefused(self, procedure: Any, *documents: Any) -> None:
        """Answer with documents, of which the last one is none of a broker."""
        answers = [json200(each) for each in documents]
        next(procedure)
        for each in answers[:-1]:
            procedure.send(each)
        self.assertRaises(AnswerInvalid, procedure.send, answers[-1])

    def test_malformedEventIdIsRefused(self) -> None:
        event = {"topic": TOPIC, "content": "", "extensions": {}}
        for eventId in ("", "x", "00000000-1", "00000000-1-x", "00000000-1-1-1", "0000-1-1"):
            bad = {**event, "eventId": eventId}
            page = {"events": [bad], "next": "1", "atEnd": True}
            self.checkRefused(Network().core().getEvent("00000000-1-1"), bad)
            self.checkRefused(Network().core().events(TOPIC), page)

    def test_malformedErasureIsRefused(self) -> None:
        erased = {"timestamp": 1, "account": "", "reason": "", "transHash": "0xyz"}
        failure = {"code": EventErased.code, "message": "", "erased": erased}
        self.checkRefused(Network().core().getEvent("00000000-1-1"), failure)

    def test_malformedChainIsRefused(self) -> None:
        core = Network().core({"key": AuthorKey(bytes(32), None)})
        self.checkRefused(core.publish(TOPIC, "x"), {"chain": "xyz"})

    def test_absurdRetryAfterIsIgnored(self) -> None:
        """No clock waits for ever."""
        following = Network().core().follow(TOPIC)
        next(following)
        headers = {"retry-after": "9" * 400}
        following.send(HttpResponse(status=503, headers=headers))
        delay = following.send(b"")
        self.assertEqual(delay, Delay(0.1))


class SigningTests(SynchronousTestCase):
    """
    The statements that an author's key signs.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        makeKeyFile(self.path)

    def isSigned(self, key: AuthorKey, version: int, expected: int | None) -> bool:
        """Whether a key signs a version of the statement of an event."""
        made = key.sign(
            chain=bytes(32),
            topic="t",
            content=b"x",
            extensions={},
            idempotencyKey="k",
            signedAt=5,
            expectedSequence=expected,
        )
        text = statement(bytes(32), "t", b"x", 5, "k", {}, version, expected)
        return verifySignature(key.public, text, bytes.fromhex(made["signature"]))

    def test_expectedNumberIsSigned(self) -> None:
        """An event with an expected number has a statement of version 2, others have version 1."""
        key = AuthorKey.read(self.path)
        for expected, version in ((None, 1), (0, 2), (7, 2)):
            self.assertTrue(self.isSigned(key, version, expected))
            self.assertFalse(self.isSigned(key, 3 - version, expected))

    def test_version1MayBeWanted(self) -> None:
        """A key for networks without format 4 signs version 1 only."""
        key = AuthorKey.read(self.path, statement=1)
        for expected in (None, 7):
            self.assertTrue(self.isSigned(key, 1, expected))
        for version in (0, 3):
            with self.assertRaisesRegex(ValueError, "statement: is neither 1 nor 2"):
                AuthorKey.read(self.path, statement=version)


class FailOverTests(SynchronousTestCase):
    """
    Several brokers of one network.
    """

    def test_nextBrokerIsUsedAtOnce(self) -> None:
        """A call goes to the next broker without delay, and later calls begin there."""
        network = Network(URL, OTHER)
        core = network.core()
        network.brokers[URL].isReachable = False
        network.run(core.publish(TOPIC, "x"))
        self.assertEqual(network.delays, [])
        network.brokers[URL].isReachable = True
        network.run(core.publish(TOPIC, "y"))
        self.assertEqual(network.brokers[URL].requests, [])

    def test_brokersAreTriedInTurns(self) -> None:
        """There is a delay when all brokers were tried."""
        network = Network(URL, OTHER)
        for each in network.brokers.values():
            each.isReachable = False
        with self.assertRaises(Unreachable):
            network.run(network.core({"timeout": 1.0}).open("x"))
        self.assertEqual(network.delays, [0.1, 0.2, 0.4])

    def test_brokerThatNeverAnsweredIsNotWaitedFor(self) -> None:
        """Each is tried once. After an answer, a refused connection is that of a restart."""
        network = Network(URL, OTHER)
        core = network.core({"waitForBroker": False})
        for each in network.brokers.values():
            each.isReachable = False
        with self.assertRaises(Unreachable):
            network.run(core.getEvent("0000000a-1-1"))
        with self.assertRaises(Unreachable):
            network.run(core.open("x"))
        self.assertEqual(network.delays, [])
        network.broker.isReachable = True
        network.run(core.exist("x"))
        network.broker.isReachable = False
        with self.assertRaises(Unreachable):
            network.run(core.open("x"))
        self.assertGreater(len(network.delays), 5)

    def test_publishWaitsForABrokerThatHasAnswered(self) -> None:
        """Where none has, it fails at once, and nothing is sent."""
        network = Network()
        core = network.core({"waitForBroker": False})
        network.broker.isReachable = False
        with self.assertRaises(Unreachable) as caught:
            network.run(core.publish(TOPIC, "x"))
        self.assertEqual((caught.exception.isSent, network.delays), (False, []))
        network.broker.isReachable = True
        network.run(core.open(TOPIC))
        network.broker.isReachable = False
        with self.assertRaises(Unreachable):
            network.run(core.publish(TOPIC, "x"))
        self.assertGreater(len(network.delays), 5)

    def test_followerMovesToAnotherBroker(self) -> None:
        """A stream goes on at another broker, behind the last event."""
        network = Network(URL, OTHER)
        for number in range(4):
            network.broker.append(TOPIC, str(number).encode(), {})
        network.connections = [[400]]
        network.brokers[OTHER].refusal = HeightUnknown()
        following = network.core().follow("#", after="OFFSET_FIRST")
        first = network.take(following, 1)
        events = first + network.take(following, 4 - len(first))
        self.assertEqual([each.eventId for each in events], [e.eventId for e in network.broker.log])
        self.assertEqual(len(network.brokers[OTHER].requests), 1)

    def test_readsNameTheNewestEventThatWasSeen(self) -> None:
        """So that no broker answers with what was before. Publishes need not: the chain decides."""
        network = Network()
        core = network.core()

        def asked(procedure: Any) -> str | None:
            network.take(procedure)
            given = parse_qs(urlsplit(network.broker.requests[-1].url).query)
            return given.get("after", [None])[0]

        self.assertIsNone(asked(core.exist(TOPIC)))
        network.run(core.publish(TOPIC, "1"))
        network.run(core.publishMany([Publication(TOPIC, "2"), Publication(TOPIC, "3")]))
        self.assertNotIn("after", network.broker.requests[-1].body.decode())
        third = eventIds(network)[-1]
        self.assertEqual(asked(core.exist(TOPIC)), third)
        network.broker.append(TOPIC, b"4", {})
        self.assertEqual(asked(core.getEvent(eventIds(network)[0])), third)
        self.assertEqual(asked(core.events(TOPIC)), third)
        self.assertEqual(asked(core.exist(TOPIC)), third)
        newest = network.broker.append(TOPIC, b"5", {}).eventId
        network.take(core.follow(TOPIC, after="OFFSET_FIRST"), 5)
        self.assertEqual(network.broker.requests[-1].headers["svc-after"], third)
        self.assertEqual(asked(core.exist(TOPIC)), newest)

    def test_eventOfALogThatIsGoneIsForgotten(self) -> None:
        """A backup was put back: what was seen is not there any more."""
        network = Network()
        core = network.core({"timeout": 5.0})
        network.run(core.publish(TOPIC, "1"))
        network.broker.refusal = HeightUnknown()
        self.assertRaises(HeightUnknown, network.run, core.exist(TOPIC))
        before, after = network.broker.requests[-2:]
        self.assertIn("after=", before.url)
        self.assertNotIn("after=", after.url)
        network.broker.refusal = None
        network.run(core.publish(TOPIC, "2"))
        network.broker.append(TOPIC, b"3", {})
        network.run(core.getEvent(eventIds(network)[-1]))
        network.broker.refusal = NodeBehind()
        self.assertRaises(NodeBehind, network.run, core.exist(TOPIC))
        network.broker.refusal = None
        network.run(core.exist(TOPIC))
        self.assertNotIn("after=", network.broker.requests[-1].url)

    def test_nodeThatIsBehindIsLeft(self) -> None:
        """Another one may have the block."""
        network = Network(URL, OTHER)
        network.broker.append(TOPIC, b"x", {})
        network.broker.refusal = NodeBehind()
        self.assertEqual(len(network.take(network.core().events("#"))), 1)
        self.assertEqual((len(network.brokers[OTHER].requests), network.delays), (1, []))
        network.broker.requests.clear()
        [event] = network.take(network.core().follow("#", after="OFFSET_FIRST"), 1)
        self.assertEqual(event.content, b"x")


class FollowTests(SynchronousTestCase):
    """
    C{follow}.
    """

    @some
    @given(
        st.integers(0, 12),
        st.lists(st.lists(st.integers(1, 300), max_size=12), max_size=12),
    )
    def test_everyEventComesOnce(self, count: int, connections: list[Sequence[int]]) -> None:
        """Wherever connections are lost, each event is delivered once, in order."""
        network = Network()
        for number in range(count):
            network.broker.append(TOPIC, str(number).encode(), {"svc-n": str(number)})
        network.connections = connections
        events = network.take(network.core().follow("orders/#", after="OFFSET_FIRST"), count)
        self.assertEqual([each.eventId for each in events], [e.eventId for e in network.broker.log])
        self.assertEqual([each.content for each in events], contents(network))

    def test_disconnectAtAnyByteLosesNothing(self) -> None:
        """There is no byte at which a lost connection loses or repeats an event."""
        network = Network()
        for number in range(3):
            network.broker.append(TOPIC, str(number).encode(), {})
        size = len(
            network.broker.stream(
                HttpRequest(
                    method="GET", url=f"{URL}/rest/follow?from=OFFSET_FIRST", headers={}, timeout=1
                )
            )
        )
        for place in range(1, size):
            network.connections = [[place]]
            events = network.take(network.core().follow("#", after="OFFSET_FIRST"), 3)
            self.assertEqual([each.content for each in events], [b"0", b"1", b"2"], place)

    def test_positionBeforeFirstEventIsKept(self) -> None:
        """A follower from now on whose connection is lost begins where it had begun."""
        network = Network()
        for _ in range(4):
            network.broker.append(TOPIC, b"before", {})
        network.connections = [[25]]
        following = network.core().follow("#")
        outcome: Any = None
        while not isinstance(outcome, Unreachable):
            outcome = network.perform(following.send(outcome))
        for _ in range(3):
            network.broker.append(TOPIC, b"after", {})
        network.perform(following.send(outcome))
        events = network.take(following, 3)
        self.assertEqual([each.content for each in events], [b"after"] * 3)

    def test_refusalIsRaised(self) -> None:
        """A request that the broker refuses is not repeated."""
        network = Network()
        network.broker.refusal = NotAuthenticated("who?")
        with self.assertRaises(NotAuthenticated):
            network.take(network.core().follow("#"), 1)
        self.assertEqual(network.delays, [])

    def test_overloadedBrokerIsAskedAgain(self) -> None:
        """A broker that has too many streams is asked again, within the time for it."""
        network = Network()
        network.broker.refusal = Overloaded()
        with self.assertRaises(Overloaded):
            network.take(network.core().follow("#", timeout=20.0), 1)
        self.assertGreater(len(network.delays), 5)

    def test_streamThatEndsAtOnceResumesWhereItWas(self) -> None:
        """And there is a delay before the next one, as after any failure."""
        network = Network()
        for number in range(3):
            network.broker.append(TOPIC, str(number).encode(), {})
        following = network.core().follow("#", after="OFFSET_FIRST", timeout=20.0)
        events = network.take(following, 3)
        end = json.dumps({"code": NodeBehind.code, "message": "behind"})
        stream = HttpResponse(status=200, headers={"content-type": "text/event-stream"})
        following.send(None)
        effect = following.send(Unreachable())
        for delay in (0.1, 0.2, 0.4):
            self.assertEqual(effect, Delay(delay))
            opened: Any = following.send(None)
            self.assertEqual(opened.request.headers["Last-Event-ID"], events[-1].eventId)
            following.send(stream)
            effect = following.send(f"retry: 1\n\nevent: end\ndata: {end}\n\n".encode())

    def test_quietStreamMayLastLongerThanTheTimeout(self) -> None:
        """The time without a connection begins when the connection is lost."""
        network = Network()
        following = network.core().follow("#", timeout=20.0)
        network.perform(next(following))
        following.send(HttpResponse(status=200, headers={"content-type": "text/event-stream"}))
        for _ in range(10):
            network.time += 15
            following.send(b":\n\n")
        network.time += 15
        effect = following.send(Unreachable())
        self.assertEqual(effect, Delay(0.1))
        network.broker.isReachable = False
        network.perform(effect)
        with self.assertRaises(Unreachable):
            network.take(following)
        self.assertLess(network.time, 100 + 11 * 15 + 21)

    def test_parametersAreSent(self) -> None:
        """Position, tag and group are those that the caller gives."""
        network = Network()
        network.broker.append(TOPIC, b"x", {})
        core = network.core({"group": "7", "token": "secret"})
        network.take(core.follow("a,b/+", after="00000000-0-1", tag="t"), 1)
        [request] = network.broker.requests
        query = parse_qs(urlsplit(request.url).query)
        self.assertEqual(
            query, {"topic": ["a,b/+"], "from": ["00000000-0-1"], "tag": ["t"], "groupId": ["7"]}
        )
        self.assertEqual(request.headers["Authorization"], "Bearer secret")


class EventsTests(SynchronousTestCase):
    """
    C{events}, C{getEvent} and the calls about topics.
    """

    def setUp(self) -> None:
        self.network = Network()
        for number in range(10):
            self.network.broker.append(TOPIC, str(number).encode(), {})

    def read(self, **arguments: Any) -> list[bytes]:
        """The contents of the events that C{events} delivers."""
        core = self.network.core()
        return [each.content for each in self.network.take(core.events("#", **arguments))]

    def test_allPagesAreRead(self) -> None:
        """A walk reads every event once."""
        self.assertEqual(self.read(), contents(self.network))
        self.assertEqual(self.read(after="00000000-4-2"), contents(self.network)[4:])
        self.assertEqual(self.read(after=3), contents(self.network)[4:])

    def test_limitEndsTheWalk(self) -> None:
        """A walk with a limit reads no more, over several pages."""
        self.assertEqual(self.read(limit=7), contents(self.network)[:7])
        self.assertEqual(self.read(limit=0), [])

    def test_walkWaitsForABrokerThatIsBehind(self) -> None:
        """A position that one broker gave is asked for again where another does not know it yet."""
        walking = self.network.core().events("#")
        self.network.perform(first := next(walking))
        walking.send(self.network.perform(first))
        walking.send(None)
        behind = json.dumps({"code": HeightUnknown.code, "message": "no such block"}).encode()
        delay = walking.send(HttpResponse(status=200, headers={}, body=behind))
        self.assertEqual(delay, Delay(0.1))
        self.network.perform(delay)
        rest = self.network.take(walking)
        self.assertEqual([each.content for each in rest], contents(self.network)[3:])

    def test_timesAreOffsets(self) -> None:
        """A time is sent with its zone."""
        network = self.network
        moment = datetime(2026, 11, 22, 8, tzinfo=UTC)
        network.take(network.core().events("#", after=moment))
        [query] = parse_qs(urlsplit(network.broker.requests[0].url).query)["from"]
        self.assertTrue(query.startswith("OFFSET_TIME:2026-11-22T"), query)
        self.assertEqual(datetime.fromisoformat(query.removeprefix("OFFSET_TIME:")), moment)

    def test_waitGoesOnAfterEvents(self) -> None:
        """With a wait, a walk that has reached the end goes on until no event comes any more."""
        self.assertEqual(self.read(wait=5), contents(self.network))
        timeouts = {each.timeout for each in self.network.broker.requests}
        self.assertEqual(timeouts, {35.0})

    def test_eventsHaveTheirNumbers(self) -> None:
        """An event's sequence number and height are those of its id."""
        event = self.network.run(self.network.core().getEvent("00000000-4-2"))
        self.assertEqual((event.content, event.sequence, event.height), (b"3", 4, 2))
        missing = self.network.core().getEvent("00000000-77-2")
        self.assertRaises(EventNotFound, self.network.run, missing)

    def test_closeAfterLostAnswerSucceeds(self) -> None:
        """A topic that a lost request has closed is closed; one that never was open is an error."""
        network = self.network
        closing = network.core().close(TOPIC)
        network.perform(next(closing))
        self.assertIs(network.run(closing, Unreachable()), True)
        self.assertRaises(TopicNotFound, network.run, network.core().close("absent"))


def setVariable(name: str, value: str | None) -> None:
    """Set a variable of the environment, or remove it."""
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


class OptionTests(SynchronousTestCase):
    """
    URLs, credentials and errors.
    """

    def test_malformedOptionsAreRefused(self) -> None:
        """URLs and credentials that cannot be meant are refused at once."""
        wrong: list[tuple[list[str], Options]] = [
            ([], {}),
            (["broker:8080"], {}),
            (["ftp://x/svcbroker"], {}),
            (["http://user:password@x/svcbroker"], {}),
            ([URL], {"user": "alice"}),
            ([URL], {"user": "alice", "password": "x", "token": "y"}),
            ([URL], {"password": "x"}),
            ([URL], {"user": "alice:x", "password": "y"}),
            ([URL], {"password": "x", "token": "y"}),
            ([URL], {"token": "x\ny"}),
            ([URL], {"token": "\xfc"}),
            ([URL], {"timeout": -1.0}),
            ([URL], {"timeout": float("nan")}),
        ]
        from svcbroker.client._core import Core

        for urls, options in wrong:
            self.assertRaises(ValueError, Core, urls, options)

    def test_malformedTlsFilesAreNamed(self) -> None:
        """Files of certificates that are missing or hold something else are named in the error."""
        path = Path(self.mktemp())
        path.write_text("no certificate")
        reactor = MemoryReactorClock()
        names: tuple[Literal["ca", "certificate"], ...] = ("ca", "certificate")
        for name in names:
            for make in (Client, AsyncClient, partial(TwistedClient, reactor)):
                error = self.assertRaises(ValueError, make, URL, **{name: path})
                self.assertIn(str(path), str(error))
                missing = self.assertRaises(OSError, make, URL, **{name: "absent.pem"})
                self.assertEqual(missing.filename, "absent.pem")

    def test_authoritiesAreReadForTlsOnly(self) -> None:
        """Where no URL has TLS the context has none, and takes no certificate."""
        directory = Path(self.mktemp())
        directory.mkdir()
        before = os.environ.get("SSL_CERT_FILE")
        self.addCleanup(setVariable, "SSL_CERT_FILE", before)
        setVariable("SSL_CERT_FILE", str(makeCertificate(directory)[1]))
        for urls, count in (([URL], 0), ([OTHER], 1), ([URL, "HTTPS://x/svcbroker"], 1), ([], 1)):
            context = makeContext({}, urls)
            self.assertEqual(len(context.get_ca_certs()), count, urls)
            self.assertEqual(context.verify_mode, ssl.CERT_REQUIRED)
            self.assertTrue(context.check_hostname)

    def test_slashAtTheEndIsRemoved(self) -> None:
        """A base URL may end with a slash."""
        network = Network()
        network.brokers = {f"{URL}/": network.broker}
        core = network.core()
        network.brokers = {URL: network.broker}
        self.assertIs(network.run(core.open("x")), True)

    def test_userAndPasswordAreSent(self) -> None:
        """A user and a password are sent by HTTP Basic, in UTF-8."""
        network = Network()
        network.run(network.core({"user": "z\xfc", "password": "p:"}).open("x"))
        [request] = network.broker.requests
        self.assertEqual(request.headers["Authorization"], "Basic esO8OnA6")

    def test_everyErrorIsRebuilt(self) -> None:
        """A client raises errors with the class, the code and the message of the broker's."""
        for each in TABLE:
            told = each() if each is not SequenceConflict else SequenceConflict(7)
            error = errorOf(told.code, told.message)
            self.assertEqual(
                (type(error), error.code, error.message), (each, each.code, told.message)
            )
            self.assertEqual(vars(error), vars(told))
        facts: dict[str, Any] = {"account": "ann", "reason": "why"}
        for more in {}, {"topic": "a", "first": 1, "last": 4}:
            erasure = ErasureAnswer(timestamp=5, transHash="0x0102", **{**facts, **more})
            erased = errorOf(EventErased.code, "gone", erasure=erasure)
            told = EventErased("gone", time=5, transaction=b"\1\2", **{**facts, **more})
            self.assertEqual(vars(erased), vars(told))
        unknown = errorOf(100999, "new")
        self.assertEqual((type(unknown), unknown.code), (BrokerError, 100999))
        self.assertEqual(BrokerError.code, 200203)

    def test_answersOfOtherServersAreErrors(self) -> None:
        """What no broker answers is told as such."""
        for response, kind in (
            (HttpResponse(status=200, headers={}, body=b"<html>"), AnswerInvalid),
            (HttpResponse(status=404, headers={}, body=b"no"), AnswerInvalid),
            (HttpResponse(status=401, headers={}, body=b"no"), NotAuthenticated),
            (HttpResponse(status=302, headers={}, body=b""), AnswerInvalid),
        ):
            calling = Network().core().state("x")
            next(calling)
            with self.assertRaises(kind):
                calling.send(response)
