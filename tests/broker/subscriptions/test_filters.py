"""
Tests of subscriptions with several filters, which come and go.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.broker.subscriptions._topictree import FilterSet
from svcbroker.model import Edge, filterMatches

from .test_subscriptions import Fixture
from .test_trie import FILTER, TOPIC

TOPICS = ("a", "b", "c/1", "c/2")
FILTERS = (*TOPICS, "+", "c/+", "c/#", "#", "d")


class FilterSetTests(SynchronousTestCase):
    @given(st.lists(FILTER, max_size=20), st.lists(FILTER, max_size=5), TOPIC)
    def test_anyFilterMatches(self, first: list[str], more: list[str], topic: str) -> None:
        """Few filters or many, before and after a change."""
        filters = FilterSet(first)
        expected = list(first)
        filters.matches(topic)
        for filter in more:
            if filter in filters.filters:
                filters.remove(filter)
                expected = [each for each in expected if each != filter]
            else:
                filters.add(filter)
                expected.append(filter)
            self.assertEqual(
                filters.matches(topic), any(filterMatches(each, topic) for each in expected)
            )
            self.assertEqual(
                filters.hasPatterns, any("+" in each or "#" in each for each in expected)
            )


class ChangeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = Fixture()
        self.fixture.open(*TOPICS)

    def test_eventOfTwoFiltersComesOnce(self) -> None:
        """Live and from history, in the order of the log; equal matches share a batch."""
        live = [self.fixture.subscribe("a", "+", "c/#", flow=True) for _ in range(2)]
        other = self.fixture.subscribe("a", "+", "b")
        for number, topic in enumerate(("c/1", "b", "a", "c/2")):
            self.fixture.publish(topic, b"%d" % number)
        self.fixture.turn()
        past = self.fixture.subscribe("a", "+", "c/#", offset=Edge.FIRST)
        self.fixture.turn()
        for reader in (*live, past):
            self.assertEqual(reader.contents, [b"0", b"1", b"2", b"3"])
        self.assertEqual(other.contents, [b"1", b"2"])
        for mine, same in zip(*(reader.batches for reader in live), strict=True):
            self.assertIs(mine, same)

    def test_addedFilterBeginsAtTheEnd(self) -> None:
        """The place is behind what is final, though it may not have been dispatched yet."""
        reader = self.fixture.subscribe("a")
        self.fixture.publish("b", b"before")
        place = reader.subscription.addFilter("b")
        self.fixture.publish("b", b"after")
        self.fixture.turn()
        events = [event for event in reader.events if event.position > place]
        self.assertEqual([event.content for event in events], [b"after"])
        self.assertEqual(reader.subscription.request.filters, ("a", "b"))

    def test_refusedFilterChangesNothing(self) -> None:
        reader = self.fixture.subscribe("a")
        for filter, error in (
            ("", errors.TopicBlank),
            ("a/#/b", errors.PatternInvalid),
            ("/" * 128 + "+", errors.PatternInvalid),
        ):
            self.assertRaises(error, reader.subscription.addFilter, filter)
        self.assertEqual(reader.subscription.request.filters, ("a",))

    def test_closedSubscriptionLeavesNothing(self) -> None:
        reader = self.fixture.subscribe("a")
        for filter in ("#", "b", "c/+"):
            reader.subscription.addFilter(filter)
        reader.subscription.removeFilter("a")
        reader.subscription.close()
        follower = self.fixture.subscriptions._followers["1"]
        self.assertEqual(follower.dispatcher._audiences, {})

    def test_changesWhileReadingLoseNothing(self) -> None:
        """
        Filters come and go while readers are live, paused, or on a walk through history: each event
        comes once and in order, and those come that a filter matches from the event's publication
        on.
        """
        for seed in range(150):
            random, fixture = Random(seed), Fixture()
            self.fixture = fixture
            fixture.open(*TOPICS)
            count = 0
            readers = [fixture.subscribe("a", offset=Edge.FIRST) for _ in range(3)]
            held: list[dict[str, set[bytes]]] = [{"a": set()} for _ in readers]
            for _ in range(80):
                number = random.randrange(len(readers))
                reader, filters = readers[number], held[number]
                chance = random.random()
                if chance < 0.4:
                    for _ in range(random.randrange(1, 5)):
                        topic, content = random.choice(TOPICS), b"%d" % count
                        count += 1
                        for each in held:
                            for filter, owed in each.items():
                                if filterMatches(filter, topic):
                                    owed.add(content)
                        fixture.publish(topic, content)
                elif chance < 0.6:
                    filter = random.choice(FILTERS)
                    if filter not in filters:
                        reader.subscription.addFilter(filter)
                        filters[filter] = set()
                    elif len(filters) > 1:
                        reader.subscription.removeFilter(filter)
                        del filters[filter]
                elif chance < 0.75:
                    reader.left = random.randrange(1, 4)
                    reader.subscription.resume()
                else:
                    for _ in range(random.randrange(1, 6)):
                        fixture.clock.advance(random.choice((0, 0.001)))
            for reader, filters in zip(readers, held, strict=True):
                reader.left = None
                reader.subscription.resume()
                fixture.turn()
                fixture.clock.advance(1)
                fixture.turn()
                numbers = [int(content) for content in reader.contents]
                self.assertEqual(numbers, sorted(set(numbers)), f"seed {seed}")
                for owed in filters.values():
                    self.assertEqual(owed - set(reader.contents), set(), f"seed {seed}")
