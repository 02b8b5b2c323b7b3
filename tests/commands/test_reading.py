"""
Tests for L{svcbroker.commands.reading}. The commands themselves are run in
L{tests.functional.test_commands}.
"""

from __future__ import annotations

from typing import Any

from attrs import field, mutable
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import Event
from svcbroker.commands.reading import Erasures, formatOf
from svcbroker.errors import BrokerError, EventErased, LedgerUnavailable

DAY = 1_795_349_002_605
"""In 2026, on the 22nd of November."""


@mutable
class ClientDouble:
    """
    A client that is told why events were erased.

    @ivar error: what C{getEvent} fails with; C{None} for an event that is there.
    @ivar asked: the ids that it was asked for.
    """

    error: BrokerError | None
    asked: list[str] = field(factory=list)

    def getEvent(self, eventId: str) -> None:
        """Fail."""
        self.asked.append(eventId)
        if self.error is not None:
            raise self.error


def erased(sequence: int, topic: str = "a") -> Event:
    """An erased event."""
    return Event(
        topic=topic,
        content=b"",
        extensions={},
        eventId=f"0000000a-{sequence}-{sequence}",
        erased=True,
    )


class ErasedEventTests(SynchronousTestCase):
    def linesOf(self, error: BrokerError | None, *events: Event) -> tuple[list[str], list[str]]:
        """The lines of some events, and the events that the broker was asked about."""
        client: Any = ClientDouble(error)
        format = formatOf(False, None, Erasures(client))
        return [format(each) for each in events], client.asked

    def test_lineSaysWhenByWhomAndWhy(self) -> None:
        for account, time, words in (
            ("root", DAY, "erased 2026-11-22 by root: GDPR request 17"),
            ("", DAY, "erased 2026-11-22: GDPR request 17"),
            ("", 0, "erased: GDPR request 17"),
            ("root", 2**62, f"erased at {2**62} milliseconds after 1970 by root: GDPR request 17"),
        ):
            error = EventErased(account=account, time=time, reason="GDPR request 17")
            lines, _ = self.linesOf(error, erased(1))
            self.assertEqual(lines, [f"0000000a-1-1  a  {words}"])

    def test_reasonIsOnOneLine(self) -> None:
        lines, _ = self.linesOf(EventErased(account="r\n", reason="\x1b[31m"), erased(1))
        self.assertEqual(lines, ["0000000a-1-1  a  erased by r\\n: \\x1b[31m"])

    def test_eventsThatWereErasedTogetherAreAskedForOnce(self) -> None:
        error = EventErased(reason="why", first=2, last=4)
        events = [erased(2), erased(3), erased(3, "b"), erased(4), erased(5)]
        lines, asked = self.linesOf(error, *events)
        self.assertEqual([line.rpartition("  ")[2] for line in lines], ["erased: why"] * 5)
        self.assertEqual(asked, ["0000000a-2-2", "0000000a-3-3", "0000000a-5-5"])

    def test_erasureThatIsNotToldHasItsLine(self) -> None:
        for error in LedgerUnavailable(), None:
            lines, _ = self.linesOf(error, erased(1))
            self.assertEqual(lines, ["0000000a-1-1  a  erased"])
