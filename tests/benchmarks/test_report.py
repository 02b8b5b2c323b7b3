"""
The report: its tables, its plots and its numbers.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.report import (
    Bar,
    Bars,
    Chart,
    Point,
    Section,
    Series,
    amount,
    markdownTable,
    middle,
    percentile,
    writeReport,
)
from benchmarks.report._svg import Axis

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
_SPACE = "{http://www.w3.org/2000/svg}"


class NumberTests(SynchronousTestCase):
    """
    What is made of the measurements.
    """

    def test_percentile(self) -> None:
        """A percentile is one of the values."""
        values = [float(number) for number in range(1, 1001)]
        shares = (50, 90, 99, 99.9, 100)
        self.assertEqual(
            [percentile(values, share) for share in shares], [500, 900, 990, 999, 1000]
        )
        self.assertEqual(percentile([7.0], 99.9), 7.0)
        self.assertEqual(percentile([1.0, 2.0], 50), 1.0)

    def test_middle(self) -> None:
        """The median is taken of each number by itself."""

        @frozen
        class Pair:
            one: float
            two: float

        self.assertEqual(middle([Pair(1, 9), Pair(2, 7), Pair(3, 8)]), Pair(2, 8))

    def test_amount(self) -> None:
        """Three digits, or all of a large number."""
        values = (0, 0.0123, 1.5, 12.34, 123.4, 1234567, 10, 1000.0)
        self.assertEqual(
            [amount(value) for value in values],
            ["0", "0.0123", "1.50", "12.3", "123", "1 234 567", "10", "1 000"],
        )


class AxisTests(SynchronousTestCase):
    """
    Where values stand.
    """

    def test_linear(self) -> None:
        """From 0 to a round number above all, with a few ticks between."""
        for most in (0.3, 1.0, 6.0, 7.0, 99.0, 48_000.0, 230_000.0):
            axis = Axis.over([0, most], False)
            self.assertEqual((axis.low, axis.place(0)), (0, 0))
            self.assertGreaterEqual(axis.high, most)
            self.assertIn(len(axis.ticks), range(4, 8))
            self.assertAlmostEqual(axis.ticks[-1], axis.high)

    def test_nothing(self) -> None:
        """Where all is 0 there is an axis still."""
        self.assertGreater(Axis.over([0.0], False).high, 0)

    def test_logarithmic(self) -> None:
        """Between powers of ten, also where there is one value."""
        axis = Axis.over([3, 10_000], True)
        self.assertEqual((axis.low, axis.high, len(axis.ticks)), (1, 10_000, 5))
        self.assertEqual(axis.place(100), 0.5)
        self.assertEqual(Axis.over([10], True).ticks, [10, 100])


class PictureTests(SynchronousTestCase):
    """
    What is drawn.
    """

    def test_chart(self) -> None:
        """A plot is XML, has every point, and what is written beside it."""
        drawn = ElementTree.fromstring(CHART.svg())
        self.assertEqual(len(drawn.findall(f"{_SPACE}circle")), 3)
        words = [each.text for each in drawn.findall(f"{_SPACE}text")]
        for expected in ("Growth & more", "connections", "publishes/s", "REST", "<all> it can"):
            self.assertIn(expected, words)

    def test_many(self) -> None:
        """However many curves there are, none looks like another."""
        series = [Series(str(number), [Point(1, number)]) for number in range(20)]
        chart = Chart(name="n", title="t", xLabel="x", yLabel="y", series=series)
        paths = ElementTree.fromstring(chart.svg()).findall(f"{_SPACE}path")
        looks = {(each.get("stroke"), each.get("stroke-dasharray")) for each in paths}
        self.assertEqual(len(looks), 20)

    def test_table(self) -> None:
        """A row for each value that was varied, a column for each curve."""
        self.assertEqual(
            CHART.table(),
            "| connections | REST | MQTT |\n| --- | --: | --: |\n| 1 | 10 | - |\n"
            "| 10 | - | 50 |\n| 100 | 2 000 (<all> it can) | - |",
        )

    def test_bars(self) -> None:
        """Bars are as long as their values; what could not be measured has none, but its note."""
        bars = Bars(
            name="n",
            title="t",
            label="events/s",
            bars=[Bar("one", 100, "a"), Bar("two", 50, "b"), Bar("three", None, "", "not there")],
        )
        drawn = ElementTree.fromstring(bars.svg())
        widths = [each.get("width", "") for each in drawn.findall(f"{_SPACE}rect")]
        first, second, third = (float(width) for width in widths[1:4])
        self.assertAlmostEqual(first, 2 * second, delta=0.2)
        self.assertEqual(third, 0)
        self.assertIn("not there", [each.text for each in drawn.findall(f"{_SPACE}text")])

    def test_colours(self) -> None:
        """A group has the same colour in all plots that name the groups in the same order."""
        bars = [Bar("one", 1, "b")]
        plots = [
            Bars(name="n", title="t", label="l", bars=more, groups=["a", "b"])
            for more in (bars, [Bar("two", 1, "a"), *bars])
        ]
        first, second = (ElementTree.fromstring(plot.svg()) for plot in plots)
        colours = [each.get("fill") for each in first.findall(f"{_SPACE}rect")]
        self.assertEqual(colours[1], colours[2])
        self.assertEqual(second.findall(f"{_SPACE}rect")[2].get("fill"), colours[1])

    def test_cells(self) -> None:
        """What is in a cell cannot end it."""
        self.assertEqual(
            markdownTable(["a", "b"], [["x|y\nz", "1"]]),
            "| a | b |\n| --- | --: |\n| x\\|y z | 1 |",
        )


class PageTests(SynchronousTestCase):
    """
    The page.
    """

    def test_written(self) -> None:
        """The page shows its plots, which lie beside it, and their tables."""
        directory = Path(self.mktemp())
        section = Section(title="Part", text="Words.", pictures=[CHART])
        page = writeReport(directory, "REPORT", "All", [section])
        self.assertEqual(page, directory / "REPORT.md")
        text = page.read_text("utf-8")
        self.assertTrue(text.startswith("# All\n\n## Part\n\nWords.\n\n![Growth & more]("))
        self.assertIn(CHART.table(), text)
        self.assertEqual((directory / "plots" / "growth.svg").read_text("utf-8"), CHART.svg())
