"""
Test vectors of proofs whose blocks a CometBFT engine decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import to_builtins

from svcbroker.chain import ValidatorSet
from svcbroker.model import EventId
from svcbroker.proofs import CometCertificate
from svcbroker.proofs.cometbft import Hex, Instant

from .enginechain import EngineChain

Json = dict[str, Any]
Change = Callable[..., Json]


class EngineExample:
    """
    A chain with events before and after two changes of its nodes.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.chain = chain = EngineChain(directory)
        chain.open("weather/zurich")
        (self.first,) = chain.publish("weather/zurich", b"first")
        chain.decide()
        chain.changeNodes("node 0", "node 1", "node 2", "node 3", "second 4")
        (self.grown,) = chain.publish("weather/zurich", b"\xff")
        self.five = chain._state.validators
        chain.changeNodes("node 1", "node 2", "node 3")
        (self.shrunk,) = chain.publish("weather/zurich", b"")

    def proof(self, eventId: EventId, checkpoint: int | None = None) -> Json:
        """An event proof as it is written."""
        proof: Json = to_builtins(self.chain.prover.event(eventId, checkpoint))
        return proof

    def topic(self) -> Json:
        """A topic proof as it is written."""
        prover = self.chain.prover
        made = prover.topic("weather/zurich", self.chain.state)
        proof: Json = to_builtins(prover.certified(made))
        return proof

    def voted(self, after: int, nodes: ValidatorSet, /, *voters: int, **changes: Any) -> Json:
        """The light block after one of ours, changed, with true votes."""
        header = msgspec.structs.replace(self.chain.lights[after].header, **changes)
        certificate: Json = to_builtins(
            CometCertificate.of(self.chain.light(header, nodes, voters or None))
        )
        return certificate


def good(example: EngineExample) -> Iterator[tuple[str, Json]]:
    """Event proofs that hold."""
    proof = example.proof
    yield "the first event", proof(example.first)
    yield "decided by five, after a change from four", proof(example.grown)
    yield "decided by three, after two changes", proof(example.shrunk)
    later = proof(example.first, example.shrunk.height)
    yield "with a checkpoint of later nodes", later
    block = {"header": later["block"]["header"]}
    yield (
        "without a certificate of the event's block, which a later one has in its history",
        {**later, "format": "svcbroker/event-proof/2", "block": block},
    )


def bad(example: EngineExample, changed: Change) -> Iterator[tuple[str, Json]]:
    """Event proofs that do not hold."""
    four = example.chain.genesis.validatorSet
    first, later = example.proof(example.first), example.proof(example.first, example.shrunk.height)
    grown, height = example.proof(example.grown), example.first.height

    def block(**changes: Any) -> Json:
        return changed(first, "block", "certificate", to=example.voted(height, four, **changes))

    light = ("block", "certificate", "lightBlock")
    yield (
        "two of four voted",
        changed(first, "block", "certificate", to=example.voted(height, four, 0, 1)),
    )
    yield "the engine's block is of another chain", block(chainId="other")
    yield "the engine's block names another header", block(appHash=Hex(bytes(32)))
    yield "the engine's block has another height", block(height=height + 2)
    yield (
        "the engine's block is older than genesis",
        block(time=Instant(example.chain.genesis.created * 1_000_000 - 1)),
    )
    yield (
        "the engine's block was decided by later nodes",
        changed(first, "block", "certificate", to=example.voted(height, example.five)),
    )
    votes = first["block"]["certificate"]["lightBlock"]["votes"]
    yield "a vote is another's", changed(first, *light, "votes", to=[votes[1], *votes[1:]])
    yield "a vote is missing", changed(first, *light, "votes", to=votes[:3])
    members = first["block"]["certificate"]["lightBlock"]["validators"]
    yield (
        "the validators are not in the engine's order",
        changed(first, *light, "validators", to=[members[1], members[0], *members[2:]]),
    )
    yield (
        "a validator is there twice",
        changed(first, *light, "validators", to=[members[0], members[0], *members[2:]]),
    )
    yield "a validator has two votes", changed(first, *light, "validators", 0, 1, to=2)
    parts = first["block"]["certificate"]["lightBlock"]["parts"]["hash"]
    yield "digits are in lower case", changed(first, *light, "parts", "hash", to=parts.lower())
    yield (
        "a time is written in another way",
        changed(first, *light, "header", "time", to="2023-11-14T22:13:20.750000000Z"),
    )
    yield "a change is missing", changed(grown, "changes", to=[])
    yield (
        "the engine knows of no change",
        changed(
            grown,
            "changes",
            0,
            "certificate",
            to=example.voted(
                grown["changes"][0]["header"]["height"],
                four,
                nextValidatorsHash=example.chain.lights[height].header.validatorsHash,
            ),
        ),
    )
    last = example.shrunk.height
    yield (
        "the engine's blocks are of two chains",
        changed(
            later,
            "checkpoint",
            "certificate",
            to=example.voted(
                last,
                example.chain._state.validators,
                time=example.chain.lights[height].header.time,
            ),
        ),
    )


def engineVectors(directory: Path, changed: Change) -> Mapping[str, Any]:
    """All of them."""
    example = EngineExample(directory)
    try:
        return {
            "genesis": to_builtins(example.chain.prover.genesis()),
            "chain": example.chain.genesis.chain.hex(),
            "events": [{"name": name, "proof": proof} for name, proof in good(example)],
            "topics": [{"name": "after two changes", "proof": example.topic()}],
            "badEvents": [{"why": why, "proof": proof} for why, proof in bad(example, changed)],
        }
    finally:
        example.chain.close()
