"""
Write the test vectors of proofs: C{python -m tools.vectors.proofs [FILE]}.

The file, by default C{docs/vectors/proofs.json}, is the authority once it is committed. All keys
follow from names in it, so each run gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from svcbroker.chain import Kind, ValidatorSet
from svcbroker.ledgers.pbft._keys import publicKey
from svcbroker.model import EventId, TopicRule, topicPrefix
from tools.vectors.authorproofs import authorVectors, statementVectors
from tools.vectors.engineproofs import engineVectors
from tools.vectors.proofchain import FIRST, THIRD, Example, Json, changed, uncertified
from tools.vectors.signedchain import SignedChain, seedOf
from tools.vectors.trustproofs import (
    badContradictions,
    badTopics,
    contradictions,
    topics,
    trusting,
    verified,
)

DEFAULT = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "proofs.json"


def good(example: Example) -> Iterator[tuple[str, Json]]:
    """Event proofs that hold."""
    proof = example.proof
    yield "the first event", proof(example.first)
    yield "the first of five in a block", proof(example.five[0])
    yield "the last of five, which has no sibling at first", proof(example.five[4])
    yield "binary content, decided after a change of nodes", proof(example.binary)
    yield "extensions, whose order is that of their UTF-8 bytes", proof(example.text)
    yield "no content, after two changes of nodes", proof(example.empty)
    yield "with a checkpoint of later nodes", proof(example.first, example.tip)
    yield "with the next block as checkpoint", proof(example.empty, example.empty.height + 1)
    yield (
        "without a certificate of the event's block, which a later one has in its history",
        uncertified(proof(example.first, example.tip)),
    )


def bad(example: Example, fork: Example, stranger: Json) -> Iterator[tuple[str, Json]]:
    """
    Event proofs that do not hold.

    @param stranger: a good proof of another chain.
    """
    first, five = example.proof(example.first), example.proof(example.five[1])
    empty, later = example.proof(example.empty), example.proof(example.first, example.tip)
    yield "the format is not known", changed(first, "format", to="svcbroker/event-proof/4")
    yield from badFormats(example, first, later)
    yield "there is a member that is not known", changed(first, "note", to="x")
    yield "the content is another", changed(first, "event", "content", to="First")
    yield "there are two contents", changed(first, "event", "contentBase64", to="Zmlyc3Q=")
    yield "there is no content", changed(first, "event", "content", to=None)
    yield "the topic is another", changed(first, "event", "topicName", to="b")
    yield "the sequence number is another", changed(first, "event", "eventId", to="7ba3f518-2-2")
    yield (
        "the height in the event's id is another",
        changed(first, "event", "eventId", to="7ba3f518-1-3"),
    )
    yield (
        "the Base64 is not canonical",
        changed(example.proof(example.binary), "event", "contentBase64", to="/wD+/x=="),
    )
    yield "an extension was added", changed(first, "event", "extensions", to={"svc-a": ""})
    yield "the nonce is another", changed(first, "event", "nonce", to=first["event"]["nonce"] + 1)
    yield "the index is another", changed(five, "index", to=0)
    yield "the index is beyond the block", changed(five, "index", to=5)
    path = five["transactionPath"]
    yield "a path is too short", changed(five, "transactionPath", to=path[:-1])
    yield "a path is too long", changed(five, "receiptPath", to=[*five["receiptPath"], path[0]])
    yield "a sibling is another", changed(five, "transactionPath", 0, to=path[1])
    yield "digits are in upper case", changed(five, "transactionPath", 0, to=path[0].upper())
    yield (
        "the genesis is of other nodes",
        changed(first, "genesis", "nodes", to=first["genesis"]["nodes"][:3]),
    )
    yield (
        "the genesis names another chain",
        changed(first, "genesis", "chain", to=first["block"]["header"]["parent"]),
    )
    yield "it is a proof of another chain", stranger
    yield (
        "the prefix of the event's id is another",
        changed(first, "event", "eventId", to="7ba3f519-1-2"),
    )
    yield "the event's id has leading zeros", changed(first, "event", "eventId", to="7ba3f518-01-2")
    yield "a number is a text", changed(first, "block", "header", "height", to="2")
    yield "a number is negative", changed(first, "index", to=-1)
    yield from badCertificates(example, first)
    yield from badSets(example, empty)
    yield "the checkpoint's path is not its own", changed(later, "checkpoint", "path", to=path)
    yield (
        "the checkpoint is of a fork",
        changed(later, "checkpoint", to=fork.proof(fork.first, fork.tip)["checkpoint"]),
    )
    yield (
        "the checkpoint is the event's own block",
        changed(later, "checkpoint", to={**later["block"], "path": []}),
    )
    yield (
        "without its checkpoint it has more changes than it takes",
        changed(later, "checkpoint", to=None),
    )


def badFormats(example: Example, first: Json, later: Json) -> Iterator[tuple[str, Json]]:
    """Proofs with certificates that their format does not have, or without."""
    bare = uncertified(later)
    yield (
        "the event's block has no certificate, in format 1",
        {**bare, "format": later["format"]},
    )
    yield (
        "the checkpoint has no certificate, in format 1",
        changed(later, "checkpoint", "certificate", to=None),
    )
    yield "the event's block has a certificate, in format 2", {**later, "format": bare["format"]}
    yield (
        "nothing is signed, and there are changes",
        changed(bare, "checkpoint", "certificate", to=None),
    )
    yield "nothing is signed", example.kept(example.first, example.tip)
    yield "nothing is signed, and there is no checkpoint", uncertified(first)
    signature = bare["checkpoint"]["certificate"]["signatures"][1]["signature"]
    yield (
        "a signature under the checkpoint does not hold, in format 2",
        changed(bare, "checkpoint", "certificate", "signatures", 0, "signature", to=signature),
    )


def badCertificates(example: Example, first: Json) -> Iterator[tuple[str, Json]]:
    """Proofs whose block is not final."""
    signatures = first["block"]["certificate"]["signatures"]
    where = ("block", "certificate", "signatures")
    yield "there are too few signatures", changed(first, *where, to=signatures[:2])
    yield (
        "a node signs twice",
        changed(first, *where, to=[*signatures[:2], signatures[1]]),
    )
    yield "the signers are not in order", changed(first, *where, to=signatures[::-1])
    signature = signatures[0]["signature"]
    flipped = ("0" if signature[0] != "0" else "1") + signature[1:]
    yield "a signature does not hold", changed(first, *where, 0, "signature", to=flipped)
    yield (
        "a signature is another node's",
        changed(first, *where, 0, "signature", to=signatures[1]["signature"]),
    )
    yield "the round is another", changed(first, "block", "certificate", "round", to=1)
    yield "a signature is cut short", changed(first, *where, 0, "signature", to=signature[:-2])
    yield (
        "the certificate's kind is not known",
        changed(first, "block", "certificate", "kind", to="x"),
    )
    yield "the certificate has no kind", changed(first, "block", "certificate", "kind", to=None)
    header = first["block"]["header"]
    yield (
        "the header is another than was signed",
        changed(first, "block", "header", "timestamp", to=header["timestamp"] + 1),
    )


def badSets(example: Example, empty: Json) -> Iterator[tuple[str, Json]]:
    """Proofs of the wrong nodes."""
    one, two = empty["changes"]
    yield "a change is missing", changed(empty, "changes", to=[two])
    yield "the changes are in another order", changed(empty, "changes", to=[two, one])
    yield "a change is there twice", changed(empty, "changes", to=[one, one, two])
    yield "a change leads to other nodes", changed(empty, "changes", 1, "nodes", to=one["nodes"])
    header = example.chain.prover.event(example.empty).block.header.header()
    yield (
        "nodes of a former set sign",
        {**empty, "block": example.final(header, FIRST, range(4))},
    )
    yield (
        "the header names another set than the one that signs",
        {
            **empty,
            "block": example.final(replace(header, validators=header.parent), THIRD, range(5)),
        },
    )
    yield (
        "the header is of another chain",
        {**empty, "block": example.final(replace(header, chain=header.parent), THIRD, range(5))},
    )
    former = replace(header, validators=example.chain.genesis.validatorSet.hash)
    yield (
        "a former set signs under its own name, after changes",
        {**empty, "block": example.final(former, FIRST, range(4))},
    )
    yield "a block that changes nothing stands for a change", usurped(example, empty)
    yield "a set has a key twice", doubled(example, empty)
    yield "a change is not above the one before", backwards(example, empty)
    change = example.chain.prover.event(example.empty).changes[1].header.header()
    yield (
        "a new set brings itself in",
        changed(
            empty,
            "changes",
            1,
            to={**example.final(change, THIRD, range(7)), "nodes": two["nodes"]},
        ),
    )


def usurped(example: Example, empty: Json) -> Json:
    """
    A proof by nodes of one's own, who came in by a block that is final and changes nothing.
    """
    names = [f"usurper {index}" for index in range(4)]
    nodes = ValidatorSet(1, tuple(publicKey(seedOf(name)) for name in names))
    ordinary = example.proof(example.first)["block"]
    header = example.chain.prover.event(example.empty).block.header.header()
    own = replace(header, validators=nodes.hash, nextValidators=nodes.hash)
    return {
        **empty,
        "changes": [{**ordinary, "nodes": [key.hex() for key in nodes.keys]}],
        "block": example.final(own, names, range(3)),
    }


def doubled(example: Example, empty: Json) -> Json:
    """A proof by a set in which a node counts three times, brought in by the first nodes."""
    names = ["node 0", "node 0", "node 0", "node 1"]
    nodes = ValidatorSet(1, tuple(publicKey(seedOf(name)) for name in names))
    change = example.chain.prover.event(example.empty).changes[0].header.header()
    header = example.chain.prover.event(example.empty).block.header.header()
    return {
        **empty,
        "changes": [
            {
                **example.final(replace(change, nextValidators=nodes.hash), FIRST, range(3)),
                "nodes": [key.hex() for key in nodes.keys],
            }
        ],
        "block": example.final(replace(header, validators=nodes.hash), names, range(3)),
    }


def backwards(example: Example, empty: Json) -> Json:
    """A proof in which former nodes bring themselves in again, by a block at their own time."""
    nodes = ValidatorSet(2, tuple(publicKey(seedOf(name)) for name in FIRST))
    first = empty["changes"][0]
    earlier = example.chain.prover.event(example.first).block.header.header()
    header = example.chain.prover.event(example.empty).block.header.header()
    return {
        **empty,
        "changes": [
            first,
            {
                **example.final(replace(earlier, nextValidators=nodes.hash), FIRST, range(3)),
                "nodes": [key.hex() for key in nodes.keys],
            },
        ],
        "block": example.final(replace(header, validators=nodes.hash), FIRST, range(3)),
    }


def growth(example: Example) -> Iterator[Json]:
    """Consistency proofs that hold."""
    tip = example.tip
    for older, newer in ((0, 1), (0, tip), (1, 2), (5, 8), (7, tip), (tip - 1, tip)):
        yield {
            "older": example.checkpoint(older),
            "newer": example.checkpoint(newer),
            "proof": example.growth(older, newer),
        }


def badGrowth(example: Example, fork: Example) -> Iterator[Json]:
    """Consistency proofs that do not hold."""
    tip = example.tip
    older, newer, proof = example.checkpoint(5), example.checkpoint(tip), example.growth(5, tip)

    def case(why: str, proof: Json, older: str = older, newer: str = newer) -> Json:
        return {"why": why, "older": older, "newer": newer, "proof": proof}

    path = proof["path"]
    yield case("the older checkpoint is of a fork", proof, older=fork.checkpoint(5))
    yield case(
        "the older checkpoint is of a fork, and the proof says so",
        changed(proof, "older", to=fork.checkpoint(5)),
        older=fork.checkpoint(5),
    )
    yield case("the newer checkpoint is of a fork", proof, newer=fork.checkpoint(tip))
    yield case("it is about another block", proof, older=example.checkpoint(4))
    yield case("the checkpoints are swapped", proof, older=newer, newer=older)
    yield case("the path is too short", changed(proof, "path", to=path[:-1]))
    yield case("the path is too long", changed(proof, "path", to=[*path, path[0]]))
    yield case("a sibling is another", changed(proof, "path", 0, to=path[1]))
    yield case(
        "the header is another than the checkpoint's",
        changed(proof, "newer", "timestamp", to=proof["newer"]["timestamp"] + 1),
    )


def utf8Vectors(directory: Path) -> Json:
    """Proofs of a chain with names of topics in UTF-8."""
    directory.mkdir()
    chain = SignedChain(directory, topics=TopicRule.UTF8)
    try:
        first, second = "donn\u00e9es/\u00e9t\u00e9", "\u7269\u6d41/\u7bb1"
        chain.decide([chain.make(Kind.OPEN, name, version=3) for name in (first, second)])
        said = [chain.say(name, name.encode(), version=3) for name in (first, second)]
        header, trusted = chain.decide(said), chain.genesis.chain.hex()
        proofs: dict[str, Json] = {
            name: to_builtins(
                chain.prover.event(EventId(topicPrefix(name), 1, header.height), None)
            )
            for name in (first, second)
        }
        state = to_builtins(chain.prover.certified(chain.prover.topic(first, chain.state)))
        good = proofs[first]
        bad = {
            "no rule of topics": changed(good, "genesis", "topics", to=None),
            "another rule of topics": changed(good, "genesis", "topics", to="published"),
            "a rule of topics that is no text": changed(good, "genesis", "topics", to=True),
            "another form of the name": changed(
                good, "event", "topicName", to=unicodedata.normalize("NFD", first)
            ),
            "another topic": changed(good, "event", "topicName", to=second),
        }
        return {
            "genesis": to_builtins(chain.prover.genesis()),
            "chain": trusted,
            "events": [
                {"name": name, "proof": proof, "verified": verified(proof, trusted)}
                for name, proof in proofs.items()
            ],
            "topics": [{"name": first, "proof": state, "verified": verified(state, trusted)}],
            "badEvents": [{"why": why, "proof": proof} for why, proof in bad.items()],
        }
    finally:
        chain.close()


def vectors() -> Mapping[str, Any]:
    """All of them."""
    with tempfile.TemporaryDirectory() as directory:
        example = Example(Path(directory) / "chain")
        fork = Example(Path(directory) / "fork", word="forged")
        other = Example(Path(directory) / "other", name="other")
        stranger = other.proof(other.first)
        chain = example.chain.genesis.chain.hex()
        other.chain.close()
        try:
            return {
                "genesis": to_builtins(example.chain.prover.genesis()),
                "chain": chain,
                "checkpoints": [example.checkpoint(height) for height in range(example.tip + 1)],
                "fork": [fork.checkpoint(height) for height in range(fork.tip + 1)],
                "events": [
                    {"name": name, "proof": proof, "verified": verified(proof, chain)}
                    for name, proof in good(example)
                ],
                "trusting": list(trusting(example, fork)),
                "topics": [
                    {"name": name, "proof": proof, "verified": verified(proof, chain)}
                    for name, proof in topics(example)
                ],
                "badTopics": [{"why": why, "proof": proof} for why, proof in badTopics(example)],
                "contradictions": [
                    {"name": name, "document": document}
                    for name, document in contradictions(example, fork)
                ],
                "badContradictions": [
                    {"why": why, "document": document}
                    for why, document in badContradictions(example, fork)
                ],
                "growth": list(growth(example)),
                "badGrowth": list(badGrowth(example, fork)),
                "badEvents": [
                    {"why": why, "proof": proof} for why, proof in bad(example, fork, stranger)
                ],
                "cometbft": engineVectors(Path(directory) / "engine", changed),
                "format3": authorVectors(Path(directory) / "authors"),
                "format4": statementVectors(Path(directory) / "statements"),
                "utf8": utf8Vectors(Path(directory) / "utf8"),
            }
        finally:
            example.chain.close()
            fork.chain.close()


def main(arguments: Sequence[str]) -> None:
    """Write the file."""
    path = Path(arguments[0]) if arguments else DEFAULT
    path.write_text(json.dumps(vectors(), indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1:])
