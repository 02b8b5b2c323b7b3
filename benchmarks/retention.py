"""
How a ledger grows that is published to for ever while old events are erased.

An embedded ledger of one daemon runs by a clock that jumps, on a real disk, with the retention and
the removal of contents that the daemon has. Run it with C{python -m benchmarks.retention}.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from attrs import frozen
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from svcbroker.broker import MetadataStore
from svcbroker.broker.retention import Retention, RetentionRule
from svcbroker.interfaces import ILedger, LedgerContext
from svcbroker.ledgers import parseDescription
from svcbroker.model import OpenTopic, PublishEvent
from svcbroker.storage import MetadataFile

DAY = 86_400
HOUR = 3_600
KEPT_DAYS = 2


@frozen(kw_only=True)
class Load:
    """
    What is published.

    @ivar size: the bytes of an event's content.
    @ivar together: how many events are published at a time, which share a block.
    @ivar daily: how many events there are a day.
    """

    name: str
    size: int
    together: int
    daily: int


LOADS = (
    Load(name="events of 300 bytes, 100 a block", size=300, together=100, daily=24_000),
    Load(name="events of 2,000 bytes, 10 a block", size=2_000, together=10, daily=4_800),
    Load(name="events of 20,000 bytes, one a block", size=20_000, together=1, daily=480),
    Load(name="events of 2,000 bytes, one a block", size=2_000, together=1, daily=2_400),
    Load(name="events of 300 bytes, one a block", size=300, together=1, daily=4_800),
)


def measure(load: Load, days: int, *, isRetained: bool) -> Iterator[int]:
    """
    Publish for some days.

    @return: the bytes of the ledger's file after each day.
    """
    with TemporaryDirectory(prefix="svcbroker-retention-") as folder:
        clock, random, directory = Clock(), Random(1), Path(folder)
        clock.advance(1_700_000_000)
        metadata = MetadataStore(
            MetadataFile.open(directory / "notes.sqlite"), clock, maybeDeferred
        )
        ledger = _makeLedger(directory, clock)
        _wait(clock, ledger.start())
        _wait(clock, ledger.submitMany([OpenTopic(topic="telemetry/one")]).done)
        rules = [RetentionRule("telemetry/#", KEPT_DAYS * DAY)] if isRetained else []
        retention = Retention(ledger, rules, metadata, clock, clock.seconds)
        _wait(clock, retention.start())
        rounds = load.daily // load.together
        for _ in range(days):
            for _ in range(rounds):
                requests = [
                    PublishEvent(topic="telemetry/one", content=random.randbytes(load.size))
                    for _ in range(load.together)
                ]
                _wait(clock, ledger.submitMany(requests).done)
                clock.advance(DAY / rounds)
            _settle(clock)
            yield os.stat(directory / "1" / "ledger.sqlite").st_size
        _wait(clock, retention.stop())
        _wait(clock, ledger.stop())
        _wait(clock, metadata.stop())


def _makeLedger(directory: Path, clock: Clock) -> ILedger:
    numbers = count()
    entropy: Callable[[int], bytes] = partial(_entropy, numbers)
    return parseDescription("pbft:nodes=4")(
        LedgerContext(
            group="1",
            directory=directory / "1",
            reactor=clock,
            now=clock.seconds,
            entropy=entropy,
            runInThread=maybeDeferred,
            maxContent=1024 * 1024,
        )
    )


def _entropy(numbers: Iterator[int], size: int) -> bytes:
    return Random(next(numbers)).randbytes(size)


def _wait(clock: Clock, pending: Deferred[object]) -> None:
    """Let time pass until something is done."""
    done: list[object] = []
    pending.addCallback(done.append)
    while not done:
        clock.advance(0.001)


def _settle(clock: Clock) -> None:
    """Let what is erased be removed, and the log be folded in."""
    for _ in range(200):
        clock.advance(0.01)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=12)
    days = parser.parse_args().days
    for load in LOADS:
        print(f"{load.name}, {load.daily} a day, kept for {KEPT_DAYS} days")
        kept = list(measure(load, days, isRetained=True))
        whole = list(measure(load, days, isRetained=False))
        for day, (one, other) in enumerate(zip(kept, whole, strict=True), 1):
            print(f"  day {day:3}: {one / 1e6:8.2f} MB, without retention {other / 1e6:8.2f} MB")
        half = days // 2
        growth = (kept[-1] - kept[half - 1]) / ((days - half) * load.daily)
        added = (whole[-1] - whole[half - 1]) / ((days - half) * load.daily)
        print(f"  grows by {growth:.0f} bytes an event, without retention by {added:.0f}\n")


if __name__ == "__main__":
    main()
