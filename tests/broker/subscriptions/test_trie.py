"""
Tests of topic matching.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions import _follower
from svcbroker.broker.subscriptions._follower import Dispatcher, Receiver
from svcbroker.broker.subscriptions._topictree import FilterTrie
from svcbroker.errors import PatternInvalid, TopicBlank, TopicInvalid, TopicTooLong
from svcbroker.model import TAG, Event, EventId, checkFilter, filterMatches

from .test_subscriptions import Fixture

LEVEL = st.sampled_from(["", "a", "b", "$x", "cc"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join)
FILTER = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
)


class PatternTests(SynchronousTestCase):
    """MQTT's rules, by example: section 4.7 of both specifications."""

    def test_filtersMatchTopics(self) -> None:
        for filter, topic, expected in (
            ("sport/tennis/player1/#", "sport/tennis/player1", True),
            ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
            ("sport/#", "sport", True),
            ("#", "sport/tennis", True),
            ("sport/tennis/+", "sport/tennis/player1", True),
            ("sport/tennis/+", "sport/tennis/player1/ranking", False),
            ("sport/+", "sport", False),
            ("sport/+", "sport/", True),
            ("+/+", "/finance", True),
            ("/+", "/finance", True),
            ("+", "/finance", False),
            ("#", "$SYS/monitor", False),
            ("+/monitor/Clients", "$SYS/monitor/Clients", False),
            ("$SYS/#", "$SYS/monitor", True),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
            ("a/+/c", "a/b/c", True),
            ("a/+/c/#", "a//c", True),
            ("a", "A", False),
        ):
            self.assertEqual(filterMatches(filter, topic), expected, (filter, topic))

    def test_invalidPatternsAreRefused(self) -> None:
        for filter, error in (
            ("", TopicBlank),
            ("  ", TopicBlank),
            ("a/#/b", PatternInvalid),
            ("a#", PatternInvalid),
            ("#/", PatternInvalid),
            ("##", PatternInvalid),
            ("a+", PatternInvalid),
            ("a/+b/c", PatternInvalid),
            ("++", PatternInvalid),
            ("a/\n/#", TopicInvalid),
            ("\u00e9/+", TopicInvalid),
            ("+/" + "x" * 255, TopicTooLong),
        ):
            with self.assertRaises(error):
                checkFilter(filter)
        for filter in ("#", "+", "+/#", "/", "a/+/b/#", "+/" + "x" * 254, "plain"):
            checkFilter(filter)


class FilterTrieTests(SynchronousTestCase):
    @given(st.lists(st.tuples(FILTER, st.integers(0, 3)), max_size=12), TOPIC, st.data())
    def test_likeTheDefinition(
        self, entries: list[tuple[str, int]], topic: str, data: st.DataObject
    ) -> None:
        """The trie finds what comparing with every filter finds, also after removals."""
        trie: FilterTrie[tuple[str, int]] = FilterTrie()
        kept = set()
        for entry in entries:
            trie.add(entry[0], entry)
            kept.add(entry)
        for entry in (
            data.draw(st.lists(st.sampled_from(sorted(kept)), unique=True)) if kept else ()
        ):
            trie.remove(entry[0], entry)
            kept.discard(entry)
        expected = {entry for entry in kept if filterMatches(entry[0], topic)}
        self.assertEqual(trie.match(topic), expected)

    def test_leavesNothing(self) -> None:
        """What was added and removed costs nothing."""
        trie: FilterTrie[int] = FilterTrie()
        for filter in ("a/+/c", "a/#", "plain", "+"):
            trie.add(filter, 1)
        for filter in ("a/+/c", "a/#", "plain", "+"):
            trie.remove(filter, 1)
        self.assertEqual((trie._patterns._root.below, trie._plain), (None, {}))

    def test_deepFiltersCostTheirLength(self) -> None:
        """Memory is in proportion to the bytes of filters, however many levels they have."""
        filters = [f"{'+/' * 120}{number:04}/{'+/' * 5}+" for number in range(2000)]
        trie: FilterTrie[int] = FilterTrie()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, _ = tracemalloc.get_traced_memory()
        for filter in filters:
            trie.add(filter, 1)
        after, _ = tracemalloc.get_traced_memory()
        self.assertLess(after - before, 5 * sum(map(len, filters)))


class DispatcherTests(SynchronousTestCase):
    """What is remembered of topics."""

    def test_rememberedMatchesAreBounded(self) -> None:
        """One connection may have a thousand subscriptions that match every topic."""
        self.patch(_follower, "REMEMBERED_MATCHES", 10_000)
        dispatcher: Dispatcher[Receiver] = Dispatcher()
        fixture = Fixture()
        fixture.open("a")
        member: Any = fixture.subscribe("a").subscription
        for number in range(1000):
            dispatcher.add("#", f"tag {number}", member)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(100):
            event = Event(
                topic=f"t/{number}",
                content=b"",
                extensions={TAG: "tag 7"},
                eventId=EventId("0", number + 1, 1),
            )
            self.assertEqual(len(list(dispatcher.offers([event], 0))), 1)
        kept, _ = tracemalloc.get_traced_memory()
        self.assertLess(kept, 1_000_000)

    def test_filtersOfAnyNumberOfTopicsAreFound(self) -> None:
        """What was forgotten is looked up again."""
        self.patch(_follower, "REMEMBERED_TOPICS", 3)
        fixture = Fixture()
        topics = [f"t/{number}" for number in range(10)]
        fixture.open(*topics)
        reader = fixture.subscribe("t/+")
        for topic in [*topics, *topics]:
            fixture.publish(topic, topic.encode())
        fixture.turn()
        self.assertEqual(reader.contents, [topic.encode() for topic in [*topics, *topics]])
