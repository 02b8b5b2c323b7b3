"""
Frames of ABCI 2.0: as they were recorded from CometBFT 0.38.25, and any others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft.abci import (
    REQUESTS,
    RESPONSES,
    AbciFrameParser,
    decodeRequest,
    decodeResponse,
    encodeFrame,
)
from svcbroker.ledgers.cometbft.abci.messages import (
    CheckTxRequest,
    FinalizeBlockRequest,
    InfoRequest,
    InfoResponse,
    InitChainRequest,
    PrepareProposalResponse,
    ValidatorPublicKey,
)
from svcbroker.ledgers.cometbft.abci.protobuf import encode
from svcbroker.proofs.cometbft.wire import WireMalformed, delimited, encodeVarint

from .applications import cutAt

RECORDED = Path(__file__).parent / "fixtures" / "abci.jsonl"


def recorded() -> Iterator[tuple[str, bytes, bytes]]:
    """The name of each call, the request and the response, without their lengths."""
    for line in RECORDED.read_text("ascii").splitlines():
        row = json.loads(line)
        yield row["call"], bytes.fromhex(row["request"]), bytes.fromhex(row["response"])


@cache
def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type. Numbers are small enough for every field."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(0, 2**31 - 1),
        bool: st.booleans(),
        bytes: st.binary(max_size=20),
        str: st.text(max_size=5),
        type(None): st.none(),
    }
    if kind in simple:
        return simple[kind]
    if get_origin(kind) is tuple:
        return st.lists(strategy(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is UnionType:
        return st.one_of([strategy(each) for each in get_args(kind)])
    if issubclass(kind, IntEnum):
        return st.sampled_from(kind)
    if kind is ValidatorPublicKey:
        return st.builds(ValidatorPublicKey, ed25519=st.binary(max_size=32))
    hints = get_type_hints(kind)
    return st.builds(kind, **{each.name: strategy(hints[each.name]) for each in attrs.fields(kind)})


def frames(*tables: dict[int, Any]) -> st.SearchStrategy[Any]:
    """Any message of the tables."""
    return st.one_of([strategy(kind) for table in tables for kind in table.values()])


def frameIn(data: bytes) -> bytes:
    """The content of the one frame in C{data}."""
    parser = AbciFrameParser()
    parser.feed(data)
    frame = parser.nextFrame()
    assert frame is not None and not parser.buffered
    return frame


class RecordedTests(SynchronousTestCase):
    """
    Tests for the messages of a real engine and a real application.
    """

    def test_recordedFramesAreWrittenAgain(self) -> None:
        """Recorded frames are written to the same bytes, without fields that are not declared."""
        calls = set()
        for call, request, response in recorded():
            calls.add(call)
            asked = decodeRequest(request)
            written = frameIn(encodeFrame(asked))
            self.assertEqual(decodeRequest(written), asked)
            if call in {"flush", "info", "check_tx", "commit"}:
                self.assertEqual(written, request)
            answer = decodeResponse(response)
            written = frameIn(encodeFrame(answer))
            self.assertEqual(decodeResponse(written), answer)
            if call != "check_tx":
                self.assertEqual(written, response)
        self.assertEqual(
            calls,
            {
                *("flush", "info", "init_chain", "check_tx"),
                *("prepare_proposal", "process_proposal", "finalize_block", "commit"),
            },
        )

    def test_classesMatchCallNames(self) -> None:
        """The classes are those of the calls."""
        for call, request, response in recorded():
            name = call.title().replace("_", "")
            self.assertEqual(type(decodeRequest(request)).__name__, f"{name}Request")
            self.assertEqual(type(decodeResponse(response)).__name__, f"{name}Response")

    def test_recordedValuesAreRead(self) -> None:
        """Some of what was said, in words."""
        said = [decodeRequest(request) for _, request, _ in recorded()]
        info = next(each for each in said if isinstance(each, InfoRequest))
        self.assertEqual(
            info,
            InfoRequest(version="0.38.25", blockVersion=11, p2pVersion=8, abciVersion="2.0.0"),
        )
        init = next(each for each in said if isinstance(each, InitChainRequest))
        self.assertEqual(init.chainId, "chain-L8lwUK")
        # 2026-11-20T11:57:31.080538417Z, as the genesis file has it.
        self.assertEqual(init.time, 1_795_175_851_080_538_417)
        self.assertEqual(len(init.validators), 4)
        self.assertEqual({each.power for each in init.validators}, {1})
        block = [each for each in said if isinstance(each, FinalizeBlockRequest)][-1]
        self.assertEqual(len(block.proposerAddress), 20)
        answers = [decodeResponse(response) for _, _, response in recorded()]
        self.assertIn(InfoResponse(data="topics", version="0.1", appVersion=1), answers)


class RoundTripTests(SynchronousTestCase):
    """
    Every message that there is.
    """

    def test_responseNumberFollowsRequestNumber(self) -> None:
        """The number of a response is one more than its request's; only the first is no answer."""
        self.assertEqual({number + 1 for number in REQUESTS} | {1}, set(RESPONSES))
        for number, kind in REQUESTS.items():
            self.assertEqual(
                kind.__name__.replace("Request", "Response"), RESPONSES[number + 1].__name__
            )

    @given(frames(REQUESTS))
    @settings(deadline=None)
    def test_requestsRoundTrip(self, value: Any) -> None:
        """A written request is read."""
        self.assertEqual(decodeRequest(frameIn(encodeFrame(value))), value)

    @given(frames(RESPONSES))
    @settings(deadline=None)
    def test_responsesRoundTrip(self, value: Any) -> None:
        """A written response is read."""
        self.assertEqual(decodeResponse(frameIn(encodeFrame(value))), value)

    @given(st.lists(frames(REQUESTS), max_size=4), st.data())
    def test_framesSurviveAnyFragmentation(self, values: list[Any], data: st.DataObject) -> None:
        """However a stream is cut, the same frames come out of it."""
        stream = b"".join(map(encodeFrame, values))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        parser = AbciFrameParser()
        out = []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            parser.feed(stream[start:end])
            while (frame := parser.nextFrame()) is not None:
                out.append(decodeRequest(frame))
        self.assertEqual(out, values)
        self.assertEqual(parser.buffered, 0)

    def test_lastMessageOfFrameCounts(self) -> None:
        """Of two messages in one frame the last counts; those that are not known do not."""
        one, two = (frameIn(encodeFrame(CheckTxRequest(tx=each))) for each in (b"1", b"2"))
        other = encodeVarint(99 << 3 | 2) + delimited(b"?")
        self.assertEqual(decodeRequest(one + two + other), CheckTxRequest(tx=b"2"))


