"""
Tests for C{svcbroker top}: what becomes of two scrapes. A real daemon is watched in
L{tests.functional.test_commands}.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.terminal import CommandError, Exit
from svcbroker.commands.top import PAUSE, Sampler, Scrape, historyLines, lines, render

METRICS = """\
# HELP svcbroker_ledger_height The height.
# TYPE svcbroker_ledger_height gauge
svcbroker_ledger_height{{group="1"}} {height}
svcbroker_ledger_ready{{group="1"}} 1.0
svcbroker_ledger_block_events_sum{{group="1"}} {events}
svcbroker_ledger_block_events_count{{group="1"}} {height}
svcbroker_ledger_last_block_timestamp_seconds{{group="1"}} 990.0
svcbroker_ledger_latency_seconds_bucket{{group="1",le="0.01"}} {events}
svcbroker_ledger_latency_seconds_bucket{{group="1",le="+Inf"}} {events}
svcbroker_ledger_waiting_transactions{{group="1"}} 3
svcbroker_ledger_waiting_bytes{{group="1"}} 4200
svcbroker_ledger_oldest_waiting_seconds{{group="1"}} 0.5
svcbroker_ledger_replicas{{group="1"}} 4
svcbroker_ledger_replicas_running{{group="1"}} 3
svcbroker_connections{{carrier="http"}} 2
svcbroker_connections{{carrier="mqtt"}} 1
svcbroker_publishes_total{{carrier="http",status="success"}} {events}
svcbroker_publishes_total{{carrier="http",status="refused"}} {height}
svcbroker_build_info{{commit="x",version="1.2"}} 1
svcbroker_subscription_backlog_events{{group="1",kind="stomp",name="slow\x1b"}} 15
svcbroker_subscription_oldest_seconds{{group="1",kind="stomp",name="slow\x1b"}} 61
svcbroker_subscription_backlog_events{{group="2",kind="stomp",name="other"}} 15
process_cpu_seconds_total {cpu}
process_resident_memory_bytes 5e7
"""
WEBHOOK = {
    "subscriptionId": "w",
    "receiver": "a.example:443",
    "paused": False,
    "failures": 2,
    "lastError": "HTTP status 500",
    "oldestEventId": "a-1-1",
    "oldestEventAge": 61,
}


class DaemonDouble:
    """A daemon with one group, which publishes 500 events in ten seconds."""

    group: str | None = None
    url = "http://127.0.0.1:1/b"

    def __init__(self) -> None:
        self.scrapes = 0
        self.calls: list[str] = []
        self.isOperator = True

    def metrics(self, url: str | None) -> str:
        """Its metrics."""
        self.scrapes += 1
        now = self.scrapes
        return METRICS.format(height=10 * now, events=500 * now, cpu=5 * now)

    def query(self, path: str, **given: str) -> Any:
        """An admin query."""
        return {"pageData": [{"nodeActive": number != 2} for number in range(4)]}

    def call(self, name: str, **given: Any) -> Any:
        """An operator call."""
        if not self.isOperator:
            raise CommandError("the daemon refused: no", Exit.BAD)
        self.calls.append(name)
        return {"webhooks": [WEBHOOK, {**WEBHOOK, "failures": 0}]}


class TopTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.time = 1000.0
        self.daemon = DaemonDouble()
        daemon: Any = self.daemon
        self.sampler = Sampler(daemon, None, lambda: self.time)

    def sample(self, seconds: float = 10.0) -> Any:
        """A sample, so much later."""
        self.time += seconds
        return self.sampler.sample()

    def test_historyIsALineForEachSeries(self) -> None:
        """A gap is a gap; many values share a bar, which is as high as the largest of them."""
        values: list[Any] = [None] * 60 + [1.0] * 59 + [8.0]
        told = {"end": 0, "step": 5, "series": {"events": values, "p99": [None] * 120}}
        head, events, p99 = historyLines(told)
        self.assertIn("a bar for each 10.0 s", head)
        bars = " " * 30 + "▂" * 29 + "█"
        self.assertEqual(events, f"events/s     {'8.0':>10}  {'1.0 to 8.0':20}  {bars}")
        self.assertEqual(p99, "latency p99  -")

    def test_ratesAreThoseOfTheInterval(self) -> None:
        found = self.sample()
        [group] = found.groups
        self.assertEqual((group.eventRate, group.blockRate, found.refusals), (50.0, 1.0, 1.0))
        self.assertEqual((found.cpu, found.memory, found.version), (0.5, 50_000_000, "1.2"))
        self.assertEqual((group.height, group.blockAge), (20, 20.0))
        self.assertEqual((group.p50, group.blockInterval), (0.005, None))
        self.assertEqual(group.nodes, ["runs", "runs", "stopped", "runs"])

    def test_linesTellWhatIsBehind(self) -> None:
        found = [*lines(self.sample())]
        self.assertIn(
            "connections: 2 http, 1 mqtt  CPU 50%  50 MB  1 publishes/s refused", found[0]
        )
        self.assertEqual(
            found[1:],
            [
                "group 1  height 20  events/s 50  blocks/s 1.0  interval -  p50 5.0 ms  "
                "p99 9.9 ms  pool 3, 4 kB, 500.0 ms  nodes 3/4, stopped: 2  last block 20.0 s ago",
                "stomp slow\\x1b: 15 events wait, the oldest for 61.0 s",
                "webhook w: 2 failures: HTTP status 500",
            ],
        )

    def test_tablesHaveTheSame(self) -> None:
        from rich.console import Console

        console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        self.addCleanup(console.file.close)
        console.print(render(self.sample()))
        text = console.export_text()
        for word in ("5.0 ms", "stopped: 2", "slow\\x1b", "HTTP status 500", "a.example:443"):
            self.assertIn(word, text)

    def test_listsAreAskedForNowAndThen(self) -> None:
        """A daemon may have many webhooks."""
        self.sample()
        self.assertEqual(len(self.daemon.calls), 1)
        self.sample(PAUSE / 2)
        self.assertEqual(len(self.daemon.calls), 1)
        self.sample(PAUSE)
        self.assertEqual(len(self.daemon.calls), 2)

    def test_refusedListsAreNoted(self) -> None:
        """The rest is shown to accounts that are no operators."""
        self.daemon.isOperator = False
        found = self.sample()
        self.assertEqual(len(found.groups), 1)
        self.assertEqual(found.remarks, ["webhooks: the daemon refused: no"])

    def test_otherGroupsAreLeftOut(self) -> None:
        self.daemon.group = "2"
        self.assertEqual(self.sample().groups, [])

    def test_restartedDaemonBeginsAnew(self) -> None:
        self.sample()
        self.daemon.scrapes = 0
        [group] = self.sample().groups
        self.assertEqual((group.eventRate, group.p50), (0.0, None))


class ScrapeTests(SynchronousTestCase):
    def test_labelsMayHaveAnyText(self) -> None:
        scrape = Scrape('a{b="x,y=\\"1\\"",c="2"} 3\na{c="2"} 4\nd 5\n# d 6\nnonsense')
        self.assertEqual(scrape.value("a", c="2"), 7)
        self.assertEqual(scrape.value("a", b='x,y=\\"1\\"'), 3)
        self.assertEqual((scrape.value("d"), scrape.value("e")), (5, 0))
