"""
Any sequence of appends, against the model.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.model import topicPrefix
from svcbroker.storage import Store
from tests import examples
from tests.storage.chains import Chain, differences, headOf, newStore, seededChain

blocks = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c/d", "\x80"]), st.binary(max_size=300)), max_size=8
)


class PropertyTests(SynchronousTestCase):
    """
    A store answers as a list in memory would.
    """

    @settings(max_examples=examples(40), deadline=None, derandomize=True, database=None)
    @given(st.lists(st.tuples(blocks, st.booleans()), max_size=12))
    def test_readsMatchModel(self, steps: list[tuple[list[tuple[str, bytes]], bool]]) -> None:
        """
        After any appends, with closing and opening in between, every read agrees with the
        model.
        """
        directory = Path(self.mktemp())
        directory.mkdir()
        store = newStore(directory / "ledger.sqlite")
        chain = Chain()
        for events, reopens in steps:
            store.append(chain.add(events))
            if reopens:
                store.close()
                store = Store.open(store.path)
        try:
            self.assertEqual(differences(store, chain, len(steps)), [])
            self.assertEqual(list(store.topics()), list(chain.topics.values()))
            self.assertEqual(list(store.senders()), list(chain.accounts.values()))
            self.assertEqual(
                store.blockHeads(0, 99), [headOf(append.block) for append in chain.appends]
            )
            for (events, _), append in zip(steps, chain.appends, strict=True):
                height, rows = append.block.height, append.topicBlocks
                first = {row.topicIndex: row.firstSequence for row in rows}
                for index, row in enumerate(chain.topics.values()):
                    contents = [content for topic, content in events if topic == row.topic.name]
                    for number, content in enumerate(contents, first.get(index, 0)):
                        [place] = store.eventPlaces(topicPrefix(row.topic.name), height, number)
                        assert place is not None
                        found = store.bodySlice(height, place.offset, place.length)
                        self.assertEqual(found, content)
        finally:
            store.close()

    def test_readerSeesWholeBlocksOnly(self) -> None:
        """
        While one thread appends, another reads nothing but whole blocks.
        """
        directory = Path(self.mktemp())
        directory.mkdir()
        store = newStore(directory / "ledger.sqlite")
        self.addCleanup(store.close)
        chain = seededChain(1, 300, size=4000)

        def write() -> None:
            for append in chain.appends:
                store.append(append)

        writer = Thread(target=write)
        writer.start()
        height = 0
        while height < chain.height and writer.is_alive():
            tip = store.tip()
            if tip is None:
                continue
            self.assertGreaterEqual(tip.height, height)
            height = tip.height
            append = chain.appends[height - 1]
            self.assertEqual(store.block(height), append.block)
            for row in append.topicBlocks:
                self.assertEqual(store.topicBlocks(row.topicIndex, height - 1, 1), [row])
        writer.join()
        self.assertEqual(differences(store, chain, chain.height), [])
