"""
SEND and transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.carriers.stomp.frames import StompSettings
from svcbroker.carriers.stomp.session import FRAMES_AT_ONCE
from svcbroker.errors import LedgerUnavailable
from svcbroker.model import Event, EventId, Execution, Receipt
from svcbroker.net.budgets import READS_AT_ONCE, WRITES_A_TURN
from tests.broker.support import TIMEOUT, makeFixture

from .support import Client, Server, event, frame


class SendTests(SynchronousTestCase):
    """SEND outside transactions."""

    def test_sendMakesAnEvent(self) -> None:
        """Destination, body, C{groupId} and all headers that STOMP does not use make the event."""
        server = Server()
        self.successResultOf(server.fixture.broker.open(ANYBODY, "2", "c"))
        client = server.connect()
        headers = {"svc-k": "1\\c2", "x": "y", "groupId": "1", "content-length": "3"}
        answer = client.ask("SEND", {"destination": "a", "receipt": "r", **headers}, b"\0\xff\n")
        self.assertEqual((answer.command, answer["receipt-id"]), ("RECEIPT", "r"))
        self.assertEqual(answer["eventId"].split("-")[1], "1")
        [request] = server.published
        self.assertEqual((request.topic, request.content), ("a", b"\0\xff\n"))
        self.assertEqual(request.extensions, {"svc-k": "1:2", "svc-stomp": '{"x":"y"}'})
        answer = client.ask("SEND", {"destination": "c", "groupId": "2", "receipt": "r"}, b"x")
        self.assertEqual(answer["eventId"].split("-")[1], "1")

    def test_framesOfOneTurnAreOneSubmission(self) -> None:
        """Of all connections, where the reactor makes calls after its reads."""
        ends: list[Any] = []
        server = Server(fixture=makeFixture(callAfterReads=ends.append))
        clients = [server.connect() for _ in range(3)]
        while ends:
            ends.pop(0)()
        submitted: list[int] = []
        ledger = server.fixture.ledger
        submitMany = ledger.submitMany

        def note(requests: Sequence[Any]) -> Any:
            submitted.append(len(requests))
            return submitMany(requests)

        self.patch(ledger, "submitMany", note)
        for client, topic in zip(clients, ("a", "absent", "b"), strict=True):
            client.send("SEND", {"destination": topic, "receipt": topic}, b"x")
        self.assertEqual(submitted, [])
        while ends:
            ends.pop(0)()
        self.assertEqual(submitted, [2])
        answers = [each for client in clients for each in client.frames()]
        self.assertEqual([each.command for each in answers], ["RECEIPT", "ERROR", "RECEIPT"])
        self.assertEqual([each["receipt-id"] for each in answers], ["a", "absent", "b"])

    def test_loneSendIsPublishedDirectly(self) -> None:
        """One that is all that came; and one that is not, in its turn."""
        server = Server()
        client = server.connect()
        session = client.protocol._session
        found: list[bool] = []
        direct = session.onlyPublish

        def note(data: bytes, now: float) -> Any:
            publish = direct(data, now)
            found.append(publish is not None)
            return publish

        self.patch(session, "onlyPublish", note)
        send = frame("SEND", {"destination": "a", "receipt": "1"}, b"x")
        for data in (send, send[:9], send[9:], send + send, send + b"\n", b"\n" + send, send):
            client.sendBytes(data)
        self.assertEqual(found, [True, False, False, False, False, False, True])
        self.assertEqual([each["receipt-id"] for each in client.frames()], ["1"] * 7)

    def test_connectionCountsWhatIsSent(self) -> None:
        """Outside transactions and in them."""
        client = Server().connect()
        client.ask("SEND", {"destination": "a", "receipt": "1"}, b"x")
        client.send("BEGIN", {"transaction": "t"})
        for _ in range(2):
            client.send("SEND", {"destination": "a", "transaction": "t"}, b"x")
        self.assertEqual(client.protocol.client().sent, 1)
        client.ask("COMMIT", {"transaction": "t", "receipt": "2"})
        self.assertEqual(client.protocol.client().sent, 3)

    def test_emptyMessageIsPublished(self) -> None:
        """STOMP may carry an empty message."""
        server = Server()
        server.connect().ask("SEND", {"destination": "a", "receipt": "1"})
        self.assertEqual([each.content for each in server.published], [b""])

    def test_userHeadersComeBack(self) -> None:
        """Through the log, in any version that can carry them, but not in place of ours."""
        headers = {
            "content-type": "text/plain;charset=utf-8",
            "correlation-id": "1\\c2\\n3",
            "message-id": "mine",
            "redelivered": "true",
            "svc-tag": "red",
        }
        server = Server()
        server.connect().send("SEND", {"destination": "a", **headers}, b"x")
        [request] = server.published
        for version, own in (
            ("1.2", {"content-type": headers["content-type"], "correlation-id": "1:2\n3"}),
            ("1.0", {"content-type": headers["content-type"]}),
        ):
            client = server.connect(version)
            client.send("SUBSCRIBE", {"id": "1", "destination": "a"})
            server.fake.made[-1].publish(
                Event(
                    topic="a",
                    content=b"x",
                    extensions=request.extensions,
                    eventId=EventId("0123abcd", 1, 1),
                )
            )
            [message] = client.frames()
            found = {
                name: value
                for name, value in message.headers.items()
                if name in {*headers, "svc-stomp"}
            }
            self.assertEqual(
                found, {**own, "message-id": "1-0123abcd-1-1", "svc-tag": "red"}, version
            )

    def test_userHeadersAreBounded(self) -> None:
        """They count as extensions do."""
        client = Server().connect()
        answer = client.ask("SEND", {"destination": "a", "x": "y" * 9000, "receipt": "1"}, b"x")
        self.assertEqual((answer.command, answer["code"]), ("ERROR", "100204"))

    def test_noReceipt(self) -> None:
        server = Server()
        client = server.connect()
        client.send("SEND", {"destination": "a"}, b"x")
        self.assertEqual(client.frames(), [])
        self.assertEqual(len(server.published), 1)

    def test_receiptWhenFinal(self) -> None:
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        self.assertEqual(client.frames(), [])
        server.fixture.ledger.release()
        self.assertEqual(client.frames()[0]["receipt-id"], "1")

    def test_refusalsHaveTheCodesOfTheTable(self) -> None:
        """Refusals have the codes of the table, whether a receipt was asked for or not."""
        for headers, code in (
            ({}, "100103"),
            ({"destination": " "}, "100103"),
            ({"destination": "a+"}, "100106"),
            ({"destination": "x" * 257}, "100102"),
            ({"destination": "none"}, "100101"),
            ({"destination": "a", "groupId": "9"}, "200211"),
            ({"destination": "a", "svc-x": "y" * 9000}, "100204"),
            ({"destination": "a", "transaction": "t"}, "100600"),
        ):
            for more in ({}, {"receipt": "r"}):
                answer = Server().connect().ask("SEND", {**headers, **more}, b"x")
                self.assertEqual((answer.command, answer["code"]), ("ERROR", code), headers)
                self.assertEqual(answer.headers.get("receipt-id"), more.get("receipt"))

    def test_unknownGroupsAreNamed(self) -> None:
        answer = Server().connect().ask("SEND", {"destination": "a", "groupId": "9" * 200}, b"x")
        self.assertEqual(answer["message"], "group is unknown: " + "9" * 100)

    def test_refusedByTheChain(self) -> None:
        """Time-outs and refusals by the chain are errors too."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a", "receipt": "1"}, b"x")
        server.fixture.clock.advance(TIMEOUT)
        self.assertEqual(client.frames()[0]["code"], "200201")
        for execution, code in (
            (Execution.TOPIC_NOT_FOUND, "100101"),
            (Execution.REPEATED, "200202"),
        ):
            server = Server()
            server.fixture.ledger.receipt = Receipt(
                execution=execution, transactionHash=b"", height=1
            )
            answer = server.connect().ask("SEND", {"destination": "a"}, b"x")
            self.assertEqual(answer["code"], code)
        server = Server()
        server.fixture.ledger.error = LedgerUnavailable()
        self.assertEqual(server.connect().ask("SEND", {"destination": "a"})["code"], "200214")

    def test_unexpectedErrorsShowAnIncident(self) -> None:
        """A client sees an incident's number, the log has the cause."""
        server = Server()
        server.fixture.ledger.error = ZeroDivisionError("secret")
        answer = server.connect().ask("SEND", {"destination": "a"}, b"x")
        self.assertEqual(answer["code"], "200203")
        self.assertIn("incident-id", answer["message"])
        self.assertNotIn(b"secret", answer.body)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_answersKeepTheOrderOfFrames(self) -> None:
        """Answers keep the order of their frames: all before an ERROR were carried out."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.sendBytes(
            frame("SEND", {"destination": "a", "receipt": "1"}, b"x")
            + frame("BEGIN", {"transaction": "t", "receipt": "2"})
            + frame("SEND", {"destination": "none", "receipt": "3"}, b"x")
            + frame("SEND", {"destination": "a", "receipt": "4"}, b"x")
        )
        self.assertEqual(client.frames(), [])
        server.fixture.ledger.release()
        frames = client.frames()
        self.assertEqual([each["receipt-id"] for each in frames], ["1", "2", "3"])
        self.assertEqual(frames[2].command, "ERROR")

    def test_sendsOfOneReadAreSubmittedTogether(self) -> None:
        """SENDs of one read go to the log in their order, and are answered with one write."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.sendBytes(
            b"".join(
                frame("SEND", {"destination": "a", "receipt": f"{number}"}, b"%d" % number)
                for number in range(5)
            )
            + frame("SEND", {"destination": "a"}, b"5")
        )
        self.assertEqual([each.content for each in server.published], [b"%d" % n for n in range(6)])
        writes = client.transport.writes
        writes.clear()
        server.fixture.ledger.release()
        self.assertEqual(len(writes), 1)
        frames = client.frames()
        self.assertEqual([each["receipt-id"] for each in frames], [f"{n}" for n in range(5)])
        self.assertEqual([each["eventId"].split("-")[1] for each in frames], list("12345"))

    def test_someRefused(self) -> None:
        """What comes of one of several is nothing to the others; an ERROR is the last answer."""
        server = Server()
        client = server.connect()
        client.sendBytes(
            frame("SEND", {"destination": "a", "receipt": "1"}, b"1")
            + frame("SEND", {"destination": "none", "receipt": "2"}, b"2")
            + frame("SEND", {"destination": "a", "receipt": "3"}, b"3")
        )
        commands = [(each.command, each["receipt-id"]) for each in client.frames()]
        self.assertEqual(commands, [("RECEIPT", "1"), ("ERROR", "2")])
        self.assertEqual([each.content for each in server.published], [b"1", b"3"])

    def test_receiptEscaped(self) -> None:
        """A receipt comes back as it was sent."""
        self.assertEqual(
            Server()
            .connect("1.1")
            .ask("BEGIN", {"transaction": "1", "receipt": "a\\cb\\\\"})["receipt-id"],
            "a:b\\",
        )


