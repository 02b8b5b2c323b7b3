"""
Tests for L{benchmarks.comparison}: verdicts and the report.
"""

from __future__ import annotations

from array import array

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.comparison import (
    CASES,
    Case,
    Comparison,
    Subject,
    Table,
    Verdict,
    comparisonSections,
    judge,
)
from benchmarks.comparison._targets import find
from benchmarks.found import Found, marks
from svcbroker.commands.bench import Measured

from .test_report import requireDrawing

FOUND = Found(
    events=1000,
    p50=0.5,
    p90=1,
    p99=2,
    p999=3,
    cpu=20,
    clientShare=0.5,
    others=0,
)
REST = find(Subject.SVCBROKER, Table.MANY, "REST publish, POST")
RABBIT = find(Subject.RABBIT, Table.MANY, "AMQP, confirms")
REDIS = find(Subject.REDIS, Table.MANY, "XADD")


def rounds(*rates: float) -> list[Found]:
    """Rounds that have found nothing but rates, of a processor that was busy all the time."""
    return [evolve(FOUND, events=rate, cpu=1e6 / rate) for rate in rates]


class FoundTests(SynchronousTestCase):
    """
    Units and marks of measurements.
    """

    def test_foundHasRatesAndLatenciesInUnits(self) -> None:
        """Rates are per second, latencies in milliseconds, processor time in microseconds."""
        measured = Measured(
            seconds=0.5, events=20, latencies=array("d", [0.002, 0.001]), clientShare=0.1
        )
        found = Found.of(measured, cpu=0.001, busy=0.151)
        self.assertEqual((found.events, found.cpu, found.eventsOfCpu), (40, 50, 20_000))
        self.assertEqual((found.p50, found.p99, found.p999), (1, 2, 2))
        self.assertAlmostEqual(found.others, 0.2)

    def test_disturbedNumbersAreMarked(self) -> None:
        """Numbers that others disturbed are marked."""
        self.assertEqual(marks(FOUND), "")
        self.assertEqual(marks(evolve(FOUND, clientShare=0.95)), " (1)")
        self.assertEqual(marks(evolve(FOUND, others=0.2)), " (2)")


class JudgeTests(SynchronousTestCase):
    """
    Targets.
    """

    def verdict(self, comparison: Comparison, words: str) -> Verdict:
        """The verdict whose name has these words."""
        (found,) = (each for each in judge(comparison) if words in each.name)
        return found

    def test_unmeasuredTargetHasNoVerdict(self) -> None:
        """A target of which a part was not measured has no verdict."""
        verdicts = judge(Comparison(rounds={REST: rounds(1000)}))
        self.assertEqual(
            {each.outcome for each in verdicts if "RabbitMQ" in each.name}, {"not measured"}
        )

    def test_ratioIsMedianOfRoundRatios(self) -> None:
        """A ratio is the median of the rounds' ratios."""
        comparison = Comparison(rounds={REST: rounds(100, 300, 900), RABBIT: rounds(100, 100, 100)})
        verdict = self.verdict(comparison, "RabbitMQ")
        self.assertEqual(verdict.measured, "3.00 times (1.00 to 9.00)")
        self.assertEqual((verdict.score, verdict.outcome), (1.5, "met, 1.50 of it"))

    def test_missedTargetSaysByHowMuch(self) -> None:
        """The outcome says by how much a target is missed."""
        comparison = Comparison(rounds={REST: rounds(150), RABBIT: rounds(100)})
        self.assertEqual(self.verdict(comparison, "RabbitMQ").outcome, "missed by 25%")

    def test_ratioToLoadBoundServerIsMarked(self) -> None:
        """A ratio to a server that may be faster than its load is marked."""
        bounded = [evolve(FOUND, clientShare=1.0)]
        comparison = Comparison(rounds={REST: rounds(1000), RABBIT: bounded})
        self.assertTrue(self.verdict(comparison, "RabbitMQ").measured.endswith(" (1)"))

    def test_betterBatchShapeCounts(self) -> None:
        small, large = [
            case for case in CASES if case.load.endswith("of 100") and case.who is Subject.SVCBROKER
        ]
        comparison = Comparison(
            rounds={small: rounds(90_000), large: rounds(120_000), REDIS: rounds(40_000)}
        )
        verdict = self.verdict(comparison, "batches of 100")
        self.assertEqual((verdict.measured[:10], verdict.score), ("3.00 times", 1.2))

    def test_processorTimeCountsWhereNamed(self) -> None:
        """A server that waits most of the time is compared by what it does in a CPU second."""
        comparison = Comparison(
            rounds={REST: [evolve(FOUND, cpu=30)], REDIS: [evolve(FOUND, events=9000, cpu=10)]}
        )
        verdict = self.verdict(comparison, "Redis'")
        self.assertEqual((verdict.measured[:10], verdict.outcome), ("0.33 times", "missed by 33%"))

    def test_lowerLatencyScoresHigher(self) -> None:
        one = find(Subject.SVCBROKER, Table.ONE, "REST publish, POST")
        comparison = Comparison(rounds={one: [evolve(FOUND, p50=0.25)]})
        self.assertEqual(self.verdict(comparison, "latency").score, 2)

    def test_tailIsMeasuredInMedians(self) -> None:
        """The middle of the rounds counts."""
        tails = [evolve(FOUND, p50=1, p99=each) for each in (2, 4, 60)]
        verdict = self.verdict(Comparison(rounds={REST: tails}), "p99")
        self.assertEqual((verdict.measured, verdict.outcome), ("4.00 times", "missed by 25%"))


class CaseTests(SynchronousTestCase):
    """
    Rows.
    """

    def test_everyRowIsUnique(self) -> None:
        """No row is there twice, and every table and every server has some."""
        names = [(case.table, case.who, case.load, case.connections, case.window) for case in CASES]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual({case.table for case in CASES}, set(Table))
        self.assertEqual({case.who for case in CASES}, set(Subject))


class PageTests(SynchronousTestCase):
    """
    The report.
    """

    def rowsOf(self, comparison: Comparison, case: Case) -> list[str]:
        """The lines of the table that are about a case."""
        (section,) = (
            each for each in comparisonSections(comparison, {}) if each.title == case.table.value
        )
        start = f"| {case.who.value} | {case.load} |"
        return [line for line in section.text.splitlines() if line.startswith(start)]

    def test_rowHasMedians(self) -> None:
        """A row has the medians."""
        comparison = Comparison(rounds={REST: rounds(1000, 3000, 2000)})
        (row,) = self.rowsOf(comparison, REST)
        self.assertTrue(
            row.endswith("| 32 x 1 | 2 000 | 0.50 | 1.00 | 2.00 | 3.00 | 500 | 2 000 |"), row
        )

    def test_missingServerSaysHowToInstallIt(self) -> None:
        """The row of a server that is not installed says how to install it."""
        comparison = Comparison(missing={Subject.REDIS: "not installed: apt-get install x"})
        (row,) = self.rowsOf(comparison, REDIS)
        self.assertIn("apt-get install x", row)

    def test_everySectionCanBeDrawn(self) -> None:
        """The report has all sections, and all plots can be drawn."""
        drawing = requireDrawing()
        comparison = Comparison(rounds={case: [FOUND] for case in CASES})
        sections = comparisonSections(comparison, {"kernel": "6"})
        self.assertEqual(len(sections), len(Table) + 4)
        for section in sections:
            for picture in section.pictures:
                self.assertIn("</svg>", drawing.svg(picture))
