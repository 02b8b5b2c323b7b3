"""
Tests of the dashboard, the alert rules and their page: they know the metrics that there are.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.features import CONDITIONS
from svcbroker.net.findings import Level

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/svcbroker.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/svcbroker.json"
PAGE = ROOT / "docs/monitoring.rst"

_NAME = re.compile(r"\b(?:svcbroker|process)_[a-z_]+\b")
_MAKER = re.compile(r"import .*\b(?:counter|gauge|histogram)\b")
_SUFFIX = re.compile(r"_(?:total|bucket|sum|count)$")


def exported() -> set[str]:
    """The names of all metric families: those in modules that make families."""
    paths = (ROOT / "svcbroker").rglob("*.py")
    modules = [path.read_text(encoding="utf-8") for path in paths]
    texts = "".join(text for text in modules if _MAKER.search(text) or "def gauge(" in text)
    return set(re.findall(r'"((?:svcbroker|process)_[a-z_]+)"', texts))


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> list[str]:
    """The queries of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


class DeployTests(SynchronousTestCase):
    def used(self, text: str) -> set[str]:
        """The families that are named in a text."""
        names = exported()
        return {name if name in names else _SUFFIX.sub("", name) for name in _NAME.findall(text)}

    def test_rulesUseWhatIsExported(self) -> None:
        self.assertEqual(self.used(RULES.read_text(encoding="utf-8")) - exported(), set())

    def test_dashboardShowsEachMetric(self) -> None:
        self.assertEqual(self.used(" ".join(expressions())), exported())

    def test_pageExplainsEachMetricAndAlert(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        self.assertEqual(exported() - self.used(page), set())
        for alert in re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8")):
            self.assertIn(f"``{alert}``", page)

    def test_eachAlarmHasItsRule(self) -> None:
        """The rule asks the metric by the name of the alarm, and has its level and its texts."""
        rules = RULES.read_text(encoding="utf-8")
        asked = re.findall(r'svcbroker_alarm{name="([\w-]+)"}', rules)
        self.assertEqual(sorted(asked), sorted(each.name for each in CONDITIONS))
        for each in CONDITIONS:
            words = "".join(word.capitalize() for word in each.name.split("-"))
            severity = "critical" if each.level is Level.PROBLEM else "warning"
            self.assertIn(
                f"""
      - alert: Svcbroker{words}
        expr: svcbroker_alarm{{name="{each.name}"}} == 1
        for: 1m
        labels:
          severity: {severity}
        annotations:
          summary: "{{{{ $labels.instance }}}}: {each.title}"
          description: "{each.meaning} {each.remedy}"
""",
                rules,
            )

    def test_panelsDoNotOverlap(self) -> None:
        places = [each["gridPos"] for each in panels()]
        self.assertEqual(len({each["id"] for each in panels()}), len(places))
        for one, other in combinations(places, 2):
            isApart = (
                one["x"] + one["w"] <= other["x"]
                or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"]
                or other["y"] + other["h"] <= one["y"]
            )
            self.assertTrue(isApart, (one, other))
            self.assertLessEqual(one["x"] + one["w"], 24)
