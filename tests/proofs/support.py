"""
Proofs to test with, made once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen
from msgspec.json import encode
from msgspec.structs import replace

from svcbroker.chain import Genesis
from svcbroker.proofs import UNCERTIFIED, Checkpoint, EventProof
from tools.vectors.signedchain import SignedChain

UNICODE = {"svc-größe": "große \U0001f600", "svc-a": "", "svc-": "x" * 300}
BINARY = bytes(range(256)) * 3


@frozen(kw_only=True)
class Proofs:
    """
    A chain's proofs.

    @ivar events: event proofs by what is special about them.
    @ivar unsigned: event proofs that lead to the last block, without certificates, likewise.
    @ivar topics: topic proofs, by topic.
    @ivar growth: consistency proofs with the two checkpoints, likewise.
    @ivar checkpoints: that of each block, by its height.
    """

    genesis: Genesis
    events: Mapping[str, bytes]
    unsigned: Mapping[str, bytes]
    topics: Mapping[str, bytes]
    growth: Mapping[str, tuple[bytes, Checkpoint, Checkpoint]]
    checkpoints: Mapping[int, Checkpoint]


@cache
def proofs(kind: type[SignedChain] = SignedChain) -> Proofs:
    """Proofs of a chain whose nodes have changed twice."""
    with tempfile.TemporaryDirectory() as directory:
        chain = kind(Path(directory))
        try:
            return _made(chain)
        finally:
            chain.close()


def withoutCertificate(proof: EventProof) -> EventProof:
    """A proof whose event's block has no certificate."""
    return replace(proof, format=UNCERTIFIED, block=replace(proof.block, certificate=None))


def _made(chain: SignedChain) -> Proofs:
    prove: Any = chain.prover.event
    chain.open("a/b", "c")
    (first,) = chain.publish("a/b", b"first")
    thousand = chain.publish("c", *[b"%d" % number for number in range(1000)])
    chain.changeNodes("node 0", "node b", "node 2", "node 3")
    (binary,) = chain.publish("a/b", BINARY)
    (text,) = chain.publish("a/b", "größer\0\r\n\U0001f600".encode(), extensions=UNICODE)
    chain.changeNodes("node 0", "node b", *(f"node {index}" for index in range(2, 7)))
    pair = chain.publish("c", b"", b'{"a": 1}')
    for _ in range(20):
        chain.decide()
    tip = chain.head.height
    events = {
        "first block with events": prove(first),
        "first of a thousand": prove(thousand[0]),
        "in the middle of a thousand": prove(thousand[511]),
        "last of a thousand": prove(thousand[999]),
        "binary, after a change of nodes": prove(binary),
        "unicode": prove(text),
        "empty, after two changes": prove(pair[0]),
        "with a checkpoint": prove(pair[1], tip),
        "with a checkpoint that other nodes signed": prove(binary, tip),
        "with the next block as checkpoint": prove(first, first.height + 1),
        "without a certificate of its block": withoutCertificate(prove(binary, tip)),
    }
    unsigned = {
        "of the first events": prove(first, trusted=tip),
        "after two changes": prove(pair[0], trusted=tip),
    }
    topics = {
        name: chain.prover.certified(chain.prover.topic(name, chain.state)) for name in ("a/b", "c")
    }
    checkpoints = {height: chain.prover.checkpoint(height) for height in range(tip + 1)}
    growth = {
        f"{older} and {newer}": (
            encode(chain.prover.consistency(older, newer)),
            checkpoints[older],
            checkpoints[newer],
        )
        for older, newer in ((0, 1), (0, tip), (3, 4), (7, 16), (5, tip), (tip - 1, tip))
    }
    return Proofs(
        genesis=chain.genesis,
        events={name: encode(proof) for name, proof in events.items()},
        unsigned={name: encode(proof) for name, proof in unsigned.items()},
        topics={name: encode(proof) for name, proof in topics.items()},
        growth=growth,
        checkpoints=checkpoints,
    )
