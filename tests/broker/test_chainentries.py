"""
Tests of the entries of the metadata store: they are tied to the chain that they are about.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore, bindToChains
from svcbroker.daemon.features import ENTRY_GROUPS
from svcbroker.storage import MetadataFile

REAL, OTHER, UNKEPT = b"\1" * 32, b"\2" * 32, b""
ENTRIES: Mapping[tuple[str, str], bytes] = {
    ("position", "a"): b'["1",[57,3],[[57,5]]]',
    (
        "webhook",
        "b",
    ): b'{"interfaceType":"RESTful","group":"1","filters":["t"],"tag":null,'
    b'"url":"http://h/","start":[1,-1]}',
    ("mqtt-session", '["1","c"]'): b"{}",
    ("mqtt-subscription", '["1","c","t/#"]'): b"{}",
    ("mqtt-packet-ids", '["1","c",7]'): b"{}",
    ("mqtt-will", '["1","c"]'): b"{}",
    ("mqtt-retained/1", "topic"): b"00000000-1-1",
    ("mqtt-followed", "1"): b"57",
}
"""Entries of group 1, of each kind, as the version before wrote them."""
FOREIGN: Mapping[tuple[str, str], bytes] = {
    ("position", "z"): b'["2",[9,9],[]]',
    ("mqtt-session", '["2","1"]'): b"{}",
    ("mqtt-retained/2", "1"): b"00000000-1-1",
}
"""Entries of group 2."""


class ChainEntriesTests(SynchronousTestCase):
    """
    A store through several starts. Group 2 is served from the same chain all the time.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.written: list[str] = []
        file = MetadataFile.open(self.path)
        file.write({**ENTRIES, **FOREIGN})
        file.close()

    def start(
        self, chain: bytes, added: Mapping[tuple[str, str], bytes] | None = None
    ) -> Mapping[tuple[str, str], bytes]:
        """Serve group 1 from a chain and stop; return what the carriers of that run saw."""
        file = MetadataFile.open(self.path)
        store = MetadataStore(file, Clock(), maybeDeferred)
        with capturedLogs() as events:
            bindToChains(store, {"1": chain, "2": OTHER}, ENTRY_GROUPS)
        self.written += map(formatEvent, events)
        seen = {
            (kind, name): value
            for kind in store.kinds()
            if kind.partition("-")[0] in ENTRY_GROUPS
            for name, value in store.items(kind)
        }
        for (kind, name), value in (added or {}).items():
            store.put(kind, name, value)
        self.successResultOf(store.stop())
        return seen

    def test_entriesWithoutChainBelongToTheFirst(self) -> None:
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})
        self.assertEqual(self.written, [])

    def test_otherChainSeesNone(self) -> None:
        self.start(REAL)
        self.assertEqual(self.start(OTHER), FOREIGN)
        [line] = self.written
        self.assertIn("group 1 is served from another chain than before: 8 records", line)
        self.assertIn("0101010101010101", line)

    def test_entriesComeBackWithTheirChain(self) -> None:
        """Each chain finds its own entries again, as they were, whatever was served meanwhile."""
        made = {("position", "a"): b'["1",[1,-1],[]]'}
        self.start(REAL)
        self.start(OTHER, made)
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})
        self.assertIn("its 8 records of subscriptions are back", self.written[-1])
        self.assertEqual(self.start(OTHER), {**made, **FOREIGN})
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})

    def test_unkeptLogLosesItsOwnEntriesOnly(self) -> None:
        """What is made while a ledger in memory is served ends with it, and no more than that."""
        made = {("position", "a"): b'["1",[5,-1],[]]', ("mqtt-followed", "1"): b"5"}
        self.start(REAL)
        for _ in range(2):
            self.assertEqual(self.start(UNKEPT, made), FOREIGN)
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})
        aside, back = self.written
        self.assertIn("set aside until chain 0101010101010101 is served again", aside)
        self.assertIn("8 records of subscriptions are back", back)

    def test_unkeptLogAdoptsNoEntriesWithoutChain(self) -> None:
        """Entries of the version before wait for the first chain that is kept."""
        self.assertEqual(self.start(UNKEPT, {("mqtt-followed", "1"): b"5"}), FOREIGN)
        self.assertEqual(self.start(REAL), {**ENTRIES, **FOREIGN})

    def test_damagedEntryStaysForItsReader(self) -> None:
        damaged = {("webhook", "d"): b"{"}
        self.start(REAL, damaged)
        self.assertEqual(self.start(OTHER), {**FOREIGN, **damaged})
