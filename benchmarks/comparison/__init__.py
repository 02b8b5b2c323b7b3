"""
svcbroker side by side with the brokers and servers of others: C{python -m benchmarks}.

 1. C{_cases}: what is measured on what
 2. C{_run}: starts everything, and measures in turn
 3. C{_targets}: what is to be reached
 4. C{_page}: the report
"""

from ._cases import CASES, Case, Subject, Table
from ._page import comparisonSections
from ._run import Comparison, compare, measure, publishKnown
from ._targets import Verdict, judge

__all__ = [
    "CASES",
    "Case",
    "Comparison",
    "Subject",
    "Table",
    "Verdict",
    "compare",
    "comparisonSections",
    "judge",
    "measure",
    "publishKnown",
]
