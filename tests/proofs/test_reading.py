"""
Reading: whatever bytes come, they are a proof or L{ProofInvalid}.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import (
    Checkpoint,
    GenesisFields,
    ProofInvalid,
    formatOf,
    readCheckpoint,
    readGenesis,
    verifyConsistency,
    verifyProof,
)
from svcbroker.proofs import _documents as reading
from tests import examples

from .support import proofs

KEPT = Checkpoint(3, bytes(32))
some = settings(max_examples=examples(300), deadline=None, derandomize=True, database=None)


def readAll(data: bytes) -> int:
    """Read bytes as everything that can be read; how much of it they were."""
    count = 0
    readers: list[Any] = [
        lambda: verifyProof(data, chain=bytes(32), checkpoint=KEPT),
        lambda: verifyConsistency(data, older=KEPT, newer=KEPT),
        lambda: readGenesis(data),
        lambda: readCheckpoint(data),
        lambda: formatOf(data),
    ]
    for read in readers:
        try:
            read()
        except ProofInvalid as error:
            assert str(error)
        else:
            count += 1
    return count


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


class FuzzTests(SynchronousTestCase):
    """
    Nothing but L{ProofInvalid} comes out.
    """

    @some
    @given(st.binary(max_size=300))
    def test_arbitraryBytesAreInvalid(self, data: bytes) -> None:
        """Any bytes."""
        readAll(data)

    @some
    @given(anything)
    def test_arbitraryJsonIsInvalid(self, value: object) -> None:
        """Any JSON, and what Python takes for JSON."""
        readAll(json.dumps(value).encode())
        readAll(json.dumps({"jsonrpc": "2.0", "result": value}).encode())

    @some
    @given(st.data())
    def test_arbitraryMembersAreInvalid(self, data: st.DataObject) -> None:
        """Any JSON in the place of any member, at any depth, of a proof."""
        made = proofs()
        texts = [*made.events.values(), *(each[0] for each in made.growth.values())]
        document = json.loads(data.draw(st.sampled_from(texts)))
        place: Any = document
        for _ in range(data.draw(st.integers(0, 5))):
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            inner = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
            if not inner:
                break
            place = place[data.draw(st.sampled_from(inner))]
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        place[data.draw(st.sampled_from(keys))] = data.draw(anything)
        self.assertLessEqual(readAll(json.dumps(document).encode()), 1)

    def test_hostileBytesAreInvalid(self) -> None:
        """Bytes of which readers are afraid."""
        for data in (
            b"",
            b"\xef\xbb\xbf{}",
            '{"format": 1}'.encode("utf-16"),
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"1" * 5000,
            b'{"format": NaN}',
            b'{"format": "\\ud800"}',
            b"null",
            b'{"jsonrpc": "2.0"}',
            b'{"jsonrpc": "2.0", "result": null}',
            b'{"jsonrpc": [], "result": {"jsonrpc": "2.0", "result": []}}',
        ):
            self.assertEqual(readAll(data), 0, data[:40])

    def test_tooLongProofsAreNotRead(self) -> None:
        """A text that is too long is not looked at."""
        self.patch(reading, "MAX_PROOF_SIZE", 10)
        with self.assertRaisesRegex(ProofInvalid, "never as long"):
            formatOf(b'{"format": "x"}')


class FormTests(SynchronousTestCase):
    """
    The forms in which answers of a broker are saved.
    """

    def setUp(self) -> None:
        self.made = proofs()
        self.chain = self.made.genesis.chain
        self.proof = self.made.events["unicode"]

    def test_jsonRpcResponseIsRead(self) -> None:
        """The response of JSON-RPC is as good as the proof in it."""
        bare = verifyProof(self.proof, chain=self.chain)
        response = b'{"jsonrpc": "2.0", "id": 7, "result": ' + self.proof + b"}"
        self.assertEqual(verifyProof(response, chain=self.chain), bare)
        self.assertEqual(formatOf(response), "svcbroker/event-proof/1")

    def test_whitespaceAndEscapesAreRead(self) -> None:
        """A proof may be written with spaces and escapes."""
        text = json.dumps(json.loads(self.proof), indent=4).encode("ascii")
        bare = verifyProof(self.proof, chain=self.chain)
        self.assertEqual(verifyProof(text, chain=self.chain), bare)

    def test_duplicateMemberIsRefused(self) -> None:
        """A member that is there twice could be read in two ways."""
        for old, new in (
            (b'{"format"', b'{"event": {}, "format"'),
            (b'"height":', b'"height": 1, "height":'),
            (b'"svc-a":', b'"svc-a": "", "svc-a":'),
        ):
            changed = self.proof.replace(old, new, 1)
            self.assertNotEqual(changed, self.proof)
            with self.assertRaisesRegex(ProofInvalid, "twice"):
                verifyProof(changed, chain=self.chain)

    def test_brokersRefusalIsTold(self) -> None:
        """If the broker has refused, its words are told."""
        for data in (
            b'{"code": 100303, "message": "event does not exist"}',
            b'{"jsonrpc": "2.0", "id": 1, "error": '
            b'{"code": -32023, "message": "event does not exist", "data": {}}}',
        ):
            with self.assertRaisesRegex(ProofInvalid, "refusal: event does not exist"):
                verifyProof(data, chain=self.chain)

    def test_genesisIsReadBack(self) -> None:
        """A genesis is read back, and another kind of document is not one."""
        data = encode(GenesisFields.of(self.made.genesis))
        self.assertEqual(readGenesis(data), self.made.genesis)
        self.assertRaises(ProofInvalid, readGenesis, self.proof)
        self.assertRaises(ProofInvalid, readGenesis, data.replace(b'"group":"1"', b'"group":"2"'))

    def test_checkpointIsReadInBothForms(self) -> None:
        """A checkpoint is read as text, or in the answer of the operation."""
        text = str(KEPT)
        for data in (
            text.encode(),
            f"  {text}\n".encode(),
            json.dumps({"group": "1", "checkpoint": text}).encode(),
            json.dumps({"jsonrpc": "2.0", "result": {"checkpoint": text}}).encode(),
        ):
            self.assertEqual(readCheckpoint(data), KEPT)
        for other in ("3", f"03:{'0' * 64}", text[:-1], text + "0", "{}", '{"checkpoint": 3}', "{"):
            self.assertRaises(ProofInvalid, readCheckpoint, other.encode())
