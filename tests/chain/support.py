"""
Chains, keys and property tests that the tests of the chain share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st

from svcbroker.chain import (
    Genesis,
    Header,
    Kind,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    changePayload,
)
from svcbroker.model import RESERVED_NAMES
from tests import examples

from .reference import VECTORS, Sent, isSigned

GENESIS = Genesis.decode(bytes.fromhex(VECTORS["genesis"][0]["encoded"]))
KEYS = [
    Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node["seed"]))
    for node in (*VECTORS["keys"]["nodes"], *VECTORS["keys"]["later"])
]
"""The private keys of the nodes of the vectors' chain, and of those that come later."""

TWINS: tuple[str, str] = tuple(VECTORS["twins"]["topics"])

few = settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
"""The settings of property tests: the same examples each time."""

FIELDS: Mapping[str, type] = {
    "chain": bytes,
    "height": int,
    "parent": bytes,
    "history": bytes,
    "view": int,
    "proposer": int,
    "timestamp": int,
    "transactionRoot": bytes,
    "receiptRoot": bytes,
    "stateRoot": bytes,
    "validators": bytes,
    "nextValidators": bytes,
    "transactionCount": int,
    "transactionTotal": int,
}
"""The fields of a header and their types."""


def headerOf(vector: Mapping[str, Any]) -> Header:
    """The header that a vector speaks of."""
    fields: dict[str, Any] = {
        name: bytes.fromhex(vector[name]) if kind is bytes else vector[name]
        for name, kind in FIELDS.items()
    }
    return Header(**fields)


def verify(index: int, payload: bytes, signature: bytes) -> bool:
    """Whether a signature is that of a node of the vectors' chain."""
    return isSigned(GENESIS.validators[index], payload, signature)


def setOf(generation: int, *keys: int) -> ValidatorSet:
    """A validator set that have some of L{KEYS}."""
    return ValidatorSet(
        generation, tuple(KEYS[index].public_key().public_bytes_raw() for index in keys)
    )


def changeTo(
    *keys: int,
    since: Sequence[int] = (0, 1, 2, 3),
    generation: int = 0,
    approving: Sequence[int] | None = None,
    chain: bytes = GENESIS.chain,
) -> ValidatorChange:
    """
    A change of the validator set, truly signed.

    @param keys: which of L{KEYS} the new set has.
    @param since: which of L{KEYS} the set before has, which is that of C{generation}.
    @param approving: the indexes of the nodes that approve; by default all.
    """
    following = setOf(generation + 1, *keys)
    payload = changePayload(chain, setOf(generation, *since), following)
    return ValidatorChange(
        following=following,
        approvals=tuple(
            (index, KEYS[since[index]].sign(payload))
            for index in (range(len(since)) if approving is None else approving)
        ),
        acceptances=tuple(KEYS[index].sign(payload) for index in keys),
    )


def sentChange(nonce: int, change: ValidatorChange, sender: bytes = bytes(20)) -> Sent:
    """The transaction that carries a change."""
    return Sent("VALIDATORS", sender, nonce, "", change.encode())


def transactionOf(sent: Sent) -> Transaction:
    """The package's form of the reference's transaction."""
    return Transaction.create(
        Kind[sent.kind],
        sent.sender,
        sent.nonce,
        sent.timestamp,
        sent.topic,
        sent.content,
        sent.extensions,
    )


numbers = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(
    st.characters(min_codepoint=32, max_codepoint=128, exclude_characters="+#"),
    min_size=1,
    max_size=20,
).filter(lambda name: name.strip(" ") != "")


extensionKeys = texts.map("svc-".__add__).filter(lambda key: key not in RESERVED_NAMES)
"""Keys of extensions. Hypothesis draws words of the code, reserved names among them."""


@st.composite
def sents(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Sent:
    """Any transaction that can be in a chain."""
    kind = draw(st.sampled_from(["OPEN", "CLOSE", "PUBLISH", "VALIDATORS"]))
    isPublish, isChange = kind == "PUBLISH", kind == "VALIDATORS"
    return Sent(
        kind=kind,
        sender=draw(st.binary(min_size=20, max_size=20)),
        nonce=draw(numbers),
        topic="" if isChange else draw(names),
        content=draw(st.binary(max_size=64)) if isPublish or isChange else b"",
        extensions=draw(st.dictionaries(extensionKeys, texts, max_size=4 if isPublish else 0)),
        timestamp=draw(numbers),
    )


@st.composite
def mutated(
    draw: Callable[[st.SearchStrategy[Any]], Any], source: st.SearchStrategy[bytes]
) -> bytes:
    """Bytes of C{source} with some of them changed, taken out, doubled or added."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 6)))
        data[at:end] = draw(st.one_of(st.binary(max_size=6), st.just(bytes(data[at:end]) * 2)))
    return bytes(data)