class HostileTests(SynchronousTestCase):
    """
    Tests for data that no engine sends.
    """

    def test_unknownMessagesAreRefused(self) -> None:
        """A frame has one message that is known."""
        for data, text in (
            (b"", "there is no message"),
            # insert_tx, of later engines.
            (encodeVarint(21 << 3 | 2) + b"\x00", "message 21 is not known"),
            (encodeVarint(1 << 3) + b"\x00", "message 1 has wire type 0"),
            (encodeVarint(1 << 3 | 2) + b"\x01", "longer than what it stands in"),
        ):
            with self.assertRaises(WireMalformed) as raised:
                decodeRequest(data)
            self.assertIn(text, str(raised.exception))

    def test_oversizedFrameIsRefusedByLength(self) -> None:
        """A frame that is too large is refused by its length alone."""
        parser = AbciFrameParser(maxFrame=10)
        parser.feed(encodeVarint(10) + bytes(10) + encodeVarint(11))
        self.assertEqual(parser.nextFrame(), bytes(10))
        with self.assertRaises(WireMalformed) as raised:
            parser.nextFrame()
        self.assertIn("at most 10 bytes, not 11", str(raised.exception))

    def test_unfinishedLengthIsAwaited(self) -> None:
        """A length that does not end is refused; one that may still end is waited for."""
        parser = AbciFrameParser()
        parser.feed(b"\xff" * 9)
        self.assertIsNone(parser.nextFrame())
        parser.feed(b"\xff")
        with self.assertRaises(WireMalformed):
            parser.nextFrame()

    @given(st.binary())
    @settings(deadline=None)
    def test_garbageIsMalformedOrRequest(self, data: bytes) -> None:
        """Whatever comes is a request, or malformed."""
        parser = AbciFrameParser(maxFrame=50)
        parser.feed(data)
        try:
            while (frame := parser.nextFrame()) is not None:
                decodeRequest(frame)
        except WireMalformed:
            return
        self.assertLess(parser.buffered, 60)

    @given(st.sampled_from(list(recorded())), st.data())
    def test_changedFrameNeverBreaksReader(
        self, row: tuple[str, bytes, bytes], data: st.DataObject
    ) -> None:
        """A real frame in which a byte was changed, or which was cut, never breaks the reader."""
        for whole, read in ((row[1], decodeRequest), (row[2], decodeResponse)):
            at = data.draw(st.integers(0, len(whole) - 1))
            byte = data.draw(st.binary(max_size=1))
            for changed in (whole[:at] + byte + whole[at + 1 :], whole[:at]):
                try:
                    value = read(changed)
                except WireMalformed:
                    continue
                self.assertEqual(read(frameIn(encodeFrame(value))), value)

    def test_largeBlockParsesInLinearTime(self) -> None:
        """A large block in small pieces takes time by its size, not by the square of it."""
        stream = encodeFrame(FinalizeBlockRequest(txs=(bytes(8_000_000),)))
        parser = AbciFrameParser()
        for start in range(0, len(stream), 4096):
            self.assertIsNone(parser.nextFrame())
            parser.feed(stream[start : start + 4096])
        self.assertIsNotNone(parser.nextFrame())


class CutTests(SynchronousTestCase):
    """
    Tests for the transactions that fit into a block.
    """

    def test_cutCountsFraming(self) -> None:
        """Transactions count with what stands before them in a block."""
        txs = (bytes(10), bytes(127), bytes(128), b"")
        for size, count in ((0, 0), (11, 0), (12, 1), (140, 1), (141, 2), (271, 2), (272, 3)):
            self.assertEqual(cutAt(txs, size), txs[:count])
        self.assertEqual(cutAt(txs, 274), txs)
        for tx in txs:
            size = len(encode(PrepareProposalResponse(txs=(tx,))))
            self.assertEqual(cutAt((tx,), size), (tx,))
            self.assertEqual(cutAt((tx,), size - 1), ())
