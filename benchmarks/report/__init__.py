"""
From measurements to something to read: Markdown with plots as SVG.

 1. L{Chart}: curves, each a L{Series} of L{Point}s, as a plot and as a table
 2. L{Bars}: one bar for each of what is compared
 3. L{Section}: words and plots; L{writeReport} writes some of them into a directory
"""

from ._charts import Bar, Bars, Chart, Picture, Point, Series
from ._markdown import amount, markdownTable
from ._numbers import middle, percentile
from ._page import Section, writeReport

__all__ = [
    "Bar",
    "Bars",
    "Chart",
    "Picture",
    "Point",
    "Section",
    "Series",
    "amount",
    "markdownTable",
    "middle",
    "percentile",
    "writeReport",
]
