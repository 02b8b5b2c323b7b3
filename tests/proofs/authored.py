"""
Proofs of events of version 2 to test with, made once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from attrs import frozen
from msgspec.json import encode

from svcbroker.chain import Genesis
from svcbroker.proofs import Checkpoint
from tools.vectors.authoredchain import AuthoredChain
from tools.vectors.signedchain import SignedChain


@frozen(kw_only=True)
class Authored:
    """
    Proofs of a chain that goes from format 2 to format 3.

    @ivar events: event proofs by what is special about them.
    @ivar unsigned: event proofs without certificates that lead to C{tip}, likewise.
    @ivar erased: event proofs without contents, likewise.
    @ivar topics: topic proofs by topic.
    @ivar growth: consistency proofs with their checkpoints.
    @ivar tip: the checkpoint of the last block.
    """

    genesis: Genesis
    events: Mapping[str, bytes]
    unsigned: Mapping[str, bytes]
    erased: Mapping[str, bytes]
    topics: Mapping[str, bytes]
    growth: Mapping[str, tuple[bytes, Checkpoint, Checkpoint]]
    tip: Checkpoint


@cache
def authored(kind: type[SignedChain] = SignedChain) -> Authored:
    """The proofs of a chain of that kind."""
    with tempfile.TemporaryDirectory() as directory:
        example = AuthoredChain(Path(directory), kind)
        try:
            return _made(example)
        finally:
            example.chain.close()


def _made(example: AuthoredChain) -> Authored:
    chain, tip = example.chain, example.tip
    prover = chain.prover
    return Authored(
        genesis=chain.genesis,
        events={
            **{name: encode(prover.event(eventId)) for name, eventId in example.ids.items()},
            "signed, with a checkpoint": encode(prover.event(example.ids["signed"], tip)),
            "of version 1, with a checkpoint of format 3": encode(prover.event(example.old, tip)),
        },
        unsigned={
            name: encode(prover.event(example.ids[name], trusted=tip)) for name in ("signed", "all")
        },
        erased={name: encode(prover.event(eventId)) for name, eventId in example.erased.items()},
        topics={
            name: encode(prover.certified(prover.topic(name, chain.state)))
            for name in ("a", "signed")
        },
        growth={
            f"{older} and {newer}": (
                encode(prover.consistency(older, newer)),
                prover.checkpoint(older),
                prover.checkpoint(newer),
            )
            for older, newer in ((0, example.switch + 1), (example.switch, tip))
        },
        tip=prover.checkpoint(tip),
    )
