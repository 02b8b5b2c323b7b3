"""
Validator sets, changes of them, and histories: more of what the test vectors are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import (
    Kind,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    historyPath,
    leafHash,
    merkleRoot,
)
from tools.vectors.cases import ALICE, ALONE, BIGGEST, BOB, CHAIN, CREATED, GENESIS, KEYS, publish

LATER_SEEDS = [bytes([number]) * 32 for number in range(5, 8)]
LATER_KEYS = [Ed25519PrivateKey.from_private_bytes(seed) for seed in LATER_SEEDS]

FOLLOWING_KEYS = [KEYS[0], LATER_KEYS[0], KEYS[2], KEYS[3], LATER_KEYS[1]]
"""The second set of the small chain: node 1 has a new key, and there is a fifth node."""


def setOf(generation: int, keys: Sequence[Ed25519PrivateKey]) -> ValidatorSet:
    """The validator set that have these keys."""
    return ValidatorSet(generation, tuple(key.public_key().public_bytes_raw() for key in keys))


FIRST = GENESIS.validatorSet
FOLLOWING = setOf(1, FOLLOWING_KEYS)


def change(
    keys: Sequence[Ed25519PrivateKey],
    *,
    generation: int = 1,
    current: ValidatorSet = FIRST,
    chain: bytes = CHAIN,
    approving: Sequence[int] = (0, 1, 2),
) -> ValidatorChange:
    """A change from the first set to the nodes of these keys, truly signed."""
    following = setOf(generation, keys)
    payload = changePayload(chain, current, following)
    return ValidatorChange(
        following=following,
        approvals=[(index, KEYS[index].sign(payload)) for index in approving],
        acceptances=[key.sign(payload) for key in keys],
    )


GOOD = change(FOLLOWING_KEYS)


def changes() -> Sequence[tuple[str, ValidatorChange]]:
    """
    Changes of the first set of the small chain, and those that it must refuse.

    @return: pairs of why it is refused (empty: it is not) and the change.
    """
    good = GOOD
    (_, first), (_, second), third = good.approvals
    return [
        ("", good),
        ("", change(FOLLOWING_KEYS, approving=(0, 1, 2, 3))),
        ("", change(KEYS[:1], approving=(1, 2, 3))),
        ("", change(KEYS)),
        ("it is not the next generation", change(FOLLOWING_KEYS, generation=0)),
        ("it leaves a generation out", change(FOLLOWING_KEYS, generation=2)),
        ("too few approvals", change(FOLLOWING_KEYS, approving=(0, 3))),
        ("no approval", change(FOLLOWING_KEYS, approving=())),
        ("one node approves twice", change(FOLLOWING_KEYS, approving=(0, 1, 1))),
        ("approvals not in rising order", change(FOLLOWING_KEYS, approving=(1, 0, 2))),
        (
            "an approval of a node that is none",
            evolve(good, approvals=[*good.approvals, (4, first)]),
        ),
        ("a forged approval", evolve(good, approvals=[(0, bytes(64)), *good.approvals[1:]])),
        ("approvals of each other", evolve(good, approvals=[(0, second), (1, first), third])),
        (
            "a forged approval beyond a quorum",
            evolve(good, approvals=[*good.approvals, (3, bytes(64))]),
        ),
        ("approvals of another change", evolve(change(KEYS[:1]), approvals=good.approvals)),
        ("approvals on another chain", change(FOLLOWING_KEYS, chain=ALONE.chain)),
        (
            "approvals from another set",
            change(FOLLOWING_KEYS, current=setOf(0, KEYS[::-1])),
        ),
        (
            "a node that has not accepted",
            evolve(good, acceptances=[*good.acceptances[:4], bytes(64)]),
        ),
        (
            "nodes that accepted for each other",
            evolve(good, acceptances=[good.acceptances[i] for i in (1, 0, 2, 3, 4)]),
        ),
    ]


def badChanges() -> Mapping[str, bytes]:
    """Bytes that are no change, though nearly."""
    encoded = GOOD.encode()
    keys, count = 10, 8
    twice = encoded[:keys] + encoded[keys : keys + 32] + encoded[keys : keys + 32]
    return {
        "nothing": b"",
        "ends in the generation": encoded[:7],
        "ends in the keys": encoded[: keys + 31],
        "ends in the acceptances": encoded[: keys + 5 * 96 - 1],
        "ends in the approvals": encoded[:-1],
        "more after the end": encoded + b"\x00",
        "no nodes": encoded[:count] + bytes(2) + bytes(2),
        "one node twice": twice + encoded[keys + 64 :],
        "257 nodes": encoded[:count]
        + b"\x01\x01"
        + b"".join(number.to_bytes(32, "big") for number in range(257))
        + bytes(64 * 257 + 2),
    }


def sets() -> Sequence[ValidatorSet]:
    """Some validator sets."""
    return [
        FIRST,
        FOLLOWING,
        setOf(1, KEYS),
        setOf(0, KEYS[::-1]),
        setOf(BIGGEST, LATER_KEYS[:1]),
    ]


def _apply(nonce: int, made: ValidatorChange) -> Transaction:
    return Transaction.create(Kind.VALIDATORS, BOB, nonce, CREATED, "", made.encode())


LATER_BLOCKS: Sequence[tuple[int, int, Sequence[Transaction]]] = [
    # As BLOCKS. Of four changes the second is done: the first has too few approvals, the third
    # comes after it, and the last is none. What comes after them is executed as ever.
    (
        0,
        CREATED + 40,
        [
            _apply(6, change(FOLLOWING_KEYS, approving=(1, 3))),
            _apply(7, GOOD),
            _apply(8, change(KEYS[:1])),
            Transaction.create(Kind.VALIDATORS, BOB, 9, CREATED, "", b"no change"),
            _apply(7, GOOD),
            publish(ALICE, 1034, "com/example/test", b"beside a change"),
        ],
    ),
    # The new set decides. The approvals of the old one are worth nothing any more.
    (
        0,
        CREATED + 50,
        [_apply(10, GOOD), publish(ALICE, 1035, "com/example/test", b"by the new nodes")],
    ),
]
LATER_VIEWS = [1, 1]
LATER_SIGNERS = [(0, 1, 2), (0, 1, 2, 4)]

HISTORY = [sha256(bytes([number])).digest() for number in range(14)]
"""Bytes that stand for the hashes of headers."""

PATHS = [
    (0, 1),
    (0, 2),
    (1, 2),
    (2, 3),
    (0, 5),
    (4, 5),
    (6, 7),
    (3, 8),
    (12, 13),
    (5, 14),
    (13, 14),
]
"""Heights and sizes of histories."""


def historySource(level: int, first: int, count: int) -> Sequence[bytes]:
    """The leaves of L{HISTORY}, which is too short to have other nodes that are kept."""
    assert level == 0
    return [leafHash(hash) for hash in HISTORY[first : first + count]]


def historyPaths() -> Sequence[tuple[int, int, Sequence[bytes]]]:
    """Paths from headers to roots: height, size and hashes."""
    return [(index, size, historyPath(index, size, historySource)) for index, size in PATHS]


def historyRoots() -> Sequence[bytes]:
    """The roots over the first none, one and so on up to all of them."""
    leaves = [leafHash(hash) for hash in HISTORY]
    return [merkleRoot(leaves[:size]) for size in range(len(leaves) + 1)]