class BoundsTests(SynchronousTestCase):
    """What waits for the chain is bounded."""

    def test_tooManyPublishesPauseReading(self) -> None:
        """While too many publishes wait, no more is read; they go on as soon as some are done."""
        server = Server(StompSettings(maxPublishes=3))
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.sendBytes(
            b"".join(
                frame("SEND", {"destination": "a", "receipt": str(number)}, b"x")
                for number in range(10)
            )
        )
        self.assertEqual(len(server.published), 3)
        self.assertFalse(client.transport.isRead)
        got = []
        while not client.transport.isRead:
            self.assertLessEqual(server.waitingPublishes(), 3)
            server.fixture.ledger.release()
            got += [each["receipt-id"] for each in client.frames()]
        server.fixture.ledger.release()
        got += [each["receipt-id"] for each in client.frames()]
        self.assertEqual(got, [str(number) for number in range(10)])

    def test_tooManyPublishedBytesPauseReading(self) -> None:
        server = Server(StompSettings(maxPublishBytes=100))
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a"}, b"x" * 99)
        self.assertTrue(client.transport.isRead)
        client.send("SEND", {"destination": "a"}, b"x" * 99)
        self.assertFalse(client.transport.isRead)
        server.fixture.ledger.release()
        self.assertTrue(client.transport.isRead)

    def test_longReceiptsPauseReading(self) -> None:
        """Receipts wait with the answers, and may be as long as all headers of a frame."""
        server = Server(StompSettings(maxPublishBytes=10_000))
        server.fixture.ledger.isHolding = True
        client = server.connect()
        client.send("SEND", {"destination": "a"}, b"x")
        frames = [{"transaction": f"{n}", "receipt": f"{n}".ljust(3000, ".")} for n in range(9)]
        client.sendBytes(b"".join(frame("BEGIN", headers) for headers in frames))
        self.assertFalse(client.transport.isRead)
        answers = client.protocol._session._answers
        self.assertEqual(answers.count, 5)
        server.fixture.ledger.release()
        self.assertEqual(
            [each["receipt-id"] for each in client.frames()], [each["receipt"] for each in frames]
        )
        self.assertTrue(client.transport.isRead)
        self.assertEqual(answers.size, 0)

    def test_manyAtOnce(self) -> None:
        """A read full of frames that are answered at once is no recursion."""
        server = Server(StompSettings(maxPublishes=1))
        client = server.connect()
        client.sendBytes(frame("SEND", {"destination": "a", "receipt": "1"}, b"x") * 3000)
        self.assertEqual(len(client.frames()), 3000)

    def test_unreadAnswersPauseReading(self) -> None:
        """Who asks for answers and reads none is not read from."""
        server = Server(StompSettings(maxUnread=100))
        client = server.connect()
        client.stopReading()
        data = frame("BEGIN", {"transaction": "t", "receipt": "1"}) + frame(
            "ABORT", {"transaction": "t", "receipt": "2"}
        )
        for _ in range(3):
            self.assertTrue(client.transport.isRead)
            client.sendBytes(data)
        self.assertFalse(client.transport.isRead)
        client.goOnReading()
        self.assertTrue(client.transport.isRead)
        self.assertEqual(len(client.frames()), 6)


