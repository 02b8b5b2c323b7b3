"""
Holds: which events they keep from being erased, their number, and their execution beside the
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from svcbroker.chain import (
    Hold,
    HoldChange,
    Holds,
    Kind,
    Malformed,
    Release,
    Transaction,
    execute,
    topicAddress,
)
from svcbroker.model import MAX_HOLDS, Execution

from .reference import Sent
from .reference_reading import erasure
from .reference_state import State, matches
from .support import GENESIS, few
from .test_vectors import receiptsOf
from .test_vectors3 import transactionOf
from .test_version2 import ChainTestCase

Draw = Callable[[st.SearchStrategy[Any]], Any]

LEVELS = st.sampled_from(["a", "b", "", "$c"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
PATTERNS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=3),
    st.sampled_from([[], [], ["#"]]),
).filter(bool) | st.just("#")
ADDRESS = bytes(20)
DONE, REFUSED, HELD = ((end, 0) for end in (Execution.DONE, Execution.REFUSED, Execution.HELD))


def changeOf(content: Hold | Release) -> HoldChange:
    """A hold or a release that was executed."""
    kind = Kind.HOLD if isinstance(content, Hold) else Kind.RELEASE
    made = Transaction.make(kind, bytes(20), 1, 0, "", content.encode(), 3)
    entry = made.head + made.content
    return HoldChange(content=content, entry=entry, hash=made.hash, height=1, position=0, time=0)


def hold(case: str, patterns: Sequence[str] = (), events: Sequence[tuple[bytes, int]] = ()) -> Hold:
    """A hold."""
    return Hold(
        case=case,
        account="ops",
        reason="",
        patterns=sorted(set(patterns), key=str.encode),
        events=sorted(set(events)),
    )


class HoldsTests(ChainTestCase):
    """
    The holds in force.
    """

    def test_manyRangesAreFoundAsFew(self) -> None:
        """A hold of one of them is found, at the first, the last, and in between."""
        ranges = [(10 * number, 10 * number + 1) for number in range(1, 1025)]
        for held, expected in (([10], 1), ([10241], 1), ([4, 5001], 1), ([9, 12, 10242], 0)):
            holds = Holds()
            holds.apply(changeOf(hold("a", (), [(ADDRESS, each) for each in held])))
            holds.apply(changeOf(hold("b", (), [(b"b" * 20, 10)])))
            found = [*holds.casesOf("t", ADDRESS, ranges)]
            self.assertEqual(found, ["a"] * expected)
            few = {case for each in ranges for case in holds.casesOf("t", ADDRESS, [each])}
            self.assertEqual(set(found), few)

    @few
    @given(st.lists(st.lists(PATTERNS, min_size=1, max_size=4), max_size=5), NAMES, st.data())
    def test_patternsMatchAsReference(
        self, drawn: list[list[str]], name: str, data: st.DataObject
    ) -> None:
        """The cases of a topic are those with a pattern that matches, also after releases."""
        holds = Holds()
        for number, patterns in enumerate(drawn):
            holds.apply(changeOf(hold(str(number), patterns)))
        cases = [str(number) for number in range(len(drawn))]
        released = data.draw(st.sets(st.sampled_from(cases)) if cases else st.just(set()))
        for case in released:
            holds.apply(changeOf(Release(case=case, account="", reason="")))
        expected = {
            case
            for case, patterns in zip(cases, drawn, strict=True)
            if case not in released
            and any(matches(each.split("/"), name.split("/")) for each in patterns)
        }
        self.assertEqual(set(holds.casesOf(name, ADDRESS, [(1, 1)])), expected)
        found = {each.case for some in holds.rangesOf(name, ADDRESS, [(1, 1)]) for each in some}
        self.assertEqual(found, expected)
        for case in set(cases) - released:
            holds.apply(changeOf(Release(case=case, account="", reason="")))
        # Nothing grows with the number of holds that ever were.
        self.assertEqual((len(holds), holds._root.below, holds._events), (0, {}, {}))

    def test_eventsAreTold(self) -> None:
        """Held events of a topic are told as ranges within those that are asked for."""
        holds = Holds()
        holds.apply(changeOf(hold("b", (), [(ADDRESS, n) for n in (1, 2, 3, 7, 9)])))
        holds.apply(changeOf(hold("a", (), [(ADDRESS, 9), (b"x" * 20, 4)])))
        holds.apply(changeOf(hold("c", ["t/#"])))
        found = {
            each.case: [(each.first, each.last), *((more.first, more.last) for more in some)]
            for some in holds.rangesOf("t", ADDRESS, [(2, 2), (3, 7), (8, 9)])
            for each in some
        }
        self.assertEqual(
            found,
            {
                "a": [(9, 9)],
                "b": [(2, 2), (3, 3), (7, 7), (9, 9)],
                "c": [(2, 2), (3, 7), (8, 9)],
            },
        )
        self.assertEqual(list(holds.casesOf("u", ADDRESS, [(4, 6), (8, 8)])), [])
        self.assertEqual(list(holds.casesOf("u", ADDRESS, [(4, 6), (8, 9)])), ["b", "a"])


class ExecutionTests(ChainTestCase):
    """
    Holds in blocks.
    """

    def hold(self, case: str, **given: Any) -> Transaction:
        """A hold's transaction."""
        return self.make(Kind.HOLD, "", hold(case, **given).encode(), 3)

    def release(self, case: str) -> Transaction:
        """A release's transaction."""
        content = Release(case=case, account="", reason="").encode()
        return self.make(Kind.RELEASE, "", content, 3)

    def test_thousandHoldsAreInForce(self) -> None:
        """No more are, whether they came in one block or in several."""
        first = [self.hold(f"case-{number}", patterns=["a"]) for number in range(MAX_HOLDS - 1)]
        self.assertEqual(set(self.run_(*first)), {DONE})
        more = [self.hold(f"more-{number}", patterns=["a"]) for number in range(2)]
        self.assertEqual(self.run_(*more), [DONE, REFUSED])
        self.assertEqual(len(self.state.holds), MAX_HOLDS)
        block = (self.hold("x", patterns=["a"]), self.release("case-7"))
        self.assertEqual(
            self.run_(*block, self.hold("y", patterns=["a"]), self.hold("z", patterns=["a"])),
            [REFUSED, DONE, DONE, REFUSED],
        )
        self.assertEqual(self.state.holds.released, self.head.height)

    def test_heldEventsAreNotErasedInBlockOfHold(self) -> None:
        """A hold and a release count from their place in the block on."""
        opening = self.make(Kind.OPEN, "t", b"", 3)
        self.run_(opening, *(self.publish() for _ in range(4)))
        address = topicAddress(GENESIS.chain, "t")
        self.assertEqual(
            self.run_(
                self.erase((1, 1)),
                self.hold("one", events=[(address, 2), (address, 4)]),
                self.hold("two", events=[(address, 1)]),
                self.erase((1, 3)),
                self.erase((3, 3)),
                self.hold("two", patterns=["+"]),
                self.release("one"),
                self.erase((2, 2)),
                self.release("two"),
                self.erase((2, 2), (4, 4)),
            ),
            [DONE, DONE, REFUSED, HELD, DONE, DONE, DONE, HELD, DONE, DONE],
        )
        self.replay()

    def test_holdIsOfVersion3AndHasNoTopic(self) -> None:
        """Others are malformed."""
        content = hold("a", ["a"]).encode()
        for kind, version, topic in ((7, 2, ""), (7, 3, "a"), (8, 3, ""), (9, 3, "")):
            made = Transaction.make(Kind.HOLD, bytes(20), 1, 0, topic, content, version)
            entry = bytes([version, kind]) + (made.head + content)[2:]
            self.assertRaises(Malformed, Transaction.decode, entry)

    @few
    @given(st.data())
    def test_blocksAreExecutedAsReference(self, data: st.DataObject) -> None:
        """Any holds, releases and erasures end as in the reference."""
        model, state = State(GENESIS.chain), GENESIS.state()
        nonce = 0

        def sent(kind: str, topic: str = "", content: bytes = b"", version: int = 3) -> Sent:
            nonlocal nonce
            nonce += 1
            made = Sent(kind, bytes(20), nonce, topic, content, version=version)
            made.salt = bytes(32) if kind == "PUBLISH" else b""
            return made

        names = ["a", "a/b"]
        block = [sent("OPEN", name) for name in names]
        block += [sent("PUBLISH", name, b"x") for name in names for _ in range(3)]
        for height in range(1, 5):
            ends = model.execute(block, height, height, format=4)
            outcome = execute(state, [transactionOf(each) for each in block], height, height)
            self.assertEqual(outcome.receipts, receiptsOf(list(ends)))
            state.apply(outcome, state.history.after(bytes(32)))
            self.assertEqual({each.content.case for each in state.holds}, set(model.holds))
            block = [self.any(data.draw, sent) for _ in range(data.draw(st.integers(0, 8)))]

    def any(self, draw: Draw, sent: Callable[..., Sent]) -> Sent:
        """Any transaction about the events of two topics."""
        kind = draw(st.sampled_from(["HOLD", "HOLD", "RELEASE", "ERASE", "ERASE", "PUBLISH"]))
        topic = draw(st.sampled_from(["a", "a/b", "c"]))
        case = draw(st.sampled_from(["1", "2", "3"]))
        if kind == "PUBLISH":
            return sent(kind, topic, b"y")
        if kind == "RELEASE":
            return sent(kind, content=Release(case=case, account="", reason="").encode())
        if kind == "ERASE":
            first = draw(st.integers(1, 4))
            ranges = [(first, first + draw(st.integers(0, 1)))]
            return sent(kind, topic, erasure("", "", ranges), draw(st.sampled_from([2, 3])))
        if draw(st.booleans()):
            patterns = draw(st.lists(st.sampled_from(["a", "a/#", "+/b", "c"]), min_size=1))
            return sent(kind, content=hold(case, patterns).encode())
        address = topicAddress(GENESIS.chain, topic)
        numbers = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
        events = [(address, number) for number in numbers]
        return sent(kind, content=hold(case, (), events).encode())
