"""
Hostile clients: no input makes a traceback, an unbounded buffer or a wedged connection.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.carrier import LINGER
from svcbroker.carriers.stomp.frames import FrameLimits, StompSettings
from tests import examples

from .support import Client, Server, event

_SETTINGS = StompSettings(
    frames=FrameLimits(maxHeaders=8, maxHead=300, maxBody=200),
    maxPublishes=4,
    maxPublishBytes=500,
    maxSubscriptions=3,
    maxUnacknowledgedBytes=3000,
    maxTransactions=2,
    maxTransactionFrames=5,
    maxTransactionBytes=300,
    maxUnread=1000,
)

_COMMANDS = (
    *("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"),
    *("DISCONNECT", "CONNECT", "STOMP", "MESSAGE", "RECEIPT", "send", "", "GET / HTTP/1.1"),
)
_NAMES = (
    *("destination", "id", "receipt", "transaction", "ack", "message-id", "subscription"),
    *("content-length", "prefetch-count", "groupId", "eventId", "svc-tag", "svc-x", "heart-beat"),
    *("svc-subscriptionId", "accept-version", "requeue", ""),
)
_VALUES = (
    *("a", "b", "a,b", "#", "+/+", "none", "1", "2", "0", "-1", "99999999999999999999", "auto"),
    *("client", "client-individual", "1-0123abcd-1-1", "1-0123abcd-2-2", "2-0123abcd-1-1"),
    *("OFFSET_FIRST", "0123abcd-1-1", "x\\c", "\\t", "ä", "1.0,1.1,1.2", "1,1", "false", ""),
)


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    command = draw(st.sampled_from(_COMMANDS))
    headers = draw(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_VALUES), max_size=5))
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    end = draw(st.sampled_from([b"\0", b"\0\n", b"\0\r\n", b"", b"body\0", b"x" * 150 + b"\0"]))
    return f"{command}\n{lines}\n".encode() + end


# Frames that do something, so that the sessions get somewhere.
_GOOD = st.sampled_from(
    [
        b"SEND\ndestination:a\nreceipt:1\n\nx\0",
        b"SUBSCRIBE\nid:1\ndestination:a\nack:client\nprefetch-count:2\n\n\0",
        b"SUBSCRIBE\nid:2\ndestination:#\nack:client-individual\n\n\0",
        b"SUBSCRIBE\nid:3\ndestination:a\n\n\0",
        b"UNSUBSCRIBE\nid:1\n\n\0",
        b"NACK\nid:1-0123abcd-1-1\nmessage-id:1-0123abcd-1-1\nsubscription:1\n\n\0",
        b"ACK\nid:1-0123abcd-2-2\nmessage-id:1-0123abcd-2-2\nsubscription:1\n\n\0",
        b"BEGIN\ntransaction:t\n\n\0",
        b"SEND\ndestination:a\ntransaction:t\n\nx\0",
        b"COMMIT\ntransaction:t\nreceipt:2\n\n\0",
    ]
)
_STEPS = st.one_of(
    st.tuples(st.just("bytes"), st.one_of(_GOOD, _GOOD, _frames(), st.binary(max_size=40))),
    st.tuples(
        st.sampled_from(["stall", "unstall", "hold", "release", "time", "deliver", "held"]),
        st.just(b""),
    ),
)


class HostileTests(SynchronousTestCase):
    """Any bytes and any course of events."""

    @settings(deadline=None, max_examples=examples(300))
    @given(
        version=st.sampled_from(["1.0", "1.1", "1.2", None]),
        steps=st.lists(_STEPS, max_size=25),
    )
    def test_anyInputKeepsBounds(self, version: str | None, steps: list[tuple[str, bytes]]) -> None:
        """
        Whatever arrives in whatever order: what is kept stays in its bounds, no subscription
        that was paused is handed anything, and the connection can always be brought to its end.
        """
        server = Server(_SETTINGS)
        client = server.client() if version is None else server.connect(version)
        number = 0
        for step, data in steps:
            if not client.isOpen:
                break
            if step == "bytes":
                # Who is not read from waits in the kernel.
                if client.transport.isRead:
                    client.sendBytes(data)
            elif step == "stall":
                client.stopReading()
            elif step == "unstall":
                client.goOnReading()
            elif step == "hold":
                server.fixture.ledger.isHolding = True
                server.fake.isHolding = True
            elif step == "release":
                server.fixture.ledger.isHolding = False
                server.fixture.ledger.release()
                server.fake.isHolding = False
                server.fake.release()
            elif step == "held":
                server.fake.error = None if server.fake.error else ZeroDivisionError()
            elif step == "time":
                server.fixture.clock.advance(1.0)
            else:
                number += 1
                for made in server.fake.made:
                    made.publish(event(number), event(number, "b", b"y" * 50))
            self.check(server, client)
        self.end(server, client)
        self.flushLoggedErrors(ZeroDivisionError)

    @settings(deadline=None, max_examples=examples(150))
    @given(
        version=st.sampled_from(["1.0", "1.1", "1.2"]),
        reads=st.lists(st.one_of(_GOOD, _frames(), _frames().map(lambda data: data[:-1]))),
    )
    def test_loneSendIsTreatedAsAnyFrame(self, version: str, reads: list[bytes]) -> None:
        """
        A SEND that is all that came has a way of its own: it publishes and answers what the way of
        all frames does.
        """
        outcomes = []
        for isDirect in (True, False):
            server = Server(_SETTINGS)
            client = server.connect(version)
            if not isDirect:
                self.patch(client.protocol._session, "onlyPublish", lambda data, now: None)
            for data in reads:
                if client.isOpen and client.transport.isRead:
                    client.sendBytes(data)
            outcomes.append((client.transport.value(), client.isOpen, server.published))
            self.end(server, client)
        self.assertEqual(*outcomes)

    def check(self, server: Server, client: Client) -> None:
        """What is kept stays within its bounds."""
        client.frames()
        session = client.protocol._session
        self.assertLessEqual(session._parser.buffered, 2000)
        self.assertLessEqual(session._answers.count, _SETTINGS.maxPublishes + 2)
        self.assertLessEqual(server.waitingPublishes(), _SETTINGS.maxPublishes * 2 + 5)
        self.assertLessEqual(session._deliveries._account.used, 3000 + 200 + 512)
        self.assertLessEqual(len(session._deliveries._byKey), _SETTINGS.maxSubscriptions)
        self.assertLessEqual(len(session._transactions._open), _SETTINGS.maxTransactions)

    def end(self, server: Server, client: Client) -> None:
        """The chain answers, the client reads and goes: nothing is left."""
        server.fake.error = None
        server.fixture.ledger.isHolding = server.fake.isHolding = False
        if client.isOpen:
            client.goOnReading()
        # What is answered may let more frames through, which wait again.
        for _ in range(50):
            server.fixture.ledger.release()
            server.fake.release()
        if client.isOpen:
            self.assertTrue(client.transport.isRead)
            drained = server.factory.drain()
            server.fixture.clock.advance(LINGER)
            self.successResultOf(drained)
        self.assertFalse(client.isOpen)
        self.assertEqual(server.factory.protocols, {})
        self.assertTrue(all(each.isClosed for each in server.fake.made))
        server.fixture.broker.stop()
        self.assertEqual(server.fixture.clock.getDelayedCalls(), [])