class InputTests(SynchronousTestCase):
    """Bytes that wait for a turn count as input."""

    def setUp(self) -> None:
        self.server = Server()
        self.budget = self.server.fixture.broker.budgets.input
        work = self.server.fixture.broker.budgets.work
        # Each look at the clock takes time.
        work.seconds = count(0, WRITES_A_TURN / 2).__next__

    def test_waitingFramesCount(self) -> None:
        """Those that are not read, and those that are not published; until they are."""
        data = frame("SEND", {"destination": "a"}, b"x" * 100) * 200
        clients = [self.server.connect() for _ in range(3)]
        for client in clients:
            client.sendBytes(data)
        self.assertGreater(self.budget.used, 2 * len(data))
        for _ in range(200):
            self.server.fixture.clock.advance(0)
        self.assertEqual(len(self.server.published), 600)
        self.assertEqual(self.budget.used, 0)

    def test_framesWithoutRoomAreRefused(self) -> None:
        data = frame("SEND", {"destination": "a"}, b"x" * 100) * 200
        clients = [self.server.connect() for _ in range(5)]
        self.budget.total = self.budget.own = 2 * len(data)
        for client in clients:
            client.sendBytes(data)
        self.assertLessEqual(self.budget.used, self.budget.total)
        self.assertEqual(clients[-1].frames()[0].command, "ERROR")
        for client in clients:
            if client.isOpen:
                client.disconnect()
        self.assertEqual(self.budget.used, 0)


