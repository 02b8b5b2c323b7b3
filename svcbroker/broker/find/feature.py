"""
The index of events as a feature of the daemon: settings, indexes of all groups, metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from attrs import frozen

from ...archive import INDEX_NAME
from ...errors import BrokerError
from ...interfaces import ILedger
from ...model import EXTENSION_PREFIX, checkExtensions
from ...net.bounds import Bound, Sizing, within
from ...net.deferreds import asDeferred
from ...net.metrics import Metric, gauge
from ...net.settings import Flag, List, Text, declareSetting
from ..features import Feature, RunningFeature, Services
from ..subscriptions import HistoryTurns
from ._eventindex import ROW_SIZE, RUN_ROWS, EventIndex
from ._eventsearch import MAX_RANGES, EventSearch, GroupIndex

MAX_NAMES: Final = 16
"""The most extensions that have rows in the index."""

_KEPT: Final = ROW_SIZE + 250
_RANGE: Final = 150


def extensionName(text: str) -> str:
    """The name of an extension; what it begins with may be left out."""
    name = text if text.startswith(EXTENSION_PREFIX) else EXTENSION_PREFIX + text
    try:
        checkExtensions({name: ""})
    except BrokerError as error:
        raise ValueError(f"is not the name of an extension ({error.message}): {text!r}") from None
    if len(text) > 256:
        raise ValueError("has more than 256 characters")
    return name


def fewNames(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of extensions, each once, and not many."""
    if len(names) > MAX_NAMES:
        raise ValueError(f"has more than {MAX_NAMES} names")
    return tuple(dict.fromkeys(names))


@frozen(kw_only=True)
class FindOptions:
    """The settings of the index of events."""

    isOn: bool = declareSetting(
        "find",
        Flag(),
        False,
        "keep an index by which find answers who published a document or signed events, and when",
        shown="no",
    )
    names: tuple[str, ...] = declareSetting(
        "index",
        List(of=Text(metavar="NAME", normalise=extensionName), finish=fewNames),
        (),
        "an extension by which events are found, too, such as order-id; may be given more than "
        "once; needs find",
        shown="none",
    )


class FindFeature(RunningFeature):
    """
    The indexes of all groups.
    """

    def __init__(self, options: FindOptions, services: Services) -> None:
        self._indexes: dict[str, GroupIndex] = {}
        self._thread: Any = None
        self._turns = HistoryTurns(services.reactor, services.budgets.work)
        if options.isOn:
            self._thread = services.makeThread(services.reactor, "find")
            for group, ledger in services.ledgers.items():
                self._indexes[group] = GroupIndex(
                    ledger,
                    partial(_makeIndex, services, ledger, options.names),
                    options.names,
                    self._turns,
                    self._thread.run,
                    services.reactor,
                )
        search = EventSearch(
            services.broker.groups,
            self._indexes,
            services.subscriptions,
            self._turns,
            services.budgets.output,
            services.reactor,
        )
        self.answers = {EventSearch: search}

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        items = self._indexes.items()
        yield gauge(
            "svcbroker_find_lag_blocks",
            "How many blocks are not in the index of events yet.",
            ["group"],
            [((group,), max(0, each.committed - each.height)) for group, each in items],
        )
        yield gauge(
            "svcbroker_find_index_bytes",
            "The size of the index of events on the disk.",
            ["group"],
            [((group,), each.size) for group, each in items],
        )

    @asDeferred
    async def start(self) -> None:
        """Begin to follow the logs. Nothing waits for it."""
        for each in self._indexes.values():
            await each.start()

    @asDeferred
    async def drain(self) -> None:
        """Write what is in memory."""
        for each in self._indexes.values():
            await each.stop()
        self._turns.stop()

    def release(self) -> None:
        """See L{RunningFeature}."""
        if self._thread is not None:
            self._thread.stop()


def _makeIndex(services: Services, ledger: ILedger, names: tuple[str, ...]) -> EventIndex:
    """The index of a group. Where the ledger keeps nothing, it is of no other chain, either."""
    directory = services.dataDir / ledger.group / INDEX_NAME
    return EventIndex(directory, ledger.chain or services.entropy(32), names)


def _bounds(options: FindOptions, sizing: Sizing) -> Iterator[Bound]:
    """The bounds of the rows of the last blocks that are in memory."""
    holders = [
        *within(
            "svcbroker.broker.find._eventsearch.GroupIndex",
            *("_rows", "_erased", "_waiting"),
        ),
        "svcbroker.broker.find._eventindex.EventIndex._runs",
        "svcbroker.broker.find.feature.FindFeature._indexes",
    ]
    each = RUN_ROWS * _KEPT + MAX_RANGES * _RANGE
    yield Bound(
        name="the index of events",
        bytes=sizing.groups * each if options.isOn else 0,
        how=f"{RUN_ROWS:,} rows and {MAX_RANGES:,} erased ranges of {sizing.ofGroups}",
        holders=holders,
    )


FEATURE: Final = Feature(
    name="find",
    settings=FindOptions,
    make=FindFeature,
    bounds=_bounds,
)
