"""
The report: its tables, its plots and its numbers.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

from attrs import evolve, frozen
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks.report import (
    Bar,
    Bars,
    Chart,
    Picture,
    Point,
    Section,
    Series,
    amount,
    markdownTable,
    middle,
    writeReport,
)
from svcbroker.commands.bench import percentile

CHART = Chart(
    name="growth",
    title="Growth & more",
    xLabel="connections",
    yLabel="publishes/s",
    series=[
        Series("REST", [Point(1, 10), Point(100, 2000, "<all> it can")]),
        Series("MQTT", [Point(10, 50)]),
    ],
    isLogX=True,
)
BARS = Bars(name="n", title="t", label="events/s", bars=[])
NOTHING = Series("nothing", [Point(0, 0)])
_SPACE = "{http://www.w3.org/2000/svg}"


def requireDrawing() -> ModuleType:
    """L{benchmarks.drawing}, where its library is installed."""
    try:
        from benchmarks import drawing
    except ImportError:
        raise SkipTest("matplotlib is not installed: pip install '.[bench]'") from None
    return drawing


class NumberTests(SynchronousTestCase):
    """
    What is made of the measurements.
    """

    def test_percentileIsOneOfTheValues(self) -> None:
        """A percentile is one of the values."""
        values = [float(number) for number in range(1, 1001)]
        shares = (50, 90, 99, 99.9, 100)
        self.assertEqual(
            [percentile(values, share) for share in shares], [500, 900, 990, 999, 1000]
        )
        self.assertEqual(percentile([7.0], 99.9), 7.0)
        self.assertEqual(percentile([1.0, 2.0], 50), 1.0)

    def test_middleTakesMedianOfEachNumber(self) -> None:
        """The median is taken of each number by itself."""

        @frozen
        class Pair:
            one: float
            two: float

        self.assertEqual(middle([Pair(1, 9), Pair(2, 7), Pair(3, 8)]), Pair(2, 8))

    def test_amountHasThreeDigitsOrAll(self) -> None:
        """Three digits, or all of a large number."""
        values = (0, 0.0123, 1.5, 12.34, 123.4, 1234567, 10, 1000.0)
        self.assertEqual(
            [amount(value) for value in values],
            ["0", "0.0123", "1.50", "12.3", "123", "1 234 567", "10", "1 000"],
        )


class DrawingTests(SynchronousTestCase):
    """
    Plots, as matplotlib draws them.
    """

    def drawn(self, picture: Picture) -> ElementTree.Element:
        """A picture as XML."""
        return ElementTree.fromstring(requireDrawing().svg(picture))

    def test_chartShowsTitleLabelsAndRemarks(self) -> None:
        """All text is in the file as text, whatever characters it has."""
        words = [each.text for each in self.drawn(CHART).iter(f"{_SPACE}text")]
        for expected in ("Growth & more", "connections", "publishes/s", "REST", "<all> it can"):
            self.assertIn(expected, words)

    def test_chartHasEveryPoint(self) -> None:
        """A curve goes through all of its points, in their order."""
        (axes,) = requireDrawing().drawChart(CHART).axes
        curves = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        self.assertEqual(curves, {"REST": [[1, 10], [100, 2000]], "MQTT": [[10, 50]]})

    def test_linearAxisBeginsAtZero(self) -> None:
        """Also where all values are 0; a logarithmic axis does not."""
        (axes,) = requireDrawing().drawChart(CHART).axes
        self.assertEqual(axes.get_ylim()[0], 0)
        self.assertGreater(axes.get_ylim()[1], 2000)
        self.assertGreater(axes.get_xlim()[0], 0)
        (axes,) = requireDrawing().drawChart(evolve(CHART, series=[NOTHING], isLogX=False)).axes
        for low, high in (axes.get_xlim(), axes.get_ylim()):
            self.assertEqual(low, 0)
            self.assertGreater(high, 0)

    def test_manyCurvesLookDifferent(self) -> None:
        """Twenty curves have twenty looks."""
        series = [Series(str(number), [Point(1, number)]) for number in range(20)]
        (axes,) = requireDrawing().drawChart(evolve(CHART, series=series)).axes
        looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
        self.assertEqual(len(looks), 20)

    def test_barsAreAsLongAsValues(self) -> None:
        """A value that could not be measured has no bar, but its note."""
        bars = evolve(
            BARS, bars=[Bar("one", 100, "a"), Bar("two", 50, "b"), Bar("three", None, "", "none")]
        )
        (axes,) = requireDrawing().drawBars(bars).axes
        self.assertEqual([bar.get_width() for bar in axes.patches], [100, 50, 0])
        words = [each.text for each in self.drawn(bars).iter(f"{_SPACE}text")]
        for expected in ("one", "100", "none", "events/s"):
            self.assertIn(expected, words)

    def test_groupHasSameColourInAllPlots(self) -> None:
        """Plots agree that name the groups in the same order."""
        bars = [Bar("one", 1, "b")]
        first, second = (
            requireDrawing().drawBars(evolve(BARS, bars=more, groups=["a", "b"])).axes[0].patches
            for more in (bars, [Bar("two", 1, "a"), *bars])
        )
        self.assertEqual(first[0].get_facecolor(), second[1].get_facecolor())
        self.assertNotEqual(second[0].get_facecolor(), second[1].get_facecolor())

    def test_samePictureHasSameBytes(self) -> None:
        """A report that is made again of the same numbers changes no file."""
        self.assertEqual(requireDrawing().svg(CHART), requireDrawing().svg(CHART))


class TableTests(SynchronousTestCase):
    """
    Tables in Markdown.
    """

    def test_chartTableHasRowPerValue(self) -> None:
        """There is a column for each curve."""
        self.assertEqual(
            CHART.table(),
            "| connections | REST | MQTT |\n| --- | --: | --: |\n| 1 | 10 | - |\n"
            "| 10 | - | 50 |\n| 100 | 2 000 (<all> it can) | - |",
        )

    def test_cellsAreEscaped(self) -> None:
        """The content of a cell cannot end it."""
        self.assertEqual(
            markdownTable(["a", "b"], [["x|y\nz", "1"]]),
            "| a | b |\n| --- | --: |\n| x\\|y z | 1 |",
        )


class PageTests(SynchronousTestCase):
    """
    The page.
    """

    def test_pageShowsPlotsAndTables(self) -> None:
        """The page shows its plots, which lie beside it, and their tables."""
        drawing = requireDrawing()
        directory = Path(self.mktemp())
        section = Section(title="Part", text="Words.", pictures=[CHART])
        page = writeReport(directory, "REPORT", "All", [section])
        self.assertEqual(page, directory / "REPORT.md")
        text = page.read_text("utf-8")
        self.assertTrue(text.startswith("# All\n\n## Part\n\nWords.\n\n![Growth & more]("))
        self.assertIn(CHART.table(), text)
        self.assertEqual(
            (directory / "plots" / "growth.svg").read_text("utf-8"), drawing.svg(CHART)
        )
