"""
Prometheus scrapes the real daemon, and its alerts fire and clear. What C{promtool} checks.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import hashPassword
from tests.carriers.http.accounts import basic
from tests.metrics.test_deploy import expressions
from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import Daemon

ROOT = Path(__file__).parents[2]
DEPLOYED = ROOT / "deploy" / "prometheus"
ACCOUNTS = """
[accounts.watcher]
password = "{}"
roles = ["metrics"]
[accounts.ann]
password = "{}"
roles = ["publisher"]
"""


def read(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    try:
        with urlopen(Request(url, headers=headers or {}), timeout=TIMEOUT) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def freePort() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class RulesTests(SynchronousTestCase):
    """The files that come with svcbroker."""

    def check(self, *arguments: str) -> None:
        found = subprocess.run(
            [neededProgram("promtool"), *arguments], capture_output=True, text=True, timeout=TIMEOUT
        )
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)

    def test_promtoolAcceptsRulesAndConfiguration(self) -> None:
        self.check("check", "rules", str(DEPLOYED / "svcbroker.rules.yml"))
        self.check("check", "config", str(DEPLOYED / "prometheus.yml"))

    def test_rulesPassTheirTests(self) -> None:
        self.check("test", "rules", str(Path(__file__).with_name("rules.test.yml")))


class PrometheusTests(SynchronousTestCase):
    """
    One daemon without accounts and one with accounts, scraped by one Prometheus with the deployed
    rules, whose alerts do not wait here.
    """

    timeout = 300

    def setUp(self) -> None:
        self.promtool, program = neededProgram("promtool"), neededProgram("prometheus")
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        accounts = self.directory / "accounts.toml"
        accounts.write_text(ACCOUNTS.format(hashPassword(b"watcher"), hashPassword(b"ann")))
        accounts.chmod(0o600)
        self.data = self.directory / "data"
        ledger = "pbft:nodes=4:timeout=0.1"
        self.daemon = self.serve(self.data, ["--faults"], ledger)
        self.guarded = self.serve(self.directory / "guarded", [f"--accounts={accounts}"])
        self.writeConfiguration()
        self.api = f"http://127.0.0.1:{freePort()}"
        with open(self.directory / "prometheus.log", "wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self.directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.directory / 'tsdb'}",
                    f"--web.listen-address={self.api.removeprefix('http://')}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def serve(self, data: Path, arguments: list[str], ledger: str = "memory") -> str:
        """Start a daemon; return its URL."""
        daemon = Daemon(data, arguments, ledger)
        self.addCleanup(daemon.stop)
        return "http://{}:{}".format(*daemon.http)

    def writeConfiguration(self) -> None:
        """The deployed configuration, with short times and the ports of this test."""
        rules = (DEPLOYED / "svcbroker.rules.yml").read_text()
        (self.directory / "svcbroker.rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", rules))
        text = (DEPLOYED / "prometheus.yml").read_text()
        target = self.daemon.removeprefix("http://")
        text = text.replace("15s", "300ms").replace("127.0.0.1:8080", target)
        guarded = f'static_configs: [{{targets: ["{self.guarded.removeprefix("http://")}"]}}]'
        text += (
            f"  - job_name: guarded\n    {guarded}\n"
            "    basic_auth: {username: watcher, password: watcher}\n"
            f"  - job_name: stranger\n    {guarded}\n"
        )
        (self.directory / "prometheus.yml").write_text(text)

    def waitFor(self, what: str, isThere: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not isThere():
            if time.monotonic() > deadline:
                self.fail(f"{what}: {(self.directory / 'prometheus.log').read_text()[-3000:]}")
            time.sleep(0.1)

    def ask(self, path: str) -> Any:
        """What Prometheus answers; C{None} while it starts."""
        try:
            status, body = read(f"{self.api}/api/v1/{path}")
        except OSError:
            return None
        return json.loads(body)["data"] if status == 200 else None

    def value(self, query: str) -> float | None:
        """The value of a query with one result; C{None} for none."""
        data = self.ask(f"query?query={quote(query)}")
        results = [] if data is None else data["result"]
        return float(results[0]["value"][1]) if results else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        data = self.ask("alerts") or {"alerts": []}
        return {each["labels"]["alertname"] for each in data["alerts"] if each["state"] == "firing"}

    def fault(self, *arguments: str) -> None:
        """C{svcbroker net fault}."""
        command = [sys.executable, "-m", "svcbroker.commands", "fault", str(self.data)]
        found = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT
        )
        self.assertEqual(found.returncode, 0, found.stderr)

    def test_alertFiresAndClearsWithAReplica(self) -> None:
        """Also: the content is good, and with accounts it is for those with the role."""
        rest = f"{self.daemon}/svcbroker/rest"
        read(f"{rest}/open?topic=t")
        for _ in range(3):
            self.assertIn(b"SUCCESS", read(f"{rest}/publish?topic=t&content=x")[1])
        self.checkContent()
        self.checkAccounts()
        self.waitFor("up", lambda: self.value('up{job="svcbroker"}') == 1)
        published = 'svcbroker_publishes_total{job="svcbroker",carrier="http",status="success"}'
        self.waitFor("published", lambda: self.value(published) == 3)
        # A scrape that takes too long leaves nothing that is asked for next.
        height = 'svcbroker_ledger_height{job="svcbroker"}'
        self.waitFor("height", lambda: self.value(height) == 4)
        latencies = "svcbroker_ledger_latency_seconds_count"
        self.waitFor("latencies", lambda: self.value(latencies) == 4)
        self.waitFor("log-in", lambda: self.value('up{job="guarded"}') == 1)
        self.waitFor("no log-in", lambda: self.value('up{job="stranger"}') == 0)
        self.assertNotIn("SvcbrokerNodeDown", self.firing())
        self.fault("stop", "1")
        self.waitFor("fires", lambda: "SvcbrokerNodeDown" in self.firing())
        self.fault("start", "1")
        self.waitFor("clears", lambda: "SvcbrokerNodeDown" not in self.firing())
        self.assertEqual(self.value("svcbroker_scrape_failures_total > 0"), None)
        self.checkDashboard()

    def checkDashboard(self) -> None:
        """Prometheus can answer each query of the dashboard."""
        for expression in expressions():
            query = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
            self.assertIsNotNone(self.ask(f"query?query={quote(query)}"), query)

    def checkContent(self) -> None:
        status, body = read(f"{self.daemon}/metrics")
        self.assertEqual(status, 200)
        found = subprocess.run(
            [self.promtool, "check", "metrics"], input=body, capture_output=True, timeout=TIMEOUT
        )
        self.assertEqual((found.returncode, found.stdout, found.stderr), (0, b"", b""))

    def checkAccounts(self) -> None:
        for headers, status in ((None, 401), (basic("ann"), 403), (basic("watcher"), 200)):
            self.assertEqual(read(f"{self.guarded}/metrics", headers)[0], status)
