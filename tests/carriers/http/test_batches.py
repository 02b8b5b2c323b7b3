"""
Publishes that arrive in one turn of the reactor, which are made together.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.carriers.http.fastpath import MAX_BATCH_BYTES
from svcbroker.errors import LedgerUnavailable, Overloaded
from svcbroker.interfaces import Quotas, Submission
from svcbroker.model import Request
from svcbroker.operations import _types
from tests.access.support import MANY, account
from tests.broker.support import TIMEOUT, makeFixture

from .accounts import Accounts, basic
from .support import BASE, FORM, Client, Connection, requestBytes


def publish(content: str = "x", topic: str = "t", **more: Any) -> bytes:
    """A publish over REST."""
    body = f"topic={topic}&content={content}".encode()
    return requestBytes("POST", f"{BASE}/rest/publish", body, {"Content-Type": FORM, **more})


def rpc(method: str, id: object = 1, **params: Any) -> bytes:
    """A call over JSON-RPC; without an id it is a notification."""
    call: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params}
    if id is not None:
        call["id"] = id
    return requestBytes("POST", f"{BASE}/jsonrpc", json.dumps(call).encode())


class BatchTestCase(SynchronousTestCase):
    """
    A site on a reactor that makes calls after all reads of a turn, as the daemon's does.

    @ivar submitted: how many requests each call of the ledger has submitted.
    """

    def setUp(self) -> None:
        self.make()

    def make(
        self, makeAccess: Callable[[Any], Access] | None = None, maxContent: int = 1000
    ) -> None:
        """Begin with a new site."""
        self.calls: list[Callable[[], object]] = []
        self.fixture = fixture = makeFixture(
            maxContent=maxContent, callAfterReads=self.calls.append
        )
        self.ledger, self.clock = fixture.ledger, fixture.clock
        access = None if makeAccess is None else makeAccess(fixture.clock)
        self.client = Client(fixture=fixture, access=access)
        self.submitted: list[int] = []
        submitMany = self.ledger.submitMany

        def note(requests: Sequence[Request]) -> Submission:
            self.submitted.append(len(requests))
            return submitMany(requests)

        self.patch(self.ledger, "submitMany", note)
        self.open("topic=t")
        self.submitted.clear()

    def open(self, query: str) -> None:
        """Open a topic, in a turn of its own."""
        self.ask(requestBytes("GET", f"{BASE}/rest/open?{query}", headers=basic("root")))

    def send(self, *requests: bytes) -> list[Connection]:
        """Send each request on a connection of its own, in one turn."""
        connections = []
        for request in requests:
            connections.append(self.client.connect())
            connections[-1].send(request)
        return connections

    def endTurn(self) -> None:
        """Everything was read."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def ask(self, *requests: bytes) -> list[Any]:
        """What is answered to requests of one turn: JSON, or nothing with status 204."""
        connections = self.send(*requests)
        self.endTurn()
        answers = [answer for each in connections for answer in each.answers()]
        self.assertEqual(len(answers), len(requests))
        return [None if each.status == 204 else each.json() for each in answers]


