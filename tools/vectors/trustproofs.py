"""
Test vectors of proofs that are checked with a trusted checkpoint, of topic proofs, and of
contradictions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import to_builtins

from svcbroker.commands.prooftext import eventFields, topicFields
from svcbroker.proofs import (
    Checkpoint,
    contradictionDocument,
    readStatement,
    verifyProof,
    verifyTopic,
)

from .proofchain import Example, Json, changed, uncertified


def verified(proof: Json, chain: str | None, checkpoint: str | None = None) -> Json:
    """The output of C{svcbroker verify --json} without C{trusted} and C{notProved}."""
    data = json.dumps(proof).encode("ascii")
    trust: Json = {
        "chain": None if chain is None else bytes.fromhex(chain),
        "checkpoint": None if checkpoint is None else Checkpoint.parse(checkpoint),
    }
    if proof["format"].startswith("svcbroker/topic-proof"):
        return {"proved": True, **topicFields(verifyTopic(data, **trust))}
    return {"proved": True, **eventFields(verifyProof(data, **trust))}


def trusting(example: Example, fork: Example) -> Iterator[Json]:
    """Event proofs with a trusted checkpoint, that hold (C{verified}) or do not (C{why})."""
    chain, tip = example.chain.genesis.chain.hex(), example.tip
    kept, own = example.checkpoint(tip), example.checkpoint(example.first.height)
    signed, bare = example.proof(example.first, tip), example.kept(example.first, tip)

    def holds(name: str, proof: Json, checkpoint: str, chain: str | None = None) -> Json:
        found = verified(proof, chain, checkpoint)
        return {
            "name": name,
            "checkpoint": checkpoint,
            "chain": chain,
            "proof": proof,
            "verified": found,
        }

    def fails(why: str, proof: Json, checkpoint: str, chain: str | None = None) -> Json:
        return {"why": why, "checkpoint": checkpoint, "chain": chain, "proof": proof}

    yield holds("the proof's checkpoint", signed, kept)
    yield holds("the proof's checkpoint, and the chain", signed, kept, chain)
    yield holds("the event's own block", signed, own)
    yield holds("the event's own block has no certificate", uncertified(signed), own)
    yield holds("nothing is signed", bare, kept)
    yield holds("nothing is signed, and the chain is trusted too", bare, kept, chain)
    yield holds(
        "nothing is signed, and it is the event's own block",
        example.kept(example.first, example.first.height),
        own,
    )
    yield fails("the checkpoint is of a fork", signed, fork.checkpoint(tip))
    yield fails("the checkpoint is of a fork, and nothing is signed", bare, fork.checkpoint(tip))
    yield fails("the proof is of a fork", fork.kept(fork.first, tip), kept)
    yield fails("the checkpoint is another block's", signed, example.checkpoint(tip - 1))
    yield fails("the chain is another", bare, kept, own[2:])
    path = bare["checkpoint"]["path"]
    yield fails("the path is cut short", changed(bare, "checkpoint", "path", to=path[:-1]), kept)
    yield fails(
        "the header is another than the checkpoint's",
        changed(bare, "checkpoint", "header", "view", to=1),
        kept,
    )
    yield fails(
        "nothing is signed, and there are changes", {**bare, "changes": signed["changes"]}, kept
    )


def topics(example: Example) -> Iterator[tuple[str, Json]]:
    """Topic proofs that hold."""
    yield "a topic with three events", example.topic("weather/zurich")
    yield "a topic with six events", example.topic("b")


def badTopics(example: Example) -> Iterator[tuple[str, Json]]:
    """Topic proofs that do not hold."""
    proof, other = example.topic("weather/zurich"), example.topic("b")
    topic = proof["topic"]
    yield "the format is not known", changed(proof, "format", to="svcbroker/topic-proof/2")
    for name in ("sequence", "height", "created"):
        yield f"{name} is another", changed(proof, "topic", name, to=topic[name] - 1)
    yield "it is closed", changed(proof, "topic", "isOpen", to=False)
    yield "whether it is open is a number", changed(proof, "topic", "isOpen", to=1)
    yield "the topic is another", changed(proof, "topic", "topicName", to="b")
    yield "the place is another", changed(proof, "index", to=1)
    yield "there are more topics", changed(proof, "topicCount", to=3)
    yield "there are more accounts", changed(proof, "accountCount", to=2)
    yield "the accounts are others", changed(proof, "accountRoot", to=proof["topicPath"][0])
    yield "the path is another topic's", changed(proof, "topicPath", to=other["topicPath"])
    yield "the block has no certificate", changed(proof, "block", "certificate", to=None)
    earlier = example.proof(example.text)
    parts = {name: earlier[name] for name in ("block", "changes")}
    yield "the block is an earlier one", {**proof, **parts}
    yield "a change of the nodes is missing", changed(proof, "changes", 0, to=None)


def contradictions(example: Example, fork: Example) -> Iterator[tuple[str, Json]]:
    """Documents of contradictions that hold."""
    kept, forged = example.proof(example.first), fork.proof(fork.first)
    tip = fork.tip
    yield "two blocks of one height", contradiction(kept, forged)
    yield "a checkpoint, and a proof", contradiction(example.checkpoint(2), forged)
    later = uncertified(fork.proof(fork.first, tip))
    yield "a block, and a later one that has another in its history", contradiction(kept, later)
    yield (
        "two topic proofs of one height",
        contradiction(example.topic("b"), fork.topic("weather/zurich")),
    )


def badContradictions(example: Example, fork: Example) -> Iterator[tuple[str, Json]]:
    """Documents of contradictions that do not hold."""
    kept, forged = example.proof(example.first), fork.proof(fork.first)
    good = contradiction(kept, forged)
    yield "both are of one history", {**good, "second": example.proof(example.binary)}
    yield "both are the same", {**good, "second": kept}
    yield (
        "two checkpoints",
        {
            **good,
            "first": example.checkpoint(2),
            "second": fork.checkpoint(2),
        },
    )
    yield (
        "a signature does not hold",
        changed(good, "second", "block", "certificate", "round", to=1),
    )
    yield "a proof without signatures", {**good, "second": fork.kept(fork.first, fork.tip)}
    keys = good["contradiction"]["keys"]
    yield "a key is left out", changed(good, "contradiction", "keys", to=keys[:-1])
    yield "the kind is another", changed(good, "contradiction", "kind", to="topic")


def contradiction(first: Json | str, second: Json | str) -> Json:
    """The document of a contradiction."""
    statements = [
        readStatement(each.encode() if isinstance(each, str) else json.dumps(each).encode())
        for each in (first, second)
    ]
    document: Json = to_builtins(contradictionDocument(*statements))
    return document
