"""
The judgement of histories of real deployments.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from tools.consistency.history import Logged, Operation, Result, Round, findings, settled

LOG = [Logged("2cf24dba-1-2", "t", "a"), Logged("2cf24dba-2-3", "t", "b")]


def publish(content: str, **fields: object) -> Operation:
    """A publish to C{t}."""
    made = Operation(client=0, topic="t", kind="publish", call=1, content=content)
    return replace(made, **fields)


class HistoryTests(SynchronousTestCase):
    """
    A round of which all is good, and rounds of which one thing is not.
    """

    def setUp(self) -> None:
        self.round = Round(
            name="healthy",
            writes=[
                publish("a", end=2, result=Result.DONE, eventId=LOG[0].eventId, sequence=1),
                publish("b"),
                publish("c"),
            ],
            logs={"one": LOG, "two": list(LOG)},
            followed={"f": [each.eventId for each in LOG]},
        )

    def found(self, **fields: object) -> list[str]:
        """What is found of the round with other values."""
        return list(findings(replace(self.round, **fields)))

    def logs(self, log: Sequence[Logged]) -> list[str]:
        """What is found if both nodes have this log, and the follower as well."""
        ids = [each.eventId for each in log]
        return self.found(logs={"one": log, "two": log}, followed={"f": ids})

    def test_goodRoundHasNoFindings(self) -> None:
        """Publishes whose outcome nobody has told may be there or not."""
        self.assertEqual(self.found(), [])

    def test_differentLogsAreFound(self) -> None:
        """Each node has the same events in the same order."""
        [line] = self.found(logs={"one": LOG, "two": LOG[::-1]})
        self.assertEqual(line, "one and two have different logs")

    def test_followersMistakesAreFound(self) -> None:
        """A follower gets each event once and in order."""
        ids = [each.eventId for each in LOG]
        for followed in (ids[1:], ids + ids[1:], ids[::-1]):
            [line] = self.found(followed={"f": followed})
            self.assertIn("follower f", line)

    def test_lostEventIsFound(self) -> None:
        """What was acknowledged is in the log, as what it was acknowledged."""
        [write, *others] = self.round.writes
        [line] = self.found(writes=[replace(write, eventId="2cf24dba-3-4"), *others])
        self.assertIn("was acknowledged, and is not there", line)
        [line] = self.found(writes=[replace(write, content="x"), *others])
        self.assertIn("is another event", line)

    def test_refusedEventThatIsThereIsFound(self) -> None:
        """What was refused is not in the log."""
        [line] = self.found(writes=[publish("a", result=Result.ABSENT)])
        self.assertIn("was refused (absent), and is there", line)

    def test_doubledAndMisnumberedEventsAreFound(self) -> None:
        """Events are numbered one after the other, and each content is there once."""
        twice = self.logs([*LOG, Logged("2cf24dba-3-4", "t", "a")])
        self.assertEqual(twice, ["the event 'a' is there 2 times"])
        [line, *_] = self.logs([LOG[0], Logged("2cf24dba-3-4", "t", "b")])
        self.assertIn("stands where 2 is due", line)

    def test_whatClientsSawIsFound(self) -> None:
        """What clients saw that must not be is a finding."""
        self.assertEqual(self.found(broken=["a reader saw less"]), ["a reader saw less"])

    def test_logDecidesUnknownPublishes(self) -> None:
        """For the checker a publish whose outcome nobody has told was made if the log has it."""
        known, late = settled(self.round)
        self.assertEqual(known, self.round.writes[0])
        self.assertEqual((late.content, late.result, late.sequence), ("b", Result.DONE, 2))
        self.assertIsNone(late.end)