class FloodTests(SynchronousTestCase):
    """Thousands of frames in one read, in a turn that has no time for further reads."""

    def setUp(self) -> None:
        self.server = Server()
        self.client = self.server.connect()
        self.work = self.server.fixture.broker.budgets.work
        self.work.submitted(1)
        self.work.lane().begin(isWrite=False)
        self.work.used[0] = READS_AT_ONCE

    def test_framesBehindManyWaitWithReads(self) -> None:
        """They may publish nothing, and do not come before the publishes of others."""
        client = self.client
        begins = frame("BEGIN", {"transaction": "1"}) + frame("ABORT", {"transaction": "1"})
        client.sendBytes(begins * FRAMES_AT_ONCE + frame("BEGIN", {"transaction": "2"}))
        self.assertFalse(client.transport.isRead)
        self.assertGreater(client.protocol._session._parser.buffered, 0)
        self.work.settled(1)
        for _ in range(5):
            self.server.fixture.clock.advance(1)
        self.assertTrue(client.transport.isRead)
        self.assertEqual(client.protocol._session._parser.buffered, 0)

    def test_subscriptionsWaitWithReads(self) -> None:
        """They publish nothing, and do not take the time of publishes."""
        client = self.client
        client.sendBytes(frame("SUBSCRIBE", {"id": "1", "destination": "t", "receipt": "r"}))
        self.assertEqual(client.frames(), [])
        self.work.settled(1)
        self.server.fixture.clock.advance(1)
        self.assertEqual([each.command for each in client.frames()], ["RECEIPT"])


