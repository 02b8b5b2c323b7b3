"""
Tests for confidential events in the clients, without I/O.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import ClosedEvent, Event, OpenedEvent, Publication
from svcbroker.client import _confidential as confidential
from svcbroker.client._core import opened, openedEvents
from svcbroker.client._effects import Delay
from svcbroker.proofs import readIdentities
from tests.needed import needPackage
from tests.proofs.test_age import FOREIGN, IDENTITY, OURS, RECIPIENT, SECRET, close

from .network import Network

TOPIC = "orders/new"
CANARY = b"canary 7f3a"


class ClosedPublishTests(SynchronousTestCase):
    def setUp(self) -> None:
        needPackage("pyrage", "encryption")
        self.network = Network()

    def test_brokerGetsNoPlainContent(self) -> None:
        """Neither a lone publish nor a batch has a plain content in any request."""
        core = self.network.core({"recipients": [RECIPIENT]})
        self.network.run(core.publish(TOPIC, CANARY, {"svc-content-type": "text/plain"}))
        self.network.run(core.publishMany([Publication(TOPIC, CANARY)] * 2))
        sent = b"".join(each.body for each in self.network.broker.requests)
        self.assertNotIn(CANARY, sent)
        for event in self.network.broker.log:
            self.assertLessEqual(OURS.items(), event.extensions.items())
        self.assertEqual(self.network.broker.log[0].extensions["svc-content-type"], "text/plain")

    def test_recipientsOfAnEventComeFirst(self) -> None:
        """An event's own recipients replace those of the client; none leaves it open."""
        other = confidential.newIdentity()
        core = self.network.core({"recipients": [RECIPIENT], "identities": [IDENTITY]})
        for recipients in (None, [other[1]], []):
            self.network.run(core.publish(TOPIC, CANARY, recipients=recipients))
        [first, second, third] = self.network.take(core.events(TOPIC))
        self.assertIsInstance(first, OpenedEvent)
        self.assertIsInstance(second, ClosedEvent)
        self.assertEqual((type(third), third.content), (Event, CANARY))

    def test_attemptsAreTheSameEvent(self) -> None:
        """An event that is sent again has the bytes of the first attempt."""
        self.network.broker.fates = ["lost after", "timeout after"]
        core = self.network.core({"recipients": [RECIPIENT]})
        self.network.run(core.publish(TOPIC, CANARY))
        self.assertEqual(len(self.network.broker.log), 1)

    def test_wrongRecipientsAreRefusedBeforeAnythingIsSent(self) -> None:
        for wrong in ([RECIPIENT[:-1]], RECIPIENT, [SECRET]):
            with self.assertRaisesRegex(ValueError, "recipients: "):
                self.network.core({"recipients": wrong})
            with self.assertRaisesRegex(ValueError, "recipients: "):
                Publication(TOPIC, b"x", recipients=wrong)
        with self.assertRaisesRegex(ValueError, "at most 255"):
            many = [confidential.newIdentity()[1] for _ in range(256)]
            self.network.core({"recipients": many})
        self.assertEqual(self.network.broker.requests, [])


class ClosedReadingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = Network()

    def append(self, content: bytes, extensions: dict[str, str] = FOREIGN) -> str:
        """Publish an event of somebody else."""
        return self.network.broker.append(TOPIC, content, extensions).eventId

    def test_eventsThatStayClosedHinderNoOthers(self) -> None:
        """Damaged and foreign contents are delivered as closed, with a reason, among the others."""
        good = close(b"open me")
        self.append(b"plain", {})
        self.append(good)
        self.append(good[:100])
        self.append(good[:-1])
        self.append(b"no age")
        self.append(good, {"svc-encrypted": "other"})
        self.append(good)
        core = self.network.core({"identities": [IDENTITY]})
        events = self.network.take(core.events(TOPIC))
        self.assertEqual([each.content for each in (events[0], events[1], events[-1])],
                         [b"plain", b"open me", b"open me"])  # fmt: skip
        reasons = [each.reason for each in events if isinstance(each, ClosedEvent)]
        self.assertEqual(
            reasons,
            [
                "its header is cut",
                "its content was changed, or is cut",
                "it is no file of age",
                "it is closed by something else than age",
            ],
        )
        self.assertEqual(events[2].content, good[:100])

    def test_withoutIdentityTheyAreClosed(self) -> None:
        eventId = self.append(close(b"x"))
        event = self.network.run(self.network.core().getEvent(eventId))
        assert isinstance(event, ClosedEvent)
        self.assertEqual(event.reason, "no identity is given")

    def test_erasedEventIsLeftAsItIs(self) -> None:
        event = Event(
            topic=TOPIC, content=b"", extensions=FOREIGN, eventId="00000000-1-1", erased=True
        )
        self.assertIs(opened(event, [IDENTITY]), event)

    def test_brokerCannotSayThatItWasOpened(self) -> None:
        """What a broker answers is never taken for what an identity has opened."""
        event = self.append(b"x", {})
        self.assertIs(type(self.network.run(self.network.core().getEvent(event))), Event)

    def test_identitiesComeFromAFile(self) -> None:
        path = Path(self.mktemp())
        path.write_text(f"# mine\n{SECRET}\n")
        eventId = self.append(close(b"x"))
        event = self.network.run(self.network.core({"identities": path}).getEvent(eventId))
        self.assertEqual((type(event), event.content), (OpenedEvent, b"x"))
        path.write_text("nothing")
        with self.assertRaisesRegex(ValueError, "line 1 is no identity"):
            self.network.core({"identities": str(path)})

    def test_olderIdentitiesOpenToo(self) -> None:
        """After a rotation one file has both."""
        needPackage("pyrage", "encryption")
        new, recipient = confidential.newIdentity()
        identities = readIdentities(f"{new}\n{SECRET}\n")
        for data in (close(b"x"), close(b"x", recipient)):
            event = self.network.run(
                self.network.core({"identities": identities}).getEvent(self.append(data))
            )
            self.assertEqual(event.content, b"x")

    def test_changedFileIsReadAgain(self) -> None:
        """An identity that is added opens the next event; a malformed file leaves those before."""
        needPackage("pyrage", "encryption")
        new, recipient = confidential.newIdentity()
        path = Path(self.mktemp())
        path.write_text(f"{SECRET}\n")
        core = self.network.core({"identities": path})
        both = [self.append(close(b"x")), self.append(close(b"x", recipient))]
        found = [self.network.run(core.getEvent(each)) for each in both]
        self.assertEqual([*map(type, found)], [OpenedEvent, ClosedEvent])
        for text in (f"{SECRET}\n{new}\n", "malformed", None):
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
            for each in both:
                self.assertEqual(self.network.run(core.getEvent(each)).content, b"x")

    def test_othersGetTheirTurn(self) -> None:
        """Opening many events is cut into pieces."""
        data = close(b"x")
        event = Event(topic=TOPIC, content=data, extensions=FOREIGN, eventId="00000000-1-1")
        procedure = openedEvents([event] * 40, [IDENTITY])
        self.assertEqual([*procedure], [Delay(0.0)] * 2)
        large = Event(topic=TOPIC, content=bytes(9999), extensions=FOREIGN, eventId="00000000-1-1")
        self.assertEqual([*openedEvents([large] * 3, [IDENTITY])], [Delay(0.0)] * 3)


class MissingPackageTests(SynchronousTestCase):
    def test_missingPackageIsNamed(self) -> None:
        """Opening needs no extra; closing names it."""
        modules: dict[str, object] = sys.modules  # type: ignore[assignment]
        known = {"pyrage": modules["pyrage"]} if "pyrage" in modules else {}
        self.addCleanup(modules.update, known)
        self.addCleanup(modules.pop, "pyrage")
        modules["pyrage"] = None
        with self.assertRaisesRegex(ValueError, r"pip install 'svcbroker\[encryption\]'"):
            Network().core({"recipients": [RECIPIENT]})
        with self.assertRaisesRegex(ValueError, r"pip install 'svcbroker\[encryption\]'"):
            confidential.newIdentity()
