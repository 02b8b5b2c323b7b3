"""
Execution of transactions of versions 2 and 3: the package and the reference do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import _execution, decodeBody, execute
from tests import examples

from . import reference, reference_state
from .reference import Sent
from .reference_reading import Authors, asStored, authorsStatement, erasure, readBody, statement
from .reference_state import State
from .support import GENESIS, KEYS, few
from .test_vectors import receiptsOf
from .test_vectors3 import transactionOf

AUTHORS = sorted(KEYS[:3], key=lambda key: key.public_key().public_bytes_raw())
PUBLIC = [key.public_key().public_bytes_raw() for key in AUTHORS]
NAMES = ("a", "b")
KINDS = ["OPEN", "CLOSE", *["AUTHORS", "ERASE"] * 2, *["PUBLISH"] * 10]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def authorSets(draw: Draw, generations: st.SearchStrategy[int]) -> Authors:
    """A set of authors of two or fewer of the keys."""
    members = st.lists(st.sampled_from(PUBLIC), unique=True, max_size=2).map(sorted)
    return Authors(draw(generations), draw(members) or PUBLIC[:1], draw(members))


def publish(draw: Draw, nonce: int, topic: str, versions: Sequence[int]) -> Sent:
    """A publish, signed or not, truly or not."""
    sent = Sent("PUBLISH", bytes(20), nonce, topic, version=draw(st.sampled_from(versions)))
    sent.content = draw(st.sampled_from([b"one", b"one", b""]))
    sent.salt = bytes(32)
    sent.key = draw(st.sampled_from([None, "k", "k", "l"]))
    sent.expected = draw(st.sampled_from([*[None] * 9, 0, 1, 2]))
    sent.extensions = draw(st.sampled_from([{}, {"svc-private-a": "1", "svc-b": "2"}]))
    signer = draw(st.sampled_from([None, None, 0, 1]))
    if signer is None:
        sent.owner = b"" if sent.key is None else draw(st.sampled_from([b"o" * 20, b"p" * 20]))
        return sent
    sent.author = PUBLIC[signer]
    # A forged one now and then.
    what = sent.content + draw(st.sampled_from([b""] * 7 + [b"!"]))
    expected = draw(st.sampled_from([*[sent.expected] * 7, None, 1]))
    if sent.version == 3:
        sent.statement = draw(st.sampled_from([1, 2, 2]))
    said = statement(
        GENESIS.chain, topic, what, 0, sent.key, sent.extensions, sent.statement, expected
    )
    sent.signature = AUTHORS[signer].sign(said)
    return sent


@st.composite
def blocks(draw: Draw, format: int) -> list[list[Sent]]:
    """Some blocks of transactions about two topics, of versions that a format has."""
    nonce, versions = 0, [2, 2, 3] if format == 4 else [2]

    def one() -> Sent:
        nonlocal nonce
        # A nonce comes again now and then.
        nonce += draw(st.sampled_from([*[1] * 15, 0]))
        topic = draw(st.sampled_from(["a", "a", "b"]))
        kind = draw(
            st.sampled_from(["OPEN", "CLOSE", *["AUTHORS", "ERASE"] * 2, *["PUBLISH"] * 10])
        )
        if kind == "PUBLISH":
            return publish(draw, nonce, topic, versions)
        content = b""
        if kind == "OPEN" and draw(st.booleans()):
            content = draw(authorSets(st.just(0))).encoded
        elif kind == "AUTHORS":
            following = draw(authorSets(st.sampled_from([1, 1, 2])))
            admin = draw(st.sampled_from([0, 0, 1]))
            signature = AUTHORS[admin].sign(authorsStatement(GENESIS.chain, topic, following))
            content = following.encoded + PUBLIC[admin] + signature
        elif kind == "ERASE":
            first = draw(st.integers(1, 3))
            content = erasure("", "", [(first, first + draw(st.integers(0, 1)))])
        return Sent(kind, bytes(20), nonce, topic, content, version=2)

    authors = draw(st.sampled_from([b"", Authors(0, PUBLIC[:2], PUBLIC[:2]).encoded]))
    opening = [
        Sent("OPEN", bytes(20), nonce := nonce + 1, name, content, version=2)
        for name, content in zip(NAMES, (authors, b""), strict=True)
    ]
    sizes = draw(st.lists(st.integers(0, 10), max_size=4))
    return [opening, *([one() for _ in range(size)] for size in sizes)]


class ExecutionTests(SynchronousTestCase):
    """
    Any blocks, executed by both, from whole bodies and from stored ones.
    """

    @settings(few, max_examples=examples(400))
    @given(blocks(3), st.sampled_from([2, 2**20]))
    def test_packageExecutesAsReference(self, drawn: list[list[Sent]], window: int) -> None:
        """Receipts, states, uses of keys and erased events are the same."""
        self.compareBoth(drawn, window, 3)

    @settings(few, max_examples=examples(400))
    @given(blocks(4), st.sampled_from([2, 2**20]))
    def test_format4IsExecutedAsReference(self, drawn: list[list[Sent]], window: int) -> None:
        """The same in blocks of format 4."""
        self.compareBoth(drawn, window, 4)

    def compareBoth(self, drawn: list[list[Sent]], window: int, format: int) -> None:
        """Execute blocks of a format by both."""
        self.format = format
        with (
            patch.object(_execution, "KEY_WINDOW", window),
            patch.object(reference_state, "IN_FORCE", window),
        ):
            ends = self.run_(drawn)
            self.runStored(drawn, ends)

    def run_(self, drawn: list[list[Sent]]) -> list[reference.Receipts]:
        """Execute blocks by both; their receipts."""
        model, state = State(GENESIS.chain, inForce=reference_state.IN_FORCE), GENESIS.state()
        made = []
        for height, block in enumerate(drawn, start=1):
            ends = model.execute(block, height, height, format=self.format)
            transactions = [transactionOf(sent) for sent in block]
            outcome = execute(state, transactions, height, height, format=self.format)
            self.assertEqual(outcome.receipts, receiptsOf(list(ends)))
            state.apply(outcome, state.history.after(bytes(32)))
            self.compare(model, state)
            made.append(ends)
        self.erased = model.erased
        return made

    def runStored(self, drawn: list[list[Sent]], made: list[reference.Receipts]) -> None:
        """Execute blocks by both from bodies in which what was erased is missing."""
        model, state = State(GENESIS.chain, inForce=reference_state.IN_FORCE), GENESIS.state()
        for height, (block, ends) in enumerate(zip(drawn, made, strict=True), start=1):
            stored = [
                sent.erased
                if sent.kind == "PUBLISH" and (sent.topic, number) in self.erased and end == "DONE"
                else sent
                for sent, (end, number) in zip(asStored(block, ends), ends, strict=True)
            ]
            body = reference.body(stored)
            again = model.execute(readBody(body, True), height, height, ends, self.format)
            self.assertEqual(again, ends)
            receipts = receiptsOf(list(ends))
            outcome = execute(state, decodeBody(body, True), height, height, receipts, self.format)
            self.assertEqual(outcome.receipts, receipts)
            state.apply(outcome, state.history.after(bytes(32)))
            self.compare(model, state)

    def compare(self, model: State, state: Any) -> None:
        """The same state, and the same uses of keys."""
        self.assertEqual(state.root, model.root)
        names = list(model.topics)
        uses = state.keys.find(model.uses)
        for (owner, key), use in model.uses.items():
            found = uses[owner, key]
            self.assertEqual(found.number, use.number)
            self.assertEqual((names[found.topic], found.sequence), (use.topic, use.sequence))
            isErased = (use.topic, use.sequence) in model.erased
            self.assertEqual(found.digest, None if isErased else use.digest)
            self.assertEqual(state.keys.count(owner), model.counts[owner])