class TransactionTests(SynchronousTestCase):
    """BEGIN, COMMIT, ABORT."""

    def begin(self, server: Server) -> Client:
        """A connection with an open transaction C{t}."""
        client = server.connect()
        client.send("BEGIN", {"transaction": "t"})
        return client

    def test_framesOfTransactionsCountAsInput(self) -> None:
        """With what they take beside their content: many small ones, and headers."""
        server = Server()
        client = self.begin(server)
        budget = server.fixture.broker.budgets.input
        client.send("SEND", {"destination": "a", "transaction": "t", "svc-x": "x" * 3000}, b"1")
        self.assertGreater(budget.used, 3500)
        before = budget.used
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"2")
        self.assertGreater(budget.used, before + 500)
        client.send("ABORT", {"transaction": "t"})
        self.assertEqual(budget.used, 0)

    def test_commitPublishesEverythingInOrder(self) -> None:
        """Nothing before COMMIT, then everything in order; the receipt names the events."""
        server = Server()
        client = self.begin(server)
        for content in (b"1", b"2", b"3"):
            client.send("SEND", {"destination": "a", "transaction": "t"}, content)
        client.send("SEND", {"destination": "b"}, b"outside")
        self.assertEqual([each.content for each in server.published], [b"outside"])
        answer = client.ask("COMMIT", {"transaction": "t", "receipt": "r"})
        self.assertEqual([each.content for each in server.published[1:]], [b"1", b"2", b"3"])
        ids = answer["eventId"].split(",")
        self.assertEqual([each.split("-")[1] for each in ids], ["1", "2", "3"])

    def test_receiptInside(self) -> None:
        """A SEND in a transaction is received at once, so that who waits can go on."""
        answer = self.begin(Server()).ask(
            "SEND", {"destination": "a", "transaction": "t", "receipt": "r"}, b"x"
        )
        self.assertEqual(answer.headers, {"receipt-id": "r"})

    def test_abortPublishesNothing(self) -> None:
        server = Server()
        client = self.begin(server)
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"x")
        self.assertEqual(
            client.ask("ABORT", {"transaction": "t", "receipt": "r"}).command, "RECEIPT"
        )
        self.assertEqual(client.ask("COMMIT", {"transaction": "t"})["code"], "100600")
        self.assertEqual(server.published, [])

    def test_transactionNameIsFreeAfterItsEnd(self) -> None:
        """A name is free after COMMIT and ABORT, not before."""
        client = self.begin(Server())
        self.assertEqual(
            client.ask("COMMIT", {"transaction": "t", "receipt": "1"})["receipt-id"], "1"
        )
        client.send("BEGIN", {"transaction": "t"})
        client.send("ABORT", {"transaction": "t"})
        client.send("BEGIN", {"transaction": "t"})
        self.assertEqual(client.frames(), [])
        self.assertEqual(client.ask("BEGIN", {"transaction": "t"}).command, "ERROR")

    def test_lostConnectionAborts(self) -> None:
        """A lost connection aborts."""
        server = Server()
        client = self.begin(server)
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"x")
        client.disconnect()
        self.assertEqual(server.published, [])

    def test_allOrNothing(self) -> None:
        """A topic that is not there keeps the whole transaction from being published."""
        server = Server()
        client = self.begin(server)
        for topic in ("a", "none", "b"):
            client.send("SEND", {"destination": topic, "transaction": "t"}, b"x")
        answer = client.ask("COMMIT", {"transaction": "t", "receipt": "r"})
        self.assertEqual((answer["code"], answer["receipt-id"]), ("100101", "r"))
        self.assertEqual(server.published, [])

    def test_checkedAtOnce(self) -> None:
        """What can never be published is refused before COMMIT."""
        answer = self.begin(Server()).ask("SEND", {"destination": "#", "transaction": "t"}, b"x")
        self.assertEqual(answer["code"], "100106")

    def test_notOvertaken(self) -> None:
        """What is sent after COMMIT is published after it."""
        server = Server()
        client = self.begin(server)
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"1")
        client.sendBytes(
            frame("COMMIT", {"transaction": "t"}) + frame("SEND", {"destination": "a"}, b"2")
        )
        self.assertEqual([each.content for each in server.published], [b"1", b"2"])

    def test_oneFails(self) -> None:
        """The error of the first that failed."""
        server = Server()
        server.fixture.ledger.isHolding = True
        client = self.begin(server)
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"1")
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"2")
        client.send("COMMIT", {"transaction": "t", "receipt": "r"})
        server.fixture.clock.advance(TIMEOUT)
        [answer] = client.frames()
        self.assertEqual((answer["code"], answer["receipt-id"]), ("200201", "r"))

    def test_transactionsAreBounded(self) -> None:
        settings = StompSettings(maxTransactions=2, maxTransactionFrames=3, maxTransactionBytes=10)
        client = self.begin(Server(settings))
        client.send("BEGIN", {"transaction": "u"})
        self.assertEqual(client.ask("BEGIN", {"transaction": "v"})["code"], "200101")
        client = self.begin(Server(settings))
        for _ in range(3):
            client.send("SEND", {"destination": "a", "transaction": "t"}, b"x")
        client.send("ABORT", {"transaction": "t"})
        client.send("BEGIN", {"transaction": "t"})
        client.send("SEND", {"destination": "a", "transaction": "t"}, b"x" * 10)
        self.assertEqual(client.frames(), [])
        answer = client.ask("SEND", {"destination": "a", "transaction": "t"}, b"x")
        self.assertEqual(answer["code"], "200101")

    def test_ackCountsOnceItsTransactionIsPublished(self) -> None:
        """An ACK in a transaction counts once what was made of it is published."""
        server = Server()
        client = self.begin(server)
        client.send("SUBSCRIBE", {"id": "1", "destination": "a", "ack": "client"})
        [made] = server.fake.made
        made.publish(event(1), event(2))
        acks = [each["ack"] for each in client.frames()]
        client.send("ACK", {"id": acks[0], "transaction": "t"})
        client.send("SEND", {"destination": "b", "transaction": "t"}, b"x")
        self.assertEqual(made.acknowledged, [])
        server.fixture.ledger.isHolding = True
        client.send("COMMIT", {"transaction": "t"})
        self.assertEqual(made.acknowledged, [])
        server.fixture.ledger.release()
        self.assertEqual(made.acknowledged, [event(1)])
        client.send("BEGIN", {"transaction": "t"})
        client.send("ACK", {"id": acks[1], "transaction": "t"})
        client.send("ABORT", {"transaction": "t"})
        self.assertEqual(made.acknowledged, [event(1)])
        client.send("BEGIN", {"transaction": "t"})
        client.send("ACK", {"id": acks[1], "transaction": "t"})
        client.send("COMMIT", {"transaction": "t"})
        self.assertEqual(made.acknowledged, [event(1), event(2)])