class BatchTests(BatchTestCase):
    def test_publishesOfOneTurnAreOneSubmission(self) -> None:
        connections = self.send(*(publish(str(number)) for number in range(5)))
        self.assertEqual([each.answers() for each in connections], [[]] * 5)
        self.assertEqual(self.submitted, [])
        self.endTurn()
        ids = [each.answers()[0].json()["eventId"] for each in connections]
        self.assertEqual(self.submitted, [5])
        for number, id in enumerate(ids):
            content = self.client.rest(f"getEvent?eventId={id}")["content"]
            self.assertEqual(b64decode(content), b"%d" % number)

    def test_connectionsCountEventsThatTheirClientsSend(self) -> None:
        """Alone, together with others, and in batches; refused ones, but no other calls."""
        params = {"topic": "t", "content": "eA=="}
        call = {"jsonrpc": "2.0", "method": "publish", "params": params}
        wrong = {**call, "id": 1, "params": {"topic": "t", "content": "?"}}
        other = {"jsonrpc": "2.0", "id": 1, "method": "exist", "params": {"topic": "t"}}
        batches = ([call] * 3, [call, wrong, other, call])
        posts = [
            requestBytes("POST", f"{BASE}/jsonrpc", json.dumps(each).encode()) for each in batches
        ]
        for requests, sent in (
            ([publish()], [1]),
            ([publish(), publish(topic="never"), rpc("publish", **params)], [1] * 3),
            ([rpc("exist", topic="t"), *posts], [0, 3, 3]),
        ):
            connections = self.send(*requests)
            self.endTurn()
            found = [each.channel.client().sent for each in connections]
            self.assertEqual(found, sent)

    def test_loneAnswersAreThoseOfABatch(self) -> None:
        requests = [
            publish(),
            publish("a%2B", **{"Idempotency-Key": "k"}),
            publish("b", **{"Idempotency-Key": "k"}),
            publish(""),
            publish(topic="never"),
            publish(topic="a%2Fb%23"),
            publish("x&groupId=9"),
            publish("x&expectedSequence=7"),
            publish("x&svc-a=%ff"),
            requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x"),
            requestBytes("POST", f"{BASE}/rest/publish", b"{}", {"Content-Type": "text/plain"}),
            rpc("publish", "a", topic="t", content="eA=="),
            rpc("publish", None, topic="t", content="eA=="),
            rpc("publish", 2, topic="t", content="?"),
            rpc("publish", 3, topic="never", content="eA=="),
            rpc("publish", None, topic="never", content="eA=="),
            rpc("exist", 4, topic="t"),
            rpc("never", 5),
        ]
        batched = self.ask(*requests)
        self.assertEqual(self.submitted, [7])
        self.make()
        alone = [answer for request in requests for answer in self.ask(request)]
        self.assertEqual(batched, alone)
        self.assertEqual(batched[0]["status"], "SUCCESS")

    def test_nextRequestsOfAConnectionAreAnsweredInOrder(self) -> None:
        exist = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
        [first, second] = self.send(publish() + exist + publish(), publish())
        self.endTurn()
        self.assertEqual(len(first.answers()), 2)
        self.assertEqual(len(second.answers()), 1)
        self.endTurn()
        self.assertEqual(len(first.answers()), 1)
        self.assertEqual(self.submitted, [2, 1])

    def test_largeEventsAreSubmittedApart(self) -> None:
        size = MAX_BATCH_BYTES // 3
        self.make(maxContent=4 * size)
        sizes = (size, size, size, 4 * size, 1, size, 1, size)
        for answer in self.ask(*(publish("x" * each) for each in sizes)):
            self.assertEqual(answer["status"], "SUCCESS")
        self.assertEqual(self.submitted, [3, 1, 4])

    def test_topicsOfBatchAreOpenedTogether(self) -> None:
        """Calls that open, close or publish are submitted before one of them is answered."""
        held: list[tuple[Sequence[Request], Submission]] = []

        def hold(requests: Sequence[Request]) -> Submission:
            held.append((requests, Submission(len(requests))))
            return held[-1][1]

        submitMany = self.ledger.submitMany
        self.patch(self.ledger, "submitMany", hold)
        entries = [("open", "a"), ("open", "b"), ("open", "a+"), ("exist", "a"), ("open", "c")]
        entries += [("publish", "c"), ("close", "a"), ("close", "b")]
        batch = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": method,
                "params": {"topic": topic, **({"content": ""} if method == "publish" else {})},
            }
            for number, (method, topic) in enumerate(entries)
        ]
        body = json.dumps(batch).encode()
        [connection] = self.send(requestBytes("POST", f"{BASE}/jsonrpc", body))
        together = []
        while not (answers := connection.answers()):
            self.endTurn()
            waiting, held[:] = list(held), []
            together.append([getattr(each, "topic", "") for part, _ in waiting for each in part])
            for requests, submission in waiting:
                done = self.successResultOf(submitMany(requests).done)
                submission.settle(0, [each for each in done.outcomes if each is not None])
        self.assertEqual(together, [["a", "b"], ["c", "a", "b"]])
        told = answers[0].json()
        found = [each["result"] if "result" in each else each["error"]["code"] for each in told]
        self.assertEqual(found[:2] + found[3:5], ["true"] * 4)
        self.assertEqual(found[6:], ["true"] * 2)
        self.assertEqual([found[2], found[5]], [-32005, -32010])

    def test_unknownOutcomesAreTimeouts(self) -> None:
        self.ledger.isHolding = True
        connections = self.send(publish(), publish())
        self.endTurn()
        self.clock.advance(TIMEOUT)
        for each in connections:
            self.assertEqual(each.answers()[0].json()["status"], "TIMEOUT")
            each.send(requestBytes("GET", f"{BASE}/rest/exist?topic=t"))
            self.assertEqual(len(each.answers()), 1)
        self.ledger.release()
        self.assertEqual([each.answers() for each in connections], [[], []])

    def test_errorOfTheLedgerIsAnsweredToEach(self) -> None:
        for error in (Overloaded(), LedgerUnavailable("full")):
            self.ledger.error = error
            answers = self.ask(publish(), rpc("publish", 1, topic="t", content="eA=="), publish())
            self.assertEqual([answers[0]["code"], answers[2]["code"]], [error.code] * 2)
            self.assertEqual(answers[1]["error"]["data"]["code"], error.code)

    def test_unexpectedErrorIsAnsweredToEach(self) -> None:
        self.ledger.error = ZeroDivisionError()
        answers = self.ask(publish(), publish())
        self.assertEqual([each["code"] for each in answers], [200203] * 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_groupWaitsForNoOther(self) -> None:
        """Where the ledger of one group is slow, publishes to another are answered."""
        self.open("topic=t&groupId=2")
        self.fixture.second.isHolding = True
        connections = self.send(
            publish("x&groupId=2"),
            rpc("publish", 1, topic="t", content="eA==", groupId="2"),
            publish(),
            rpc("publish", 2, topic="t", content="eA=="),
        )
        self.endTurn()
        self.assertEqual([len(each.answers()) for each in connections], [0, 0, 1, 1])

    def test_unexpectedErrorInParametersIsAnsweredToEach(self) -> None:
        self.patch(_types, "checkTopicName", lambda name: 1 / 0)
        call = rpc("publish", 1, topic="t", content="eA==")
        answers = self.ask(publish(), call, publish(), call)
        self.assertEqual(answers[0]["code"], 200203)
        self.assertEqual(answers[2]["code"], 200203)
        errors = self.flushLoggedErrors(ZeroDivisionError)
        self.assertEqual((len(answers), len(errors)), (4, 4))

    def test_clientThatLeavesConcernsNoOther(self) -> None:
        self.ledger.isHolding = True
        before, after, other = self.send(publish(), publish(), publish())
        before.disconnect()
        self.endTurn()
        after.disconnect()
        self.ledger.release()
        self.assertEqual(other.answers()[0].json()["status"], "SUCCESS")
        self.assertEqual(before.answers() + after.answers(), [])
        self.assertEqual(self.submitted, [2])

    def test_connectionThatFailsConcernsNoOther(self) -> None:
        first, second, third = self.send(publish(), publish(), publish())

        def fail(data: bytes) -> None:
            raise ZeroDivisionError()

        self.patch(second.transport, "write", fail)
        self.endTurn()
        self.assertEqual([len(each.answers()) for each in (first, second, third)], [1, 0, 1])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_publishesOfADrainedSiteAreAnswered(self) -> None:
        connections = self.send(publish(), publish())
        drained = self.client.site.drain()
        self.endTurn()
        self.assertEqual([len(each.answers()) for each in connections], [1, 1])
        self.successResultOf(drained)


class AccountTests(BatchTestCase):
    """Publishes of several accounts."""

    def makeAccess(self, clock: Any) -> Access:
        accounts = Accounts(
            account("ann", "publish 1 t"),
            account("bob", "publish 1 u"),
            account("cid", "publish 1 t", quotas=Quotas(publishes=1)),
            account("root", "* * #"),
        )
        access = Access([accounts], clock, clock.seconds, limits=MANY)
        self.addCleanup(access.stop)
        return access

    def setUp(self) -> None:
        self.make(self.makeAccess)

    def test_accountsShareASubmission(self) -> None:
        names = ("ann", "root", "ann", "bob", "root", "bob")
        # The first request of an account is handled by twisted.web, which logs it in.
        for name in names:
            self.ask(publish(**basic(name)))
        self.submitted.clear()
        answers = self.ask(*(publish(**basic(name)) for name in names))
        self.assertEqual(self.submitted, [4])
        found = [answer.get("status", answer.get("code")) for answer in answers]
        self.assertEqual(found, ["SUCCESS", "SUCCESS", "SUCCESS", 101016, "SUCCESS", 101016])

    def test_quotaCountsEachPublish(self) -> None:
        first, second = self.send(publish(**basic("cid")), publish(**basic("cid")))
        self.endTurn()
        self.assertEqual(first.answers()[0].json()["status"], "SUCCESS")
        self.assertEqual(second.answers(), [])
        self.clock.advance(1)
        self.assertEqual(second.answers()[0].json()["code"], 200101)


class TracedTests(BatchTestCase):
    """A broker that makes spans."""

    def test_tracedPublishesAreMadeAloneAndSubmittedTogether(self) -> None:
        self.fixture.broker.isTraced = True
        self.client = Client(fixture=self.fixture)
        made: list[int] = []
        publishMany = self.fixture.broker.publish

        def note(principal: Any, publications: Sequence[Any], *policy: Any) -> Any:
            made.append(len(publications))
            return publishMany(principal, publications, *policy)

        self.patch(self.fixture.broker, "publish", note)
        self.client = Client(fixture=self.fixture)
        connections = self.send(publish(), publish())
        self.assertEqual(made, [1, 1])
        self.endTurn()
        self.assertEqual([len(each.answers()) for each in connections], [1, 1])
        self.assertEqual(self.submitted, [2])
